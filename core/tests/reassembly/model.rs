//! The reference model: the rules of reassembly with nothing but maps, vectors and signed numbers.
//!
//! It is written from the rules as they are told (DESIGN §4 and the head of `core::reassembly`),
//! not from the code: it forgets nothing, looks everything up anew, and answers each call with the
//! whole list of events at once. It is slow and takes memory without bound, which is what makes it
//! short. Each rule that a stream reaches is noted by name in [`Model::reached`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tensorwire_core::geometry::Geometry;
use tensorwire_core::reassembly::{DropCause, ReassemblyCounters};
use tensorwire_core::window::CloseCause;

use crate::words::{Batch, Buffers, Event, Excuse, Fate, Packet, index, joined, without};

#[derive(Clone, Debug, Default)]
struct Open {
    packets: BTreeMap<u64, Packet>,
    first: u64,
    last: u64,
}

#[derive(Debug)]
pub(crate) struct Model {
    per_image: u64,
    per_batch: u64,
    /// `2^w`.
    space: i128,
    step: i128,
    confirmations: usize,
    windows: u64,
    timeout: u64,

    pub(crate) join: Option<u32>,
    pub(crate) next: u64,
    /// The oldest batch that has not closed.
    base: u64,
    /// Batches with at least one packet.
    open: BTreeMap<u64, Open>,
    held: Vec<(u32, Packet)>,
    excused: Vec<(Range<u64>, Excuse)>,
    cut_by_deadline: BTreeSet<u64>,

