//! A queue from one thread to another: bounded, lock-free, without allocation.
//!
//! One end pushes, the other pops, and neither ever waits for the other: full and empty are
//! answers. Both ends take single items and batches; a batch costs one atomic store, because a
//! burst is the unit of everything here.
//!
//! Head and tail count items ever popped and ever pushed, modulo 2^32, and are masked when a slot
//! is addressed. So `tail − head` is the number of items, a ring of N holds N, and a ring of one
//! is never both empty and full. Each end keeps a copy of the other's counter and looks again only
//! when the ring seems full (or empty): while there is room, no cache line changes sides.
#![allow(unsafe_code)] // slots are written and read without a lock; see each SAFETY comment

use core::fmt;
use core::mem::{self, MaybeUninit};
use core::ptr;

use crate::sync::{AtomicU32, Ordering, UnsafeCell, order};

/// A place for an item.
type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// A counter on a cache line of its own, so that the two ends do not disturb each other. 128
/// bytes: x86 fetches lines in pairs of 64, and some aarch64 parts have lines of 128.
#[repr(align(128))]
struct Line(AtomicU32);

/// The storage of a queue of at most `SLOTS` items between two threads.
///
/// `SLOTS` is a power of two, up to 2^31; a ring of another size does not compile. The capacity is
/// chosen when the ring is split; it need not be a power of two.
///
/// ```
/// let mut ring = tensorwire_core::ring::Ring::<u32, 8>::new();
/// let (mut tx, mut rx) = ring.split(3)?;
/// std::thread::scope(|s| {
///     s.spawn(move || assert_eq!(tx.push(7), Ok(())));
///     s.spawn(move || while rx.pop().is_none() {});
/// });
/// # Ok::<(), tensorwire_core::ring::CapacityError>(())
/// ```
///
/// The storage is not 6:
/// ```compile_fail,E0080
/// let ring = tensorwire_core::ring::Ring::<u32, 6>::new();
/// ```
/// An end can only go to another thread if the items can:
/// ```compile_fail,E0277
/// let mut ring = tensorwire_core::ring::Ring::<std::rc::Rc<u8>, 8>::new();
/// let (tx, _rx) = ring.split(3).unwrap();
/// std::thread::scope(|s| {
///     s.spawn(move || drop(tx));
/// });
/// ```
pub struct Ring<T, const SLOTS: usize> {
    /// Items ever popped. Written by the receiver only.
    head: Line,
    /// Items ever pushed. Written by the sender only.
    tail: Line,
    /// Capacity of the last split; says where the items lie that were left in the ring.
    capacity: u32,
    /// A slot holds an item exactly if its counter is in `head..tail`. Those belong to the
    /// receiver, the others to the sender.
    slots: [Slot<T>; SLOTS],
}

// SAFETY: a shared ring gives access to its slots only through the two ends, of which `split` hands
// out one each. An item that was pushed on one thread is popped or dropped on another, so it must
// be `Send`; no reference to an item is ever shared, so it need not be `Sync`.
unsafe impl<T: Send, const SLOTS: usize> Sync for Ring<T, SLOTS> {}

impl<T, const SLOTS: usize> Ring<T, SLOTS> {
    /// `SLOTS` as the counters' type. Evaluated for every ring type that is built.
    const SLOTS_U32: u32 = {
        assert!(SLOTS.is_power_of_two(), "the slots of a ring must be a power of two");
        assert!(SLOTS <= 1 << 31, "the slots of a ring must not exceed 2^31");
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^31, asserted above")]
        let slots = SLOTS as u32;
        slots
    };

    /// Whether batches are copied slot by slot: so that loom sees each, and where an item fills a
    /// cache line, since `memcpy` of many lines that were last another core's is slower.
    const ONE_BY_ONE: bool = cfg!(loom) || size_of::<T>() >= 64;

