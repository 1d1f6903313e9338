//! A checked configuration, in the types that the rest of the program works with.
//!
//! Only [`crate::check_str`] and its siblings make one, and only of a file without an error: past
//! this point nothing re-checks.

use std::fmt;
#[cfg(feature = "yaml")]
use std::net::Ipv4Addr;
use std::net::{IpAddr, SocketAddrV4};

use tensorwire_core::flow::{FlowMatch, FlowTable, FlowTableError};
use tensorwire_core::geometry::{ElementType, Geometry, Pools};
use tensorwire_core::header::{HeaderSpec, Verify};
use tensorwire_core::outer::Outer;
use tensorwire_core::time::Nanos;

use crate::Mode;
pub use crate::address::PciAddress;
#[cfg(feature = "yaml")]
use crate::resolve::EndPoints;

/// Everything that a run needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Core of the main thread.
    pub master_core: u32,
    /// Least severity that is logged.
    pub log_level: LogLevel,
    /// `cfg.debug`.
    pub debug: bool,
    /// TX and RX are joined in software; no NIC is opened.
    pub software_loopback: bool,
    /// Every region of the file, in its order.
    pub regions: Vec<Region>,
    /// Images, packets, batches.
    pub geometry: Geometry,
    /// Whether the image's shape was in the file. A sender without an `inference:` block knows only
    /// how many bytes an image has; its shape is then `[1, packets_per_image, payload]`.
    pub shape_given: bool,
    /// The receiver, if the file has one.
    pub rx: Option<Receiver>,
    /// The sender, if the file has one.
    pub tx: Option<Sender>,
    /// The model.
    pub inference: Option<Inference>,
    /// Capture and labels.
    pub dataset: Dataset,
    /// What is reported.
    pub stats: Stats,
    /// The `tensorwire:` block, with its defaults.
    pub settings: Settings,
}

/// `cfg.log_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For developers.
    Debug,
    /// What goes on.
    Info,
    /// What is probably not meant.
    Warn,
    /// What went wrong.
    Error,
    /// What ended the run.
    Critical,
    /// Nothing.
    Off,
}

/// Equal buffers in one kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name in the file.
    pub name: String,
    /// Kind of memory.
    pub kind: RegionKind,
    /// GPU id for [`RegionKind::Device`], NUMA node otherwise.
    pub affinity: u32,
    /// Number of buffers.
    pub buffers: u32,
    /// Bytes of one buffer.
    pub buffer_bytes: u32,
}

impl Region {
    /// Bytes of all buffers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.buffers) * u64::from(self.buffer_bytes)
    }
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Huge pages of the host.
    Huge,
    /// Memory of a GPU.
    Device,
    /// Host memory that a GPU reads in place.
    HostPinned,
    /// Plain host memory.
    Host,
}

impl RegionKind {
    /// The word of the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Huge => "huge",
            Self::Device => "device",
            Self::HostPinned => "host_pinned",
            Self::Host => "host",
        }
    }
}

/// How an interface is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `domain:bus:device.function`.
    Pci(PciAddress),
    /// A Linux interface.
    Interface(String),
    /// A virtual device of DPDK with its options, as `net_memif0,role=server,id=0`.
    Virtual(String),
    /// Of a socket or RoCE stream.
    Ip(IpAddr),
    /// The software loopback.
    Loopback,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(pci) => pci.fmt(f),
            Self::Interface(name) | Self::Virtual(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
            Self::Loopback => f.write_str("loopback"),
        }
    }
}

