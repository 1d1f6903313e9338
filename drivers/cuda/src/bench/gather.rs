//! How long headers take from the memory of the GPU to where the CPU sees them.

use std::time::Instant;

use tensorwire_core::limits::{HEADER_BYTES, MAX_POLL};
use tensorwire_core::memory::MemoryKind;

use super::{Row, percentiles};
use crate::device::Gpu;
use crate::gather::{BURSTS, Gather, StreamGather};
use crate::kernels::Kernels;
use crate::memory::{Region, RegionError};

/// Measures bursts of 1, 32 and [`MAX_POLL`] of those packets, which lie `stride` bytes apart: from
/// the moment at which the host has their addresses in the list to that at which it has seen that
/// the headers are there, by the host's clock, one burst at a time. The rows, and the headers of
/// the first packets as they came.
///
/// # Errors
///
/// [`RegionError`] when memory cannot be had or a call fails.
pub fn gather(
    gpu: &Gpu,
    kernels: &Kernels,
    packets: &[u8],
    stride: usize,
    runs: usize,
) -> Result<(Vec<Row>, Vec<u8>), RegionError> {
    let region = Region::new(gpu, MemoryKind::Device, packets.len())?;
    region.write(0, packets)?;
    let mut gather = StreamGather::new(kernels, gpu)?;
    let there = (packets.len() / stride.max(1)).max(1);
    let (mut rows, mut headers) = (Vec::new(), Vec::new());
    for count in [1, 32, MAX_POLL] {
        let mut times = Vec::with_capacity(runs);
        // Each run takes other packets than the one before, as a NIC brings them.
        for run in 0..runs + runs / 4 + 4 {
            let (burst, first) = (run % BURSTS, run * count);
            let list = gather.list(burst);
            for (number, place) in (first..).zip(list.iter_mut().take(count)) {
                *place = region.device_address() + (number % there * stride) as u64;
            }
            let began = Instant::now();
            gather.submit(burst, count)?;
            while !gather.done(burst)? {
                std::hint::spin_loop();
            }
            if run == 0 {
                headers = gather.headers(burst)[..count * HEADER_BYTES].to_vec();
            }
            if run >= runs / 4 + 4 {
                times.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        let bytes = (count * HEADER_BYTES) as u64;
        let (median, late) = percentiles(times);
        let words = format!("headers of {count} packets, until the CPU sees them");
        rows.push(Row { name: format!("{words}: median"), microseconds: median, bytes });
        rows.push(Row { name: format!("{words}: 99 of 100"), microseconds: late, bytes });
    }
    Ok((rows, headers))
}
