//! Reorder and conversion of a whole documented batch, beside a memcpy that moves as many bytes.
//!
//! 4096 payloads of 1176 bytes, in packet buffers of 1240 bytes in the order in which they came,
//! go into the slots of a batch; the order of the slots is shuffled within ±200 positions. Every
//! run takes the next of several packet pools and batches, which together are larger than the
//! caches: what a batch finds in them is what it finds in operation, nothing.
//!
//! `cargo bench -p tensorwire-kernels`; a word behind `--` picks benches by name.

use std::cell::Cell;
use std::sync::LazyLock;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use tensorwire_kernels::{Conversion, Isa, Kernel, Stores, widen_f16_with};

const PACKETS: usize = 4096;
const PAYLOAD: usize = 1176;
const OFFSET: usize = 64;
const BUFFER: usize = OFFSET + PAYLOAD;
/// Pools and batches in turn: 8 × (5 + 9.6) MB in the case of fp16.
const SETS: usize = 8;
/// How far from its place a packet may arrive.
const SHUFFLE: u64 = 200;

fn main() {
    divan::main();
}

/// The slot of each packet, in order of arrival.
static ARRIVAL: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut state = 1_u64;
    let mut keys: Vec<(u64, u32)> = (0_u32..)
        .take(PACKETS)
        .map(|slot| {
            // xorshift64: the same order in every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (u64::from(slot) + state % SHUFFLE, slot)
        })
        .collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, slot)| slot).collect()
});

/// `len` bytes that begin a page, all of them touched.
struct Pages(Vec<u8>, usize);

impl Pages {
    fn new(len: usize, fill: usize) -> Self {
        let bytes: Vec<u8> = (0..len + 4096).map(|i| (i * 7 + fill).to_le_bytes()[0]).collect();
        let start = bytes.as_ptr().align_offset(4096);
        Self(bytes, start)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[self.1..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0[self.1..]
    }
}

fn sets(len: usize) -> Vec<Pages> {
    (0..SETS).map(|set| Pages::new(len, set)).collect()
}

/// Counts 0, 1, … `SETS` − 1, 0, …
struct Turn(Cell<usize>);

impl Turn {
    fn next(&self) -> usize {
        self.0.replace((self.0.get() + 1) % SETS)
    }
}

/// One line of the result: a conversion by one instruction set with one kind of stores.
#[derive(Clone, Copy)]
struct Case(Kernel);

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stores = match self.0.stores() {
            Stores::Ordinary => "ordinary",
            Stores::NonTemporal => "non-temporal",
        };
        write!(f, "{} {stores}", self.0.isa())
    }
}

/// What this CPU can run.
fn cases(conversion: Conversion) -> Vec<Case> {
    let available = Isa::ALL.into_iter().filter_map(|isa| Kernel::with_isa(conversion, isa));
    available
        .flat_map(|kernel| {
            let special = (kernel.stores() == Stores::NonTemporal).then_some(Case(kernel));
            [Some(Case(kernel.with_stores(Stores::Ordinary))), special]
        })
        .flatten()
        .collect()
}

fn payload(pool: &[u8], packet: usize) -> &[u8] {
    &pool[packet * BUFFER + OFFSET..][..PAYLOAD]
}

fn traffic(width: usize) -> BytesCount {
    BytesCount::new(PACKETS * PAYLOAD * (1 + width))
}

/// A batch by one call, with one fence.
fn batch(bencher: Bencher<'_, '_>, kernel: Kernel) {
    let width = kernel.conversion().output_width();
    let (pools, mut batches) = (sets(PACKETS * BUFFER), sets(PACKETS * PAYLOAD * width));
    let turn = Turn(Cell::new(0));
    let arrival = &*ARRIVAL;
    bencher.counter(traffic(width)).bench_local(|| {
        let set = turn.next();
        let pool = pools[set].bytes();
        let placed = arrival.iter().enumerate().map(|(at, &slot)| (slot, payload(pool, at)));
        kernel.reorder(placed, black_box(batches[set].bytes_mut()), PAYLOAD * width)
    });
}

#[divan::bench(args = cases(Conversion::Int8ToFp16))]
fn int8_to_fp16(bencher: Bencher<'_, '_>, case: Case) {
    batch(bencher, case.0);
}

#[divan::bench(args = cases(Conversion::Int8ToBf16))]
fn int8_to_bf16(bencher: Bencher<'_, '_>, case: Case) {
    batch(bencher, case.0);
}

#[divan::bench(args = cases(Conversion::Int8ToFp32))]
fn int8_to_fp32(bencher: Bencher<'_, '_>, case: Case) {
    batch(bencher, case.0);
}

#[divan::bench(args = cases(Conversion::Copy))]
fn copy(bencher: Bencher<'_, '_>, case: Case) {
    batch(bencher, case.0);
}

/// A batch by one call per packet, each with its own fence.
#[divan::bench(args = cases(Conversion::Int8ToFp16))]
fn int8_to_fp16_fence_per_packet(bencher: Bencher<'_, '_>, Case(kernel): Case) {
    let (pools, mut batches) = (sets(PACKETS * BUFFER), sets(PACKETS * PAYLOAD * 2));
    let turn = Turn(Cell::new(0));
    let arrival = &*ARRIVAL;
    bencher.counter(traffic(2)).bench_local(|| {
        let set = turn.next();
        let (pool, out) = (pools[set].bytes(), black_box(batches[set].bytes_mut()));
        for (at, &slot) in arrival.iter().enumerate() {
            let slot = &mut out[slot as usize * 2 * PAYLOAD..][..2 * PAYLOAD];
            kernel.convert(payload(pool, at), slot);
        }
    });
}

/// The yardstick: as many bytes read and written as by int8 → fp16, in one copy.
#[divan::bench]
fn memcpy_of_the_same_traffic(bencher: Bencher<'_, '_>) {
    let len = PACKETS * PAYLOAD * 3 / 2;
    let (sources, mut targets) = (sets(len), sets(len));
    let turn = Turn(Cell::new(0));
    bencher.counter(traffic(2)).bench_local(|| {
        let set = turn.next();
        let target = &mut black_box(targets[set].bytes_mut())[..len];
        target.copy_from_slice(&sources[set].bytes()[..len]);
    });
}

/// fp16 → f32 into one buffer: of one image (the buffer stays in the second-level cache), and of a
/// batch.
#[derive(Clone, Copy)]
struct Widening {
    isa: Isa,
    images: usize,
}

impl std::fmt::Display for Widening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, images: {}", self.isa, self.images)
    }
}

fn widening() -> Vec<Widening> {
    let available = Isa::ALL.into_iter().filter(|isa| isa.is_available());
    available.flat_map(|isa| [1, 32].map(|images| Widening { isa, images })).collect()
}

#[divan::bench(args = widening())]
fn widen_f16(bencher: Bencher<'_, '_>, Widening { isa, images }: Widening) {
    let elements = images * PAYLOAD * 128;
    let sources = sets(2 * elements);
    let mut out = vec![0.0; elements];
    let turn = Turn(Cell::new(0));
    bencher.counter(BytesCount::new(6 * elements)).bench_local(|| {
        let source = &sources[turn.next()].bytes()[..2 * elements];
        assert!(widen_f16_with(isa, source, black_box(&mut out)), "the CPU has {isa}");
    });
}
