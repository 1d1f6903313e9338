//! The wire between sender and NIC, and everything that can happen to a frame on it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tensorwire_core::counters::TxStats;
use tensorwire_core::header::Verify;
use tensorwire_core::port::{SendError, TxQueue};
use tensorwire_core::time::Nanos;

use super::faults::Fault;
use super::frames::Frames;
use super::meter;
use super::reading::{Class, PORT, Shape, seal};
use super::truth::{Incoming, hash_of_payload};
use super::violation::Violation;
use super::world::World;
use crate::nic::SwTx;
use crate::prng::Prng;

/// Bytes that a frame may be longer than it should.
pub(super) const EXTRA: usize = 64;

/// Set in the order of a frame that goes behind the one of equal turn.
const LATE: u64 = 1 << 63;

/// Frames that may be under way.
const ROOM: usize = 256;

/// A frame under way.
#[derive(Debug)]
struct Flying {
    bytes: Vec<u8>,
    incoming: Incoming,
}

/// How far frames are moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// Frames that overtake one that is reordered, at most.
    pub(super) reorder: u64,
    /// How much later a delayed one arrives, at most.
    pub(super) delay: Nanos,
}

#[derive(Debug)]
pub(super) struct Cable<'n> {
    tx: SwTx<'n>,
    world: &'n RefCell<World>,
    frames: &'n Frames,
    shape: Shape,
    /// The same, checksums included: what is sent must be right.
    strict: Shape,
    reach: Reach,
    epoch: u32,
    number: u64,
    /// Frames by their turn, then by their order.
    flying: BTreeMap<(u64, u64), Flying>,
    delayed: BTreeMap<(Nanos, u64), Flying>,
    /// Frames that have entered the wire.
    entered: u64,
    spare: Vec<Vec<u8>>,
    finishing: bool,
    stalled: u64,
    /// Frames that the sender sent, the wire lost, and the wire added.
    sent: u64,
    dropped: u64,
    added: u64,
    /// Frames that the NIC had no room for.
    missed: u64,
}

impl<'n> Cable<'n> {
    pub(super) fn new(
        tx: SwTx<'n>,
        world: &'n RefCell<World>,
        frames: &'n Frames,
        reach: Reach,
        strict: Shape,
    ) -> Self {
        let shape = world.borrow().truth.shape;
        Self {
            tx,
            world,
            frames,
            shape,
            strict,
            reach,
            epoch: 0,
            number: 0,
            flying: BTreeMap::new(),
            delayed: BTreeMap::new(),
            entered: 0,
            spare: Vec::new(),
            finishing: false,
            stalled: 0,
            sent: 0,
            dropped: 0,
            added: 0,
            missed: 0,
        }
    }

    /// The sender begins again.
    pub(super) const fn restart(&mut self) {
        self.epoch += 1;
        self.number = 0;
    }

    /// Whether something is under way, and when the first delayed frame arrives.
    pub(super) fn under_way(&self) -> (usize, Option<Nanos>) {
        let due = self.delayed.first_key_value().map(|(key, _)| key.0);
        (self.flying.len() + self.delayed.len(), due)
    }

    /// Whether the sender finds no room because of a fault.
    pub(super) fn stalls(&self) -> bool {
        self.stalled > 0 && !self.world.borrow().quiet
    }

    /// Frames that the NIC took and has not shown the receiver yet.
    pub(super) fn staged(&self) -> usize {
        self.tx.staged()
    }

    /// Every frame is somewhere: `(what, found, expected)` if not.
    pub(super) fn balance(&self, handed: u64, waiting: u64) -> Result<(), Violation> {
        let (under_way, _) = self.under_way();
        let nic = self.tx.nic_stats();
        let found = self.dropped + under_way as u64 + nic.missed + nic.errors + handed + waiting;
        Violation::count("frames on the wire", found, self.sent + self.added)?;
        Violation::count("frames the NIC missed", nic.missed, self.missed)
    }

    fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// The sender is right: this is the frame that is due, its number and its checksums.
    fn check_sent(&self, frame: &[u8]) -> Result<(), Violation> {
        let number = self.number % self.shape.space();
        let right = self.strict.read(frame, frame.len())
            == Class::Ours(u32::try_from(number).unwrap_or(u32::MAX))
            && self.frames.payload(self.number) == frame.get(self.shape.offset..);
        if right { Ok(()) } else { Err(Violation::Sent { epoch: self.epoch, number: self.number }) }
    }

    /// Makes the payload one that was never sent before.
    fn stamp(&self, frame: &mut [u8]) {
        let pass = self.number / self.frames.count().max(1);
        if self.epoch == 0 && pass == 0 {
            return;
        }
        let stamp = Prng::new(u64::from(self.epoch) << 32 | pass).next_u64().to_le_bytes();
        for (byte, mark) in frame[self.shape.offset..].iter_mut().zip(stamp) {
            *byte ^= mark;
        }
        seal(frame);
    }

    /// Puts a frame on the wire, to leave after `behind` others, or at a time.
    fn enter(&mut self, bytes: Vec<u8>, genuine: bool, behind: u64, at: Option<Nanos>) {
        let class = self.shape.read(&bytes, bytes.len());
        let payload = bytes.get(self.shape.offset..self.shape.frame());
        let slot = payload.map_or(0, hash_of_payload);
        let (epoch, number) = (self.epoch, self.number);
        let incoming = Incoming { class, epoch, number, genuine, slot };
        let flying = Flying { bytes, incoming };
        let order = self.entered;
        self.entered += 1;
        match at {
            Some(at) => self.delayed.insert((at, order), flying),
            // Behind those that overtake it, the last of them included.
            None if behind > 0 => self.flying.insert((order + behind, LATE | order), flying),
            None => self.flying.insert((order, order), flying),
        };
    }

    fn draw(&self, fault: Fault) -> Option<u64> {
        self.world.borrow_mut().injector.draw(fault)
    }

    /// What happens to a frame that was sent.
    fn carry(&mut self, frame: Vec<u8>) {
        if let Some(arg) = self.draw(Fault::ForeignFlow) {
            let mut other = self.buffer(&frame);
            foreign(&mut other, arg);
            self.added += 1;
            self.enter(other, false, 0, None);
        }
        if let Some(arg) = self.draw(Fault::WildSequence) {
            let mut wild = self.buffer(&frame);
            wild[self.shape.offset..][..8].copy_from_slice(&arg.to_le_bytes());
            self.shape.renumber(&mut wild, arg % self.shape.space());
            self.added += 1;
            self.enter(wild, false, 0, None);
        }
        if let Some(arg) = self.draw(Fault::Duplicate) {
            for copy in 0..=arg % 3 {
                let bytes = self.buffer(&frame);
                let far = (arg >> (8 + 8 * copy)) % (self.reach.reorder + 1);
                self.added += 1;
                self.enter(bytes, true, far + 1, None);
            }
        }
        if self.draw(Fault::Drop).is_some() {
            self.dropped += 1;
            self.spare.push(frame);
            return;
        }
        let mut bytes = frame;
        let genuine = self.spoil(&mut bytes);
        let behind = self.draw(Fault::Reorder).map_or(0, |arg| 1 + arg % self.reach.reorder.max(1));
        let later = self
            .draw(Fault::Delay)
            .map(|arg| self.world.borrow().passed.plus(Nanos(1 + arg % self.reach.delay.0.max(1))));
        self.enter(bytes, genuine, behind, later);
    }

    /// Changes bytes and length; whether payload and number are still as they were sent.
    fn spoil(&self, bytes: &mut Vec<u8>) -> bool {
        let mut genuine = true;
        if let Some(arg) = self.draw(Fault::Corrupt) {
            let (before, at) = (self.shape.number(bytes), spot(arg, bytes.len()));
            bytes[at] ^= u8::try_from(1 + (arg >> 32) % 255).unwrap_or(1);
            genuine = at < self.shape.offset && self.shape.number(bytes) == before;
        }
        if let Some(arg) = self.draw(Fault::Truncate) {
            bytes.truncate(spot(arg, bytes.len()));
        }
        if let Some(arg) = self.draw(Fault::Extend) {
            bytes.resize(bytes.len() + 1 + spot(arg, EXTRA), 0xee);
        }
        genuine
    }

