//! The pipeline as state machines: producer, consumer, transmitter, poller.
//!
//! Each has a `step(now) -> Next` that does a bounded amount of work and never blocks. A thread is
//! a loop around one of them, the simulator steps all of them from one, and both run the same code.
//!
//! ```text
//! Transmitter ─TxQueue→ wire ─RxQueue→ [Poller ─ring→] Producer ─job ring→ Consumer ─→ Sink
//!                                                         ↑──── return ring ────┘
//! ```

mod backlog;
pub mod consumer;
pub mod interrupt;
pub mod poller;
pub mod producer;
pub mod transmitter;

use crate::burst::{Burst, Free, Ready};
use crate::limits::{MAX_BATCH_BUFFERS, MAX_QUEUE_DEPTH};
use crate::port::Event;
use crate::ring::{CapacityError, Receiver, Ring, Sender};
use crate::sync::Flag;
use crate::time::Nanos;
use crate::window::ImageMask;

/// What a machine wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There was work; step again at once.
    Again,
    /// There was nothing to do. Step again when something may have come from outside, at the
    /// latest at the given time (`None`: only something from outside can bring work).
    Wait(Option<Nanos>),
    /// The machine has ended; further steps do nothing.
    Done,
}

/// What the index of a batch rests on: whether it is the index of the data set depends on where the
/// receiver joined, and on whether the stream broke since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Wire number of the first packet.
    pub join: u32,
    /// Discontinuities up to this batch.
    pub discontinuities: u64,
}

/// One batch on its way to the inference.
#[derive(Debug)]
pub struct Job {
    /// The output buffer.
    pub burst: Burst<Ready>,
    /// Number of the batch in the stream.
    pub batch: u64,
    /// Index of the first image of the batch.
    pub first_image: u64,
    /// The images that are whole; the others hold zeros in the slots that did not come.
    pub whole: ImageMask,
    /// When the reorder is done.
    pub event: Event,
    /// When the last packet of the batch arrived.
    pub last_packet: Nanos,
    /// What the indices rest on.
    pub anchor: Anchor,
}

/// What producer and consumer share: the two rings between them and the signals.
///
/// The shell owns it, splits it once, and gives each machine its end.
#[derive(Debug)]
pub struct Link {
    jobs: Ring<Job, MAX_QUEUE_DEPTH>,
    returns: Ring<Burst<Free>, MAX_BATCH_BUFFERS>,
    signals: Signals,
}

/// The signals of a run. Each is raised once and never lowered.
#[derive(Debug)]
pub struct Signals {
    /// The run is to end: the producer drains and finishes.
    pub stop: Flag,
    /// The time for draining is over: what the consumer has not begun is lost by name, so that the
    /// run ends soon. Raised after [`Signals::stop`], if at all.
    pub hurry: Flag,
    /// Everything that will be sent can be polled by the producer (only where we own the sender).
    /// With a poller between them that is later than on the wire: see
    /// [`Poller::drained`](poller::Poller::drained).
    pub sender_done: Flag,
    /// No job will follow. Raised by the producer.
    pub producer_done: Flag,
    /// The consumer takes no more jobs. Raised by the consumer, or by the shell for a consumer
    /// that panicked.
    pub consumer_dead: Flag,
}

impl Signals {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self {
            stop: Flag::new(),
            hurry: Flag::new(),
            sender_done: Flag::new(),
            producer_done: Flag::new(),
            consumer_dead: Flag::new(),
        }
    }

    #[cfg(loom)]
    fn new() -> Self {
        Self {
            stop: Flag::new(),
            hurry: Flag::new(),
            sender_done: Flag::new(),
            producer_done: Flag::new(),
            consumer_dead: Flag::new(),
        }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

impl Link {
    /// A link with empty rings and no signal raised.
    #[must_use]
    pub fn new() -> Self {
        Self { jobs: Ring::new(), returns: Ring::new(), signals: Signals::new() }
    }

    /// Lends the two ends. The job ring holds `queue_depth` jobs, the return ring one entry for
    /// each of the `buffers` batch buffers, so that returning one never fails.
    ///
    /// # Errors
    ///
    /// [`CapacityError`] when `queue_depth` is not in 1..=[`MAX_QUEUE_DEPTH`] or `buffers` not in
    /// 1..=[`MAX_BATCH_BUFFERS`].
    pub fn split(
        &mut self,
        queue_depth: usize,
        buffers: usize,
    ) -> Result<(ProducerEnd<'_>, ConsumerEnd<'_>), CapacityError> {
        let (jobs_in, jobs_out) = self.jobs.split(queue_depth)?;
        let (returns_in, returns_out) = self.returns.split(buffers)?;
        let signals = &self.signals;
        Ok((
            ProducerEnd { jobs: jobs_in, returns: returns_out, signals },
            ConsumerEnd { jobs: jobs_out, returns: returns_in, signals },
        ))
    }
}

/// The producer's end of a [`Link`].
#[derive(Debug)]
pub struct ProducerEnd<'a> {
    jobs: Sender<'a, Job, MAX_QUEUE_DEPTH>,
    returns: Receiver<'a, Burst<Free>, MAX_BATCH_BUFFERS>,
    signals: &'a Signals,
}

impl<'a> ProducerEnd<'a> {
    /// The signals of the run, for the shell to raise and read from any thread.
    #[must_use]
    pub const fn signals(&self) -> &'a Signals {
        self.signals
    }
}

/// The consumer's end of a [`Link`].
#[derive(Debug)]
pub struct ConsumerEnd<'a> {
    jobs: Receiver<'a, Job, MAX_QUEUE_DEPTH>,
    returns: Sender<'a, Burst<Free>, MAX_BATCH_BUFFERS>,
    signals: &'a Signals,
}

impl ConsumerEnd<'_> {
    /// The oldest job, for a shell that does the consumer's part itself (a replay).
    pub fn take_job(&mut self) -> Option<Job> {
        self.jobs.pop()
    }

    /// Gives a batch buffer back to the producer. There is room for every buffer of its pool.
    pub fn give_back(&mut self, burst: Burst<Free>) {
        let returned = self.returns.push(burst);
        debug_assert!(returned.is_ok(), "the return ring is full: {returned:?}");
    }
}

#[cfg(test)]
mod tests;
