//! Frames on their way into receive buffers: written past the caches, and seen by nobody before
//! they are in order.
//!
//! A frame is written once, from where its sender has it into the buffer that it is received in,
//! by non-temporal stores of whole cache lines: no line has to be fetched from the core that read
//! the frame before, none waits in the cache of this one when that core wants it, and a line that
//! is written as a whole leaves at once, where the part of one waits and is merged with what was
//! there. Hardware keeps such stores in no order until a fence, which waits for all of them, so
//! there is one for many frames. Until then the tokens of their buffers are kept in a [`Landing`].
#![allow(unsafe_code)] // slices of packet buffers and stores without a fence

use std::fmt;
use std::mem;
use std::sync::Arc;

use tensorwire_core::burst::PacketDesc;
use tensorwire_kernels::{Conversion, Kernel};

use super::{FreeBuf, LINE, PacketPool, this_thread};

/// The most frames of a [`Landing`]: so many that the fence does not show.
pub const LANDING: usize = 32;

/// A frame that arrives, in two pieces: `front` may be a copy that was changed.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'f> {
    /// Its first line. A frame that is shorter fills it up with what is to lie behind its end.
    pub front: &'f [u8; LINE],
    /// The bytes behind, none in a frame of less than a line. What the buffer does not hold is
    /// cut off.
    pub rest: &'f [u8],
    /// Length of the frame in bytes.
    pub len: u32,
    /// Its flow tag.
    pub flow: u32,
}

/// Frames in their buffers that nobody can see yet, at most [`LANDING`].
///
/// They belong to the thread that wrote the first of them: another one can neither add to them nor
/// publish them, until that thread has published them.
pub struct Landing {
    pool: Arc<PacketPool>,
    /// Copies past the caches without a fence.
    copy: Kernel,
    /// Buffer, length and flow tag of each; the first `count` hold one.
    frames: [(FreeBuf, u32, u32); LANDING],
    count: usize,
    /// The thread that wrote them, if there are any.
    thread: u64,
}

impl Landing {
    /// No frames, for buffers of `pool`.
    #[must_use]
    pub fn new(pool: Arc<PacketPool>) -> Self {
        // SAFETY: this kernel writes in `write` only, to a buffer whose one token lies in `frames`
        // before the first store. It leaves that place in `publish` alone, on the thread that wrote
        // and after a fence; if the whole goes before, `drop` fences on that thread too, or sees to
        // it that the memory of the buffers is never used again, nor given back.
        let copy = unsafe { Kernel::new(Conversion::Copy).defer_fence() };
        let frames = [const { (FreeBuf::NONE, 0, 0) }; LANDING];
        Self { pool, copy, frames, count: 0, thread: 0 }
    }

    /// How many frames wait.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether no frame waits.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether this thread may add a frame: there is a place, and no other thread's frames wait.
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.count < LANDING && self.is_ours()
    }

    /// Whether no frames of another thread wait.
    #[inline]
    fn is_ours(&self) -> bool {
        self.count == 0 || self.thread == this_thread()
    }

    /// Writes a frame into `buf`, with zeros behind it to the end of its last line.
    ///
    /// # Errors
    ///
    /// The token itself when there is no room ([`Landing::has_room`]) or it is of another pool;
    /// nothing is written then.
    #[inline]
    pub fn write(&mut self, buf: FreeBuf, frame: &Arriving<'_>) -> Result<(), FreeBuf> {
        if !self.has_room() {
            return Err(buf);
        }
        let (Some(index), Some(place)) =
            (self.pool.index(buf.handle), self.frames.get_mut(self.count))
        else {
            return Err(buf);
        };
        let room = self.pool.frame_bytes().saturating_sub(LINE);
        let rest = frame.rest.get(..room).unwrap_or(frame.rest);
        let lines = 1 + rest.len().div_ceil(LINE);
        // SAFETY: the token of the buffer exists once, and this function has it, so nobody else
        // reads or writes it while the slice lives.
        let Some(out) = (unsafe { self.pool.region.lines_mut(index, lines) }) else {
            return Err(buf);
        };
        *place = (buf, frame.len, frame.flow);
        if self.count == 0 {
            self.thread = this_thread();
        }
        self.count += 1;
        copy_lines(&self.copy, frame.front, rest, out);
        Ok(())
    }

    /// Puts the frames in order: the token of each buffer turns into that of a packet, in the order
    /// in which the frames were written. Returns how many; none where they are another thread's.
    pub fn publish(&mut self, packets: &mut [PacketDesc; LANDING]) -> usize {
        if self.count == 0 || !self.is_ours() {
            return 0;
        }
        self.copy.fence();
        let count = mem::take(&mut self.count);
        for ((buf, len, flow), packet) in self.frames[..count].iter_mut().zip(packets) {
            // Of this pool, as `write` has seen.
            if let Ok(published) = self.pool.publish(mem::take(buf), *len, *flow) {
                *packet = published;
            }
        }
        count
    }
}

impl Drop for Landing {
    /// Stores of this thread are put in order. If those of another may not be, then the memory is
    /// not given back: they could arrive when it is somebody else's.
    fn drop(&mut self) {
        if self.is_ours() {
            self.copy.fence();
        } else {
            let _ = mem::ManuallyDrop::new(Arc::clone(&self.pool));
        }
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames of {LANDING}", self.count)
    }
}

/// Writes `front`, then `rest`, then zeros to the end of `out`, which has a line for each that
/// these begin.
#[inline]
fn copy_lines(copy: &Kernel, front: &[u8; LINE], rest: &[u8], out: &mut [[u8; LINE]]) {
    let Some((first, out)) = out.split_first_mut() else { return };
    copy.convert(front, first);
    let (whole, tail) = rest.split_at(rest.len() / LINE * LINE);
    let (middle, last) = out.split_at_mut(whole.len() / LINE);
    copy.convert(whole, middle.as_flattened_mut());
    if let Some(last) = last.first_mut() {
        let mut line = Line([0; LINE]);
        line.0[..tail.len()].copy_from_slice(tail);
        copy.convert(&line.0, last);
    }
}

/// A line to be read as one.
#[repr(align(64))]
struct Line([u8; LINE]);

#[cfg(test)]
mod tests;
