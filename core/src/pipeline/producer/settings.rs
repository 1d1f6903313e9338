//! The settings of a producer.
#![forbid(unsafe_code)]

use crate::geometry::Geometry;
use crate::header::PacketCheck;
use crate::time::Nanos;

/// What happens to a batch that closed with holes (`missing`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingPolicy {
    /// Its whole images are delivered; the holes are zero.
    #[default]
    Passthrough,
    /// The batch is given up, its whole images count as dropped by policy.
    Drop,
}

/// What happens when the consumer cannot keep up (`backpressure`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backpressure {
    /// The producer waits; the packet pool, then the NIC's ring, absorb what they can.
    #[default]
    Block,
    /// The batch (or the packet, where no batch buffer is free) is dropped and counted.
    Drop,
}

/// The settings of a producer.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// Shape of the stream.
    pub geometry: Geometry,
    /// Which frames are packets of the stream.
    pub check: PacketCheck,
    /// K: batches open at once.
    pub windows: u32,
    /// Deadline of a batch after its first packet; zero: none.
    pub timeout: Nanos,
    /// What happens to a batch with holes.
    pub missing: MissingPolicy,
    /// What happens when the consumer cannot keep up.
    pub backpressure: Backpressure,
    /// Most packets taken from the NIC in one step, 1..=[`MAX_POLL`](crate::limits::MAX_POLL).
    pub poll: usize,
    /// Descriptors of the NIC's ring: the floor below which the packet pool is not drained.
    pub rx_ring: usize,
    /// How long to wait for the first packet.
    pub startup_wait: Nanos,
    /// How long to wait after the last packet.
    pub quiesce_wait: Nanos,
    /// Images that are owed: the run ends when that many were handed over.
    pub owed_images: Option<u64>,
    /// The run ends this long after its start, whatever arrives.
    pub time_limit: Option<Nanos>,
}
