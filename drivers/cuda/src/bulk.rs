//! Which parts of a packet pool are copied to the GPU for a batch, and where its packets then lie.
//!
//! A pool hands its buffers out in the order in which they came back, so the packets of a batch lie
//! together, in one or two places, nearly always. Those places are copied as a whole: one copy of
//! megabytes is faster than thousands of reads over the bus (`kernels/BENCH.md`). Where packets are
//! strewn, copying what lies between them costs more than that saves, and the batch is read where
//! it is. Nothing here touches a GPU.
//!
//! The buffers of a pool are evenly apart, so a place is copied by rows: of each buffer the
//! payload, and nothing of its header and its end. How far apart they are is learned from the
//! addresses and looked at for every packet; where packets do not fit, all of a place is copied.

use crate::queue::Layout;

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
    /// What of it is copied, if not all.
    pub(crate) rows: Option<Rows>,
}

/// The payloads of a run: `count` rows, each `apart` bytes after the one before it, the first of
/// them `lead` bytes after the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) lead: u64,
    pub(crate) bytes: u64,
    pub(crate) apart: u64,
    pub(crate) count: u64,
}

/// What of a piece belongs to the batch: from the first byte of its first packet to the last of its
/// last, in bytes from the begin of the pool.
#[derive(Clone, Copy, Debug)]
struct Touched {
    first: u64,
    end: u64,
}

/// How the buffers of a pool lie, as far as its packets showed: some multiple of `apart` bytes from
/// each to each.
#[derive(Clone, Copy, Debug, Default)]
struct Grid {
    /// A packet that was seen.
    seen: Option<u64>,
    /// 0 before there were two.
    apart: u64,
    /// Of the first place at which there can be a packet.
    phase: u64,
    /// 2^64 / `apart`, rounded up.
    inverse: u64,
}

impl Grid {
    /// Whether a packet lies in it. Without a division: a number below 2^32 is divisible where its
    /// product with the inverse is less than that is (Lemire, Kaser, Kurz, "Faster remainder by
    /// direct computation", 2019). What is beyond 2^32 is not answered for.
    const fn has(&self, at: u64) -> bool {
        let Some(way) = at.checked_sub(self.phase) else { return false };
        way >> 32 == 0 && way.wrapping_mul(self.inverse) < self.inverse
    }

    /// Narrows it to what has these packets too.
    fn learn(&mut self, packets: impl Iterator<Item = u64>) {
        for at in packets {
            let seen = *self.seen.get_or_insert(at);
            self.apart = greatest_common_divisor(self.apart, at.abs_diff(seen));
        }
        if let Some(seen) = self.seen.filter(|_| self.apart > 0) {
            self.phase = seen % self.apart;
            // Of 1 it would be 2^64; frames are not a byte apart, and 0 answers no.
            self.inverse = (u64::MAX / self.apart).wrapping_add(1);
        }
    }
}

/// Euclid's; of 0 and a number that number.
const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

const UNTOUCHED: Touched = Touched { first: u64::MAX, end: 0 };

/// The plans of one pool. Nothing is allocated after `new`.
#[derive(Debug)]
pub(crate) struct Bulk {
    /// Where the GPU sees the pool, and how long it is.
    base: u64,
    bytes: u64,
    frame_bytes: u64,
    payload_offset: u64,
    /// Bytes of a staging area, without what lines take at both ends of a run.
    room: u64,
    grid: Grid,
    pieces: Vec<Touched>,
    runs: [Run; MAX_RUNS],
}

impl Bulk {
    /// For batches of that layout from a pool of `bytes` bytes that the GPU sees at `base`, a
    /// multiple of 128.
    pub(crate) fn new(base: u64, bytes: usize, layout: &Layout) -> Self {
        let (bytes, frame_bytes) = (bytes as u64, layout.frame_bytes() as u64);
        let pieces = usize::try_from((bytes >> PIECE_SHIFT) + 1).unwrap_or(0);
        Self {
            base,
            bytes,
            frame_bytes,
            payload_offset: layout.payload_offset.into(),
            room: worth(WIDEST * frame_bytes * u64::from(layout.slots)),
            grid: Grid::default(),
            pieces: vec![UNTOUCHED; pieces],
            runs: [Run::default(); MAX_RUNS],
        }
    }

