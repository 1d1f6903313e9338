//! The stage's own way from pinned memory, through its queue: what is measured is what runs.

use std::ops::Range;
use std::time::Instant;

use tensorwire_core::geometry::ElementType;
use tensorwire_core::memory::MemoryKind;

use super::{Bench, Row, percentiles, turns};
use crate::bulk::Rows;
use crate::device::Gpu;
use crate::error::CudaError;
use crate::kernels::Kernels;
use crate::memory::{Region, RegionError};
use crate::queue::{Layout, Output, Queue, Source, StreamQueue};
use crate::staging::copy_rows;
use crate::stream::{Event, Stream};

/// The batches that take turns, and their queue.
struct Turns<'a> {
    bench: &'a Bench<'a>,
    packets: Region,
    stride: usize,
    output: Output,
    queue: StreamQueue,
    marks: [Event; 2],
    count: usize,
}

impl<'a> Turns<'a> {
    fn new(
        (gpu, kernels): (&Gpu, &Kernels),
        bench: &'a Bench<'a>,
        layout: &Layout,
        stride: usize,
    ) -> Result<Self, RegionError> {
        let spread = bench.spread(stride);
        let count = turns(gpu, spread.len().min(layout.batch_bytes()))?;
        let packets = Region::new(gpu, MemoryKind::HostPinned, spread.len() * count)?;
        for set in 0..count {
            packets.write(set * spread.len(), &spread)?;
        }
        let output = Output::new(gpu, layout.batch_bytes(), count, MemoryKind::Device, false)?;
        let kept = vec![packets.clone()];
        let queue = StreamQueue::new(kernels, gpu, layout, bench.source, output.clone(), kept)?;
        let marks = [Event::new(gpu, true)?, Event::new(gpu, true)?];
        Ok(Self { bench, packets, stride, output, queue, marks, count })
    }

    /// Enqueues a batch; microseconds that this took the host after the list was written.
    fn submit(&mut self, set: usize) -> Result<f64, CudaError> {
        let first = set * self.bench.order.len();
        let base = self.packets.device_address();
        if let Some(list) = self.queue.list(set) {
            for (number, slot) in (first..).zip(self.bench.order) {
                list[*slot as usize] = base + (number * self.stride) as u64;
            }
        }
        let began = Instant::now();
        self.queue.submit(set)?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    /// Submits batches and waits for them; microseconds of the GPU, and of the host for submitting.
    fn between_marks(&mut self, sets: Range<usize>) -> Result<(f64, f64), CudaError> {
        self.queue.mark_begin(&self.marks[0])?;
        let mut spent = 0.0;
        for set in sets {
            spent += self.submit(set)?;
        }
        self.queue.mark_end(&self.marks[1])?;
        self.queue.finish()?;
        Ok((self.marks[1].microseconds_since(&self.marks[0])?, spent))
    }

    /// Microseconds per batch with one behind the other, of a batch alone, and of the host.
    fn time(&mut self) -> Result<[f64; 3], CudaError> {
        let (mut flow, mut alone, mut host) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..self.bench.runs + 3 {
            let (all, spent) = self.between_marks(0..self.count)?;
            let set = run % self.count;
            let (one, _) = self.between_marks(set..set + 1)?;
            let batches = u32::try_from(self.count).map_or(f64::NAN, f64::from);
            if run >= 3 {
                flow.push(all / batches);
                host.push(spent / batches);
                alone.push(one);
            }
        }
        Ok([flow, alone, host].map(|times| percentiles(times).0))
    }

    /// The batch that the last run made in a buffer.
    fn batch(&self, set: usize, layout: &Layout) -> Result<Vec<u8>, RegionError> {
        let mut batch = vec![0; layout.batch_bytes()];
        let first = self.output.device_address(0).unwrap_or(0);
        let offset = self.output.device_address(set).unwrap_or(0) - first;
        let offset = usize::try_from(offset).unwrap_or(0);
        self.output.region().read(offset, &mut batch)?;
        Ok(batch)
    }

    /// Microseconds of a copy of the payloads alone, row by row; what the copy engine then leaves
    /// out is headers and the ends of buffers.
    fn rows(&self, gpu: &Gpu) -> Result<f64, RegionError> {
        let Bench { payload_offset, payload_bytes, order, runs, .. } = *self.bench;
        let batch = order.len() * self.stride;
        let near = Region::new(gpu, MemoryKind::Device, batch * self.count)?;
        let stream = Stream::new(gpu)?;
        let marks = [Event::new(gpu, true)?, Event::new(gpu, true)?];
        let Some(host) = self.packets.host() else { return Ok(f64::NAN) };
        let mut times = Vec::new();
        for run in 0..runs + 3 {
            let entered = gpu.enter()?;
            marks[0].record(&stream)?;
            for set in 0..self.count {
                let rows = Rows {
                    lead: (set * batch + payload_offset as usize) as u64,
                    bytes: payload_bytes.into(),
                    apart: self.stride as u64,
                    count: order.len() as u64,
                };
                // SAFETY: rows and their distance are those of the packets, of which both regions
                // hold all; both live until the stream was waited for.
                unsafe { copy_rows(host, near.device_address(), &rows, &stream)? };
            }
            marks[1].record(&stream)?;
            drop(entered);
            marks[1].wait()?;
            if run >= 3 {
                let all = marks[1].microseconds_since(&marks[0])?;
                times.push(all / u32::try_from(self.count).map_or(f64::NAN, f64::from));
            }
        }
        Ok(percentiles(times).0)
    }
}

/// Measures the stage's queue on pinned packets, dense and with each packet on lines of its own, as
/// pools have it. The rows, and a batch of each kind as the GPU made it.
///
/// # Errors
///
/// [`RegionError`] when memory cannot be had or a call fails.
pub fn stage(
    gpu: &Gpu,
    kernels: &Kernels,
    bench: &Bench<'_>,
    (input, output): (ElementType, ElementType),
) -> Result<(Vec<Row>, Vec<Vec<u8>>), RegionError> {
    let layout = Layout {
        input,
        output,
        network_order: false,
        slots: u32::try_from(bench.order.len()).unwrap_or(0),
        payload_offset: bench.payload_offset,
        payload_bytes: bench.payload_bytes,
    };
    let payload = layout.payload_bytes as usize * bench.order.len();
    let bytes = (payload + layout.batch_bytes()) as u64;
    let dense = layout.frame_bytes();
    let (mut rows, mut batches) = (Vec::new(), Vec::new());
    for stride in [dense, dense.next_multiple_of(64)] {
        for source in [Source::Pinned, Source::PinnedInPlace] {
            let bench = Bench { source, ..*bench };
            let mut turns = Turns::new((gpu, kernels), &bench, &layout, stride)?;
            let [flow, alone, host] = turns.time()?;
            let ways = turns.queue.ways();
            // Which way it went is counted, not assumed.
            let way = match (ways.bulk(), ways.in_place()) {
                (_, 0) => "in bulk",
                (0, _) => "in place",
                _ => "now so, now so",
            };
            let words = format!("stage, {stride} B apart, {way}");
            let row = |name, microseconds, bytes| Row { name, microseconds, bytes };
            rows.push(row(words.clone(), flow, bytes));
            rows.push(row(format!("{words}: a batch alone"), alone, bytes));
            rows.push(row(format!("{words}: the host's part"), host, 0));
            batches.push(turns.batch(turns.count - 1, &layout)?);
            if source == Source::Pinned {
                let name = format!("copy of the payloads, row by row, {stride} B apart");
                rows.push(row(name, turns.rows(gpu)?, payload as u64));
            }
        }
    }
    Ok((rows, batches))
}
