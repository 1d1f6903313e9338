//! The consumer: takes jobs, runs the inference, passes the features on, gives the buffers back.
#![forbid(unsafe_code)]

use core::fmt;

use crate::burst::{Burst, InFlight, Retained};
use crate::pipeline::{Anchor, ConsumerEnd, Job, Next};
use crate::port::{Delivery, Event, Infer, Outputs, Sink, SinkFault, StageError, Ticket};
use crate::time::Nanos;
use crate::window::ImageMask;

/// Submissions that may be pending at a time: the newest and the one before.
const MAX_PENDING: usize = 2;

/// What a consumer counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounters {
    /// Jobs taken from the ring.
    pub jobs: u64,
    /// Inferences enqueued.
    pub submissions: u64,
    /// Whole images that the sink took.
    pub delivered: u64,
    /// Whole images lost to a failed inference, or left when the consumer gave up.
    pub infer_failed: u64,
    /// Whole images that the sink did not take.
    pub sink_failed: u64,
    /// Whole images that were given up because the time for draining was over.
    pub shutdown: u64,
}

/// The counter of whole images that go back without a result.
type Lost = fn(&mut ConsumerCounters) -> &mut u64;

/// Why a consumer takes no more jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerFailure {
    /// The inference stage failed for good.
    Infer(StageError),
    /// The sink failed for good.
    Sink(SinkFault),
    /// The inference stage reported a result out of turn.
    OutOfTurn {
        /// The submission whose result was due.
        expected: Option<Ticket>,
        /// The one that was reported.
        reported: Ticket,
    },
}

impl fmt::Display for ConsumerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infer(error) => write!(f, "inference: {error}"),
            Self::Sink(fault) => write!(f, "{fault}"),
            Self::OutOfTurn { expected, reported } => {
                write!(f, "inference {} was reported when {expected:?} was due", reported.0)
            }
        }
    }
}

impl core::error::Error for ConsumerFailure {}

/// The job whose sub-batches are being submitted.
#[derive(Debug)]
struct Current {
    burst: Burst<InFlight>,
    job: JobInfo,
    /// First image of the next sub-batch.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct JobInfo {
    batch: u64,
    first_image: u64,
    whole: ImageMask,
    event: Event,
    last_packet: Nanos,
    anchor: Anchor,
}

/// A submission whose result has not come.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    delivery: Delivery,
    /// The buffer, with its last submission: it is free once this result came.
    burst: Option<Burst<Retained>>,
}

/// The inference side of a pipeline.
#[derive(Debug)]
pub struct Consumer<'a, I, S> {
    end: ConsumerEnd<'a>,
    infer: I,
    sink: S,
    images_per_batch: u32,
    images_per_inference: u32,
    current: Option<Current>,
    pending: heapless::Deque<Pending, MAX_PENDING>,
    next_ticket: u64,
    counters: ConsumerCounters,
    failure: Option<ConsumerFailure>,
    done: bool,
}

