//! The rules, by number: TW01 the file, TW02 keys, TW03 values, TW04 names and flows,
//! TW05 geometry, TW06 buffers, TW07 cores, TW08 roles, TW09 notes.
//! TW06 buffers, TW07 cores, TW08 roles, TW09 notes.

use super::{Example, Rule};
use crate::Mode;
use crate::diagnostic::Severity;

const SW: &str = "resnet50_sw_loopback.yaml";
const WIRE: &str = "resnet50_wire_loopback.yaml";
const TX: &str = "resnet50_tx_spark_xhost.yaml";
const SOCKET_RX: &str = "resnet50_rx_socket.yaml";
const ROUTABLE: &str = "resnet50_routable_loopback.yaml";

const fn change(file: &'static str, from: &'static str, to: &'static str) -> Example {
    Example::Change { file, from, to }
}

/// A reorder stage of the device on one line.
macro_rules! stage {
    ($name:literal, $region:literal, $flows:literal, $width:literal) => {
        concat!(
            "{name: ",
            $name,
            ", reorder_type: gpu, memory_region: ",
            $region,
            ", payload_byte_offset: 64, flow_ids: ",
            $flows,
            ", data_types: {input_type: int8, output_type: fp16}, method: {seq_packets_per_batch: ",
            "{sequence_number: {bit_offset: 128, bit_width: ",
            $width,
            "}, packets_per_batch: 4096}}}"
        )
    };
}

/// The same in a list before the flows of a receive side.
macro_rules! stages {
    ($name:literal, $region:literal, $flows:literal, $width:literal) => {
        concat!(
            "          reorder_configs: [",
            stage!($name, $region, $flows, $width),
            "]\n          flows:\n"
        )
    };
}

/// Makes the codes and the table in one order.
macro_rules! rules {
    ($($code:ident $number:literal $severity:ident $title:literal
        $why:literal
        $fix:literal
        $example:expr;)*) => {
        /// A rule, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = concat!($number, ": ", $title)] $code,)*
        }

        /// All rules, by number.
        pub static RULES: &[Rule] = &[$(Rule {
            code: Code::$code,
            number: $number,
            severity: Severity::$severity,
            title: $title,
            why: $why,
            fix: $fix,
            example: $example,
        },)*];
    };
}

