use half::f16;
use proptest::prelude::*;
use tensorwire_core::burst::{BurstPool, Ready};
use tensorwire_core::geometry::{ElementType, GeometrySpec};
use tensorwire_core::port::{RxQueue, TxQueue};
use tensorwire_kernels::{Conversion, Kernel};

use super::*;
use crate::nic::{SwNic, SwNicConfig, SwRx, SwTx};
use crate::prng::Prng;
use crate::testkit::SMALL;

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
const FRAME: usize = 256;

/// A batch of a test: the payload of every slot is drawn from its seed.
#[derive(Clone, Debug)]
struct Batch {
    seed: u64,
    /// The slots that come, in the order in which they come.
    order: Vec<u32>,
}

impl Batch {
    fn payload(&self, slot: u32) -> Vec<u8> {
        let mut prng = Prng::new(self.seed ^ u64::from(slot) << 32);
        (0..192).map(|_| prng.next_u64().to_le_bytes()[0]).collect()
    }

    /// The whole batch as it must be, element by element: the naive model.
    fn expected(&self) -> Vec<u8> {
        let mut out = vec![0; 6144];
        for slot in &self.order {
            for (i, byte) in self.payload(*slot).into_iter().enumerate() {
                let value = f16::from_f32(f32::from(byte.cast_signed()));
                let at = *slot as usize * 384 + 2 * i;
                out[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
        }
        out
    }

    fn words(&self) -> [u64; 1] {
        [self.order.iter().fold(0, |word, slot| word | 1 << slot)]
    }
}

/// A NIC, and a stage that fills batches from it.
struct Bench<'a> {
    tx: SwTx<'a>,
    rx: SwRx<'a>,
    stage: CpuReorder<'a>,
}

impl Bench<'_> {
    /// A frame of the wire: header bytes that must not turn up in a batch, then the payload.
    fn packet(&mut self, payload: &[u8]) -> PacketDesc {
        let send = |frame: &mut [u8]| {
            frame[..64].fill(0xee);
            frame[64..].copy_from_slice(payload);
        };
        self.tx.send(64 + payload.len(), send).expect("the pool is large enough");
        self.tx.flush();
        let mut burst = [PacketDesc::EMPTY];
        assert_eq!(self.rx.rx_burst(&mut burst), 1);
        burst[0].take()
    }

    fn place(&mut self, filling: &mut Burst<Filling>, slot: u32, payload: &[u8]) {
        let mut packet = [self.packet(payload)];
        self.stage.place(filling, slot, &mut packet[0], &self.rx);
        self.rx.release(&mut packet);
    }

    fn fill(&mut self, batch: &Batch, filling: &mut Burst<Filling>) {
        for slot in &batch.order {
            self.place(filling, *slot, &batch.payload(*slot));
        }
    }

    fn start(&mut self, batch: &Batch, filling: &mut Burst<Filling>) -> Result<Event, StageError> {
        self.stage.start(filling, SlotMap::new(&batch.words(), SLOTS))
    }

    /// Polls until nothing comes; returns how many packets came.
    fn drain(&mut self) -> usize {
        let mut total = 0;
        loop {
            let mut done = [const { PacketDesc::EMPTY }; 5];
            let count = self.stage.poll_done(&mut done);
            assert!(done[count..].iter().all(PacketDesc::is_none));
            self.rx.release(&mut done);
            total += count;
            if count < done.len() {
                return total;
            }
        }
    }
}

/// How many polls packets stay away for, or `None` for conversion at placement.
type Mode = Option<u32>;

