//! Feeds the reassembly and its model the same calls, and compares all there is to see after each.

use std::collections::BTreeMap;
use std::ops::Range;

use tensorwire_core::geometry::Geometry;
use tensorwire_core::reassembly::{Action, Busy, Place, Reassembly, ReassemblyCounters};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::{ImageMask, SlotMap};

use crate::model::Model;
use crate::words::{Batch, Buffers, Event, Packet, index, joined};

/// Which entry of the reassembly a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Accept,
    /// As the producer does: `place` first, `accept` where that has no answer.
    PlaceFirst,
}

/// What a caller can see of a reassembly between two actions.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    counters: ReassemblyCounters,
    /// Held, next, join, open windows.
    numbers: (u64, u64, Option<u32>, usize),
    deadline: Option<Nanos>,
    due: bool,
}

/// A reassembly, its model, and what a producer would keep beside them.
#[derive(Debug)]
pub(crate) struct Pair {
    core: Reassembly<Packet>,
    pub(crate) model: Model,
    per_batch: u64,
    per_image: u64,
    /// What each window of the reassembly holds: its batch, and the packets by slot.
    windows: BTreeMap<u8, (u64, BTreeMap<u64, Packet>)>,
    /// Whether the packet left the reassembly again: placed or dropped.
    settled: Vec<bool>,
    /// How many did.
    out: u64,
    taken_back: u64,
    pub(crate) closed: Vec<Batch>,
    pub(crate) gaps: Vec<Range<u64>>,
    pub(crate) now: u64,
    pub(crate) buffers: Buffers,
    pub(crate) entry: Entry,
    /// Whether calls before their turn are tried, which must change nothing.
    pub(crate) impatient: bool,
}

impl Pair {
    /// `timeout` in nanoseconds.
    pub(crate) fn new(geometry: &Geometry, windows: u32, timeout: u64) -> Self {
        Self {
            core: Reassembly::new(geometry, windows, Nanos(timeout)),
            model: Model::new(geometry, windows, timeout),
            per_batch: geometry.packets_per_batch().into(),
            per_image: geometry.packets_per_image().into(),
            windows: BTreeMap::new(),
            settled: Vec::new(),
            out: 0,
            taken_back: 0,
            closed: Vec::new(),
            gaps: Vec::new(),
            now: 0,
            buffers: Buffers::Free,
            entry: Entry::Accept,
            impatient: false,
        }
    }

    /// One packet with this number on the wire; returns what stands for it.
    pub(crate) fn send(&mut self, wire: u32) -> Packet {
        let packet = self.settled.len() as Packet;
        self.settled.push(false);
        let (now, common) = (Nanos(self.now), self.model.common(wire));
        let shortcut = match self.entry {
            Entry::Accept => None,
            Entry::PlaceFirst => {
                let before = self.seen();
                let place = self.core.place(wire, now);
                assert_eq!(place.is_some(), common, "the shortcut, for {wire}");
                assert!(place.is_some() || before == self.seen(), "no place, and yet a change");
                place
            }
        };
        let first = match shortcut {
            Some(Place { window, slot }) => Some(Action::Place { window, slot, packet }),
            None => self.core.accept(packet, wire, now).expect("all actions were taken"),
        };
        let events = self.model.accept(packet, wire, self.now, self.buffers);
        self.follow(first, events);
        packet
    }

    pub(crate) fn send_all(&mut self, wires: impl IntoIterator<Item = u32>) {
        for wire in wires {
            self.send(wire);
        }
    }

    pub(crate) fn tick(&mut self) {
        self.core.tick(Nanos(self.now));
        let events = self.model.tick(self.now, self.buffers);
        self.follow(None, events);
    }

    pub(crate) fn relieve(&mut self) {
        self.core.relieve(Nanos(self.now));
        let events = self.model.relieve(self.now, self.buffers);
        self.follow(None, events);
    }

    /// The end of the run: nothing is open or held any more, and a second end changes nothing.
    pub(crate) fn finish(&mut self) {
        for _ in 0..2 {
            self.core.finish(Nanos(self.now));
            let events = self.model.finish(self.now, self.buffers);
            self.follow(None, events);
            assert_eq!((self.core.held(), self.core.open_windows()), (0, 0));
            assert_eq!(self.core.counters().slots.placed, self.core.counters().placed);
            assert!(self.settled.iter().all(|settled| *settled), "a packet got lost");
        }
    }

    /// Takes the actions one by one, each the next of `events`.
    fn follow(&mut self, first: Option<Action<Packet>>, events: Vec<Event>) {
        let mut events = events.into_iter();
        let mut action = first.or_else(|| self.core.next_action());
        while let Some(current) = action {
            self.take(&current, events.next());
            self.interrupt();
            action = self.core.next_action();
        }
        assert_eq!(events.next(), None, "the model has more to tell");
        self.compare();
    }

    fn take(&mut self, action: &Action<Packet>, expected: Option<Event>) {
        let event = match *action {
            Action::Place { window, slot, packet } => {
                self.settle(packet);
                let Some(Event::Place { batch, .. }) = expected else {
                    panic!("{action:?}, where the model says {expected:?}");
                };
                self.place(window, slot, packet, batch);
                Event::Place { batch, slot: slot.into(), packet }
            }
            Action::Drop { packet, cause } => {
                self.settle(packet);
                Event::Drop { packet, cause }
            }
            Action::Close { window } => self.close(window),
            Action::Gap(gap) => {
                let ranges = gap.missing.map(|(first, count)| first..first + count);
                let missing = joined(ranges.into_iter());
                self.gaps.extend(missing.iter().cloned());
                let (first, batches) = (gap.first_batch, gap.batches);
                Event::Gap { first, batches, cause: gap.cause, missing }
            }
        };
        assert_eq!(Some(event), expected, "the reassembly on the left, the model on the right");
    }

