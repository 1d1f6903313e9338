//! Receive offload (GRO): the kernel hands over as one message what it has put together from many
//! datagrams of one sender and one length.
//!
//! The datagrams of a group lie back to back, and each packet wants [`HEADERS`] bytes in front of
//! it. So a message is received into many packet buffers at once, in each of which it goes on
//! behind the place for the headers, and as far as a datagram of the geometry is long: the kernel's
//! own copy puts each datagram where a single one would lie, and nothing is copied afterwards. That
//! is so for groups of packets of the geometry. Datagrams of a group of others do not begin where
//! buffers do, and are copied to buffers of their own one by one; so are those for which no buffer
//! was free, out of the memory that stands behind the buffers of a message for whatever does not
//! fit. Nothing that has been received is lost for want of a buffer: it waits.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;

use tensorwire_core::burst::PacketDesc;

use crate::pool::{Free, SocketPool};
use crate::recv::Headers;
use crate::{HEADERS, sys};

/// Messages of one system call while groups come: more would wait here, and not where the kernel
/// counts.
const GROUPS: usize = 8;

/// Messages of one system call while none comes.
const SINGLES: usize = 32;

/// Most buffers that a message is received into: the kernel makes no larger groups
/// (`UDP_MAX_SEGMENTS` of those that send).
const BUFFERS: usize = sys::MAX_PARTS / GROUPS - 1;

/// After so many calls that brought no group none is expected: a datagram that comes alone costs
/// two thirds more where it might be a group, since the kernel looks at each buffer.
const PATIENCE: u32 = 32;

/// Bytes of a message at most; one of UDP has fewer.
const MESSAGE_BYTES: usize = 65_535;

/// What came in groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Messages that held more than one datagram.
    pub groups: u64,
    /// The datagrams in them.
    pub datagrams: u64,
    /// Datagrams that were copied, since they did not lie where a packet buffer begins.
    pub copied: u64,
}

/// Where one message goes.
struct Set {
    /// The buffers that a message fills one after the other. Those of packets that were handed out
    /// are gone from the front.
    buffers: VecDeque<Free>,
    /// How many there were when the message was received.
    posted: usize,
    /// What does not fit into them.
    rest: Box<[u8]>,
}

/// What was received in groups, and what is received into next.
pub(crate) struct Groups {
    sets: Vec<Set>,
    /// What the messages are, `came` of them; those before `at` are done, and so is what lies
    /// before datagram `next` of that one.
    messages: [sys::Datagram; SINGLES],
    came: usize,
    at: usize,
    next: usize,
    /// Calls in a row that brought messages, and no group among them.
    without: u32,
    /// Buffers of a message that may be a group.
    depth: usize,
    /// Bytes that a message puts into each.
    room: usize,
    /// Buffers that messages leave free, for those that have to be copied.
    reserve: usize,
    /// Datagrams of which the kernel could not hand over all.
    pub(crate) cut: u64,
    pub(crate) stats: GroupStats,
}

impl Groups {
    /// For packets of a pool of `buffers` buffers for frames of `frame_bytes` bytes.
    pub(crate) fn new(buffers: usize, frame_bytes: usize) -> Self {
        Self::with(buffers, frame_bytes, MESSAGE_BYTES)
    }

    /// The same, with so many bytes behind the buffers of a message.
    pub(crate) fn with(buffers: usize, frame_bytes: usize, rest: usize) -> Self {
        let room = frame_bytes.saturating_sub(HEADERS);
        let depth = if room == 0 { 0 } else { MESSAGE_BYTES.div_ceil(room).min(BUFFERS) };
        let set = || Set {
            buffers: VecDeque::with_capacity(depth),
            posted: 0,
            rest: vec![0; rest].into_boxed_slice(),
        };
        Self {
            sets: std::iter::repeat_with(set).take(SINGLES).collect(),
            messages: [sys::NOTHING; SINGLES],
            came: 0,
            at: 0,
            next: 0,
            without: 0,
            depth,
            room,
            reserve: buffers.div_ceil(2).min(BUFFERS),
            cut: 0,
            stats: GroupStats::default(),
        }
    }

    /// Whether something was received that nobody was handed yet.
    pub(crate) const fn waiting(&self) -> bool {
        self.at < self.came
    }

    /// Buffers that are not with the application and not free either.
    pub(crate) fn buffers(&self) -> usize {
        self.sets.iter().map(|set| set.buffers.len()).sum()
    }

