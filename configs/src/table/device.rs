//! The device part: `daqiri.cfg` and all below it.

use super::{
    Kind, Section, Word, boolean, core, field, integer, ipv4, list, mac, map, not_here, text, word,
    words,
};

pub(super) static DAQIRI: Section = Section {
    name: "daqiri",
    doc: "the device configuration of DAQIRI",
    fields: &[map("cfg", &CFG, "all settings of the network side").required()],
};

static CFG: Section = Section {
    name: "daqiri.cfg",
    doc: "streams, memory and interfaces",
    fields: &[
        integer("version", 1, 1, "version of this format").required(),
        core("master_core", "core of the main thread").required(),
        words("stream_type", STREAM_TYPES, "raw Ethernet frames or kernel sockets").required(),
        words("engine", ENGINES, "library that drives the NIC"),
        words(
            "log_level",
            LOG_LEVELS,
            "from `error` on no warnings and notices; `debug` and `trace`: notes of the check too",
        )
        .or_word("warn"),
        words("loopback", LOOPBACKS, "`sw` joins TX and RX in software, without a NIC").or_word(""),
        boolean("debug", "as `log_level: debug`").off(),
        integer("tx_meta_buffers", 1, 1 << 24, "descriptors of bursts on their way out")
            .or(256)
            .ignored("tensorwire sizes its descriptors itself"),
        integer("rx_meta_buffers", 1, 1 << 24, "descriptors of bursts on their way in")
            .or(256)
            .ignored("tensorwire sizes its descriptors itself"),
        list("memory_regions", &Kind::Map(&MEMORY_REGION), "memory that queues and reorder use"),
        list("interfaces", &Kind::Map(&INTERFACE), "NIC ports").required(),
    ],
};

static STREAM_TYPES: &[Word] = &[word("raw"), word("socket")];
static ENGINES: &[Word] = &[
    word("dpdk"),
    word("socket"),
    not_here("ibverbs", "the ibverbs engine is not part of tensorwire; use `dpdk`"),
];
static LOG_LEVELS: &[Word] = &[
    word("trace"),
    word("debug"),
    word("info"),
    word("warn"),
    word("error"),
    word("critical"),
    word("off"),
];
static LOOPBACKS: &[Word] = &[word(""), word("sw")];

static MEMORY_REGION: Section = Section {
    name: "memory_regions[]",
    doc: "one region: equal buffers in one kind of memory",
    fields: &[
        text("name", "name that queues and reorder refer to").required(),
        words("kind", REGION_KINDS, "huge pages, GPU memory, pinned or plain host memory")
            .required(),
        integer("affinity", 0, 1023, "GPU id for `device`, NUMA node otherwise").or(0),
        list("access", &Kind::Words(ACCESS), "rights of remote peers")
            .ignored("rights of RDMA peers; raw streams have none"),
        integer("num_bufs", 1, 1 << 28, "number of buffers").required(),
        integer("buf_size", 1, u32::MAX as u64, "size of one buffer").unit("bytes").required(),
    ],
};
static REGION_KINDS: &[Word] = &[word("huge"), word("device"), word("host_pinned"), word("host")];
static ACCESS: &[Word] = &[word("local"), word("rdma_read"), word("rdma_write")];

static INTERFACE: Section = Section {
    name: "interfaces[]",
    doc: "one port, with its receive and transmit side",
    fields: &[
        text("name", "name that the application blocks refer to").required(),
        field(
            "address",
            Kind::Address,
            "PCI address, Linux interface name, DPDK virtual device, IP address, or `loopback`",
        )
        .required(),
        map("rx", &RX, "receive side"),
        map("tx", &TX, "transmit side"),
        map("socket_config", &SOCKET_CONFIG, "of socket streams"),
        map("roce_config", &ROCE_CONFIG, "of RoCE streams"),
    ],
};

static SOCKET_CONFIG: Section = Section {
    name: "socket_config",
    doc: "end points of a socket stream",
    fields: &[
        words("mode", &[word("client"), word("server")], "who listens").required(),
        text("local_addr", "own end point, as `udp://10.0.0.1:5000`"),
        text("remote_addr", "other end point, as `tcp://10.0.0.2:6001`"),
        text("local_ip", "own address (older form)"),
        integer("local_port", 0, 65_535, "own port (older form)"),
        text("remote_ip", "other address (older form)"),
        integer("remote_port", 0, 65_535, "other port (older form)"),
        integer("max_payload_size", 1, u32::MAX as u64, "largest message").unit("bytes"),
    ],
};

static ROCE_CONFIG: Section = Section {
    name: "roce_config",
    doc: "transport of a RoCE stream",
    fields: &[words(
        "transport_mode",
        &[word("RC"), word("UC")],
        "reliable or unreliable connection",
    )],
};

