//! Talk: whole lines, each written by one call, and errors that do not drown their cause.
//!
//! Several threads talk to the same stderr. A line that is built up by several writes can be cut
//! apart by a line of another thread, and a script that looks for it at the start of a line then
//! misses it. So a line (or a block of lines) is put together first and written once.

use std::fmt::Write as _;
use std::io::{self, Write};

use tensorwire_core::time::Nanos;

/// Text that is put together line by line and written by one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(String);

impl Lines {
    /// No line yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(String::new())
    }

    /// No line yet, and room for `bytes` bytes without an allocation.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Adds a part of the current line.
    pub fn part(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a `String` does not fail.
        let _ = self.0.write_fmt(text);
    }

    /// Adds the rest of the current line and ends it.
    pub fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.part(text);
        self.0.push('\n');
    }

    /// Forgets the lines and keeps the room.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The text so far.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Hands all of it to `out` by one call of [`Write::write_all`] and flushes.
    ///
    /// # Errors
    ///
    /// What `out` says. A closed pipe is an error of the kind [`io::ErrorKind::BrokenPipe`]; it is
    /// the caller's to take it as "nobody listens".
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        out.write_all(self.0.as_bytes())?;
        out.flush()
    }
}

impl From<Lines> for String {
    fn from(lines: Lines) -> Self {
        lines.0
    }
}

/// What to do with one more error of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The first of its kind: say it in full.
    First,
    /// Enough time has passed: say how many there were.
    Repeated {
        /// Errors since the last report, this one included.
        since_last: u64,
        /// Errors in all.
        total: u64,
    },
    /// Say nothing; it is counted.
    Silent,
}

/// The limit for one kind of error that may come with every packet: the first in full, then at
/// most one line per interval, and a total at the end.
#[derive(Clone, Debug)]
pub struct RateLimited {
    interval: Nanos,
    last: Option<Nanos>,
    unreported: u64,
    total: u64,
}

impl RateLimited {
    /// At most one repeat per `interval`.
    #[must_use]
    pub const fn new(interval: Nanos) -> Self {
        Self { interval, last: None, unreported: 0, total: 0 }
    }

    /// Counts one more error at `now` and says what to tell.
    pub fn note(&mut self, now: Nanos) -> Report {
        self.total += 1;
        self.unreported += 1;
        let report = match self.last {
            None => Report::First,
            Some(last) if now.since(last) >= self.interval => {
                Report::Repeated { since_last: self.unreported, total: self.total }
            }
            Some(_) => return Report::Silent,
        };
        self.last = Some(now);
        self.unreported = 0;
        report
    }

    /// Errors in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The total for the last line of the run; `None` when everything was reported already.
    #[must_use]
    pub const fn finish(&self) -> Option<u64> {
        if self.unreported > 0 { Some(self.total) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the calls that reach it.
    #[derive(Default)]
    struct Calls(Vec<Vec<u8>>);

    impl Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn l06_a_block_of_lines_is_one_write() {
        let mut lines = Lines::new();
        lines.part(format_args!("pushed {}", 256));
        lines.line(format_args!(" images"));
        lines.line(format_args!("n={}", 8));
        let mut calls = Calls::default();
        lines.write_to(&mut calls).expect("memory takes it");
        assert_eq!(calls.0, [b"pushed 256 images\nn=8\n".to_vec()]);
    }

    #[test]
    fn no_line_is_no_write() {
        let mut calls = Calls::default();
        Lines::new().write_to(&mut calls).expect("nothing to do");
        assert!(calls.0.is_empty());
    }

    #[test]
    fn l07_ten_thousand_bad_frames_are_a_handful_of_lines_and_a_total() {
        // One bad frame every 100 µs: one second of them, with one line per 300 ms.
        let mut limit = RateLimited::new(Nanos::from_millis(300));
        let mut reports = Vec::new();
        for i in 0..10_000 {
            match limit.note(Nanos::from_micros(100 * i)) {
                Report::Silent => {}
                report => reports.push(report),
            }
        }
        assert_eq!(
            reports,
            [
                Report::First,
                Report::Repeated { since_last: 3_000, total: 3_001 },
                Report::Repeated { since_last: 3_000, total: 6_001 },
                Report::Repeated { since_last: 3_000, total: 9_001 },
            ]
        );
        assert_eq!(limit.finish(), Some(10_000));
        assert_eq!(limit.total(), 10_000);
    }

    #[test]
    fn a_single_error_at_time_zero_needs_no_total() {
        let mut limit = RateLimited::new(Nanos::from_secs(1));
        assert_eq!(limit.finish(), None);
        assert_eq!(limit.note(Nanos::ZERO), Report::First);
        assert_eq!(limit.finish(), None);
        assert_eq!(limit.note(Nanos::ZERO), Report::Silent);
        assert_eq!(limit.finish(), Some(2));
    }
}
