//! Streams and events.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent_flags, CUresult, CUstream_flags};

use crate::device::Gpu;
use crate::error::{CudaError, check};
use crate::memory::{Region, RegionError};

/// A stream of one GPU, independent of the default stream. Destroyed when it goes, after what was
/// enqueued is done.
#[derive(Debug)]
pub struct Stream {
    gpu: Gpu,
    stream: sys::CUstream,
}

// SAFETY: a stream handle may be used from any thread; the driver locks what it must.
unsafe impl Send for Stream {}

// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn new(gpu: &Gpu) -> Result<Self, CudaError> {
        let _entered = gpu.enter()?;
        let mut stream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is to a local that outlives the call, and a context is entered.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self { gpu: gpu.clone(), stream })
    }

    /// The GPU.
    #[must_use]
    pub const fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver's handle, for a launch. It is valid as long as `self` lives.
    #[must_use]
    pub const fn raw(&self) -> sys::CUstream {
        self.stream
    }

    /// Waits until everything that was enqueued is done.
    ///
    /// # Errors
    ///
    /// [`CudaError`] of the call, or of what was enqueued.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the stream lives as long as `self`.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    /// What is enqueued from here on waits for the event.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: stream and event live as long as the call; the wait itself keeps what it needs.
        let result = unsafe { sys::cuStreamWaitEvent(self.stream, event.event, 0) };
        check("cuStreamWaitEvent", result)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What fails here failed before, or the driver is shutting down.
        let _ = self.synchronize();
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: made by `new`, and nobody has it any more.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

/// A point of a stream. Before it is recorded for the first time it counts as done.
#[derive(Debug)]
pub struct Event {
    gpu: Gpu,
    event: sys::CUevent,
}

// SAFETY: an event handle may be used from any thread; the driver locks what it must.
unsafe impl Send for Event {}

// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event; `timed` for one between which time can be measured.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn new(gpu: &Gpu, timed: bool) -> Result<Self, CudaError> {
        let _entered = gpu.enter()?;
        let mut event = ptr::null_mut();
        let flags = if timed {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        // SAFETY: the pointer is to a local that outlives the call, and a context is entered.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags as u32) })?;
        Ok(Self { gpu: gpu.clone(), event })
    }

    /// Marks the end of what is enqueued so far. The context of the stream is entered.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live as long as the call.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, stream.stream) })
    }

    /// Whether it has come.
    ///
    /// # Errors
    ///
    /// [`CudaError`] of the call, or of what was enqueued before the event.
    pub fn done(&self) -> Result<bool, CudaError> {
        // SAFETY: the event lives as long as `self`. A query needs no context.
        match unsafe { sys::cuEventQuery(self.event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until it has come.
    ///
    /// # Errors
    ///
    /// As [`Event::done`].
    pub fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the event lives as long as `self`. A wait needs no context.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Microseconds from `earlier` to this one; both are timed and have come.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when one of them is not timed or has not come.
    pub fn microseconds_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
        const CALL: &str = "cuEventElapsedTime";
        // With its end, so that looking it up allocates nothing.
        const SYMBOL: &[u8] = b"cuEventElapsedTime\0";
        // Not through the bindings: of CUDA 13 they know another name, which CUDA 12.2 lacks.
        // SAFETY: the library was loaded, or there were no event.
        let library = unsafe { sys::culib() };
        // SAFETY: the type is that of cuda.h; both names have had it since CUDA 5.
        let elapsed = unsafe { library.get::<Elapsed>(SYMBOL) };
        let elapsed = elapsed.map_err(|_| CudaError { call: CALL, code: 500 })?;
        let _entered = self.gpu.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the pointer is to a local that outlives the call, and both events live.
        let result = unsafe { elapsed(&raw mut milliseconds, earlier.event, self.event) };
        check(CALL, result)?;
        Ok(1_000.0 * f64::from(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: made by `new`, and nobody has it any more; the driver keeps what is pending.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// One event for each batch buffer: the reorder stage records, the consumer waits.
#[derive(Clone, Debug)]
pub struct Events(Arc<[Event]>);

impl Events {
    /// As many events as there are buffers; `timed` as for [`Event::new`].
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn new(gpu: &Gpu, buffers: usize, timed: bool) -> Result<Self, CudaError> {
        let events: Result<Vec<Event>, CudaError> =
            (0..buffers).map(|_| Event::new(gpu, timed)).collect();
        Ok(Self(events?.into()))
    }

    /// The event of a buffer.
    #[must_use]
    pub fn get(&self, buffer: usize) -> Option<&Event> {
        self.0.get(buffer)
    }

    /// The event that a stage gave to the core; `None` for one that has always happened.
    #[must_use]
    pub fn of(&self, event: tensorwire_core::port::Event) -> Option<&Event> {
        let buffer = usize::try_from(event.0).ok()?.checked_sub(1)?;
        self.get(buffer)
    }
}

/// Work that was recorded from a stream, to be enqueued as a whole.
#[derive(Debug)]
pub struct Graph {
    gpu: Gpu,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

// SAFETY: the driver binds a graph to no thread; it only may not be launched by two at a time, for
// which it is not `Sync`.
unsafe impl Send for Graph {}

impl Stream {
    /// Records what `work` enqueues on this stream instead of doing it.
    ///
    /// # Errors
    ///
    /// [`CudaError`] of `work`, or when the driver refuses.
    pub fn record<E: From<CudaError>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let _entered = self.gpu.enter()?;
        self.begin_capture()?;
        let done = work();
        // Ended in any case, or the stream would go on recording.
        let graph = self.end_capture();
        done?;
        Ok(graph?)
    }

    /// From here on this thread's work for the stream is recorded, not done.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn begin_capture(&self) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        let result = unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) };
        check("cuStreamBeginCapture", result)
    }

    /// Ends the recording; it can be enqueued as a whole.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when what was recorded cannot be made a graph.
    pub fn end_capture(&self) -> Result<Graph, CudaError> {
        let _entered = self.gpu.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local that outlives the call.
        let result = unsafe { sys::cuStreamEndCapture(self.stream, &raw mut graph) };
        check("cuStreamEndCapture", result)?;
        let mut recorded = Graph { gpu: self.gpu.clone(), graph, exec: ptr::null_mut() };
        let exec = &raw mut recorded.exec;
        // SAFETY: the pointer is to a local that outlives the call.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(exec, graph, 0) };
        check("cuGraphInstantiate", result)?;
        Ok(recorded)
    }

    /// Enqueues a copy of the first `bytes` bytes of `from` to `to`, of whatever kinds they are.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when one of them is shorter, or when the driver refuses.
    ///
    /// # Safety
    ///
    /// Until the stream has done it both regions are kept, nobody writes these bytes of `from`, and
    /// nobody reads or writes those of `to`.
    pub unsafe fn copy(&self, to: &Region, from: &Region, bytes: usize) -> Result<(), RegionError> {
        let (to, from) = (to.part(0, bytes)?, from.part(0, bytes)?);
        let _entered = self.gpu.enter()?;
        // SAFETY: both are that long; the caller vouches for who uses them.
        let result = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream) };
        Ok(check("cuMemcpyAsync", result)?)
    }
}

impl Graph {
    /// Enqueues all of it.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: both live as long as the call.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, stream.stream) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        if !self.exec.is_null() {
            // SAFETY: made by `record`, and nobody has it any more; the driver keeps what runs.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
        // SAFETY: as above.
        let _ = unsafe { sys::cuGraphDestroy(self.graph) };
    }
}
