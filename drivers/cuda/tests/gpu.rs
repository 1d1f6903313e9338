//! What only a GPU can show: memory, contexts, the ways of the kernels, and whole pipelines whose
//! counters and batches are those of the CPU. Run by `tests/gpu/run.sh` on a machine that has one;
//! elsewhere each test says why it does nothing.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]

mod rig;

use std::error::Error;
use std::fs;
use std::num::NonZeroU64;
use std::thread;

use rig::{Frames, Job, Outcome, Way, documented, run};
use tensorwire_core::geometry::ElementType;
use tensorwire_core::memory::MemoryKind;
use tensorwire_cuda::cache::Cache;
use tensorwire_cuda::device::current_context;
use tensorwire_cuda::kernels::{Kernels, embedded};
use tensorwire_cuda::load::Origin;
use tensorwire_cuda::memory::{Lent, Region, RegionError};
use tensorwire_cuda::queue::{Layout, Output, Queue, Source, StreamQueue};
use tensorwire_cuda::stream::{Event, Stream};
use tensorwire_cuda::{Choice, Gpu, Unavailable};
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::prng::Prng;
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
    Job { way, passes: 3, faults, keep: true, threads, prebuilt: false }
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
    let integrated = gpu.integrated().expect("known");
    let geometry = documented();
    let frames = Frames::new(&geometry, 2).expect("frames");
    for (faults, name) in [(CLEAN, "clean"), (faulty(), "faulty")] {
        let expected = run(None, &geometry, &frames, job(Way::Cpu, faults, false)).expect("a run");
        assert!(expected.batches.len() >= 5, "{name}: {} batches", expected.batches.len());
        for way in [
            Way::Pinned(MemoryKind::HostPinned),
            Way::Pinned(MemoryKind::Device),
            Way::InPlace(MemoryKind::Device),
            Way::Device(MemoryKind::Device),
            Way::Device(MemoryKind::HostPinned),
        ] {
            let got = run(Some((&gpu, &kernels)), &geometry, &frames, job(way, faults, false));
            let got = got.expect("a run");
            assert_same(&expected, &got, &format!("{name}, {way:?}"));
            let ways = got.ways.expect("counted");
            let (bulk, in_place) = (ways.bulk(), ways.in_place());
            eprintln!("{name}, {way:?}: {bulk} batches in bulk, {in_place} in place");
            // Batches of which nothing came have nothing to copy.
            let bulk_expected = matches!(way, Way::Pinned(_)) && !integrated;
            assert_eq!(bulk > 0, bulk_expected, "{name}, {way:?}");
            assert!(in_place == 0 || !bulk_expected || faults != CLEAN, "{name}: {in_place}");
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

/// What the bench does without a sender is the same work: here on the CPU, without a GPU too.
#[test]
fn packets_that_are_there_already_give_the_same_batches() {
    let geometry = documented();
    let frames = Frames::new(&geometry, 2).expect("frames");
    let by = |threads, prebuilt| Job { prebuilt, ..job(Way::Cpu, CLEAN, threads) };
    let expected = run(None, &geometry, &frames, by(false, false)).expect("a run");
    assert_eq!(expected.batches.len(), 6);
    for threads in [false, true] {
        let got = run(None, &geometry, &frames, by(threads, true)).expect("a run");
        assert_same(&expected, &got, "prebuilt");
    }
    let Some(gpu) = gpu() else { return };
    let kernels = Kernels::load(&gpu, None).expect("kernels");
    for kind in [MemoryKind::Device, MemoryKind::HostPinned] {
        let job = Job { prebuilt: true, ..job(Way::Pinned(kind), CLEAN, true) };
        let got = run(Some((&gpu, &kernels)), &geometry, &frames, job).expect("a run");
        assert_same(&expected, &got, "prebuilt, GPU");
    }
}

/// A pool of random packets in pinned memory, and a queue that reads them.
struct Pool {
    bytes: Vec<u8>,
    packets: Region,
    output: Output,
    layout: Layout,
}

impl Pool {
    const STRIDE: usize = 1280;
    const BUFFERS: usize = 12_000;

    fn new(gpu: &Gpu, layout: Layout) -> Result<Self, RegionError> {
        let mut prng = Prng::new(23);
        let mut bytes = vec![0; Self::STRIDE * Self::BUFFERS];
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&prng.next_u64().to_le_bytes());
        }
        let packets = Region::new(gpu, MemoryKind::HostPinned, bytes.len())?;
        packets.write(0, &bytes)?;
        let output = Output::new(gpu, layout.batch_bytes(), 16, MemoryKind::Device, false)?;
        // What no kernel writes.
        let size = output.region().bytes();
        output.region().write(0, &vec![0xff; size])?;
        Ok(Self { bytes, packets, output, layout })
    }

    fn queue(&self, kernels: &Kernels, gpu: &Gpu, source: Source) -> StreamQueue {
        let (output, kept) = (self.output.clone(), vec![self.packets.clone()]);
        StreamQueue::new(kernels, gpu, &self.layout, source, output, kept).expect("a queue")
    }

    fn submit(&self, queue: &mut StreamQueue, to: usize, buffers: &[Option<usize>]) {
        let list = queue.list(to).expect("such a buffer");
        for (place, buffer) in list.iter_mut().zip(buffers) {
            let address = |at| self.packets.device_address() + (at * Self::STRIDE) as u64;
            *place = buffer.map_or(0, address);
        }
        queue.submit(to).expect("submitted");
    }

    fn payload(&self, buffer: usize) -> &[u8] {
        let first = buffer * Self::STRIDE + self.layout.payload_offset as usize;
        &self.bytes[first..][..self.layout.payload_bytes as usize]
    }

    fn batch(&self, buffer: usize) -> Vec<u8> {
        let mut batch = vec![0; self.layout.batch_bytes()];
        let stride = self.layout.batch_bytes().next_multiple_of(64);
        self.output.region().read(buffer * stride, &mut batch).expect("read");
        batch
    }
}

