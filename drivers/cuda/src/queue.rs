//! What the reorder stage asks of a stream, and the stream that does it.
//!
//! The stage itself ([`crate::reorder`]) is tested over a stand-in that does the same on the CPU.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;
use tensorwire_core::geometry::{ElementType, Geometry};
use tensorwire_core::memory::MemoryKind;
use tensorwire_core::time::Nanos;

use crate::abi::{Packets, ReorderParams};
use crate::device::Gpu;
use crate::error::{CudaError, check};
use crate::kernels::{Function, Kernels, Shape, reorder_name};
use crate::memory::{Region, RegionError};
use crate::staging::Staging;
use crate::stream::{Event, Events, Stream};

/// One stream of reorders, in order, with one list and one event per batch buffer.
pub trait Queue {
    /// The list of a buffer: for each slot the address of its packet, 0 where none came. Written
    /// between the end of one reorder into the buffer and the start of the next. `None` for a
    /// buffer that there is not.
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]>;

    /// Enqueues the reorder that the list of the buffer says.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when it cannot be enqueued.
    fn submit(&mut self, buffer: usize) -> Result<(), CudaError>;

    /// Whether the last reorder into the buffer is done.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when it failed.
    fn done(&mut self, buffer: usize) -> Result<bool, CudaError>;

    /// How long the GPU took for the last reorder into the buffer, which is done: from its first
    /// copy or read to its end. `None` where nobody measured that one.
    fn took(&mut self, buffer: usize) -> Option<Nanos>;

    /// Waits until all reorders are done.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when one failed.
    fn finish(&mut self) -> Result<(), CudaError>;
}

/// Where packets are read, which decides how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory of the GPU, or memory that it shares with the CPU.
    Device,
    /// Pinned memory across a bus: copied to the GPU in bulk where the packets of a batch lie
    /// together, and read where they are otherwise.
    Pinned,
    /// The same, always read where they are.
    PinnedInPlace,
}

impl Source {
    /// Warps and reads as they were fastest (`kernels/BENCH.md`): packets of a block, warps of a
    /// packet, and the multiple at which reads begin.
    pub(crate) const fn tuning(self) -> (u32, u32, u32) {
        match self {
            Self::Device => (2, 1, 0),
            Self::Pinned | Self::PinnedInPlace => (4, 2, 128),
        }
    }
}

/// What a batch consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Type of an element on the wire.
    pub input: ElementType,
    /// Type of an element in the batch.
    pub output: ElementType,
    /// Elements of 16 and 32 bits are big-endian on the wire.
    pub network_order: bool,
    /// Packets.
    pub slots: u32,
    /// Bytes of a frame before its payload.
    pub payload_offset: u32,
    /// Bytes of a payload.
    pub payload_bytes: u32,
}

impl Layout {
    /// That of a geometry.
    #[must_use]
    pub fn of(geometry: &Geometry, network_order: bool) -> Self {
        let spec = geometry.spec();
        Self {
            input: spec.input,
            output: spec.output,
            network_order,
            slots: geometry.packets_per_batch(),
            payload_offset: narrow(geometry.payload_offset()),
            payload_bytes: narrow(geometry.payload_bytes()),
        }
    }

    /// Bytes of a frame.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        self.payload_offset as usize + self.payload_bytes as usize
    }

    /// Bytes of a slot of the batch.
    #[must_use]
    pub const fn slot_bytes(&self) -> usize {
        let elements = self.payload_bytes as usize * 8 / self.input.bits() as usize;
        elements * self.output.bits() as usize / 8
    }

    /// Bytes of the batch.
    #[must_use]
    pub const fn batch_bytes(&self) -> usize {
        self.slot_bytes() * self.slots as usize
    }
}

/// How many batches went which way. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ways(Arc<[AtomicU64; 2]>);

impl Ways {
    // Relaxed: counters; nothing is published with them.
    fn count(&self, bulk: bool) {
        self.0[usize::from(bulk)].fetch_add(1, Ordering::Relaxed);
    }

