//! The transmit queue.

use std::ffi::c_void;
use std::ptr;

use tensorwire_core::counters::TxStats;
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::header::{Verify, classify};
use tensorwire_core::outer::Outer;
use tensorwire_core::port::{SendError, TxQueue};
use tensorwire_dpdk_sys as sys;

use crate::eal;
use crate::pool::PacketPool;

/// What a port keeps for its transmit queue between splits.
#[derive(Debug)]
pub(crate) struct TxSide {
    port: u16,
    queue: u16,
    pool: PacketPool,
    mac: Option<[u8; 6]>,
    wrap: Wrap,
    /// Empty mbufs, taken from the pool in bulk; the first `empty` count.
    stock: Stack,
    /// Filled mbufs that the device has not taken yet, the oldest first.
    filled: Stack,
    sent: u64,
    refused: u64,
}

/// Headers that frames get here, by flow.
#[derive(Debug)]
struct Wrap {
    /// Flow `n` gets what is in `outer` at `n`.
    table: FlowTable,
    outer: Vec<Vec<Outer>>,
    /// Bytes that the headers of any flow take.
    room: usize,
}

impl Wrap {
    fn new(flows: &[(FlowMatch, Vec<Outer>)]) -> Self {
        let mut wrap = Self { table: FlowTable::new(), outer: Vec::new(), room: 0 };
        for (flow, outer) in flows {
            let id = u32::try_from(wrap.outer.len()).unwrap_or(u32::MAX);
            // A table that is full, of 64, takes no more: the frames of the rest stay as they are.
            if wrap.table.push(&FlowMatch { id, ..*flow }).is_ok() {
                wrap.room = wrap.room.max(outer.iter().map(Outer::grows).sum());
                wrap.outer.push(outer.clone());
            }
        }
        wrap
    }

    /// Puts the headers of its flow in front of the frame that begins at byte `room` of `whole`.
    /// How many bytes of `whole` are in front of them and belong to nothing.
    fn put(&self, whole: &mut [u8]) -> usize {
        let mut at = self.room;
        let frame = whole.get(at..).unwrap_or_default();
        let header = classify(frame, frame.len(), Verify::None).ok();
        let flow = header.and_then(|header| self.table.matches(&header));
        let outer = flow.and_then(|flow| self.outer.get(usize::try_from(flow).ok()?));
        for outer in outer.into_iter().flatten() {
            let begin = at.saturating_sub(outer.grows());
            // A frame whose headers cannot be read has matched no flow.
            if !whole.get_mut(begin..).is_some_and(|frame| outer.put(frame)) {
                break;
            }
            at = begin;
        }
        at
    }
}

/// Mbufs that are ours alone.
#[derive(Debug)]
struct Stack {
    mbufs: [*mut c_void; sys::BURST],
    len: usize,
}

// SAFETY: an mbuf that nobody else has may go to any thread.
unsafe impl Send for Stack {}

impl Stack {
    const EMPTY: Self = Self { mbufs: [ptr::null_mut(); sys::BURST], len: 0 };

    fn push(&mut self, mbuf: *mut c_void) {
        if let Some(place) = self.mbufs.get_mut(self.len) {
            *place = mbuf;
            self.len += 1;
        }
    }

    /// All of them go back to their pool.
    fn free(&mut self) {
        // At most 64.
        let count = u32::try_from(std::mem::take(&mut self.len)).unwrap_or(0);
        // SAFETY: they are ours alone, and are forgotten here.
        unsafe { sys::twd_free_bulk(self.mbufs.as_mut_ptr(), count) };
    }
}

impl TxSide {
    pub(crate) fn new(
        port: u16,
        queue: u16,
        pool: PacketPool,
        mac: Option<[u8; 6]>,
        flows: &[(FlowMatch, Vec<Outer>)],
    ) -> Self {
        let (stock, filled) = (Stack::EMPTY, Stack::EMPTY);
        let wrap = Wrap::new(flows);
        Self { port, queue, pool, mac, wrap, stock, filled, sent: 0, refused: 0 }
    }

    /// Gives back what was not sent. Whether anything ever was.
    pub(crate) fn discard(&mut self) -> bool {
        self.stock.free();
        self.filled.free();
        self.sent > 0
    }

