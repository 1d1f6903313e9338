//! The clock of a device, in terms of this process's.
//!
//! A time stamp is a number of the device's own clock, whose rate and beginning only the device
//! knows. Both clocks are read together, again and again, and what lies between is on the line
//! through the first pair and the last.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use tensorwire_core::time::Nanos;

/// Two clocks, read as one: ticks of the device, and nanoseconds of ours.
type Pair = (u64, u64);

/// How far behind the last pair a stamp may lie, and how far ahead: beyond nobody has looked at the
/// device's clock for too long, and it may be off by more than a stamp is good for.
const REACH: Duration = Duration::from_secs(5);

/// How much the rate may change from one pair to the next, as one part in so many. Two crystals
/// differ by some hundred parts in a million; more is a clock that was set.
const STEADY: f64 = 1000.0;

/// The line through the pairs so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    first: Pair,
    last: Pair,
    nanos_per_tick: f64,
}

impl Line {
    /// Through two pairs; `None` where the device's clock did not move on between them.
    fn through(first: Pair, last: Pair) -> Option<Self> {
        let ticks = last.0.wrapping_sub(first.0);
        let nanos = last.1.saturating_sub(first.1);
        // Both are far below 2^53 for as long as a run is one.
        #[expect(clippy::cast_precision_loss, reason = "a quotient of durations")]
        let nanos_per_tick = nanos as f64 / ticks as f64;
        let moved = nanos > 0 && ticks > 0 && ticks < u64::MAX / 2;
        moved.then_some(Self { first, last, nanos_per_tick })
    }

    /// With one pair more. A clock that was set begins anew, at the rate that it had.
    fn with(self, pair: Pair) -> Self {
        let Some(new) = Self::through(self.first, pair) else {
            return Self { first: pair, last: pair, ..self };
        };
        let change = (new.nanos_per_tick / self.nanos_per_tick - 1.0).abs();
        if change < 1.0 / STEADY { new } else { Self { first: pair, last: pair, ..self } }
    }
}

/// The line, for any thread to read while one writes it.
#[derive(Debug, Default)]
struct Shown {
    /// Odd while it is written.
    version: AtomicU64,
    ticks: AtomicU64,
    nanos: AtomicU64,
    /// Bits of an `f64`.
    nanos_per_tick: AtomicU64,
}

impl Shown {
    /// Called by one thread at a time.
    fn show(&self, line: &Line) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // What is read in between is seen to be odd, or to have changed.
        fence(Ordering::Release);
        self.ticks.store(line.last.0, Ordering::Relaxed);
        self.nanos.store(line.last.1, Ordering::Relaxed);
        self.nanos_per_tick.store(line.nanos_per_tick.to_bits(), Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The last pair and the rate; `None` while they are written, which takes a moment, and before
    /// there are any.
    fn read(&self) -> Option<(Pair, f64)> {
        let version = self.version.load(Ordering::Acquire);
        let pair = (self.ticks.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed));
        let rate = f64::from_bits(self.nanos_per_tick.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let same = self.version.load(Ordering::Relaxed) == version;
        (same && version.is_multiple_of(2) && version > 0).then_some((pair, rate))
    }
}

/// A device's clock. It is read by [`DeviceClock::sync`], many times a second and not by a thread
/// that carries packets: a read is a call into the driver.
#[derive(Debug)]
pub(crate) struct DeviceClock {
    epoch: Instant,
    line: Mutex<Line>,
    shown: Shown,
}

impl DeviceClock {
    /// The clock that `ticks` reads, with times from `epoch` on. Takes some 20 ms.
    ///
    /// # Errors
    ///
    /// That of `ticks`, and `None` for a clock that stands still.
    pub(crate) fn new<E>(
        epoch: Instant,
        mut ticks: impl FnMut() -> Result<u64, E>,
    ) -> Result<Self, Option<E>> {
        let first = pair(epoch, &mut ticks).map_err(Some)?;
        std::thread::sleep(Duration::from_millis(20));
        let second = pair(epoch, &mut ticks).map_err(Some)?;
        let line = Line::through(first, second).ok_or(None)?;
        let clock = Self { epoch, line: Mutex::new(line), shown: Shown::default() };
        clock.shown.show(&line);
        Ok(clock)
    }

    /// Looks at both clocks again. A device that does not answer changes nothing: soon nothing is
    /// read out of it any more.
    pub(crate) fn sync<E>(&self, mut ticks: impl FnMut() -> Result<u64, E>) {
        // One that panicked while it had the line has left it whole.
        let mut line = self.line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Ok(pair) = pair(self.epoch, &mut ticks) {
            *line = line.with(pair);
            self.shown.show(&line);
        }
    }

    /// The time of a stamp; `None` for one that cannot be of these seconds.
    #[inline]
    pub(crate) fn at(&self, ticks: u64) -> Option<Nanos> {
        let ((base, at), rate) = self.shown.read()?;
        // Behind the base is negative.
        let distance = ticks.wrapping_sub(base).cast_signed();
        #[expect(clippy::cast_precision_loss, reason = "of a few seconds")]
        let nanos = distance as f64 * rate;
        #[expect(clippy::cast_precision_loss, reason = "five seconds")]
        let near = nanos.abs() <= REACH.as_nanos() as f64;
        #[expect(clippy::cast_possible_truncation, reason = "near")]
        near.then(|| Nanos(at.saturating_add_signed(nanos as i64)))
    }

