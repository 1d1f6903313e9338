//! Packets in memory that only devices reach: a NIC that splits frames, and one that does not and
//! whose headers a GPU gathers. Who on this CPU touches a payload dies of it: the memory that the
//! receiver is given is mapped without any right, the stand-in for the NIC (`gpunic.c`) writes and
//! the one for the GPU reads through another mapping.

mod gpu;

use std::env;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tensorwire_core::burst::{Burst, BurstPool, InFlight, PacketDesc};
use tensorwire_core::counters::PacketCounters;
use tensorwire_core::flow::FlowMatch;
use tensorwire_core::header::{build, set_sequence};
use tensorwire_core::outer::{Outer, Tag};
use tensorwire_core::pipeline::Link;
use tensorwire_core::pipeline::consumer::Consumer;
use tensorwire_core::pipeline::producer::Producer;
use tensorwire_core::port::{
    Event, Infer, Outputs, PacketMemory, Reorder, RxQueue, StageError, Ticket, TxQueue,
};
use tensorwire_core::time::Nanos;
use tensorwire_cuda::gather::{GatheredRx, OnDevice};
use tensorwire_cuda::reorder::GpuReorder;
use tensorwire_dpdk::{
    Device, DpdkNic, Eal, FlowPlan, Headers, NicConfig, NicError, PacketPool, PoolSpec, Port,
    PortConfig, PortError, QueueConfig, Stage, Storage,
};
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::infer::NullInfer;
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, TxMode};
use tensorwire_sim::pool::BatchMemory;
use tensorwire_sim::reorder::CpuReorder;

use crate::places::{FRAMES, HEADER, Images, geometry, settings};
use crate::support::{FRAME, Folder, alone, alone_among, byte, cores, eal, memif_nic, pool};
use gpu::{Apart, Back, Gpu, Headers as Gathers, Stream, maps};

/// Packet buffers: two batches that are being built, and more that the GPU has.
const BUFFERS: u32 = 24_575;

/// Batch buffers.
const BATCHES: usize = 8;

/// Where payloads begin.
const OFFSET: u16 = 64;

/// Runs `body` behind the stand-in for the NIC, which is `mode`.
#[track_caller]
fn behind(mode: &str, name: &str, body: impl FnOnce()) {
    // Gone when the test is.
    let mut folder = None;
    let built = || {
        let folder = folder.insert(Folder::of(name)).path();
        let (library, source) = (folder.join("gpunic.so"), "tests/devices/ondevice/gpunic.c");
        let line = format!(
            "cc -shared -fPIC -O1 -Wall -Werror -DALLOW_EXPERIMENTAL_API \
             $(pkg-config --cflags libdpdk) -o {} {}/{source} -ldl",
            library.display(),
            env!("CARGO_MANIFEST_DIR")
        );
        let built = Command::new("sh").args(["-c", &line]).status().expect("a shell");
        assert!(built.success(), "{line}");
        let library = library.display().to_string();
        vec![("LD_PRELOAD".to_owned(), library), ("GPUNIC".to_owned(), mode.to_owned())]
    };
    alone_among(0, name, built, body);
}

/// A frame that is sent: its number, and its length.
type Sent = (u32, usize);

/// Every packet of the main job.
fn all() -> Vec<Sent> {
    (0..u32::try_from(FRAMES).expect("small")).map(|number| (number, FRAME)).collect()
}

/// Some are lost, but of the last two batches, and others come that are no packets.
fn with_faults() -> Vec<Sent> {
    let kept = |&(number, _): &Sent| number % 1000 != 17 || number > 24_576;
    let odd = |sent: Sent| {
        let (number, _) = sent;
        let more = match number % 500 {
            3 => Some((number, 60)),
            4 => Some((number, 700)),
            5 => Some((number, 1260)),
            6 => Some((number, usize::from(OFFSET))),
            _ => None,
        };
        [Some(sent), more].into_iter().flatten()
    };
    all().into_iter().filter(kept).flat_map(odd).collect()
}

fn fill(frame: &mut [u8], number: u32) {
    for (at, place) in frame.iter_mut().enumerate() {
        *place = byte(number.into(), at);
    }
    build(&HEADER, frame).expect("room for headers");
    assert!(set_sequence(frame, geometry().seq_field(), number));
}

