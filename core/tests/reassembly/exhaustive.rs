//! Every sequence of arrivals up to a length, for geometries small enough.

use std::collections::BTreeMap;

use crate::driver::{Entry, Pair};
use crate::stream::geometry;

/// What may come next: any number, or, beyond those, time or a pool that runs low.
#[derive(Clone, Copy, Debug)]
struct Alphabet {
    numbers: u32,
    /// Adds a poll that comes back empty after the deadline of all that is open.
    tick: bool,
    /// Adds a low pool.
    relieve: bool,
}

impl Alphabet {
    fn letters(self) -> u32 {
        self.numbers + u32::from(self.tick) + u32::from(self.relieve)
    }

    fn say(self, letter: u32, pair: &mut Pair) {
        if letter < self.numbers {
            pair.send(letter);
        } else if self.tick && letter == self.numbers {
            pair.now += 1_000_000;
            pair.tick();
        } else {
            pair.relieve();
        }
    }
}

/// Runs every sequence of `length` letters, and by that every shorter one; returns how many.
fn all(
    shape: (u32, u32),
    width: u32,
    windows: u32,
    alphabet: Alphabet,
    length: u32,
    reached: &mut BTreeMap<&'static str, u64>,
) -> u64 {
    let geometry = geometry(shape, width);
    let timeout = if alphabet.tick { 1_000_000 } else { 0 };
    let count = u64::from(alphabet.letters()).pow(length);
    for sequence in 0..count {
        let mut pair = Pair::new(&geometry, windows, timeout);
        pair.entry = [Entry::Accept, Entry::PlaceFirst][usize::from(sequence % 2 == 1)];
        let mut rest = sequence;
        for _ in 0..length {
            let letter = u32::try_from(rest % u64::from(alphabet.letters())).expect("a letter");
            alphabet.say(letter, &mut pair);
            rest /= u64::from(alphabet.letters());
            pair.now += 1;
        }
        pair.finish();
        for (rule, times) in pair.model.reached {
            *reached.entry(rule).or_default() += times;
        }
    }
    count
}

/// 2 packets × 2 images; 3 bits are two batches in the number space, 2 bits are one.
#[test]
fn every_short_sequence_of_two_packets_by_two_images() {
    let plain = |numbers| Alphabet { numbers, tick: false, relieve: false };
    let timed = |numbers| Alphabet { numbers, tick: true, relieve: true };
    let mut reached = BTreeMap::new();
    for (width, windows, alphabet, length) in [
        (3, 1, plain(8), 6),
        (3, 2, plain(8), 6),
        (3, 2, timed(8), 5),
        (2, 1, plain(4), 8),
        (2, 2, plain(4), 8),
        (2, 2, timed(4), 6),
    ] {
        let sequences = all((2, 2), width, windows, alphabet, length, &mut reached);
        eprintln!(
            "{sequences} sequences of {length} letters out of {}: width {width}, {windows} open",
            alphabet.letters()
        );
        assert_eq!(sequences, u64::from(alphabet.letters()).pow(length));
    }
    for rule in ["confirmed: ahead", "confirmed: discontinuity", "cause: complete", "late"] {
        assert!(reached.contains_key(rule), "no sequence reached this: {rule}");
    }
}
