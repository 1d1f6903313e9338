//! The reorder stage on a GPU.
//!
//! A packet is not touched when it is placed: its address is noted in the list of its batch, and
//! its token is kept. When the batch closes, one kernel takes the list, converts every payload into
//! its slot, and zeroes the slots whose address is 0, which are those that did not come. The
//! packets go back when the event behind the kernel has come.

use std::collections::VecDeque;
use std::fmt;

use tensorwire_core::burst::{Burst, Filling, PacketDesc, PoolId};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::port::{Event, PacketMemory, Reorder, StageError};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;

use crate::error::CudaError;
use crate::memory::Region;
use crate::queue::Queue;

/// Codes of the errors of this stage that are not CUDA's.
pub mod code {
    /// A packet of the batch could not be placed: too short, of another region, its slot taken.
    pub const PLACE: i32 = 1;
    /// The batch is of another pool, or its buffer is still being written to.
    pub const WRONG_POOL: i32 = 2;
    /// The slots named as placed are not those that packets were placed in.
    pub const MISMATCH: i32 = 3;
}

/// Where the GPU finds a packet.
pub trait Locate {
    /// The address of its frame as the GPU sees it, and how many bytes of it are there. `None` for
    /// a packet that the GPU cannot read. `bytes` is what the CPU sees of it.
    fn frame(&self, packet: &PacketDesc, bytes: &[u8]) -> Option<(u64, usize)>;
}

/// Packets in a region that CPU and GPU both read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRegion {
    host: usize,
    bytes: usize,
    device: u64,
}

impl InRegion {
    /// Packets of that region; `None` if the CPU cannot read it.
    #[must_use]
    pub fn new(region: &Region) -> Option<Self> {
        let host = region.host()?.addr().get();
        Some(Self { host, bytes: region.bytes(), device: region.device_address() })
    }

    /// Packets between two addresses of the host, under the same addresses.
    #[cfg(test)]
    const fn between(host: usize, bytes: usize) -> Self {
        Self { host, bytes, device: host as u64 }
    }
}

impl Locate for InRegion {
    #[inline]
    fn frame(&self, _: &PacketDesc, bytes: &[u8]) -> Option<(u64, usize)> {
        let offset = bytes.as_ptr().addr().checked_sub(self.host)?;
        let inside = offset <= self.bytes && bytes.len() <= self.bytes - offset;
        inside.then(|| (self.device + offset as u64, bytes.len()))
    }
}

/// What the stage did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderStats {
    /// Packets whose payloads were given to the GPU.
    pub payloads: u64,
    /// Slots zeroed because no packet came for them.
    pub zeroed_slots: u64,
    /// Batches handed on.
    pub batches: u64,
    /// Batches given up.
    pub abandoned: u64,
}

/// A batch buffer, as the stage knows it.
#[derive(Debug, Default)]
struct Buffer {
    /// Tokens of the packets in its list.
    packets: Vec<PacketDesc>,
    /// Packets are being placed.
    open: bool,
    /// A kernel may still write to it and read its list and packets.
    running: bool,
    /// A packet could not be placed.
    spoilt: bool,
}

/// The reorder stage on a GPU, over its stream or a stand-in.
pub struct GpuReorder<Q: Queue, L> {
    queue: Q,
    locate: L,
    pool: PoolId,
    frame_bytes: usize,
    slots: u32,
    buffers: Vec<Buffer>,
    /// Buffers with a kernel on its way, oldest first.
    running: VecDeque<u16>,
    /// Packets that nothing reads any more. There is room for all of them.
    done: VecDeque<PacketDesc>,
    /// How long each batch took the GPU, as far as nobody asked yet. Room for one from each
    /// buffer; what comes on top is left out.
    times: VecDeque<Nanos>,
    /// The device failed: nothing more is asked of it.
    failed: Option<CudaError>,
    stats: ReorderStats,
}

