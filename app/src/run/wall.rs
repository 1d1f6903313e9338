//! The clock of the system, watched for being set.
//!
//! Nothing of a run goes by it: every time is of the monotonic clock. But whoever compares what a
//! run says with something that did go by it wants to know, so it is counted and said.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tensorwire_core::time::Nanos;

use super::clock::Clock;
use crate::talk::Talk;

/// A clock that is disciplined (NTP, PTP) is slewed, by 0.05 % at most, or set; between two looks,
/// some 50 ms apart, nothing but setting moves it by this much.
const STEP: i128 = 100_000_000;

/// Two clocks are read together, unless the thread was stopped for this long between them.
const TOGETHER: Nanos = Nanos(20_000_000);

/// The system's clock, by how far it is ahead of a run's.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// Nanoseconds.
    ahead: Option<i128>,
    steps: u64,
}

impl WallClock {
    /// Looks at both clocks, and says when one was set.
    pub(super) fn look(&mut self, clock: Clock, talk: Talk) {
        if let Some(step) = self.read(|| clock.now(), SystemTime::now) {
            let direction = if step > 0 { "ahead" } else { "back" };
            let seconds = Duration::from_nanos(u64::try_from(step.abs()).unwrap_or(u64::MAX));
            talk.say(format_args!(
                "notice: the system's clock was set {direction} by {:.1} s; nothing here goes by \
                 it",
                seconds.as_secs_f64()
            ));
        }
    }

    /// How far the system's clock was set since the last look, in nanoseconds; `None`: it was not.
    fn read(
        &mut self,
        mut own: impl FnMut() -> Nanos,
        system: impl FnOnce() -> SystemTime,
    ) -> Option<i128> {
        let before = own();
        let time = match system().duration_since(UNIX_EPOCH) {
            Ok(since) => nanos(since),
            Err(error) => -nanos(error.duration()),
        };
        if own().since(before) > TOGETHER {
            return None;
        }
        let ahead = time - i128::from(before.0);
        let step = self.ahead.map_or(0, |last| ahead - last);
        self.ahead = Some(ahead);
        let set = step.abs() >= STEP;
        self.steps += u64::from(set);
        set.then_some(step)
    }

    /// How often it was set so far.
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }
}

/// Nanoseconds since or before 1970: 2^64 seconds of them fit.
fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A look `at` seconds of the run, when the system's clock shows `shown` milliseconds.
    fn look(wall: &mut WallClock, at: u64, shown: i64) -> Option<i128> {
        let by = Duration::from_millis(shown.unsigned_abs());
        let time = if shown < 0 { UNIX_EPOCH - by } else { UNIX_EPOCH + by };
        wall.read(|| Nanos(at * SECOND), || time)
    }

    #[test]
    fn a_clock_that_is_set_is_counted_each_time_and_one_that_runs_is_not() {
        let mut wall = WallClock::default();
        assert_eq!(look(&mut wall, 1, 5_000), None, "where it stands at first is no step");
        assert_eq!(look(&mut wall, 2, 6_000), None);
        // Slewed, which adds up to more than a step.
        for second in 3..1_000 {
            let slewed = i64::try_from(second).expect("small") * 1_001 + 4_000;
            assert_eq!(look(&mut wall, second, slewed), None, "second {second}");
        }
        assert_eq!(look(&mut wall, 1_000, 1_004_999 + 3_600_000), Some(3_600_000_000_000));
        assert_eq!(look(&mut wall, 1_001, 1_006_000 + 3_600_000), None, "once");
        // Back, and to before 1970.
        assert_eq!(look(&mut wall, 1_002, 1_007_000 + 3_599_900), Some(-100_000_000));
        assert!(look(&mut wall, 1_003, -7).is_some_and(|step| step < 0));
        assert_eq!(wall.steps(), 3);
    }

    #[test]
    fn a_thread_that_was_stopped_between_the_clocks_says_nothing() {
        let mut wall = WallClock::default();
        let time = |seconds| move || UNIX_EPOCH + Duration::from_secs(seconds);
        let mut stopped = [Nanos(SECOND), Nanos(2 * SECOND)].into_iter();
        assert_eq!(wall.read(|| stopped.next().expect("two looks"), time(9)), None);
        assert_eq!(wall.ahead, None, "not even where it stands");
        assert_eq!(wall.read(|| Nanos(SECOND), time(9)), None);
        let mut stopped = [Nanos(2 * SECOND), Nanos(4 * SECOND)].into_iter();
        assert_eq!(wall.read(|| stopped.next().expect("two looks"), time(12)), None);
        assert_eq!((wall.read(|| Nanos(5 * SECOND), time(13)), wall.steps()), (None, 0));
    }
}
