//! What a batch looks like when it closes: which slots were lost, which images are whole.
//!
//! An empty slot is *missing* unless something else explains it: it lies before the packet that the
//! receiver joined at, in the gap of a discontinuity, or behind the end of the stream.
#![forbid(unsafe_code)]

use super::{Gap, Reassembly, Span, Start, small, window_index};
use crate::window::{CloseCause, Closed, ImageMask, SlotMap};

impl<P> Reassembly<P> {
    /// Sorts the empty slots of a closing window, and its images.
    pub(super) fn describe(&mut self, batch: u64, cause: CloseCause) -> Closed {
        let start = batch << self.batch_shift;
        let end = start + u64::from(self.packets_per_batch);
        let next = self.next();
        let Some(window) = self.windows.get(window_index(batch)) else { return Closed::NONE };
        let map = window.map(self.packets_per_batch);
        let empty_in = |span: Span| {
            let span = span.clip(start, end);
            let covered = map.covered(small(span.from - start), small(span.to - start));
            span.len() - u64::from(covered)
        };
        let ended = if cause == CloseCause::Shutdown { next } else { u64::MAX };
        let before = empty_in(self.edge);
        let cut = empty_in(self.cut.unwrap_or(Span::NONE));
        let unfinished = empty_in(Span { from: ended, to: u64::MAX });
        let empty = u64::from(self.packets_per_batch - window.count());
        let slots = &mut self.counters.slots;
        slots.placed += u64::from(window.count());
        slots.missing += empty - before - cut - unfinished;
        slots.unfinished += unfinished;
        slots.skipped += cut;
        match self.edge_kind {
            Start::Join => slots.before_join += before,
            Start::Discontinuity => slots.skipped += before,
        }
        let mut closed = Closed {
            batch,
            cause,
            placed: window.count(),
            first_packet: window.first_packet(),
            last_packet: window.last_packet(),
            ..Closed::NONE
        };
        if cause == CloseCause::Complete {
            closed.whole = ImageMask::first(self.images_per_batch);
        } else {
            self.sort_images(&mut closed, ended);
        }
        closed
    }

    /// Says of each image of a partial batch what it is. Positions from `ended` on were never
    /// reached.
    fn sort_images(&self, closed: &mut Closed, ended: u64) {
        let map = self.slots_of(closed.batch);
        let start = closed.batch << self.batch_shift;
        let size = self.packets_per_image;
        for image in 0..self.images_per_batch {
            let from = image * size;
            let placed = map.covered(from, from + size);
            let first = start + u64::from(from);
            let end = first + u64::from(size);
            if placed == size || (planted!(AlmostWhole) && placed + 1 == size) {
                closed.whole.insert(image);
            } else if self.reaches_the_end(&map, start, first.max(ended), end) {
                if placed > 0 || first < ended {
                    closed.unfinished.insert(image);
                }
            } else if placed > 0 {
                closed.damaged.insert(image);
            } else if self.lost(first, end) > 0 {
                closed.missing.insert(image);
            }
        }
    }

    /// Whether a slot of `from..to` (positions) is empty.
    fn reaches_the_end(&self, map: &SlotMap<'_>, start: u64, from: u64, to: u64) -> bool {
        from < to && u64::from(map.covered(small(from - start), small(to - start))) < to - from
    }

    pub(super) fn slots_of(&self, batch: u64) -> SlotMap<'_> {
        self.window(batch)
            .map_or(SlotMap::new(&[], self.packets_per_batch), |w| w.map(self.packets_per_batch))
    }

    /// How many of the positions `from..to`, none of which is covered, were lost.
    fn lost(&self, from: u64, to: u64) -> u64 {
        let cut = self.cut.unwrap_or(Span::NONE);
        (to - from) - self.edge.clip(from, to).len() - cut.clip(from, to).len()
    }

    /// Counts the slots of the empty batches `first..end`, and names the images lost with them.
    pub(super) fn describe_gap(&mut self, first: u64, end: u64) -> Gap {
        let from = first << self.batch_shift;
        let to = end << self.batch_shift;
        let edge = self.edge.clip(from, to);
        let cut = self.cut.unwrap_or(Span::NONE).clip(from, to);
        let ended = if self.close_cause == CloseCause::Shutdown { self.next() } else { to };
        let unfinished = Span { from: ended, to }.clip(from, to);
        let slots = &mut self.counters.slots;
        slots.batches += end - first;
        slots.missing += (to - from) - edge.len() - cut.len() - unfinished.len();
        slots.skipped += cut.len();
        slots.unfinished += unfinished.len();
        // Not `clamp`: that would panic, were `from` above `to`.
        let to = ended.max(from).min(to);
        match self.edge_kind {
            Start::Join => slots.before_join += edge.len(),
            Start::Discontinuity => slots.skipped += edge.len(),
        }
        // What is left of from..to: at most one run before the cut and one behind it, both
        // behind the edge.
        let left = if edge.len() > 0 { edge.to } else { from };
        let (a, b) =
            if cut.len() > 0 { ((left, cut.from), (cut.to, to)) } else { ((left, to), (to, to)) };
        // At least 1 by `Geometry`; said here again, so that no division by zero is linked.
        let size = u64::from(self.packets_per_image).max(1);
        let images = |(from, to): (u64, u64)| {
            let first = from / size;
            let short = u64::from(planted!(GapOneShort));
            (first, if from < to { to.div_ceil(size) - first - short } else { 0 })
        };
        let (a, mut b) = (images(a), images(b));
        // An image that the cut begins and ends in is counted once.
        let overlap = (a.0 + a.1).saturating_sub(b.0).min(b.1);
        if a.1 > 0 {
            b = (b.0 + overlap, b.1 - overlap);
        }
        Gap { first_batch: first, batches: end - first, cause: self.close_cause, missing: [a, b] }
    }
}
