//! What is measured, and how: every ring does the same work, in rounds that take turns.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Items of a batch, and single items between two changes of side on one thread.
pub(crate) const BATCH: usize = 32;

/// Items that each ring may hold (heapless: one less).
pub(crate) const CAPACITY: usize = 1024;

/// Items of one run: well under a millisecond, so that many runs fall between two interruptions.
const ITEMS: u32 = 1 << 15;

/// An item that can be told from the next.
pub(crate) trait Item: Copy + Default + Send + 'static {
    fn numbered(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Item for u64 {
    #[inline]
    fn numbered(number: u64) -> Self {
        number
    }

    #[inline]
    fn number(&self) -> u64 {
        *self
    }
}

/// 64 bytes, the first and the last of which are looked at.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wide([u64; 8]);

impl Item for Wide {
    #[inline]
    fn numbered(number: u64) -> Self {
        Self([number; 8])
    }

    #[inline]
    fn number(&self) -> u64 {
        self.0[0] / 2 + self.0[7].div_ceil(2)
    }
}

/// The end of a ring that takes items.
pub(crate) trait Push<T>: Send {
    /// False when the ring is full.
    fn push(&mut self, item: T) -> bool;

    /// As many from the front as there is room for; how many.
    fn push_batch(&mut self, items: &mut [T]) -> usize;
}

/// The end of a ring that gives items.
pub(crate) trait Pop<T>: Send {
    fn pop(&mut self) -> Option<T>;

    /// As many as there are and fit; how many.
    fn pop_batch(&mut self, out: &mut [T]) -> usize;
}

/// A kind of ring: makes a new one and lets both ends run.
pub(crate) trait Kind {
    const NAME: &'static str;

    fn run<T: Item>(race: Race) -> Duration;
}

/// One way to move items through a ring.
#[derive(Clone, Copy)]
pub(crate) struct Race {
    two_threads: bool,
    batches: bool,
}

impl Race {
    /// The time from the first item to the last.
    pub(crate) fn run<T: Item>(self, mut tx: impl Push<T>, mut rx: impl Pop<T>) -> Duration {
        // Every slot twice, so that its memory is there and the branches are known.
        one_thread(&mut tx, &mut rx, self.batches, 2 * CAPACITY as u64);
        // The threads are new ones, so that this one stays where it may be. Each has its end on its
        // own stack: side by side the two would share a cache line.
        thread::scope(|scope| {
            if !self.two_threads {
                let run = move || {
                    pin(0);
                    let start = Instant::now();
                    one_thread(&mut tx, &mut rx, self.batches, ITEMS.into());
                    start.elapsed()
                };
                return scope.spawn(run).join().expect("the run does not panic");
            }
            let ready = Arc::new(AtomicU32::new(0));
            let there = Arc::clone(&ready);
            scope.spawn(move || {
                pin(0);
                meet(&there);
                send(&mut tx, self.batches, ITEMS.into());
            });
            let receiver = scope.spawn(move || {
                pin(1);
                meet(&ready);
                let start = Instant::now();
                receive(&mut rx, self.batches, ITEMS.into());
                start.elapsed()
            });
            receiver.join().expect("the receiver does not panic")
        })
    }
}

/// Binds this thread to one of the cores that the process may use; where there are too few, or the
/// system refuses, the thread stays free, and [`table`] says so.
fn pin(core: usize) -> bool {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    cores.get(core).is_some_and(|&id| core_affinity::set_for_current(id))
}

/// Waits until the other thread is here too.
fn meet(ready: &AtomicU32) {
    ready.fetch_add(1, Ordering::AcqRel);
    while ready.load(Ordering::Acquire) < 2 {
        spin_loop();
    }
}

/// Waits a moment; gives the core away when it takes long, as it does where there is one core.
#[inline]
fn wait(turns: &mut u32) {
    *turns += 1;
    if turns.is_multiple_of(1 << 14) {
        thread::yield_now();
    } else {
        spin_loop();
    }
}

/// Looks at an item, all of it as far as the compiler knows.
#[inline]
fn look<T: Item>(item: &T, expected: u64) {
    assert_eq!(black_box(item).number(), expected, "lost, there twice or out of order");
}

#[inline]
fn one_thread<T: Item>(tx: &mut impl Push<T>, rx: &mut impl Pop<T>, batches: bool, items: u64) {
    let mut batch = [T::default(); BATCH];
    for start in (0..items).step_by(BATCH) {
        if batches {
            for (item, number) in batch.iter_mut().zip(start..) {
                *item = T::numbered(number);
            }
            assert_eq!(tx.push_batch(black_box(&mut batch)), BATCH);
            assert_eq!(rx.pop_batch(&mut batch), BATCH);
            for (item, number) in black_box(&batch).iter().zip(start..) {
                assert_eq!(item.number(), number, "lost, there twice or out of order");
            }
        } else {
            for number in (start..).take(BATCH) {
                assert!(tx.push(T::numbered(black_box(number))));
            }
            for number in (start..).take(BATCH) {
                look(&rx.pop().expect("as many as went in"), number);
            }
        }
    }
}

#[inline]
fn send<T: Item>(tx: &mut impl Push<T>, batches: bool, items: u64) {
    let mut turns = 0;
    if !batches {
        for number in 0..items {
            while !tx.push(T::numbered(black_box(number))) {
                wait(&mut turns);
            }
        }
        return;
    }
    let mut batch = [T::default(); BATCH];
    for start in (0..items).step_by(BATCH) {
        for (item, number) in batch.iter_mut().zip(start..) {
            *item = T::numbered(number);
        }
        let mut rest = &mut black_box(&mut batch)[..];
        while !rest.is_empty() {
            let pushed = tx.push_batch(rest);
            rest = &mut rest[pushed..];
            if pushed == 0 {
                wait(&mut turns);
            }
        }
    }
}

#[inline]
fn receive<T: Item>(rx: &mut impl Pop<T>, batches: bool, items: u64) {
    let mut turns = 0;
    let mut batch = [T::default(); BATCH];
    let mut expected = 0;
    while expected < items {
        let before = expected;
        if batches {
            let popped = rx.pop_batch(&mut batch);
            for item in &black_box(&batch)[..popped] {
                assert_eq!(item.number(), expected, "lost, there twice or out of order");
                expected += 1;
            }
        } else if let Some(item) = rx.pop() {
            look(&item, expected);
            expected += 1;
        }
        if expected == before {
            wait(&mut turns);
        }
    }
}

/// A ring in the table.
pub(crate) struct Entry {
    name: &'static str,
    narrow: fn(Race) -> Duration,
    wide: fn(Race) -> Duration,
}

impl Entry {
    pub(crate) const fn of<K: Kind>() -> Self {
        Self { name: K::NAME, narrow: K::run::<u64>, wide: K::run::<Wide> }
    }
}

/// A column of the table.
struct Cell {
    name: String,
    race: Race,
    wide: bool,
}

impl Cell {
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for (two_threads, threads) in [(false, "1 thread"), (true, "2 threads")] {
            for (batches, how) in [(false, "single"), (true, "batch")] {
                for (wide, bytes) in [(false, "8 B"), (true, "64 B")] {
                    let name = format!("{threads}, {how}, {bytes}");
                    cells.push(Self { name, race: Race { two_threads, batches }, wide });
                }
            }
        }
        cells
    }

    /// Nanoseconds per item of one run.
    fn run(&self, entry: &Entry) -> f64 {
        let run = if self.wide { entry.wide } else { entry.narrow };
        run(self.race).as_secs_f64() * 1e9 / f64::from(ITEMS)
    }
}

