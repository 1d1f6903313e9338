//! What the inference stage needs of a GPU besides TensorRT: streams, events, graphs, memory.
#![allow(unsafe_code)] // promises about device memory

use std::ffi::c_void;
use std::fmt;

use tensorwire_core::port::{Event, StageError};

/// The handle of a stream, as the CUDA driver has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStream(pub *mut c_void);

/// The batch buffers, as the GPU reads them.
///
/// # Safety
///
/// As long as the value lives, each address that it gives is of `bytes()` bytes that the GPU can
/// read.
pub unsafe trait BatchMemory {
    /// How many buffers there are.
    fn buffers(&self) -> u16;

    /// Bytes of one buffer.
    fn bytes(&self) -> usize;

    /// Address of a buffer on the GPU; `None` for a buffer that there is not.
    fn address(&self, buffer: u16) -> Option<u64>;
}

/// One GPU. What is made at start may allocate and wait; the calls of the loop do neither, except
/// [`Gpu::wait`] and [`Gpu::synchronize`], whose purpose it is.
///
/// An error that leaves the GPU unusable (most failures of work that was enqueued) is `fatal`.
pub trait Gpu {
    /// While it lives the GPU is the one that TensorRT's calls of this thread mean.
    type Entered;
    /// A queue of work in order.
    type Stream: fmt::Debug;
    /// A point in a stream. Before it is recorded it counts as reached.
    type Event: fmt::Debug;
    /// Recorded work.
    type Graph: fmt::Debug;
    /// Rows of results: memory of the GPU that an inference writes, and pinned memory of the host
    /// that it is copied to.
    type Rows: fmt::Debug;

    /// Makes this GPU the one that is meant by what is called on this thread.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn enter(&self) -> Result<Self::Entered, StageError>;

    /// Makes a stream.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn stream(&mut self) -> Result<Self::Stream, StageError>;

    /// The handle of a stream; valid as long as it lives.
    fn raw(&self, stream: &Self::Stream) -> RawStream;

    /// Makes an event.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn event(&mut self) -> Result<Self::Event, StageError>;

    /// Makes an event that knows when it came.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn timed_event(&mut self) -> Result<Self::Event, StageError>;

    /// Milliseconds between two such events that have come.
    ///
    /// # Errors
    ///
    /// [`StageError`] when one has not.
    fn milliseconds(&mut self, from: &Self::Event, to: &Self::Event) -> Result<f64, StageError>;

    /// Makes room for `values` values of fp32.
    ///
    /// # Errors
    ///
    /// [`StageError`] when there is no memory.
    fn rows(&mut self, values: usize) -> Result<Self::Rows, StageError>;

    /// Writes `bytes` to the GPU's side of the rows, and waits until they are there.
    ///
    /// # Errors
    ///
    /// [`StageError`] when they are more than there is room for, or the driver refuses.
    fn fill(&mut self, rows: &mut Self::Rows, bytes: &[u8]) -> Result<(), StageError>;

    /// Where an inference writes.
    fn device_address(&self, rows: &Self::Rows) -> u64;

    /// The copy on the host.
    ///
    /// # Safety
    ///
    /// No copy into `rows` is under way, and none is enqueued as long as the slice lives.
    unsafe fn host<'a>(&self, rows: &'a Self::Rows) -> &'a [f32];

    /// What is enqueued from here on waits for the event of a reorder.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn wait_for(&mut self, stream: &Self::Stream, ready: Event) -> Result<(), StageError>;

    /// Enqueues the copy of the first `values` values from the host, as they are there.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    ///
    /// # Safety
    ///
    /// Nobody uses the GPU's side until the stream has done it, and `rows` lives as long.
    unsafe fn copy_in(
        &mut self,
        stream: &Self::Stream,
        rows: &mut Self::Rows,
        values: usize,
    ) -> Result<(), StageError>;

    /// Enqueues the copy of the first `values` values to the host.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    ///
    /// # Safety
    ///
    /// Nobody has a slice of [`Gpu::host`] until the stream has done it, and `rows` lives as long.
    unsafe fn copy_out(
        &mut self,
        stream: &Self::Stream,
        rows: &mut Self::Rows,
        values: usize,
    ) -> Result<(), StageError>;

    /// Marks the end of what is enqueued.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn record(&mut self, stream: &Self::Stream, event: &Self::Event) -> Result<(), StageError>;

    /// Whether the event has come.
    ///
    /// # Errors
    ///
    /// [`StageError`] when work before it failed.
    fn done(&mut self, event: &Self::Event) -> Result<bool, StageError>;

    /// Waits for the event.
    ///
    /// # Errors
    ///
    /// [`StageError`] when work before it failed.
    fn wait(&mut self, event: &Self::Event) -> Result<(), StageError>;

    /// Waits for all that is enqueued.
    ///
    /// # Errors
    ///
    /// [`StageError`] when some of it failed.
    fn synchronize(&mut self, stream: &Self::Stream) -> Result<(), StageError>;

    /// From here on work for the stream is recorded, not done.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    fn begin_capture(&mut self, stream: &Self::Stream) -> Result<(), StageError>;

    /// Ends the recording, also one that failed.
    ///
    /// # Errors
    ///
    /// [`StageError`] when what was recorded cannot be made a graph.
    fn end_capture(&mut self, stream: &Self::Stream) -> Result<Self::Graph, StageError>;

    /// Enqueues recorded work.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the driver refuses.
    ///
    /// # Safety
    ///
    /// What was recorded may be done now: the promises of each recorded call hold.
    unsafe fn launch(
        &mut self,
        stream: &Self::Stream,
        graph: &Self::Graph,
    ) -> Result<(), StageError>;
}