/// Keeps what an inference would have read.
struct Seen<R> {
    inner: NullInfer,
    read: R,
    batches: Vec<Vec<u8>>,
}

impl<R: FnMut(&Burst<InFlight>) -> Vec<u8>> Infer for Seen<R> {
    fn done_on_submit(&self) -> bool {
        self.inner.done_on_submit()
    }

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        _: Event,
    ) -> Result<(), StageError> {
        self.batches.push((self.read)(input));
        self.inner.submit(ticket, input, first, images, Event::DONE)
    }

    fn take_previous<T>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> T,
    ) -> Option<Result<T, StageError>> {
        self.inner.take_previous(take)
    }

    fn poll_idle<T>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> T,
    ) -> Option<Result<T, StageError>> {
        self.inner.poll_idle(take)
    }

    fn drain<T>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> T,
    ) -> Option<Result<T, StageError>> {
        self.inner.drain(take)
    }
}

/// What became of the frames.
#[derive(PartialEq)]
struct Outcome {
    batches: Vec<Vec<u8>>,
    packets: PacketCounters,
    images: u64,
}

/// Sends frames and receives them, until all were offered.
fn drive<T: TxQueue, Q: RxQueue, O: Reorder>(
    (mut tx, rx): (T, Q),
    reorder: O,
    pool: BurstPool,
    frames: &[Sent],
    read: impl FnMut(&Burst<InFlight>) -> Vec<u8>,
) -> Outcome {
    let geometry = geometry();
    let mut link = Box::new(Link::new());
    let (producer_end, consumer_end) = link.split(8, BATCHES).expect("legal");
    let mut backlog = Vec::new();
    backlog.resize_with(BUFFERS as usize, PacketDesc::default);
    let mut producer =
        Producer::new(settings(&geometry), rx, reorder, pool, producer_end, &mut backlog);
    let images = geometry.images_per_batch();
    let infer = Seen { inner: NullInfer::default(), read, batches: Vec::new() };
    let mut consumer = Consumer::new(consumer_end, infer, Images::default(), images, images);
    producer.start(Nanos::ZERO);
    let (mut sent, mut turns, mut idle) = (0, 0, 0);
    while idle < 1000 {
        let offered = usize::try_from(producer.report().packets.offered).expect("small");
        // Many at a time, so that bursts are long.
        while let Some(&(number, len)) = frames.get(sent).filter(|_| sent - offered < 256) {
            if tx.send(len, |frame| fill(frame, number)).is_err() {
                break;
            }
            sent += 1;
        }
        tx.flush();
        producer.step(Nanos(turns));
        consumer.step();
        turns += 1;
        assert!(turns < 50_000_000, "{sent} sent: {:?}", producer.report().packets);
        idle = if offered == frames.len() { idle + 1 } else { 0 };
    }
    let packets = producer.report().packets;
    let (infer, images) = consumer.into_parts();
    Outcome { batches: infer.batches, packets, images: images.0 }
}

/// Over the software NIC, reordered by the CPU.
fn by_software(frames: &[Sent]) -> Outcome {
    let buffers = BUFFERS as usize;
    let mut nic = SwNic::new(SwNicConfig {
        rx_bufs: buffers,
        rx_buf_size: 1408,
        rx_ring: 1024,
        tx_bufs: 1024,
        tx_buf_size: 2048,
        tx_ring: 1024,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    })
    .expect("small");
    let geometry = geometry();
    let pool = BurstPool::new(BATCHES).expect("a pool");
    let kernel = Kernel::new(Conversion::Int8ToFp16);
    let memory = BatchMemory::new(&pool, geometry.batch_bytes(), kernel).expect("memory");
    let reorder = CpuReorder::at_placement(&geometry, &memory).expect("it fits");
    let read = |batch: &Burst<InFlight>| memory.bytes(batch).expect("ours").to_vec();
    drive(nic.split(), reorder, pool, frames, read)
}