    /// Batches whose packets were copied to the GPU ahead of the reorder.
    #[must_use]
    pub fn bulk(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    /// Batches whose packets were read where they were.
    #[must_use]
    pub fn in_place(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }
}

/// The batch buffers that a queue writes.
#[derive(Clone, Debug)]
pub struct Output {
    region: Region,
    /// Where each batch is copied to as well, for a consumer on the CPU.
    mirror: Option<Region>,
    buffers: usize,
    batch_bytes: usize,
    /// Bytes from buffer to buffer.
    stride: usize,
}

impl Output {
    /// `buffers` buffers for batches of `batch_bytes` bytes, in memory of a kind. With `on_host` a
    /// batch can be read by the CPU too: device memory then has a mirror.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when the memory cannot be had.
    pub fn new(
        gpu: &Gpu,
        batch_bytes: usize,
        buffers: usize,
        kind: MemoryKind,
        on_host: bool,
    ) -> Result<Self, RegionError> {
        // As the pools of the software NIC have it: each buffer on a line of its own.
        let stride = batch_bytes.next_multiple_of(64);
        let bytes = stride.saturating_mul(buffers);
        let region = Region::new(gpu, kind, bytes)?;
        let mirrored = on_host && !kind.on_host();
        let mirror = mirrored.then(|| Region::new(gpu, MemoryKind::HostPinned, bytes));
        Ok(Self { region, mirror: mirror.transpose()?, buffers, batch_bytes, stride })
    }

    /// How many buffers there are.
    #[must_use]
    pub const fn buffers(&self) -> usize {
        self.buffers
    }

    /// Bytes of a batch.
    #[must_use]
    pub const fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// What the CPU can read, if anything.
    #[must_use]
    pub fn on_host(&self) -> Option<&Region> {
        let readable = self.region.kind().on_host().then_some(&self.region);
        self.mirror.as_ref().or(readable)
    }

    /// The memory that the kernels write.
    #[must_use]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Address of a buffer on the GPU: what an inference there reads.
    #[must_use]
    pub fn device_address(&self, buffer: usize) -> Option<u64> {
        (buffer < self.buffers)
            .then(|| self.region.device_address() + (buffer * self.stride) as u64)
    }
}

/// How a kernel reads packets that lie in one way.
#[derive(Clone, Copy, Debug)]
struct Reading {
    shape: Shape,
    line_bytes: u32,
}

impl Reading {
    const fn of(source: Source, slots: u32) -> Self {
        let (together, pieces, line_bytes) = source.tuning();
        Self { shape: Shape::reorder(slots, together, pieces), line_bytes }
    }
}

/// Of so many batches one is timed: a mark that takes the time holds a stream up for microseconds.
const TIMED: u64 = 16;

/// When the work on a buffer began and ended; only the marks of those that are `timed` count.
#[derive(Debug)]
struct Marks {
    begun: Events,
    ended: Events,
    timed: Vec<bool>,
    batches: u64,
}

impl Marks {
    fn new(gpu: &Gpu, buffers: usize) -> Result<Self, CudaError> {
        let marks = || Events::new(gpu, buffers, true);
        Ok(Self { begun: marks()?, ended: marks()?, timed: vec![false; buffers], batches: 0 })
    }

    /// A reorder into the buffer follows; decides whether it is timed.
    fn next(&mut self, buffer: usize) {
        if let Some(timed) = self.timed.get_mut(buffer) {
            *timed = self.batches.is_multiple_of(TIMED);
        }
        self.batches += 1;
    }

