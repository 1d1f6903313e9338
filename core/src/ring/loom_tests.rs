//! Every interleaving of two threads at a small ring, through loom's atomics and cells.
//!
//! Where nothing else is said the search is exhaustive. An item that is dropped never or twice
//! fails the run. `core/loom.sh` also runs these tests on a ring with one ordering weakened at a
//! time; each of those must fail here.

use std::sync::atomic::AtomicBool;

use loom::alloc::Track;
use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::Flag;

/// An item that fails the run when it is dropped never (loom's part) or twice.
struct Item {
    number: u32,
    /// Leaked, a byte each: after a second drop it must still be there to be looked at. Not loom's:
    /// it is no part of what is explored.
    dropped: &'static AtomicBool,
    _track: Track<()>,
}

impl Item {
    fn new(number: u32) -> Self {
        let dropped = Box::leak(Box::new(AtomicBool::new(false)));
        Self { number, dropped, _track: Track::new(()) }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        assert!(!self.dropped.swap(true, Ordering::Relaxed), "item {} twice", self.number);
    }
}

type Tx<T> = Sender<'static, T, 4>;
type Rx<T> = Receiver<'static, T, 4>;

/// A ring whose counters wrap within the test, lent to two threads.
struct Shared<T: 'static>(*mut Ring<T, 4>);

impl<T: 'static> Shared<T> {
    fn split(capacity: usize) -> (Self, Tx<T>, Rx<T>) {
        let ring = Box::into_raw(Box::new(Ring::starting_at(u32::MAX - 1)));
        // SAFETY: the pointer is of a live box that nothing else points to; `take_back` is the only
        // other use, and its caller has dropped both ends by then.
        let (tx, rx) = unsafe { &mut *ring }.split(capacity).expect("within the slots");
        (Self(ring), tx, rx)
    }

    /// The ring itself, once both ends are gone.
    fn take_back(self) -> Box<Ring<T, 4>> {
        // SAFETY: the pointer came from a box; every test drops or moves away both ends, and joins
        // the thread that they went to, before it calls this.
        unsafe { Box::from_raw(self.0) }
    }
}

/// Runs `sender` in a thread of its own against `receiver` in this one, then returns the ring.
fn against<T: Send + 'static>(
    capacity: usize,
    sender: impl FnOnce(Tx<T>) + Send + 'static,
    receiver: impl FnOnce(Rx<T>),
) -> Box<Ring<T, 4>> {
    let (shared, tx, rx) = Shared::split(capacity);
    let thread = thread::spawn(move || sender(tx));
    receiver(rx);
    thread.join().expect("the sender does not panic");
    shared.take_back()
}

/// Single pushes and pops, each tried once: whatever was taken arrives in order, and the rest is
/// still in the ring.
fn try_each(capacity: usize, items: u32) {
    loom::model(move || {
        let (shared, mut tx, mut rx) = Shared::split(capacity);
        let thread = thread::spawn(move || {
            (0..items).filter(|&i| tx.push(Item::new(i)).is_ok()).collect::<Vec<_>>()
        });
        let mut got: Vec<u32> = Vec::new();
        for _ in 0..items {
            got.extend(rx.pop().map(|item| item.number));
        }
        let taken = thread.join().expect("the sender does not panic");
        got.extend(std::iter::from_fn(|| rx.pop()).map(|item| item.number));
        assert_eq!(got, taken);
        assert!(taken.len() >= capacity.min(items as usize), "refused with room left");
        drop(shared.take_back());
    });
}

/// Single pushes and pops, each repeated until it succeeds: the ring wraps, both ends wait for
/// each other, and every item arrives.
fn insist(capacity: usize, items: u32) {
    loom::model(move || {
        drop(against(
            capacity,
            move |mut tx| {
                for i in 0..items {
                    let mut item = Item::new(i);
                    while let Err(Full(back)) = tx.push(item) {
                        item = back;
                        thread::yield_now();
                    }
                }
            },
            |mut rx| {
                for i in 0..items {
                    let item = loop {
                        match rx.pop() {
                            Some(item) => break item,
                            None => thread::yield_now(),
                        }
                    };
                    assert_eq!(item.number, i);
                }
                assert!(rx.pop().is_none());
            },
        ));
    });
}

#[test]
fn loom_try_capacity_1() {
    for items in 1..=3 {
        try_each(1, items);
    }
}

#[test]
fn loom_try_capacity_2() {
    for items in 1..=3 {
        try_each(2, items);
    }
}

