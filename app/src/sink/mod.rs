//! What becomes of the features: statistics, PCA, files, the summary.

mod anchoring;
mod classes;
mod config;
mod eigen;
mod features;
pub mod latency;
pub mod lines;
pub mod npy;
pub mod pca;
pub mod rates;
pub mod timed;

pub use anchoring::{Anchoring, Uncertain};
pub use classes::{ClassReport, ConfusionRow};
pub use config::{SinkConfig, SinkError, SinkOutputs};
pub use features::{FeatureSink, MAX_PREDICTED, SinkReport};
pub use latency::Latency;
pub use lines::{Lines, RateLimited, Report};
pub use npy::NpyWriter;
pub use rates::{RateInputs, RateMeter, Rates, RxWindow};
pub use timed::TimedSink;
