//! Engines at work: the core's inference stage over TensorRT.
//!
//! A submission reads the batch buffer in place and writes rows in device memory, which are copied
//! to pinned memory behind it on the same stream. There are two sets of rows, so the results of one
//! submission are taken while the next one runs. With two contexts each set of rows has a context
//! and a stream of its own; results still leave in the order of submission, because each set has
//! its event and the sets take turns.
//!
//! In the loop nothing is allocated and nothing waits but [`Infer::take_previous`] and
//! [`Infer::drain`], which wait for one event, and a failed submission, which waits until nothing
//! reads its input any more.
#![allow(unsafe_code)] // promises about device memory; each block says who keeps them

use std::fmt;

use tensorwire_core::burst::{Burst, InFlight, PoolId};
use tensorwire_core::port::{Event, Infer, Outputs, StageError, Ticket};

use crate::gpu::{BatchMemory, Gpu};
use crate::planted::planted;
use crate::runtime::Context;

mod lane;
mod start;

pub use lane::OneThread;
use lane::{Lane, Names, Slot};
pub use start::{InferOptions, StartError};

/// Something that a user should know, and will be told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Graphs could not be recorded; every submission is launched call by call.
    NoGraphs(StageError),
    /// A submission of another size than the graphs were recorded for is launched call by call.
    OtherSize {
        /// Its images.
        images: u32,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGraphs(error) => {
                write!(
                    f,
                    "no CUDA graph could be recorded, inferences are launched singly: {error}"
                )
            }
            Self::OtherSize { images } => write!(
                f,
                "an inference of {images} images has no CUDA graph and is launched singly, as \
                 will be others like it"
            ),
        }
    }
}

/// Takes notes.
pub type Say = Box<dyn FnMut(Note) + Send>;

/// The call of a [`StageError`] that the caller's mistake made.
mod mistake {
    use tensorwire_core::port::StageError;

    pub(super) const FULL: StageError =
        StageError { call: "submission of a third inference", code: 1, fatal: false };
    pub(super) const BUFFER: StageError =
        StageError { call: "choice of the batch buffer", code: 2, fatal: true };
    pub(super) const IMAGES: StageError =
        StageError { call: "choice of the images", code: 3, fatal: true };
}

/// Sizes that do not change.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Images of a batch buffer.
    batch: u32,
    /// Images of a whole inference.
    full: u32,
    /// Fewest images that the engine takes.
    least: u32,
    image_bytes: u64,
    /// Channels, rows, columns.
    image: [i64; 3],
    feature_dim: usize,
    classes: usize,
}

/// The inference stage over TensorRT.
///
/// It belongs to one thread at a time, as its contexts do ([`OneThread`]).
pub struct TrtInfer<C: Context, G: Gpu, B: BatchMemory> {
    // Dropped in this order, after `drop` has waited for the streams.
    graphs: Box<[G::Graph]>,
    lanes: Box<[Lane<C, G>]>,
    slots: [Slot<G>; 2],
    memory: B,
    gpu: G,
    names: Names,
    sizes: Sizes,
    pool: PoolId,
    /// The slot of the oldest result.
    oldest: usize,
    pending: usize,
    say: Say,
    other_size_said: bool,
    failed_lane: usize,
}

impl<C: Context, G: Gpu, B: BatchMemory> fmt::Debug for TrtInfer<C, G, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrtInfer")
            .field("sizes", &self.sizes)
            .field("contexts", &self.lanes.len())
            .field("graphs", &self.graphs.len())
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

/// Where one submission reads and writes.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Address of its first image.
    address: u64,
    /// Images that the engine runs: those submitted, padded to the least.
    run: u32,
    slot: usize,
    lane: usize,
    /// Number of its graph, if it has the size of one.
    graph: Option<usize>,
}

impl<C: Context, G: Gpu, B: BatchMemory> TrtInfer<C, G, B> {
    /// Graphs that were recorded at start.
    #[must_use]
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// What TensorRT said about the last submission that it refused.
    pub fn last_error(&self) -> &str {
        self.lanes.get(self.failed_lane).map_or("", |lane| lane.context.get().last_error())
    }

    /// The GPU, for tests and statistics.
    pub const fn gpu(&self) -> &G {
        &self.gpu
    }

    fn place(&self, input: &Burst<InFlight>, first: u32, images: u32) -> Result<Place, StageError> {
        if self.pending == self.slots.len() {
            return Err(mistake::FULL);
        }
        let Sizes { batch, full, least, image_bytes, .. } = self.sizes;
        let ours = input.pool() == self.pool || planted!(OtherPool);
        let base = self.memory.address(input.index()).filter(|_| ours);
        let base = base.ok_or(mistake::BUFFER)?;
        // What is added to reach the engine's least size are images of the same buffer; their rows
        // are not looked at. They must be there to be read.
        let run = if planted!(Unpadded) { images } else { images.max(least) };
        let inside = first.checked_add(run).is_some_and(|end| end <= batch);
        if images == 0 || images > full || !inside {
            return Err(mistake::IMAGES);
        }
        let slot =
            if planted!(SameRows) { 0 } else { (self.oldest + self.pending) % self.slots.len() };
        let whole = images == full && first.is_multiple_of(full);
        let part = (first / full) as usize;
        let graph = whole.then(|| self.graph_number(slot, input.index(), part));
        let offset = if planted!(FirstForgotten) { 0 } else { u64::from(first) * image_bytes };
        let address = base + offset;
        let graph = graph.filter(|&graph| graph < self.graphs.len());
        Ok(Place { address, run, slot, lane: slot % self.lanes.len(), graph })
    }

