//! The accounting: every packet and every image is counted once, under one cause, and the totals
//! balance after every step.
//!
//! All counters are 64 bits wide: at 100 million packets a second they last 5,800 years.

use core::fmt;

use crate::limits::MAX_RANGES;

/// What a NIC counted itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicStats {
    /// Frames the NIC dropped because no receive descriptor was free; at least so many where a
    /// driver says that its NIC counts groups of frames as one.
    pub missed: u64,
    /// Frames the NIC received with an error of its own (CRC, length).
    pub errors: u64,
    /// Times the NIC found no packet buffer to receive into.
    pub no_buffer: u64,
}

/// What a transmit queue counted itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxStats {
    /// Frames accepted from the application.
    pub sent: u64,
    /// Frames that the wire (fault injection) dropped after they were sent.
    pub wire_dropped: u64,
    /// Frames that the wire (fault injection) added: second copies.
    pub wire_duplicated: u64,
}

/// Frames that are not a packet of ours, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MalformedCounters {
    /// An 802.1Q or 802.1ad tag that the NIC did not pop.
    pub vlan: u64,
    /// A fragment of an IPv4 datagram.
    pub fragment: u64,
    /// An IPv4 header whose version or length cannot be, or that has options.
    pub ihl: u64,
    /// An IPv4 or UDP checksum that does not fit, where `verify` asks for it.
    pub checksum: u64,
    /// IPv4, but not UDP.
    pub not_udp: u64,
}

impl MalformedCounters {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.vlan + self.fragment + self.ihl + self.checksum + self.not_udp
    }
}

/// Packets by what became of them: the left side of the balance is [`PacketCounters::offered`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Frames that the NIC handed over.
    pub offered: u64,
    /// Payloads put into their slot.
    pub placed: u64,
    /// Slot already filled.
    pub duplicate: u64,
    /// Behind the first open window.
    pub late: u64,
    /// A sequence number far ahead that nothing confirmed.
    pub wild: u64,
    /// Shorter than a packet of the geometry.
    pub short: u64,
    /// Longer than a packet of the geometry.
    pub long: u64,
    /// Not a packet of ours, by reason.
    pub malformed: MalformedCounters,
    /// Well formed, but no flow of the configuration matches (other traffic: ARP, other ports).
    pub other_flow: u64,
    /// Dropped because no batch buffer was free (`backpressure: drop`).
    pub no_buffer: u64,
    /// Arrived before the receiver was ready.
    pub early: u64,
    /// Neither placed nor refuted yet.
    pub held: u64,
    /// Placed although longer than a packet of the geometry (`accept_trailer`). Not a cause of
    /// its own: these are in `placed` as well.
    pub trimmed: u64,
}

impl PacketCounters {
    /// Every packet under its cause: equals `offered`, always.
    #[must_use]
    pub const fn accounted(&self) -> u64 {
        self.placed
            + self.duplicate
            + self.late
            + self.wild
            + self.short
            + self.long
            + self.malformed.total()
            + self.other_flow
            + self.no_buffer
            + self.early
            + self.held
    }

    /// Whether the balance holds.
    #[must_use]
    pub const fn balanced(&self) -> bool {
        self.offered == self.accounted()
    }
}

/// Slots of the batches that the stream has passed, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounters {
    /// Batch numbers passed, from the one joined to the last one closed.
    pub batches: u64,
    /// Slots that hold their payload.
    pub placed: u64,
    /// Slots of packets that were lost.
    pub missing: u64,
    /// Slots of the first batch that lie before the packet the receiver joined at.
    pub before_join: u64,
    /// Slots that the stream had not reached when it ended.
    pub unfinished: u64,
    /// Slots in the gap of a discontinuity: nobody knows whether they were ever sent.
    pub skipped: u64,
}

impl SlotCounters {
    /// `batches × packets_per_batch = placed + missing + before_join + unfinished + skipped`.
    #[must_use]
    pub const fn balanced(&self, packets_per_batch: u64) -> bool {
        self.batches * packets_per_batch
            == self.placed + self.missing + self.before_join + self.unfinished + self.skipped
    }
}

/// Batches that closed before every slot was covered, by what closed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialBy {
    /// The stream moved on: a packet too far ahead for the open windows.
    pub moved: u64,
    /// The deadline (`timeout_us`).
    pub deadline: u64,
    /// The packet pool ran low.
    pub pool: u64,
    /// A discontinuity.
    pub discontinuity: u64,
    /// The end of the run.
    pub shutdown: u64,
}

impl PartialBy {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.moved + self.deadline + self.pool + self.discontinuity + self.shutdown
    }
}

/// Whole images that were not delivered, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedImages {
    /// The job ring was full (`backpressure: drop`).
    pub queue_full: u64,
    /// In a partial batch under `missing: drop`.
    pub policy: u64,
    /// The reorder or the inference of the batch failed.
    pub infer_failed: u64,
    /// The sink could not take them.
    pub sink_failed: u64,
    /// Still queued when the time for draining was over.
    pub shutdown: u64,
}

impl DroppedImages {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full + self.policy + self.infer_failed + self.sink_failed + self.shutdown
    }
}

/// Images by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageCounters {
    /// Whole, inferred, and taken by the sink.
    pub delivered: u64,
    /// Some but not all packets came.
    pub damaged: u64,
    /// No packet came.
    pub missing: u64,
    /// Whole, but not delivered.
    pub dropped: DroppedImages,
    /// Cut off by the end of the run.
    pub unfinished: u64,
    /// Whole and on their way (handed to the consumer, not delivered yet). 0 after a run.
    pub pending: u64,
}

impl ImageCounters {
    /// Images that the stream showed to exist.
    #[must_use]
    pub const fn expected(&self) -> u64 {
        self.delivered
            + self.damaged
            + self.missing
            + self.dropped.total()
            + self.unfinished
            + self.pending
    }
}

/// Ranges of image indices, ascending, as `[first, last]`; bounded, and honest about it.
#[derive(Clone, Debug, Default)]
pub struct RangeList {
    ranges: heapless::Vec<(u64, u64), MAX_RANGES>,
    truncated: bool,
}

impl RangeList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: heapless::Vec::new(), truncated: false }
    }

    /// Adds the indices `first..=last`, joined to the last range where they touch it.
    pub fn add(&mut self, first: u64, last: u64) {
        if let Some(range) = self.ranges.last_mut()
            && !self.truncated
            && first <= range.1.saturating_add(1)
            && first >= range.0
        {
            range.1 = range.1.max(last);
            return;
        }
        if self.ranges.push((first, last)).is_err() {
            self.truncated = true;
        }
    }

    /// The ranges, in the order they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Whether ranges beyond the capacity were left out.
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.truncated
    }
}

impl fmt::Display for RangeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.ranges.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}–{last}")?;
            }
        }
        if self.truncated {
            f.write_str(", …")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
