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

/// Defines a function for each ordering: as it stands in every build but loom's, where the one that
/// the variable `MUTANT` names is `Relaxed`.
macro_rules! orderings {
    ($($(#[$attribute:meta])* $name:ident = $strong:ident;)*) => {
        $(
            $(#[$attribute])*
            #[inline]
            pub(crate) fn $name() -> Ordering {
                weakened(stringify!($name), Ordering::$strong)
            }
        )*
    };
}

/// The orderings of the protocols of this crate, each beside its partner.
///
/// They are functions so that each can be weakened alone: `core/loom.sh` shows that loom sees every
/// one of them. A thread's relaxed read of an index that only it writes needs no partner and is not
/// listed.
pub(crate) mod order {
    use super::Ordering;

    orderings! {
        /// The sender publishes items: the writes to their slots come before the new tail. Pairs
        /// with [`tail_seen`].
        tail_published = Release;

        /// The receiver sees items: it reads their slots after the tail. Pairs with
        /// [`tail_published`].
        tail_seen = Acquire;

        /// The receiver gives slots back: its reads of them come before the new head. Pairs with
        /// [`head_seen`].
        head_published = Release;

        /// The sender sees free slots: it overwrites them after the head. Pairs with
        /// [`head_published`].
        head_seen = Acquire;

        /// A number in halves is shown: its halves come before the turn. Pairs with [`turn_seen`].
        #[cfg(any(test, not(target_has_atomic = "64")))]
        turn_shown = Release;

        /// The halves are read after the turn that shows them. Pairs with [`turn_shown`].
        #[cfg(any(test, not(target_has_atomic = "64")))]
        turn_seen = Acquire;

        /// A half is overwritten: the turn that took it out of sight comes before it. Pairs with
        /// [`half_seen`].
        #[cfg(any(test, not(target_has_atomic = "64")))]
        half_written = Release;

        /// Who sees a half of a later number sees, next, that the turn has moved. Pairs with
        /// [`half_written`].
        #[cfg(any(test, not(target_has_atomic = "64")))]
        half_seen = Acquire;

        /// What a thread did before it raised a flag comes before the flag. Pairs with
        /// [`flag_seen`].
        flag_raised = Release;

        /// What a thread does after it saw a flag comes after the flag. Pairs with
        /// [`flag_raised`].
        flag_seen = Acquire;
    }

    #[cfg(not(loom))]
    #[inline(always)]
    const fn weakened(_: &str, strong: Ordering) -> Ordering {
        strong
    }

    /// At run time, so that one build of loom's tests has all mutants in it.
    #[cfg(loom)]
    fn weakened(name: &str, strong: Ordering) -> Ordering {
        static MUTANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let mutant = MUTANT.get_or_init(|| std::env::var("MUTANT").ok());
        if mutant.as_deref() == Some(name) { Ordering::Relaxed } else { strong }
    }
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
        self.0.store(true, order::flag_raised());
    }

    /// Whether the flag is raised.
    #[must_use]
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(order::flag_seen())
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
        self.0.store(made.wrapping_add(1), order::flag_raised());
    }

    /// How many were made, modulo 2^32.
    #[must_use]
    #[inline]
    pub fn made(&self) -> u32 {
        self.0.load(order::flag_seen())
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
