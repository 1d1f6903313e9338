//! How long the reorder takes on this GPU, beside copies of the same bytes.
//!
//! A figure is the median over runs of the time per batch in a CUDA graph of many batches, each
//! with packets, list and output of its own, which together are several times the second-level
//! cache. Kernels are launched as the product does it: each may read while the one before it
//! writes.
#![allow(unsafe_code)] // launches and copies; each block says why it may be made

use cudarc::driver::sys;
use tensorwire_core::geometry::ElementType;
use tensorwire_core::memory::MemoryKind;

use crate::abi::{Packets, ReorderParams};
use crate::device::Gpu;
use crate::error::{CudaError, check};
use crate::kernels::{Kernels, Shape, reorder_name};
use crate::memory::{Region, RegionError};
use crate::queue::Source;
use crate::stream::{Event, Stream};

mod gather;
mod stage;

pub use gather::gather;
pub use stage::stage;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// Where packets lie.
    pub source: Source,
    /// The packets of a batch, one after the other.
    pub packets: &'a [u8],
    /// The slot of each packet.
    pub order: &'a [u32],
    /// Bytes from packet to packet.
    pub stride: u32,
    /// Bytes from a packet to its payload.
    pub payload_offset: u32,
    /// Bytes of a payload; a multiple of 8.
    pub payload_bytes: u32,
    /// Runs, of which the median counts.
    pub runs: usize,
}

impl Bench<'_> {
    /// The packets of a batch, so many bytes from one to the next.
    fn spread(&self, stride: usize) -> Vec<u8> {
        let frame = self.stride as usize;
        let mut spread = vec![0; self.order.len() * stride];
        for (packet, place) in self.packets.chunks(frame).zip(spread.chunks_mut(stride)) {
            let (len, place) = (packet.len().min(stride), place);
            place[..len].copy_from_slice(&packet[..len]);
        }
        spread
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was done.
    pub name: String,
    /// Median of the microseconds per batch.
    pub microseconds: f64,
    /// Bytes read and written per batch.
    pub bytes: u64,
}

/// Regions and lists of all batches that take turns.
struct Sets<'a> {
    bench: Bench<'a>,
    count: usize,
    packets: Region,
    /// Where packets are copied to in bulk; pinned packets only.
    staged: Option<Region>,
    /// Addresses of the packets, and of their places in `staged`.
    lists: Region,
    staged_lists: Option<Region>,
    slots: Region,
    out: Region,
    out_bytes: usize,
    stream: Stream,
    marks: [Event; 2],
}

/// The widest output, as bytes of output for each byte of payload: int4 to fp64.
const WIDEST: usize = 16;

/// Batches that take turns, of which each touches so many bytes at least: together four times the
/// second-level cache.
fn turns(gpu: &Gpu, touched: usize) -> Result<usize, CudaError> {
    Ok((4 * gpu.l2_bytes()?).div_ceil(touched.max(1)).clamp(4, 64))
}

fn u64s(values: impl Iterator<Item = u64>) -> Vec<u8> {
    values.flat_map(u64::to_le_bytes).collect()
}

impl<'a> Sets<'a> {
    fn new(gpu: &Gpu, bench: Bench<'a>, width: usize) -> Result<Self, RegionError> {
        let payload = bench.order.len() * bench.payload_bytes as usize;
        let out_bytes = payload * width.min(WIDEST);
        let count = turns(gpu, bench.packets.len().min(out_bytes))?;
        let bytes = bench.packets.len();
        let (kind, staged) = match bench.source {
            Source::Device => (MemoryKind::Device, None),
            Source::Pinned | Source::PinnedInPlace => {
                let staged = Region::new(gpu, MemoryKind::Device, bytes * count)?;
                (MemoryKind::HostPinned, Some(staged))
            }
        };
        let packets = Region::new(gpu, kind, bytes * count)?;
        let list = |base: &Region| -> Result<Region, RegionError> {
            let addresses = (0..count * bench.order.len())
                .map(|i| base.device_address() + i as u64 * u64::from(bench.stride));
            let list = u64s(addresses);
            let region = Region::new(gpu, MemoryKind::Device, list.len())?;
            region.write(0, &list)?;
            Ok(region)
        };
        let lists = list(&packets)?;
        let staged_lists = staged.as_ref().map(list).transpose()?;
        let order: Vec<u8> = bench.order.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let slots = Region::new(gpu, MemoryKind::Device, order.len())?;
        slots.write(0, &order)?;
        for set in 0..count {
            packets.write(set * bytes, bench.packets)?;
        }
        let out = Region::new(gpu, MemoryKind::Device, out_bytes * count)?;
        let marks = [Event::new(gpu, true)?, Event::new(gpu, true)?];
        let stream = Stream::new(gpu)?;
        Ok(Self {
            bench,
            count,
            packets,
            staged,
            lists,
            staged_lists,
            slots,
            out,
            out_bytes,
            stream,
            marks,
        })
    }

