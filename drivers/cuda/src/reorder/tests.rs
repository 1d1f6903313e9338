//! The stage over a stand-in for the stream, which does on the CPU what the kernel does, and only
//! when the event is asked for: whoever gives a packet back too early, or writes to a list that is
//! still read, gets other bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tensorwire_core::burst::{BurstPool, Ready};
use tensorwire_core::geometry::GeometrySpec;
use tensorwire_core::port::{RxQueue, TxQueue};
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, SwRx, SwTx, TxMode};
use tensorwire_sim::pool::{BatchMemory, PacketView};
use tensorwire_sim::prng::Prng;
use tensorwire_sim::reorder::CpuReorder;

use super::*;

/// 16 slots of 192 payload bytes, behind 64 bytes of header.
const MINI: GeometrySpec = GeometrySpec {
    channels: 3,
    height: 16,
    width: 16,
    packets_per_image: 4,
    images_per_batch: 4,
    payload_bytes: 192,
    seq_bit_width: 8,
    ..GeometrySpec::DOCUMENTED
};
const SLOTS: u32 = 16;
const BUFFERS: u16 = 3;
const PACKETS: usize = 100;

/// What both the test and the stage see of the stand-in.
#[derive(Debug, Default)]
struct Shared {
    /// Polls until the oldest job is done.
    lag: u32,
    /// The next submission, or the next poll, fails with this code.
    submit_fails: Option<u32>,
    poll_fails: Option<u32>,
    out: Vec<Vec<u8>>,
    finished: u32,
    lists: Vec<Vec<u64>>,
    jobs: VecDeque<(usize, u32)>,
    /// Frames by address, as the NIC holds them: the test's view of device memory.
    frames: HashMap<u64, Vec<u8>>,
}

impl Shared {
    /// What the kernel does with the list of a buffer.
    fn run(&mut self, buffer: usize) {
        let kernel = Kernel::new(Conversion::Int8ToFp16);
        for (slot, address) in self.lists[buffer].iter().enumerate() {
            let out = &mut self.out[buffer][slot * 384..][..384];
            match self.frames.get(address) {
                _ if *address == 0 => out.fill(0),
                Some(frame) => kernel.convert(&frame[64..], out),
                None => panic!("a packet that was given back is read"),
            }
        }
    }
}

/// The stand-in; one list at a time is lent to the stage.
#[derive(Debug)]
struct Fake {
    shared: Arc<Mutex<Shared>>,
    lent: Vec<Vec<u64>>,
}

impl Queue for Fake {
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]> {
        let running = self.shared.lock().expect("one thread").jobs.iter().any(|j| j.0 == buffer);
        assert!(!running, "the list of buffer {buffer} is asked for while a kernel reads it");
        self.lent.get_mut(buffer).map(Vec::as_mut_slice)
    }

    fn submit(&mut self, buffer: usize) -> Result<(), CudaError> {
        let mut shared = self.shared.lock().expect("one thread");
        if let Some(code) = shared.submit_fails.take() {
            return Err(CudaError { call: "cuLaunchKernelEx", code });
        }
        let lag = shared.lag;
        shared.lists[buffer].clone_from(&self.lent[buffer]);
        shared.jobs.push_back((buffer, lag));
        Ok(())
    }

    fn done(&mut self, buffer: usize) -> Result<bool, CudaError> {
        let mut shared = self.shared.lock().expect("one thread");
        if let Some(code) = shared.poll_fails.take() {
            return Err(CudaError { call: "cuEventQuery", code });
        }
        let front = shared.jobs.front_mut().expect("only what was submitted is asked for");
        assert_eq!(front.0, buffer, "the oldest is asked for first");
        if front.1 > 0 {
            front.1 -= 1;
            return Ok(false);
        }
        shared.run(buffer);
        shared.jobs.pop_front();
        Ok(true)
    }

    /// So many nanoseconds as the buffer's number says.
    fn took(&mut self, buffer: usize) -> Option<Nanos> {
        let running = self.shared.lock().expect("one thread").jobs.iter().any(|j| j.0 == buffer);
        assert!(!running, "the time of a reorder that is not done is asked for");
        Some(Nanos(100 + buffer as u64))
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        self.shared.lock().expect("one thread").finished += 1;
        Ok(())
    }
}