/// The receiving side.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Name of the interface.
    pub interface: String,
    /// Its address.
    pub address: Address,
    /// Number of the queue.
    pub queue_id: u32,
    /// Name of the queue.
    pub queue: String,
    /// Key path of the queue, as `daqiri.cfg.interfaces[0].rx.queues[0]`.
    pub queue_path: String,
    /// Key path of the receiver's block, as `bench_rx[0]`.
    pub bench_path: String,
    /// Core of the poller, if given.
    pub poller_core: Option<u32>,
    /// Core of the producer (`bench_rx.cpu_core`), if given.
    pub producer_core: Option<u32>,
    /// Packets handed over at once.
    pub batch_size: u32,
    /// From the first packet of a batch until it is closed although packets miss; zero = never.
    pub timeout: Nanos,
    /// Index in [`Config::regions`]: where packets go.
    pub region: usize,
    /// Index in [`Config::regions`]: where batches are built.
    pub output_region: usize,
    /// The NIC hands over matching packets only.
    pub flow_isolation: bool,
    /// The NIC says when packets came, if it can.
    pub hardware_timestamps: bool,
    /// Flows of the queue, in file order; one that takes everything where the file has none.
    pub flows: Vec<FlowMatch>,
    /// The flows whose packets are reordered; empty = all.
    pub reordered_flows: Vec<u32>,
    /// Headers that its frames come with and that are taken off, the outermost first (`vlan_pop`,
    /// `tunnel_decap`).
    pub outer: Vec<Outer>,
    /// `reorder_type: gpu`: batches are built on the GPU, where there is one.
    pub reorder_on_gpu: bool,
    /// `endianness: network`: elements of 16 and 32 bits are big-endian on the wire.
    pub network_order: bool,
    /// Buffers and rings, as they were checked.
    pub pools: Pools,
    /// Own end point, where the stream is of sockets.
    pub socket: Option<SocketAddrV4>,
}

impl Receiver {
    /// The flows as a NIC matches them.
    ///
    /// # Errors
    ///
    /// None for a receiver of a checked file: it has no more flows than a table holds, each with
    /// its own id.
    pub fn flow_table(&self) -> Result<FlowTable, FlowTableError> {
        table(self.flows.iter())
    }

    /// The flows whose packets are reordered; packets of the others are of no interest.
    ///
    /// # Errors
    ///
    /// None for a receiver of a checked file, as with [`Receiver::flow_table`].
    pub fn reordered_flow_table(&self) -> Result<FlowTable, FlowTableError> {
        table(self.reordered())
    }

    /// The flows of [`Receiver::reordered_flow_table`], in file order.
    pub fn reordered(&self) -> impl Iterator<Item = &FlowMatch> {
        let ids = &self.reordered_flows;
        self.flows.iter().filter(|flow| ids.is_empty() || ids.contains(&flow.id))
    }
}

/// The sending side.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    /// Name of the interface.
    pub interface: String,
    /// Its address.
    pub address: Address,
    /// Number of the queue.
    pub queue_id: u32,
    /// Name of the queue.
    pub queue: String,
    /// Key path of the sender's block, as `bench_tx[0]`.
    pub bench_path: String,
    /// Core of the queue, if given.
    pub queue_core: Option<u32>,
    /// Core of the sender thread (`bench_tx.cpu_core`), if given.
    pub worker_core: Option<u32>,
    /// Frames sent at once.
    pub batch_size: u32,
    /// Index in [`Config::regions`]: where frames are built.
    pub region: usize,
    /// Addresses and ports of the frames. The source MAC is zero where the file gives none.
    pub header: HeaderSpec,
    /// Headers that frames of a flow get, the innermost first (`tunnel_encap`, `vlan_push`). Of
    /// several flows that match the first counts.
    pub flows: Vec<(FlowMatch, Vec<Outer>)>,
    /// The NIC fills in its own source MAC (`tx_eth_src`).
    pub offload_eth_src: bool,
    /// Rate limit in megabits per second, with preamble and gap; 0 = none.
    pub pacing_mbps: u32,
    /// Own end point (port 0: the kernel chooses) and where frames go, where the stream is of
    /// sockets.
    pub socket: Option<(SocketAddrV4, SocketAddrV4)>,
}

/// The model and its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inference {
    /// The ONNX file.
    pub onnx_path: Option<String>,
    /// The TensorRT engine.
    pub engine_path: Option<String>,
    /// Input tensor.
    pub input_name: String,
    /// Output tensor.
    pub output_name: String,
    /// Features of an image.
    pub feature_dim: u32,
    /// Least batch of the profile.
    pub opt_min: u32,
    /// Batch that the profile is tuned for.
    pub opt_avg: u32,
    /// Largest batch of the profile.
    pub opt_max: u32,
    /// 16-bit floating point.
    pub enable_fp16: bool,
    /// 8-bit integers.
    pub enable_int8: bool,
    /// Launches recorded once.
    pub enable_cuda_graph: bool,
    /// Two contexts in turns.
    pub enable_dual_context: bool,
    /// GPU.
    pub gpu_id: u32,
    /// Core of the consumer, if given.
    pub cpu_core: Option<u32>,
    /// PCA of every n-th batch; 0 = off.
    pub pca_every_n_batches: u64,
    /// Images inferred at once; the whole batch unless the file or the run says less.
    pub images_per_inference: u32,
}