impl<'a, I: Infer, S: Sink> Consumer<'a, I, S> {
    /// A consumer of batches of `images_per_batch` images that infers `images_per_inference` at a
    /// time (clamped to 1..=`images_per_batch`; a divisor of it, as the configuration checks).
    pub fn new(
        end: ConsumerEnd<'a>,
        infer: I,
        sink: S,
        images_per_batch: u32,
        images_per_inference: u32,
    ) -> Self {
        Self {
            end,
            infer,
            sink,
            images_per_batch,
            images_per_inference: images_per_inference.clamp(1, images_per_batch.max(1)),
            current: None,
            pending: heapless::Deque::new(),
            next_ticket: 0,
            counters: ConsumerCounters::default(),
            failure: None,
            done: false,
        }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &ConsumerCounters {
        &self.counters
    }

    /// Why the consumer takes no more jobs, if so.
    #[must_use]
    pub const fn failure(&self) -> Option<ConsumerFailure> {
        self.failure
    }

    /// Buffers here, by state: in flight, retained.
    #[must_use]
    pub fn buffers(&self) -> (usize, usize) {
        let retained = self.pending.iter().filter(|pending| pending.burst.is_some()).count();
        (usize::from(self.current.is_some()), retained)
    }

    /// The sink, once the consumer has ended.
    pub fn into_parts(self) -> (I, S) {
        (self.infer, self.sink)
    }

    /// The sink.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// Does one round of work: at most one submission and one delivery. Blocks only where the
    /// inference stage does.
    pub fn step(&mut self) -> Next {
        if self.done {
            return Next::Done;
        }
        if self.failure.is_some() {
            return self.wind_up(|counters| &mut counters.infer_failed);
        }
        if self.end.signals.hurry.get() {
            return self.wind_up(|counters| &mut counters.shutdown);
        }
        // Read before the pop: a job pushed before the flag was raised is then seen.
        let producer_done = self.end.signals.producer_done.get();
        if self.current.is_none() {
            self.current = self.end.jobs.pop().map(Current::from);
            self.counters.jobs += u64::from(self.current.is_some());
        }
        if self.current.is_some() {
            self.submit_next();
            return Next::Again;
        }
        if producer_done {
            if planted!(DrainOneShort)
                && self.pending.len() == 1
                && let Some(burst) = self.pending.pop_front().and_then(|pending| pending.burst)
            {
                self.free(burst.reported());
            }
            if self.report(Report::Drain) {
                return Next::Again;
            }
            self.done = true;
            return Next::Done;
        }
        if self.report(Report::Idle) { Next::Again } else { Next::Wait(None) }
    }

    /// Submits the next sub-batch that holds a whole image, then delivers the result before it.
    fn submit_next(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        // At least 1 since `new`; said here again, so that no panic of `step_by` is linked.
        let size = self.images_per_inference.max(1);
        let next_with = |from: u32, whole: &ImageMask| {
            (from..self.images_per_batch)
                .step_by(size as usize)
                .find(|&first| !whole.window(first, size).is_empty())
        };
        let Some(first) = next_with(current.next, &current.job.whole) else {
            // A job always holds a whole image; one without goes straight back.
            self.free(current.burst.refused());
            return;
        };
        let last = next_with(first.saturating_add(size), &current.job.whole).is_none();
        let images = size.min(self.images_per_batch - first);
        let delivery = current.job.delivery(first, images, last);
        let ticket = Ticket(self.next_ticket);
        match self.infer.submit(ticket, &current.burst, first, images, current.job.event) {
            Ok(()) => {
                self.next_ticket += 1;
                self.counters.submissions += 1;
                current.next = first.saturating_add(size);
                let burst = if last {
                    Some(current.burst.retain())
                } else {
                    self.current = Some(current);
                    None
                };
                // There is room: the one before was reported after its submission.
                let _ = self.pending.push_back(Pending { ticket, delivery, burst });
                if self.infer.done_on_submit() {
                    self.report(Report::Idle);
                } else if self.pending.len() == MAX_PENDING {
                    self.report(Report::Previous);
                }
            }
            Err(error) => {
                self.counters.infer_failed += u64::from(delivery.whole.count());
                current.next = first.saturating_add(size);
                if error.fatal {
                    self.counters.infer_failed += left(&current, self.images_per_batch);
                    self.fail(ConsumerFailure::Infer(error));
                    self.free(current.burst.refused());
                } else if last {
                    if !planted!(LostReturn) {
                        self.free(current.burst.refused());
                    }
                } else {
                    self.current = Some(current);
                }
            }
        }
    }

    /// Delivers the oldest result, if it is to be had in the way `how`; whether there was one.
    fn report(&mut self, how: Report) -> bool {
        let Some(oldest) = self.pending.front() else { return false };
        let (sink, due) = (&mut self.sink, oldest);
        let newest = self.pending.back().unwrap_or(oldest);
        let shown = if planted!(ResultOfNext) { newest } else { oldest };
        let take = |ticket: Ticket, outputs: Outputs<'_>| {
            let in_turn = ticket == due.ticket;
            (ticket, if in_turn { sink.deliver(&shown.delivery, outputs) } else { Ok(()) })
        };
        let result = match how {
            Report::Previous => self.infer.take_previous(take),
            Report::Idle => self.infer.poll_idle(take),
            Report::Drain => self.infer.drain(take),
        };
        let Some(result) = result else { return false };
        let Some(pending) = self.pending.pop_front() else { return false };
        let whole = u64::from(pending.delivery.whole.count());
        match result {
            Ok((ticket, _)) if ticket != pending.ticket => {
                self.counters.infer_failed += whole;
                let expected = Some(pending.ticket);
                self.fail(ConsumerFailure::OutOfTurn { expected, reported: ticket });
            }
            Ok((_, Ok(()))) => self.counters.delivered += whole,
            Ok((_, Err(fault))) => {
                self.counters.sink_failed += whole;
                if fault.fatal {
                    self.fail(ConsumerFailure::Sink(fault));
                }
            }
            Err(error) => {
                self.counters.infer_failed += whole;
                if error.fatal {
                    self.fail(ConsumerFailure::Infer(error));
                }
            }
        }
        if let Some(burst) = pending.burst {
            self.free(burst.reported());
        }
        true
    }