type Stage = GpuReorder<Fake, InRegion>;

struct Bench<'a> {
    tx: SwTx<'a>,
    rx: SwRx<'a>,
    view: PacketView,
    stage: Stage,
    shared: Arc<Mutex<Shared>>,
    sent: u64,
}

fn with_bench(test: impl FnOnce(Bench<'_>, &mut BurstPool)) {
    let geometry = Geometry::new(&MINI).expect("the small geometry of the cases");
    let mut bursts = BurstPool::new(BUFFERS.into()).expect("a few");
    let mut nic = SwNic::new(SwNicConfig {
        rx_bufs: PACKETS,
        rx_buf_size: 256,
        rx_ring: 64,
        tx_bufs: 64,
        tx_buf_size: 300,
        tx_ring: 64,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    })
    .expect("small");
    let lists = vec![vec![0; SLOTS as usize]; BUFFERS.into()];
    let out = vec![vec![0xff; 6144]; BUFFERS.into()];
    let shared = Shared { lists: lists.clone(), out, ..Shared::default() };
    let shared = Arc::new(Mutex::new(shared));
    let queue = Fake { shared: Arc::clone(&shared), lent: lists };
    // The whole address space: every packet of the NIC is in it.
    let locate = InRegion::between(0, usize::MAX);
    let stage = GpuReorder::new(&geometry, (bursts.id(), BUFFERS), PACKETS, queue, locate);
    let view = nic.packets();
    let (tx, rx) = nic.split();
    test(Bench { tx, rx, view, stage, shared, sent: 0 }, &mut bursts);
}

impl Bench<'_> {
    /// A frame of `len` bytes from the wire.
    fn packet(&mut self, len: usize) -> PacketDesc {
        self.sent += 1;
        let mut prng = Prng::new(self.sent);
        let fill = |frame: &mut [u8]| frame.fill_with(|| prng.next_u64().to_le_bytes()[0]);
        self.tx.send(len, fill).expect("the pool is large enough");
        self.tx.flush();
        let mut burst = [PacketDesc::EMPTY];
        assert_eq!(self.rx.rx_burst(&mut burst), 1);
        let packet = burst[0].take();
        let bytes = self.view.bytes(&packet);
        let mut shared = self.shared.lock().expect("one thread");
        shared.frames.insert(bytes.as_ptr().addr() as u64, bytes.to_vec());
        packet
    }

    /// Places a packet; its frame.
    fn place(&mut self, filling: &mut Burst<Filling>, slot: u32, len: usize) -> Vec<u8> {
        let mut packet = [self.packet(len)];
        let bytes = self.view.bytes(&packet[0]).to_vec();
        self.stage.place(filling, slot, &mut packet[0], &self.view);
        self.release(&mut packet);
        bytes
    }

    /// Gives packets back, after which their frames cannot be read.
    fn release(&mut self, packets: &mut [PacketDesc]) {
        let mut shared = self.shared.lock().expect("one thread");
        for packet in packets.iter().filter(|packet| !packet.is_none()) {
            shared.frames.remove(&(self.view.bytes(packet).as_ptr().addr() as u64));
        }
        drop(shared);
        self.rx.release(packets);
    }

    /// One poll with little room, as often as it is filled.
    fn poll(&mut self) -> usize {
        let mut total = 0;
        loop {
            let mut done = [const { PacketDesc::EMPTY }; 5];
            let count = self.stage.poll_done(&mut done);
            assert!(done[count..].iter().all(PacketDesc::is_none));
            self.release(&mut done);
            total += count;
            if count < done.len() {
                return total;
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared.lock().expect("one thread"));
    }

    fn out(&self, buffer: u16) -> Vec<u8> {
        self.shared.lock().expect("one thread").out[usize::from(buffer)].clone()
    }
}

fn words(slots: &[u32]) -> [u64; 1] {
    [slots.iter().fold(0, |word, slot| word | 1 << slot)]
}

/// What the CPU stage makes of the same frames.
fn on_cpu(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let geometry = Geometry::new(&MINI).expect("small");
    let mut bursts = BurstPool::new(1).expect("one");
    let kernel = Kernel::new(Conversion::Int8ToFp16);
    let memory = BatchMemory::new(&bursts, 6144, kernel).expect("small");
    let mut stage = CpuReorder::at_placement(&geometry, &memory).expect("fits");
    let mut filling = bursts.take().expect("one").begin();
    struct One<'f>(&'f [u8]);
    impl PacketMemory for One<'_> {
        fn bytes<'a>(&'a self, _: &'a PacketDesc) -> &'a [u8] {
            self.0
        }
    }
    for (slot, frame) in frames {
        stage.place(&mut filling, *slot, &mut PacketDesc::default(), &One(frame));
    }
    let slots: Vec<u32> = frames.iter().map(|(slot, _)| *slot).collect();
    stage.start(&mut filling, SlotMap::new(&words(&slots), SLOTS)).expect("started");
    let ready: Burst<Ready> = filling.seal();
    let bytes = memory.bytes(&ready).expect("its own").to_vec();
    let _ = ready.discard();
    bytes
}

