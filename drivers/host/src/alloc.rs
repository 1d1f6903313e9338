//! The system's allocator, counting what each thread asks of it.
//!
//! A program that wants to know whether its loops allocate names it once:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: tensorwire_host::alloc::Counting = tensorwire_host::alloc::Counting;
//!
//! let before = tensorwire_host::alloc::by_this_thread().expect("the allocator counts");
//! let boxed = Box::new(7u64);
//! let after = tensorwire_host::alloc::by_this_thread().expect("the allocator counts");
//! assert!(after > before);
//! # drop(boxed);
//! ```
//!
//! It costs an addition to a variable of the thread for each allocation.
#![allow(unsafe_code)] // an allocator is a promise; each call says whose

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator with a counter for each thread.
#[derive(Debug)]
pub struct Counting;

/// Whether [`Counting`] is the allocator of this program: set by its first allocation.
static COUNTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    // No destructor and no lazy initialisation: it may be touched at any time of a thread's life.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations and reallocations by the calling thread so far; `None` in a program with another
/// allocator.
#[must_use]
pub fn by_this_thread() -> Option<u64> {
    COUNTS.load(Ordering::Relaxed).then(|| ALLOCATIONS.get())
}

fn count() {
    if !COUNTS.load(Ordering::Relaxed) {
        COUNTS.store(true, Ordering::Relaxed);
    }
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
}

// SAFETY: every call is passed on to the system's allocator as it came, so its promises hold.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