    /// An empty ring.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self::starting_at(0)
    }

    /// An empty ring.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// An empty ring whose counters stand at `count`, as after that many items.
    #[cfg(not(loom))]
    const fn starting_at(count: u32) -> Self {
        const { assert!(Self::SLOTS_U32 > 0) }
        Self {
            head: Line(AtomicU32::new(count)),
            tail: Line(AtomicU32::new(count)),
            capacity: 1,
            slots: [const { UnsafeCell::new(MaybeUninit::uninit()) }; SLOTS],
        }
    }

    /// An empty ring whose counters stand at `count`, as after that many items.
    #[cfg(loom)]
    fn starting_at(count: u32) -> Self {
        Self {
            head: Line(AtomicU32::new(count)),
            tail: Line(AtomicU32::new(count)),
            capacity: 1,
            slots: core::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// Lends the two ends of a queue of exactly `capacity` items. Uses `capacity` slots, rounded up
    /// to a power of two, and does not touch the memory of the others.
    ///
    /// A ring may be split again after both ends are gone; items left in it are still there.
    ///
    /// # Errors
    ///
    /// [`CapacityError`] when `capacity` is not from 1 to `SLOTS`, or when items are left in the
    /// ring and `capacity` is not what it was when they were pushed.
    pub fn split(
        &mut self,
        capacity: usize,
    ) -> Result<(Sender<'_, T, SLOTS>, Receiver<'_, T, SLOTS>), CapacityError> {
        let given = capacity;
        let capacity = match u32::try_from(given) {
            Ok(capacity) if (1..=Self::SLOTS_U32).contains(&capacity) => capacity,
            _ => return Err(CapacityError::OutOfRange { given, slots: SLOTS }),
        };
        // Relaxed: `&mut self` says that no other thread is at the ring.
        let head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        if head != tail && capacity != self.capacity {
            let left = tail.wrapping_sub(head) as usize;
            return Err(CapacityError::NotEmpty { given, left, capacity: self.capacity as usize });
        }
        self.capacity = capacity;
        let ring = &*self;
        let mask = ring.mask();
        // The ends start from the counters as they are, not from zero: this may be a second split.
        let limit = head.wrapping_add(capacity);
        Ok((
            Sender { ring, tail, limit, capacity, mask },
            Receiver { ring, head, tail, capacity, mask },
        ))
    }

    /// What turns a counter into the index of a slot; at most `SLOTS − 1`.
    const fn mask(&self) -> u32 {
        self.capacity.next_power_of_two() - 1
    }

    /// The slot of counter `at`.
    #[inline]
    fn slot(&self, at: u32, mask: u32) -> &Slot<T> {
        // The second mask changes nothing, since `mask < SLOTS`; it shows the compiler that the
        // index is in bounds, so that no check and no panic is left.
        &self.slots[(at & mask) as usize & (SLOTS - 1)]
    }

    /// Copies `count` items from `from` into the slots of the counters from `at` on.
    ///
    /// # Safety
    ///
    /// `count` is at most the capacity; `mask` is the ring's. `from` points to `count` items that
    /// are not in the ring. The slots hold no item and are the caller's until it publishes them.
    #[inline]
    unsafe fn copy_in(&self, at: u32, count: u32, mask: u32, from: *const T) {
        if Self::ONE_BY_ONE {
            for i in 0..count {
                // SAFETY: within the `count` items.
                let from = unsafe { from.add(i as usize) };
                // SAFETY: as the caller promises: an item, and a slot of its own.
                let copy = |slot: *mut _| unsafe { ptr::copy_nonoverlapping(from.cast(), slot, 1) };
                self.slot(at.wrapping_add(i), mask).with_mut(copy);
            }
            return;
        }
        let start = at & mask;
        let first = count.min(mask - start + 1) as usize;
        // Cells are laid out as what is in them, and may be written through a shared reference.
        let slots = self.slots.as_ptr().cast_mut().cast::<T>();
        // SAFETY: `start` is at most `mask`, which is below `SLOTS`.
        let run = unsafe { slots.add(start as usize) };
        // SAFETY: `start + first` is at most `mask + 1`, so at most `SLOTS`; the rest is the
        // caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, run, first) };
        if first < count as usize {
            // SAFETY: within the `count` items.
            let from = unsafe { from.add(first) };
            // SAFETY: from the first slot on there are `count − first`, fewer than the capacity;
            // the rest is the caller's promise.
            unsafe { ptr::copy_nonoverlapping(from, slots, count as usize - first) };
        }
    }

    /// Copies the items of the `count` slots of the counters from `at` on to `to`. They must not be
    /// read from the slots again.
    ///
    /// # Safety
    ///
    /// `count` is at most the capacity; `mask` is the ring's. `to` points to room for `count` items
    /// that is not in the ring. The slots hold items and are the caller's until it gives them back.
    #[inline]
    unsafe fn copy_out(&self, at: u32, count: u32, mask: u32, to: *mut T) {
        if Self::ONE_BY_ONE {
            for i in 0..count {
                // SAFETY: within the room for `count` items.
                let to = unsafe { to.add(i as usize) };
                // SAFETY: as the caller promises: an item in a slot of its own, and room for it.
                let copy = |slot: *mut _| unsafe { ptr::copy_nonoverlapping(slot, to.cast(), 1) };
                self.slot(at.wrapping_add(i), mask).with_mut(copy);
            }
            return;
        }
        let start = at & mask;
        let first = count.min(mask - start + 1) as usize;
        // Cells are laid out as what is in them.
        let slots = self.slots.as_ptr().cast::<T>();
        // SAFETY: `start` is at most `mask`, which is below `SLOTS`.
        let run = unsafe { slots.add(start as usize) };
        // SAFETY: `start + first` is at most `mask + 1`, so at most `SLOTS`; the rest is the
        // caller's promise.
        unsafe { ptr::copy_nonoverlapping(run, to, first) };
        if first < count as usize {
            // SAFETY: within the room for `count` items.
            let to = unsafe { to.add(first) };
            // SAFETY: from the first slot on there are `count − first`, fewer than the capacity;
            // the rest is the caller's promise.
            unsafe { ptr::copy_nonoverlapping(slots, to, count as usize - first) };
        }
    }
}

impl<T, const SLOTS: usize> Default for Ring<T, SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const SLOTS: usize> Drop for Ring<T, SLOTS> {
    /// Drops the items that were left.
    fn drop(&mut self) {
        let mask = self.mask();
        // Relaxed: `&mut self` says that no other thread is at the ring.
        let mut head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: the slot is in `head..tail`, so it holds an item; each is visited once, and
            // both ends are gone, as `&mut self` shows.
            drop(self.slot(head, mask).with_mut(|slot| unsafe { slot.cast::<T>().read() }));
            head = head.wrapping_add(1);
        }
    }
}

