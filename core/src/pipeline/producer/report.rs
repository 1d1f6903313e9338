//! What a producer counted, and why it ended.
#![forbid(unsafe_code)]

use core::fmt;

use crate::counters::{ImageCounters, NicStats, PacketCounters, RangeList};
use crate::port::StageError;
use crate::reassembly::ReassemblyCounters;
use crate::time::Nanos;

/// Why a producer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// All images that were owed have been handed over.
    Complete,
    /// The sender has finished, and everything it sent has been processed.
    SenderDone,
    /// Nothing came for `quiesce_wait` after the last packet.
    Quiet,
    /// Nothing of ours came for `startup_wait`.
    NothingArrived,
    /// The time limit.
    TimeLimit,
    /// The stop signal.
    Stopped,
    /// The consumer takes no more jobs.
    ConsumerDead,
    /// The reorder stage failed for good.
    ReorderFailed(StageError),
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::SenderDone => f.write_str("sender done"),
            Self::Quiet => f.write_str("no packet for quiesce_wait_s"),
            Self::NothingArrived => f.write_str("no packet within startup_wait_s"),
            Self::TimeLimit => f.write_str("time limit"),
            Self::Stopped => f.write_str("stopped"),
            Self::ConsumerDead => f.write_str("consumer failed"),
            Self::ReorderFailed(error) => write!(f, "reorder failed: {error}"),
        }
    }
}

/// Where a producer stands: what it can say at any time at no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStatus {
    /// Packets by what became of them; balanced at any time.
    pub packets: PacketCounters,
    /// The reassembly's own counters.
    pub reassembly: ReassemblyCounters,
    /// Images, as far as the producer knows: `pending` are those handed to the consumer.
    pub images: ImageCounters,
    /// Batches handed to the consumer.
    pub pushed: u64,
    /// Why the producer ended; `None` while it runs.
    pub end: Option<EndReason>,
    /// Packets that were polled and not processed; they count as held.
    pub backlog: usize,
    /// Whether it waits for the consumer right now.
    pub waiting: bool,
    /// Time spent waiting for the consumer, up to the last time that it had to wait.
    pub blocked: Nanos,
    /// Batch buffers that came back from the consumer and were not taken yet.
    pub returning: usize,
}

/// What a producer counted.
#[derive(Clone, Debug)]
pub struct ProducerReport {
    /// Packets by what became of them.
    pub packets: PacketCounters,
    /// The reassembly's own counters.
    pub reassembly: ReassemblyCounters,
    /// Images, as far as the producer knows: `pending` are those handed to the consumer.
    pub images: ImageCounters,
    /// Indices of the damaged images.
    pub damaged: RangeList,
    /// Indices of the missing images.
    pub missing: RangeList,
    /// Batches handed to the consumer.
    pub pushed: u64,
    /// What the NIC counted.
    pub nic: NicStats,
    /// Wire number of the first packet.
    pub join: Option<u32>,
    /// One more than the highest position of the stream that was accepted.
    pub next: u64,
    /// Why the producer ended; `None` while it runs.
    pub end: Option<EndReason>,
    /// When the first and the last packet of the stream came.
    pub active: Option<(Nanos, Nanos)>,
    /// Time spent blocked by back-pressure.
    pub blocked: Nanos,
}
