//! Bugs planted on purpose, to show that the simulator finds them.
//!
//! Only with the feature `planted`, which no shipped build has: without it this module does not
//! exist, and every place that asks for it is the constant `false`. With it, one bug at a time can
//! be turned on while the program runs, so one build holds them all.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU8, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A bug that can be turned on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            /// None: the code as it is.
            None,
            $($(#[$doc])* $name),*
        }

        impl Bug {
            /// Every one of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

bugs! {
    /// A batch is complete when so many packets came as it has slots, copies included.
    CloseByCount,
    /// An image that lacks one packet counts as whole.
    AlmostWhole,
    /// A filled slot counts as empty when the batch closes, and is zeroed.
    FilledAsEmpty,
    /// Empty slots keep what an earlier batch left in them.
    NoZeroFill,
    /// A duplicate is placed again.
    DuplicateOverwrites,
    /// A late packet goes into the same slot of the next batch.
    LateIntoNext,
    /// The index of an image follows from how many batches were handed over.
    LabelsByArrival,
    /// Numbers behind the end of the number space are not read on.
    NoUnwrap,
    /// A deadline runs from the last packet of a batch, not from its first.
    DeadlineFromLast,
    /// A deadline is half as long.
    DeadlineHalf,
    /// A deadline may fire although packets wait in the NIC.
    DeadlineUnpolled,
    /// The buffer of a batch whose inference failed does not come back.
    LostReturn,
    /// When the run ends, the last of the pending results is not waited for.
    DrainOneShort,
    /// The result is delivered under the images of the submission after it.
    ResultOfNext,
    /// All sub-batches of a batch have the mask of the first.
    MaskOfFirst,
    /// The packet of a duplicate is not given back.
    LostPacket,
    /// Packets that were polled and not processed are forgotten at the stop signal.
    StopForgets,
    /// Images that a full queue costs are not counted.
    UncountedDrop,
    /// Missing images of a gap are counted once too few.
    GapOneShort,
    /// The last batch does not close when the stream ends.
    LastStaysOpen,
    /// A producer that waits does not see that the consumer has died.
    DeadUnseen,
    /// The packet pool may run dry.
    NoRelief,
    /// A packet that comes before readiness is placed in no count.
    EarlyUncounted,
    /// A checksum over the payload is not looked at.
    UdpUnchecked,
    /// The number of a frame is rewritten, and its checksums are not.
    Unmended,
    /// Of the packets that come back together the poller gives the NIC one.
    PollerForgets,
    /// The poller says that all was sent before it has found the NIC empty.
    DoneUnpolled,
    /// The poller does not show what the NIC has counted.
    StatsUnshown,
    /// A deadline may fire although packets wait in the NIC and the poller does not poll.
    StallUnseen,
    /// Packets on their way back to the poller count as used.
    ReturnsUncounted,
    /// A second signal asks for the end once more.
    SecondUnheeded,
    /// The first signal ends the process at once.
    FirstEndsAtOnce,
}

static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// Turns `bug` on, and every other one off.
pub fn plant(bug: Bug) {
    ACTIVE.store(bug as u8, Ordering::Relaxed);
}

/// Whether `bug` is on.
#[must_use]
pub fn is(bug: Bug) -> bool {
    ACTIVE.load(Ordering::Relaxed) == bug as u8
}