    /// The marks of a reorder that is timed.
    fn of(&self, buffer: usize) -> Option<[&Event; 2]> {
        self.timed.get(buffer).filter(|timed| **timed)?;
        Some([self.begun.get(buffer)?, self.ended.get(buffer)?])
    }
}

/// The queue on a GPU. Its streams, kernel, lists and events are made once, at start.
#[derive(Debug)]
pub struct StreamQueue {
    // Dropped in this order: the streams wait for what uses the rest.
    stream: Stream,
    /// Where packets are copied in bulk.
    staging: Option<Staging>,
    function: Function,
    events: Events,
    marks: Marks,
    params: ReorderParams,
    /// Packets where they are, and packets that were copied.
    in_place: Reading,
    copied: Reading,
    batch_bytes: usize,
    output: Output,
    lists: Region,
    /// Where lists are copied to; `None`: read where they are.
    near_lists: Option<Region>,
    ways: Ways,
    /// The regions whose packets are read: kept until the stream is done.
    _packets: Vec<Region>,
}

impl StreamQueue {
    /// A queue for batches of that layout, whose packets lie in `packets`.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when something of it cannot be had: the run cannot start then.
    pub fn new(
        kernels: &Kernels,
        gpu: &Gpu,
        layout: &Layout,
        source: Source,
        output: Output,
        packets: Vec<Region>,
    ) -> Result<Self, RegionError> {
        let function = {
            let Layout { input, output, network_order, .. } = *layout;
            kernels.function(&reorder_name(input, output, network_order))?
        };
        let slots = layout.slots;
        let bytes = output.buffers * slots as usize * size_of::<u64>();
        let lists = Region::new(gpu, MemoryKind::HostPinned, bytes)?;
        let near = (source == Source::Device && !gpu.integrated()?)
            .then(|| Region::new(gpu, MemoryKind::Device, bytes));
        let staging = match packets.as_slice() {
            [pool] if source == Source::Pinned && !gpu.integrated()? => {
                Staging::new(gpu, pool, layout)?
            }
            _ => None,
        };
        let params = ReorderParams {
            packets: Packets { count: slots, ..Packets::default() },
            payload_offset: layout.payload_offset,
            payload_bytes: layout.payload_bytes,
            slots_per_batch: slots,
            slot_stride: narrow(layout.slot_bytes()),
            network_order: u32::from(layout.network_order),
            ..ReorderParams::default()
        };
        let mut queue = Self {
            stream: Stream::new(gpu)?,
            staging,
            function,
            events: Events::new(gpu, output.buffers, false)?,
            marks: Marks::new(gpu, output.buffers)?,
            params,
            in_place: Reading::of(source, slots),
            copied: Reading::of(Source::Device, slots),
            batch_bytes: layout.batch_bytes(),
            output,
            lists,
            near_lists: near.transpose()?,
            ways: Ways::default(),
            _packets: packets,
        };
        queue.rehearse()?;
        Ok(queue)
    }

    /// Does once all that a batch takes, with no packet in it: the driver loads a kernel when it is
    /// first launched, and the bindings look each function up, into memory that they allocate, when
    /// it is first called. Neither is to happen when packets come. The first buffer is all zeros
    /// then, as it was.
    fn rehearse(&mut self) -> Result<(), CudaError> {
        if let Some(staging) = &self.staging {
            let _entered = self.stream.gpu().enter()?;
            staging.rehearse(&self.stream)?;
        }
        self.submit(0)?;
        self.finish()?;
        (self.ways, self.marks.batches) = (Ways::default(), 0);
        let Some(event) = self.events.get(0) else { return Err(NO_BUFFER) };
        event.wait()?;
        event.done()?;
        // Nobody has asked for a time yet.
        self.took(0);
        if let Some(timed) = self.marks.timed.first_mut() {
            *timed = false;
        }
        Ok(())
    }

    /// The events of the buffers, for who waits for a batch.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// How many batches went which way so far.
    #[must_use]
    pub fn ways(&self) -> Ways {
        self.ways.clone()
    }

    /// Marks a time before what is submitted next, on the stream where that begins; for benches.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn mark_begin(&self, mark: &Event) -> Result<(), CudaError> {
        let _entered = self.stream.gpu().enter()?;
        mark.record(self.staging.as_ref().map_or(&self.stream, Staging::copies))
    }

    /// Marks a time behind what was submitted so far; for benches.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn mark_end(&self, mark: &Event) -> Result<(), CudaError> {
        let _entered = self.stream.gpu().enter()?;
        mark.record(&self.stream)
    }

    /// Bytes of a list.
    const fn list_bytes(&self) -> usize {
        self.params.packets.count as usize * size_of::<u64>()
    }

    /// The list of a buffer on the host, and the number of its entries.
    fn list_at(&self, buffer: usize) -> Option<(NonNull<u64>, usize)> {
        if buffer >= self.output.buffers {
            return None;
        }
        let base = self.lists.host()?.cast::<u64>();
        let slots = self.params.packets.count as usize;
        // SAFETY: the region has `buffers` lists of `slots` entries, and `buffer` is one of them.
        Some((unsafe { base.add(buffer * slots) }, slots))
    }

    /// Copies the list of a buffer to the GPU; returns where the kernel reads it.
    fn bring_list(&self, buffer: usize) -> Result<u64, CudaError> {
        let offset = (buffer * self.list_bytes()) as u64;
        let (Some(near), Some((host, _))) = (&self.near_lists, self.list_at(buffer)) else {
            return Ok(self.lists.device_address() + offset);
        };
        let (to, from, bytes) =
            (near.device_address() + offset, host.as_ptr().cast(), self.list_bytes());
        // SAFETY: both regions hold a list of that length for this buffer and live as long as the
        // stream; the list is not written to until the reorder is done.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, self.stream.raw()) };
        check("cuMemcpyHtoDAsync", result)?;
        Ok(to)
    }

    /// Copies a finished batch to where the CPU reads it.
    fn mirror(&self, buffer: usize, out: u64) -> Result<(), CudaError> {
        let Some(host) = self.output.mirror.as_ref().and_then(Region::host) else { return Ok(()) };
        // SAFETY: the mirror has the layout of the buffers, and this is one of them.
        let to = unsafe { host.add(buffer * self.output.stride) };
        let (to, bytes, stream) = (to.as_ptr().cast(), self.batch_bytes, self.stream.raw());
        // SAFETY: both buffers are that long and live as long as the stream; nobody reads the
        // mirror before the event.
        check("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(to, out, bytes, stream) })
    }
}

