//! What the reorder stage asks of a stream, and the stream that does it.
//!
//! The stage itself ([`crate::reorder`]) is tested over a stand-in that does the same on the CPU.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::ptr::NonNull;

use cudarc::driver::sys;
use tensorwire_core::geometry::Geometry;
use tensorwire_core::memory::MemoryKind;

use crate::abi::{Packets, ReorderParams};
use crate::device::Gpu;
use crate::error::{CudaError, check};
use crate::kernels::{Function, Kernels, Shape, reorder_name};
use crate::memory::{Region, RegionError};
use crate::stream::{Events, Stream};

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
    /// Pinned memory across a bus.
    Pinned,
}

impl Source {
    /// Warps and reads as they were fastest (`kernels/BENCH.md`): packets of a block, warps of a
    /// packet, and the multiple at which reads begin.
    pub(crate) const fn tuning(self) -> (u32, u32, u32) {
        match self {
            Self::Device => (2, 1, 0),
            Self::Pinned => (4, 2, 128),
        }
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
    /// `buffers` buffers for batches of `geometry`, in memory of a kind. With `on_host` a batch can
    /// be read by the CPU too: device memory then has a mirror.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when the memory cannot be had.
    pub fn new(
        gpu: &Gpu,
        geometry: &Geometry,
        buffers: usize,
        kind: MemoryKind,
        on_host: bool,
    ) -> Result<Self, RegionError> {
        // As the pools of the software NIC have it: each buffer on a line of its own.
        let stride = geometry.batch_bytes().next_multiple_of(64);
        let bytes = stride.saturating_mul(buffers);
        let region = Region::new(gpu, kind, bytes)?;
        let mirrored = on_host && !kind.on_host();
        let mirror = mirrored.then(|| Region::new(gpu, MemoryKind::HostPinned, bytes));
        let batch_bytes = geometry.batch_bytes();
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

/// The queue on a GPU. Its stream, kernel, lists and events are made once, at start.
#[derive(Debug)]
pub struct StreamQueue {
    // Dropped in this order: the stream waits for what uses the rest.
    stream: Stream,
    function: Function,
    events: Events,
    params: ReorderParams,
    shape: Shape,
    batch_bytes: usize,
    output: Output,
    lists: Region,
    /// Where lists are copied to; `None`: read where they are.
    near_lists: Option<Region>,
    /// The regions whose packets are read: kept until the stream is done.
    _packets: Vec<Region>,
}

impl StreamQueue {
    /// A queue for batches of `geometry`, whose packets lie in `packets`.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when something of it cannot be had: the run cannot start then.
    pub fn new(
        kernels: &Kernels,
        gpu: &Gpu,
        geometry: &Geometry,
        source: Source,
        output: Output,
        packets: Vec<Region>,
    ) -> Result<Self, RegionError> {
        let spec = geometry.spec();
        let function = kernels.function(&reorder_name(spec.input, spec.output))?;
        let slots = geometry.packets_per_batch();
        let (together, pieces, line_bytes) = source.tuning();
        let bytes = output.buffers * slots as usize * size_of::<u64>();
        let lists = Region::new(gpu, MemoryKind::HostPinned, bytes)?;
        let near = (source == Source::Device && !gpu.integrated()?)
            .then(|| Region::new(gpu, MemoryKind::Device, bytes));
        let params = ReorderParams {
            packets: Packets { count: slots, ..Packets::default() },
            payload_offset: narrow(geometry.payload_offset()),
            payload_bytes: narrow(geometry.payload_bytes()),
            slots_per_batch: slots,
            slot_stride: narrow(geometry.slot_stride()),
            line_bytes,
            ..ReorderParams::default()
        };
        Ok(Self {
            stream: Stream::new(gpu)?,
            function,
            events: Events::new(gpu, output.buffers)?,
            params,
            shape: Shape::reorder(slots, together, pieces),
            batch_bytes: geometry.batch_bytes(),
            output,
            lists,
            near_lists: near.transpose()?,
            _packets: packets,
        })
    }

    /// The events of the buffers, for who waits for a batch.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events.clone()
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

/// Numbers of a geometry are far below 2^32: its checked constructor says so.
fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl Queue for StreamQueue {
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]> {
        let (first, slots) = self.list_at(buffer)?;
        // SAFETY: the entries were zeroed when the region was made. `&mut self` is the only way to
        // them on the CPU, and the stage asks for a list only when no reorder reads it.
        Some(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), slots) })
    }

    fn submit(&mut self, buffer: usize) -> Result<(), CudaError> {
        const NO_BUFFER: CudaError = CudaError { call: "batch buffer", code: 1 };
        let out = self.output.device_address(buffer).ok_or(NO_BUFFER)?;
        let event = self.events.get(buffer).ok_or(NO_BUFFER)?;
        let _entered = self.stream.gpu().enter()?;
        let mut params = self.params;
        params.packets.addresses = self.bring_list(buffer)?;
        params.out = out;
        // SAFETY: `params` is what reorder kernels take. The list has as many entries as it says,
        // each 0 or, by the stage's contract, a whole frame of the packets' regions, which are kept
        // here and whose tokens the stage keeps until the event. The batch belongs to the stage.
        unsafe { self.function.launch(&self.stream, self.shape, &params, true)? };
        self.mirror(buffer, out)?;
        event.record(&self.stream)
    }

    fn done(&mut self, buffer: usize) -> Result<bool, CudaError> {
        self.events.get(buffer).map_or(Ok(true), super::stream::Event::done)
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        self.stream.synchronize()
    }
}