    /// Its rate in hertz.
    pub(crate) fn hertz(&self) -> f64 {
        let line = self.line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        1e9 / line.nanos_per_tick
    }
}

/// Both clocks at once: of a few tries the one that took the least time, as a thread may lose its
/// core between the two.
fn pair<E>(epoch: Instant, ticks: &mut impl FnMut() -> Result<u64, E>) -> Result<Pair, E> {
    let mut best = None;
    for _ in 0..4 {
        let before = epoch.elapsed();
        let ticks = ticks()?;
        let took = epoch.elapsed().saturating_sub(before);
        let at = u64::try_from((before + took / 2).as_nanos()).unwrap_or(u64::MAX);
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, (ticks, at)));
        }
    }
    // Four tries were made.
    Ok(best.map(|(_, pair)| pair).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// A device that counts 25 MHz from a number of its own, so many parts in a million too fast.
    fn device(epoch: Instant, ppm: u64) -> impl FnMut() -> Result<u64, Infallible> {
        move || {
            let nanos = u64::try_from(epoch.elapsed().as_nanos()).expect("not yet");
            Ok((u64::MAX - 1000).wrapping_add(scaled(nanos, ppm)))
        }
    }

    fn scaled(nanos: u64, ppm: u64) -> u64 {
        let ticks = u128::from(nanos) * 25 * u128::from(1_000_000 + ppm) / 1_000_000_000;
        u64::try_from(ticks).expect("a short test")
    }

    #[test]
    fn stamps_are_times_of_ours_also_where_the_ticks_wrap() {
        let epoch = Instant::now();
        let mut ticks = device(epoch, 80);
        let clock = DeviceClock::new(epoch, &mut ticks).expect("it runs");
        assert!((clock.hertz() - 25e6).abs() < 25e6 * 0.01, "{}", clock.hertz());
        for _ in 0..3 {
            let before = epoch.elapsed();
            let stamp = ticks().expect("a number");
            let after = epoch.elapsed();
            let at = Duration::from_nanos(clock.at(stamp).expect("near").0);
            // A thread that lost its core in between is not the clock's fault.
            let slack = Duration::from_millis(2);
            assert!(at + slack > before && at < after + slack, "{before:?} {at:?} {after:?}");
            clock.sync(&mut ticks);
        }
    }

    #[test]
    fn a_stamp_that_is_far_off_is_none() {
        let line = Line { first: (0, 0), last: (1_000, 50_000), nanos_per_tick: 50.0 };
        let epoch = Instant::now();
        let clock = DeviceClock { epoch, line: Mutex::new(line), shown: Shown::default() };
        assert_eq!(clock.at(1_000), None, "nothing is shown yet");
        clock.shown.show(&line);
        assert_eq!(clock.at(1_000), Some(Nanos(50_000)));
        assert_eq!(clock.at(1_010), Some(Nanos(50_500)));
        assert_eq!(clock.at(999), Some(Nanos(49_950)));
        // Before our clock began.
        assert_eq!(clock.at(0_u64.wrapping_sub(1)), Some(Nanos(0)));
        let five_seconds = 5_000_000_000 / 50;
        assert!(clock.at(1_000 + five_seconds).is_some());
        assert_eq!(clock.at(1_001 + five_seconds), None);
        assert_eq!(clock.at(0), Some(Nanos(0)));
        // A driver that has no answer leaves things as they are.
        clock.sync(|| Err::<u64, ()>(()));
        assert_eq!(clock.at(1_000), Some(Nanos(50_000)));
    }

    #[test]
    fn a_clock_that_is_set_begins_anew_and_one_that_stands_is_none() {
        let line = Line::through((100, 1_000), (200, 3_000)).expect("it runs");
        assert!((line.nanos_per_tick - 20.0).abs() < 1e-9);
        let on = line.with((100_100, 2_001_100));
        assert_eq!((on.first, on.last), ((100, 1_000), (100_100, 2_001_100)));
        assert!((on.nanos_per_tick - 20.001).abs() < 1e-9);
        // Set ahead, set back, and not moved at all: the rate stays, the place is new.
        for pair in [(9_000_000, 2_002_000), (50, 2_002_000), (100_100, 2_001_100)] {
            let set = on.with(pair);
            assert_eq!(
                (set.last, set.nanos_per_tick.to_bits()),
                (pair, on.nanos_per_tick.to_bits())
            );
        }
        assert_eq!(Line::through((100, 1_000), (100, 3_000)), None);
        let still = DeviceClock::new(Instant::now(), || Ok::<u64, Infallible>(7));
        assert!(matches!(still, Err(None)));
        let refused = DeviceClock::new(Instant::now(), || Err::<u64, i32>(95));
        assert!(matches!(refused, Err(Some(95))));
    }
}
