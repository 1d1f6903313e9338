//! A receiver that only knows streams in which nothing is in doubt: the true position of every
//! packet is known, none is more than a step from the front, and there is no clock. As long as a
//! run is like that, everything that becomes of packets and images is certain, and is worked out
//! here the plain way, with a list of bools for each batch.

use std::collections::BTreeMap;

use tensorwire_core::time::Nanos;

use super::reading::Shape;
use super::truth::Arrival;

#[derive(Debug)]
struct Open {
    covered: Vec<bool>,
    first: Nanos,
}

/// Where the packets and images of a certain stream end up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Certain {
    pub(super) placed: u64,
    pub(super) duplicate: u64,
    pub(super) late: u64,
    /// Batches that were cut because the stream moved on.
    pub(super) moved: u64,
    /// Images by index, ascending.
    pub(super) whole: Vec<u64>,
    pub(super) damaged: Vec<u64>,
    pub(super) missing: Vec<u64>,
    pub(super) unfinished: u64,
}

#[derive(Debug)]
pub(super) struct Model {
    shape: Shape,
    windows: u64,
    /// True number minus position, once a packet came.
    offset: Option<u64>,
    join: u64,
    next: u64,
    base: u64,
    open: BTreeMap<u64, Open>,
    /// Packets in a row that the receiver cannot place at once, and the last of them.
    run: (u64, u64),
    doubt: bool,
    certain: Certain,
}

impl Model {
    pub(super) fn new(shape: Shape, windows: u64) -> Self {
        let (offset, open, run) = (None, BTreeMap::new(), (0, 0));
        let (join, next, base, doubt) = (0, 0, 0, false);
        let certain = Certain::default();
        Self { shape, windows, offset, join, next, base, open, run, doubt, certain }
    }

    /// What became of everything; `None` once something was in doubt.
    pub(super) fn certain(&self) -> Option<&Certain> {
        (!self.doubt).then_some(&self.certain)
    }

    /// Something happened that the model knows nothing of.
    pub(super) const fn doubt(&mut self) {
        self.doubt = true;
    }

    /// The receiver is handed a packet.
    pub(super) fn take(&mut self, arrival: &Arrival, now: Nanos) {
        if self.doubt {
            return;
        }
        let wire = u64::from(arrival.wire);
        let first = self.offset.is_none();
        let offset = *self.offset.get_or_insert(arrival.number.wrapping_sub(wire));
        let at = arrival.number.checked_sub(offset);
        let (true, 0, Some(at)) = (arrival.genuine, arrival.epoch, at) else {
            self.doubt = true;
            return;
        };
        let batch = at / self.shape.packets_per_batch();
        if first {
            (self.join, self.next, self.base) = (at, at, batch);
        }
        if at.abs_diff(self.next) > self.shape.step() || self.confirmed(at, batch) {
            self.doubt = true;
            return;
        }
        self.next = self.next.max(at + 1);
        if batch < self.base {
            self.certain.late += 1;
        } else {
            self.place(at, batch, now);
        }
    }

    /// Whether `at` ends a run of packets that the receiver may believe instead of the stream:
    /// each behind, none of them where one is missing, and all close together.
    fn confirmed(&mut self, at: u64, batch: u64) -> bool {
        if at >= self.next {
            self.run = (0, 0);
            return false;
        }
        let (count, last) = self.run;
        let agrees = count > 0 && at.abs_diff(last) <= self.shape.step();
        let fits = batch >= self.base && batch < self.base + self.windows && !self.covered(at);
        self.run = match (agrees, fits) {
            (true, _) => (count + 1, at),
            (false, true) => (0, 0),
            (false, false) => (1, at),
        };
        self.run.0 >= self.shape.confirmations()
    }

    fn covered(&self, at: u64) -> bool {
        let per_batch = self.shape.packets_per_batch();
        let open = self.open.get(&(at / per_batch));
        open.is_some_and(|open| open.covered[index(at % per_batch)])
    }

    fn place(&mut self, at: u64, batch: u64, now: Nanos) {
        while batch >= self.base + self.windows {
            self.certain.moved += u64::from(self.open.contains_key(&self.base));
            self.close(u64::MAX);
            self.close_complete();
        }
        let per_batch = self.shape.packets_per_batch();
        let fresh = || Open { covered: vec![false; index(per_batch)], first: now };
        let open = self.open.entry(batch).or_insert_with(fresh);
        let slot = &mut open.covered[index(at % per_batch)];
        if std::mem::replace(slot, true) {
            self.certain.duplicate += 1;
            return;
        }
        self.certain.placed += 1;
        self.close_complete();
    }

    fn close_complete(&mut self) {
        while self.open.get(&self.base).is_some_and(|open| open.covered.iter().all(|slot| *slot)) {
            self.close(u64::MAX);
        }
    }

    /// The oldest batch closes; positions from `ended` on were never sent.
    fn close(&mut self, ended: u64) {
        let size = self.shape.packets_per_image;
        let start = self.base * self.shape.packets_per_batch();
        let covered = self.open.remove(&self.base).map(|open| open.covered);
        for image in 0..self.shape.images_per_batch {
            let from = image * size;
            let has = |at: &u64| covered.as_ref().is_some_and(|all| all[index(*at)]);
            let came = u64::try_from((from..from + size).filter(has).count()).unwrap_or(0);
            let mut empty = (from..from + size).filter(|at| !has(at)).map(|at| start + at);
            let (certain, number) =
                (&mut self.certain, self.base * self.shape.images_per_batch + image);
            if came == size {
                certain.whole.push(number);
            } else if empty.clone().any(|at| at >= ended) {
                certain.unfinished += u64::from(came > 0 || start + from < ended);
            } else if came > 0 {
                certain.damaged.push(number);
            } else if empty.any(|at| at >= self.join) {
                certain.missing.push(number);
            }
        }
        self.base += 1;
    }

    /// The stream has ended.
    pub(super) fn finish(&mut self) {
        let per_batch = self.shape.packets_per_batch();
        while !self.doubt && self.offset.is_some() && self.base * per_batch < self.next {
            self.close(self.next);
        }
    }

    /// The clock has stepped back to `now`: a packet may be processed at an earlier time than that
    /// at which it was handed over.
    pub(super) fn step_back(&mut self, now: Nanos) {
        for open in self.open.values_mut() {
            open.first = open.first.min(now);
        }
    }

    /// The longest time since the first packet of a batch that is open.
    pub(super) fn oldest(&self, now: Nanos) -> Option<Nanos> {
        self.open.values().map(|open| now.since(open.first)).max()
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
