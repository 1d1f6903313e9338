//! A number between threads where the processor loads and stores at most 32 bits at once
//! (thumbv7em): never half old and half new. On other machines only its tests are built.

use super::{AtomicU32, Ordering, order};

/// Two places take turns: the number is in that of the turn, and the next one is written to the
/// other. So a reader that interrupts the writer, and lets it no further, is done at once; one
/// beside it looks again only if a number was shown meanwhile.
///
/// One thread sets it. A reader that slept through exactly 2^32 numbers would be deceived.
pub(super) struct Halves {
    turn: AtomicU32,
    /// Low and high half.
    places: [[AtomicU32; 2]; 2],
}

impl Halves {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { turn: AtomicU32::new(0), places: [const { [const { AtomicU32::new(0) }; 2] }; 2] }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        let place = || [AtomicU32::new(0), AtomicU32::new(0)];
        Self { turn: AtomicU32::new(0), places: [place(), place()] }
    }

    const fn place(&self, turn: u32) -> &[AtomicU32; 2] {
        let [even, odd] = &self.places;
        if turn.is_multiple_of(2) { even } else { odd }
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        // Relaxed: only this thread writes it.
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        let [low, high] = self.place(turn);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let lower = value as u32;
        // Release: a reader that still reads this place for the turn before last, and finds this in
        // it, sees that the turn has moved.
        low.store(lower, order::half_written());
        high.store((value >> 32) as u32, order::half_written());
        // Release: who sees this turn finds its halves.
        self.turn.store(turn, order::turn_shown());
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        // Acquire: the halves of this turn, or of a later one, are read after it.
        let mut turn = self.turn.load(order::turn_seen());
        loop {
            let [low, high] = self.place(turn);
            // Acquire: whoever wrote this half had shown the turn before it.
            let low = low.load(order::half_seen());
            let high = high.load(order::half_seen());
            // Acquire: in case it is the one to go by.
            let now = self.turn.load(order::turn_seen());
            if now == turn {
                return u64::from(high) << 32 | u64::from(low);
            }
            turn = now;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_read_back() {
        let number = Halves::new();
        assert_eq!(number.get(), 0);
        for value in [1, u64::MAX, 1 << 32, 0xdead_beef_0123_4567, 0] {
            number.set(value);
            assert_eq!(number.get(), value);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Never half old and half new, and never back in time. Three numbers, so that a place is
    /// written anew under the reader.
    #[test]
    fn loom_a_number_in_halves_is_never_torn() {
        loom::model(|| {
            let number = Arc::new(Halves::new());
            let shown = Arc::clone(&number);
            let writer = thread::spawn(move || {
                for n in 1..=3_u64 {
                    shown.set(n << 32 | n);
                }
            });
            let mut before = 0;
            for _ in 0..2 {
                let value = number.get();
                assert_eq!(value >> 32, value & 0xffff_ffff, "torn");
                assert!(value >= before, "back in time");
                before = value;
            }
            writer.join().expect("the writer does not panic");
            assert_eq!(number.get(), 3 << 32 | 3);
        });
    }
}