    /// The graph of a set of rows, a batch buffer, and a part of it.
    fn graph_number(&self, slot: usize, buffer: u16, part: usize) -> usize {
        let parts = (self.sizes.batch / self.sizes.full) as usize;
        let buffer = if planted!(GraphOfFirst) { 0 } else { usize::from(buffer) };
        (slot * usize::from(self.memory.buffers()) + buffer) * parts + part
    }

    /// Enqueues everything that one submission is made of.
    fn enqueue(&mut self, place: &Place, ready: Event) -> Result<(), StageError> {
        let lane = &mut self.lanes[place.lane];
        let slot = &mut self.slots[place.slot];
        if ready != Event::DONE && !planted!(ReorderUnawaited) {
            self.gpu.wait_for(&lane.stream, ready)?;
        }
        if let Some(graph) = place.graph.and_then(|graph| self.graphs.get(graph)) {
            // SAFETY: the graph was recorded for this buffer and this slot. The buffer's token is
            // in flight until this submission is reported; the slot is free, so nobody looks at its
            // rows.
            unsafe { self.gpu.launch(&lane.stream, graph)? };
        } else {
            // SAFETY: as above, and `place` has checked that the images lie in the buffer; the rows
            // hold as many as the largest inference has.
            unsafe { lane.launch(&mut self.gpu, slot, &self.names, &self.sizes, place)? };
        }
        self.gpu.record(&lane.stream, &slot.event)
    }

    /// Says once that a size has no graph.
    fn tell_size(&mut self, place: &Place, images: u32) {
        let other = !self.graphs.is_empty() && place.graph.is_none();
        if other && (!self.other_size_said || planted!(SaidAgain)) {
            self.other_size_said = true;
            (self.say)(Note::OtherSize { images });
        }
    }

    /// Waits until nothing of a stream is under way. If that fails the GPU is lost, and with it
    /// whatever ran on it.
    fn quiet(&mut self, lane: usize, error: StageError) -> StageError {
        if planted!(FreedEarly) {
            return error;
        }
        match self.gpu.synchronize(&self.lanes[lane].stream) {
            _ if planted!(LostUnseen) => error,
            Ok(()) => error,
            Err(lost) => StageError { fatal: true, ..lost },
        }
    }

    /// Passes the oldest result on, whose event has come or failed.
    fn report<R>(
        &mut self,
        came: Result<(), StageError>,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Result<R, StageError> {
        let oldest = self.oldest;
        self.oldest = (oldest + 1) % self.slots.len();
        self.pending -= 1;
        if let Err(error) = came {
            // Nothing may read its input once it is reported.
            return Err(self.quiet(oldest % self.lanes.len(), error));
        }
        let slot = &self.slots[oldest];
        let Sizes { feature_dim, classes, .. } = self.sizes;
        // SAFETY: the slot's event has come, and the copy is before it. The next one into these
        // rows comes with a later submission, which needs `&mut self`.
        let features = unsafe { self.gpu.host(&slot.features) };
        let logits: &[f32] = match &slot.logits {
            // SAFETY: as above.
            Some(rows) => unsafe { self.gpu.host(rows) },
            None => &[],
        };
        let outputs = Outputs {
            features: &features[..slot.images * feature_dim],
            feature_dim,
            logits: &logits[..slot.images * classes],
            classes,
        };
        Ok(take(slot.ticket, outputs))
    }

    fn take_oldest<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending == 0 {
            return None;
        }
        let event = &self.slots[self.oldest].event;
        let came = if planted!(ResultEarly) { Ok(()) } else { self.gpu.wait(event) };
        Some(self.report(came, take))
    }
}

impl<C: Context, G: Gpu, B: BatchMemory> Infer for TrtInfer<C, G, B> {
    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        let place = self.place(input, first, images)?;
        let _entered = (!planted!(NotEntered)).then(|| self.gpu.enter()).transpose()?;
        self.tell_size(&place, images);
        if let Err(error) = self.enqueue(&place, ready) {
            self.failed_lane = place.lane;
            // Part of it may be enqueued and read the buffer. The submission before this one stays
            // pending; its result is complete now, or lost with the GPU.
            return Err(self.quiet(place.lane, error));
        }
        let slot = &mut self.slots[place.slot];
        slot.ticket = ticket;
        slot.images = images as usize;
        self.pending += 1;
        Ok(())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending < 2 { None } else { self.take_oldest(take) }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending == 0 {
            return None;
        }
        match self.gpu.done(&self.slots[self.oldest].event) {
            Ok(false) if !planted!(IdleEarly) => None,
            Ok(_) => Some(self.report(Ok(()), take)),
            Err(error) => Some(self.report(Err(error), take)),
        }
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.take_oldest(take)
    }
}

impl<C: Context, G: Gpu, B: BatchMemory> Drop for TrtInfer<C, G, B> {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        for lane in &self.lanes {
            // What runs still uses what is dropped next. If this fails the GPU is lost, and nothing
            // runs on it.
            let _ = if planted!(GoneEarly) { Ok(()) } else { self.gpu.synchronize(&lane.stream) };
        }
        // Here, as long as the GPU is entered: TensorRT frees what it has on the current one.
        self.graphs = Box::default();
        self.lanes = Box::default();
    }
}

#[cfg(test)]
pub(crate) mod tests;