    /// The parameters of a reorder of a set by that list.
    fn params(&self, set: usize, lists: &Region, width_out: usize, line: u32) -> ReorderParams {
        let packets = self.bench.order.len();
        ReorderParams {
            packets: Packets {
                addresses: lists.device_address() + (set * packets * 8) as u64,
                count: u32::try_from(packets).unwrap_or(0),
                ..Packets::default()
            },
            slots: self.slots.device_address(),
            out: self.out.device_address() + (set * self.out_bytes) as u64,
            payload_offset: self.bench.payload_offset,
            payload_bytes: self.bench.payload_bytes,
            slots_per_batch: u32::try_from(packets).unwrap_or(0),
            slot_stride: u32::try_from(width_out / packets).unwrap_or(0),
            line_bytes: line,
            ..ReorderParams::default()
        }
    }

    /// Median microseconds per batch of what `work` enqueues for a set.
    fn time(&self, work: impl Fn(usize) -> Result<(), CudaError>) -> Result<f64, RegionError> {
        let launches = 2 * self.count;
        let graph = self.stream.record(|| (0..launches).try_for_each(|i| work(i % self.count)))?;
        let mut times = Vec::with_capacity(self.bench.runs);
        let warm_up = self.bench.runs / 2 + 3;
        for run in 0..self.bench.runs + warm_up {
            let entered = self.stream.gpu().enter()?;
            self.marks[0].record(&self.stream)?;
            graph.launch(&self.stream)?;
            self.marks[1].record(&self.stream)?;
            drop(entered);
            self.marks[1].wait()?;
            if run >= warm_up {
                times.push(self.marks[1].microseconds_since(&self.marks[0])?);
            }
        }
        let (median, _) = percentiles(times);
        Ok(median / u32::try_from(launches).map_or(f64::NAN, f64::from))
    }

    /// Enqueues a copy between or within regions.
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the callers name parts of the regions of this value, which outlive the stream's
        // work: every measurement waits for it.
        let result = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream.raw()) };
        check("cuMemcpyAsync", result)
    }

    /// A device copy with `bytes` of traffic, half of it read.
    fn device_copy(&self, bytes: usize) -> Result<Row, RegionError> {
        let half = (bytes / 2).min(self.out_bytes);
        let place = |set: usize| self.out.device_address() + (set * self.out_bytes) as u64;
        let microseconds = self
            .time(|set| self.copy(place(set), place((set + self.count / 2) % self.count), half))?;
        let name = "device copy of the same traffic".to_owned();
        Ok(Row { name, microseconds, bytes: 2 * half as u64 })
    }

    /// The bulk copy of a set's packets to the GPU.
    fn stage(&self, set: usize) -> Result<(), CudaError> {
        let Some(staged) = &self.staged else { return Ok(()) };
        let (bytes, at) = (self.bench.packets.len(), (set * self.bench.packets.len()) as u64);
        self.copy(staged.device_address() + at, self.packets.device_address() + at, bytes)
    }
}

/// Median and 99th percentile.
fn percentiles(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(f64::NAN);
    (at(50), at(99))
}

/// Measures one pair of types in graphs: the rows, and the batch as the GPU made it.
///
/// # Errors
///
/// [`RegionError`] when memory cannot be had or a call fails.
pub fn reorder(
    gpu: &Gpu,
    kernels: &Kernels,
    bench: Bench<'_>,
    (input, output): (ElementType, ElementType),
) -> Result<(Vec<Row>, Vec<u8>), RegionError> {
    let payload = bench.order.len() * bench.payload_bytes as usize;
    let out = payload * output.bits() as usize / input.bits() as usize;
    let traffic = payload + out;
    let sets = Sets::new(gpu, bench, out.div_ceil(payload.max(1)).max(1))?;
    let function = kernels.function(&reorder_name(input, output, false))?;
    let (together, pieces, line) = bench.source.tuning();
    let packets = u32::try_from(bench.order.len()).unwrap_or(0);
    let launch = |set, lists: &Region, (together, pieces, line)| {
        let params = sets.params(set, lists, out, line);
        let shape = Shape::reorder(packets, together, pieces);
        // SAFETY: `params` is what reorder kernels take, made of regions of `sets` that are as long
        // as it says and live until the stream was waited for; the set's output is its own.
        unsafe { function.launch(&sets.stream, shape, &params, true) }
    };
    let direct = (together, pieces, line);
    let words = format!("{} to {}", input.name(), output.name());
    let mut rows = Vec::new();
    let microseconds = sets.time(|set| launch(set, &sets.lists, direct))?;
    let name = match bench.source {
        Source::Device => format!("reorder {words}"),
        _ => format!("reorder {words}, read directly"),
    };
    rows.push(Row { name, microseconds, bytes: traffic as u64 });
    if let Some(staged) = &sets.staged_lists {
        let near = Source::Device.tuning();
        let microseconds =
            sets.time(|set| sets.stage(set).and_then(|()| launch(set, staged, near)))?;
        let name = format!("reorder {words}, after a bulk copy");
        rows.push(Row { name, microseconds, bytes: traffic as u64 });
        let microseconds = sets.time(|set| sets.stage(set))?;
        let name = "host to device copy of the packets".to_owned();
        rows.push(Row { name, microseconds, bytes: bench.packets.len() as u64 });
    }
    rows.push(sets.device_copy(traffic)?);
    // The last that wrote to set 0 may have been the copy.
    let _entered = gpu.enter()?;
    launch(0, &sets.lists, direct)?;
    sets.stream.synchronize()?;
    let mut batch = vec![0; out];
    sets.out.read(0, &mut batch)?;
    Ok((rows, batch))
}
