//! The whole way without inference on a machine with a GPU, with the documented geometry: sender,
//! software NIC, producer, consumer, a thread each. Gigabits of payload per second of wall time,
//! and for each thread the time per packet on a core.
//!
//!   pipeline [--batches N]
//!
//! "In turn": one thread, the sender until the ring is full, then the producer until it is empty,
//! so that each is timed by itself. Gb/s is then what the receiving core alone would take, and the
//! rows above say what the sender of the software NIC lets through. The frames of "device packets"
//! are written to the GPU one by one by the producer's side, which no NIC would do: of that row
//! only the counters mean anything. "No sender": every packet was written before, and the same ones
//! are handed out again and again (`rig/prebuilt.rs`): the receiving core and the GPU alone.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints what it measured"
)]

#[path = "../tests/rig/mod.rs"]
mod rig;

use std::error::Error;

use rig::{Frames, Job, Way, documented, run};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::memory::MemoryKind;
use tensorwire_cuda::kernels::Kernels;
use tensorwire_cuda::{Choice, Gpu};
use tensorwire_sim::wire::WireFaults;

/// Batches of one pass.
const PASS: u32 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip_while(|arg| arg != "--batches").skip(1);
    let batches: u64 = args.next().map_or(Ok(2048), |text| text.parse())?;
    let (geometry, many) = (documented(), batches);
    let frames = Frames::new(&geometry, PASS)?;
    println!("{:<44} {:>8} {:>8} {:>9} {:>9}", "", "Gb/s", "sender", "producer", "consumer");
    let row = |gpu, (name, way, threads, prebuilt, batches)| {
        one(gpu, &geometry, &frames, name, (way, threads, prebuilt), batches)
    };
    row(None, ("no sender, in turn: CPU reorder", Way::Cpu, false, true, many))?;
    row(None, ("no sender, no device, in turn", Way::Nowhere, false, true, many))?;
    let gpu = match Gpu::open(&Choice::Index(0)) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let kernels = Kernels::load(&gpu, None)?;
    println!("{}, kernels {}", gpu.name(), kernels.origin());
    let pinned = Way::Pinned(MemoryKind::HostPinned);
    let device = Way::Pinned(MemoryKind::Device);
    let in_place = Way::InPlace(MemoryKind::Device);
    for case in [
        ("CPU reorder", Way::Cpu, true, false, many),
        ("pinned packets, batches host_pinned", pinned, true, false, many),
        ("pinned packets, batches device", device, true, false, many),
        ("CPU reorder, in turn", Way::Cpu, false, false, many),
        ("pinned packets, batches device, in turn", device, false, false, many),
        ("device packets, in turn", Way::Device(MemoryKind::Device), false, false, 16),
        ("no sender: CPU reorder", Way::Cpu, true, true, many),
        ("no sender: pinned, batches host_pinned", pinned, true, true, many),
        ("no sender: pinned, batches device", device, true, true, 4 * many),
        ("no sender: pinned in place, batches device", in_place, true, true, 4 * many),
    ] {
        row(Some((&gpu, &kernels)), case)?;
    }
    Ok(())
}

/// Runs and prints a row.
fn one(
    gpu: Option<(&Gpu, &Kernels)>,
    geometry: &Geometry,
    frames: &Frames,
    name: &str,
    (way, threads, prebuilt): (Way, bool, bool),
    batches: u64,
) -> Result<(), Box<dyn Error>> {
    let passes = batches.div_ceil(u64::from(PASS));
    let faults = WireFaults::default();
    let job = Job { way, passes, faults, keep: false, threads, prebuilt };
    let outcome = run(gpu, geometry, frames, job)?;
    let batches = passes * u64::from(PASS);
    assert_eq!(outcome.report.pushed, batches, "a lossless wire");
    let packets = batches as f64 * f64::from(geometry.packets_per_batch());
    let bits = geometry.payload_bytes() as f64 * 8.0;
    let [sender, producer, consumer] = outcome.on_core.map(|ms| ms * 1e6 / packets);
    // In turn: what the receiving core alone would take.
    let ns = if threads { outcome.seconds * 1e9 / packets } else { producer };
    let rate = bits / ns;
    print!("{name:<44} {rate:>8.1} {sender:>8.1} {producer:>9.1} {consumer:>9.1}");
    match outcome.ways {
        Some(ways) => println!("  {} in bulk, {} in place", ways.bulk(), ways.in_place()),
        None => println!(),
    }
    Ok(())
}