/// A few slots of the batch, in an order of their own.
fn some(prng: &mut Prng) -> Vec<u32> {
    let mut slots: Vec<u32> = (0..SLOTS).collect();
    for i in (1..slots.len()).rev() {
        slots.swap(i, usize::try_from(prng.below(i as u64 + 1)).expect("small"));
    }
    slots.truncate(usize::try_from(prng.below(u64::from(SLOTS) + 1)).expect("small"));
    slots
}

#[test]
fn batches_are_bit_equal_to_the_cpu_stage_whatever_is_missing_and_however_late_the_device() {
    for seed in 0..60 {
        with_bench(|mut bench, bursts| {
            let mut prng = Prng::new(seed);
            let mut placed = 0;
            for _ in 0..6 {
                let lag = u32::try_from(prng.below(4)).expect("small");
                bench.set(|shared| shared.lag = lag);
                let slots = some(&mut prng);
                let mut filling = bursts.take().expect("one").begin();
                let index = filling.index();
                let frames: Vec<(u32, Vec<u8>)> = slots
                    .iter()
                    .map(|slot| (*slot, bench.place(&mut filling, *slot, 256)))
                    .collect();
                let map = words(&slots);
                let event = bench.stage.start(&mut filling, SlotMap::new(&map, SLOTS));
                assert_eq!(event, Ok(Event(u64::from(index) + 1)));
                for _ in 0..lag {
                    assert_eq!(bench.poll(), 0, "the device still reads them");
                }
                assert_eq!(bench.poll(), slots.len());
                assert_eq!(bench.out(index), on_cpu(&frames), "seed {seed}");
                placed += slots.len() as u64;
                bursts.put(filling.seal().discard()).expect("its own");
            }
            let stats = bench.stage.stats();
            assert_eq!((stats.payloads, stats.batches, stats.abandoned), (placed, 6, 0));
            assert_eq!(stats.zeroed_slots, 6 * u64::from(SLOTS) - placed);
            assert_eq!(bench.rx.free_buffers(), PACKETS);
        });
    }
}

#[test]
fn open_batches_do_not_mix_and_packets_come_back_in_order() {
    with_bench(|mut bench, bursts| {
        bench.set(|shared| shared.lag = 1);
        let mut fillings: Vec<_> = (0..2).map(|_| bursts.take().expect("two").begin()).collect();
        let mut frames = [Vec::new(), Vec::new()];
        for slot in 0..SLOTS {
            for (filling, frames) in fillings.iter_mut().zip(&mut frames) {
                frames.push((slot, bench.place(filling, slot, 256)));
            }
        }
        let map = [u64::MAX];
        for filling in &mut fillings {
            bench.stage.start(filling, SlotMap::new(&map, SLOTS)).expect("started");
        }
        assert_eq!(bench.stage.retained(), 32);
        assert_eq!(bench.stage.next_time(), None, "neither is done");
        assert_eq!((bench.poll(), bench.poll(), bench.poll()), (0, 16, 16));
        // In order, one for each, and only once.
        for filling in &fillings {
            let took = Some(Nanos(100 + u64::from(filling.index())));
            assert_eq!(bench.stage.next_time(), took);
        }
        assert_eq!(bench.stage.next_time(), None);
        for (filling, frames) in fillings.iter().zip(&frames) {
            assert_eq!(bench.out(filling.index()), on_cpu(frames));
        }
    });
}