impl<T, const SLOTS: usize> fmt::Debug for Ring<T, SLOTS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a glance, nothing is read on the strength of it.
        let head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        f.debug_struct("Ring")
            .field("head", &head)
            .field("tail", &tail)
            .field("capacity", &self.capacity)
            .field("slots", &SLOTS)
            .finish()
    }
}

/// A counter that moves on while a batch is copied and is published when the copy ends, also when
/// it ends by a panic in the items' own code (`Default`, `Drop`): no item is lost or there twice.
struct Advance<'a> {
    counter: &'a AtomicU32,
    own: &'a mut u32,
    moved: u32,
    order: Ordering,
}

impl Drop for Advance<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.own = self.own.wrapping_add(self.moved);
        // Release, from either end; the pairs are named in `sync::order`.
        self.counter.store(*self.own, self.order);
    }
}

/// The end of a [`Ring`] that pushes. There is one, and one thread has it at a time.
pub struct Sender<'a, T, const SLOTS: usize> {
    ring: &'a Ring<T, SLOTS>,
    /// The ring's tail: only this end writes it, so this is it.
    tail: u32,
    /// The tail at which the ring is full, by its head when that was last looked at; the true one
    /// is the same or further on.
    limit: u32,
    capacity: u32,
    mask: u32,
}

