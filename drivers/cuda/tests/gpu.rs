//! What only a GPU can show: memory, contexts, the ways of the kernels, and whole pipelines whose
//! counters and batches are those of the CPU. Run by `tests/gpu/run.sh` on a machine that has one;
//! elsewhere each test says why it does nothing.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]

mod rig;

use std::fs;
use std::num::NonZeroU64;
use std::thread;

use rig::{Frames, Job, Outcome, Way, documented, run};
use tensorwire_core::memory::MemoryKind;
use tensorwire_cuda::cache::Cache;
use tensorwire_cuda::device::current_context;
use tensorwire_cuda::kernels::{Kernels, embedded};
use tensorwire_cuda::load::Origin;
use tensorwire_cuda::memory::{Lent, Region, RegionError};
use tensorwire_cuda::stream::{Event, Stream};
use tensorwire_cuda::{Choice, Gpu, Unavailable};
use tensorwire_sim::wire::WireFaults;

/// The first GPU; `None`, with the reason printed, where there is none.
fn gpu() -> Option<Gpu> {
    match Gpu::open(&Choice::Index(0)) {
        Ok(gpu) => Some(gpu),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

const CLEAN: WireFaults = WireFaults { drop: None, dup: None, shuffle: 0, seed: 1 };

/// Every 997th frame lost, every 41st twice, all of them shuffled.
fn faulty() -> WireFaults {
    let (drop, dup) = (NonZeroU64::new(997), NonZeroU64::new(41));
    WireFaults { drop, dup, shuffle: 200, seed: 7 }
}

fn job(way: Way, faults: WireFaults, threads: bool) -> Job {
    Job { way, passes: 3, faults, keep: true, threads }
}

/// Counters, deliveries and batches, byte by byte.
#[track_caller]
fn assert_same(one: &Outcome, other: &Outcome, what: &str) {
    assert_eq!(one.report.packets, other.report.packets, "{what}");
    assert_eq!(one.report.reassembly, other.report.reassembly, "{what}");
    assert_eq!(one.report.images, other.report.images, "{what}");
    assert_eq!(one.report.pushed, other.report.pushed, "{what}");
    assert_eq!(one.deliveries, other.deliveries, "{what}");
    assert_eq!(one.batches.len(), other.batches.len(), "{what}");
    for (number, (a, b)) in one.batches.iter().zip(&other.batches).enumerate() {
        let differs = a.iter().zip(b).position(|(a, b)| a != b);
        assert_eq!((differs, a.len()), (None, b.len()), "{what}: batch {number}");
    }
}

#[test]
fn a_gpu_is_found_by_its_address_and_no_context_is_left_behind() {
    let Some(gpu) = gpu() else { return };
    let thread = thread::spawn(move || {
        assert_eq!(current_context(), Ok(0), "a fresh thread has none");
        let same = Gpu::open(&Choice::Pci(gpu.pci().to_uppercase())).expect("by its address");
        assert_eq!((same.pci(), same.name()), (gpu.pci(), gpu.name()));
        let stream = Stream::new(&gpu).expect("a stream");
        let event = Event::new(&gpu, true).expect("an event");
        let region = Region::new(&gpu, MemoryKind::Device, 1 << 20).expect("memory");
        let kernels = Kernels::load(&gpu, None).expect("kernels");
        let _ = kernels.function("tw_copy").expect("a kernel");
        assert!(kernels.function("tw_no_such").is_err());
        stream.synchronize().expect("nothing to wait for");
        assert_eq!(current_context(), Ok(0), "after every kind of call");
        {
            let _entered = gpu.enter().expect("entered");
            let inside = current_context().expect("a context");
            assert_ne!(inside, 0);
            event.record(&stream).expect("recorded");
            let again = gpu.enter().expect("twice");
            drop(again);
            assert_eq!(current_context(), Ok(inside), "what was there before is there again");
        }
        event.wait().expect("it comes");
        assert_eq!(event.done(), Ok(true));
        drop((region, kernels, event, stream));
        assert_eq!(current_context(), Ok(0), "after every kind of drop");
    });
    thread.join().expect("no assertion failed");
    let missing = Gpu::open(&Choice::Pci("ffff:ff:1f.7".to_owned()));
    assert!(matches!(missing, Err(Unavailable::NoSuchGpu { .. })));
}

#[test]
fn memory_of_every_kind_holds_what_was_written_and_begins_as_zero() {
    let Some(gpu) = gpu() else { return };
    let (free, total) = gpu.memory().expect("numbers");
    assert!(free > 0 && free <= total);
    for kind in [MemoryKind::Device, MemoryKind::HostPinned, MemoryKind::Managed] {
        let region = Region::new(&gpu, kind, 1_000_003).expect("a megabyte");
        let mut bytes = vec![0xff; 1_000_003];
        region.read(0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 0), "{kind}");
        // What the last owner left, if the driver hands out the same memory again.
        region.write(0, &vec![0xab; 1_000_003]).expect("written");
        drop(region);
        let region = Region::new(&gpu, kind, 1_000_003).expect("a megabyte");
        region.read(0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 0), "{kind}, the second time");
        region.write(1_000_000, &[1, 2, 3]).expect("written");
        region.read(999_999, &mut bytes[..4]).expect("read");
        assert_eq!(bytes[..4], [0, 1, 2, 3], "{kind}");
        assert!(region.write(1_000_001, &[1, 2, 3]).is_err(), "beyond the end");
        assert_eq!(region.host().is_some(), kind != MemoryKind::Device);
        if kind == MemoryKind::Device {
            assert!(Lent::new(&region).is_err(), "the CPU cannot read it");
        } else {
            let lent = Lent::new(&region).expect("once");
            assert!(matches!(Lent::new(&region), Err(RegionError::Lent)));
            drop(lent);
        }
    }
    for kind in [MemoryKind::Device, MemoryKind::Managed] {
        let refused = Region::new(&gpu, kind, total + 1).expect_err("more than there is");
        assert!(matches!(refused, RegionError::Exhausted { .. }), "{refused}");
    }
}