    /// Hands filled frames to the device, as many as it takes.
    fn push(&mut self) {
        let Stack { mbufs, len } = &mut self.filled;
        if *len == 0 {
            return;
        }
        eal::seat();
        // At most 64.
        let count = u16::try_from(*len).unwrap_or(0);
        // SAFETY: the port runs, as the side exists only while it does; this is the only handle of
        // the queue; the first `len` mbufs are ours and filled, and those that the device takes are
        // forgotten below.
        let taken = unsafe { sys::twd_tx_burst(self.port, self.queue, mbufs.as_mut_ptr(), count) };
        mbufs.copy_within(usize::from(taken)..*len, 0);
        *len -= usize::from(taken);
    }

    /// Takes empty mbufs from the pool if there are none here: a full stock, or what there is.
    fn restock(&mut self) {
        if self.stock.len > 0 {
            return;
        }
        eal::seat();
        let mut count = u32::try_from(sys::BURST).unwrap_or(0);
        while self.stock.len == 0 && count > 0 {
            let mbufs = self.stock.mbufs.as_mut_ptr();
            // SAFETY: the pool lives as long as the handle; there is room for `count`.
            if unsafe { sys::twd_alloc_bulk(self.pool.raw(), mbufs, count) } == 0 {
                self.stock.len = count as usize;
                return;
            }
            // All or none: a pool that is nearly empty gives a few.
            count /= 2;
        }
    }

    fn room(&mut self) -> usize {
        if self.filled.len == sys::BURST {
            self.push();
        }
        self.restock();
        self.stock.len.min(sys::BURST - self.filled.len)
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let front = self.wrap.room;
        let room = self.pool.room_bytes().saturating_sub(front);
        let bytes = u16::try_from(len + front).ok().filter(|_| len <= room && len > 0);
        let bytes = bytes.ok_or(SendError::TooLong { len, room })?;
        if self.room() == 0 {
            self.refused += 1;
            return Err(SendError::Full);
        }
        self.stock.len -= 1;
        let mbuf = self.stock.mbufs[self.stock.len];
        // SAFETY: an empty mbuf of ours.
        let data = unsafe { sys::twd_append(mbuf, bytes) };
        if data.is_null() {
            // Cannot be: an empty buffer has the room that was checked above.
            self.stock.len += 1;
            return Err(SendError::TooLong { len, room });
        }
        // In its place before anything is written: should `fill` panic, it is not lost.
        self.filled.push(mbuf);
        // SAFETY: `append` says that `bytes` bytes lie there, in memory that was zero at first and
        // holds frames since; the mbuf is ours alone.
        let whole = unsafe { std::slice::from_raw_parts_mut(data, bytes.into()) };
        let frame = whole.get_mut(front..).unwrap_or_default();
        fill(frame);
        if let Some(mac) = &self.mac
            && let Some(source) = frame.get_mut(6..12)
        {
            source.copy_from_slice(mac);
        }
        if front > 0 {
            let unused = u16::try_from(self.wrap.put(whole)).unwrap_or(0);
            // SAFETY: an mbuf of ours of one segment, which the frame alone is longer than.
            unsafe { sys::twd_cut(mbuf, unused) };
        }
        self.sent += 1;
        if self.filled.len == sys::BURST {
            self.push();
        }
        Ok(())
    }
}

/// A transmit queue of a [`crate::Port`]. Frames go to the device in bursts of 64; a flush, which
/// the transmitter does in every step, sends what there is.
#[derive(Debug)]
pub struct DpdkTx<'p> {
    side: &'p mut TxSide,
}

impl<'p> DpdkTx<'p> {
    pub(crate) const fn new(side: &'p mut TxSide) -> Self {
        Self { side }
    }

    /// Frames that were filled and that the device has not taken yet.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.side.filled.len
    }

    /// Times that a frame was refused because device or pool had no room.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.side.refused
    }
}

impl TxQueue for DpdkTx<'_> {
    fn room(&mut self) -> usize {
        self.side.room()
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.side.send(len, fill)
    }

    fn flush(&mut self) {
        self.side.push();
    }

    fn finish(&mut self) -> bool {
        self.side.push();
        self.side.filled.len == 0
    }

    /// As the trait has it: frames accepted, of which [`DpdkTx::waiting`] are still here.
    fn stats(&self) -> TxStats {
        TxStats { sent: self.side.sent, ..TxStats::default() }
    }
}
