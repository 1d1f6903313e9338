//! Faults on the wire: frames that are lost, doubled or overtaken, at rates that a test chooses.
//!
//! [`Faulty`] wraps any transmit queue and acts between the sender and that queue, so the same
//! faults can be tried on the software NIC and on a real one. What it does depends on the faults
//! and on the order of the frames only, never on time: the same frames come out in the same order
//! however often the queue behind it is full. Everything is allocated when it is made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU64;

use tensorwire_core::counters::TxStats;
use tensorwire_core::port::{SendError, TxQueue, write_patched};

use crate::prng::Prng;

/// The largest [`WireFaults::shuffle`]: that many frames are held at a time.
pub const MAX_SHUFFLE: u32 = 65_536;

/// Frames that may wait for room in the queue behind, besides those the shuffle holds.
const BACKLOG: usize = 64;

/// What the wire does to frames. Frames are counted from 1 in the order in which they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireFaults {
    /// Loses every n-th frame: n, 2n, 3n, …
    pub drop: Option<NonZeroU64>,
    /// Sends every n-th frame twice, the copy right behind. A frame that is lost is lost once.
    pub dup: Option<NonZeroU64>,
    /// Permutes the frames that are not lost, each by at most this many places, forward or back.
    /// 0 keeps the order. A frame and its copy stay together and count as one place.
    pub shuffle: u32,
    /// Decides the permutation.
    pub seed: u64,
}

impl WireFaults {
    /// Whether frames pass as they are.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.drop.is_none() && self.dup.is_none() && self.shuffle == 0
    }
}

/// Why faults could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultError {
    /// The shuffle distance is above [`MAX_SHUFFLE`].
    Shuffle {
        /// What was asked for.
        given: u32,
    },
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shuffle { given } => {
                write!(f, "a shuffle distance of {given}, allowed 0 to {MAX_SHUFFLE}")
            }
        }
    }
}

impl std::error::Error for FaultError {}

/// A frame on the wire. Ordered by its place on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// Where it wants to be: its own number plus what the shuffle drew.
    key: u64,
    /// Its own number among the frames that are not lost, from 0. Decides between equal keys.
    index: u64,
    /// Which of the frame buffers holds it.
    slot: usize,
    len: usize,
    /// How often it still has to be sent.
    copies: u8,
}

/// A transmit queue with a faulty wire behind it.
///
/// The permutation: frame `i` gets the key `i + u`, `u` uniform in `0 ..= shuffle + 1`, and frames
/// leave in the order of (key, number). Only frames less than `shuffle + 1` apart can change their
/// order, so none moves by more than `shuffle` places; and a frame may leave as soon as no later
/// one can get a smaller key, so no more than `shuffle` frames wait for that.
pub struct Faulty<T> {
    inner: T,
    faults: WireFaults,
    prng: Prng,
    /// The longest frame, and the size of a frame buffer.
    frame_bytes: usize,
    /// Frame buffers of the wire. The first takes the frames that are lost; the others exist only
    /// where frames are held.
    frames: Vec<u8>,
    /// Which frame buffers are free.
    free: Vec<usize>,
    held: BinaryHeap<Reverse<Held>>,
    /// Frames that entered the wire: accepted and not lost.
    entered: u64,
    finishing: bool,
    stats: TxStats,
}

impl<T: TxQueue> Faulty<T> {
    /// Puts a wire with `faults` behind a queue that takes frames of up to `frame_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`FaultError`] when the shuffle distance is above its limit.
    pub fn new(inner: T, faults: WireFaults, frame_bytes: usize) -> Result<Self, FaultError> {
        if faults.shuffle > MAX_SHUFFLE {
            return Err(FaultError::Shuffle { given: faults.shuffle });
        }
        let holds = faults.dup.is_some() || faults.shuffle > 0;
        let slots = if holds { faults.shuffle as usize + 1 + BACKLOG } else { 0 };
        Ok(Self {
            inner,
            faults,
            prng: Prng::new(faults.seed),
            frame_bytes,
            frames: if faults.is_none() { Vec::new() } else { vec![0; (1 + slots) * frame_bytes] },
            free: (1..=slots).rev().collect(),
            held: BinaryHeap::with_capacity(slots),
            entered: 0,
            finishing: false,
            stats: TxStats::default(),
        })
    }

    /// The queue behind the wire.
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// The queue behind the wire.
    pub const fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Frames that are on the wire: sent, not lost, and not yet given to the queue behind.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether frames go through buffers of the wire.
    const fn holds(&self) -> bool {
        self.faults.dup.is_some() || self.faults.shuffle > 0
    }