/// A buffer may come round before anybody has polled for its last reorder.
#[test]
fn a_buffer_that_comes_round_again_is_asked_for_first() {
    with_bench(|mut bench, bursts| {
        let filling = bursts.take().expect("one").begin();
        let index = filling.index();
        let mut filling = filling;
        bench.place(&mut filling, 3, 256);
        bench.stage.start(&mut filling, SlotMap::new(&[8], SLOTS)).expect("started");
        bursts.put(filling.seal().discard()).expect("its own");
        let mut filling = bursts.take().expect("the same").begin();
        assert_eq!(filling.index(), index);
        let frame = bench.place(&mut filling, 4, 256);
        bench.stage.start(&mut filling, SlotMap::new(&[16], SLOTS)).expect("started");
        assert_eq!(bench.poll(), 2);
        assert_eq!(bench.out(index), on_cpu(&[(4, frame)]));
        // And one whose reorder is really not done is not written to.
        bursts.put(filling.seal().discard()).expect("its own");
        bench.set(|shared| shared.lag = 9);
        let mut filling = bursts.take().expect("the same").begin();
        bench.place(&mut filling, 0, 256);
        bench.stage.start(&mut filling, SlotMap::new(&[1], SLOTS)).expect("started");
        bursts.put(filling.seal().discard()).expect("its own");
        let mut filling = bursts.take().expect("the same").begin();
        bench.place(&mut filling, 0, 256);
        let refused = bench.stage.start(&mut filling, SlotMap::new(&[1], SLOTS));
        assert_eq!(refused.expect_err("refused").code, code::PLACE);
        // The packet of the one that runs is still away; the refused one went back at once.
        assert_eq!(bench.rx.free_buffers(), PACKETS - 1);
    });
}

#[test]
fn what_does_not_fit_spoils_its_batch_and_stays_with_the_core() {
    with_bench(|mut bench, bursts| {
        // Too short, a slot beyond the batch, a slot twice: the packet goes back with its burst.
        for (slot, len, again) in [(0, 255, false), (SLOTS, 256, false), (5, 256, true)] {
            let mut filling = bursts.take().expect("one").begin();
            if again {
                bench.place(&mut filling, slot, 256);
            }
            bench.place(&mut filling, slot, len);
            assert_eq!(bench.rx.free_buffers(), PACKETS - usize::from(again));
            let map = words(&[slot % SLOTS]);
            let error = bench.stage.start(&mut filling, SlotMap::new(&map, SLOTS));
            assert_eq!(error.expect_err("refused").code, code::PLACE, "slot {slot}");
            assert_eq!(bench.poll(), usize::from(again));
            bursts.put(filling.seal().discard()).expect("its own");
        }
        // And the next one in the same buffer is whole.
        let mut filling = bursts.take().expect("one").begin();
        let frame = bench.place(&mut filling, 1, 256);
        bench.stage.start(&mut filling, SlotMap::new(&[2], SLOTS)).expect("started");
        assert_eq!(bench.poll(), 1);
        assert_eq!(bench.out(filling.index()), on_cpu(&[(1, frame)]));
    });
}

#[test]
fn a_map_that_says_something_else_is_refused() {
    with_bench(|mut bench, bursts| {
        for (map, slots) in [(0b11, SLOTS), (0, SLOTS), (0b10, SLOTS), (0b1, SLOTS - 1)] {
            let mut filling = bursts.take().expect("one").begin();
            bench.place(&mut filling, 0, 256);
            let error = bench.stage.start(&mut filling, SlotMap::new(&[map], slots));
            assert_eq!(error.expect_err("refused").code, code::MISMATCH, "{map:b} of {slots}");
            assert_eq!(bench.poll(), 1, "its packet comes back");
            bursts.put(filling.seal().discard()).expect("its own");
        }
        let mut other = BurstPool::new(1).expect("another pool");
        let mut filling = other.take().expect("one").begin();
        bench.place(&mut filling, 0, 256);
        let error = bench.stage.start(&mut filling, SlotMap::new(&[1], SLOTS));
        assert_eq!(error.expect_err("refused").code, code::WRONG_POOL);
        assert_eq!(bench.rx.free_buffers(), PACKETS);
        let _ = filling.abandon();
    });
}

