//! What a run shows of itself while it goes on: numbers for Prometheus.
//!
//! Every number is a counter or a gauge of the `metrics` crates, made before the run starts and
//! kept by the one thread that counts it. To show a number is one atomic operation, without a lock
//! and without an allocation, ten times a second; who asks is answered by a thread of its own.

mod address;
mod board;
mod scrape;
mod server;

pub use address::{END_POINT, end_point};
pub use board::{
    Board, ConsumerBoard, LinkBoard, Numbers, ProducerBoard, Seen, SenderBoard, Taken,
};
pub use scrape::{Sample, Scrape, ScrapeError};
pub use server::{Server, ServerError};
