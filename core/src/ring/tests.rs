//! What one thread can see, and one run with two. All interleavings are loom's part.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// G01: a ring of N holds N, no more and no fewer; one slot is never both empty and full.
#[test]
fn g01_a_ring_of_n_holds_n() {
    for capacity in [1, 2, 3, 8] {
        let mut ring = Ring::<usize, 8>::new();
        let (mut tx, mut rx) = ring.split(capacity).expect("within the slots");
        // Several rounds: every phase of the counters against the slots.
        for round in 0..20 {
            for i in 0..capacity {
                assert_eq!((tx.free(), rx.len()), (capacity - i, i));
                assert_eq!(tx.push(round + i), Ok(()));
                assert!(!rx.is_empty());
            }
            assert_eq!((tx.free(), rx.len()), (0, capacity));
            let full = tx.push(99).expect_err("one more went in");
            assert_eq!((full.0, full.to_string().as_str()), (99, "the ring is full"));
            assert_eq!(tx.push_batch(&mut [98]), 0);
            for i in 0..capacity {
                assert_eq!(rx.pop(), Some(round + i));
            }
            assert_eq!(rx.pop(), None);
            assert!(rx.is_empty());
            // Shift the phase by one.
            assert_eq!(tx.push(0), Ok(()));
            assert_eq!(rx.pop(), Some(0));
        }
    }
}

/// G01: a capacity of 0, or beyond the storage, is refused with its numbers.
#[test]
fn g01_a_capacity_out_of_range_is_refused() {
    let mut ring = Ring::<u8, 8>::new();
    for given in [0, 9, 16, usize::MAX, (1 << 32) + 1] {
        let error = ring.split(given).expect_err("out of range");
        assert_eq!(error, CapacityError::OutOfRange { given, slots: 8 });
    }
    assert_eq!(
        ring.split(9).expect_err("out of range").to_string(),
        "a ring capacity of 9, allowed 1 to 8"
    );
    let mut ring = Ring::<u8, 1>::new();
    assert!(ring.split(1).is_ok());
    assert!(ring.split(2).is_err());
}

#[test]
fn a_second_split_goes_on_where_the_first_ended() {
    let mut ring = Ring::<u32, 4>::new();
    {
        let (mut tx, mut rx) = ring.split(3).expect("within the slots");
        for i in 0..3 {
            assert_eq!(tx.push(i), Ok(()));
        }
        assert_eq!(rx.pop(), Some(0));
    }
    // Items are left, so they must be found, and only under the capacity that placed them.
    let error = ring.split(2).expect_err("items are left");
    assert_eq!(error, CapacityError::NotEmpty { given: 2, left: 2, capacity: 3 });
    assert_eq!(error.to_string(), "a ring capacity of 2, but 2 items are left from one of 3");
    {
        let (mut tx, mut rx) = ring.split(3).expect("the same capacity");
        assert_eq!((tx.free(), rx.len()), (1, 2));
        assert_eq!(tx.push(3), Ok(()));
        assert_eq!(tx.push(4), Err(Full(4)));
        assert_eq!([rx.pop(), rx.pop(), rx.pop(), rx.pop()], [Some(1), Some(2), Some(3), None]);
    }
    // Empty again: any capacity will do, and the counters are not at zero.
    let (mut tx, mut rx) = ring.split(1).expect("the ring is empty");
    assert_eq!(rx.pop(), None, "a stale counter shows an item that is not there");
    assert_eq!(tx.push(5), Ok(()));
    assert_eq!(tx.push(6), Err(Full(6)));
    assert_eq!(rx.pop(), Some(5));
}

#[test]
fn a_small_capacity_uses_few_slots() {
    let mut ring = Ring::<u32, 1024>::new();
    for (capacity, mask) in [(1, 0), (2, 1), (3, 3), (4, 3), (5, 7), (1000, 1023), (1024, 1023)] {
        let (tx, rx) = ring.split(capacity).expect("within the slots");
        assert_eq!((tx.mask, rx.mask), (mask, mask), "capacity {capacity}");
        assert_eq!((tx.capacity(), rx.capacity()), (capacity, capacity));
    }
}

