//! The rings that stand side by side, each through the fastest of its interfaces that moves items
//! from an array and to an array.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use heapless::spsc;
use tensorwire_core::ring::{Receiver, Ring, Sender};

use crate::race::{CAPACITY, Item, Kind, Pop, Push, Race};

/// Ours, with batches that move: what was pushed is gone from the array.
pub(crate) struct Ours;

/// Ours, with batches that copy.
pub(crate) struct OursCopying;

/// `rtrb` with its batches that copy.
pub(crate) struct Rtrb;

/// `rtrb` with batches that move out of an iterator and into one.
pub(crate) struct RtrbChunks;

pub(crate) struct Heapless;

pub(crate) struct Crossbeam;

/// How often a batch is tried item by item, where a ring knows no batches.
fn each<T: Item>(items: &[T], mut push: impl FnMut(T) -> bool) -> usize {
    items.iter().take_while(|&&item| push(item)).count()
}

fn fill<T>(out: &mut [T], mut pop: impl FnMut() -> Option<T>) -> usize {
    let mut popped = 0;
    for place in out {
        let Some(item) = pop() else { break };
        *place = item;
        popped += 1;
    }
    popped
}

impl<T: Item> Push<T> for Sender<'_, T, CAPACITY> {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        self.push(item).is_ok()
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        self.push_batch(items)
    }
}

impl<T: Item> Pop<T> for Receiver<'_, T, CAPACITY> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        self.pop()
    }

    #[inline]
    fn pop_batch(&mut self, out: &mut [T]) -> usize {
        self.pop_batch(out)
    }
}

impl Kind for Ours {
    const NAME: &'static str = "ours";

    fn run<T: Item>(race: Race) -> Duration {
        let mut ring = Box::new(Ring::<T, CAPACITY>::new());
        let (tx, rx) = ring.split(CAPACITY).expect("within the slots");
        race.run(tx, rx)
    }
}

/// The same end, whose batches copy.
struct Copying<'a, T>(Sender<'a, T, CAPACITY>);

impl<T: Item> Push<T> for Copying<'_, T> {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        self.0.push(item).is_ok()
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        self.0.push_slice(items)
    }
}

impl Kind for OursCopying {
    const NAME: &'static str = "ours, copying";

    fn run<T: Item>(race: Race) -> Duration {
        let mut ring = Box::new(Ring::<T, CAPACITY>::new());
        let (tx, rx) = ring.split(CAPACITY).expect("within the slots");
        race.run(Copying(tx), rx)
    }
}

impl<T: Item> Push<T> for rtrb::Producer<T> {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        self.push(item).is_ok()
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        self.push_partial_slice(items).0.len()
    }
}

impl<T: Item> Pop<T> for rtrb::Consumer<T> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        self.pop().ok()
    }

    #[inline]
    fn pop_batch(&mut self, out: &mut [T]) -> usize {
        self.pop_partial_slice(out).0.len()
    }
}

impl Kind for Rtrb {
    const NAME: &'static str = "rtrb, copying";

    fn run<T: Item>(race: Race) -> Duration {
        let (tx, rx) = rtrb::RingBuffer::<T>::new(CAPACITY);
        race.run(tx, rx)
    }
}

struct ChunkTx<T>(rtrb::Producer<T>);

struct ChunkRx<T>(rtrb::Consumer<T>);

impl<T: Item> Push<T> for ChunkTx<T> {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        self.0.push(item).is_ok()
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        let count = match self.0.cached_slots() {
            known if known >= items.len() => items.len(),
            _ => self.0.slots().min(items.len()),
        };
        let Ok(chunk) = self.0.write_chunk_uninit(count) else { return 0 };
        chunk.fill_from_iter(items.iter().copied())
    }
}

impl<T: Item> Pop<T> for ChunkRx<T> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        self.0.pop().ok()
    }

    #[inline]
    fn pop_batch(&mut self, out: &mut [T]) -> usize {
        let count = match self.0.cached_slots() {
            known if known >= out.len() => out.len(),
            _ => self.0.slots().min(out.len()),
        };
        let Ok(chunk) = self.0.read_chunk(count) else { return 0 };
        for (place, item) in out.iter_mut().zip(chunk) {
            *place = item;
        }
        count
    }
}

impl Kind for RtrbChunks {
    const NAME: &'static str = "rtrb, moving";

    fn run<T: Item>(race: Race) -> Duration {
        let (tx, rx) = rtrb::RingBuffer::<T>::new(CAPACITY);
        race.run(ChunkTx(tx), ChunkRx(rx))
    }
}

impl<T: Item> Push<T> for spsc::Producer<'_, T> {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        self.enqueue(item).is_ok()
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        each(items, |item| self.enqueue(item).is_ok())
    }
}

impl<T: Item> Pop<T> for spsc::Consumer<'_, T> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        self.dequeue()
    }

    #[inline]
    fn pop_batch(&mut self, out: &mut [T]) -> usize {
        fill(out, || self.dequeue())
    }
}

impl Kind for Heapless {
    const NAME: &'static str = "heapless";

    fn run<T: Item>(race: Race) -> Duration {
        let mut queue = Box::new(spsc::Queue::<T, CAPACITY>::new());
        let (tx, rx) = queue.split();
        race.run(tx, rx)
    }
}

impl<T: Item> Push<T> for Arc<ArrayQueue<T>> {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        ArrayQueue::push(self, item).is_ok()
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        each(items, |item| ArrayQueue::push(self, item).is_ok())
    }
}

impl<T: Item> Pop<T> for Arc<ArrayQueue<T>> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        ArrayQueue::pop(self)
    }

    #[inline]
    fn pop_batch(&mut self, out: &mut [T]) -> usize {
        fill(out, || ArrayQueue::pop(self))
    }
}

impl Kind for Crossbeam {
    const NAME: &'static str = "crossbeam";

    fn run<T: Item>(race: Race) -> Duration {
        let queue = Arc::new(ArrayQueue::<T>::new(CAPACITY));
        race.run(Arc::clone(&queue), queue)
    }
}
