//! Packets in pinned memory across a bus, copied to the GPU in bulk ahead of their reorder.
//!
//! The copies have a stream of their own and two areas by turns, so that the packets of one batch
//! cross the bus while the batch before it is reordered.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::ptr::{self, NonNull};

use cudarc::driver::sys::{self, CUmemorytype};
use tensorwire_core::memory::MemoryKind;

use crate::bulk::{Bulk, Rows, Run};
use crate::device::Gpu;
use crate::error::{CudaError, check};
use crate::memory::{Region, RegionError};
use crate::queue::Layout;
use crate::stream::{Event, Stream};

/// Where the packets of a batch are copied to.
#[derive(Debug)]
struct Area {
    memory: Region,
    /// They are there.
    copied: Event,
    /// The reorder has read them.
    read: Event,
}

/// The copies of one packet pool.
#[derive(Debug)]
pub(crate) struct Staging {
    // Dropped first: the stream waits for what uses the rest.
    copies: Stream,
    areas: [Area; 2],
    /// The one that was copied to last.
    last: usize,
    bulk: Bulk,
    packets: Region,
    host: NonNull<u8>,
}

// SAFETY: the pointer is that of `packets`, which may be sent; it is handed to the driver only.
unsafe impl Send for Staging {}

impl Staging {
    /// For batches of that layout out of `packets`; `None` for a region that the CPU cannot read.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when something of it cannot be had.
    pub(crate) fn new(
        gpu: &Gpu,
        packets: &Region,
        layout: &Layout,
    ) -> Result<Option<Self>, RegionError> {
        let Some(host) = packets.host() else { return Ok(None) };
        let bulk = Bulk::new(packets.device_address(), packets.bytes(), layout);
        let area = || -> Result<Area, RegionError> {
            Ok(Area {
                memory: Region::new(gpu, MemoryKind::Device, bulk.room())?,
                copied: Event::new(gpu, false)?,
                read: Event::new(gpu, false)?,
            })
        };
        let areas = [area()?, area()?];
        let (copies, packets) = (Stream::new(gpu)?, packets.clone());
        Ok(Some(Self { copies, areas, last: 0, bulk, packets, host }))
    }

    /// Enqueues the copies of the packets of a list, which then says where they will lie, and makes
    /// `stream` wait for them; `begin`, if any, marks when the first of them starts. The context is
    /// entered.
    /// False, and nothing is done, if they had better be read where they are.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses. Some of the copies may be under way then.
    pub(crate) fn bring(
        &mut self,
        list: &mut [u64],
        stream: &Stream,
        begin: Option<&Event>,
    ) -> Result<bool, CudaError> {
        let at = 1 - self.last;
        let area = &self.areas[at];
        let near = area.memory.device_address();
        let Some(runs) = self.bulk.plan(list, near) else { return Ok(false) };
        self.last = at;
        // What the area held before was read by then.
        self.copies.wait(&area.read)?;
        begin.map_or(Ok(()), |begin| begin.record(&self.copies))?;
        for run in runs {
            debug_assert!(narrow(run.from + run.bytes) <= self.packets.bytes());
            // SAFETY: a run is a part of the pool, whose length the plans were made with.
            let from = unsafe { self.host.add(narrow(run.from)) };
            // SAFETY: the area has room for all runs of a plan and nobody reads it: the copy comes
            // after the last reorder that does. The pool lives as long as the stream. What lies
            // between the packets may change while it is copied, and is not looked at.
            unsafe { copy(from, near + run.to, run, &self.copies)? };
        }
        area.copied.record(&self.copies)?;
        stream.wait(&area.copied)?;
        Ok(true)
    }

    /// Makes every call of [`Staging::bring`] once, with the first bytes of the pool.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub(crate) fn rehearse(&self, stream: &Stream) -> Result<(), CudaError> {
        for area in &self.areas {
            let bytes = area.memory.bytes().min(self.packets.bytes()).min(64) as u64;
            let rows = Rows { lead: 0, apart: bytes, bytes, count: 1 };
            self.copies.wait(&area.read)?;
            for rows in [None, Some(rows)] {
                let run = Run { from: 0, to: 0, bytes, rows };
                let to = area.memory.device_address();
                // SAFETY: pool and area are at least that long, live as long as the stream, and are
                // used by nobody yet.
                unsafe { copy(self.host, to, &run, &self.copies)? };
            }
            area.copied.record(&self.copies)?;
            stream.wait(&area.copied)?;
            area.read.record(stream)?;
        }
        Ok(())
    }

    /// What was enqueued on `stream` so far is all that reads the packets copied last. The context
    /// is entered.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub(crate) fn were_read(&self, stream: &Stream) -> Result<(), CudaError> {
        self.areas[self.last].read.record(stream)
    }

    /// The stream of the copies.
    pub(crate) const fn copies(&self) -> &Stream {
        &self.copies
    }

    /// Waits until all copies are done.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when one failed.
    pub(crate) fn finish(&self) -> Result<(), CudaError> {
        self.copies.synchronize()
    }
}

/// Enqueues the copy of a run: of all of it, or of its rows.
///
/// # Safety
///
/// Until the stream has done it, the bytes of the run can be read at `from` and written at `to`,
/// and nobody else reads or writes them there.
unsafe fn copy(from: NonNull<u8>, to: u64, run: &Run, copies: &Stream) -> Result<(), CudaError> {
    let Some(rows) = run.rows else {
        let (from, bytes) = (from.as_ptr().cast(), narrow(run.bytes));
        // SAFETY: the caller vouches for both.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, copies.raw()) };
        return check("cuMemcpyHtoDAsync", result);
    };
    // SAFETY: all rows are parts of the run, for which the caller vouches.
    unsafe { copy_rows(from, to, &rows, copies) }
}

/// Enqueues the copy of rows to where they lie at `to` as they do at `from`.
///
/// # Safety
///
/// Until the stream has done it, all rows can be read at `from` and written at `to`, and nobody
/// else reads or writes them there.
pub(crate) unsafe fn copy_rows(
    from: NonNull<u8>,
    to: u64,
    rows: &Rows,
    stream: &Stream,
) -> Result<(), CudaError> {
    // SAFETY: the caller vouches for the first row.
    let first = unsafe { from.add(narrow(rows.lead)) };
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: first.as_ptr().cast(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: narrow(rows.apart),
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: to + rows.lead,
        dstArray: ptr::null_mut(),
        dstPitch: narrow(rows.apart),
        WidthInBytes: narrow(rows.bytes),
        Height: narrow(rows.count),
    };
    // SAFETY: the caller vouches for all rows.
    check("cuMemcpy2DAsync", unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, stream.raw()) })
}

/// A place in memory that there is.
fn narrow(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