    fn room(&mut self) -> usize {
        if let Some(arg) = self.draw(Fault::TxStall) {
            self.stalled = 2 + arg % 60;
        }
        if self.stalls() {
            self.stalled -= 1;
            // The last one ends it, so that whoever was told 0 is asked again before time jumps.
            if self.stalled > 0 {
                return 0;
            }
        }
        self.pump();
        let room = meter::inside(|| self.tx.room());
        room.min(ROOM.saturating_sub(self.under_way().0))
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let room = self.shape.frame();
        if len > room {
            return Err(SendError::TooLong { len, room });
        }
        if self.under_way().0 >= 2 * ROOM {
            return Err(SendError::Full);
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.resize(len, 0);
        meter::inside(|| fill(&mut frame));
        if let Err(violation) = self.check_sent(&frame) {
            self.world.borrow_mut().fail(violation);
        }
        self.stamp(&mut frame);
        self.sent += 1;
        self.carry(frame);
        self.number += 1;
        self.pump();
        Ok(())
    }

    /// Hands the frames whose turn it is to the NIC, as far as it takes them.
    fn pump(&mut self) {
        let now = self.world.borrow().passed;
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, order), flying) = entry.remove_entry();
            self.flying.insert((order.min(self.entered), order), flying);
        }
        while let Some(entry) = self.flying.first_entry() {
            if !self.finishing && entry.key().0 >= self.entered {
                return;
            }
            let Flying { bytes, incoming } = entry.get();
            let before = self.tx.nic_stats().missed;
            let sent = meter::inside(|| self.tx.send_from(bytes, |_| {}));
            if sent.is_err() {
                return;
            }
            if self.tx.nic_stats().missed == before {
                self.world.borrow_mut().truth.arrive(*incoming);
            } else {
                self.missed += 1;
            }
            self.spare.push(entry.remove().bytes);
        }
    }
}

/// A place below `len`.
fn spot(arg: u64, len: usize) -> usize {
    usize::try_from(arg % (len as u64).max(1)).unwrap_or(0)
}

/// Turns a packet of ours into a frame of somebody else.
fn foreign(frame: &mut Vec<u8>, arg: u64) {
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    match arg % 9 {
        0 => {
            put(36, &(PORT + 1).to_be_bytes());
            seal(frame);
        }
        1 => put(12, &[0x08, 0x06]),
        2 => put(12, &[0x81, 0x00]),
        3 => put(20, &[0x20, 0x00]),
        4 => put(23, &[6]),
        5 => put(14, &[0x46]),
        6 => put(12, &[0x86, 0xdd]),
        7 => frame.truncate(1 + spot(arg >> 8, 60)),
        _ => {
            let mut noise = Prng::new(arg);
            for byte in frame.iter_mut() {
                *byte = noise.next_u64().to_le_bytes()[0];
            }
        }
    }
}

/// The sender's end of a cable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plug<'c, 'n>(pub(super) &'c RefCell<Cable<'n>>);

impl TxQueue for Plug<'_, '_> {
    fn room(&mut self) -> usize {
        let cable = &mut *self.0.borrow_mut();
        meter::aside(|| cable.room())
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let cable = &mut *self.0.borrow_mut();
        meter::aside(|| cable.send(len, fill))
    }

    fn flush(&mut self) {
        let cable = &mut *self.0.borrow_mut();
        meter::aside(|| cable.pump());
        cable.tx.flush();
    }

    fn finish(&mut self) -> bool {
        let cable = &mut *self.0.borrow_mut();
        cable.finishing = true;
        meter::aside(|| cable.pump());
        cable.tx.flush();
        cable.under_way().0 == 0 && cable.tx.finish()
    }

    fn stats(&self) -> TxStats {
        let cable = self.0.borrow();
        TxStats { sent: cable.sent, wire_dropped: cable.dropped, wire_duplicated: cable.added }
    }
}

/// A shape that asks for right checksums.
pub(super) fn strict(spec: &tensorwire_core::geometry::GeometrySpec) -> Shape {
    Shape::new(spec, Verify::Udp)
}
