//! A number between threads where the processor loads and stores 64 bits at once.

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

use super::Ordering;

/// All accesses are relaxed: nothing is published with the number.
pub(super) struct Whole(AtomicU64);

impl Whole {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        // Relaxed: see the type.
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        // Relaxed: see the type.
        self.0.load(Ordering::Relaxed)
    }
}
