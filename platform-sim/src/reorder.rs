//! The reorder stage on the CPU: each payload into its slot, converted on the way.
//!
//! The one copy of a payload on its way from the NIC to the model is the one that converts it.
//! There are two times for it:
//!
//! - *At placement*: the payload is converted when its packet is placed, and the packet goes back
//!   to the NIC with its burst. The faster one on a CPU: the payload is still in the cache.
//! - *At close*: packets are kept until their batch closes, are all converted then, and come back
//!   through [`Reorder::poll_done`], which is what a GPU does. It exists so that this road, with
//!   its larger packet pool and its pending reorders, is travelled on every machine.
//!
//! Both give the same bytes. Slots without a packet are zeroed when the batch closes, and only
//! those.

use std::collections::VecDeque;
use std::fmt;
use std::mem;

use tensorwire_core::burst::{Burst, Filling, PacketDesc};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::limits::{MAX_BATCH_BUFFERS, MAX_WINDOWS};
use tensorwire_core::port::{Event, PacketMemory, Reorder, StageError};
use tensorwire_core::window::SlotMap;

use crate::pool::{BatchMemory, PacketView};

/// Codes of the errors of this stage.
pub mod code {
    /// A packet of the batch could not be placed: too short, of another pool, or no such slot.
    pub const PLACE: i32 = 1;
    /// The batch is of another pool.
    pub const WRONG_POOL: i32 = 2;
    /// The slots named as placed are not those that packets were placed in.
    pub const MISMATCH: i32 = 3;
}

/// Why the stage does not fit the memory it is to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FitError {
    /// A converted payload is not as long as a slot.
    Slot {
        /// Bytes that the kernel makes of a payload.
        converted: usize,
        /// Bytes of a slot of the geometry.
        slot: usize,
    },
    /// A batch is not as long as a buffer.
    Batch {
        /// Bytes of a batch of the geometry.
        batch: usize,
        /// Bytes of a buffer of the memory.
        buffer: usize,
    },
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot { converted, slot } => {
                write!(f, "a converted payload has {converted} bytes, a slot {slot}")
            }
            Self::Batch { batch, buffer } => {
                write!(f, "a batch has {batch} bytes, its buffer {buffer}")
            }
        }
    }
}

impl std::error::Error for FitError {}

/// What the stage did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderStats {
    /// Payloads copied, each once, while being converted.
    pub payload_copies: u64,
    /// Bytes of those payloads, before the conversion.
    pub payload_bytes: u64,
    /// Slots zeroed because no packet came for them.
    pub zeroed_slots: u64,
    /// Batches handed on.
    pub batches: u64,
    /// Batches given up.
    pub abandoned: u64,
}

/// The packets of a batch that is open.
#[derive(Debug)]
struct Open {
    batch: Option<u16>,
    /// By slot; [`PacketDesc::EMPTY`] where none came.
    slots: Vec<PacketDesc>,
    kept: usize,
}

/// Packets that are kept until their batch closes.
#[derive(Debug)]
struct Retained {
    packets: PacketView,
    open: [Open; MAX_WINDOWS],
    /// Packets that nothing reads any more, oldest first. There is room for all of the pool.
    done: VecDeque<PacketDesc>,
    /// Batches whose packets are in `done`: how many of them, and how many polls have to pass.
    running: VecDeque<(usize, u32)>,
    /// Polls for which the packets of a closed batch stay away.
    lag: u32,
}

impl Retained {
    /// The entry of a batch, a fresh one if it has none yet; `None` if too many are open.
    fn open(&mut self, batch: u16) -> Option<&mut Open> {
        let at = self.open.iter().position(|open| open.batch == Some(batch));
        let at = at.or_else(|| self.open.iter().position(|open| open.batch.is_none()))?;
        self.open[at].batch = Some(batch);
        Some(&mut self.open[at])
    }

    /// Keeps a packet for its slot. Returns a packet that cannot be kept: this one, or the one that
    /// was there.
    fn keep(&mut self, batch: u16, slot: u32, packet: PacketDesc) -> Option<PacketDesc> {
        let Some(open) = self.open(batch) else { return Some(packet) };
        let Some(place) = open.slots.get_mut(slot as usize) else { return Some(packet) };
        let before = mem::replace(place, packet);
        if before.is_none() {
            open.kept += 1;
            return None;
        }
        Some(before)
    }

