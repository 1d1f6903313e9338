//! What must hold in every run, and the names of what did not.

use std::fmt;

use tensorwire_core::geometry::Geometry;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy};
use tensorwire_core::port::{Delivery, Outputs, Sink, SinkFault};
use tensorwire_core::time::Nanos;

use super::frames::Frames;
use super::plan::Plan;
use crate::infer::{CRC_FEATURES, FailPlan, crc_of};
use crate::nic::TxMode;

/// An invariant that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Packets offered are not those under some cause.
    Packets {
        /// Frames that the NIC handed over.
        offered: u64,
        /// Packets under a cause.
        accounted: u64,
    },
    /// Slots passed are not those under some cause.
    Slots,
    /// Frames sent are not those on the wire, lost by it, or received.
    Wire {
        /// Frames sent, copies included.
        sent: u64,
        /// Frames under some count.
        accounted: u64,
    },
    /// More batch buffers are in use than there are, or some are missing in the end.
    Buffers {
        /// Buffers seen, or free in the end.
        seen: usize,
        /// Buffers of the pool.
        all: usize,
    },
    /// Packet buffers are missing in the end.
    PacketBuffers {
        /// Free in the end.
        free: usize,
        /// Buffers of the pool.
        all: usize,
    },
    /// Images handed to the consumer are not those delivered or failed.
    Images {
        /// Handed over by the producer.
        handed: u64,
        /// Delivered or failed.
        accounted: u64,
    },
    /// An image was delivered whose bytes are not those that were sent under its index.
    Content {
        /// Its index.
        image: u64,
        /// Number, within a pass, of the image whose bytes they are; `None`: of no image.
        really: Option<u64>,
    },
    /// An image was delivered after one of a higher index, or twice.
    Order {
        /// Its index.
        image: u64,
        /// The least index that may still come.
        expected: u64,
    },
    /// An image arrived whole and was not delivered, or the other way round.
    Delivery {
        /// Its index.
        image: u64,
        /// Whether it was delivered.
        delivered: bool,
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
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets { offered, accounted } => {
                write!(f, "{offered} packets were offered, {accounted} are accounted for")
            }
            Self::Slots => f.write_str("the slots of the batches passed do not balance"),
            Self::Wire { sent, accounted } => {
                write!(f, "{sent} frames were sent, {accounted} are accounted for")
            }
            Self::Buffers { seen, all } => write!(f, "{seen} of {all} batch buffers are there"),
            Self::PacketBuffers { free, all } => {
                write!(f, "{free} of {all} packet buffers came back")
            }
            Self::Images { handed, accounted } => {
                write!(f, "{handed} images were handed over, {accounted} are accounted for")
            }
            Self::Content { image, really: Some(other) } => {
                write!(f, "image {image} has the bytes of image {other} of the pass")
            }
            Self::Content { image, really: None } => {
                write!(f, "image {image} has the bytes of no image that was sent")
            }
            Self::Order { image, expected } => {
                write!(f, "image {image} was delivered when only {expected} or later could come")
            }
            Self::Delivery { image, delivered: true } => {
                write!(f, "image {image} was delivered although a packet of it was lost")
            }
            Self::Delivery { image, delivered: false } => {
                write!(f, "image {image} was not delivered although nothing of it was lost")
            }
            Self::NoProgress { steps } => write!(f, "the run did not end within {steps} steps"),
        }
    }
}

/// What can be asked of a plan: how far its faults leave the outcome certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Certainty {
    /// A delivered image holds the packets of one image, if no more than this many frames in a row
    /// are lost on the way; `None`: frames overtake each other too far to say.
    pub(super) unmixed_up_to: Option<u64>,
    /// The index of a delivered image is that under which it was sent.
    pub(super) anchored: bool,
    /// Exactly the images of which no packet was dropped on the wire are delivered.
    pub(super) exact: bool,
}

impl Certainty {
    pub(super) fn of(plan: &Plan, geometry: &Geometry) -> Self {
        // The shuffle counts places among the frames that are not lost: at worst every other one.
        let spread = if plan.wire.drop.is_some() { 2 } else { 1 };
        let reach = plan.wire.shuffle.saturating_mul(spread).saturating_add(1);
        let calm = plan.wire.shuffle == 0 || reach <= geometry.step();
        let anchored = calm && plan.mode == TxMode::Lossless && plan.ready_at == 0;
        let exact = anchored
            && (plan.windows > 1 || plan.wire.shuffle == 0)
            && plan.timeout == Nanos::ZERO
            && plan.stop_at.is_none()
            && plan.infer == FailPlan::new()
            && plan.sink_fault.is_none()
            && plan.backpressure == Backpressure::Block
            && plan.missing == MissingPolicy::Passthrough;
        // At either end of a burst the shuffle can widen it.
        let limit = geometry.largest_placed_burst() / u64::from(spread);
        let limit = limit.checked_sub(u64::from(reach) * 2);
        Self { unmixed_up_to: limit.filter(|_| calm), anchored, exact }
    }
}

/// The sink of a simulated run: checks each image, and keeps the index of those it took.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    frames: &'a Frames,
    certainty: Certainty,
    fault: Option<(u64, bool)>,
    calls: u64,
    next: u64,
    /// The content of a delivery is wrong; it counts only if the run turns out to allow no excuse.
    pub(super) wrong: Option<Violation>,
    pub(super) disorder: Option<Violation>,
    pub(super) taken: Vec<u64>,
}

impl<'a> Ledger<'a> {
    pub(super) const fn new(
        frames: &'a Frames,
        certainty: Certainty,
        fault: Option<(u64, bool)>,
    ) -> Self {
        let (wrong, disorder) = (None, None);
        Self { frames, certainty, fault, calls: 0, next: 0, wrong, disorder, taken: Vec::new() }
    }

    /// Checks one image that was delivered.
    pub(super) fn check(&mut self, image: u64, row: &[f32]) {
        if image < self.next && self.disorder.is_none() {
            self.disorder = Some(Violation::Order { image, expected: self.next });
        }
        self.next = image + 1;
        let crc = crc_of(row);
        let really = crc.and_then(|crc| self.frames.find(crc));
        let right = if self.certainty.anchored {
            crc == Some(self.frames.crc(image))
        } else {
            really.is_some()
        };
        if !right && self.wrong.is_none() {
            self.wrong = Some(Violation::Content { image, really });
        }
        self.taken.push(image);
    }
}

impl Sink for Ledger<'_> {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        self.calls += 1;
        if let Some((at, fatal)) = self.fault
            && at == self.calls - 1
        {
            return Err(SinkFault { fatal });
        }
        // A result of another shape than the submission is taken for nothing.
        if outputs.features.len() != delivery.images as usize * CRC_FEATURES {
            return Err(SinkFault { fatal: false });
        }
        for row in delivery.whole.iter() {
            let start = row as usize * CRC_FEATURES;
            let features = outputs.features.get(start..start + CRC_FEATURES).unwrap_or(&[]);
            self.check(delivery.first_image + u64::from(row), features);
        }
        Ok(())
    }
}
