//! From the start to the steady state, and what the loops cost there.
//!
//! All threads are made, take their seats (core and class), and wait. Then memory is filled in and
//! locked, stacks and all; then the receiver starts, says that it is ready, and whoever sends here
//! begins. From there on each loop notes what it costs that it should not: allocations, page
//! faults, and the longest time between two of its turns.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tensorwire_core::sync::Flag;
use tensorwire_core::time::Nanos;
use tensorwire_host::memory::{Locked, lock_all};
use tensorwire_host::{alloc, usage};

use super::clock::Clock;
use super::noted;
use super::plan::{Plan, failure};
use crate::exit::{ExitCode, Failure};
use crate::sink::LoopCost;

/// The way of a run's threads to the steady state.
#[derive(Debug)]
pub struct Start {
    seated: Gate,
    go: Gate,
    ready: Flag,
    clock: Clock,
}

/// A place where threads wait until all have come and one opens it.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    threads: usize,
    open: bool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.threads += 1;
        self.changed.notify_all();
        while !state.open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        self.changed.notify_all();
    }

    /// Waits until `threads` have come. One that died on the way never does: `alive` is asked now
    /// and then.
    fn full(&self, threads: usize, alive: impl Fn() -> bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.threads < threads && alive() {
            let wait = self.changed.wait_timeout(state, Duration::from_millis(50));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Start {
    /// Nobody is seated yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { seated: Gate::default(), go: Gate::default(), ready: Flag::new(), clock }
    }

    /// A thread has its seat; it goes on when the memory is locked.
    pub fn seated(&self) {
        self.seated.pass();
    }

    /// Whoever sends from here waits until the receiver is ready.
    pub fn wait_until_ready(&self) {
        self.go.pass();
    }

    /// Waits until `threads` are seated, while all are `alive`.
    pub fn all_seated(&self, threads: usize, alive: impl Fn() -> bool) {
        self.seated.full(threads, alive);
    }

    /// Lets those go on that were seated.
    pub fn open(&self) {
        self.seated.open();
    }

    /// The receiver is ready: the steady state begins.
    pub fn ready(&self) {
        self.ready.set();
        noted::ready();
        self.go.open();
    }

    /// Lets everybody pass when it is dropped, so that nobody waits for a start that failed.
    #[must_use]
    pub fn guard(&self) -> StartGuard<'_> {
        StartGuard(self)
    }

    /// A meter for a loop.
    #[must_use]
    pub const fn meter(&self) -> Meter<'_> {
        Meter { start: self, before: None, last: Nanos(0), turns: 0, longest: Nanos(0) }
    }
}

/// See [`Start::guard`].
#[derive(Debug)]
pub struct StartGuard<'a>(&'a Start);

impl Drop for StartGuard<'_> {
    fn drop(&mut self) {
        self.0.seated.open();
        self.0.go.open();
    }
}

/// Locks all memory, if the configuration asks for it.
///
/// # Errors
///
/// A [`Failure`] (exit 5) that names the right that is missing and how to give it.
pub fn settle(plan: &Plan) -> Result<Option<Locked>, Failure> {
    if !plan.config.settings.lock_memory {
        return Ok(None);
    }
    let locked = lock_all().map_err(|error| {
        failure(ExitCode::Device, format!("tensorwire.lock_memory: memory is not locked: {error}"))
    })?;
    plan.talk.say(format_args!(
        "memory: {} MiB in {} mappings filled in and locked, {} locked as they are touched",
        locked.filled_bytes >> 20,
        locked.filled,
        locked.left
    ));
    Ok(Some(locked))
}

/// Watches one loop.
#[derive(Debug)]
pub struct Meter<'a> {
    start: &'a Start,
    before: Option<Count>,
    last: Nanos,
    turns: u64,
    longest: Nanos,
}

/// What is counted for a thread.
#[derive(Clone, Copy, Debug)]
struct Count {
    allocations: Option<u64>,
    faults: usage::PageFaults,
}

impl Count {
    fn now() -> Self {
        Self {
            allocations: alloc::by_this_thread(),
            faults: usage::page_faults().unwrap_or_default(),
        }
    }
}

impl Meter<'_> {
    /// A turn begins: the time, and one more turn since the run was ready.
    pub fn turn(&mut self) -> Nanos {
        let now = self.start.clock.now();
        if self.before.is_some() {
            self.turns += 1;
            let turn = now.since(self.last);
            if turn > self.longest {
                self.longest = turn;
            }
        } else if self.start.ready.get() {
            self.before = Some(Count::now());
        }
        self.last = now;
        now
    }

    /// What the loop of the calling thread has cost; `None` for one that ended before the run was
    /// ready.
    #[must_use]
    pub fn cost(&self, thread: &'static str) -> Option<LoopCost> {
        let (before, after) = (self.before?, Count::now());
        let allocations = before.allocations.zip(after.allocations);
        Some(LoopCost {
            thread,
            turns: self.turns,
            allocations: allocations.map(|(before, after)| after.wrapping_sub(before)),
            minor_faults: after.faults.minor - before.faults.minor,
            major_faults: after.faults.major - before.faults.major,
            longest_turn_ms: self.longest.as_secs_f64() * 1e3,
        })
    }
}