impl<Q: Queue, L> fmt::Debug for GpuReorder<Q, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self.running.len();
        f.debug_struct("GpuReorder")
            .field("running", &running)
            .field("failed", &self.failed)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<Q: Queue, L: Locate> GpuReorder<Q, L> {
    /// A stage for the batch buffers of `pool`, of which there are `buffers`, and for packets of
    /// which there are at most `packets`.
    pub fn new(
        geometry: &Geometry,
        (pool, buffers): (PoolId, u16),
        packets: usize,
        queue: Q,
        locate: L,
    ) -> Self {
        let slots = geometry.packets_per_batch();
        let buffer = || Buffer { packets: Vec::with_capacity(slots as usize), ..Buffer::default() };
        Self {
            queue,
            locate,
            pool,
            frame_bytes: geometry.frame_bytes(),
            slots,
            buffers: (0..buffers).map(|_| buffer()).collect(),
            running: VecDeque::with_capacity(usize::from(buffers)),
            done: VecDeque::with_capacity(packets.max(slots as usize)),
            times: VecDeque::with_capacity(usize::from(buffers)),
            failed: None,
            stats: ReorderStats::default(),
        }
    }

    /// What the stage did since it was made.
    #[must_use]
    pub const fn stats(&self) -> ReorderStats {
        self.stats
    }

    /// How long the GPU took for the next batch that is done, in order; `None` until another is.
    /// See [`Queue::took`].
    pub fn next_time(&mut self) -> Option<Nanos> {
        self.times.pop_front()
    }

    /// The error of CUDA that ended it, in its words.
    #[must_use]
    pub const fn failed(&self) -> Option<CudaError> {
        self.failed
    }

    /// Packets that have not come back.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.done.len() + self.buffers.iter().map(|buffer| buffer.packets.len()).sum::<usize>()
    }

    /// Opens the buffer of a batch; false if it cannot be written to.
    fn open(&mut self, index: u16) -> bool {
        // Its last reader waited for the event, so this finds it done; it is only that nobody has
        // polled for it since.
        while self.buffers[usize::from(index)].running && self.retire() {}
        let buffer = &mut self.buffers[usize::from(index)];
        if buffer.running {
            return false;
        }
        let Some(list) = self.queue.list(usize::from(index)) else { return false };
        list.fill(0);
        buffer.open = true;
        true
    }

    /// Notes a packet; false, and it is not taken, if that cannot be.
    #[inline]
    fn note(
        &mut self,
        index: u16,
        slot: u32,
        packet: &mut PacketDesc,
        frame: Option<(u64, usize)>,
    ) -> bool {
        let Some((address, len)) = frame else { return false };
        let at = usize::from(index);
        if address == 0 || len < self.frame_bytes || at >= self.buffers.len() {
            return false;
        }
        if !self.buffers[at].open && !self.open(index) {
            return false;
        }
        let place = self.queue.list(at).and_then(|list| list.get_mut(slot as usize));
        match place {
            Some(place) if *place == 0 => *place = address,
            _ => return false,
        }
        self.buffers[at].packets.push(packet.take());
        true
    }

    /// The buffer of a batch that is being built; `None` for another pool's.
    fn of(&mut self, batch: &Burst<Filling>) -> Option<&mut Buffer> {
        if batch.pool() != self.pool {
            return None;
        }
        self.buffers.get_mut(usize::from(batch.index()))
    }

    /// What `start` does.
    fn submit(&mut self, batch: &Burst<Filling>, placed: SlotMap<'_>) -> Result<(), StageError> {
        let fault = |code| StageError { call: "GPU reorder", code, fatal: true };
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let (index, slots) = (batch.index(), self.slots);
        let buffer = self.of(batch).ok_or(fault(code::WRONG_POOL))?;
        if buffer.spoilt {
            return Err(fault(code::PLACE));
        }
        // A cross-check: a slot that counts as placed and is not would be zero and seem black.
        let missing: u32 = placed.missing().map(|(_, count)| count).sum();
        let here = buffer.packets.len();
        if placed.slots() != slots || here as u64 + u64::from(missing) != u64::from(slots) {
            return Err(fault(code::MISMATCH));
        }
        // A batch without a packet was never opened.
        if !buffer.open && !self.open(index) {
            return Err(fault(code::WRONG_POOL));
        }
        let list = self.queue.list(usize::from(index)).ok_or(fault(code::WRONG_POOL))?;
        for (first, count) in placed.missing() {
            let (first, count) = (first as usize, count as usize);
            if list[first..first + count].iter().any(|address| *address != 0) {
                return Err(fault(code::MISMATCH));
            }
        }
        if let Err(error) = self.queue.submit(usize::from(index)) {
            self.failed = Some(error);
            // Part of it may be on its way. A second error says the same.
            let _ = self.queue.finish();
            return Err(error.into());
        }
        let buffer = &mut self.buffers[usize::from(index)];
        (buffer.open, buffer.running) = (false, true);
        self.running.push_back(index);
        self.stats.payloads += here as u64;
        self.stats.zeroed_slots += u64::from(missing);
        self.stats.batches += 1;
        Ok(())
    }

    /// The packets of a buffer come back with the next polls.
    fn give_back(&mut self, index: u16) {
        let Some(buffer) = self.buffers.get_mut(usize::from(index)) else { return };
        self.done.extend(buffer.packets.drain(..));
        *buffer = Buffer { packets: std::mem::take(&mut buffer.packets), ..Buffer::default() };
    }

    /// The batch that is being built in a buffer is given up.
    fn drop_batch(&mut self, batch: &Burst<Filling>) {
        let index = batch.index();
        // One that is still written to holds the packets of the batch before.
        match self.of(batch) {
            Some(buffer) if buffer.running => buffer.spoilt = false,
            Some(_) => self.give_back(index),
            None => {}
        }
    }

    /// Looks whether the oldest reorder is done; whether one was.
    fn retire(&mut self) -> bool {
        let Some(&index) = self.running.front() else { return false };
        let done = match self.failed {
            Some(_) => true,
            None => self.queue.done(usize::from(index)).unwrap_or_else(|error| {
                self.failed = Some(error);
                true
            }),
        };
        if done {
            self.running.pop_front();
            self.give_back(index);
            if self.failed.is_none() && self.times.len() < self.buffers.len() {
                self.times.extend(self.queue.took(usize::from(index)));
            }
        }
        done
    }
}