/// `dataset:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dataset {
    /// The capture.
    pub pcap_path: Option<String>,
    /// Its labels.
    pub labels_path: Option<String>,
}

/// `stats:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Samples, class means and PCA are reported.
    pub enabled: bool,
    /// Leading dimensions of a class mean.
    pub top_k: u32,
}

/// The `tensorwire:` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Batches open at once.
    pub window: u32,
    /// What becomes of partial batches.
    pub missing: Missing,
    /// What a full job ring does.
    pub backpressure: Backpressure,
    /// Slots of the job ring.
    pub queue_depth: u32,
    /// Longest wait for the first packet, in seconds.
    pub startup_wait_s: u32,
    /// Longest wait after the last packet, in seconds.
    pub quiesce_wait_s: u32,
    /// Checksums that the receiver checks.
    pub verify: Verify,
    /// A longer frame is placed, and counted as trimmed.
    pub accept_trailer: bool,
    /// Poller and producer.
    pub rx_poll: RxPoll,
    /// Receive descriptors.
    pub rx_ring: u32,
    /// Transmit descriptors.
    pub tx_ring: u32,
    /// A receiving socket takes groups of datagrams from the kernel.
    pub socket_gro: bool,
    /// Who infers.
    pub inference_backend: Backend,
    /// Most scratch memory of a layer of TensorRT, in MiB; its own limit where not given.
    pub workspace_mib: Option<u32>,
    /// File that takes the features.
    pub features: Option<String>,
    /// All memory is filled in and locked before the start.
    pub lock_memory: bool,
    /// `SCHED_FIFO` priority of the receiver's threads, 1 to 99; none: not real time.
    pub realtime_priority: Option<u8>,
    /// Cores that the kernel does not keep free of others are refused.
    pub isolated_cores: bool,
}

/// `tensorwire.missing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// Whole images of a partial batch are delivered.
    Passthrough,
    /// A partial batch is given up.
    Drop,
}

/// `tensorwire.backpressure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backpressure {
    /// The producer waits.
    Block,
    /// The batch is dropped and counted.
    Drop,
}

/// `tensorwire.rx_poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RxPoll {
    /// Fused when poller and producer share a core, split otherwise.
    Auto,
    /// One thread polls and reorders.
    Fused,
    /// Two threads.
    Split,
}

/// `tensorwire.inference_backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// TensorRT where there is one, the CPU otherwise.
    Auto,
    /// TensorRT or nothing.
    TensorRt,
    /// The ONNX model on the CPU.
    Onnx,
    /// No inference: batches are received and given back.
    None,
}

impl Config {
    /// Shape of one image, `[channels, height, width]`; see [`Config::shape_given`].
    #[must_use]
    pub fn image_shape(&self) -> [u32; 3] {
        let spec = self.geometry.spec();
        [spec.channels, spec.height, spec.width]
    }

    /// The ends that it has; a sender where it has neither.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match (&self.rx, &self.tx) {
            (Some(_), Some(_)) => Mode::Both,
            (Some(_), None) => Mode::Rx,
            (None, _) => Mode::Tx,
        }
    }

    /// Puts in the end points; the frames have their addresses and ports, which the kernel writes.
    #[cfg(feature = "yaml")]
    pub(crate) fn put_sockets(&mut self, ends: EndPoints) {
        if let Some(rx) = &mut self.rx {
            rx.socket = ends.rx;
        }
        if let Some((tx, (local, remote))) = self.tx.as_mut().zip(ends.tx) {
            tx.socket = Some((local, remote));
            (tx.header.ip_src, tx.header.udp_src) = (local.ip().octets(), local.port());
            (tx.header.ip_dst, tx.header.udp_dst) = (remote.ip().octets(), remote.port());
        }
    }

    /// Element type of the batch.
    #[must_use]
    pub fn output_type(&self) -> ElementType {
        self.geometry.spec().output
    }
}

fn table<'a>(mut flows: impl Iterator<Item = &'a FlowMatch>) -> Result<FlowTable, FlowTableError> {
    let mut table = FlowTable::new();
    flows.try_for_each(|flow| table.push(flow))?;
    Ok(table)
}

/// An address as core's header builder wants it.
#[cfg(feature = "yaml")]
pub(crate) fn octets(address: Option<Ipv4Addr>) -> [u8; 4] {
    address.map_or([0; 4], |address| address.octets())
}
