//! The receive queue.

use std::cell::Cell;
use std::ptr;
use std::time::{Duration, Instant};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::outer::Outer;
use tensorwire_core::port::{PacketMemory, RxQueue};
use tensorwire_core::time::Nanos;
use tensorwire_dpdk_sys as sys;

use crate::eal;
use crate::port;
use crate::view::{PacketView, mbuf};

/// How old an answer of the NIC's counters may be: a read can take a real NIC tens of microseconds,
/// and the poller asks in every step.
const STATS_AGE: Duration = Duration::from_millis(10);

/// What a port keeps for its receive queue between splits.
#[derive(Debug)]
pub(crate) struct RxSide {
    port: u16,
    queue: u16,
    view: PacketView,
    marks: bool,
    /// Headers that frames come with and that are taken off here, the outermost first.
    outer: Vec<Outer>,
    /// Packets that the application has.
    with_app: usize,
    /// Buffers of the pool that runs dry first.
    buffers: usize,
    received: u64,
    segmented: u64,
    foreign: u64,
    stats: Stats,
}

#[derive(Debug, Default)]
struct Stats {
    read: Cell<Option<Instant>>,
    answer: Cell<NicStats>,
    missed: Growing,
    errors: Growing,
    no_buffer: Growing,
}

impl RxSide {
    pub(crate) fn new(
        port: u16,
        queue: u16,
        view: PacketView,
        marks: bool,
        outer: Vec<Outer>,
    ) -> Self {
        let buffers = view.pools().map(crate::PacketPool::buffers).min().unwrap_or(0);
        Self {
            port,
            queue,
            view,
            marks,
            outer,
            with_app: 0,
            buffers,
            received: 0,
            segmented: 0,
            foreign: 0,
            stats: Stats::default(),
        }
    }

    pub(crate) const fn view(&self) -> &PacketView {
        &self.view
    }

    /// What the port counted, asked now.
    pub(crate) fn read_stats(&self) -> NicStats {
        let Stats { answer, missed, errors, no_buffer, .. } = &self.stats;
        if let Ok(stats) = port::stats(self.port) {
            answer.set(NicStats {
                missed: missed.update(stats.in_missed),
                errors: errors.update(stats.in_errors) + self.segmented,
                no_buffer: no_buffer.update(stats.no_buffer),
            });
        }
        answer.get()
    }
}

/// A receive queue of a [`crate::Port`].
///
/// A packet is an mbuf; its token's handle is the address. What the driver filled is what
/// [`PacketMemory::bytes`] shows: nothing is copied. A frame that the NIC splits is a chain of two,
/// of which the first is the packet: its bytes are the headers, and both go back with it.
#[derive(Debug)]
pub struct DpdkRx<'p> {
    side: &'p mut RxSide,
}

impl<'p> DpdkRx<'p> {
    pub(crate) const fn new(side: &'p mut RxSide) -> Self {
        Self { side }
    }