fn config(folder: &Folder) -> NicConfig {
    let mut config = memif_nic(folder);
    let rx = config.rx.as_mut().expect("a receiver");
    rx.on_device = Some(OFFSET);
    rx.buffers.count = BUFFERS;
    config.tx.as_mut().expect("a sender").buffers.room_bytes = 2048;
    config
}

fn memory(config: &NicConfig, back: &Arc<Mutex<Vec<Back>>>) -> Box<Apart> {
    Apart::new(config.rx_storage_bytes().expect("a size"), back)
}

/// Over the stand-ins, in memory that no CPU reads.
fn on_device(frames: &[Sent], split: bool) -> Outcome {
    let (folder, back) = (Folder::new(), Arc::default());
    let config = config(&folder);
    let apart = memory(&config, &back);
    let reach = apart.reach();
    let gpu = Gpu::new(reach, &geometry(), BATCHES);
    let mut nic = DpdkNic::open(&config, cores(), Some(Storage::Device(apart))).expect("ports");
    nic.start().expect("they start");
    let said = nic.ports().next().and_then(Port::lying).expect("a way to the headers");
    assert_eq!(said.contains("the first 64 bytes of a frame to the host"), split, "{said}");
    let (tx, rx) = nic.split();
    let (tx, (rx, view)) = (tx.expect("a sender"), rx.expect("a receiver"));
    let pool = BurstPool::new(BATCHES).expect("a pool");
    let tokens = (pool.id(), pool.buffers());
    let locate = OnDevice(view.clone());
    let reorder = GpuReorder::new(&geometry(), tokens, BUFFERS as usize, Stream::new(&gpu), locate);
    let read = |batch: &Burst<InFlight>| {
        let (mut gpu, buffer) = (gpu.lock().expect("no panic"), usize::from(batch.index()));
        gpu.finish(buffer);
        gpu.out[buffer].clone()
    };
    let outcome = if split {
        assert!(matches!(view.headers(), Headers::Split { bytes: OFFSET, .. }));
        drive((tx, rx), reorder, pool, frames, read)
    } else {
        let rx = GatheredRx::new(rx, view.clone(), Gathers::new(reach));
        drive((tx, rx), reorder, pool, frames, read)
    };
    assert_eq!(gpu.lock().expect("no panic").payloads, outcome.packets.placed);
    drop(view);
    assert!(maps() > 0, "the device knows the memory");
    let stats = nic.rx_stats().expect("a receiver");
    assert_eq!((stats.no_buffer, stats.errors), (0, 0));
    drop(nic);
    assert_eq!(*back.lock().expect("no panic"), [Back { known: false, maps: 0 }]);
    outcome
}

#[track_caller]
fn assert_same(frames: &[Sent], split: bool) -> PacketCounters {
    let expected = by_software(frames);
    let got = on_device(frames, split);
    assert_eq!(got.packets, expected.packets);
    assert_eq!((got.images, got.batches.len()), (expected.images, expected.batches.len()));
    assert_eq!(got.batches.len(), 8);
    for (number, (got, expected)) in got.batches.iter().zip(&expected.batches).enumerate() {
        assert!(got == expected, "batch {number} differs");
    }
    expected.packets
}

/// Whole and bit-identical, and with losses and odd frames as well; those count alike.
#[track_caller]
fn assert_like_the_software_nic(faults: bool, split: bool) {
    let packets = assert_same(&if faults { with_faults() } else { all() }, split);
    if faults {
        let per_cause = FRAMES / 500 + 1;
        assert!(packets.placed < FRAMES && packets.placed > FRAMES - 40, "{packets:?}");
        assert_eq!(packets.long, per_cause, "{packets:?}");
        // Three kinds of it.
        assert_eq!(packets.short, 3 * per_cause, "{packets:?}");
    } else {
        assert_eq!((packets.offered, packets.placed), (FRAMES, FRAMES));
    }
}

#[test]
fn a_nic_that_splits_frames_brings_the_batches_of_the_software_nic() {
    let name = "ondevice::a_nic_that_splits_frames_brings_the_batches_of_the_software_nic";
    behind("split", name, || assert_like_the_software_nic(false, true));
}