fn with_bench<R>(
    mode: Mode,
    buffers: usize,
    test: impl FnOnce(Bench<'_>, &mut BurstPool, &BatchMemory) -> R,
) -> R {
    let geometry = Geometry::new(&MINI).expect("the small geometry of the cases");
    let mut bursts = BurstPool::new(buffers).expect("a few");
    let memory =
        BatchMemory::new(&bursts, 6144, Kernel::new(Conversion::Int8ToFp16)).expect("small");
    let config = SwNicConfig { rx_bufs: 100, rx_ring: 16, ..SMALL };
    let mut nic = SwNic::new(SwNicConfig { rx_buf_size: FRAME, ..config }).expect("small");
    let stage = match mode {
        None => CpuReorder::at_placement(&geometry, &memory),
        Some(lag) => CpuReorder::at_close(&geometry, &memory, nic.packets(), lag),
    };
    let (tx, rx) = nic.split();
    test(Bench { tx, rx, stage: stage.expect("fits") }, &mut bursts, &memory)
}

fn all(seed: u64) -> Batch {
    Batch { seed, order: (0..SLOTS).rev().collect() }
}

fn bytes(memory: &BatchMemory, batch: &Burst<Ready>) -> Vec<u8> {
    memory.bytes(batch).expect("its own, and in order").to_vec()
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let slots = Just((0..SLOTS).collect::<Vec<_>>()).prop_shuffle();
    let batch = (any::<u64>(), slots, 0..=16_usize).prop_map(|(seed, mut order, len)| {
        order.truncate(len);
        Batch { seed, order }
    });
    proptest::collection::vec(batch, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    /// All batches go through one buffer, one after the other: what is missing in one was there in
    /// an earlier one.
    #[test]
    fn a_batch_is_what_the_model_says_in_both_modes(batches in batches(), lag in 0..3_u32) {
        for mode in [None, Some(lag)] {
            with_bench(mode, 1, |mut bench, bursts, memory| {
                let mut stats = ReorderStats::default();
                for batch in &batches {
                    let mut filling = bursts.take().expect("one").begin();
                    bench.fill(batch, &mut filling);
                    let kept = if mode.is_some() { batch.order.len() } else { 0 };
                    assert_eq!(bench.rx.free_buffers(), 100 - kept);
                    assert_eq!(bench.drain(), 0, "nothing comes back from an open batch");
                    assert_eq!(bench.start(batch, &mut filling), Ok(Event::DONE));
                    let ready = filling.seal();
                    assert_eq!(bytes(memory, &ready), batch.expected());
                    if kept > 0 {
                        assert!((0..lag).all(|_| bench.drain() == 0));
                    }
                    assert_eq!(bench.drain(), kept);
                    assert_eq!(bench.rx.free_buffers(), 100);
                    bursts.put(ready.discard()).expect("its own");
                    let count = batch.order.len() as u64;
                    stats.batches += 1;
                    stats.payload_copies += count;
                    stats.payload_bytes += 192 * count;
                    stats.zeroed_slots += u64::from(SLOTS) - count;
                }
                assert_eq!(bench.stage.stats(), stats);
            });
        }
    }
}

#[test]
fn open_batches_do_not_mix() {
    for mode in [None, Some(0)] {
        with_bench(mode, 4, |mut bench, bursts, memory| {
            let batches: Vec<Batch> = (0..4).map(all).collect();
            let mut fillings: Vec<_> =
                (0..4).map(|_| bursts.take().expect("four").begin()).collect();
            for slot in 0..SLOTS {
                for (batch, filling) in batches.iter().zip(&mut fillings) {
                    bench.place(filling, slot, &batch.payload(slot));
                }
            }
            for (batch, mut filling) in batches.iter().zip(fillings) {
                bench.start(batch, &mut filling).expect("complete");
                assert_eq!(bytes(memory, &filling.seal()), batch.expected());
            }
            assert_eq!(bench.drain(), mode.map_or(0, |_| 64));
            assert_eq!(bench.rx.free_buffers(), 100);
        });
    }
}

#[test]
fn an_abandoned_batch_gives_its_packets_back() {
    for mode in [None, Some(3)] {
        with_bench(mode, 1, |mut bench, bursts, memory| {
            let mut filling = bursts.take().expect("one").begin();
            bench.fill(&all(1), &mut filling);
            bench.stage.abandon(&mut filling);
            // At once: a batch that is given up has nothing to wait for.
            assert_eq!(bench.drain(), mode.map_or(0, |_| 16));
            assert_eq!(bench.rx.free_buffers(), 100);
            let mut filling = filling.abandon().begin();
            let batch = Batch { seed: 2, order: vec![3] };
            bench.fill(&batch, &mut filling);
            bench.start(&batch, &mut filling).expect("complete");
            assert_eq!(bytes(memory, &filling.seal()), batch.expected());
            assert_eq!(bench.stage.stats().abandoned, 1);
        });
    }
}

fn error(code: i32) -> Result<Event, StageError> {
    Err(StageError { call: "CPU reorder", code, fatal: true })
}

#[test]
fn a_batch_with_a_packet_that_cannot_be_placed_is_refused() {
    for mode in [None, Some(0)] {
        with_bench(mode, 1, |mut bench, bursts, _| {
            let mut filling = bursts.take().expect("one").begin();
            for (slot, len) in [(3, 191), (16, 192), (u32::MAX, 192)] {
                let batch = Batch { seed: 1, order: vec![slot % SLOTS] };
                bench.place(&mut filling, slot, &vec![1; len]);
                assert_eq!(bench.start(&batch, &mut filling), error(code::PLACE), "{slot} {len}");
                bench.drain();
                assert_eq!(bench.rx.free_buffers(), 100, "no packet is lost");
            }
            // The batch after it is as good as any.
            bench.fill(&all(1), &mut filling);
            bench.start(&all(1), &mut filling).expect("complete");
        });
    }
}

#[test]
fn a_slot_that_was_not_placed_is_not_taken_on_trust() {
    for mode in [None, Some(0)] {
        with_bench(mode, 1, |mut bench, bursts, _| {
            let mut filling = bursts.take().expect("one").begin();
            let placed = Batch { seed: 1, order: vec![1, 2] };
            let more = Batch { seed: 1, order: vec![1, 2, 3] };
            for claimed in [&more, &Batch { seed: 1, order: vec![] }] {
                bench.fill(&placed, &mut filling);
                assert_eq!(bench.start(claimed, &mut filling), error(code::MISMATCH));
            }
            if mode.is_some() {
                let other = Batch { seed: 1, order: vec![1, 3] };
                bench.fill(&placed, &mut filling);
                assert_eq!(bench.start(&other, &mut filling), error(code::MISMATCH));
            }
            let small = [0b110];
            bench.fill(&placed, &mut filling);
            let start = bench.stage.start(&mut filling, SlotMap::new(&small, 8));
            assert_eq!(start, error(code::MISMATCH));
        });
    }
}

#[test]
fn a_batch_of_another_pool_is_refused() {
    for mode in [None, Some(0)] {
        with_bench(mode, 1, |mut bench, _, _| {
            let mut others = BurstPool::new(1).expect("one");
            let mut foreign = others.take().expect("one").begin();
            bench.fill(&all(1), &mut foreign);
            assert_eq!(bench.start(&all(1), &mut foreign), error(code::WRONG_POOL));
            bench.drain();
            assert_eq!(bench.rx.free_buffers(), 100);
        });
    }
}

#[test]
fn a_slot_placed_twice_loses_no_packet() {
    with_bench(Some(0), 1, |mut bench, bursts, _| {
        let mut filling = bursts.take().expect("one").begin();
        bench.place(&mut filling, 1, &[1; 192]);
        bench.place(&mut filling, 1, &[2; 192]);
        assert_eq!(bench.rx.free_buffers(), 99);
        let batch = Batch { seed: 1, order: vec![1] };
        assert_eq!(bench.start(&batch, &mut filling), error(code::PLACE));
        assert_eq!((bench.drain(), bench.rx.free_buffers()), (1, 100));
    });
}

#[test]
fn more_open_batches_than_windows_lose_no_packet() {
    with_bench(Some(0), MAX_WINDOWS + 1, |mut bench, bursts, _| {
        let mut fillings = Vec::new();
        while let Some(free) = bursts.take() {
            let mut filling = free.begin();
            bench.place(&mut filling, 0, &[1; 192]);
            fillings.push(filling);
        }
        assert_eq!(bench.rx.free_buffers(), 100 - MAX_WINDOWS);
        let batch = Batch { seed: 1, order: vec![0] };
        let mut last = fillings.pop().expect("one more than windows");
        assert_eq!(bench.start(&batch, &mut last), error(code::PLACE));
        for mut filling in fillings {
            bench.start(&batch, &mut filling).expect("complete");
        }
        assert_eq!((bench.drain(), bench.rx.free_buffers()), (MAX_WINDOWS, 100));
    });
}

#[test]
fn batches_that_nobody_polls_for_pile_up_within_bounds() {
    with_bench(Some(1), 1, |mut bench, bursts, _| {
        let mut filling = bursts.take().expect("one").begin();
        let batch = Batch { seed: 1, order: vec![0] };
        for _ in 0..90 {
            bench.fill(&batch, &mut filling);
            bench.start(&batch, &mut filling).expect("complete");
        }
        let retained = bench.stage.retained.as_ref().expect("this mode");
        assert!(retained.running.len() <= MAX_BATCH_BUFFERS);
        let total: usize = (0..200).map(|_| bench.drain()).sum();
        assert_eq!((total, bench.rx.free_buffers()), (90, 100));
    });
}

#[test]
fn memory_that_does_not_fit_is_an_error_with_numbers() {
    let geometry = Geometry::new(&MINI).expect("the small geometry of the cases");
    let bursts = BurstPool::new(1).expect("one");
    let memory = |bytes, conversion| {
        BatchMemory::new(&bursts, bytes, Kernel::new(conversion)).expect("small")
    };
    let refused = |memory: &BatchMemory| {
        CpuReorder::at_placement(&geometry, memory).map(|_| ()).expect_err("does not fit")
    };
    let slot = FitError::Slot { converted: 768, slot: 384 };
    assert_eq!(refused(&memory(6144, Conversion::Int8ToFp32)), slot);
    let batch = FitError::Batch { batch: 6144, buffer: 6145 };
    assert_eq!(refused(&memory(6145, Conversion::Int8ToFp16)), batch);
    let same = GeometrySpec { output: ElementType::Int8, ..MINI };
    let same = Geometry::new(&same).expect("int8 out");
    let copied = memory(3072, Conversion::Copy);
    CpuReorder::at_placement(&same, &copied).expect("fits");
}
