//! The stage's GPU over CUDA's driver.
//!
//! An inference reads the buffers that the reorder stage writes, where they lie: [`GpuBatches`]
//! hands out their addresses, and [`CudaGpu::wait_for`](Gpu::wait_for) makes the inference's stream
//! wait for the reorder's event, so the host waits for neither.
#![allow(unsafe_code)] // promises about device memory; each block says who keeps them

use std::slice;

use tensorwire_core::memory::MemoryKind;
use tensorwire_core::port::{Event as Ready, StageError};
use tensorwire_cuda::device::Kept;
use tensorwire_cuda::memory::{Region, RegionError};
use tensorwire_cuda::queue::Output;
use tensorwire_cuda::stream::{Event, Events, Graph, Stream};
use tensorwire_cuda::{CudaError, Gpu as Device};

use crate::gpu::{BatchMemory, Gpu, RawStream};
use crate::key::GpuIdentity;

/// What an engine depends on of a GPU and its driver.
///
/// # Errors
///
/// [`CudaError`] when the driver does not say.
pub fn identity(gpu: &Device) -> Result<GpuIdentity, CudaError> {
    Ok(GpuIdentity {
        name: gpu.name().to_owned(),
        capability: gpu.capability()?,
        driver: format!("CUDA {}", gpu.driver_version()? / 1_000),
    })
}

/// The batch buffers of a reorder stage.
#[derive(Clone, Debug)]
pub struct GpuBatches(pub Output);

// SAFETY: `Output` keeps its region, which was allocated for the GPU with a whole batch at each
// address that it gives; `bytes` is the length of one.
unsafe impl BatchMemory for GpuBatches {
    fn buffers(&self) -> u16 {
        u16::try_from(self.0.buffers()).unwrap_or(u16::MAX)
    }

    fn bytes(&self) -> usize {
        self.0.batch_bytes()
    }

    fn address(&self, buffer: u16) -> Option<u64> {
        self.0.device_address(usize::from(buffer))
    }
}

/// A GPU for the inference stage.
#[derive(Debug)]
pub struct CudaGpu {
    gpu: Device,
    /// The events of the reorder stage; `None` where the CPU reorders, whose batches are complete
    /// when they are handed over.
    reorders: Option<Events>,
}

impl CudaGpu {
    /// The stage's view of `gpu`, behind a reorder stage with these events.
    #[must_use]
    pub const fn new(gpu: Device, reorders: Option<Events>) -> Self {
        Self { gpu, reorders }
    }

    fn region(&self, kind: MemoryKind, values: usize) -> Result<Region, StageError> {
        let bytes = values.saturating_mul(size_of::<f32>());
        Region::new(&self.gpu, kind, bytes).map_err(of_region)
    }
}

/// An error of a region as the stage's; what is not CUDA's has a number of ours.
fn of_region(error: RegionError) -> StageError {
    match error {
        RegionError::Cuda(error) => error.into(),
        RegionError::Exhausted { .. } => {
            StageError { call: "memory for the results", code: 2, fatal: true }
        }
        _ => StageError { call: "memory for the results", code: 1, fatal: true },
    }
}

/// Rows of results on the GPU and on the host.
#[derive(Debug)]
pub struct CudaRows {
    device: Region,
    host: Region,
    values: usize,
}

impl Gpu for CudaGpu {
    type Entered = Kept;
    type Stream = Stream;
    type Event = Event;
    type Graph = Graph;
    type Rows = CudaRows;

    fn enter(&self) -> Result<Kept, StageError> {
        Ok(self.gpu.enter_kept()?)
    }

    fn stream(&mut self) -> Result<Stream, StageError> {
        Ok(Stream::new(&self.gpu)?)
    }

    fn raw(&self, stream: &Stream) -> RawStream {
        RawStream(stream.raw().cast())
    }

    fn event(&mut self) -> Result<Event, StageError> {
        Ok(Event::new(&self.gpu, false)?)
    }

    fn timed_event(&mut self) -> Result<Event, StageError> {
        Ok(Event::new(&self.gpu, true)?)
    }

    fn milliseconds(&mut self, from: &Event, to: &Event) -> Result<f64, StageError> {
        Ok(to.microseconds_since(from)? / 1_000.0)
    }

    fn rows(&mut self, values: usize) -> Result<CudaRows, StageError> {
        let device = self.region(MemoryKind::Device, values)?;
        let host = self.region(MemoryKind::HostPinned, values)?;
        Ok(CudaRows { device, host, values })
    }

    fn fill(&mut self, rows: &mut CudaRows, bytes: &[u8]) -> Result<(), StageError> {
        rows.device.write(0, bytes).map_err(of_region)
    }

    fn device_address(&self, rows: &CudaRows) -> u64 {
        rows.device.device_address()
    }

