/// Images, packets and batches; `Geometry::new` takes it.
pub(crate) const GEOMETRY: tensorwire_core::geometry::GeometrySpec =
    tensorwire_core::geometry::GeometrySpec {
    channels: 3,
    height: 16,
    width: 16,
    packets_per_image: 4,
    images_per_batch: 4,
    payload_byte_offset: 64,
    payload_bytes: 192,
    seq_bit_offset: 336,
    seq_bit_width: 8,
    input: tensorwire_core::geometry::ElementType::Int8,
    output: tensorwire_core::geometry::ElementType::Fp16,
};
/// Flows of the receive queue, in order.
pub(crate) const RX_FLOWS: [tensorwire_core::flow::FlowMatch; 1] = [
    tensorwire_core::flow::FlowMatch {
        id: 0,
        udp_src: Some(tensorwire_core::flow::PortRange::single(4096)),
        udp_dst: match tensorwire_core::flow::PortRange::new(4000, 5000) {
            Ok(range) => Some(range),
            Err(_) => None,
        },
        ipv4_len: Some(242),
    },
];
/// Flows that are reordered; empty = all.
pub(crate) const RX_REORDERED: [u32; 1] = [0];
/// Buffers and rings.
pub(crate) const RX_POOLS: tensorwire_core::geometry::Pools = tensorwire_core::geometry::Pools {
    windows: 2,
    queue_depth: 8,
    output_bufs: 16,
    rx_bufs: 16384,
    rx_ring: 8192,
    rx_batch: 16,
    retained: false,
    reorders_in_flight: 2,
};
/// Deadline of a batch; zero = none.
pub(crate) const RX_TIMEOUT: tensorwire_core::time::Nanos = tensorwire_core::time::Nanos(0);
/// Checksums that are checked.
pub(crate) const RX_VERIFY: tensorwire_core::header::Verify = tensorwire_core::header::Verify::None;
/// A longer frame is placed.
pub(crate) const RX_ACCEPT_TRAILER: bool = false;
/// Partial batches are given up.
pub(crate) const RX_DROP_PARTIAL: bool = false;
/// A full job ring drops batches.
pub(crate) const RX_DROP_WHEN_FULL: bool = false;
/// Address of the port.
pub(crate) const RX_ADDRESS: &str = "loopback";
/// Number of the queue.
pub(crate) const RX_QUEUE: u32 = 0;
/// Cores of poller and producer.
pub(crate) const RX_CORES: [Option<u32>; 2] = [Some(2), Some(3)];
/// Addresses and ports of the frames.
pub(crate) const TX_HEADER: tensorwire_core::header::HeaderSpec =
    tensorwire_core::header::HeaderSpec {
    eth_src: [0, 0, 0, 0, 0, 0],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [1, 1, 1, 1],
    ip_dst: [2, 2, 2, 2],
    udp_src: 4096,
    udp_dst: 4096,
};
/// Frames sent at once.
pub(crate) const TX_BATCH: u32 = 16;
/// Rate limit in Mb/s; 0 = none.
pub(crate) const TX_PACING_MBPS: u32 = 900;
/// Address of the port.
pub(crate) const TX_ADDRESS: &str = "loopback";
/// Number of the queue.
pub(crate) const TX_QUEUE: u32 = 0;
/// Cores of queue and sender.
pub(crate) const TX_CORES: [Option<u32>; 2] = [Some(1), Some(4)];