    /// One system call, once nothing is [`Self::waiting`]. Returns whether the socket may hold
    /// more.
    ///
    /// # Errors
    ///
    /// What the system says, [`io::ErrorKind::WouldBlock`] where nothing has come.
    pub(crate) fn receive(
        &mut self,
        socket: &UdpSocket,
        pool: &SocketPool,
        free: &mut Vec<Free>,
    ) -> io::Result<bool> {
        (self.came, self.at, self.next) = (0, 0, 0);
        let expected = self.without < PATIENCE;
        let (asked, depth) = if expected { (GROUPS, self.depth) } else { (SINGLES, 1) };
        for set in self.sets.iter_mut().take(asked) {
            let wanted = depth.saturating_sub(set.buffers.len());
            let spare = free.len().saturating_sub(self.reserve);
            set.buffers.extend(free.drain(free.len() - wanted.min(spare)..));
            set.posted = set.buffers.len().min(depth);
        }
        let messages = self.sets.iter_mut().take(asked).map(|set| {
            let buffers = set.buffers.iter_mut().take(set.posted);
            let buffers = buffers.map(|buffer| &mut pool.bytes_mut(buffer)[HEADERS..]);
            buffers.chain(std::iter::once(&mut *set.rest))
        });
        self.came = sys::receive(socket, messages, &mut self.messages)?;
        let mut came = self.messages.iter().take(self.came);
        let none = came.all(|message| Place::of(message, 0).alone);
        self.without = if none { self.without.saturating_add(1) } else { 0 };
        Ok(self.came == asked)
    }

    /// Hands out the next datagram that was received; `None` when none is waiting, or when there is
    /// no buffer to copy it to.
    pub(crate) fn packet(
        &mut self,
        pool: &SocketPool,
        free: &mut Vec<Free>,
        headers: &mut Headers,
    ) -> Option<PacketDesc> {
        while let Some(message) = self.messages[..self.came].get(self.at).copied() {
            let set = &mut self.sets[self.at];
            let datagram = Place::of(&message, self.next);
            let kept = datagram.len.min(self.room);
            let whole = datagram.start + kept <= set.posted * self.room + set.rest.len();
            let in_place = self.next < set.posted && (datagram.alone || message.piece == self.room);
            let buffer = if !whole {
                None
            } else if let Some(buffer) = in_place.then(|| set.buffers.pop_front()).flatten() {
                Some(buffer)
            } else {
                let mut buffer = free.pop()?;
                let out = &mut pool.bytes_mut(&mut buffer)[HEADERS..];
                set.copy(pool, self.room, datagram.start, &mut out[..kept]);
                self.stats.copied += 1;
                Some(buffer)
            };
            self.step(&datagram);
            let Some(mut buffer) = buffer else {
                self.cut += 1;
                continue;
            };
            let len = HEADERS + datagram.len;
            headers.write(message.from, len, pool.bytes_mut(&mut buffer));
            // A message has less than 2^32 bytes.
            return Some(pool.publish(buffer, u32::try_from(len).unwrap_or(u32::MAX)));
        }
        None
    }

    /// Goes on behind `datagram`.
    fn step(&mut self, datagram: &Place) {
        self.stats.groups += u64::from(!datagram.alone && self.next == 0);
        self.stats.datagrams += u64::from(!datagram.alone);
        self.next += 1;
        if datagram.last {
            (self.at, self.next) = (self.at + 1, 0);
        }
    }
}

/// Where a datagram lies in its message.
struct Place {
    start: usize,
    len: usize,
    /// It is the message.
    alone: bool,
    /// None follows.
    last: bool,
}

impl Place {
    /// That of datagram `number` of `message`; a message that holds nothing is one without a byte.
    fn of(message: &sys::Datagram, number: usize) -> Self {
        if message.piece == 0 || message.piece >= message.len {
            return Self { start: 0, len: message.len, alone: true, last: true };
        }
        let start = message.piece * number;
        let len = message.piece.min(message.len - start);
        Self { start, len, alone: false, last: start + len == message.len }
    }
}

impl Set {
    /// Copies the bytes of the message from `start` on to `out`. No buffer is gone from in front of
    /// them, or they lie behind all.
    fn copy(&self, pool: &SocketPool, room: usize, start: usize, out: &mut [u8]) {
        let (mut at, mut out) = (start, out);
        while !out.is_empty() {
            let behind = at.checked_sub(self.posted * room);
            let source = match behind {
                Some(behind) => self.rest.get(behind..),
                None => self
                    .buffers
                    .get(at / room)
                    .map(|buffer| &pool.bytes_of(buffer)[HEADERS + at % room..]),
            };
            let source = source.unwrap_or(&[]);
            let size = source.len().min(out.len());
            debug_assert!(size > 0, "no bytes at {at}");
            if size == 0 {
                return;
            }
            let (front, others) = out.split_at_mut(size);
            front.copy_from_slice(&source[..size]);
            (at, out) = (at + size, others);
        }
    }
}