impl<T, const SLOTS: usize> Sender<'_, T, SLOTS> {
    /// Appends `item`.
    ///
    /// # Errors
    ///
    /// [`Full`] with the item when the ring holds as many items as its capacity.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), Full<T>> {
        if self.room(1) == 0 {
            return Err(Full(item));
        }
        // SAFETY: `tail − head` is below the capacity, so the slot of `tail` holds no item and is
        // this end's until `tail` is published; `&mut self` says that this end is used once.
        self.ring
            .slot(self.tail, self.mask)
            .with_mut(|slot| unsafe { slot.cast::<T>().write(item) });
        self.tail = self.tail.wrapping_add(1);
        // Release: the receiver that acquires this tail finds the item written.
        self.ring.tail.0.store(self.tail, order::tail_published());
        Ok(())
    }

    /// Moves items from the front of `items` into the ring, as many as there is room for, and
    /// returns how many; `T::default()` is left in their place. The receiver sees all of them at
    /// once.
    #[inline]
    pub fn push_batch(&mut self, items: &mut [T]) -> usize
    where
        T: Default,
    {
        let wanted = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let count = self.room(wanted).min(wanted);
        if count == 0 {
            return 0;
        }
        // SAFETY: `items` has at least `count` items, and none lies in the ring, which is borrowed
        // apart. `tail + count − head` is at most the capacity, so the slots from `tail` on hold no
        // item, and they are this end's until `tail` is published; `&mut self` says that this end
        // is used once.
        unsafe { self.ring.copy_in(self.tail, count, self.mask, items.as_ptr()) };
        // An item is there twice until its place is filled anew. Those whose place is count in
        // `moved`; of the others the ring forgets its copy, should a `default` panic.
        let mut advance = Advance {
            counter: &self.ring.tail.0,
            own: &mut self.tail,
            moved: 0,
            // Release: the receiver that acquires this tail finds the items written.
            order: order::tail_published(),
        };
        for place in items.iter_mut().take(count as usize) {
            let default = T::default();
            // SAFETY: a valid reference. What it held is not dropped: it is the ring's now.
            unsafe { ptr::write(place, default) };
            advance.moved += 1;
        }
        drop(advance);
        count as usize
    }

    /// Copies items from the front of `items` into the ring, as many as there is room for, and
    /// returns how many. The receiver sees all of them at once.
    #[inline]
    pub fn push_slice(&mut self, items: &[T]) -> usize
    where
        T: Copy,
    {
        let wanted = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let count = self.room(wanted).min(wanted);
        if count == 0 {
            return 0;
        }
        // SAFETY: as in `push_batch`; the items are `Copy` and may be there twice.
        unsafe { self.ring.copy_in(self.tail, count, self.mask, items.as_ptr()) };
        self.tail = self.tail.wrapping_add(count);
        // Release: the receiver that acquires this tail finds the items written.
        self.ring.tail.0.store(self.tail, order::tail_published());
        count as usize
    }

    /// How many items [`push_batch`](Self::push_batch) takes now, at least.
    #[must_use]
    #[inline]
    pub fn free(&self) -> usize {
        // Relaxed: nothing is overwritten on the strength of it; a push looks again itself, and
        // then cannot see an older head than this.
        let head = self.ring.head.0.load(Ordering::Relaxed);
        (self.capacity - self.tail.wrapping_sub(head)) as usize
    }

    /// How many items the ring holds at most.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The room for items; looks at the receiver's counter only if the room known of is less than
    /// `wanted`.
    #[inline]
    fn room(&mut self, wanted: u32) -> u32 {
        let known = self.limit.wrapping_sub(self.tail);
        if known >= wanted {
            return known;
        }
        // Acquire: the receiver that released this head has read the slots before it.
        let head = self.ring.head.0.load(order::head_seen());
        self.limit = head.wrapping_add(self.capacity);
        self.limit.wrapping_sub(self.tail)
    }
}

impl<T, const SLOTS: usize> fmt::Debug for Sender<'_, T, SLOTS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("tail", &self.tail)
            .field("free", &self.free())
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// The end of a [`Ring`] that pops. There is one, and one thread has it at a time.
pub struct Receiver<'a, T, const SLOTS: usize> {
    ring: &'a Ring<T, SLOTS>,
    /// The ring's head: only this end writes it, so this is it.
    head: u32,
    /// The ring's tail when it was last looked at; never ahead of it.
    tail: u32,
    capacity: u32,
    mask: u32,
}

