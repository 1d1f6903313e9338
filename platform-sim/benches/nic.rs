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

/// Sends up to `STEP` frames; returns how many.
fn send_step<T: TxQueue>(tx: &mut T, source: &[u8], left: u64) -> u64 {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(STEP);
    let count = tx.room().min(wanted);
    for _ in 0..count {
        tx.send(FRAME, |frame| frame.copy_from_slice(source)).expect("there is room");
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

#[divan::bench(sample_count = 10)]
fn one_thread(bencher: Bencher<'_, '_>) {
    let mut nic = nic(8192);
    let source = vec![7; FRAME];
    count(bencher).bench_local(|| {
        let (mut tx, mut rx) = nic.split();
        let (mut sent, mut received) = (0, 0);
        while received < FRAMES {
            sent += send_step(&mut tx, &source, FRAMES - sent);
            received += receive_step(&mut rx);
        }
    });
}

#[divan::bench(sample_count = 10, args = [64, 512, 8192])]
fn two_threads(bencher: Bencher<'_, '_>, rx_ring: usize) {
    let mut nic = nic(rx_ring);
    let source = vec![7; FRAME];
    count(bencher).bench_local(|| {
        let (mut tx, mut rx) = nic.split();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sent = 0;
                while sent < FRAMES {
                    sent += or_yield(send_step(&mut tx, &source, FRAMES - sent));
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
    let source = vec![7; FRAME];
    count(bencher).bench_local(|| {
        let (tx, mut rx) = nic.split();
        let mut tx = Faulty::new(tx, faults, FRAME).expect("a small distance");
        let mut sent = 0;
        while sent < FRAMES {
            sent += send_step(&mut tx, &source, FRAMES - sent);
            receive_step(&mut rx);
        }
        while !tx.finish() || receive_step(&mut rx) > 0 {}
    });
}

fn main() {
    divan::main();
}
