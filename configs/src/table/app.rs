//! The application's part: everything beside `daqiri:`, and the root of the file.

use super::{
    Kind, Preset, Section, Support, Word, boolean, core, field, integer, ipv4, list, mac, map,
    text, word, words,
};
use tensorwire_core::geometry::GeometrySpec;
use tensorwire_core::limits::{
    MAX_IMAGES_PER_BATCH, MAX_PACKETS_PER_BATCH, MAX_QUEUE_DEPTH, MAX_WINDOWS,
};

/// The geometry that holds where a file says nothing. Generator, reader and shipped files all take
/// it from here, so that a capture made with defaults is read with defaults.
const DOCUMENTED: GeometrySpec = GeometrySpec::DOCUMENTED;

const BENCH: &str = "a block of DAQIRI's own bench programs; tensorwire does not read it";

/// The whole file.
pub static ROOT: Section = Section {
    name: "the file",
    doc: "DAQIRI's device configuration, the blocks of the application, and ours",
    fields: &[
        map("daqiri", &super::device::DAQIRI, "the network side").required(),
        field("bench_rx", Kind::MapOrList(&BENCH_RX), "the receiver's thread"),
        field("bench_tx", Kind::MapOrList(&BENCH_TX), "the sender's thread and its headers"),
        map("reorder", &REORDER, "how packets make up images and images make up batches"),
        map("inference", &INFERENCE, "the model"),
        map("dataset", &DATASET, "what is sent, and the labels of what is received"),
        map("stats", &STATS, "what is reported"),
        map("tensorwire", &TENSORWIRE, "settings that DAQIRI does not know"),
        field("bench_reorder_quantize", Kind::Foreign, BENCH),
        field("rdma_bench_server", Kind::Foreign, BENCH),
        field("rdma_bench_client", Kind::Foreign, BENCH),
        field("socket_bench_server", Kind::Foreign, BENCH),
        field("socket_bench_client", Kind::Foreign, BENCH),
    ],
};

const FROM_QUEUE: &str = "the receiver takes it from its queue and region";

static BENCH_RX: Section = Section {
    name: "bench_rx",
    doc: "the receiver: which queue, and the core of the thread that reorders",
    fields: &[
        text("interface_name", "interface with the receive queue").required(),
        integer("queue_id", 0, 65_535, "its queue").or(0),
        core("cpu_core", "core of the producer thread"),
        boolean("gpu_direct", "packets go to GPU memory").ignored(FROM_QUEUE),
        boolean("split_boundary", "header and payload in two buffers").ignored(FROM_QUEUE),
        integer("batch_size", 1, 1 << 20, "packets handed over at once").ignored(FROM_QUEUE),
        integer("max_packet_size", 1, 65_535, "longest frame").unit("bytes").ignored(FROM_QUEUE),
        integer("header_size", 0, 65_535, "bytes before the payload")
            .unit("bytes")
            .ignored("the receiver takes it from `reorder.payload_byte_offset`"),
    ],
};

const OWN_SEQUENCE: &str = "the sender counts in the field that `reorder` describes";

static BENCH_TX: Section = Section {
    name: "bench_tx",
    doc: "the sender: which queue, its core, and the headers of its frames",
    fields: &[
        text("interface_name", "interface with the transmit queue").required(),
        integer("queue_id", 0, 65_535, "its queue").or(0),
        core("cpu_core", "core of the sender thread"),
        integer("batch_size", 1, 1 << 20, "frames sent at once").unit("packets"),
        integer("payload_size", 1, 65_507, "payload of a frame").unit("bytes").required(),
        integer("header_size", 42, 65_535, "bytes before the payload").unit("bytes").required(),
        mac("eth_src_addr", "source MAC; absent = the NIC's own"),
        mac("eth_dst_addr", "destination MAC; `ETH_DST_ADDR` and `--eth-dst` replace it")
            .required(),
        ipv4("ip_src_addr", "source address").required(),
        ipv4("ip_dst_addr", "destination address").required(),
        integer("udp_src_port", 0, 65_535, "source port").required(),
        integer("udp_dst_port", 0, 65_535, "destination port").required(),
        boolean("gpu_direct", "frames lie in GPU memory")
            .ignored("the sender takes it from the kind of its region"),
        boolean("split_boundary", "header and payload in two buffers")
            .ignored("the sender takes it from the regions of its queue"),
        integer("sequence_number_offset", 0, 65_535, "place of a 32-bit number in the payload")
            .unit("bytes")
            .ignored(OWN_SEQUENCE),
        integer("sequence_number_start", 0, u32::MAX as u64, "first number").ignored(OWN_SEQUENCE),
    ],
};

static OUTPUT_TYPES: &[Word] =
    &[word("fp16"), word("bf16"), word("fp32"), word("fp64"), word("int32"), word("int8")];