impl<T, const SLOTS: usize> Receiver<'_, T, SLOTS> {
    /// Takes the oldest item; `None` when the ring is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ready(1) == 0 {
            return None;
        }
        // SAFETY: `head` is before `tail`, so the slot holds an item and is this end's until the
        // head moves on, which it does below: the item is read once.
        let item = self
            .ring
            .slot(self.head, self.mask)
            .with_mut(|slot| unsafe { slot.cast::<T>().read() });
        self.head = self.head.wrapping_add(1);
        // Release: the sender that acquires this head may overwrite the slot, which was read.
        self.ring.head.0.store(self.head, order::head_published());
        Some(item)
    }

    /// Moves the oldest items into the front of `out`, in order and as many as fit, and returns how
    /// many. What those places of `out` held is dropped. The sender gets all the slots at once.
    #[inline]
    pub fn pop_batch(&mut self, out: &mut [T]) -> usize {
        let wanted = u32::try_from(out.len()).unwrap_or(u32::MAX);
        let count = self.ready(wanted).min(wanted);
        if count == 0 {
            return 0;
        }
        if !mem::needs_drop::<T>() {
            // Nothing that `out` held needs a drop, so nothing can panic on the way.
            // SAFETY: `out` has room for at least `count` items, and none of it lies in the ring,
            // which is borrowed apart. `head + count` is at most `tail`, so the slots from `head`
            // on hold items and are this end's until the head moves on, which it does below: the
            // items are read once.
            unsafe { self.ring.copy_out(self.head, count, self.mask, out.as_mut_ptr()) };
            self.head = self.head.wrapping_add(count);
            // Release: the sender that acquires this head may overwrite the slots, which were read.
            self.ring.head.0.store(self.head, order::head_published());
            return count as usize;
        }
        let mut at = self.head;
        let mut advance = Advance {
            counter: &self.ring.head.0,
            own: &mut self.head,
            moved: 0,
            // Release: the sender that acquires this head may overwrite the slots, which were read.
            order: order::head_published(),
        };
        for place in out.iter_mut().take(count as usize) {
            // SAFETY: the slot is one of the `count` from `head` on, none of them at or behind
            // `tail`, so it holds an item and is this end's until the head moves on, which it does
            // in the next line, before anything can panic: the item is read once.
            let item =
                self.ring.slot(at, self.mask).with_mut(|slot| unsafe { slot.cast::<T>().read() });
            at = at.wrapping_add(1);
            advance.moved += 1;
            *place = item;
        }
        drop(advance);
        count as usize
    }

    /// How many items [`pop_batch`](Self::pop_batch) finds now, at least.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        // Relaxed: no slot is read on the strength of it; a pop looks again itself, and then cannot
        // see an older tail than this.
        let tail = self.ring.tail.0.load(Ordering::Relaxed);
        tail.wrapping_sub(self.head) as usize
    }

    /// Whether there is nothing to pop now.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items the ring holds at most.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The number of items; looks at the sender's counter only if fewer than `wanted` are known of.
    #[inline]
    fn ready(&mut self, wanted: u32) -> u32 {
        let known = self.tail.wrapping_sub(self.head);
        if known >= wanted {
            return known;
        }
        // Acquire: the sender that released this tail has written the slots before it.
        self.tail = self.ring.tail.0.load(order::tail_seen());
        self.tail.wrapping_sub(self.head)
    }
}

impl<T, const SLOTS: usize> fmt::Debug for Receiver<'_, T, SLOTS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("head", &self.head)
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// The ring was full. Carries the item back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is full")
    }
}

impl<T> core::error::Error for Full<T> {}

/// Why a ring could not be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapacityError {
    /// The capacity is 0 or larger than the storage.
    OutOfRange {
        /// What was asked for.
        given: usize,
        /// What the ring has.
        slots: usize,
    },
    /// Items of an earlier split are left, and they lie where another capacity put them.
    NotEmpty {
        /// What was asked for.
        given: usize,
        /// How many items are left.
        left: usize,
        /// The capacity of the earlier split.
        capacity: usize,
    },
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { given, slots } => {
                write!(f, "a ring capacity of {given}, allowed 1 to {slots}")
            }
            Self::NotEmpty { given, left, capacity } => write!(
                f,
                "a ring capacity of {given}, but {left} items are left from one of {capacity}"
            ),
        }
    }
}

impl core::error::Error for CapacityError {}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
