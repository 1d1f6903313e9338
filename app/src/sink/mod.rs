//! What becomes of the features: statistics, PCA, files, the summary.

mod eigen;
pub mod latency;
pub mod lines;
pub mod npy;
pub mod pca;
pub mod rates;

pub use latency::Latency;
pub use lines::{Lines, RateLimited, Report};
pub use npy::NpyWriter;
pub use rates::{RateInputs, RateMeter, Rates, RxWindow};
