//! The names of what did not hold.

use std::fmt;

use tensorwire_core::pipeline::producer::EndReason;
use tensorwire_core::time::Nanos;

/// An invariant that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Something is not as many as it should be.
    Count {
        /// What.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// Something has grown beyond what the plan has room for.
    Bound {
        /// What.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there may be.
        bound: u64,
    },
    /// The sender sent a frame that was not due, or that is not right.
    Sent {
        /// How often it had begun again.
        epoch: u32,
        /// The number of the frame.
        number: u64,
    },
    /// A slot of a batch holds bytes of no packet that arrived.
    Bytes {
        /// Index of the image.
        image: u64,
        /// Its packet.
        packet: usize,
    },
    /// A slot of a batch holds a payload once more than it arrived: it is of an earlier batch.
    Stale {
        /// Index of the image.
        image: u64,
        /// Its packet.
        packet: usize,
    },
    /// A slot of a batch holds a packet of another number.
    Place {
        /// Index of the image.
        image: u64,
        /// Its packet.
        packet: usize,
        /// The number of the packet on the wire.
        wire: u32,
    },
    /// An image was delivered although a packet of it is missing.
    Hole {
        /// Its index.
        image: u64,
    },
    /// An image is whole and counts as damaged.
    Whole {
        /// Its index.
        image: u64,
    },
    /// An image was delivered that holds packets of two images, with nothing to excuse it.
    Mixed {
        /// Its index.
        image: u64,
    },
    /// An image was delivered under the index of another, with nothing to excuse it.
    Index {
        /// Its index.
        image: u64,
        /// Its true index in the stream of the sender.
        really: u64,
    },
    /// The features of an image are those of another.
    Features {
        /// Its index.
        image: u64,
    },
    /// An image was delivered after one of a higher index, or twice.
    Order {
        /// Its index.
        image: u64,
        /// The least index that may still come.
        expected: u64,
    },
    /// A deadline fired before it was due.
    EarlyDeadline {
        /// The longest time since the first packet of an open batch.
        open: Nanos,
    },
    /// A deadline fired although packets may have waited in the NIC.
    UnpolledDeadline,
    /// A deadline did not fire when it was due.
    LateDeadline {
        /// The longest time since the first packet of an open batch.
        open: Nanos,
    },
    /// An image is named under a cause that is not its own, or not named under its own.
    Named {
        /// The list.
        what: &'static str,
        /// The first image that is wrong.
        image: u64,
    },
    /// The run ended for a reason that is none.
    End {
        /// The reason.
        reason: Option<EndReason>,
    },
    /// The process did not end at once at its second signal, or it did at the first.
    Signal {
        /// Signals that had come.
        signals: u32,
    },
    /// The run did not end.
    NoProgress {
        /// Steps made.
        steps: u64,
    },
}

impl Violation {
    /// Whether it is a want of progress, not of truth.
    #[must_use]
    pub const fn is_liveness(&self) -> bool {
        matches!(self, Self::NoProgress { .. })
    }

    /// The kind of it, without its numbers: two failures of one kind are taken for the same.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Count { what, .. } | Self::Named { what, .. } | Self::Bound { what, .. } => {
                (*what).to_owned()
            }
            other => {
                let text = format!("{other:?}");
                text.split([' ', '{']).next().unwrap_or_default().to_owned()
            }
        }
    }

    /// `found` is at most `bound`.
    pub(super) fn most<A, B>(what: &'static str, found: A, bound: B) -> Result<(), Self>
    where
        u64: TryFrom<A> + TryFrom<B>,
    {
        let found = u64::try_from(found).unwrap_or(u64::MAX);
        let bound = u64::try_from(bound).unwrap_or(0);
        if found <= bound { Ok(()) } else { Err(Self::Bound { what, found, bound }) }
    }

    /// `found` is as many as `expected`.
    pub(super) const fn count(what: &'static str, found: u64, expected: u64) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self::Count { what, found, expected }) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count { what, found, expected } => {
                write!(f, "{what}: {found}, and it should be {expected}")
            }
            Self::Bound { what, found, bound } => {
                write!(f, "{what}: {found}, and there may be {bound}")
            }
            Self::Sent { epoch, number } => {
                write!(f, "frame {number} of epoch {epoch} was not sent as it should be")
            }
            Self::Bytes { image, packet } => {
                write!(f, "image {image}, packet {packet}: bytes of no packet that arrived")
            }
            Self::Stale { image, packet } => {
                write!(f, "image {image}, packet {packet}: bytes of an earlier batch")
            }
            Self::Place { image, packet, wire } => {
                write!(f, "image {image}, packet {packet}: holds the packet with number {wire}")
            }
            Self::Hole { image } => write!(f, "image {image} was delivered with a hole"),
            Self::Whole { image } => write!(f, "image {image} is whole and counts as damaged"),
            Self::Mixed { image } => write!(f, "image {image} is made of two images"),
            Self::Index { image, really } => {
                write!(f, "image {really} was delivered under the index {image}")
            }
            Self::Features { image } => {
                write!(f, "image {image} was delivered with the features of another")
            }
            Self::Order { image, expected } => {
                write!(f, "image {image} was delivered when only {expected} or later could come")
            }
            Self::EarlyDeadline { open } => {
                write!(f, "a deadline fired, and the oldest batch had been open for {open}")
            }
            Self::UnpolledDeadline => {
                f.write_str("a deadline fired while packets may have waited in the NIC")
            }
            Self::LateDeadline { open } => {
                write!(f, "no deadline fired, and the oldest batch had been open for {open}")
            }
            Self::Named { what, image } => write!(f, "{what}: image {image} is wrong"),
            Self::End { reason: Some(reason) } => {
                write!(f, "the run ended with \"{reason}\", which is not so")
            }
            Self::End { reason: None } => f.write_str("the run ended without a reason"),
            Self::Signal { signals: 1 } => {
                f.write_str("the first signal ended the process at once")
            }
            Self::Signal { signals } => {
                write!(f, "{signals} signals came, and the process did not end at once")
            }
            Self::NoProgress { steps } => write!(f, "the run did not end within {steps} steps"),
        }
    }
}
