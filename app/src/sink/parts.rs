//! The groups of counters in the summary, each with its keys in their order.

use serde::Serialize;
use tensorwire_core::counters::{
    DroppedImages, ImageCounters, MalformedCounters, NicStats, PacketCounters, PartialBy,
    SlotCounters, TxStats,
};
use tensorwire_core::pipeline::transmitter::TransmitCounters;
use tensorwire_core::time::Nanos;

use super::latency::Latency;

/// Which sides of the wire ran in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The receiver.
    Rx,
    /// The sender.
    Tx,
    /// Both.
    Both,
}

/// What a loop of the run has cost from the time that the run was ready to its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoopCost {
    /// Name of the thread.
    pub thread: &'static str,
    /// Turns of the loop.
    pub turns: u64,
    /// Heap allocations; none where the program's allocator does not count.
    pub allocations: Option<u64>,
    /// Page faults without reading from a disk.
    pub minor_faults: u64,
    /// Page faults with reading from a disk.
    pub major_faults: u64,
    /// The longest time from the beginning of a turn to that of the next, its wait included.
    pub longest_turn_ms: f64,
}

/// Images by what became of them: `expected` is the sum of the others, `owed` aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Images {
    /// Images that had to come, where a number was known beforehand.
    pub owed: Option<u64>,
    /// Images that the stream showed to exist, and those owed besides.
    pub expected: u64,
    /// Whole, inferred, and taken by the sink.
    pub delivered: u64,
    /// Some but not all packets came.
    pub damaged: u64,
    /// No packet came.
    pub missing: u64,
    /// Whole, but not delivered.
    pub dropped: Dropped,
    /// Cut off by the end of the run.
    pub unfinished: u64,
    /// Whole and on their way; 0 after a run that ended in order.
    pub pending: u64,
}

/// Whole images that were not delivered, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The job ring was full.
    pub queue_full: u64,
    /// In a partial batch under `missing: drop`.
    pub policy: u64,
    /// The reorder or the inference failed.
    pub infer_failed: u64,
    /// The sink could not take them.
    pub sink_failed: u64,
    /// Still queued when the time for draining was over (`--drain`).
    pub shutdown: u64,
}

impl From<DroppedImages> for Dropped {
    fn from(of: DroppedImages) -> Self {
        Self {
            queue_full: of.queue_full,
            policy: of.policy,
            infer_failed: of.infer_failed,
            sink_failed: of.sink_failed,
            shutdown: of.shutdown,
        }
    }
}

impl Dropped {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full + self.policy + self.infer_failed + self.sink_failed + self.shutdown
    }
}

impl Images {
    /// What the others add up to.
    pub(super) const fn sum(&self) -> u64 {
        self.delivered
            + self.damaged
            + self.missing
            + self.dropped.total()
            + self.unfinished
            + self.pending
    }
}

impl From<ImageCounters> for Images {
    fn from(of: ImageCounters) -> Self {
        Self {
            owed: None,
            expected: of.expected(),
            delivered: of.delivered,
            damaged: of.damaged,
            missing: of.missing,
            dropped: of.dropped.into(),
            unfinished: of.unfinished,
            pending: of.pending,
        }
    }
}

/// Batches that closed before every slot was covered, by what closed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Partial {
    /// The stream moved on.
    pub moved: u64,
    /// The deadline.
    pub deadline: u64,
    /// The packet pool ran low.
    pub pool: u64,
    /// A discontinuity.
    pub discontinuity: u64,
    /// The end of the run.
    pub shutdown: u64,
}

impl Partial {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.moved + self.deadline + self.pool + self.discontinuity + self.shutdown
    }
}

impl From<PartialBy> for Partial {
    fn from(of: PartialBy) -> Self {
        Self {
            moved: of.moved,
            deadline: of.deadline,
            pool: of.pool,
            discontinuity: of.discontinuity,
            shutdown: of.shutdown,
        }
    }
}

/// Where the receiver joined the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Join {
    /// Sequence field of the first packet accepted.
    pub wire: u32,
    /// Whether the place of the images in the data set is certain.
    pub anchored: bool,
}

/// Packets by what became of them: `offered` is the sum of the others, `trimmed` aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Frames that the NIC handed over.
    pub offered: u64,
    /// Payloads put into their slot.
    pub placed: u64,
    /// Slot already filled.
    pub duplicate: u64,
    /// Behind the first open window.
    pub late: u64,
    /// Far ahead, and nothing confirmed it.
    pub wild: u64,
    /// Shorter than a packet of the geometry.
    pub short: u64,
    /// Longer than a packet of the geometry.
    pub long: u64,
    /// Not a packet of ours, by reason.
    pub malformed: Malformed,
    /// Other traffic.
    pub other_flow: u64,
    /// No batch buffer was free.
    pub no_buffer: u64,
    /// Before the receiver was ready.
    pub early: u64,
    /// Neither placed nor refuted; 0 after a run.
    pub held: u64,
    /// Of those placed, the ones that carried a trailer.
    pub trimmed: u64,
}

/// Frames that are not a packet of ours, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Malformed {
    /// A VLAN tag.
    pub vlan: u64,
    /// A fragment.
    pub fragment: u64,
    /// An impossible IPv4 header.
    pub ihl: u64,
    /// A wrong checksum.
    pub checksum: u64,
    /// Not UDP.
    pub not_udp: u64,
}