/// Runs every ring in every cell, round by round, and prints the fastest and the median run of
/// each. Noise falls on all alike: in a round the rings take turns, each round begins with another.
pub(crate) fn table(entries: &[Entry], ours: usize, rounds: usize) {
    println!("ns per item, fastest (median) of {rounds} rounds; batches of {BATCH}");
    for core in 0..2 {
        if !thread::spawn(move || pin(core)).join().expect("pinning does not panic") {
            println!("core {core} cannot be had: its thread is not pinned");
        }
    }
    // The first `ours` columns are ours; the better of them stands for us.
    print!("{:24}", "");
    for entry in entries {
        print!("{:>17}", entry.name);
    }
    println!("{:>17}", "best other / ours");
    for cell in Cell::all() {
        let mut times = vec![Vec::with_capacity(rounds); entries.len()];
        for round in 0..rounds {
            for turn in 0..entries.len() {
                let entry = (round + turn) % entries.len();
                times[entry].push(cell.run(&entries[entry]));
            }
        }
        print!("{:24}", cell.name);
        for times in &mut times {
            times.sort_unstable_by(f64::total_cmp);
            print!("{:>17}", format!("{:.2} ({:.2})", times[0], times[rounds / 2]));
        }
        let ratio = |at: usize| {
            let best = |part: &[Vec<f64>]| {
                part.iter().map(|times| times[at]).min_by(f64::total_cmp).unwrap_or(f64::NAN)
            };
            best(&times[ours..]) / best(&times[..ours])
        };
        println!("{:>17}", format!("{:.2} ({:.2})", ratio(0), ratio(rounds / 2)));
    }
}