rules! {
    Encoding "TW0101" Error "the file is UTF-8 text"
        "bytes that are no text have no keys and no values"
        "save the file as UTF-8"
        Example::Bytes(b"daqiri: \xff");
    TooLarge "TW0102" Error "the file is not larger than any configuration"
        "a capture or a log given by mistake would be read to its end"
        "give the YAML file"
        Example::Repeat("# not a configuration\n", 60_000);
    Empty "TW0103" Error "the file holds a configuration"
        "an empty file would run the defaults of something else"
        "start from one of the shipped files"
        Example::Text("# only a comment\n");
    Syntax "TW0104" Error "the file is YAML"
        "nothing can be said about the values of a file that cannot be read"
        "mend the line that is shown; often a colon, a quote or a dash is missing"
        change(SW, "stream_type: \"raw\"", "stream_type: \"raw");
    Tab "TW0105" Error "no tab indents a line"
        "how far a tab indents is not defined, so YAML forbids it"
        "indent with spaces"
        change(SW, "    version: 1", "\tversion: 1");
    SecondDocument "TW0106" Error "the file holds one document"
        "of two documents a reader may take the first, the last or both"
        "keep one of the two, or make two files of them"
        change(SW, "stats:", "---\nstats:");
    TooManyValues "TW0107" Error "aliases do not multiply the file"
        "a few hundred bytes of nested aliases stand for billions of values"
        "write the values out"
        Example::Text("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
            c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
            e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
            g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n\
            i: &i [*h,*h,*h,*h,*h,*h,*h,*h,*h]\n");
    TooDeep "TW0108" Error "lists and maps are not nested without end"
        "no configuration is nested deeper than ten levels"
        "take levels out"
        Example::Repeat("[", 40);
    Alias "TW0109" Error "an alias repeats a value that is complete"
        "a value cannot hold itself"
        "write the value out"
        Example::Text("daqiri: &here\n  cfg: *here\n");
    Tag "TW0110" Error "values have no tags"
        "a tag such as `!!str` changes the type of a value behind the reader's back"
        "take the tag out; quotes make a text"
        change(SW, "version: 1", "version: !!int 1");
    Key "TW0111" Error "keys are words"
        "a list, a map or nothing as a key means no setting"
        "write the key as a word"
        change(SW, "stats:", "? [stats]\n:");
    Merge "TW0112" Error "no merge keys"
        "`<<` is a rule of YAML 1.1 that YAML 1.2 dropped; readers disagree on it"
        "write the keys out"
        change(SW, "stats:\n", "stats:\n  <<: {top_k: 4}\n");

    UnknownKey "TW0201" Error "every key is known"
        "a mistyped key would silently mean its default"
        "take the key that is proposed, or take yours out"
        change(SW, "batch_size: 8192", "batch_sise: 8192");
    DuplicateKey "TW0202" Error "a key stands once in its map"
        "of two values a reader may take the first or the last"
        "keep one of the two"
        change(SW, "timeout_us: 0", "timeout_us: 0\n              timeout_us: 2000");
    Missing "TW0203" Error "what is needed is there"
        "there is no default that would be right"
        "add the key"
        change(SW, "              batch_size: 8192\n", "");
    Ignored "TW0204" Note "the key is right, and has no effect here"
        "nothing is ignored in silence"
        "nothing to do; take it out if only tensorwire reads the file"
        change(SW, "version: 1", "version: 1\n    tx_meta_buffers: 512");
    Feature "TW0205" Unsupported "the key or word can be run here"
        "DAQIRI can do it and tensorwire cannot; running without it would not be what was asked for"
        "take it out, or run the file with DAQIRI"
        change(SW, "stream_type: \"raw\"", "stream_type: \"raw\"\n    engine: ibverbs");

    Type "TW0301" Error "a value has the type of its key"
        "a list where a number is due has no number"
        "write what is expected"
        change(SW, "cpu_core: 18", "cpu_core: [18]");
    Spelling "TW0302" Error "integers are decimal, 0x… or 0o…, without quotes"
        "`010` is 8, 10 or text, depending on the reader"
        "write the integer as shown"
        change(SW, "master_core: 8", "master_core: 08");
    Range "TW0303" Error "a number is in the range of its key"
        "a number that does not fit would wrap into one that nobody wrote"
        "take a number of the range"
        change(SW, "seq_bit_width: 12", "seq_bit_width: 272");
    Word "TW0304" Error "a word is one of those known"
        "a mistyped word would silently mean the default"
        "take the word that is proposed"
        change(SW, "kind: \"host_pinned\"", "kind: \"host_pined\"");
    Boolean "TW0305" Error "booleans are true or false"
        "`yes`, `on` and `True` are booleans to some readers and text to others"
        "write true or false, without quotes"
        change(SW, "flow_isolation: true", "flow_isolation: yes");
    Placeholder "TW0306" Error "every placeholder is filled in"
        "a template that was started unedited fails much later, as a device error"
        "put the value of your machine there"
        change(WIRE, "\"0000:01:00.0\"", "<tx-pcie-addr>");
    Address "TW0307" Error "an address is one"
        "a reader of YAML 1.1 takes 0000:01:00.0 for the number 60; here it is text, whole or \
             refused"
        "write domain:bus:device.function in hexadecimal, as lspci -D shows it"
        change(WIRE, "\"0000:01:00.0\"", "\"01:00.0\"");
    Mac "TW0308" Error "a MAC address is six hexadecimal pairs"
        "a frame with half an address reaches nobody"
        "write it as `ip link` shows it"
        change(SW, "\"02:00:00:00:00:02\"", "\"02:00:00:00:00\"");
    Ipv4 "TW0309" Error "an IPv4 address is four numbers up to 255"
        "a number with a leading zero is octal to some readers"
        "write it as 10.0.0.1"
        change(SW, "ip_src_addr: 1.1.1.1", "ip_src_addr: 1.1.1.256");
    EmptyText "TW0310" Error "a text is not empty"
        "an empty name or path refers to nothing"
        "fill it in, or take the key out"
        change(SW, "reorder_name: \"rx_reorder_resnet_int8_fp16\"", "reorder_name: \"\"");

    Unresolved "TW0401" Error "every name and number refers to something"
        "the start would look healthy and no packet would ever arrive"
        "take the name that is proposed, or add what is missing"
        change(SW, "memory_regions: [\"Data_RX_GPU\"]", "memory_regions: [\"Data_RX_GPS\"]");
    Twice "TW0402" Error "names and ids are unique"
        "of two things with one name the wrong one may be meant"
        "rename one of the two"
        change(SW, "name: \"Data_RX_GPU\"", "name: \"Data_TX_GPU\"");
    Action "TW0403" Error "a flow has the actions of its side, and ends in one queue"
        "packets that go to no queue are lost without a trace"
        "end the actions of a receive flow with one of type `queue`"
        change(SW, "                id: 0\n              match:", "              match:");
    FlowClass "TW0404" Error "the flows of an interface match on the same kind of thing"
        "a NIC does one kind per port; the other flows would be dead"
        "use one of UDP ports, flex items and eCPRI per interface"
        change(SW, "          flows:\n",
            "          flows:\n            - {name: other, id: 202, action: {type: queue, id: 0}, \
             match: {ecpri: {}}}\n");
    ReorderedTwice "TW0405" Error "a flow belongs to one reorder stage"
        "a packet cannot be put into two batches"
        "take the flow out of one of the two"
        change(SW, "          flows:\n",
            stages!("a", "Reorder_RX_GPU", "[201, 201]", "12"));
    Rss "TW0406" Error "a reordered flow goes to one queue"
        "the packets of a batch must meet in one place"
        "give the action one queue"
        change(SW, "                id: 0\n              match:",
            "                ids: [0, 1]\n              match:");
    OneOf "TW0407" Error "of keys that exclude each other one is there"
        "which of the two holds is not defined"
        "keep one of the two"
        change(SW, "              match:",
            "              actions: [{type: queue, id: 0}]\n              match:");
    DirectPoll "TW0408" Error "a queue that is polled directly has no poller settings"
        "there is no poller whose core, batch or time limit could be set"
        "take the settings out, or use `poll_mode: indirect`"
        change(SW, "cpu_core: 18", "cpu_core: 18\n              poll_mode: direct");
    Loopback "TW0409" Error "the address fits the loopback mode"
        "a software loopback opens no port, and `loopback` is no port"
        "change one of the two"
        change(SW, "address: \"loopback\"", "address: \"0000:01:00.0\"");
    RegionKind "TW0410" Error "a reorder stage can write to its region"
        "a CPU cannot write to GPU memory, a GPU not to plain host memory"
        "change the kind of the region, or the type of the stage"
        Example::Text(PLAIN_REGION);
    NoRegion "TW0411" Error "a raw queue has a memory region"
        "packets need a place to go to"
        "name a region"
        change(SW, "memory_regions: [\"Data_RX_GPU\"]", "memory_regions: []");
    EndPoint "TW0412" Error "a socket stream has its end points, and no more than it can have"
        "datagrams would go nowhere, or nobody would receive them"
        "give `socket_config` with udp:// end points: own ones to receive, those of others to send"
        change(SOCKET_RX, "udp://10.77.0.2:4096", "10.77.0.2:4096");

    PowerOfTwo "TW0501" Error "packets per image and images per batch are powers of two"
        "a slot is cut out of the sequence number by its bits"
        "take the power of two below or above"
        change(SW, "images_per_batch: 32", "images_per_batch: 24");
    Limit "TW0502" Error "images, batches and frames have sizes that the program can hold"
        "tables of this size are fixed when the program is built"
        "take less"
        change(SW, "payload_byte_offset: 64", "payload_byte_offset: 65000");
    Payload "TW0503" Error "the packets of an image carry exactly the image"
        "the last piece of each image would be missing, or padded"
        "take one of the payload sizes that are proposed"
        change(SW, "out_payload_len: 1176", "out_payload_len: 1200");
    SlotStride "TW0504" Error "the slot stride is payload × output width"
        "payloads would leave gaps, or overwrite each other"
        "write the expected number, or take the key out"
        change(SW, "output_slot_stride: 2352", "output_slot_stride: 2368");
    ImageOutBytes "TW0505" Error "the bytes of an image are elements × output width"
        "the model would read a part of the next image"
        "write the expected number, or take the key out"
        change(SW, "image_out_bytes: 301056", "image_out_bytes: 150528");
    RxBufSize "TW0506" Error "a receive buffer is payload offset + payload"
        "a frame of another size is no frame of this stream, and would be taken for one"
        "write the expected number"
        change(SW, "buf_size: 1240", "buf_size: 2048");
    OutputBufSize "TW0507" Error "an output buffer is one batch"
        "a batch would not fit, or lie apart from what the model reads"
        "write the expected number"
        change(SW, "buf_size: 9633792", "buf_size: 9633793");
    TxBufSize "TW0508" Error "a transmit buffer holds a frame"
        "frames would be cut"
        "write at least the expected number"
        change(SW, "buf_size: 2048", "buf_size: 1024");
    PacketsPerBatch "TW0509" Error "packets per batch is packets per image × images per batch"
        "two numbers for one thing must be one number"
        "write the expected number, or take the key out"
        change(SW, "  images_per_batch: 32", "  images_per_batch: 32\n  packets_per_batch: 2048");
    SequenceSpace "TW0510" Error "the sequence numbers hold whole batches"
        "at the wrap the slot of a packet would jump"
        "use at least as many bits as the packets of a batch need"
        change(SW, "seq_bit_width: 12", "seq_bit_width: 11");
    SequenceField "TW0511" Error "the sequence number lies in front of the payload"
        "it would be overwritten by samples, or taken for one"
        "move it, or make the header longer"
        change(SW, "seq_bit_offset: 128", "seq_bit_offset: 501");
    SequenceBreaks "TW0512" Error "the sequence number leaves alone what the receiver looks at"
        "the receiver could not tell its own frames from others"
        "use bit 336, the first behind the UDP header"
        change(SW, "seq_bit_offset: 128", "seq_bit_offset: 288");
    OptMax "TW0513" Error "the engine takes a whole inference"
        "images beyond the profile would be dropped"
        "raise `opt_max`, or infer in smaller parts with `inference.images_per_batch`"
        change(SW, "opt_max: 256", "opt_max: 31");
    SubBatch "TW0514" Error "sub-batches are powers of two that fill the batch"
        "images at the end of each batch would never be inferred"
        "take a power of two that divides the batch"
        change(SW, "  feature_dim: 2048", "  feature_dim: 2048\n  images_per_batch: 3");
    Int8Output "TW0515" Error "an int8 batch needs an engine that takes int8"
        "the engine would read bytes as halves of fp16 numbers"
        "set `enable_int8: true`, or `output_type: fp16`"
        change(SW, "output_type: \"fp16\"", "output_type: \"int8\"");
    PayloadOffset "TW0516" Error "the payload begins behind the headers"
        "Ethernet, IPv4 and UDP headers have 42 bytes"
        "take at least 42"
        change(SW, "payload_byte_offset: 64", "payload_byte_offset: 14");
    Disagree "TW0517" Error "the application's and the device's reorder stage agree"
        "one of the two would be ignored"
        "let the two agree, or take one of them out"
        change(SW, "          flows:\n",
            stages!("a", "Reorder_RX_GPU", "[201]", "16"));
    Sender "TW0518" Error "the sender's frames are those that the receiver expects"
        "every frame would be too long or too short"
        "write the expected number"
        change(SW, "payload_size: 1176", "payload_size: 1000");
    Profile "TW0519" Error "opt_min ≤ opt_avg ≤ opt_max"
        "no engine can be built for such a profile"
        "put the three in order"
        change(SW, "opt_min: 1", "opt_min: 64");
    Alignment "TW0520" Error "TensorRT's sub-batches begin at multiples of 256 bytes"
        "TensorRT refuses an input at another address"
        "take more images per inference"
        Example::Text(MISALIGNED);

    Carried "TW0521" Error "a socket carries the sequence number"
        "a UDP socket carries what lies behind the UDP header; the kernel writes the rest"
        "use bit 336, the first behind the UDP header"
        change(SOCKET_RX, "seq_bit_offset: 336", "seq_bit_offset: 128");

    OutputBuffers "TW0601" Error "enough output buffers for all that hold one"
        "windows, the job ring and the consumer hold buffers at the same time; with fewer the \
             pipeline stalls"
        "raise `num_bufs`, or lower `window` or `queue_depth`"
        change(SW, "num_bufs: 16", "num_bufs: 12");
    OutputLimit "TW0602" Error "not more output buffers than a pool holds"
        "the pool's table is fixed when the program is built"
        "lower `num_bufs`"
        change(SW, "num_bufs: 16", "num_bufs: 257");
    QueueBuffers "TW0603" Error "enough buffers for the ring and the batches of a queue"
        "below max(1.5 × ring, ring + 2 × batch) traffic stops after a fixed number of packets, \
             without an error"
        "raise `num_bufs` to the expected number"
        change(WIRE, "num_bufs: 51200", "num_bufs: 8192");
    RetainedBuffers "TW0604" Error "enough receive buffers until batches close"
        "a device reads packets late, so they are kept until their batch is reordered"
        "raise `num_bufs`, or lower `window`"
        change("resnet50_rx_spark_xhost.yaml", "num_bufs: 51200", "num_bufs: 28672");
    OutputRegion "TW0605" Error "it is clear where batches are built"
        "batches need a region that no queue uses"
        "name it with `reorder.memory_region`"
        change(SW, "    interfaces:\n",
            concat!("      - {name: spare, kind: host, num_bufs: 16, buf_size: 9633792}\n",
                "    interfaces:\n"));
    Split "TW0606" Unsupported "a queue has one region"
        "with two regions the NIC splits header and payload, which tensorwire does not do"
        "receive whole frames into one region"
        change(SW, "memory_regions: [\"Data_RX_GPU\"]",
            "memory_regions: [\"Data_RX_GPU\", \"Data_TX_GPU\"]");
    FewBuffers "TW0607" Warning "enough buffers for the ring and the batches of a queue, where \
             DAQIRI runs it"
        "below max(1.5 × ring, ring + 2 × batch) a queue stalls, unless DAQIRI raises the \
             number itself"
        "raise `num_bufs` to the expected number"
        Example::Text(FEW_BUFFERS);
    OtherGpu "TW0608" Warning "batches lie on the GPU that infers"
        "every batch would be copied from one GPU to the other"
        "let `affinity` and `gpu_id` agree"
        change("resnet50_rx_spark_xhost.yaml",
            "kind: \"host_pinned\"\n        affinity: 0\n        num_bufs: 16",
            "kind: \"device\"\n        affinity: 1\n        num_bufs: 16");

    NoCore "TW0701" Error "this machine has the core"
        "a thread that runs unpinned in silence is slow for no visible reason"
        "take a core of this machine, or run with `--no-pin`"
        Example::Cores(WIRE, &[0, 1, 2, 3]);
    LoopbackCores "TW0702" Note "this machine lacks cores of the software loopback"
        "the loopback is for any machine, so its threads then run unpinned"
        "nothing to do"
        Example::Cores(SW, &[0, 1]);
    SharedCores "TW0703" Warning "busy threads have a core each"
        "two busy threads on one core take turns: throughput halves and packets drop"
        "give each its own core; a machine with too few must share"
        change(SW, "cpu_core: 15", "cpu_core: 18");

    NoRole "TW0801" Error "the file sends or receives"
        "without `bench_rx` and `bench_tx` there is nothing to run"
        "add the block of the role"
        change(TX, "bench_tx:", "bench_old:");
    NoSuchMode "TW0802" Error "the file has the end that is asked for"
        "a sender's file has no receiver"
        "choose another mode, or another file"
        Example::Mode(TX, Mode::Rx);
    NoPipeline "TW0803" Unsupported "packets are images"
        "tensorwire runs image pipelines; of other DAQIRI files it only checks what they say"
        "add a `reorder` block, or run the file with DAQIRI"
        Example::Text(NO_PIPELINE);
    NoInference "TW0804" Error "a receiver has a model, or says that it has none"
        "batches would be received for nothing"
        "add an `inference` block, or set `inference_backend: none`"
        change(SW, "inference:\n  onnx_path", "tensorwire:\n  features");
    ManyQueues "TW0805" Unsupported "one queue and one stage run"
        "tensorwire runs one receive queue, one send queue and one reorder stage"
        "run one process per queue"
        change(SW, "                id: 0\n              match:",
            "                ids: [0, 1]\n              match:");
    Isolation "TW0806" Warning "an isolated interface has a flow"
        "isolated, the NIC hands over matching packets only, and nothing matches"
        "add a flow, or set `flow_isolation: false`"
        change(WIRE, "          flows:\n", "          flows: []\n          reorder_configs:\n");
    ZeroMac "TW0807" Warning "frames have a receiver"
        "the shipped files cannot know your MAC; frames to 00:00:00:00:00:00 reach nobody"
        "put in the receiver's MAC, or give it as ETH_DST_ADDR or --eth-dst"
        Example::Shipped(TX);
    NoFlow "TW0808" Warning "a flow of the receiver takes the sender's frames"
        "nothing would arrive"
        "let ports of sender and flow agree"
        change(SW, "udp_dst_port: 4096", "udp_dst_port: 4097");

    NoModel "TW0809" Error "the model that infers has a file"
        "there is nothing to load"
        "name the model as `inference.onnx_path`, or set `inference_backend: none`"
        change(SW, "  onnx_path: \"models/resnet50_features.onnx\"\n  engine_path: \
             \"models/resnet50_features.fp16in.engine\"\n", "");
    NoFeatures "TW0810" Error "features come from an inference"
        "the feature file would hold nothing"
        "leave `tensorwire.features` away, or choose another `inference_backend`"
        change(SW, "dataset:", "tensorwire: {inference_backend: none, features: f.npy}\ndataset:");

    OneBatch "TW0901" Note "the sequence numbers cover one batch"
        "a batch is told from the next by the order of arrival only, so a long loss looks like \
             a short one"
        "nothing to do on a cable; more bits tell more"
        Example::Shipped(SW);
    LossLimit "TW0902" Note "the longest loss that the numbers can tell"
        "after more lost packets than this the numbers repeat"
        "nothing to do; more bits tell more"
        Example::Shipped(ROUTABLE);
    SequenceOnField "TW0903" Note "the sequence number lies on a header field"
        "whatever trusts that field drops or changes the frames"
        "nothing to do on a cable; use bit 336 beyond it"
        Example::Shipped(SW);
    RxAlignment "TW0904" Note "the receive batch is no multiple of a batch"
        "DAQIRI would cut batches there; tensorwire's windows do not depend on it"
        "nothing to do"
        change(SW, "batch_size: 8192", "batch_size: 6000");
    TxAlignment "TW0905" Note "the send batch is not a batch"
        "DAQIRI would send parts of batches; tensorwire's receiver does not mind"
        "nothing to do"
        change(SW, "batch_size: 4096\n    header_size", "batch_size: 1000\n    header_size");
    NoDeadline "TW0906" Note "batches have no deadline"
        "a batch whose last packets are lost waits until the stream moves on or the run ends"
        "nothing to do; a deadline is `timeout_us`"
        Example::Shipped(SW);
    Deadline "TW0907" Note "the rate that the deadline asks for"
        "on a slower stream every batch is cut, although no packet is lost"
        "nothing to do if your stream is faster"
        change(SW, "timeout_us: 0", "timeout_us: 1000000");
    FastDeadline "TW0908" Warning "the deadline asks for a fast stream"
        "on a slower link, in a software loopback or with a paced sender every batch is cut"
        "raise `timeout_us`, or disable the deadline with 0"
        change(SW, "timeout_us: 0", "timeout_us: 2000");
    Absorption "TW0909" Note "how much a busy consumer may lag behind"
        "`block` holds the receiver up, not the network: beyond its buffers the NIC drops"
        "nothing to do; more buffers absorb more"
        Example::Shipped(WIRE);
    HostPinned "TW0910" Note "packets and batches lie in pinned host memory"
        "right on GB10; on a discrete GPU 12.6 images/s were measured where `device` gave about \
             4,000"
        "use `device` on a discrete GPU"
        Example::Shipped(WIRE);
    DeviceMemory "TW0911" Note "packets or batches lie in GPU memory"
        "right on a discrete GPU; on GB10 a NIC cannot reach `device` regions"
        "use `host_pinned` on GB10"
        change("resnet50_rx_spark_xhost.yaml",
            "kind: \"host_pinned\"\n        affinity: 0\n        num_bufs: 16",
            "kind: \"device\"\n        affinity: 0\n        num_bufs: 16");
}

/// A receiver of 3×4×4 images that infers one image of 96 bytes at a time.
const MISALIGNED: &str = "\
daqiri:
  cfg:
    version: 1
    master_core: 0
    stream_type: raw
    loopback: sw
    memory_regions:
      - {name: rx, kind: host, num_bufs: 16384, buf_size: 76}
      - {name: out, kind: host, num_bufs: 16, buf_size: 384}
    interfaces:
      - name: port
        address: loopback
        rx:
          queues: [{name: q, id: 0, batch_size: 16, memory_regions: [rx]}]
bench_rx: {interface_name: port}
reorder: {out_payload_len: 12, packets_per_image: 4, images_per_batch: 4}
inference: {onnx_path: m.onnx, height: 4, width: 4, images_per_batch: 1}
tensorwire: {inference_backend: tensorrt}
";

/// A GPU stage that is told to write to plain memory.
const PLAIN_REGION: &str = concat!(
    "\
daqiri:
  cfg:
    version: 1
    master_core: 0
    stream_type: raw
    loopback: sw
    memory_regions:
      - {name: rx, kind: host, num_bufs: 16384, buf_size: 1240}
      - {name: out, kind: host, num_bufs: 16, buf_size: 9633792}
    interfaces:
      - name: port
        address: loopback
        rx:
          queues: [{name: q, id: 0, batch_size: 16, memory_regions: [rx]}]
          flows: [{name: f, id: 201, action: {type: queue, id: 0}}]
          reorder_configs: [",
    stage!("a", "out", "[201]", "12"),
    "]
bench_rx: {interface_name: port}
"
);

/// A receiver on a port with fewer buffers than its ring has descriptors.
const FEW_BUFFERS: &str = "\
daqiri:
  cfg:
    version: 1
    master_core: 0
    stream_type: raw
    memory_regions:
      - {name: rx, kind: huge, num_bufs: 8192, buf_size: 2048}
    interfaces:
      - name: port
        address: 0000:01:00.0
        rx:
          queues: [{name: q, id: 0, batch_size: 16, memory_regions: [rx]}]
bench_rx: {interface_name: port}
";

/// A receiver of packets that are no images.
const NO_PIPELINE: &str = "\
daqiri:
  cfg:
    version: 1
    master_core: 0
    stream_type: raw
    loopback: sw
    memory_regions:
      - {name: rx, kind: huge, num_bufs: 16384, buf_size: 2048}
    interfaces:
      - name: port
        address: loopback
        rx:
          queues: [{name: q, id: 0, batch_size: 16, memory_regions: [rx]}]
bench_rx: {interface_name: port}
";