impl<Q: Queue, L: Locate> Reorder for GpuReorder<Q, L> {
    /// A packet that the GPU cannot read, or whose slot is taken, stays where it is and spoils its
    /// batch: `start` will refuse it.
    #[inline]
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        let frame = self.locate.frame(packet, memory.bytes(packet));
        let ours = batch.pool() == self.pool;
        if !(ours && self.note(batch.index(), slot, packet, frame))
            && let Some(buffer) = self.of(batch)
        {
            buffer.spoilt = true;
        }
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        match self.submit(batch, placed) {
            Ok(()) => Ok(Event(u64::from(batch.index()) + 1)),
            Err(error) => {
                self.drop_batch(batch);
                Err(error)
            }
        }
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        // Nothing was enqueued for it: that is done by `start`.
        self.drop_batch(batch);
        self.stats.abandoned += 1;
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        while self.done.len() < done.len() && self.retire() {}
        let count = self.done.len().min(done.len());
        for (place, packet) in done.iter_mut().zip(self.done.drain(..count)) {
            *place = packet;
        }
        count
    }
}

impl<Q: Queue, L> Drop for GpuReorder<Q, L> {
    /// The packets' memory may go after this, so nothing may read it any more.
    fn drop(&mut self) {
        // A failure was told by the batch that met it, and a device that failed reads nothing.
        let _ = self.queue.finish();
    }
}

#[cfg(test)]
mod tests;