/// Where the packets of a batch may lie, and whether they are then copied in bulk.
fn arrangements(slots: usize) -> Vec<(&'static str, bool, Vec<Option<usize>>)> {
    let mut prng = Prng::new(7);
    let mut shuffled: Vec<_> = (500..500 + slots).map(Some).collect();
    for at in (1..slots).rev() {
        shuffled.swap(at, usize::try_from(prng.below(at as u64 + 1)).expect("small"));
    }
    let from = |first: usize| move |i: usize| Some((first + i) % Pool::BUFFERS);
    vec![
        // Nobody knows yet how far apart buffers are: all of this one is copied.
        ("one alone", true, (0..slots).map(|i| (i == 9).then_some(11_999)).collect()),
        ("in order", true, (0..slots).map(from(3000)).collect()),
        // The begin of its area is read last, and the copy after the next goes there.
        ("in reverse", true, (0..slots).rev().map(from(3000)).collect()),
        ("another alone", true, (0..slots).map(|i| (i == 4000).then_some(2)).collect()),
        ("shuffled", true, shuffled),
        ("around the end", true, (0..slots).map(from(Pool::BUFFERS - 700)).collect()),
        ("some missing", true, (0..slots).map(|i| (i % 40 != 7).then_some(i)).collect()),
        ("every second", false, (0..slots).map(|i| Some(2 * i)).collect()),
        ("in four parts", true, (0..slots).map(|i| Some(i + i / 1024 * 2000)).collect()),
        ("in many parts", false, (0..slots).map(|i| Some(i + i / 250 * 400)).collect()),
        ("none at all", false, vec![None; slots]),
    ]
}

/// Whichever way is taken, the batch is what the CPU makes of the packets. Twice round without
/// waiting: the areas that packets are copied to are used again while they are read.
#[test]
fn packets_become_the_same_batch_wherever_they_lie() -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let kernels = Kernels::load(&gpu, None)?;
    let layout = Layout::of(&documented(), false);
    let arrangements = arrangements(layout.slots as usize);
    for source in [Source::Pinned, Source::PinnedInPlace] {
        let pool = Pool::new(&gpu, layout)?;
        let mut queue = pool.queue(&kernels, &gpu, source);
        for _ in 0..2 {
            for (to, (_, _, buffers)) in arrangements.iter().enumerate() {
                pool.submit(&mut queue, to, buffers);
            }
            queue.finish()?;
        }
        for (to, (name, _, buffers)) in arrangements.iter().enumerate() {
            let batch = pool.batch(to);
            for (slot, buffer) in batch.chunks_exact(layout.slot_bytes()).zip(buffers) {
                let mut expected = vec![0; layout.slot_bytes()];
                if let Some(buffer) = buffer {
                    let kernel = Kernel::new(Conversion::Int8ToFp16);
                    kernel.convert(pool.payload(*buffer), &mut expected);
                }
                assert!(slot == expected, "{source:?}, {name}: buffer {buffer:?}");
            }
        }
        // One of 16 is timed, the first among them: in the second round those of buffer 5.
        let took: Vec<_> = (0..arrangements.len()).filter_map(|to| queue.took(to)).collect();
        assert!(took.len() == 1 && took[0].0 > 0 && took[0].0 < 100_000_000, "{took:?}");
        let near = source == Source::Pinned && !gpu.integrated()?;
        let bulk = arrangements.iter().filter(|(_, bulk, _)| near && *bulk).count() as u64;
        assert_eq!(queue.ways().bulk(), 2 * bulk, "{source:?}");
        assert_eq!(queue.ways().in_place(), 2 * (arrangements.len() as u64 - bulk));
    }
    Ok(())
}