static RX: Section = Section {
    name: "rx",
    doc: "receive side of an interface",
    fields: &[
        list("queues", &Kind::Map(&RX_QUEUE), "receive queues").required(),
        list("flows", &Kind::Map(&RX_FLOW), "which packets go to which queue"),
        list("flex_items", &Kind::Map(&FLEX_ITEM), "header fields of your own to match"),
        boolean("flow_isolation", "the NIC hands over matching packets only").off(),
        integer("dynamic_flow_capacity", 0, 1 << 20, "flows that may be added at run time")
            .or(0)
            .unsupported("flows cannot be added while a run goes on"),
        boolean("hardware_timestamps", "the NIC says when packets came, if it can").off(),
        list("reorder_configs", &Kind::Map(&REORDER_CONFIG), "reorder stages of the device"),
    ],
};

static POLL_MODES: &[Word] =
    &[word("indirect"), not_here("direct", "direct polling needs the ibverbs engine")];

static RX_QUEUE: Section = Section {
    name: "rx.queues[]",
    doc: "one receive queue",
    fields: &[
        text("name", "name").required(),
        integer("id", 0, 65_535, "number that flows refer to").required(),
        words("poll_mode", POLL_MODES, "who polls").or_word("indirect"),
        core("cpu_core", "core of the poller"),
        integer("batch_size", 1, 1 << 20, "packets handed over at once").unit("packets"),
        integer("timeout_us", 0, 3_600_000_000, "when a batch is closed although packets miss")
            .unit("µs, 0 = never")
            .or(0),
        list("memory_regions", &Kind::Text, "where packets go; two = header-data split"),
    ],
};

static TX: Section = Section {
    name: "tx",
    doc: "transmit side of an interface",
    fields: &[
        list("queues", &Kind::Map(&TX_QUEUE), "transmit queues").required(),
        list("flows", &Kind::Map(&TX_FLOW), "what the NIC does to packets on their way out"),
        boolean("accurate_send", "packets leave at given times")
            .off()
            .unsupported("frames are sent as fast as the queue takes them"),
    ],
};

static TX_QUEUE: Section = Section {
    name: "tx.queues[]",
    doc: "one transmit queue",
    fields: &[
        text("name", "name").required(),
        integer("id", 0, 65_535, "number").required(),
        words("poll_mode", POLL_MODES, "who polls").or_word("indirect"),
        core("cpu_core", "core of the queue"),
        integer("batch_size", 1, 1 << 20, "packets sent at once").unit("packets"),
        integer("timeout_us", 0, 3_600_000_000, "when an unfilled batch is sent")
            .unit("µs")
            .ignored("the sender never waits for a full batch"),
        list("memory_regions", &Kind::Text, "where frames are built; two = header-data split"),
        list(
            "offloads",
            &Kind::Words(&[word("tx_eth_src")]),
            "`tx_eth_src`: own address filled in",
        ),
        integer("pacing_mbps", 0, 1_000_000, "rate limit, preamble and gap included")
            .unit("Mb/s, 0 = line rate")
            .or(0),
    ],
};

static FLEX_ITEM: Section = Section {
    name: "flex_items[]",
    doc: "a 32-bit field behind the UDP header that flows can match",
    fields: &[
        text("name", "name").required(),
        integer("id", 0, 255, "number that matches refer to").required(),
        integer("offset", 0, 24, "place of the field, a multiple of 4")
            .unit("bytes after the UDP header")
            .required(),
        integer("udp_dst_port", 0, 65_535, "port of the packets that have the field").required(),
    ],
};

static RX_FLOW: Section = Section {
    name: "rx.flows[]",
    doc: "packets that match go to a queue",
    fields: &[
        text("name", "name").required(),
        integer("id", 0, u32::MAX as u64, "number that reorder refers to; 0 is legal").required(),
        map("action", &ACTION, "one action: `queue`"),
        list("actions", &Kind::Map(&ACTION), "several actions, `queue` last"),
        map("match", &MATCH, "which packets; absent = all"),
    ],
};

static TX_FLOW: Section = Section {
    name: "tx.flows[]",
    doc: "packets that match are changed on their way out",
    fields: &[
        text("name", "name").required(),
        integer("id", 0, u32::MAX as u64, "number").required(),
        map("action", &ACTION, "one action"),
        list("actions", &Kind::Map(&ACTION), "several actions"),
        map("match", &MATCH, "which packets; absent = all"),
    ],
};

static ACTION: Section = Section {
    name: "flow action",
    doc: "what happens to a matching packet",
    fields: &[
        words("type", ACTION_TYPES, "kind of action").required(),
        integer("id", 0, 65_535, "queue (`queue`)"),
        list(
            "ids",
            &Kind::Integer { min: 0, max: 65_535 },
            "queues to spread over by hash (`queue`)",
        ),
        map("tunnel", &TUNNEL, "the tunnel (`tunnel_encap`, `tunnel_decap`)"),
        integer("vlan_id", 0, 4095, "VLAN number (`vlan_push`)"),
        integer("pcp", 0, 7, "priority (`vlan_push`)").or(0),
        integer("dei", 0, 1, "may be dropped first (`vlan_push`)").or(0),
        integer("ethertype", 0, 0xffff, "EtherType of the tag (`vlan_push`)").or(0x8100),
    ],
};
static ACTION_TYPES: &[Word] = &[
    word("queue"),
    word("vlan_pop"),
    word("vlan_push"),
    word("tunnel_decap"),
    word("tunnel_encap"),
];

