//! A small seeded generator: the same seed gives the same numbers on every machine.

/// `SplitMix64`: a counter that advances by an odd constant and is mixed into the output.
///
/// Fast, one word of state, and every seed is a good one. It is for fault schedules and test
/// data, not for secrets. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014, with the mixing constants of David Stafford's variant 13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// The generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, uniform over all of u64.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `n − 1`; 0 when `n` is 0. By multiplication, not division: some numbers
    /// are more likely than others by at most one part in `2^64 / n`.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        let wide = self.next_u64() as u128 * n as u128;
        (wide >> 64) as u64
    }

    /// A generator of its own for a part of the work, so that a number drawn more in one part does
    /// not shift those of another.
    pub const fn child(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // Reference output of splitmix64 for the seed 1234567 (published test vector).
        let mut prng = Prng::new(1_234_567);
        let got: Vec<u64> = (0..5).map(|_| prng.next_u64()).collect();
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn below_stays_below_and_reaches_every_number() {
        let mut prng = Prng::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[usize::try_from(prng.below(7)).expect("below 7")] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!((prng.below(0), prng.below(1)), (0, 0));
    }

    #[test]
    fn children_differ_from_each_other_and_from_the_parent() {
        let mut prng = Prng::new(5);
        let (mut a, mut b) = (prng.child(), prng.child());
        let three = [a.next_u64(), b.next_u64(), prng.next_u64()];
        assert!(three[0] != three[1] && three[1] != three[2] && three[0] != three[2]);
    }
}