    /// Bytes of a staging area.
    pub(crate) fn room(&self) -> usize {
        let ends = 2 * LINE * MAX_RUNS as u64;
        usize::try_from(self.room + ends).unwrap_or(usize::MAX)
    }

    /// What is to be copied to a staging area at `near` for the packets of a list (addresses; 0 =
    /// none). The list then says where they lie in the area. `None`, and the list is as it was, if
    /// they had better be read where they are.
    pub(crate) fn plan(&mut self, list: &mut [u64], near: u64) -> Option<&[Run]> {
        let (packets, in_grid) = self.touch(list)?;
        // Frames overlap in a grid that is too narrow, and a grid never gets wider.
        let too_narrow = self.grid.apart != 0 && self.grid.apart < self.frame_bytes;
        let rows = !too_narrow && (in_grid || self.learn(list));
        let each = if rows { self.grid.apart } else { self.frame_bytes };
        let count = self.runs(worth(packets * each).min(self.room), rows)?;
        let runs = &self.runs[..count];
        for address in list.iter_mut().filter(|address| **address != 0) {
            let at = *address - self.base;
            // The last of those that begin at or before it.
            let run = runs.iter().rev().find(|run| run.from <= at)?;
            *address = near + run.to + (at - run.from);
        }
        Some(runs)
    }

    /// Notes what the packets of a list touch; their number, and whether they lie in the grid.
    /// `None` if one is not of the pool, or if there is none.
    fn touch(&mut self, list: &[u64]) -> Option<(u64, bool)> {
        self.pieces.fill(UNTOUCHED);
        let last = self.bytes.checked_sub(self.frame_bytes)?;
        let (mut packets, mut in_grid) = (0, true);
        for address in list.iter().filter(|address| **address != 0) {
            // Of an address before the pool this is larger than any pool.
            let at = address.wrapping_sub(self.base);
            if at > last {
                return None;
            }
            let piece = &mut self.pieces[usize::try_from(at >> PIECE_SHIFT).ok()?];
            piece.first = piece.first.min(at);
            piece.end = piece.end.max(at + self.frame_bytes);
            in_grid &= self.grid.has(at);
            packets += 1;
        }
        (packets > 0).then_some((packets, in_grid))
    }

    /// Whether a grid with the packets of the list, all of the pool, is one of whole frames.
    fn learn(&mut self, list: &[u64]) -> bool {
        let packets = list.iter().filter(|address| **address != 0);
        self.grid.learn(packets.clone().map(|address| address - self.base));
        self.grid.apart >= self.frame_bytes
            && packets.clone().all(|address| self.grid.has(address - self.base))
    }

    /// Joins what was touched to runs; their number. `None` if they are too many or, together,
    /// longer than `most` bytes. `rows`: all packets lie in the grid.
    fn runs(&mut self, most: u64, rows: bool) -> Option<usize> {
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
            let rows = rows.then(|| Rows {
                lead: open.first - from + self.payload_offset,
                bytes: self.frame_bytes - self.payload_offset,
                apart: self.grid.apart,
                count: (open.end - self.frame_bytes - open.first) / self.grid.apart + 1,
            });
            *self.runs.get_mut(count)? = Run { from, to, bytes, rows };
            (count, copied) = (count + 1, to + bytes);
            match next {
                Some(next) => open = next,
                None => break,
            }
        }
        (copied <= most + 2 * LINE * count as u64).then_some(count)
    }
}

/// Buffers that are further apart than so many frames are not copied by rows: the rows of a batch
/// would need more memory than that is worth.
const WIDEST: u64 = 2;

/// The most that is copied for packets of so many bytes: an eighth more, which is still faster than
/// to read them where they are.
const fn worth(bytes: u64) -> u64 {
    bytes + bytes / 8
}

#[cfg(test)]
mod tests;