#[test]
fn gathered_headers_bring_the_batches_of_the_software_nic() {
    let name = "ondevice::gathered_headers_bring_the_batches_of_the_software_nic";
    behind("whole", name, || assert_like_the_software_nic(false, false));
}

#[test]
fn losses_and_odd_frames_count_alike_when_split() {
    let name = "ondevice::losses_and_odd_frames_count_alike_when_split";
    behind("split", name, || assert_like_the_software_nic(true, true));
}

#[test]
fn losses_and_odd_frames_count_alike_when_gathered() {
    let name = "ondevice::losses_and_odd_frames_count_alike_when_gathered";
    behind("whole", name, || assert_like_the_software_nic(true, false));
}

/// Two pools for split frames, as [`DpdkNic`] has them, and the configuration of their port.
fn split_port(
    eal: &Eal,
    name: &str,
    back: &Arc<Mutex<Vec<Back>>>,
) -> (PortConfig, [PacketPool; 2]) {
    let heads = pool(eal, &format!("{name}-heads"), 1023, OFFSET.into());
    let spec =
        PoolSpec { name: name.to_owned(), buffers: 1023, frame_bytes: FRAME, device_bytes: 0 };
    let memory = Apart::new(spec.storage_bytes().expect("a size"), back);
    let payloads = PacketPool::on_device(eal, &spec, memory).expect("a pool");
    let queue = QueueConfig { ring: 256, pool: heads.clone() };
    let headers = Headers::Split { payloads: payloads.clone(), bytes: OFFSET };
    (PortConfig { rx: Some(queue), headers, ..PortConfig::default() }, [heads, payloads])
}

fn ring(eal: &Eal) -> Device {
    Device::attach(eal, "net_ring_x").expect("no port is left over")
}

#[test]
fn a_start_that_fails_gives_the_devices_memory_back() {
    let name = "ondevice::a_start_that_fails_gives_the_devices_memory_back";
    behind("split", name, || {
        let back = Arc::default();
        let eal = eal();
        let (config, pools) = split_port(&eal, "p", &back);
        for stage in Stage::OPEN {
            let refused = Port::open(ring(&eal), config.clone(), |at| at != stage);
            assert_eq!(refused.expect_err("refused"), PortError::Stopped(stage));
            assert_eq!(maps(), 0, "before {stage}");
            assert_eq!(pools.each_ref().map(PacketPool::available), [1023; 2], "before {stage}");
        }
        let mut port = Port::open(ring(&eal), config, |_| true).expect("it starts");
        assert_eq!(maps(), 2, "headers and payloads");
        assert!(port.close());
        assert_eq!((maps(), port.close()), (0, false));
        drop((port, pools));
        assert_eq!(*back.lock().expect("no panic"), [Back { known: false, maps: 0 }]);
    });
}

#[test]
fn cycles_leave_nothing() {
    let name = "ondevice::cycles_leave_nothing";
    behind("split", name, || {
        let back = Arc::default();
        let eal = eal();
        let (config, pools) = split_port(&eal, "p", &back);
        for _ in 0..300 {
            drop(Port::open(ring(&eal), config.clone(), |_| true).expect("it starts"));
        }
        assert_eq!(pools.each_ref().map(PacketPool::available), [1023; 2]);
        assert_eq!(maps(), 0);
    });
}

/// Sends frames of that length and says how many came, and how many were errors; of those that came
/// the CPU sees so many bytes.
fn received(len: usize, seen: usize) -> (usize, u64) {
    let (folder, back) = (Folder::new(), Arc::default());
    let config = config(&folder);
    let apart = memory(&config, &back);
    let mut nic = DpdkNic::open(&config, cores(), Some(Storage::Device(apart))).expect("ports");
    nic.start().expect("they start");
    let (tx, rx) = nic.split();
    let (mut tx, (mut rx, _)) = (tx.expect("a sender"), rx.expect("a receiver"));
    let mut burst = [const { PacketDesc::EMPTY }; 64];
    let (mut sent, mut got) = (0, 0);
    for _ in 0..20_000_000 {
        let room = sent < 20;
        sent += usize::from(room && tx.send(len, |frame| fill(frame, 1)).is_ok());
        tx.flush();
        let n = rx.rx_burst(&mut burst);
        for packet in &burst[..n] {
            assert_eq!(packet.len() as usize, len);
            assert_eq!(rx.bytes(packet).len(), len.min(seen));
        }
        rx.release(&mut burst[..n]);
        got += n;
        if got as u64 + rx.segmented() == 20 {
            break;
        }
    }
    let errors = nic.rx_stats().expect("a receiver").errors;
    drop(nic);
    assert_eq!(*back.lock().expect("no panic"), [Back { known: false, maps: 0 }]);
    (got, errors)
}