#[test]
fn counters_lie_on_lines_of_their_own() {
    let ring = Ring::<u8, 1>::new();
    let at = |line: *const Line| line as usize;
    let slots = ring.slots.as_ptr() as usize;
    assert!(at(&raw const ring.head).abs_diff(at(&raw const ring.tail)) >= 128);
    assert!(at(&raw const ring.head).abs_diff(slots) >= 128);
    assert!(at(&raw const ring.tail).abs_diff(slots) >= 128);
}

#[test]
fn a_batch_moves_what_fits_and_leaves_the_rest() {
    let mut ring = Ring::<u32, 8>::new();
    let (mut tx, mut rx) = ring.split(5).expect("within the slots");
    let mut items = [1, 2, 3, 4, 5, 6, 7];
    assert_eq!(tx.push_batch(&mut items), 5);
    assert_eq!(items, [0, 0, 0, 0, 0, 6, 7]);
    let mut out = [90; 3];
    assert_eq!(rx.pop_batch(&mut out), 3);
    assert_eq!(out, [1, 2, 3]);
    assert_eq!(tx.push_batch(&mut items[5..]), 2);
    let mut out = [90; 6];
    assert_eq!(rx.pop_batch(&mut out), 4);
    assert_eq!(out, [4, 5, 6, 7, 90, 90]);
    assert_eq!(rx.pop_batch(&mut out), 0);
    assert_eq!(rx.pop_batch(&mut []), 0);
    assert_eq!(tx.push_batch(&mut []), 0);
}

/// A batch that goes past the last slot is copied in two parts, and one of wide items item by item:
/// both give the queue that single pushes give.
#[test]
fn batches_go_past_the_last_slot() {
    fn check<T: Copy + Default + PartialEq + fmt::Debug>(item: impl Fn(u32) -> T) {
        for start in [0, 5, u32::MAX - 2] {
            for count in 0..=8 {
                let mut ring = Ring::<T, 8>::starting_at(start);
                let (mut tx, mut rx) = ring.split(7).expect("within the slots");
                let items: Vec<T> = (1..9).map(&item).take(count).collect();
                let fit = count.min(7);
                for copies in [true, false] {
                    let mut given = items.clone();
                    if copies {
                        assert_eq!(tx.push_slice(&given), fit);
                        assert_eq!(given, items);
                    } else {
                        assert_eq!(tx.push_batch(&mut given), fit);
                        assert!(given[..fit].iter().all(|item| *item == T::default()));
                        assert_eq!(given[fit..], items[fit..]);
                    }
                    assert_eq!(rx.len(), fit);
                    let mut out = [item(99); 9];
                    assert_eq!(rx.pop_batch(&mut out), fit);
                    assert_eq!(out[..fit], items[..fit]);
                    assert!(out[fit..].iter().all(|place| *place == item(99)));
                }
            }
        }
    }
    check(|n| n);
    check(|n| [u64::from(n); 8]);
}

/// Counts its drops; a default one is not counted.
#[derive(Default)]
struct Counted(Option<Rc<Cell<u32>>>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(drops) = &self.0 {
            drops.set(drops.get() + 1);
        }
    }
}

#[test]
fn the_ring_drops_what_is_left_once() {
    let drops = Rc::new(Cell::new(0));
    let item = || Counted(Some(Rc::clone(&drops)));
    let mut ring = Ring::<Counted, 4>::starting_at(u32::MAX - 1);
    {
        let (mut tx, mut rx) = ring.split(4).expect("within the slots");
        let mut items = [item(), item(), item()];
        assert_eq!(tx.push_batch(&mut items), 3);
        drop(rx.pop());
        assert_eq!(drops.get(), 1);
        assert!(tx.push(item()).is_ok());
        assert!(tx.push(item()).is_ok());
        let refused = tx.push(item()).expect_err("full");
        assert_eq!(drops.get(), 1, "the refused item was dropped");
        drop(refused);
        assert_eq!(drops.get(), 2);
    }
    drop(ring);
    assert_eq!(drops.get(), 2 + 4);
    assert_eq!(Rc::strong_count(&drops), 1);
}

