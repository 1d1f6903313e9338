//! The whole pipeline in one thread, under a virtual clock and a seeded scheduler.
//!
//! The machines are those of the product (`tensorwire_core::pipeline`), on the software NIC and the
//! CPU reorder; only the order of their steps, the time and the faults are made up. A [`Plan`]
//! decides everything, so a run can be repeated step for step; a seed draws a plan. After every
//! step everything is checked that can be known without asking the machines: what was sent, what
//! the wire did to it, what the receiver was handed.
//!
//! | file | what it is |
//! |---|---|
//! | `plan`, `draw` | what a run consists of, and how a seed decides it |
//! | `faults`, `schedule` | which faults happen when: a plan as data, and its file |
//! | `driver`, `parts` | the scheduler, the clock, the end; the machines and what is around them |
//! | `frames`, `cable` | what is sent, and what happens to it on the wire |
//! | `stages` | queue, reorder, inference and sink, with their faults |
//! | `world`, `truth`, `reading` | what is known: frames as they arrived, read independently |
//! | `model` | what must become of a stream that leaves no doubt |
//! | `hazard` | where a stream leaves a doubt |
//! | `interrupt` | signals |
//! | `meter` | what is allocated, in the tests of this crate |
//! | `check`, `violation` | the invariants, and the names of those that are broken |
//! | `shrink` | from a failing run to the few faults that it takes |
//!
//! ```
//! use tensorwire_sim::simulation::{Plan, run};
//!
//! let outcome = run(&Plan::quiet(1))?;
//! assert_eq!(outcome.delivered.len(), 32);
//! # Ok::<(), tensorwire_sim::simulation::Failure>(())
//! ```

mod cable;
mod check;
mod draw;
mod driver;
pub mod faults;
mod frames;
mod hazard;
mod interrupt;
mod meter;
mod model;
mod outcome;
mod parts;
mod plan;
mod reading;
mod schedule;
mod shrink;
mod stages;
mod truth;
mod violation;
mod world;

pub use driver::{record, run};
pub use outcome::{Coverage, Ending, Failure, Outcome};
pub use plan::{MINI, Plan, RxPoll, Weights};
pub use schedule::Schedule;
pub use shrink::{Shrunk, shrink};
pub use violation::Violation;

#[cfg(test)]
mod tests;