static TUNNEL: Section = Section {
    name: "tunnel",
    doc: "outer headers of a tunnel",
    fields: &[
        words("type", &[word("vxlan"), word("gre"), word("nvgre")], "kind of tunnel").required(),
        mac("outer_eth_src", "outer source MAC"),
        mac("outer_eth_dst", "outer destination MAC"),
        ipv4("outer_ipv4_src", "outer source address"),
        ipv4("outer_ipv4_dst", "outer destination address"),
        integer("vni", 0, 0xff_ffff, "network number (vxlan)"),
        integer("outer_udp_src", 0, 65_535, "outer source port (vxlan)"),
        integer("outer_udp_dst", 0, 65_535, "outer destination port (vxlan)").or(4789),
        integer("gre_protocol", 0, 0xffff, "protocol inside (gre)").or(0x0800),
        integer("tni", 0, 0xff_ffff, "network number (nvgre)"),
        integer("flow_id", 0, 255, "flow number (nvgre)").or(0),
    ],
};

static MATCH: Section = Section {
    name: "flow match",
    doc: "what a packet must look like",
    fields: &[
        field("udp_src", Kind::Ports, "source port, or range as `1000-1010`"),
        field("udp_dst", Kind::Ports, "destination port, or range"),
        integer("ipv4_len", 20, 65_535, "total length in the IPv4 header").unit("bytes"),
        integer("flex_item_id", 0, 255, "flex item that is compared").unsupported(NO_FLEX),
        integer("val", 0, u32::MAX as u64, "value of the flex item"),
        integer("mask", 0, u32::MAX as u64, "bits of the flex item that count"),
        map("ecpri", &ECPRI, "eCPRI messages; an empty map = all of them")
            .unsupported("eCPRI flows are not matched"),
    ],
};
const NO_FLEX: &str = "flex items are not matched";

static ECPRI: Section = Section {
    name: "ecpri",
    doc: "which eCPRI messages",
    fields: &[
        integer("msg_type", 0, 255, "message type"),
        integer("pc_id", 0, 65_535, "physical channel (IQ data)"),
        integer("rtc_id", 0, 65_535, "real-time control"),
    ],
};

static REORDER_CONFIG: Section = Section {
    name: "rx.reorder_configs[]",
    doc: "a reorder stage, as the device knows it",
    fields: &[
        text("name", "name").required(),
        words("reorder_type", REORDER_TYPES, "where it runs").required(),
        text("memory_region", "region of the output buffers").required(),
        integer("payload_byte_offset", 0, 65_535, "first byte of the payload")
            .unit("bytes from the start of the frame")
            .required(),
        map("data_types", &DATA_TYPES, "conversion on the way; absent = copy"),
        list(
            "flow_ids",
            &Kind::Integer { min: 0, max: u32::MAX as u64 },
            "flows whose packets are reordered",
        )
        .required(),
        map("method", &METHOD, "how a packet tells its place").required(),
    ],
};
pub(super) static REORDER_TYPES: &[Word] = &[word("gpu"), word("cpu")];

static DATA_TYPES: Section = Section {
    name: "data_types",
    doc: "element types of input and output",
    fields: &[
        words(
            "input_type",
            &[word("int4"), word("int8"), word("int16"), word("int32")],
            "type on the wire",
        )
        .required(),
        words(
            "output_type",
            &[word("fp16"), word("bf16"), word("fp32"), word("fp64"), word("int32")],
            "type in the batch",
        )
        .required(),
        words("endianness", &[word("host"), word("network")], "byte order on the wire")
            .or_word("host"),
    ],
};

static METHOD: Section = Section {
    name: "method",
    doc: "exactly one of the two",
    fields: &[
        map(
            "seq_packets_per_batch",
            &SEQ_PACKETS_PER_BATCH,
            "one running number; its remainder is the slot",
        ),
        map("seq_batch_number", &SEQ_BATCH_NUMBER, "a number in the batch and one of the batch"),
    ],
};

static SEQ_PACKETS_PER_BATCH: Section = Section {
    name: "seq_packets_per_batch",
    doc: "one running number over all batches",
    fields: &[
        map("sequence_number", &BIT_FIELD, "the running number").required(),
        integer("packets_per_batch", 1, 65_536, "slots of a batch").unit("packets").required(),
    ],
};

static SEQ_BATCH_NUMBER: Section = Section {
    name: "seq_batch_number",
    doc: "two numbers in the header",
    fields: &[
        map("sequence_number", &BIT_FIELD, "the running number").required(),
        map("batch_number", &BIT_FIELD, "its upper bits: the batch").required(),
    ],
};

static BIT_FIELD: Section = Section {
    name: "bit field",
    doc: "big-endian bits, counted from the first bit of the frame",
    fields: &[
        integer("bit_offset", 0, 524_287, "first bit").unit("bits").required(),
        integer("bit_width", 1, 32, "number of bits").unit("bits").required(),
    ],
};