/// Panics when it is dropped, if armed.
struct Trap {
    armed: bool,
    drops: Rc<Cell<u32>>,
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        assert!(!self.armed, "the trap");
    }
}

#[test]
fn a_panic_in_a_drop_leaves_no_item_twice() {
    let drops = Rc::new(Cell::new(0));
    let trap = |armed| Trap { armed, drops: Rc::clone(&drops) };
    let mut ring = Ring::<Trap, 4>::new();
    let (mut tx, mut rx) = ring.split(4).expect("within the slots");
    for _ in 0..4 {
        assert!(tx.push(trap(false)).is_ok());
    }
    // The second place holds a value whose drop panics: two items are out by then.
    let mut out = [trap(false), trap(true), trap(false)];
    let popped = catch_unwind(AssertUnwindSafe(|| rx.pop_batch(&mut out)));
    assert!(popped.is_err());
    assert_eq!((rx.len(), tx.free()), (2, 2));
    drop(out);
    drop(ring);
    // 4 items and the 3 that `out` held, each once.
    assert_eq!(drops.get(), 7);
}

/// A value whose third default panics.
#[derive(Debug, PartialEq)]
struct Dear(u32);

thread_local!(static DEFAULTS: Cell<u32> = const { Cell::new(0) });

impl Default for Dear {
    fn default() -> Self {
        let made = DEFAULTS.get() + 1;
        DEFAULTS.set(made);
        assert!(made != 3, "the third default");
        Self(0)
    }
}

#[test]
fn a_panic_in_a_default_loses_no_item() {
    let mut ring = Ring::<Dear, 8>::new();
    let (mut tx, mut rx) = ring.split(8).expect("within the slots");
    let mut items = [Dear(1), Dear(2), Dear(3), Dear(4)];
    assert!(catch_unwind(AssertUnwindSafe(|| tx.push_batch(&mut items))).is_err());
    assert_eq!(items, [Dear(0), Dear(0), Dear(3), Dear(4)]);
    assert_eq!([rx.pop(), rx.pop(), rx.pop()], [Some(Dear(1)), Some(Dear(2)), None]);
    assert_eq!(tx.push_batch(&mut items[2..]), 2);
    assert_eq!([rx.pop(), rx.pop(), rx.pop()], [Some(Dear(3)), Some(Dear(4)), None]);
}

#[test]
fn items_without_a_size_are_counted_too() {
    let mut ring = Ring::<(), 4>::new();
    let (mut tx, mut rx) = ring.split(3).expect("within the slots");
    assert_eq!(tx.push_batch(&mut [(); 5]), 3);
    assert_eq!(tx.push(()), Err(Full(())));
    assert_eq!(rx.pop_batch(&mut [(); 5]), 3);
    assert_eq!(rx.pop(), None);
}

#[test]
fn debug_shows_the_counters() {
    let mut ring = Ring::<u8, 4>::starting_at(7);
    assert_eq!(format!("{ring:?}"), "Ring { head: 7, tail: 7, capacity: 1, slots: 4 }");
    let (mut tx, rx) = ring.split(3).expect("within the slots");
    assert_eq!(tx.push(1), Ok(()));
    assert_eq!(format!("{tx:?}"), "Sender { tail: 8, free: 2, capacity: 3 }");
    assert_eq!(format!("{rx:?}"), "Receiver { head: 7, len: 1, capacity: 3 }");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    PushBatch(usize),
    Pop,
    PopBatch(usize),
    Split,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Push),
        4 => (0_usize..12).prop_map(Op::PushBatch),
        4 => Just(Op::Pop),
        4 => (0_usize..12).prop_map(Op::PopBatch),
        1 => Just(Op::Split),
    ]
}

