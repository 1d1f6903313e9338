//! The clock of a run, and the loop around a state machine.

use std::thread;
use std::time::{Duration, Instant};

use tensorwire_core::pipeline::Next;
use tensorwire_core::time::Nanos;

use super::steady::Meter;

/// Time since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Where it begins, for those whose times have to be its.
    #[must_use]
    pub const fn begin(self) -> Instant {
        self.0
    }

    /// The time now.
    #[must_use]
    pub fn now(self) -> Nanos {
        // 2^64 ns are 584 years.
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// How a thread waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It has a core for itself: it spins.
    Spin,
    /// There are fewer cores than threads: it spins a little, then yields, then sleeps for short
    /// times, so that it does not take the core from a thread that has work.
    Share,
}

impl Waiting {
    /// What fits a machine of `cores` cores and a run of `threads` busy threads.
    #[must_use]
    pub const fn for_machine(cores: usize, threads: usize) -> Self {
        if cores < threads { Self::Share } else { Self::Spin }
    }

    fn wait(self, idle: u32) {
        match self {
            Self::Spin => std::hint::spin_loop(),
            Self::Share if idle < 64 => std::hint::spin_loop(),
            Self::Share if idle < 512 => thread::yield_now(),
            // From here on nothing has come for some 100 µs. The longest nap bounds what a full
            // descriptor ring has to absorb: 8192 packets at 10 Gb/s are 8 ms.
            Self::Share => {
                thread::sleep(Duration::from_micros(if idle < 4_096 { 50 } else { 500 }))
            }
        }
    }
}

/// Steps a machine until it is done; each step is told the time.
pub fn drive(waiting: Waiting, meter: &mut Meter<'_>, mut step: impl FnMut(Nanos) -> Next) {
    let mut idle = 0u32;
    loop {
        match step(meter.turn()) {
            Next::Again => idle = 0,
            Next::Wait(_) => {
                waiting.wait(idle);
                idle = idle.saturating_add(1);
            }
            Next::Done => return,
        }
    }
}