    /// Frames handed over since the port was opened.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.side.received
    }

    /// Frames that a driver delivered in several buffers although one had room, or split elsewhere
    /// than it was to: dropped, and counted among the errors.
    #[must_use]
    pub const fn segmented(&self) -> u64 {
        self.side.segmented
    }

    /// Packets of another driver or pool that were given to `release`, which left them in place.
    /// 0 unless the program has a bug.
    #[must_use]
    pub const fn foreign(&self) -> u64 {
        self.side.foreign
    }

    /// The memory that packets lie in.
    #[must_use]
    pub const fn view(&self) -> &PacketView {
        &self.side.view
    }

    /// Receives and gives back what is there, at most as often as there are buffers: somebody may
    /// still be sending.
    pub(crate) fn drain(&mut self) {
        let buffers: usize = self.side.view.pools().map(crate::PacketPool::buffers).sum();
        let mut packets = [const { PacketDesc::EMPTY }; sys::BURST];
        for _ in 0..buffers {
            let got = self.burst(&mut packets);
            if got == 0 {
                return;
            }
            self.side.with_app += got;
            self.release(packets.get_mut(..got).unwrap_or_default());
        }
    }

    /// Takes headers off what was just received, as far as they are there: a frame without them
    /// stays as it is.
    #[inline(never)] // off the usual path
    fn unwrap(&self, packets: &mut [PacketDesc]) {
        for packet in packets {
            let mbuf = mbuf(packet);
            for outer in &self.side.outer {
                // SAFETY: a burst just gave us this mbuf, and nobody else has it.
                let (data, len) = unsafe { sys::mbuf_data(mbuf) };
                // SAFETY: the driver wrote `len` bytes there; the mbuf is ours alone, to write to
                // as well.
                let frame = unsafe { std::slice::from_raw_parts_mut(data, len) };
                let Some(cut) = outer.take_off(frame).filter(|cut| *cut < len) else { break };
                // A header is shorter than 64 bytes.
                // SAFETY: the mbuf is ours, of one segment, and longer than that.
                unsafe { sys::twd_cut(mbuf, u16::try_from(cut).unwrap_or(0)) };
                let whole = packet.take();
                let left = whole.len().saturating_sub(u32::try_from(cut).unwrap_or(0));
                // SAFETY: the one token of this mbuf was consumed in the lines before.
                *packet = unsafe { PacketDesc::claim(whole.handle(), left, whole.flow()) };
            }
        }
    }

    /// Receives at most one burst into `out`.
    #[inline]
    fn burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let mut packets = [sys::Packet::NONE; sys::BURST];
        let side = &mut *self.side;
        // At most 64.
        let room = u16::try_from(out.len().min(sys::BURST)).unwrap_or(0);
        let (split, segmented) = (side.view.headers().split(), &raw mut side.segmented);
        // SAFETY: the port runs, as `side` exists only while it does; this is the only handle of
        // the queue, so no other thread polls it; `packets` has room for a burst.
        let got = unsafe {
            sys::twd_rx_burst(side.port, side.queue, packets.as_mut_ptr(), room, split, segmented)
        };
        for (packet, place) in packets.iter().zip(&mut *out).take(got.into()) {
            let flow = if side.marks { packet.mark } else { 0 };
            let handle = packet.mbuf.expose_provenance() as u64;
            // SAFETY: the burst gave this mbuf to us alone; nobody writes to it until `release`
            // gives it back.
            *place = unsafe { PacketDesc::claim(handle, packet.len, flow) };
        }
        if !self.side.outer.is_empty() {
            self.unwrap(out.get_mut(..got.into()).unwrap_or_default());
        }
        got.into()
    }
}

impl PacketMemory for DpdkRx<'_> {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.side.view.bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        self.side.view.prefetch(packet);
    }

    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        self.side.view.arrived(packet)
    }
}

impl RxQueue for DpdkRx<'_> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        eal::seat();
        let mut n = 0;
        // Some drivers hand over fewer than they are asked for although more is there, so only an
        // empty burst says that the queue is empty.
        while let Some(rest) = out.get_mut(n..).filter(|rest| !rest.is_empty()) {
            let got = self.burst(rest);
            if got == 0 {
                break;
            }
            n += got;
        }
        self.side.with_app += n;
        self.side.received += n as u64;
        n
    }

    /// As the trait has it. A packet of another pool or driver stays in its place and is counted
    /// ([`DpdkRx::foreign`]).
    fn release(&mut self, packets: &mut [PacketDesc]) {
        eal::seat();
        for group in packets.chunks_mut(sys::BURST) {
            let mut mbufs = [ptr::null_mut(); sys::BURST];
            let mut n = 0;
            for packet in group.iter_mut().filter(|packet| !packet.is_none()) {
                if self.side.view.owns(packet) {
                    mbufs[n] = mbuf(&packet.take());
                    n += 1;
                } else {
                    self.side.foreign += 1;
                }
            }
            // At most 64.
            let count = u32::try_from(n).unwrap_or(0);
            // SAFETY: each is an mbuf of a pool of ours that a burst gave us, and its token, of
            // which there is one, was just consumed.
            unsafe { sys::twd_free_bulk(mbufs.as_mut_ptr(), count) };
            self.side.with_app = self.side.with_app.saturating_sub(n);
        }
    }

    #[inline]
    fn free_buffers(&self) -> usize {
        self.side.buffers.saturating_sub(self.side.with_app)
    }

    /// As the trait has it; at most 10 ms old.
    fn stats(&self) -> NicStats {
        let now = Instant::now();
        let read = &self.side.stats.read;
        if read.get().is_some_and(|then| now.duration_since(then) < STATS_AGE) {
            return self.side.stats.answer.get();
        }
        read.set(Some(now));
        self.side.read_stats()
    }
}

/// A counter that only grows, made of one that its owner may set back to zero (memif does when its
/// peer leaves).
#[derive(Debug, Default)]
struct Growing {
    last: Cell<u64>,
    before: Cell<u64>,
}

impl Growing {
    /// The sum, now that the counter stands at `value`.
    fn update(&self, value: u64) -> u64 {
        let last = self.last.replace(value);
        if value < last {
            self.before.set(self.before.get() + last);
        }
        self.before.get() + value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_set_back_goes_on() {
        let counter = Growing::default();
        assert_eq!([5, 9, 2, 2, 7].map(|value| counter.update(value)), [5, 9, 11, 11, 16]);
    }
}