/// A buffer that there is not.
const NO_BUFFER: CudaError = CudaError { call: "batch buffer", code: 1 };

/// Numbers of a geometry are far below 2^32: its checked constructor says so.
fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl Queue for StreamQueue {
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]> {
        let (first, slots) = self.list_at(buffer)?;
        // SAFETY: the entries were zeroed when the region was made. `&mut self` is the only way to
        // them on the CPU, and the stage asks for a list only when no reorder reads it.
        Some(unsafe { slice::from_raw_parts_mut(first.as_ptr(), slots) })
    }

    fn submit(&mut self, buffer: usize) -> Result<(), CudaError> {
        let out = self.output.device_address(buffer).ok_or(NO_BUFFER)?;
        let (first, slots) = self.list_at(buffer).ok_or(NO_BUFFER)?;
        let event = self.events.get(buffer).ok_or(NO_BUFFER)?;
        self.marks.next(buffer);
        let marks = self.marks.of(buffer);
        let begun = marks.map(|[begun, _]| begun);
        let _entered = self.stream.gpu().enter()?;
        // SAFETY: as in `list`: this is the end of the time in which it is written to.
        let list = unsafe { slice::from_raw_parts_mut(first.as_ptr(), slots) };
        let copied = match &mut self.staging {
            Some(staging) => staging.bring(list, &self.stream, begun)?,
            None => false,
        };
        let mut params = self.params;
        params.out = out;
        let reading = if copied {
            // Beside the next copy, so reading the list over the bus costs nobody anything.
            params.packets.addresses =
                self.lists.device_address() + (buffer * self.list_bytes()) as u64;
            self.copied
        } else {
            begun.map_or(Ok(()), |begun| begun.record(&self.stream))?;
            params.packets.addresses = self.bring_list(buffer)?;
            self.in_place
        };
        params.line_bytes = reading.line_bytes;
        // SAFETY: `params` is what reorder kernels take. The list has as many entries as it says,
        // each 0 or, by the stage's contract, a whole frame of the packets' regions, which are kept
        // here and whose tokens the stage keeps until the event; or its copy in the area, which is
        // complete before the kernel begins and not written to before it ends. The batch belongs to
        // the stage. Only a kernel that waits for no copy may begin before the one ahead ends.
        unsafe { self.function.launch(&self.stream, reading.shape, &params, !copied)? };
        self.ways.count(copied);
        if let Some(staging) = self.staging.as_ref().filter(|_| copied) {
            staging.were_read(&self.stream)?;
        }
        self.mirror(buffer, out)?;
        marks.map_or(Ok(()), |[_, ended]| ended.record(&self.stream))?;
        event.record(&self.stream)
    }

    fn done(&mut self, buffer: usize) -> Result<bool, CudaError> {
        self.events.get(buffer).map_or(Ok(true), super::stream::Event::done)
    }

    fn took(&mut self, buffer: usize) -> Option<Nanos> {
        let [begun, ended] = self.marks.of(buffer)?;
        let microseconds = ended.microseconds_since(begun).ok()?;
        // A time is neither negative nor half an hour; what is would be cut off.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
        Some(Nanos((microseconds * 1e3) as u64))
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        let copies = self.staging.as_ref().map_or(Ok(()), Staging::finish);
        self.stream.synchronize().and(copies)
    }
}