#[test]
fn a_batch_that_is_given_up_gives_its_packets_back_and_leaves_nothing() {
    with_bench(|mut bench, bursts| {
        let mut filling = bursts.take().expect("one").begin();
        for slot in 0..SLOTS {
            bench.place(&mut filling, slot, 256);
        }
        bench.stage.abandon(&mut filling);
        assert_eq!((bench.poll(), bench.stage.stats().abandoned), (16, 1));
        bursts.put(filling.abandon()).expect("its own");
        // The same buffer: what was placed before is not there any more.
        let mut filling = bursts.take().expect("the same").begin();
        bench.stage.start(&mut filling, SlotMap::new(&[0], SLOTS)).expect("an empty batch");
        assert_eq!(bench.poll(), 0);
        assert_eq!(bench.out(filling.index()), vec![0; 6144]);
    });
}

#[test]
fn an_error_of_the_device_ends_the_stage_and_gives_everything_back() {
    for at_submit in [true, false] {
        with_bench(|mut bench, bursts| {
            let mut filling = bursts.take().expect("one").begin();
            bench.place(&mut filling, 0, 256);
            bench.set(|shared| {
                shared.submit_fails = at_submit.then_some(700);
                shared.poll_fails = (!at_submit).then_some(719);
            });
            let started = bench.stage.start(&mut filling, SlotMap::new(&[1], SLOTS));
            if at_submit {
                let error = started.expect_err("it failed");
                assert_eq!((error.call, error.code, error.fatal), ("cuLaunchKernelEx", 700, true));
                // What may have been enqueued is waited for before the packets go.
                assert_eq!(bench.shared.lock().expect("one thread").finished, 1);
            }
            assert_eq!(bench.poll(), 1);
            let mut next = bursts.take().expect("another").begin();
            bench.place(&mut next, 0, 256);
            let error = bench.stage.start(&mut next, SlotMap::new(&[1], SLOTS));
            let code = if at_submit { 700 } else { 719 };
            assert_eq!(error.expect_err("no more").code, code);
            assert!(bench.stage.failed().is_some());
            assert_eq!(bench.poll(), 1);
            assert_eq!(bench.rx.free_buffers(), PACKETS);
        });
    }
}

#[test]
fn the_stage_waits_for_the_device_before_it_goes() {
    let mut kept = None;
    with_bench(|mut bench, bursts| {
        let mut filling = bursts.take().expect("one").begin();
        bench.place(&mut filling, 0, 256);
        bench.stage.start(&mut filling, SlotMap::new(&[1], SLOTS)).expect("started");
        kept = Some(Arc::clone(&bench.shared));
    });
    assert_eq!(kept.expect("kept").lock().expect("one thread").finished, 1);
}

#[test]
fn packets_outside_the_region_are_not_located() {
    let region = InRegion::between(0x1000, 0x100);
    let memory = [0_u8; 64];
    let packet = PacketDesc::EMPTY;
    assert_eq!(region.frame(&packet, &memory), None);
    let base = memory.as_ptr().addr();
    let exact = InRegion { host: base, bytes: 64, device: 0x9000 };
    assert_eq!(exact.frame(&packet, &memory), Some((0x9000, 64)));
    assert_eq!(exact.frame(&packet, &memory[8..20]), Some((0x9008, 12)));
    let short = InRegion { host: base, bytes: 63, device: 0x9000 };
    assert_eq!(short.frame(&packet, &memory), None);
    let behind = InRegion { host: base + 1, bytes: 64, device: 0x9000 };
    assert_eq!(behind.frame(&packet, &memory), None);
}
