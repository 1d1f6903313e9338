//! What becomes of the features: statistics, PCA, files, the summary.
//!
//! [`FeatureSink`] takes the results of each submission: its whole images go to the feature file
//! ([`npy`]), to the sums of their class, to the predictions and, every n-th batch, through a
//! [`pca`]. [`latency`], [`rates`] and [`timed`] say how fast it went. At the end [`Summary`]
//! brings these together with the counters of the core, as text for people and as one JSON object
//! for programs. Every JSON key is described in `docs/summary.md`.

mod anchoring;
mod classes;
mod config;
mod eigen;
mod features;
mod json;
pub mod latency;
pub mod lines;
pub mod npy;
mod parts;
pub mod pca;
pub mod rates;
mod summary;
#[cfg(test)]
pub(crate) mod testing;
mod text;
pub mod timed;

pub use anchoring::{Anchoring, Uncertain};
pub use classes::{ClassReport, ConfusionRow};
pub use config::{SinkConfig, SinkError, SinkOutputs};
pub use features::{FeatureSink, MAX_PREDICTED, SinkReport};
pub use latency::Latency;
pub use lines::{Lines, RateLimited, Report};
pub use npy::NpyWriter;
pub use parts::{
    Counter, Dropped, Images, Join, LatencyMs, LinkTotals, LoopCost, Malformed, Mode, Nic, Packets,
    Partial, Port, Slots, Truncated, TxTotals,
};
pub use rates::{RateInputs, RateMeter, Rates, RxWindow};
pub use summary::{Counted, RunFacts, Summary, Timing};
pub use timed::TimedSink;