    /// The batch is closed, one way or the other: its packets come back after `lag` polls.
    fn close(&mut self, batch: u16, lag: u32) {
        let Some(open) = self.open.iter_mut().find(|open| open.batch == Some(batch)) else {
            return;
        };
        let before = self.done.len();
        self.done.extend(open.slots.iter_mut().map(PacketDesc::take).filter(|p| !p.is_none()));
        (open.batch, open.kept) = (None, 0);
        let count = self.done.len() - before;
        let full = self.running.len() == MAX_BATCH_BUFFERS;
        match self.running.back_mut() {
            _ if count == 0 => {}
            // So many batches that were not polled for: two of them come back together.
            Some(last) if full => {
                *last = (last.0 + count, last.1.max(lag));
            }
            _ => self.running.push_back((count, lag)),
        }
    }

    fn poll_done(&mut self, out: &mut [PacketDesc]) -> usize {
        let mut count = 0;
        while let Some((left, polls)) = self.running.front_mut() {
            if *polls > 0 {
                *polls -= 1;
                break;
            }
            let n = (*left).min(out.len() - count);
            for (place, packet) in out[count..].iter_mut().zip(self.done.drain(..n)) {
                *place = packet;
            }
            count += n;
            *left -= n;
            if *left > 0 {
                break;
            }
            self.running.pop_front();
        }
        count
    }
}

/// What is known of an open batch.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Packets placed.
    placed: u32,
    /// A packet could not be placed.
    spoilt: bool,
}

/// The reorder stage on the CPU.
#[derive(Debug)]
pub struct CpuReorder<'m> {
    memory: &'m BatchMemory,
    payload_offset: usize,
    payload_bytes: usize,
    stride: usize,
    slots: u32,
    /// `None`: convert at placement.
    retained: Option<Retained>,
    /// By the index of the batch.
    progress: [Progress; MAX_BATCH_BUFFERS],
    stats: ReorderStats,
}

impl<'m> CpuReorder<'m> {
    /// A stage that converts each payload when it is placed.
    ///
    /// # Errors
    ///
    /// [`FitError`] when the kernel or the buffers of `memory` are not those of the geometry.
    pub fn at_placement(geometry: &Geometry, memory: &'m BatchMemory) -> Result<Self, FitError> {
        let converted =
            geometry.payload_bytes().saturating_mul(memory.kernel().conversion().output_width());
        if converted != geometry.slot_stride() {
            return Err(FitError::Slot { converted, slot: geometry.slot_stride() });
        }
        if geometry.batch_bytes() != memory.batch_bytes() {
            let (batch, buffer) = (geometry.batch_bytes(), memory.batch_bytes());
            return Err(FitError::Batch { batch, buffer });
        }
        Ok(Self {
            memory,
            payload_offset: geometry.payload_offset(),
            payload_bytes: geometry.payload_bytes(),
            stride: geometry.slot_stride(),
            slots: geometry.packets_per_batch(),
            retained: None,
            progress: [Progress::default(); MAX_BATCH_BUFFERS],
            stats: ReorderStats::default(),
        })
    }

    /// A stage that keeps the packets of `packets` and converts them when their batch closes. For
    /// `lag` polls after that they do not come back, as if a device were still busy with them.
    ///
    /// # Errors
    ///
    /// As [`CpuReorder::at_placement`].
    pub fn at_close(
        geometry: &Geometry,
        memory: &'m BatchMemory,
        packets: PacketView,
        lag: u32,
    ) -> Result<Self, FitError> {
        let mut stage = Self::at_placement(geometry, memory)?;
        let slots = geometry.packets_per_batch() as usize;
        let open = || {
            let slots = (0..slots).map(|_| PacketDesc::EMPTY).collect();
            Open { batch: None, slots, kept: 0 }
        };
        let done = VecDeque::with_capacity(packets.buffers());
        let running = VecDeque::with_capacity(MAX_BATCH_BUFFERS);
        let open = std::array::from_fn(|_| open());
        stage.retained = Some(Retained { packets, open, done, running, lag });
        Ok(stage)
    }

    /// What the stage did since it was made.
    #[must_use]
    pub const fn stats(&self) -> ReorderStats {
        self.stats
    }