#[test]
fn loom_try_capacity_3() {
    for items in 1..=3 {
        try_each(3, items);
    }
}

#[test]
fn loom_insist_capacity_1() {
    for items in 1..=3 {
        insist(1, items);
    }
}

#[test]
fn loom_insist_capacity_2() {
    for items in 1..=3 {
        insist(2, items);
    }
}

#[test]
fn loom_insist_capacity_3() {
    for items in 1..=3 {
        insist(3, items);
    }
}

/// Batches of three through a ring of one to three, taken out in batches of two.
#[test]
fn loom_batches() {
    for capacity in 1..=3 {
        loom::model(move || {
            drop(against(
                capacity,
                move |mut tx| {
                    let mut items = [1, 2, 3].map(|i| Some(Item::new(i)));
                    let mut sent = 0;
                    while sent < items.len() {
                        let pushed = tx.push_batch(&mut items[sent..]);
                        assert!(items[sent..sent + pushed].iter().all(Option::is_none));
                        sent += pushed;
                        if pushed == 0 {
                            thread::yield_now();
                        }
                    }
                },
                |mut rx| {
                    let mut expected = 1;
                    while expected <= 3 {
                        let mut out = [None, None];
                        let popped = rx.pop_batch(&mut out);
                        for item in out.iter().take(popped) {
                            let item = item.as_ref().expect("popped");
                            assert_eq!(item.number, expected);
                            expected += 1;
                        }
                        if popped == 0 {
                            thread::yield_now();
                        }
                    }
                },
            ));
        });
    }
}

/// Three items in batches of every size, pushed and popped, by moving and by copying; the items
/// need no drop, so these are the batches that copy at once.
///
/// At most two forced switches of threads per execution.
#[test]
fn loom_batches_of_every_size() {
    for capacity in 1..=3 {
        for (pushed, popped) in (1..=3).flat_map(|n| (1..=3).map(move |m| (n, m))) {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(2);
            builder.check(move || {
                drop(against(
                    capacity,
                    move |mut tx| {
                        let mut items = [1, 2, 3];
                        let mut sent = 0;
                        while sent < items.len() {
                            let end = items.len().min(sent + pushed);
                            let moved = match sent % 2 {
                                0 => tx.push_batch(&mut items[sent..end]),
                                _ => tx.push_slice(&items[sent..end]),
                            };
                            sent += moved;
                            if moved == 0 {
                                thread::yield_now();
                            }
                        }
                    },
                    move |mut rx| {
                        let mut expected = 1;
                        while expected <= 3 {
                            let mut out = [0_u32; 3];
                            let count = rx.pop_batch(&mut out[..popped]);
                            for &item in &out[..count] {
                                assert_eq!(item, expected);
                                expected += 1;
                            }
                            if count == 0 {
                                thread::yield_now();
                            }
                        }
                    },
                ));
            });
        }
    }
}

/// Either end may go first, with items still in the ring: dropped early by its thread, or moved
/// out and dropped by the other.
///
/// At most three forced switches of threads per execution.
#[test]
fn loom_drop_orders() {
    for items in 1..=3_u32 {
        for sender_first in [true, false] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(move || {
                let (shared, mut tx, mut rx) = Shared::split(3);
                let thread = thread::spawn(move || {
                    for i in 0..items {
                        assert!(tx.push(Item::new(i)).is_ok(), "three slots");
                    }
                    if sender_first {
                        drop(tx)
                    } else {
                        return Some(tx);
                    }
                    None
                });
                let first = rx.pop().map(|item| item.number);
                assert!(first.is_none_or(|number| number == 0));
                let left = if sender_first {
                    Some(rx)
                } else {
                    drop(rx);
                    None
                };
                let tx = thread.join().expect("the sender does not panic");
                assert_eq!((tx.is_none(), left.is_some()), (sender_first, sender_first));
                drop((tx, left));
                drop(shared.take_back());
            });
        }
    }
}

/// `free` and `len` promise too little at times, never too much.
#[test]
fn loom_free_and_len_keep_their_promise() {
    loom::model(|| {
        drop(against(
            2,
            |mut tx| {
                for _ in 0..2 {
                    let free = tx.free();
                    let mut items = [Some(Item::new(0)), Some(Item::new(0))];
                    assert!(tx.push_batch(&mut items) >= free);
                }
            },
            |mut rx| {
                for _ in 0..2 {
                    let len = rx.len();
                    let mut out = [None, None];
                    assert!(rx.pop_batch(&mut out) >= len);
                }
            },
        ));
    });
}

