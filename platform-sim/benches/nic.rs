//! Frames per second through the software NIC, with frames of the documented geometry.
//!
//! `cargo bench -p tensorwire-sim --bench nic`; items per second are frames per second.

use std::hint::black_box;
use std::num::NonZeroU64;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tensorwire_core::burst::PacketDesc;
use tensorwire_core::port::{RxQueue, TxQueue};
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, TxMode};
use tensorwire_sim::wire::{Faulty, WireFaults};

/// Bytes of a frame: 64 of header, 1176 of payload.
const FRAME: usize = 1240;

/// Frames of one sample: 25 batches.
const FRAMES: u64 = 25 * 4096;

/// Frames that the sender offers before it flushes.
const STEP: usize = 64;

fn nic(rx_ring: usize) -> SwNic {
    SwNic::new(SwNicConfig {
        rx_bufs: 51_200,
        rx_buf_size: FRAME,
        rx_ring,
        tx_bufs: 51_200,
        tx_buf_size: 2048,
        tx_ring: 8192,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    })
    .expect("the documented sizes")
}

/// Frames in memory, one behind the other, each at a multiple of 64 bytes as a capture keeps them.
struct Source {
    bytes: Vec<u8>,
    base: usize,
    next: usize,
    /// Whether the queue takes them from where they lie, or has them written.
    lends: bool,
}

impl Source {
    /// Distance of two frames.
    const STRIDE: usize = FRAME.next_multiple_of(64);

    /// As many as the documented capture of 256 images has: 42 MB, more than a core's caches.
    const CAPTURE: usize = 8 * 4096;

    fn new(frames: usize, lends: bool) -> Self {
        let bytes = vec![7; frames * Self::STRIDE + 64];
        let base = bytes.as_ptr().align_offset(64);
        Self { bytes, base, next: 0, lends }
    }

    /// The frames in turn.
    fn next(&mut self) -> &[u8] {
        let at = self.base + self.next * Self::STRIDE;
        self.next += 1;
        if (self.next + 1) * Self::STRIDE > self.bytes.len() {
            self.next = 0;
        }
        &self.bytes[at..at + FRAME]
    }
}

/// Sends up to `STEP` frames; returns how many.
fn send_step<T: TxQueue>(tx: &mut T, source: &mut Source, left: u64) -> u64 {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(STEP);
    let count = tx.room().min(wanted);
    let lends = source.lends;
    for _ in 0..count {
        let bytes = source.next();
        if lends {
            tx.send_from(bytes, |front| front[0] = 1).expect("there is room");
        } else {
            tx.send(FRAME, |frame| frame.copy_from_slice(bytes)).expect("there is room");
        }
    }
    tx.flush();
    count as u64
}

/// Polls once, looks at one byte of each frame, and returns how many there were.
fn receive_step<R: RxQueue>(rx: &mut R) -> u64 {
    let mut burst = [const { PacketDesc::EMPTY }; STEP];
    let count = rx.rx_burst(&mut burst);
    for packet in &burst[..count] {
        black_box(rx.bytes(packet)[42]);
    }
    rx.release(&mut burst[..count]);
    count as u64
}

/// Lets the other thread run if there was nothing to do: there may be fewer cores than threads.
fn or_yield(done: u64) -> u64 {
    if done == 0 {
        std::thread::yield_now();
    }
    done
}

fn count<'a, 'b>(bencher: Bencher<'a, 'b>) -> Bencher<'a, 'b> {
    bencher.counter(ItemsCount::new(FRAMES)).counter(BytesCount::new(FRAMES * FRAME as u64))
}

/// Frames, and whether they are lent.
const SOURCES: [(usize, bool); 4] =
    [(1, false), (1, true), (Source::CAPTURE, false), (Source::CAPTURE, true)];

/// One frame over and over, which stays in the first cache, or those of a capture; written by a
/// closure as before a frame could be lent, or taken from where it lies.
#[divan::bench(sample_count = 20, args = SOURCES)]
fn one_thread(bencher: Bencher<'_, '_>, (frames, lends): (usize, bool)) {
    let mut nic = nic(8192);
    let mut source = Source::new(frames, lends);
    count(bencher).bench_local(|| {
        let (mut tx, mut rx) = nic.split();
        let (mut sent, mut received) = (0, 0);
        while received < FRAMES {
            sent += send_step(&mut tx, &mut source, FRAMES - sent);
            received += receive_step(&mut rx);
        }
    });
}

#[divan::bench(sample_count = 10, args = [64, 512, 8192])]
fn two_threads(bencher: Bencher<'_, '_>, rx_ring: usize) {
    let mut nic = nic(rx_ring);
    let mut source = Source::new(1, true);
    count(bencher).bench_local(|| {
        let (mut tx, mut rx) = nic.split();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sent = 0;
                while sent < FRAMES {
                    sent += or_yield(send_step(&mut tx, &mut source, FRAMES - sent));
                }
            });
            let mut received = 0;
            while received < FRAMES {
                received += or_yield(receive_step(&mut rx));
            }
        });
    });
}

#[divan::bench(sample_count = 10, args = ["none", "drop", "shuffle"])]
fn faulty_one_thread(bencher: Bencher<'_, '_>, faults: &str) {
    let faults = match faults {
        "drop" => WireFaults { drop: NonZeroU64::new(1000), ..WireFaults::default() },
        "shuffle" => WireFaults { shuffle: 200, ..WireFaults::default() },
        _ => WireFaults::default(),
    };
    let mut nic = nic(8192);
    let mut source = Source::new(1, true);
    count(bencher).bench_local(|| {
        let (tx, mut rx) = nic.split();
        let mut tx = Faulty::new(tx, faults, FRAME).expect("a small distance");
        let mut sent = 0;
        while sent < FRAMES {
            sent += send_step(&mut tx, &mut source, FRAMES - sent);
            receive_step(&mut rx);
        }
        while !tx.finish() || receive_step(&mut rx) > 0 {}
    });
}

fn main() {
    divan::main();
}