    fn fail(&mut self, failure: ConsumerFailure) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.end.signals.consumer_dead.set();
        }
    }

    /// The inference stage.
    pub const fn infer(&self) -> &I {
        &self.infer
    }

    /// After a fatal failure, or when the time for draining is over: what is pending is still
    /// delivered, what is queued is counted as `lost` and its buffers go back, until the producer
    /// has ended.
    fn wind_up(&mut self, lost: Lost) -> Next {
        if self.report(Report::Drain) {
            return Next::Again;
        }
        let producer_done = self.end.signals.producer_done.get();
        if let Some(current) = self.current.take() {
            *lost(&mut self.counters) += left(&current, self.images_per_batch);
            self.free(current.burst.refused());
            return Next::Again;
        }
        if let Some(job) = self.end.jobs.pop() {
            self.counters.jobs += 1;
            *lost(&mut self.counters) += u64::from(job.whole.count());
            self.free(job.burst.discard());
            return Next::Again;
        }
        if let Some(pending) = self.pending.pop_front() {
            // The stage reports nothing although something is pending: it is given up by name.
            self.counters.infer_failed += u64::from(pending.delivery.whole.count());
            if let Some(burst) = pending.burst {
                self.free(burst.reported());
            }
            return Next::Again;
        }
        if producer_done {
            self.done = true;
            return Next::Done;
        }
        Next::Wait(None)
    }

    fn free(&mut self, burst: Burst<crate::burst::Free>) {
        self.end.give_back(burst);
    }
}

/// Whole images of a job that were not submitted yet.
fn left(current: &Current, images_per_batch: u32) -> u64 {
    let rest = images_per_batch.saturating_sub(current.next);
    u64::from(current.job.whole.window(current.next, rest).count())
}

impl From<Job> for Current {
    fn from(job: Job) -> Self {
        let info = JobInfo {
            batch: job.batch,
            first_image: job.first_image,
            whole: job.whole,
            event: job.event,
            last_packet: job.last_packet,
            anchor: job.anchor,
        };
        Self { burst: job.burst.submit(), job: info, next: 0 }
    }
}

impl JobInfo {
    fn delivery(&self, first: u32, images: u32, last_of_batch: bool) -> Delivery {
        Delivery {
            batch: self.batch,
            first_image: self.first_image + u64::from(first),
            images,
            whole: self.whole.window(if planted!(MaskOfFirst) { 0 } else { first }, images),
            last_packet: self.last_packet,
            last_of_batch,
            anchor: self.anchor,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Report {
    Previous,
    Idle,
    Drain,
}

#[cfg(test)]
mod tests;
