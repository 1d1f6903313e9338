//! Which parts of a packet pool are copied to the GPU for a batch, and where its packets then lie.
//!
//! A pool hands its buffers out in the order in which they came back, so the packets of a batch lie
//! together, in one or two places, nearly always. Those places are copied as a whole: one copy of
//! megabytes is faster than thousands of reads over the bus (`kernels/BENCH.md`). Where packets are
//! strewn, copying what lies between them costs more than that saves, and the batch is read where
//! it is. Nothing here touches a GPU.

/// Copies of a batch at most. Each costs the host and the copy engine a microsecond or two.
pub(crate) const MAX_RUNS: usize = 8;

/// Packets that are further apart than this are copied apart: the bytes between them would take
/// about as long as another copy.
const APART: u64 = 32 << 10;

/// A pool is looked at in pieces of so many bytes (two to that power). What lies between packets of
/// one piece is copied with them.
const PIECE_SHIFT: u32 = 16;

/// Copies begin at multiples of this, and packets keep their place relative to it: to the kernel
/// they are aligned as they were.
const LINE: u64 = 128;

/// A part of the pool that is copied, in bytes from the begin of pool and staging area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bytes: u64,
}

/// What of a piece belongs to the batch: from the first byte of its first packet to the last of its
/// last, in bytes from the begin of the pool.
#[derive(Clone, Copy, Debug)]
struct Touched {
    first: u64,
    end: u64,
}

const UNTOUCHED: Touched = Touched { first: u64::MAX, end: 0 };

/// The plans of one pool. Nothing is allocated after `new`.
#[derive(Debug)]
pub(crate) struct Bulk {
    /// Where the GPU sees the pool, and how long it is.
    base: u64,
    bytes: u64,
    frame_bytes: u64,
    /// Bytes of a staging area.
    room: u64,
    pieces: Vec<Touched>,
    runs: [Run; MAX_RUNS],
}

impl Bulk {
    /// For batches of `slots` frames of `frame_bytes` bytes from a pool of `bytes` bytes that the
    /// GPU sees at `base`, a multiple of 128.
    pub(crate) fn new(base: u64, bytes: usize, frame_bytes: usize, slots: u32) -> Self {
        let (bytes, frame_bytes) = (bytes as u64, frame_bytes as u64);
        let pieces = usize::try_from((bytes >> PIECE_SHIFT) + 1).unwrap_or(0);
        // Each run may begin and end within a line.
        let room = worth(frame_bytes * u64::from(slots)) + 2 * LINE * MAX_RUNS as u64;
        Self {
            base,
            bytes,
            frame_bytes,
            room,
            pieces: vec![UNTOUCHED; pieces],
            runs: [Run::default(); MAX_RUNS],
        }
    }

    /// Bytes of a staging area.
    pub(crate) fn room(&self) -> usize {
        usize::try_from(self.room).unwrap_or(usize::MAX)
    }

    /// What is to be copied to a staging area at `near` for the packets of a list (addresses; 0 =
    /// none). The list then says where they lie in the area. `None`, and the list is as it was, if
    /// they had better be read where they are.
    pub(crate) fn plan(&mut self, list: &mut [u64], near: u64) -> Option<&[Run]> {
        let packets = self.touch(list)?;
        let count = self.runs(worth(packets * self.frame_bytes))?;
        let runs = &self.runs[..count];
        for address in list.iter_mut().filter(|address| **address != 0) {
            let at = *address - self.base;
            // The last of those that begin at or before it.
            let run = runs.iter().rev().find(|run| run.from <= at)?;
            *address = near + run.to + (at - run.from);
        }
        Some(runs)
    }

    /// Notes what the packets of a list touch; their number. `None` if one is not of the pool, or
    /// if there is none.
    fn touch(&mut self, list: &[u64]) -> Option<u64> {
        self.pieces.fill(UNTOUCHED);
        let last = self.bytes.checked_sub(self.frame_bytes)?;
        let mut packets = 0;
        for address in list.iter().filter(|address| **address != 0) {
            // Of an address before the pool this is larger than any pool.
            let at = address.wrapping_sub(self.base);
            if at > last {
                return None;
            }
            let piece = &mut self.pieces[usize::try_from(at >> PIECE_SHIFT).ok()?];
            piece.first = piece.first.min(at);
            piece.end = piece.end.max(at + self.frame_bytes);
            packets += 1;
        }
        (packets > 0).then_some(packets)
    }

    /// Joins what was touched to runs; their number. `None` if they are too many or, together,
    /// longer than `most` bytes.
    fn runs(&mut self, most: u64) -> Option<usize> {
        let (mut count, mut copied) = (0, 0);
        let mut touched = self.pieces.iter().filter(|piece| piece.end > 0);
        let mut open = *touched.next()?;
        loop {
            let next = touched.next().copied();
            if let Some(next) = next
                && next.first.saturating_sub(open.end) <= APART
            {
                open.end = open.end.max(next.end);
                continue;
            }
            let from = open.first / LINE * LINE;
            let bytes = open.end - from;
            let to = u64::next_multiple_of(copied, LINE);
            *self.runs.get_mut(count)? = Run { from, to, bytes };
            (count, copied) = (count + 1, to + bytes);
            match next {
                Some(next) => open = next,
                None => break,
            }
        }
        (copied <= most + 2 * LINE * count as u64).then_some(count)
    }
}

/// The most that is copied for packets of so many bytes: an eighth more, which is still faster than
/// to read them where they are.
const fn worth(bytes: u64) -> u64 {
    bytes + bytes / 8
}

#[cfg(test)]
mod tests;
