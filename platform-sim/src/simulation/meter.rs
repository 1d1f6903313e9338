//! Counts the memory that a machine allocates in a step; what the checker itself needs on the way
//! is kept apart. Only the tests of this crate count, since only they link a counting allocator.

#[cfg(not(test))]
pub(super) use off::{aside, inside, step};
#[cfg(test)]
pub(super) use on::{aside, inside, step};

#[cfg(not(test))]
mod off {
    /// A step of a machine, and how often it allocated: not counted here.
    #[inline]
    pub(in super::super) fn step<R>(work: impl FnOnce() -> R) -> (R, u64) {
        (work(), 0)
    }

    /// What the checker does on the way.
    #[inline]
    pub(in super::super) fn aside<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    /// What the product does inside of that.
    #[inline]
    pub(in super::super) fn inside<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

#[cfg(test)]
pub(super) mod on {
    use std::cell::Cell;

    use allocation_counter::measure;

    thread_local! {
        /// The checker is at work.
        static ASIDE: Cell<bool> = const { Cell::new(false) };
        /// How often it has allocated in this step.
        static OWN: Cell<u64> = const { Cell::new(0) };
        /// Each step allocates, as a machine with a leak would.
        static LEAK: Cell<bool> = const { Cell::new(false) };
    }

    fn counted<R>(work: impl FnOnce() -> R) -> (R, u64) {
        let mut result = None;
        let info = measure(|| result = Some(work()));
        (result.expect("it has run"), info.count_total)
    }

    /// A step of a machine, and how often it allocated.
    pub(in super::super) fn step<R>(work: impl FnOnce() -> R) -> (R, u64) {
        OWN.set(0);
        let (result, all) = counted(|| {
            if LEAK.get() {
                Box::leak(std::hint::black_box(Box::new(7_u64)));
            }
            work()
        });
        (result, all.wrapping_sub(OWN.get()))
    }

    /// What the checker does on the way.
    pub(in super::super) fn aside<R>(work: impl FnOnce() -> R) -> R {
        if ASIDE.get() {
            return work();
        }
        ASIDE.set(true);
        let (result, count) = counted(work);
        ASIDE.set(false);
        OWN.set(OWN.get().wrapping_add(count));
        result
    }

    /// What the product does inside of that.
    pub(in super::super) fn inside<R>(work: impl FnOnce() -> R) -> R {
        if !ASIDE.get() {
            return work();
        }
        ASIDE.set(false);
        let (result, count) = counted(work);
        ASIDE.set(true);
        // It is part of what the checker will be said to have allocated.
        OWN.set(OWN.get().wrapping_sub(count));
        result
    }

    /// Plants a leak while `work` runs.
    pub(in super::super) fn leaking<R>(work: impl FnOnce() -> R) -> R {
        LEAK.set(true);
        let result = work();
        LEAK.set(false);
        result
    }

    #[test]
    fn the_checker_is_kept_apart_and_what_it_calls_is_not() {
        let allocate = || drop(std::hint::black_box(Box::new(1_u8)));
        let twice = || (allocate(), allocate());
        let ((), count) = step(|| {
            allocate();
            aside(|| {
                twice();
                aside(allocate);
                inside(allocate);
            });
            inside(allocate);
        });
        assert_eq!(count, 3);
        assert_eq!(leaking(|| step(|| ())).1, 1);
    }
}