/// The same batches by the embedded kernels, by those that NVRTC compiles, and from its cache.
#[test]
fn kernels_are_the_same_whichever_way_they_came() {
    let Some(gpu) = gpu() else { return };
    let folder = std::env::temp_dir().join(format!("tensorwire-gpu-{}", std::process::id()));
    let cache = Cache::new(folder.clone());
    let geometry = documented();
    let frames = Frames::new(&geometry, 2).expect("frames");
    let one = |kernels: &Kernels| {
        let job = Job { passes: 1, ..job(Way::Pinned(MemoryKind::Device), CLEAN, false) };
        run(Some((&gpu, kernels)), &geometry, &frames, job).expect("a run")
    };
    let by_cpu = job(Way::Cpu, CLEAN, false);
    let expected = run(None, &geometry, &frames, Job { passes: 1, ..by_cpu }).expect("a run");
    // Not a compiled module at all: as refused as one for another GPU.
    for (embedded, cached) in [(Err("left out"), false), (Ok(&b"no module"[..]), true)] {
        match Kernels::load_from(&gpu, embedded, Some(&cache)) {
            Ok(kernels) => {
                let origin =
                    if cached { Origin::Cached } else { Origin::Compiled { not_kept: None } };
                assert_eq!(*kernels.origin(), origin);
                assert_same(&expected, &one(&kernels), &origin.to_string());
            }
            Err(why) => eprintln!("skipped: NVRTC: {why}"),
        }
    }
    match embedded() {
        Ok(_) => {
            let kernels = Kernels::load(&gpu, Some(&cache)).expect("the embedded ones");
            assert_eq!(*kernels.origin(), Origin::Embedded);
            assert_same(&expected, &one(&kernels), "embedded");
        }
        Err(why) => eprintln!("skipped: embedded kernels: {why}"),
    }
    let _ = fs::remove_dir_all(folder);
}

/// One thread, so that the order of everything is the same: every way gives the same counters, the
/// same deliveries and the same bytes.
#[test]
fn every_way_gives_the_counters_and_the_batches_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let kernels = Kernels::load(&gpu, None).expect("kernels");
    let geometry = documented();
    let frames = Frames::new(&geometry, 2).expect("frames");
    for (faults, name) in [(CLEAN, "clean"), (faulty(), "faulty")] {
        let expected = run(None, &geometry, &frames, job(Way::Cpu, faults, false)).expect("a run");
        assert!(expected.batches.len() >= 5, "{name}: {} batches", expected.batches.len());
        for way in [
            Way::Pinned(MemoryKind::HostPinned),
            Way::Pinned(MemoryKind::Device),
            Way::Device(MemoryKind::Device),
            Way::Device(MemoryKind::HostPinned),
        ] {
            let got = run(Some((&gpu, &kernels)), &geometry, &frames, job(way, faults, false));
            assert_same(&expected, &got.expect("a run"), &format!("{name}, {way:?}"));
        }
    }
}

/// On threads, as the program runs: a lossless wire, so everything has to arrive.
#[test]
fn threads_give_the_batches_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let kernels = Kernels::load(&gpu, None).expect("kernels");
    let geometry = documented();
    let frames = Frames::new(&geometry, 2).expect("frames");
    let expected = run(None, &geometry, &frames, job(Way::Cpu, CLEAN, false)).expect("a run");
    for kind in [MemoryKind::HostPinned, MemoryKind::Device] {
        let job = job(Way::Pinned(kind), CLEAN, true);
        let got = run(Some((&gpu, &kernels)), &geometry, &frames, job).expect("a run");
        assert_same(&expected, &got, &format!("{kind}"));
    }
}
