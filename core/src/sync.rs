//! The one seam to atomics *and* cells: `core`'s in every build, loom's under `cfg(loom)`.
//!
//! The cell must be loom's as well as the atomics. Loom learns from its own cell that a slot was
//! read while it was written; with `core`'s cell it passes happily over a ring whose `Release` was
//! weakened to `Relaxed`.
//!
//! Loom's constructors are not `const`, so whatever is built on this module has two constructors.

use core::fmt;

#[cfg(any(test, not(target_has_atomic = "64")))]
mod halves;
#[cfg(any(loom, target_has_atomic = "64"))]
mod whole;

#[cfg(all(not(loom), not(target_has_atomic = "64")))]
use self::halves::Halves as Word;
#[cfg(any(loom, target_has_atomic = "64"))]
use self::whole::Whole as Word;

#[cfg(not(loom))]
use core::sync::atomic::AtomicBool;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(loom)]
use loom::sync::atomic::AtomicBool;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

/// `core`'s cell with loom's interface: access only inside a closure, so that loom knows when it
/// begins and when it ends.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Passes a pointer to the content to `access`. To follow the pointer is the caller's `unsafe`,
    /// and its duty that nobody else touches the content meanwhile.
    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// The orderings of the protocols of this crate, each beside its partner.
///
/// They are constants so that each can be weakened alone (`--cfg mutant="…"`): `core/loom.sh` shows
/// that loom sees every one of them. A thread's relaxed read of an index that only it writes needs
/// no partner and is not listed.
pub(crate) mod order {
    use super::Ordering;

    /// The sender publishes items: the writes to their slots come before the new tail. Pairs with
    /// [`TAIL_SEEN`].
    pub(crate) const TAIL_PUBLISHED: Ordering =
        if cfg!(mutant = "tail_published") { Ordering::Relaxed } else { Ordering::Release };

    /// The receiver sees items: it reads their slots after the tail. Pairs with
    /// [`TAIL_PUBLISHED`].
    pub(crate) const TAIL_SEEN: Ordering =
        if cfg!(mutant = "tail_seen") { Ordering::Relaxed } else { Ordering::Acquire };

    /// The receiver gives slots back: its reads of them come before the new head. Pairs with
    /// [`HEAD_SEEN`].
    pub(crate) const HEAD_PUBLISHED: Ordering =
        if cfg!(mutant = "head_published") { Ordering::Relaxed } else { Ordering::Release };

    /// The sender sees free slots: it overwrites them after the head. Pairs with
    /// [`HEAD_PUBLISHED`].
    pub(crate) const HEAD_SEEN: Ordering =
        if cfg!(mutant = "head_seen") { Ordering::Relaxed } else { Ordering::Acquire };

    /// A number in halves is shown: its halves come before the turn. Pairs with [`TURN_SEEN`].
    #[cfg(any(test, not(target_has_atomic = "64")))]
    pub(crate) const TURN_SHOWN: Ordering =
        if cfg!(mutant = "turn_shown") { Ordering::Relaxed } else { Ordering::Release };

    /// The halves are read after the turn that shows them. Pairs with [`TURN_SHOWN`].
    #[cfg(any(test, not(target_has_atomic = "64")))]
    pub(crate) const TURN_SEEN: Ordering =
        if cfg!(mutant = "turn_seen") { Ordering::Relaxed } else { Ordering::Acquire };

    /// A half is overwritten: the turn that took it out of sight comes before it. Pairs with
    /// [`HALF_SEEN`].
    #[cfg(any(test, not(target_has_atomic = "64")))]
    pub(crate) const HALF_WRITTEN: Ordering =
        if cfg!(mutant = "half_written") { Ordering::Relaxed } else { Ordering::Release };

    /// Who sees a half of a later number sees, next, that the turn has moved. Pairs with
    /// [`HALF_WRITTEN`].
    #[cfg(any(test, not(target_has_atomic = "64")))]
    pub(crate) const HALF_SEEN: Ordering =
        if cfg!(mutant = "half_seen") { Ordering::Relaxed } else { Ordering::Acquire };

    /// What a thread did before it raised a flag comes before the flag. Pairs with [`FLAG_SEEN`].
    pub(crate) const FLAG_RAISED: Ordering =
        if cfg!(mutant = "flag_raised") { Ordering::Relaxed } else { Ordering::Release };

    /// What a thread does after it saw a flag comes after the flag. Pairs with [`FLAG_RAISED`].
    pub(crate) const FLAG_SEEN: Ordering =
        if cfg!(mutant = "flag_seen") { Ordering::Relaxed } else { Ordering::Acquire };
}

/// A signal from one thread to others that is raised once: stop, done, dead.
///
/// Who sees it raised also sees everything that the raising thread did before. So a consumer that
/// sees `done` and *then* finds the ring empty has had the last item; in the other order it may
/// miss it.
pub struct Flag(AtomicBool);

impl Flag {
    /// A flag that is not raised.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// A flag that is not raised.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the flag. There is no way back.
    #[inline]
    pub fn set(&self) {
        self.0.store(true, order::FLAG_RAISED);
    }

    /// Whether the flag is raised.
    #[must_use]
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(order::FLAG_SEEN)
    }
}

impl Default for Flag {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a glance, nothing is read on the strength of it.
        write!(f, "Flag({})", self.0.load(Ordering::Relaxed))
    }
}

/// A number that one thread keeps and others may look at: a counter for statistics and progress.
///
/// The value stands for itself: nothing else is published with it, and two such numbers read one
/// after the other need not be from the same moment.
pub struct Published(Word);

impl Published {
    /// A number that starts at zero.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(Word::new())
    }

    /// A number that starts at zero.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(Word::new())
    }

    /// Shows `value` to the other threads. Only the thread that keeps the number may call this:
    /// two writers would overwrite each other.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.set(value);
    }

    /// The value that was shown last, or shortly before.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

impl Default for Published {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Published({})", self.get())
    }
}

/// A count of the rounds that one thread makes. Who sees a round counted also sees everything that
/// was done in it, as with a [`Flag`].
pub struct Rounds(AtomicU32);

impl Rounds {
    /// No round yet.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// No round yet.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Counts a round. Only the thread that makes them may call this.
    #[inline]
    pub fn count(&self) {
        // Relaxed: only this thread writes.
        let made = self.0.load(Ordering::Relaxed);
        self.0.store(made.wrapping_add(1), order::FLAG_RAISED);
    }

    /// How many were made, modulo 2^32.
    #[must_use]
    #[inline]
    pub fn made(&self) -> u32 {
        self.0.load(order::FLAG_SEEN)
    }
}

impl Default for Rounds {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a glance, nothing is read on the strength of it.
        write!(f, "Rounds({})", self.0.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flag_stays_raised() {
        let flag = Flag::new();
        assert!(!flag.get());
        flag.set();
        assert!(flag.get());
        flag.set();
        assert!(flag.get());
        assert_eq!(format!("{flag:?}"), "Flag(true)");
    }

    #[test]
    fn rounds_are_counted_beyond_the_end() {
        let rounds = Rounds(AtomicU32::new(u32::MAX));
        assert_eq!(rounds.made(), u32::MAX);
        rounds.count();
        assert_eq!((rounds.made(), format!("{rounds:?}")), (0, "Rounds(0)".to_owned()));
    }

    #[test]
    fn a_published_number_is_read_back() {
        let number = Published::new();
        assert_eq!(number.get(), 0);
        number.set(u64::MAX);
        assert_eq!(number.get(), u64::MAX);
        assert_eq!(format!("{number:?}"), format!("Published({})", u64::MAX));
    }
}