    fn settle(&mut self, packet: Packet) {
        let settled = &mut self.settled[index(packet)];
        assert!(!*settled, "packet {packet} came out twice");
        *settled = true;
        self.out += 1;
    }

    fn place(&mut self, window: u8, slot: u32, packet: Packet, batch: u64) {
        let open = |(other, held): (&u8, &(u64, _))| *other != window && held.0 == batch;
        assert!(!self.windows.iter().any(open), "batch {batch} is open in two windows");
        let (bound, packets) = self.windows.entry(window).or_insert((batch, BTreeMap::new()));
        assert_eq!(*bound, batch, "window {window} is taken");
        let first = packets.is_empty();
        let refused = match self.buffers {
            Buffers::Free => false,
            Buffers::NoneLeft => first,
            Buffers::TakeAllBack => true,
        };
        if refused {
            self.core.unplace(window, slot);
            self.taken_back += 1;
            if first {
                self.windows.remove(&window);
            }
        } else {
            assert_eq!(packets.insert(slot.into(), packet), None, "slot {slot} was filled before");
        }
    }

    fn close(&mut self, window: u8) -> Event {
        let (batch, packets) = self.windows.remove(&window).expect("an open window");
        let closed = *self.core.closed();
        let map = self.core.slots(window);
        assert_eq!(u64::from(map.slots()), self.per_batch);
        assert_eq!((closed.batch, closed.placed as usize), (batch, packets.len()));
        self.check_map(&map, &packets);
        let images = |mask: ImageMask| mask.iter().map(u64::from).collect();
        let batch = Batch {
            batch,
            cause: closed.cause,
            packets,
            whole: images(closed.whole),
            damaged: images(closed.damaged),
            missing: images(closed.missing),
            unfinished: images(closed.unfinished),
            first: closed.first_packet.0,
            last: closed.last_packet.0,
        };
        let last = self.closed.last().map(|last| last.batch);
        assert!(last < Some(batch.batch), "batches leave in ascending order, each once");
        self.closed.push(batch.clone());
        Event::Close(batch)
    }

    fn check_map(&self, map: &SlotMap<'_>, packets: &BTreeMap<u64, Packet>) {
        for slot in 0..map.slots() {
            assert_eq!(map.contains(slot), packets.contains_key(&slot.into()), "slot {slot}");
        }
        let holes: u64 = map.missing().map(|(_, count)| u64::from(count)).sum();
        assert_eq!(holes + packets.len() as u64, self.per_batch);
    }

    /// What is not this call's turn changes nothing while actions are due.
    fn interrupt(&mut self) {
        if !self.impatient || !self.core.is_due() {
            return;
        }
        let (before, closed, late) = (self.seen(), *self.core.closed(), Nanos(u64::MAX));
        assert_eq!(self.core.accept(u64::MAX, 0, late), Err(Busy(u64::MAX)));
        assert_eq!(self.core.place(0, late), None);
        self.core.tick(late);
        self.core.relieve(late);
        self.core.finish(late);
        assert_eq!(before, self.seen(), "a call before its turn changed something");
        assert_eq!(closed, *self.core.closed());
    }

    /// All that the reassembly shows.
    fn seen(&self) -> Seen {
        let core = &self.core;
        Seen {
            counters: *core.counters(),
            numbers: (core.held(), core.next(), core.join(), core.open_windows()),
            deadline: core.deadline(),
            due: core.is_due(),
        }
    }

    /// The same counters on both sides, and every packet and slot counted once.
    fn compare(&self) {
        let (core, model) = (&self.core, &self.model);
        let expected = Seen {
            counters: model.counters,
            numbers: (model.held(), model.next, model.join, model.open_windows()),
            deadline: model.deadline().map(Nanos),
            due: false,
        };
        assert_eq!(self.seen(), expected, "the reassembly on the left, the model on the right");
        let c = core.counters();
        let offered = self.settled.len() as u64;
        assert_eq!(self.taken_back, model.taken_back);
        assert_eq!(
            offered,
            c.placed + c.duplicate + c.late + c.wild + self.taken_back + core.held()
        );
        assert_eq!(offered, self.out + core.held());
        assert!(c.slots.balanced(self.per_batch), "{:?}", c.slots);
        let open: u64 = self.windows.values().map(|(_, packets)| packets.len() as u64).sum();
        assert_eq!(c.placed, c.slots.placed + open);
    }

    /// Whole images by their index, each with the packets it is made of.
    pub(crate) fn whole(&self) -> BTreeMap<u64, Vec<Packet>> {
        let mut whole = BTreeMap::new();
        for batch in &self.closed {
            for image in &batch.whole {
                let slots = image * self.per_image..(image + 1) * self.per_image;
                let packets = slots.map(|slot| batch.packets[&slot]).collect();
                whole.insert(batch.batch * (self.per_batch / self.per_image) + image, packets);
            }
        }
        whole
    }
}
