//! Time as the core sees it: a number that the shell hands in. Nothing here reads a clock.

use core::fmt;

/// A point in time, or a span, in nanoseconds since an epoch of the shell's choice.
///
/// The epoch must not change during a run and the value must not go backwards; a value that does is
/// treated as "no time has passed" (all differences saturate at zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero, and the span of no length.
    pub const ZERO: Self = Self(0);

    /// A span of `us` microseconds; saturates at the end of the range (584 years).
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds; saturates at the end of the range.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds; saturates at the end of the range.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved `span` into the future; saturates.
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span in seconds, for people.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        // 2^53 ns are 104 days; beyond that the last digits of a report are rounded.
        #[expect(clippy::cast_precision_loss, reason = "a report, not arithmetic")]
        let ns = self.0 as f64;
        ns / 1e9
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_its_units() {
        let time = Nanos::from_millis(2_500);
        assert!((time.as_secs_f64() - 2.5).abs() < f64::EPSILON);
        assert_eq!(time.to_string(), "2500000000 ns");
    }
}