    /// Whether frame `n` is one of every `every`.
    fn hits(every: Option<NonZeroU64>, n: u64) -> bool {
        every.is_some_and(|every| n.is_multiple_of(every.get()))
    }

    /// The `len` bytes of a frame buffer.
    fn frame(frames: &mut [u8], frame_bytes: usize, slot: usize, len: usize) -> &mut [u8] {
        &mut frames[slot * frame_bytes..][..len]
    }

    /// Passes on the frames whose turn it is, as far as the queue behind takes them.
    fn pump(&mut self) {
        while let Some(Reverse(head)) = self.held.peek().copied() {
            // The next frame to enter has at least the key `entered`, and a higher number.
            if !self.finishing && head.key > self.entered {
                return;
            }
            let bytes = Self::frame(&mut self.frames, self.frame_bytes, head.slot, head.len);
            match self.inner.send_from(bytes, |_| {}) {
                Ok(()) => {}
                Err(SendError::Full) => return,
                // The queue behind takes less than we were told: the wire ends here for the frame.
                Err(_) => self.stats.wire_dropped += 1,
            }
            self.sent_one(head);
        }
    }

    /// The first of the held frames went out once.
    fn sent_one(&mut self, head: Held) {
        if head.copies > 1 {
            // The same place in the order, so the heap needs no repair beyond its first element.
            if let Some(mut first) = self.held.peek_mut() {
                first.0.copies -= 1;
            }
            self.stats.wire_duplicated += 1;
        } else {
            self.held.pop();
            self.free.push(head.slot);
        }
    }

    /// Takes a frame onto the wire.
    fn enter(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let Some(slot) = self.free.last().copied() else { return Err(SendError::Full) };
        fill(Self::frame(&mut self.frames, self.frame_bytes, slot, len));
        self.free.pop();
        let index = self.entered;
        let shift = match u64::from(self.faults.shuffle) {
            0 => 0,
            n => self.prng.below(n + 2),
        };
        self.stats.sent += 1;
        let copies = if Self::hits(self.faults.dup, self.stats.sent) { 2 } else { 1 };
        self.held.push(Reverse(Held { key: index + shift, index, slot, len, copies }));
        self.entered += 1;
        Ok(())
    }
}

impl<T: TxQueue> TxQueue for Faulty<T> {
    fn room(&mut self) -> usize {
        if !self.holds() {
            return self.inner.room();
        }
        self.pump();
        self.inner.room().min(self.free.len())
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        if len > self.frame_bytes {
            return Err(SendError::TooLong { len, room: self.frame_bytes });
        }
        if Self::hits(self.faults.drop, self.stats.sent + 1) {
            fill(Self::frame(&mut self.frames, self.frame_bytes, 0, len));
            self.stats.sent += 1;
            self.stats.wire_dropped += 1;
            return Ok(());
        }
        if !self.holds() {
            self.inner.send(len, fill)?;
            self.stats.sent += 1;
            return Ok(());
        }
        if self.free.is_empty() {
            self.pump();
        }
        self.enter(len, fill)?;
        self.pump();
        Ok(())
    }

    /// As the trait has it. Only a frame that passes as it is goes on without a copy.
    fn send_from(&mut self, frame: &[u8], patch: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let lost = Self::hits(self.faults.drop, self.stats.sent + 1);
        if lost || self.holds() || frame.len() > self.frame_bytes {
            return self.send(frame.len(), |out| write_patched(out, frame, patch));
        }
        self.inner.send_from(frame, patch)?;
        self.stats.sent += 1;
        Ok(())
    }

    fn flush(&mut self) {
        self.pump();
        self.inner.flush();
    }

    fn finish(&mut self) -> bool {
        self.finishing = true;
        self.pump();
        if self.held.is_empty() {
            return self.inner.finish();
        }
        self.inner.flush();
        false
    }

    /// What was sent into the wire and what became of it there; losses and copies of a wire further
    /// behind are added.
    fn stats(&self) -> TxStats {
        let behind = self.inner.stats();
        TxStats {
            sent: self.stats.sent,
            wire_dropped: self.stats.wire_dropped + behind.wire_dropped,
            wire_duplicated: self.stats.wire_duplicated + behind.wire_duplicated,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("faults", &self.faults)
            .field("held", &self.held.len())
            .field("stats", &self.stats)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
