//! Latencies: mean, median and 99th percentile over any number of samples, in bounded memory.
//!
//! A histogram with logarithmic buckets, each octave cut into 128 equal ones. A value below 128 ns
//! has a bucket of its own; any other falls into one whose width is at most 1/128 of the value.
//! A percentile is the middle of its bucket, so it is off by at most 1/256 of the true value
//! (0.4 %). Count, mean, smallest and largest are exact. 7,424 buckets cover every `u64`: nothing
//! is clamped, and nothing is allocated after the start.

use tensorwire_core::time::Nanos;

/// log2 of the buckets of one octave.
const SUB_BITS: u32 = 7;
/// Buckets of one octave.
const SUB: usize = 1 << SUB_BITS;
/// Buckets in all: the values below `SUB`, then one octave for each further bit of a `u64`.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// The bucket of a value.
const fn bucket_of(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    if bits <= SUB_BITS {
        // Below 128: the value itself is the index.
        return low_bits(ns);
    }
    let shift = bits - SUB_BITS - 1;
    // `ns >> shift` has exactly SUB_BITS + 1 bits; the leading one is the octave's.
    (shift as usize + 1) * SUB + low_bits(ns >> shift)
}

/// The lowest [`SUB_BITS`] bits as an index.
const fn low_bits(value: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "masked to seven bits")]
    let low = (value & (SUB as u64 - 1)) as usize;
    low
}

/// The middle of a bucket, rounded down.
const fn middle_of(bucket: usize) -> u64 {
    let low = (bucket % SUB) as u64;
    match (bucket / SUB).checked_sub(1) {
        None => low,
        Some(shift) => ((SUB as u64 + low) << shift) + ((1_u64 << shift) - 1) / 2,
    }
}

/// The distribution of a latency.
#[derive(Clone, Debug)]
pub struct Latency {
    /// Samples by bucket; length [`BUCKETS`].
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// No sample yet. Allocates 58 KiB, once.
    #[must_use]
    pub fn new() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds one sample. Constant time.
    pub fn record(&mut self, sample: Nanos) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(sample.0)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum_ns += u128::from(sample.0);
        self.min_ns = self.min_ns.min(sample.0);
        self.max_ns = self.max_ns.max(sample.0);
    }

    /// Number of samples.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// All samples added up; saturates at 584 years.
    #[must_use]
    pub fn total(&self) -> Nanos {
        Nanos(u64::try_from(self.sum_ns).unwrap_or(u64::MAX))
    }

    /// The arithmetic mean in nanoseconds, exact to the last bits of an `f64`. `None` without
    /// samples.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The percentile by the nearest-rank rule: the smallest sample that at least `percent` % of
    /// all samples do not exceed, to 0.4 %. `None` without samples.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Option<Nanos> {
        if self.count == 0 {
            return None;
        }
        let rank = (u128::from(self.count) * u128::from(percent.min(100))).div_ceil(100).max(1);
        // The two ends are known exactly.
        if rank == 1 {
            return Some(Nanos(self.min_ns));
        }
        if rank == u128::from(self.count) {
            return Some(Nanos(self.max_ns));
        }
        let mut seen = 0_u128;
        let bucket = self.buckets.iter().position(|&n| {
            seen += u128::from(n);
            seen >= rank
        })?;
        // The bucket's middle may lie outside of what was seen.
        Some(Nanos(middle_of(bucket).clamp(self.min_ns, self.max_ns)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn no_sample_no_figure() {
        let latency = Latency::new();
        assert_eq!(latency.mean_ns(), None);
        assert_eq!(latency.percentile(50), None);
        assert_eq!(latency.total(), Nanos::ZERO);
    }

    #[test]
    fn one_sample_is_every_figure_exactly() {
        let mut latency = Latency::new();
        latency.record(Nanos(8_413_377));
        assert_eq!(latency.mean_ns(), Some(8_413_377.0));
        for percent in [0, 1, 50, 99, 100] {
            assert_eq!(latency.percentile(percent), Some(Nanos(8_413_377)));
        }
    }

    #[test]
    fn small_values_are_exact() {
        let mut latency = Latency::new();
        for ns in 1..=100 {
            latency.record(Nanos(ns));
        }
        assert_eq!(latency.mean_ns(), Some(50.5));
        assert_eq!(latency.percentile(50), Some(Nanos(50)));
        assert_eq!(latency.percentile(99), Some(Nanos(99)));
        assert_eq!(latency.percentile(100), Some(Nanos(100)));
    }

    #[test]
    fn the_slowest_of_eight_is_the_99th_percentile() {
        let mut latency = Latency::new();
        for ns in [1, 2, 3, 4, 5, 6, 7, 120] {
            latency.record(Nanos(ns));
        }
        assert_eq!(latency.percentile(50), Some(Nanos(4)));
        assert_eq!(latency.percentile(99), Some(Nanos(120)));
    }

    #[test]
    fn buckets_join_without_gap_or_overlap() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        for bit in 0..64 {
            let edge = 1_u64 << bit;
            assert_eq!(bucket_of(edge), bucket_of(edge - 1) + 1, "at 2^{bit}");
        }
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(middle_of(bucket)), bucket);
        }
    }

    proptest! {
        #[test]
        fn every_percentile_is_within_the_stated_bound(
            mut samples in proptest::collection::vec(
                (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift), 1..200),
            percent in 1_u8..=100,
        ) {
            let mut latency = Latency::new();
            for &ns in &samples {
                latency.record(Nanos(ns));
            }
            samples.sort_unstable();
            let rank = (samples.len() * usize::from(percent)).div_ceil(100);
            let exact = samples[rank - 1];
            let found = latency.percentile(percent).expect("there are samples").0;
            prop_assert!(found.abs_diff(exact) <= exact / 256, "{found} for {exact}");
            prop_assert_eq!(latency.count(), samples.len() as u64);
        }
    }
}