/// What the NIC splits into more than two is no packet.
#[test]
fn frames_in_more_than_two_parts_are_errors() {
    let name = "ondevice::frames_in_more_than_two_parts_are_errors";
    behind("split", name, || assert_eq!(received(1500, 64), (0, 20)));
}

/// Of frames that lie where it reads nothing the CPU is shown nothing: not even where they are.
#[test]
fn nothing_is_shown_of_what_the_cpu_cannot_read() {
    let name = "ondevice::nothing_is_shown_of_what_the_cpu_cannot_read";
    behind("whole", name, || assert_eq!(received(778, 0), (20, 0)));
}

/// What it splits elsewhere than it was told to is no packet either.
#[test]
fn frames_that_are_split_elsewhere_are_errors() {
    let name = "ondevice::frames_that_are_split_elsewhere_are_errors";
    behind("split", name, || assert_eq!(received(777, 64), (0, 20)));
}

#[test]
fn a_nic_that_cannot_be_given_the_memory_is_refused() {
    let name = "ondevice::a_nic_that_cannot_be_given_the_memory_is_refused";
    behind("refuse", name, || {
        let (folder, back) = (Folder::new(), Arc::default());
        let config = config(&folder);
        let apart = memory(&config, &back);
        let mut nic =
            DpdkNic::open(&config, cores(), Some(Storage::Device(apart))).expect("attached");
        let NicError::Port(PortError::Call { stage: Stage::Map, error, .. }) =
            nic.start().expect_err("no map")
        else {
            panic!("another error");
        };
        assert_eq!((error.call, error.code), ("rte_dev_dma_map", libc::EIO));
        drop(nic);
        assert_eq!(*back.lock().expect("no panic"), [Back { known: false, maps: 0 }]);
    });
}

/// A virtual device writes with this CPU: without a stand-in it is refused, and nothing is touched.
#[test]
fn a_device_that_is_software_is_refused() {
    alone("ondevice::a_device_that_is_software_is_refused", || {
        let (folder, back) = (Folder::new(), Arc::default());
        let config = config(&folder);
        let apart = memory(&config, &back);
        let mut nic =
            DpdkNic::open(&config, cores(), Some(Storage::Device(apart))).expect("attached");
        let error = nic.start().expect_err("the CPU cannot write there");
        assert!(matches!(error, NicError::Port(PortError::Software)), "{error}");
        drop(nic);
        assert_eq!(*back.lock().expect("no panic"), [Back { known: false, maps: 0 }]);
    });
}

/// Without a way for headers, and with some to take off, a port is not opened.
#[test]
fn what_the_cpu_would_have_to_reach_is_refused() {
    let name = "ondevice::what_the_cpu_would_have_to_reach_is_refused";
    behind("split", name, || {
        let back = Arc::default();
        let eal = eal();
        let (config, pools) = split_port(&eal, "p", &back);
        let queue = QueueConfig { ring: 256, pool: pools[1].clone() };
        let blind = PortConfig { rx: Some(queue), headers: Headers::InPlace, ..config.clone() };
        let refused = Port::open(ring(&eal), blind, |_| true).expect_err("no headers");
        assert_eq!(refused, PortError::Unreadable);
        let tag = Outer::Vlan(Tag { ethertype: 0x8100, control: 100 });
        let flows = FlowPlan { flows: vec![FlowMatch::any(1)], outer: vec![tag], isolation: false };
        let tagged = PortConfig { flows: Some(flows), ..config };
        let refused = Port::open(ring(&eal), tagged, |_| true).expect_err("a tag");
        assert_eq!(refused, PortError::Outer);
    });
}