    buffers: Buffers,
    now: u64,
    events: Vec<Event>,
    pub(crate) taken_back: u64,
    pub(crate) counters: ReassemblyCounters,
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

impl Model {
    pub(crate) fn new(geometry: &Geometry, windows: u32, timeout: u64) -> Self {
        let per_batch = u64::from(geometry.packets_per_batch());
        let eighth = geometry.sequence_space() / 8;
        Self {
            per_image: u64::from(geometry.packets_per_image()),
            per_batch,
            space: geometry.sequence_space().into(),
            step: eighth.min(per_batch / 2).max(1).into(),
            confirmations: index(eighth.clamp(2, 8)),
            windows: u64::from(windows).clamp(1, 4),
            timeout,
            join: None,
            next: 0,
            base: 0,
            open: BTreeMap::new(),
            held: Vec::new(),
            excused: Vec::new(),
            cut_by_deadline: BTreeSet::new(),
            buffers: Buffers::Free,
            now: 0,
            events: Vec::new(),
            taken_back: 0,
            counters: ReassemblyCounters::default(),
            reached: BTreeMap::new(),
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    pub(crate) fn open_windows(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let due = self.open.values().map(|open| open.first.saturating_add(self.timeout)).min();
        due.filter(|_| self.timeout > 0)
    }

    /// Whether the shortcut may take this packet: nothing is held, it is at most a step from the
    /// stream, and its slot is empty in an open window.
    pub(crate) fn common(&self, wire: u32) -> bool {
        let d = self.distance(wire);
        let at = self.position(d);
        self.join.is_some()
            && self.held.is_empty()
            && d.abs() <= self.step
            && at.is_some_and(|at| self.is_open(at) && !self.filled(at))
    }

    // ---- calls -------------------------------------------------------------------------------

    pub(crate) fn accept(
        &mut self,
        packet: Packet,
        wire: u32,
        now: u64,
        buffers: Buffers,
    ) -> Vec<Event> {
        self.now = now;
        self.buffers = buffers;
        if self.join.is_none() {
            self.join = Some(wire);
            self.next = wire.into();
            self.base = self.next / self.per_batch;
            self.excused.push((0..self.next, Excuse::BeforeJoin));
            self.put(self.next, packet);
            return std::mem::take(&mut self.events);
        }
        let d = self.distance(wire);
        let agrees = self.held.last().is_some_and(|&(last, _)| self.agree(wire, last));
        let straggler = self.position(d).filter(|&at| self.is_open(at) && !self.filled(at));
        if (0..=self.step).contains(&d) {
            self.reach(if d == 0 { "plain: in order" } else { "plain: ahead" });
            self.refute(true);
            self.put(self.position(d).expect("at or after `next`"), packet);
        } else if let Some(at) = straggler.filter(|_| (-self.step..0).contains(&d) && !agrees) {
            self.reach("plain: behind");
            self.refute(false);
            self.put(at, packet);
        } else {
            if !agrees {
                self.refute(false);
            }
            self.reach("held");
            self.held.push((wire, packet));
            if self.held.len() >= self.confirmations {
                self.judge();
            }
        }
        std::mem::take(&mut self.events)
    }

    /// A poll came back with less than was asked for.
    pub(crate) fn tick(&mut self, now: u64, buffers: Buffers) -> Vec<Event> {
        (self.now, self.buffers) = (now, buffers);
        let due = |open: &Open| now.saturating_sub(open.first) >= self.timeout;
        let expired = self.open.iter().filter(|(_, open)| due(open)).map(|(&batch, _)| batch).max();
        if let Some(batch) = expired.filter(|_| self.timeout > 0) {
            self.refute(false);
            self.close_below(batch + 1, CloseCause::Deadline);
        }
        std::mem::take(&mut self.events)
    }

    /// The pool of packet buffers is low.
    pub(crate) fn relieve(&mut self, now: u64, buffers: Buffers) -> Vec<Event> {
        (self.now, self.buffers) = (now, buffers);
        if let Some(&batch) = self.open.keys().next() {
            self.refute(false);
            self.close_below(batch + 1, CloseCause::Pool);
        }
        std::mem::take(&mut self.events)
    }

    /// The end of the run.
    pub(crate) fn finish(&mut self, now: u64, buffers: Buffers) -> Vec<Event> {
        (self.now, self.buffers) = (now, buffers);
        self.refute(true);
        self.close_below(self.next.div_ceil(self.per_batch), CloseCause::Shutdown);
        std::mem::take(&mut self.events)
    }

    // ---- numbers -----------------------------------------------------------------------------

    /// `a − b` on the circle, as a signed number in `−2^(w−1) .. 2^(w−1)`.
    fn signed(&self, a: i128, b: i128) -> i128 {
        let d = (a - b).rem_euclid(self.space);
        if d >= self.space / 2 { d - self.space } else { d }
    }

    fn distance(&self, wire: u32) -> i128 {
        self.signed(wire.into(), self.next.into())
    }

    /// The position at this distance from `next`, unless it is before the beginning.
    fn position(&self, d: i128) -> Option<u64> {
        u64::try_from(i128::from(self.next) + d).ok()
    }

    fn agree(&self, a: u32, b: u32) -> bool {
        self.signed(a.into(), b.into()).abs() <= self.step
    }

    fn is_open(&self, at: u64) -> bool {
        (self.base..self.base + self.windows).contains(&(at / self.per_batch))
    }

    fn filled(&self, at: u64) -> bool {
        let open = self.open.get(&(at / self.per_batch));
        open.is_some_and(|open| open.packets.contains_key(&(at % self.per_batch)))
    }

    /// Where the stream began, or began again after the last discontinuity.
    fn beginning(&self) -> u64 {
        self.excused.last().map_or(0, |(excused, _)| excused.end)
    }

    // ---- held packets ------------------------------------------------------------------------

    /// What is held was not the stream. `trusted`: says a stream that went on, or ended.
    fn refute(&mut self, trusted: bool) {
        for (wire, packet) in std::mem::take(&mut self.held) {
            let d = self.distance(wire);
            let Some(at) = self.position(d) else {
                self.reach("refuted: before the beginning");
                self.late(None, packet);
                continue;
            };
            let near = d >= -self.step;
            if d >= 0 {
                self.reach("refuted: wild");
                self.counters.wild += 1;
                self.events.push(Event::Drop { packet, cause: DropCause::Wild });
            } else if !self.is_open(at) {
                self.reach("refuted: late");
                self.late(Some(at / self.per_batch), packet);
            } else if self.filled(at) {
                self.reach("refuted: duplicate");
                self.put(at, packet);
            } else if near || trusted && at >= self.beginning() {
                self.reach(if near { "refuted: placed" } else { "refuted: placed, far" });
                self.put(at, packet);
            } else {
                self.reach("refuted: far and not trusted");
                self.late(Some(at / self.per_batch), packet);
            }
        }
    }

    /// As many packets as it takes agree with each other, and not with the stream.
    fn judge(&mut self) {
        let first = self.held[0].0;
        let ahead = self.distance(first);
        if ahead >= 0 {
            self.reach("confirmed: ahead");
            self.confirm(self.position(ahead).expect("after `next`"));
            return;
        }
        let explained = |&&(wire, _): &&(u32, Packet)| {
            let d = self.distance(wire);
            let at = self.position(d).filter(|_| (-self.step..0).contains(&d));
            at.is_some_and(|at| self.is_open(at) && !self.filled(at))
        };
        if self.held.iter().filter(explained).count() * 2 >= self.held.len() {
            self.reach("a run of stragglers");
            self.refute(false);
            return;
        }
        self.reach("confirmed: discontinuity");
        self.counters.discontinuities += 1;
        let anchor = self.position(ahead + self.space).expect("after `next`");
        let places = self.held.iter().filter_map(|&(wire, _)| self.beside(wire, first, anchor));
        let start = places.min().unwrap_or(anchor).max(self.next);
        self.excused.push((self.next..start, Excuse::Skipped));
        // What the stream had reached closes, and never opens again.
        let reached = self.next.div_ceil(self.per_batch);
        if reached > start / self.per_batch {
            self.reach("a restart inside a batch that was reached");
        }
        self.close_below(reached.max(start / self.per_batch), CloseCause::Discontinuity);
        self.confirm(anchor);
    }

    /// The held packets are the stream, the first of them at `anchor`.
    fn confirm(&mut self, anchor: u64) {
        let held = std::mem::take(&mut self.held);
        for &(wire, packet) in &held {
            match self.beside(wire, held[0].0, anchor) {
                Some(at) => self.put(at, packet),
                None => self.late(None, packet),
            }
        }
    }

    /// The position of `wire` that is nearest to `anchor`, where `first` stands.
    fn beside(&self, wire: u32, first: u32, anchor: u64) -> Option<u64> {
        u64::try_from(i128::from(anchor) + self.signed(wire.into(), first.into())).ok()
    }

    // ---- windows -----------------------------------------------------------------------------

    /// The packet belongs at this position.
    fn put(&mut self, at: u64, packet: Packet) {
        let (batch, slot) = (at / self.per_batch, at % self.per_batch);
        if batch >= self.base + self.windows {
            self.close_below(batch + 1 - self.windows, CloseCause::Moved);
        }
        self.next = self.next.max(at + 1);
        if batch < self.base {
            self.reach("late");
            return self.late(Some(batch), packet);
        }
        if self.filled(at) {
            self.counters.duplicate += 1;
            return self.events.push(Event::Drop { packet, cause: DropCause::Duplicate });
        }
        if at > 0 && i128::from(at) % self.space == 0 {
            self.reach("the numbers wrap");
        }
        self.events.push(Event::Place { batch, slot, packet });
        let first = !self.open.contains_key(&batch);
        if self.buffers == Buffers::TakeAllBack || self.buffers == Buffers::NoneLeft && first {
            self.reach("taken back");
            self.taken_back += 1;
            if let Some(open) = self.open.get_mut(&batch) {
                open.last = self.now;
            }
            return;
        }
        self.counters.placed += 1;
        let open = self.open.entry(batch).or_default();
        if first {
            open.first = self.now;
        }
        open.last = self.now;
        open.packets.insert(slot, packet);
        if open.packets.len() as u64 == self.per_batch && batch > self.base {
            self.reach("a complete batch waits");
        }
        self.close_complete();
    }

    fn late(&mut self, batch: Option<u64>, packet: Packet) {
        self.counters.late += 1;
        // The 64 batches that closed last are remembered.
        let known = |batch: &u64| *batch < self.base && self.base - *batch <= 64;
        if batch.filter(known).is_some_and(|batch| self.cut_by_deadline.contains(&batch)) {
            self.reach("cut by timeout");
            self.counters.cut_by_timeout += 1;
        }
        self.events.push(Event::Drop { packet, cause: DropCause::Late });
    }

    fn close_complete(&mut self) {
        while self.open.get(&self.base).is_some_and(|o| o.packets.len() as u64 == self.per_batch) {
            self.close(CloseCause::Complete);
        }
    }

    /// Closes the batches below `end`, and then those that only waited for them.
    fn close_below(&mut self, end: u64, cause: CloseCause) {
        while self.base < end {
            if self.open.contains_key(&self.base) {
                self.close(cause);
            } else {
                let next = self.open.keys().next().copied().unwrap_or(end).min(end);
                self.gap(next, cause);
            }
            self.close_complete();
        }
    }

    /// Closes the oldest batch.
    fn close(&mut self, cause: CloseCause) {
        let batch = self.base;
        let open = self.open.remove(&batch).expect("an open batch");
        let full = open.packets.len() as u64 == self.per_batch;
        let cause = if full { CloseCause::Complete } else { cause };
        match cause {
            CloseCause::Complete => {}
            CloseCause::Moved => self.counters.partial.moved += 1,
            CloseCause::Deadline => self.counters.partial.deadline += 1,
            CloseCause::Pool => self.counters.partial.pool += 1,
            CloseCause::Discontinuity => self.counters.partial.discontinuity += 1,
            CloseCause::Shutdown => self.counters.partial.shutdown += 1,
        }
        let start = batch * self.per_batch;
        let fates: Vec<Fate> = (0..self.per_batch)
            .map(|slot| match open.packets.contains_key(&slot) {
                true => Fate::Placed,
                false => self.fate(start + slot, cause),
            })
            .collect();
        for fate in &fates {
            *self.count_of(*fate) += 1;
        }
        self.counters.slots.batches += 1;
        let mut closed = Batch {
            batch,
            cause,
            packets: open.packets,
            whole: Vec::new(),
            damaged: Vec::new(),
            missing: Vec::new(),
            unfinished: Vec::new(),
            first: open.first,
            last: open.last,
        };
        self.sort_images(&mut closed, &fates);
        self.pass(batch + 1, cause);
        self.events.push(Event::Close(closed));
    }

    /// Says of each image what its slots came to.
    fn sort_images(&mut self, closed: &mut Batch, fates: &[Fate]) {
        let start = closed.batch * self.per_batch;
        let ended = closed.cause == CloseCause::Shutdown;
        for (image, fates) in (0..).zip(fates.chunks(index(self.per_image))) {
            let begun = !ended || start + image * self.per_image < self.next;
            let any = |fate| fates.contains(&fate);
            if fates.iter().all(|fate| *fate == Fate::Placed) {
                closed.whole.push(image);
            } else if any(Fate::Unfinished) {
                if any(Fate::Placed) || begun {
                    self.reach("image: unfinished");
                    closed.unfinished.push(image);
                }
            } else if any(Fate::Placed) {
                self.reach("image: damaged");
                closed.damaged.push(image);
            } else if any(Fate::Missing) {
                self.reach("image: missing");
                closed.missing.push(image);
            } else {
                self.reach("image: excused");
            }
        }
    }

    /// Passes over empty batches, from the oldest up to `end`. They may be a great many, so the
    /// slots are counted by ranges here.
    fn gap(&mut self, end: u64, cause: CloseCause) {
        let first = self.base;
        let all = first * self.per_batch..end * self.per_batch;
        let reached = if cause == CloseCause::Shutdown { self.next.min(all.end) } else { all.end };
        self.counters.slots.unfinished += all.end - reached;
        let begun = all.start..reached;
        let mut lost = vec![begun];
        for (excused, excuse) in self.excused.clone() {
            let here = excused.start.max(all.start)..excused.end.min(reached);
            *self.count_of(Fate::Excused(excuse)) += here.end.saturating_sub(here.start);
            lost = lost.iter().flat_map(|range| without(range, &here)).collect();
        }
        let count: u64 = lost.iter().map(|range| range.end - range.start).sum();
        self.counters.slots.missing += count;
        self.counters.slots.batches += end - first;
        self.reach(if end - first > 1 { "gap of several batches" } else { "gap of one batch" });
        if lost.len() > 1 {
            self.reach("gap with losses on both sides of an excuse");
        }
        let images = lost.iter().map(|r| r.start / self.per_image..r.end.div_ceil(self.per_image));
        let missing = joined(images);
        self.pass(end, cause);
        self.events.push(Event::Gap { first, batches: end - first, cause, missing });
    }

    fn pass(&mut self, end: u64, cause: CloseCause) {
        if cause == CloseCause::Deadline {
            self.cut_by_deadline.extend(self.base..end);
        }
        self.base = end;
        self.reach(match cause {
            CloseCause::Complete => "cause: complete",
            CloseCause::Moved => "cause: moved",
            CloseCause::Deadline => "cause: deadline",
            CloseCause::Pool => "cause: pool",
            CloseCause::Discontinuity => "cause: discontinuity",
            CloseCause::Shutdown => "cause: shutdown",
        });
    }

    /// What became of a slot that nothing was placed in.
    fn fate(&self, at: u64, cause: CloseCause) -> Fate {
        match self.excused.iter().find(|(excused, _)| excused.contains(&at)) {
            Some((_, excuse)) => Fate::Excused(*excuse),
            None if cause == CloseCause::Shutdown && at >= self.next => Fate::Unfinished,
            None => Fate::Missing,
        }
    }

    fn count_of(&mut self, fate: Fate) -> &mut u64 {
        let slots = &mut self.counters.slots;
        match fate {
            Fate::Placed => &mut slots.placed,
            Fate::Missing => &mut slots.missing,
            Fate::Unfinished => &mut slots.unfinished,
            Fate::Excused(Excuse::BeforeJoin) => &mut slots.before_join,
            Fate::Excused(Excuse::Skipped) => &mut slots.skipped,
        }
    }

    fn reach(&mut self, rule: &'static str) {
        *self.reached.entry(rule).or_default() += 1;
    }
}