/// Runs operations until the next split; `next` numbers the items.
fn play(
    ring: &mut Ring<u32, 8>,
    capacity: usize,
    oracle: &mut VecDeque<u32>,
    next: &mut u32,
    ops: &mut impl Iterator<Item = Op>,
) -> Result<bool, TestCaseError> {
    let (mut tx, mut rx) = ring.split(capacity).expect("the same capacity every time");
    for op in ops {
        let room = capacity - oracle.len();
        match op {
            Op::Split => return Ok(true),
            Op::Push => {
                *next += 1;
                let expected = if room > 0 { Ok(()) } else { Err(Full(*next)) };
                prop_assert_eq!(tx.push(*next), expected);
                oracle.extend((room > 0).then_some(*next));
            }
            Op::PushBatch(count) => {
                let items: Vec<u32> = (1..).map(|i| *next + i).take(count).collect();
                *next += 12;
                let fit = count.min(room);
                let mut left = items.clone();
                prop_assert_eq!(tx.push_batch(&mut left), fit);
                prop_assert!(left[..fit].iter().all(|&item| item == 0));
                prop_assert_eq!(&left[fit..], &items[fit..]);
                oracle.extend(&items[..fit]);
            }
            Op::Pop => prop_assert_eq!(rx.pop(), oracle.pop_front()),
            Op::PopBatch(count) => {
                let mut out = vec![u32::MAX; count];
                let popped = rx.pop_batch(&mut out);
                prop_assert_eq!(popped, count.min(oracle.len()));
                let expected: Vec<u32> = oracle.drain(..popped).collect();
                prop_assert_eq!(&out[..popped], &expected[..]);
                prop_assert!(out[popped..].iter().all(|&item| item == u32::MAX));
            }
        }
        prop_assert_eq!(tx.free(), capacity - oracle.len());
        prop_assert_eq!(rx.len(), oracle.len());
        prop_assert_eq!(rx.is_empty(), oracle.is_empty());
    }
    Ok(false)
}

proptest! {
    /// Any operations, any capacity, counters that wrap: what a `VecDeque` says.
    #[test]
    fn a_ring_is_a_bounded_queue(
        capacity in 1_usize..=8,
        start in prop_oneof![Just(0), any::<u32>(), (u32::MAX - 20)..=u32::MAX],
        ops in proptest::collection::vec(op(), 0..if cfg!(miri) { 30 } else { 200 }),
    ) {
        let mut ring = Ring::<u32, 8>::starting_at(start);
        let mut oracle = VecDeque::new();
        let mut next = 0;
        let mut ops = ops.into_iter();
        while play(&mut ring, capacity, &mut oracle, &mut next, &mut ops)? {}
    }
}

/// Two real threads, single pushes and batches mixed: everything arrives once and in order.
#[test]
fn two_threads_lose_nothing() {
    // Miri interprets every instruction.
    let items: u64 = if cfg!(miri) { 50 } else { 200_000 };
    for capacity in [1, 3, 64] {
        let mut ring = Ring::<Box<u64>, 64>::starting_at(u32::MAX - 100);
        let (mut tx, mut rx) = ring.split(capacity).expect("within the slots");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < items {
                    let mut batch: Vec<Box<u64>> =
                        (next..items.min(next + 1 + next % 7)).map(Box::new).collect();
                    let mut sent = 0;
                    while sent < batch.len() {
                        let pushed = tx.push_batch(&mut batch[sent..]);
                        sent += pushed;
                        if pushed == 0 {
                            std::thread::yield_now();
                        }
                    }
                    next += sent as u64;
                }
            });
            let mut expected = 0;
            let mut out: [Box<u64>; 5] = Default::default();
            while expected < items {
                let popped = rx.pop_batch(&mut out);
                for item in &out[..popped] {
                    assert_eq!(**item, expected);
                    expected += 1;
                }
                if let Some(item) = rx.pop() {
                    assert_eq!(*item, expected);
                    expected += 1;
                } else if popped == 0 {
                    std::thread::yield_now();
                }
            }
            assert_eq!(rx.pop(), None);
        });
    }
}
