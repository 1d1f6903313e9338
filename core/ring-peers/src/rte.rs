//! `rte_ring` with one producer and one consumer, through the calls of `rte.c`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::race::{CAPACITY, Item, Kind, Pop, Push, Race};

unsafe extern "C" {
    fn peer_ring_new(item_bytes: u32, count: u32) -> *mut c_void;
    fn peer_ring_free(ring: *mut c_void);
    fn peer_ring_push(ring: *mut c_void, items: *const c_void, item_bytes: u32, n: u32) -> u32;
    fn peer_ring_pop(ring: *mut c_void, out: *mut c_void, item_bytes: u32, n: u32) -> u32;
}

/// `rte_ring` of DPDK.
pub(crate) struct Rte;

/// A ring; freed with the last of its two ends.
struct Memory(NonNull<c_void>);

// SAFETY: the memory is malloc's, which any thread may free; the two ends are used as rte_ring
// demands, one thread each.
unsafe impl Send for Memory {}

// SAFETY: as above: through a shared reference one end only pushes and the other only pops.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from `peer_ring_new`, and both ends are gone.
        unsafe { peer_ring_free(self.0.as_ptr()) }
    }
}

struct Tx(Arc<Memory>);

struct Rx(Arc<Memory>);

/// Size of an item, one of the two that `rte.c` knows.
fn bytes<T>() -> u32 {
    const { assert!(size_of::<T>() == 8 || size_of::<T>() == 64) }
    if size_of::<T>() == 8 { 8 } else { 64 }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).expect("a short array")
}

impl<T: Item> Push<T> for Tx {
    #[inline]
    fn push(&mut self, item: T) -> bool {
        Push::<T>::push_batch(self, &mut [item]) == 1
    }

    #[inline]
    fn push_batch(&mut self, items: &mut [T]) -> usize {
        let (from, n) = (items.as_ptr().cast(), count(items.len()));
        // SAFETY: the ring is for items of this size, which are `Copy`; this is its one producer.
        let pushed = unsafe { peer_ring_push(self.0.0.as_ptr(), from, bytes::<T>(), n) };
        pushed as usize
    }
}

impl<T: Item> Pop<T> for Rx {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        let mut item = [T::default()];
        (Pop::<T>::pop_batch(self, &mut item) == 1).then_some(item[0])
    }

    #[inline]
    fn pop_batch(&mut self, out: &mut [T]) -> usize {
        let (to, n) = (out.as_mut_ptr().cast(), count(out.len()));
        // SAFETY: the ring holds items of this type, which are `Copy`; this is its one consumer.
        let popped = unsafe { peer_ring_pop(self.0.0.as_ptr(), to, bytes::<T>(), n) };
        popped as usize
    }
}

impl Kind for Rte {
    const NAME: &'static str = "rte_ring";

    fn run<T: Item>(race: Race) -> Duration {
        // SAFETY: no condition; null when there is no memory.
        let ring = unsafe { peer_ring_new(bytes::<T>(), count(CAPACITY)) };
        let memory = Arc::new(Memory(NonNull::new(ring).expect("memory for a ring")));
        race.run::<T>(Tx(Arc::clone(&memory)), Rx(memory))
    }
}
