//! What a reassembly answers with, and what it counts.
#![forbid(unsafe_code)]

use core::fmt;

use crate::counters::{PartialBy, SlotCounters};
use crate::window::CloseCause;

/// What the producer is to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Put the payload of `packet` into `slot` of window `window`. A window that was empty takes a
    /// free buffer first; if there is none, this action waits, or is taken back by
    /// [`Reassembly::unplace`](super::Reassembly::unplace).
    Place {
        /// Index of the window, below [`MAX_WINDOWS`](crate::limits::MAX_WINDOWS).
        window: u8,
        /// Slot of the batch.
        slot: u32,
        /// The packet.
        packet: P,
    },
    /// Give the packet back to the NIC.
    Drop {
        /// The packet.
        packet: P,
        /// Why.
        cause: DropCause,
    },
    /// The batch in window `window` has closed: [`Reassembly::closed`](super::Reassembly::closed)
    /// and [`Reassembly::slots`](super::Reassembly::slots) describe it until the next call that
    /// changes anything.
    Close {
        /// Index of the window.
        window: u8,
    },
    /// Batches of which nothing was placed were passed over.
    Gap(Gap),
}

/// Where a packet of the common case goes: the same as [`Action::Place`], without the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the window, below [`MAX_WINDOWS`](crate::limits::MAX_WINDOWS).
    pub window: u8,
    /// Slot of the batch.
    pub slot: u32,
}

/// Why a packet was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// Its slot is covered already.
    Duplicate,
    /// Its window has closed.
    Late,
    /// A number far ahead that nothing confirmed.
    Wild,
}

/// Batches of which nothing was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first_batch: u64,
    /// How many.
    pub batches: u64,
    /// What moved the stream past them.
    pub cause: CloseCause,
    /// Images lost with them, as up to two ranges `(first, count)` of image indices; what lies
    /// before the join or in the gap of a discontinuity is not lost.
    pub missing: [(u64, u64); 2],
}

/// [`Reassembly::accept`](super::Reassembly::accept) was called before all actions of the call
/// before were taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy<P>(
    /// The packet, not taken.
    pub P,
);

impl<P> fmt::Display for Busy<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("actions of an earlier packet are still to be taken")
    }
}

/// What the reassembly counted. `held` packets are not counted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Packets placed.
    pub placed: u64,
    /// Packets whose slot was covered.
    pub duplicate: u64,
    /// Packets whose window had closed.
    pub late: u64,
    /// Of the late ones, those whose window a deadline had closed (of the last 64 windows): they
    /// were cut off by `timeout_us`, not lost by the network.
    pub cut_by_timeout: u64,
    /// Packets far ahead that nothing confirmed.
    pub wild: u64,
    /// Times the sender restarted or more than half the number space was lost.
    pub discontinuities: u64,
    /// Windows that closed before every slot was covered.
    pub partial: PartialBy,
    /// Slots by what became of them.
    pub slots: SlotCounters,
}