impl Malformed {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.vlan + self.fragment + self.ihl + self.checksum + self.not_udp
    }
}

impl From<MalformedCounters> for Malformed {
    fn from(of: MalformedCounters) -> Self {
        Self {
            vlan: of.vlan,
            fragment: of.fragment,
            ihl: of.ihl,
            checksum: of.checksum,
            not_udp: of.not_udp,
        }
    }
}

impl From<PacketCounters> for Packets {
    fn from(of: PacketCounters) -> Self {
        Self {
            offered: of.offered,
            placed: of.placed,
            duplicate: of.duplicate,
            late: of.late,
            wild: of.wild,
            short: of.short,
            long: of.long,
            malformed: of.malformed.into(),
            other_flow: of.other_flow,
            no_buffer: of.no_buffer,
            early: of.early,
            held: of.held,
            trimmed: of.trimmed,
        }
    }
}

/// Slots of the batches that the stream has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Slots {
    /// Slots that hold their payload.
    pub placed: u64,
    /// Slots of packets that were lost.
    pub missing: u64,
    /// Slots before the packet the receiver joined at.
    pub before_join: u64,
    /// Slots that the stream had not reached when it ended.
    pub unfinished: u64,
    /// Slots in the gap of a discontinuity.
    pub skipped: u64,
}

impl From<SlotCounters> for Slots {
    fn from(of: SlotCounters) -> Self {
        Self {
            placed: of.placed,
            missing: of.missing,
            before_join: of.before_join,
            unfinished: of.unfinished,
            skipped: of.skipped,
        }
    }
}

/// What the receiving NIC counted itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// No receive descriptor was free; `None` where only groups of packets were counted.
    pub missed: Option<u64>,
    /// The groups of packets that were missed, where packets come in groups.
    pub missed_groups: u64,
    /// Received with an error.
    pub errors: u64,
    /// No packet buffer to receive into.
    pub no_buffer: u64,
}

impl Default for Nic {
    fn default() -> Self {
        NicStats::default().into()
    }
}

impl From<NicStats> for Nic {
    fn from(of: NicStats) -> Self {
        let missed = Some(of.missed);
        Self { missed, missed_groups: 0, errors: of.errors, no_buffer: of.no_buffer }
    }
}

impl Nic {
    /// What was counted as missed are groups. Where none was missed, no packet was.
    pub(super) fn count_groups(&mut self) {
        self.missed_groups = self.missed.unwrap_or(0);
        self.missed = (self.missed_groups == 0).then_some(0);
    }
}

/// What became of a link while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkTotals {
    /// The interface or port.
    pub name: String,
    /// Whether it is up at the end.
    pub up: bool,
    /// Times that it went down.
    pub downs: u64,
    /// Seconds for which it was down, in all.
    pub down_seconds: f64,
    /// Times that its NIC was reset, or asked for it.
    pub resets: u64,
}

/// What a port counted in the words of its driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its address, as the configuration has it.
    pub port: String,
    /// Every counter that its driver has, also those at 0, in the driver's order.
    pub counters: Vec<Counter>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The driver's name for it.
    pub name: String,
    /// How far it stands.
    pub value: u64,
}

/// A latency in milliseconds; the figures are absent without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyMs {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Samples.
    pub n: u64,
}

impl From<&Latency> for LatencyMs {
    fn from(of: &Latency) -> Self {
        let percentile = |percent| of.percentile(percent).map(|ns| ns.as_secs_f64() * 1e3);
        Self {
            mean: of.mean_ns().map(|ns| ns / 1e6),
            p50: percentile(50),
            p99: percentile(99),
            n: of.count(),
        }
    }
}

/// What the sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TxTotals {
    /// Frames owed in all, or frames of one pass where it goes on until stopped.
    pub frames: u64,
    /// Frames sent, over all passes.
    pub sent: u64,
    /// Times the queue refused a frame although it had room.
    pub send_failures: u64,
    /// Frames that could not be filled in.
    pub fill_failures: u64,
    /// Steps in which the queue had no room.
    pub no_burst_polls: u64,
    /// Frames that the fault injection dropped after they were sent.
    pub wire_dropped: u64,
    /// Frames that the fault injection sent twice.
    pub wire_duplicated: u64,
    /// Seconds that the sender ran.
    pub seconds: f64,
}

impl TxTotals {
    /// The totals of a transmitter that owed `frames` (or had that many in one pass) and ran for
    /// `span`, and of its queue.
    #[must_use]
    pub fn new(frames: u64, counters: &TransmitCounters, queue: TxStats, span: Nanos) -> Self {
        Self {
            frames,
            sent: counters.sent,
            send_failures: counters.send_failures,
            fill_failures: counters.fill_failures,
            no_burst_polls: counters.no_burst_polls,
            wire_dropped: queue.wire_dropped,
            wire_duplicated: queue.wire_duplicated,
            seconds: span.as_secs_f64(),
        }
    }
}

/// Which lists were cut at their limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Truncated {
    /// `damaged_ranges`, at 1000 ranges.
    pub damaged_ranges: bool,
    /// `missing_ranges`, at 1000 ranges.
    pub missing_ranges: bool,
    /// `predicted`, at 100,000 images.
    pub predicted: bool,
}
