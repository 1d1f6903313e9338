//! From a run that fails to the few faults that it takes.
//!
//! What happened in the failing run is a list of [events](super::faults::Event), and a plan of
//! exactly these events fails in the same way. From there on smaller plans are tried, as long as
//! one of them still fails in the same way: parts of the list left out, halves first, single
//! events last (the method is Zeller's delta debugging); fewer images; a simpler scheduler. Every
//! try is a run of its own, so the outcome is a plan that is known to fail.

use super::driver::run;
use super::faults::FaultPlan;
use super::outcome::Failure;
use super::plan::{Plan, RxPoll, Weights};
use super::violation::Violation;

/// What shrinking came to.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest plan that was found to fail.
    pub plan: Plan,
    /// How it fails.
    pub failure: Failure,
    /// Runs that were made.
    pub runs: u64,
}

/// Tries to fail in one way.
struct Search {
    kind: String,
    best: Plan,
    failure: Failure,
    runs: u64,
    left: u64,
}

impl Search {
    /// Keeps `plan` if it fails in the same way.
    fn tries(&mut self, plan: Plan) -> bool {
        if self.left == 0 || plan == self.best {
            return false;
        }
        self.left -= 1;
        self.runs += 1;
        match run(&plan) {
            Err(failure) if kind(&failure).as_ref() == Some(&self.kind) => {
                (self.best, self.failure) = (plan, failure);
                true
            }
            _ => false,
        }
    }

    /// Leaves out parts of the list of events.
    fn events(&mut self) {
        let mut size = self.best.faults.events.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.best.faults.events.len() {
                let mut plan = self.best.clone();
                let end = (at + size).min(plan.faults.events.len());
                plan.faults.events.drain(at..end);
                if !self.tries(plan) {
                    at += size;
                }
            }
            if size == 1 {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    /// Tries a change as often as it goes on failing.
    fn repeat(&mut self, change: impl Fn(&mut Plan)) {
        loop {
            let mut plan = self.best.clone();
            change(&mut plan);
            if !self.tries(plan) {
                return;
            }
        }
    }
}

fn kind(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Broken { violation, .. } => Some(Violation::kind(violation)),
        Failure::Plan(_) => None,
    }
}

/// Looks for a smaller plan that fails as `plan` does, in at most `budget` runs; `None` if `plan`
/// does not fail.
#[must_use]
pub fn shrink(plan: &Plan, budget: u64) -> Option<Shrunk> {
    let failure = run(plan).err()?;
    let Failure::Broken { events, .. } = &failure else { return None };
    let events = events.clone();
    let kind = kind(&failure)?;
    let mut search = Search { kind, best: plan.clone(), failure, runs: 1, left: budget };
    search.tries(Plan { faults: FaultPlan::of(events), ..plan.clone() });
    search.events();
    search.repeat(|plan| plan.passes = 1.max(plan.passes - 1));
    search.repeat(|plan| plan.images = 1.max(plan.images / 2));
    search.repeat(|plan| plan.images = 1.max(plan.images - 1));
    search.repeat(|plan| plan.windows = 1.max(plan.windows - 1));
    search.repeat(|plan| plan.rx_poll = RxPoll::Fused);
    search.repeat(|plan| plan.at_close = None);
    search.repeat(|plan| plan.weights = Weights::EVEN);
    search.events();
    let Search { best, failure, runs, .. } = search;
    Some(Shrunk { plan: best, failure, runs })
}