/// The elements of a payload as numbers.
fn elements(of: ElementType, network: bool, payload: &[u8]) -> Vec<i32> {
    let nibble = |bits: u8| i32::from((bits << 4).cast_signed() >> 4);
    match of {
        ElementType::Int4 => payload.iter().flat_map(|b| [nibble(b >> 4), nibble(*b)]).collect(),
        ElementType::Int8 => payload.iter().map(|b| i32::from(b.cast_signed())).collect(),
        ElementType::Int16 => {
            let number = if network { i16::from_be_bytes } else { i16::from_le_bytes };
            payload.as_chunks().0.iter().map(|two| i32::from(number(*two))).collect()
        }
        _ => {
            let number = if network { i32::from_be_bytes } else { i32::from_le_bytes };
            payload.as_chunks().0.iter().map(|four| number(*four)).collect()
        }
    }
}

/// A number as an element of the batch. Small ones only for the two types of 16 bits, where they
/// are exact; what is rounded there is the business of the kernels' own tests.
fn bytes(of: ElementType, number: i32) -> Vec<u8> {
    let single = (number as f32).to_bits();
    match of {
        ElementType::Fp64 => f64::from(number).to_le_bytes().to_vec(),
        ElementType::Fp32 => single.to_le_bytes().to_vec(),
        ElementType::Bf16 => (single >> 16).to_le_bytes()[..2].to_vec(),
        ElementType::Fp16 if number == 0 => vec![0, 0],
        ElementType::Fp16 => {
            let exponent = (single >> 23 & 0xff) + 15 - 127;
            let half = single >> 16 & 0x8000 | exponent << 10 | single >> 13 & 0x3ff;
            half.to_le_bytes()[..2].to_vec()
        }
        _ => number.to_le_bytes().to_vec(),
    }
}

/// Every pair of types and byte orders comes through the queue as the layout says it.
#[test]
fn every_pair_of_types_comes_through_the_queue() -> Result<(), Box<dyn Error>> {
    use ElementType::{Bf16, Fp16, Fp32, Fp64, Int4, Int8, Int16, Int32};
    let Some(gpu) = gpu() else { return Ok(()) };
    let kernels = Kernels::load(&gpu, None)?;
    let buffers: Vec<_> = (0..64).map(|i| (i != 5).then_some(63 - i)).collect();
    for (input, network_order) in
        [(Int4, false), (Int8, false), (Int16, false), (Int16, true), (Int32, false), (Int32, true)]
    {
        for output in [Fp16, Bf16, Fp32, Fp64, Int32, input] {
            let wide = matches!(input, Int16 | Int32) && matches!(output, Fp16 | Bf16);
            // Swapped 16 bits have no kernel: no configuration makes a batch of them.
            let swapped = network_order && input == output;
            let copied = input == output && !swapped;
            if wide || (swapped && input == Int16) {
                continue;
            }
            let (slots, payload_offset, payload_bytes) = (64, 64, 1176);
            let layout =
                Layout { input, output, network_order, slots, payload_offset, payload_bytes };
            let pool = Pool::new(&gpu, layout)?;
            let mut queue = pool.queue(&kernels, &gpu, Source::Pinned);
            pool.submit(&mut queue, 1, &buffers);
            queue.finish()?;
            let batch = pool.batch(1);
            let slot_bytes = batch.len() / buffers.len();
            for (slot, buffer) in batch.chunks_exact(slot_bytes).zip(&buffers) {
                let expected = match buffer {
                    None => vec![0; slot_bytes],
                    Some(buffer) if copied => pool.payload(*buffer).to_vec(),
                    Some(buffer) => elements(input, network_order, pool.payload(*buffer))
                        .into_iter()
                        .flat_map(|number| bytes(output, number))
                        .collect(),
                };
                assert!(
                    slot == expected,
                    "{input} to {output}, network order {network_order}: {buffer:?}"
                );
            }
        }
    }
    Ok(())
}
