//! What came of a run, and of many.

use std::fmt;

use tensorwire_core::counters::TxStats;
use tensorwire_core::pipeline::consumer::{ConsumerCounters, ConsumerFailure};
use tensorwire_core::pipeline::producer::ProducerReport;
use tensorwire_core::time::Nanos;

use super::faults::{Event, Fault};
use super::plan::RxPoll;
use super::violation::Violation;

/// Why a run is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The plan cannot be carried out: what was refused, in words.
    Plan(String),
    /// An invariant was broken.
    Broken {
        /// The seed of the plan.
        seed: u64,
        /// The step after which it was seen.
        step: u64,
        /// The virtual time of that step.
        now: Nanos,
        /// What was broken.
        violation: Violation,
        /// The faults that had happened.
        events: Vec<Event>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(why) => write!(f, "the plan cannot be carried out: {why}"),
            Self::Broken { seed, step, now, violation, events } => {
                write!(f, "seed {seed}, step {step}, {now}, {} faults: {violation}", events.len())
            }
        }
    }
}

impl std::error::Error for Failure {}

/// How the program has to end after a run: the classes of its exit codes that a run can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// All images arrived.
    Complete,
    /// Images are owed.
    Owed,
    /// Inference or reorder failed.
    Device,
    /// The sink failed.
    File,
    /// A part of the program died.
    Internal,
    /// A second signal came, SIGINT: the process ended at once.
    Interrupted,
    /// A second signal came, SIGTERM: the process ended at once.
    Terminated,
}

impl Ending {
    /// Whether the process ended in the middle of the run.
    #[must_use]
    pub const fn at_once(self) -> bool {
        matches!(self, Self::Interrupted | Self::Terminated)
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Steps made.
    pub steps: u64,
    /// A number that depends on every step: equal for equal runs, and hardly ever otherwise.
    pub trace: u64,
    /// The virtual time at the end.
    pub ended: Nanos,
    /// What the producer counted.
    pub producer: ProducerReport,
    /// What the consumer counted.
    pub consumer: ConsumerCounters,
    /// Why the consumer gave up, if it did.
    pub failure: Option<ConsumerFailure>,
    /// What the wire counted.
    pub wire: TxStats,
    /// Indices of the images that the sink took, ascending.
    pub delivered: Vec<u64>,
    /// The faults that happened.
    pub events: Vec<Event>,
    /// How the program has to end, by what is known of the run.
    pub ending: Ending,
    /// Who polled the NIC.
    pub rx_poll: RxPoll,
    /// Whether the model could say what must become of every packet and every image.
    pub certain: bool,
}

/// What a sweep of many seeds has seen: a sweep in which something never happens proves nothing
/// about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Runs.
    pub runs: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// Frames sent.
    pub frames: u64,
    /// Images delivered.
    pub delivered: u64,
    /// Runs whose outcome was certain in every detail.
    pub certain: u64,
    /// Runs with a poller of their own.
    pub split: u64,
    /// Runs by how they had to end, in the order of [`Ending`].
    pub endings: [u64; 7],
    /// Faults by kind, in the order of [`Fault::ALL`].
    pub faults: [u64; Fault::ALL.len()],
}

impl Coverage {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        self.frames += outcome.wire.sent;
        self.delivered += outcome.delivered.len() as u64;
        self.certain += u64::from(outcome.certain);
        self.split += u64::from(outcome.rx_poll == RxPoll::Split);
        self.endings[outcome.ending as usize] += 1;
        for event in &outcome.events {
            self.faults[event.fault as usize] += 1;
        }
    }

    /// Adds what another sweep has seen.
    pub fn join(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.frames += other.frames;
        self.delivered += other.delivered;
        self.certain += other.certain;
        self.split += other.split;
        for (all, more) in self.endings.iter_mut().zip(other.endings) {
            *all += more;
        }
        for (all, more) in self.faults.iter_mut().zip(other.faults) {
            *all += more;
        }
    }

    /// Faults of all kinds.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.faults.iter().sum()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, steps, frames, delivered, certain, split, endings, .. } = self;
        let [complete, owed, device, file, internal, interrupted, terminated] = endings;
        writeln!(f, "runs {runs}, of which certain in every detail {certain}, split {split}")?;
        writeln!(f, "steps {steps}, frames sent {frames}, images delivered {delivered}")?;
        write!(f, "ended: complete {complete}, owed {owed}, device {device}, file {file}, ")?;
        writeln!(f, "internal {internal}, interrupted {interrupted}, terminated {terminated}")?;
        write!(f, "faults {}:", self.injected())?;
        for (fault, count) in Fault::ALL.iter().zip(self.faults).filter(|(_, count)| *count > 0) {
            write!(f, " {fault} {count}")?;
        }
        Ok(())
    }
}
