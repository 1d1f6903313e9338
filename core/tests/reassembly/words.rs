//! What a reassembly and its model talk about, and the arithmetic of ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use tensorwire_core::reassembly::DropCause;
use tensorwire_core::window::CloseCause;

/// What stands for a packet: a number that no other packet of the run has.
pub(crate) type Packet = u64;

/// What happened, in the words of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Place { batch: u64, slot: u64, packet: Packet },
    Drop { packet: Packet, cause: DropCause },
    Close(Batch),
    Gap { first: u64, batches: u64, cause: CloseCause, missing: Vec<Range<u64>> },
}

/// A batch that has closed. Images are indices within the batch, times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) batch: u64,
    pub(crate) cause: CloseCause,
    pub(crate) packets: BTreeMap<u64, Packet>,
    pub(crate) whole: Vec<u64>,
    pub(crate) damaged: Vec<u64>,
    pub(crate) missing: Vec<u64>,
    pub(crate) unfinished: Vec<u64>,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What the caller does with a packet that it is told to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// There is a buffer for every batch.
    Free,
    /// There is none for a batch that has none yet: its first packet is taken back.
    NoneLeft,
    /// Every placement is taken back: not what a producer does, but what it may do.
    TakeAllBack,
}

/// Why an empty slot is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    BeforeJoin,
    Skipped,
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Placed,
    Missing,
    Unfinished,
    Excused(Excuse),
}

/// `range` without `hole`.
pub(crate) fn without(range: &Range<u64>, hole: &Range<u64>) -> Vec<Range<u64>> {
    if hole.is_empty() {
        return vec![range.clone()];
    }
    let parts = [range.start..range.end.min(hole.start), range.start.max(hole.end)..range.end];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// Ascending ranges, joined where they overlap or touch.
pub(crate) fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// A number that counts things in memory.
pub(crate) fn index(n: u64) -> usize {
    usize::try_from(n).expect("it fits the memory")
}