/// The last item at shutdown: a consumer that sees `done` and then pops until the ring is empty has
/// had everything.
#[test]
fn loom_done_is_raised_after_the_last_item() {
    for items in 1..=2_u32 {
        loom::model(move || {
            let done = Arc::new(Flag::new());
            let raise = Arc::clone(&done);
            drop(against(
                2,
                move |mut tx| {
                    for i in 0..items {
                        assert!(tx.push(Item::new(i)).is_ok());
                    }
                    raise.set();
                },
                |mut rx| {
                    let mut got = 0;
                    loop {
                        let over = done.get();
                        while let Some(item) = rx.pop() {
                            assert_eq!(item.number, got);
                            got += 1;
                        }
                        if over {
                            break;
                        }
                        thread::yield_now();
                    }
                    assert_eq!(got, items, "an item was left behind");
                },
            ));
        });
    }
}

/// A flag publishes what came before it, without a ring.
#[test]
fn loom_a_flag_publishes() {
    loom::model(|| {
        let shared = Arc::new((UnsafeCell::new(0_u32), Flag::new()));
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            // SAFETY: the reader looks only after the flag; loom checks that.
            writer.0.with_mut(|value| unsafe { *value = 7 });
            writer.1.set();
        });
        if shared.1.get() {
            // SAFETY: the writer is done with it before the flag; loom checks that.
            assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
        }
        thread.join().expect("the writer does not panic");
    });
}

/// A producer that dies with items in the ring, and a consumer that dies before it has them: the
/// ring drops what is left, once.
#[test]
fn loom_what_is_left_is_dropped_once() {
    for popped in 0..=2 {
        loom::model(move || {
            let mut ring = against(
                2,
                |mut tx| {
                    let _ = tx.push(Some(Item::new(1)));
                    let mut items = [Some(Item::new(2)), Some(Item::new(3))];
                    let _ = tx.push_batch(&mut items);
                },
                |mut rx| {
                    for _ in 0..popped {
                        drop(rx.pop());
                    }
                },
            );
            // Split again, on another thread: what is left is still in order. One is popped, the
            // others are the ring's to drop.
            let left = thread::spawn(move || {
                let (tx, mut rx) = ring.split(2).expect("the same capacity");
                let len = rx.len();
                assert_eq!(tx.free(), 2 - len);
                let first = rx.pop().flatten().map(|item| item.number);
                assert_eq!(first.is_some(), len > 0);
                assert!(len < 2 || first < Some(3), "the last before the first");
                drop(ring);
            });
            left.join().expect("the second split does not panic");
        });
    }
}

/// The pipeline in small: two buffers travel through a job ring and come back through a return
/// ring; the buffers' content is what the rings publish.
///
/// At most three forced switches of threads per execution: without the bound it takes half a
/// minute.
#[test]
fn loom_buffers_go_round() {
    const BATCHES: u32 = 3;
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let buffers = Arc::new([UnsafeCell::new(0_u32), UnsafeCell::new(0_u32)]);
        let (jobs, mut job_tx, mut job_rx) = Shared::split(1);
        let (returns, mut return_tx, mut return_rx) = Shared::split(2);
        for buffer in 0..2_usize {
            assert!(return_tx.push(buffer).is_ok());
        }
        let filled = Arc::clone(&buffers);
        let producer = thread::spawn(move || {
            for batch in 1..=BATCHES {
                let buffer = loop {
                    match return_rx.pop() {
                        Some(buffer) => break buffer,
                        None => thread::yield_now(),
                    }
                };
                // SAFETY: whoever holds the index holds the buffer; loom checks that.
                filled[buffer].with_mut(|content| unsafe { *content = batch });
                while job_tx.push(buffer).is_err() {
                    thread::yield_now();
                }
            }
        });
        for batch in 1..=BATCHES {
            let buffer = loop {
                match job_rx.pop() {
                    Some(buffer) => break buffer,
                    None => thread::yield_now(),
                }
            };
            // SAFETY: whoever holds the index holds the buffer; loom checks that.
            buffers[buffer].with_mut(|content| assert_eq!(unsafe { *content }, batch));
            assert!(return_tx.push(buffer).is_ok(), "returning never fails");
        }
        producer.join().expect("the producer does not panic");
        drop((jobs.take_back(), returns.take_back()));
    });
}