static REORDER: Section = Section {
    name: "reorder",
    doc: "the geometry: packets to images to batches",
    fields: &[
        text("reorder_name", "name of the stage"),
        integer("out_payload_len", 1, 65_507, "payload of a packet")
            .unit("bytes")
            .or(DOCUMENTED.payload_bytes as u64),
        integer("output_slot_stride", 1, 1 << 24, "bytes of a slot: payload × output width")
            .unit("bytes"),
        integer("packets_per_image", 1, MAX_PACKETS_PER_BATCH as u64, "a power of two")
            .unit("packets")
            .or(DOCUMENTED.packets_per_image as u64),
        integer("payload_byte_offset", 0, 65_535, "first byte of the payload")
            .unit("bytes from the start of the frame")
            .or(DOCUMENTED.payload_byte_offset as u64),
        integer("seq_bit_offset", 0, 524_287, "first bit of the sequence number")
            .unit("bits from the start of the frame")
            .or(DOCUMENTED.seq_bit_offset as u64),
        integer("seq_bit_width", 1, 32, "bits of the sequence number")
            .unit("bits")
            .or(DOCUMENTED.seq_bit_width as u64),
        integer("images_per_batch", 1, MAX_IMAGES_PER_BATCH as u64, "a power of two")
            .unit("images")
            .or(DOCUMENTED.images_per_batch as u64),
        integer("image_out_bytes", 1, u32::MAX as u64, "elements × output width").unit("bytes"),
        words("output_type", OUTPUT_TYPES, "element type in the batch").or_word("fp16"),
        words("reorder_type", super::device::REORDER_TYPES, "where it runs").or_word("gpu"),
        text("memory_region", "output buffers; absent = the region that no queue uses"),
        list(
            "flow_ids",
            &Kind::Integer { min: 0, max: u32::MAX as u64 },
            "flows whose packets are reordered; absent = all of the queue",
        ),
        integer("packets_per_batch", 1, 1 << 32, "packets_per_image × images_per_batch")
            .unit("packets"),
    ],
};

static INFERENCE: Section = Section {
    name: "inference",
    doc: "the model and the thread that runs it",
    fields: &[
        text("onnx_path", "the model"),
        text("engine_path", "the TensorRT engine built from it"),
        boolean("enable_fp16", "16-bit floating point").on(),
        boolean("enable_int8", "8-bit integers").off(),
        integer("channels", 1, 1024, "channels of an image").or(DOCUMENTED.channels as u64),
        integer("height", 1, 65_536, "rows of an image")
            .unit("pixels")
            .or(DOCUMENTED.height as u64),
        integer("width", 1, 65_536, "columns of an image")
            .unit("pixels")
            .or(DOCUMENTED.width as u64),
        integer("feature_dim", 1, 65_536, "features of an image").or(2048),
        integer("opt_min", 1, 4096, "least batch of the profile").unit("images").or(1),
        integer("opt_avg", 1, 4096, "batch that the profile is tuned for").unit("images").or(32),
        integer("opt_max", 1, 4096, "largest batch of the profile").unit("images").or(256),
        core("cpu_core", "core of the consumer thread"),
        integer("gpu_id", 0, 255, "GPU that infers").or(0),
        text("input_name", "input tensor of the model").preset(Preset::Text("input")),
        text("output_name", "output tensor of the model").preset(Preset::Text("features")),
        boolean("enable_cuda_graph", "record the launches once, replay them").off(),
        boolean("enable_dual_context", "two execution contexts take turns").off(),
        integer("pca_every_n_batches", 0, 1 << 32, "PCA of every n-th batch")
            .unit("batches, 0 = off")
            .or(0),
        integer("images_per_batch", 1, 4096, "images inferred at once, a divisor of the batch")
            .unit("images"),
    ],
};

static DATASET: Section = Section {
    name: "dataset",
    doc: "a prepared capture and its labels",
    fields: &[
        text("pcap_path", "the capture that is sent"),
        text("labels_path", "class of each image; absent = beside the capture"),
    ],
};

static STATS: Section = Section {
    name: "stats",
    doc: "samples, class means and PCA",
    fields: &[
        boolean("enabled", "report them").on(),
        integer("top_k", 1, 65_536, "leading dimensions of a class mean").or(8),
    ],
};

static TENSORWIRE: Section = Section {
    name: "tensorwire",
    doc: "settings that DAQIRI does not know; all have defaults",
    fields: &[
        integer("window", 1, MAX_WINDOWS as u64, "batches open at once").unit("batches").or(2),
        words("missing", &[word("passthrough"), word("drop")], "what becomes of partial batches")
            .or_word("passthrough"),
        words("backpressure", &[word("block"), word("drop")], "what a full job ring does")
            .or_word("block"),
        integer("queue_depth", 1, MAX_QUEUE_DEPTH as u64, "batches that may wait for inference")
            .unit("batches")
            .or(8),
        integer("startup_wait_s", 0, 86_400, "longest wait for the first packet").unit("s").or(180),
        integer("quiesce_wait_s", 0, 86_400, "longest wait after the last packet").unit("s").or(5),
        words("verify", &[word("none"), word("ip"), word("udp")], "checksums the receiver checks")
            .or_word("none"),
        boolean("accept_trailer", "a longer frame is placed, and counted as trimmed").off(),
        words("rx_poll", &[word("auto"), word("fused"), word("split")], "poller and producer")
            .or_word("auto"),
        integer("rx_ring", 64, 65_536, "receive descriptors of the NIC").or(8192),
        integer("tx_ring", 64, 65_536, "transmit descriptors of the NIC").or(8192),
        boolean("socket_gro", "a receiving socket takes groups of datagrams from the kernel").off(),
        words("inference_backend", BACKENDS, "who infers").or_word("auto"),
        integer(
            "workspace_mib",
            1,
            1 << 20,
            "most scratch memory of a layer of TensorRT; absent = its own limit",
        )
        .unit("MiB"),
        text("features", "file that takes the features"),
        boolean("lock_memory", "all memory is filled in and locked before the start").off(),
        integer(
            "realtime_priority",
            1,
            99,
            "SCHED_FIFO priority of the threads of a receiver; absent = not real time",
        ),
        boolean("isolated_cores", "refuse cores that the kernel does not keep free of others")
            .off(),
    ],
};
static BACKENDS: &[Word] = &[word("auto"), word("tensorrt"), word("onnx"), word("none")];

/// Blocks of DAQIRI's bench programs by the start of their name.
pub(crate) fn foreign(key: &str) -> Option<Support> {
    let known = ["bench_", "rdma_bench_", "socket_bench_"];
    known.iter().any(|start| key.starts_with(start)).then_some(Support::Ignored(BENCH))
}