    unsafe fn host<'a>(&self, rows: &'a CudaRows) -> &'a [f32] {
        let Some(first) = rows.host.host() else { return &[] };
        // SAFETY: the region holds that many values, zeroed when it was made, as long as `rows`
        // lives; CUDA aligns it to a page. The caller says that no copy into it is under way.
        unsafe { slice::from_raw_parts(first.cast::<f32>().as_ptr(), rows.values) }
    }

    fn wait_for(&mut self, stream: &Stream, ready: Ready) -> Result<(), StageError> {
        match self.reorders.as_ref().map(|events| events.of(ready)) {
            Some(Some(event)) => Ok(stream.wait(event)?),
            // An event that nobody recorded: to go on would be to read a batch before it is there.
            _ if ready != Ready::DONE => {
                Err(StageError { call: "choice of the reorder's event", code: 4, fatal: true })
            }
            _ => Ok(()),
        }
    }

    unsafe fn copy_in(
        &mut self,
        stream: &Stream,
        rows: &mut CudaRows,
        values: usize,
    ) -> Result<(), StageError> {
        let bytes = values.saturating_mul(size_of::<f32>());
        // SAFETY: the caller keeps the rows and lets nobody use the GPU's side until the stream has
        // done it; nobody writes to the host's.
        unsafe { stream.copy(&rows.device, &rows.host, bytes) }.map_err(of_region)
    }

    unsafe fn copy_out(
        &mut self,
        stream: &Stream,
        rows: &mut CudaRows,
        values: usize,
    ) -> Result<(), StageError> {
        let bytes = values.saturating_mul(size_of::<f32>());
        // SAFETY: the caller keeps the rows and looks at neither side until the stream has done it;
        // what writes the device's side is before it on the same stream.
        unsafe { stream.copy(&rows.host, &rows.device, bytes) }.map_err(of_region)
    }

    fn record(&mut self, stream: &Stream, event: &Event) -> Result<(), StageError> {
        let _entered = self.gpu.enter()?;
        Ok(event.record(stream)?)
    }

    fn done(&mut self, event: &Event) -> Result<bool, StageError> {
        Ok(event.done()?)
    }

    fn wait(&mut self, event: &Event) -> Result<(), StageError> {
        Ok(event.wait()?)
    }

    fn synchronize(&mut self, stream: &Stream) -> Result<(), StageError> {
        Ok(stream.synchronize()?)
    }

    fn begin_capture(&mut self, stream: &Stream) -> Result<(), StageError> {
        Ok(stream.begin_capture()?)
    }

    fn end_capture(&mut self, stream: &Stream) -> Result<Graph, StageError> {
        Ok(stream.end_capture()?)
    }

    unsafe fn launch(&mut self, stream: &Stream, graph: &Graph) -> Result<(), StageError> {
        Ok(graph.launch(stream)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_memory_keeps_the_name_of_its_call() {
        let cuda = RegionError::Cuda(CudaError { call: "cuMemAlloc", code: 2 });
        assert_eq!(of_region(cuda).call, "cuMemAlloc");
        let free = RegionError::Exhausted { kind: MemoryKind::Device, bytes: 9, free: 8 };
        let error = of_region(free);
        assert!(error.fatal && error.call == "memory for the results", "{error:?}");
    }

    /// Where there is a GPU the whole of it runs: streams, events, rows, copies, a graph.
    #[test]
    #[allow(clippy::print_stderr, reason = "a test that cannot run says why")]
    fn rows_come_to_the_host_by_stream_and_by_graph() {
        let device = match Device::open(&tensorwire_cuda::Choice::Index(0)) {
            Ok(device) => device,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let mut gpu = CudaGpu::new(device, None);
        let mut rows = gpu.rows(4).expect("memory");
        let (stream, event) = (gpu.stream().expect("stream"), gpu.event().expect("event"));
        for (round, by_graph) in [(1.0_f32, false), (2.0, true)] {
            let values = [round; 4].map(f32::to_ne_bytes);
            rows.device.write(0, values.as_flattened()).expect("the host writes");
            if by_graph {
                gpu.begin_capture(&stream).expect("capture");
            }
            // SAFETY: nobody has a slice of the rows.
            unsafe { gpu.copy_out(&stream, &mut rows, 4) }.expect("copy");
            if by_graph {
                let graph = gpu.end_capture(&stream).expect("graph");
                // SAFETY: as for the copy that was recorded.
                unsafe { gpu.launch(&stream, &graph) }.expect("launch");
                gpu.synchronize(&stream).expect("done");
            }
            gpu.record(&stream, &event).expect("record");
            gpu.wait(&event).expect("wait");
            assert!(gpu.done(&event).expect("done"));
            // SAFETY: the event says that the copy is done.
            assert_eq!(unsafe { gpu.host(&rows) }, [round; 4]);
        }
        let strange = gpu.wait_for(&stream, Ready(7)).expect_err("no reorder has such an event");
        assert!(strange.fatal);
    }
}
