//! Where in the stream the receiver may be in doubt, from what arrived and nothing else.
//!
//! A stretch without a hazard leaves no doubt: there, whatever is delivered holds the packets of
//! one image, and the distance between its index and the true one does not change.

use super::reading::Shape;
use super::truth::Arrival;

#[derive(Debug)]
pub(super) struct Hazards {
    shape: Shape,
    /// The arrivals that are hazards, ascending.
    at: Vec<u32>,
    seen: u32,
    epoch: u32,
    next: u64,
    /// The stream is unsettled until it has got there.
    settled: u64,
    run: (u64, u64),
}

/// A stretch of the stream between two hazards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch(pub(super) usize);

impl Hazards {
    pub(super) const fn new(shape: Shape) -> Self {
        Self { shape, at: Vec::new(), seen: 0, epoch: 0, next: 0, settled: 0, run: (0, 0) }
    }

    /// The next packet of the stream.
    pub(super) fn take(&mut self, arrival: &Arrival) {
        let step = self.shape.step();
        let first = self.seen == 0 || arrival.epoch > self.epoch;
        if first {
            (self.epoch, self.next) = (arrival.epoch, arrival.number);
        }
        let stray = !arrival.genuine
            || arrival.epoch != self.epoch
            || (first && self.seen > 0)
            || arrival.number.abs_diff(self.next) > step
            || self.repeats(arrival.number);
        if arrival.epoch == self.epoch && arrival.genuine {
            self.next = self.next.max(arrival.number + 1);
        }
        if stray {
            // A number that is not true moves the receiver by up to a step; it is back on the
            // road once the stream has passed that place, and `N` packets confirm it.
            self.settled = self.next + 3 * step + 2 * self.shape.confirmations();
        }
        if stray || self.next < self.settled {
            self.at.push(self.seen);
        }
        self.seen += 1;
    }

    /// Whether so many packets in a row went back that they may be taken for the stream.
    fn repeats(&mut self, number: u64) -> bool {
        self.run = if number >= self.next { (0, 0) } else { (self.run.0 + 1, number) };
        self.run.0 >= self.shape.confirmations()
    }

    /// The stretch that holds all arrivals `first..=last` with room on both sides; `None` where a
    /// hazard lies among or next to them. Asked when the image is delivered: whatever decided about
    /// its last packets has come by then.
    pub(super) fn stretch(&self, first: u32, last: u32) -> Option<Stretch> {
        let margin = u32::try_from(self.shape.confirmations()).unwrap_or(8);
        let before = self.at.partition_point(|at| *at < first.saturating_sub(margin));
        let behind = self.at.partition_point(|at| *at <= last.saturating_add(margin));
        (before == behind).then_some(Stretch(before))
    }
}