    /// Packets of batches that are closed and that have not come back.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.retained.as_ref().map_or(0, |retained| retained.done.len())
    }

    /// The payload of a frame; `None` if the frame is too short for it.
    #[inline]
    fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.payload_offset..)?.get(..self.payload_bytes)
    }

    /// Remembers that a packet of the batch was placed, or could not be.
    #[inline]
    fn note(&mut self, batch: &Burst<Filling>, placed: bool) {
        if let Some(progress) = self.progress.get_mut(usize::from(batch.index())) {
            progress.placed += u32::from(placed);
            progress.spoilt |= !placed;
        }
    }

    /// What is known of the batch; forgets it.
    fn take_progress(&mut self, batch: &Burst<Filling>) -> Progress {
        self.progress.get_mut(usize::from(batch.index())).map(mem::take).unwrap_or_default()
    }

    fn count(&mut self, payloads: usize) {
        self.stats.payload_copies += payloads as u64;
        self.stats.payload_bytes += (payloads * self.payload_bytes) as u64;
    }

    /// Converts the packets that were kept for a batch.
    fn convert_kept(&mut self, batch: &mut Burst<Filling>, placed: SlotMap<'_>) -> Result<(), i32> {
        let Some(retained) = &self.retained else { return Ok(()) };
        let index = batch.index();
        let kept = retained.open.iter().find(|open| open.batch == Some(index));
        let Some(open) = kept else { return Ok(()) };
        let out = self.memory.slot_mut(batch, 0, self.memory.batch_bytes());
        let out = out.ok_or(code::WRONG_POOL)?;
        let packets = (0..).zip(&open.slots).filter(|(_, packet)| !packet.is_none());
        let mut fault = None;
        let payloads = packets.map_while(|(slot, packet)| {
            let payload = self.payload(retained.packets.bytes(packet));
            fault = match payload {
                _ if !placed.contains(slot) => Some(code::MISMATCH),
                None => Some(code::PLACE),
                Some(_) => None,
            };
            fault.is_none().then_some((slot, payload?))
        });
        let done = self.memory.kernel().reorder(payloads, out, self.stride);
        if let Some(fault) = fault {
            return Err(fault);
        }
        done.map_err(|_| code::PLACE)?;
        self.count(open.kept);
        Ok(())
    }

    /// What `start` does, with a code for what went wrong.
    fn finish(&mut self, batch: &mut Burst<Filling>, placed: SlotMap<'_>) -> Result<(), i32> {
        let progress = self.take_progress(batch);
        if !self.memory.fence(batch) {
            return Err(code::WRONG_POOL);
        }
        if progress.spoilt {
            return Err(code::PLACE);
        }
        // A cross-check: a slot that counts as placed and is not would show an earlier batch.
        let missing: u32 = placed.missing().map(|(_, count)| count).sum();
        if placed.slots() != self.slots || progress.placed + missing != self.slots {
            return Err(code::MISMATCH);
        }
        self.convert_kept(batch, placed)?;
        for (first, count) in placed.missing() {
            let (first, len) = (first as usize * self.stride, count as usize * self.stride);
            let slots = self.memory.slot_mut(batch, first, len).ok_or(code::WRONG_POOL)?;
            #[cfg(feature = "planted")]
            if tensorwire_core::planted::is(tensorwire_core::planted::Bug::NoZeroFill) {
                continue;
            }
            slots.fill(0);
            self.stats.zeroed_slots += u64::from(count);
        }
        Ok(())
    }
}

impl Reorder for CpuReorder<'_> {
    /// A packet whose payload is not there (a frame too short, a packet of another pool) spoils
    /// its batch: `start` will refuse it.
    #[inline]
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        if let Some(retained) = &mut self.retained {
            let refused = retained.keep(batch.index(), slot, packet.take());
            self.note(batch, refused.is_none());
            *packet = refused.unwrap_or_default();
            return;
        }
        let offset = (slot as usize).saturating_mul(self.stride);
        let payload = self.payload(memory.bytes(packet));
        let done = payload.is_some_and(|payload| self.memory.convert(batch, offset, payload));
        self.note(batch, done);
        self.count(usize::from(done));
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        let result = self.finish(batch, placed);
        if let Some(retained) = &mut self.retained {
            retained.close(batch.index(), retained.lag);
        }
        match result {
            Ok(()) => {
                self.stats.batches += 1;
                Ok(Event::DONE)
            }
            Err(code) => Err(StageError { call: "CPU reorder", code, fatal: true }),
        }
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        // False only for a batch that is not ours, of which nothing was written.
        let _ = self.memory.fence(batch);
        let _ = self.take_progress(batch);
        if let Some(retained) = &mut self.retained {
            retained.close(batch.index(), 0);
        }
        self.stats.abandoned += 1;
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        match &mut self.retained {
            Some(retained) => retained.poll_done(done),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests;
