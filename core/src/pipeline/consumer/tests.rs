//! The consumer alone, over a stage and a sink that fail on cue: every image has one fate, every
//! buffer comes back.

use std::boxed::Box;
use std::collections::VecDeque;

use super::*;
use crate::burst::BurstPool;
use crate::pipeline::{Link, ProducerEnd};

/// Images of a batch, and of an inference.
const BATCH: u32 = 4;
const SIZE: u32 = 2;

/// What goes wrong, at the submission or delivery with the given number (from 0).
#[derive(Clone, Copy, Debug, Default)]
struct Script {
    submit: Option<(u64, bool)>,
    result: Option<(u64, bool)>,
    deliver: Option<(u64, bool)>,
    /// The result with this number comes under another ticket.
    swapped: Option<u64>,
    /// From this submission on nothing is reported any more.
    mute: Option<u64>,
    /// Results do not come by themselves.
    lazy: bool,
}

#[derive(Debug)]
struct Stage {
    script: Script,
    submissions: u64,
    pending: VecDeque<Ticket>,
}

const fn error(call: &'static str, fatal: bool) -> StageError {
    StageError { call, code: -9, fatal }
}

impl Stage {
    fn give<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        let ticket = *self.pending.front()?;
        if self.script.mute.is_some_and(|from| ticket.0 >= from) {
            return None;
        }
        self.pending.pop_front();
        let of_this = |cue: Option<(u64, bool)>| cue.filter(|(at, _)| *at == ticket.0);
        if let Some((_, fatal)) = of_this(self.script.result) {
            return Some(Err(error("result", fatal)));
        }
        let swapped = self.script.swapped == Some(ticket.0);
        let shown = if swapped { Ticket(ticket.0 + 100) } else { ticket };
        Some(Ok(take(shown, Outputs { features: &[], feature_dim: 0, logits: &[], classes: 0 })))
    }
}

impl Infer for Stage {
    fn submit(
        &mut self,
        ticket: Ticket,
        _: &Burst<InFlight>,
        _: u32,
        _: u32,
        _: Event,
    ) -> Result<(), StageError> {
        assert!(self.pending.len() < MAX_PENDING, "at most two are pending");
        self.submissions += 1;
        match self.script.submit {
            Some((at, fatal)) if at == self.submissions - 1 => Err(error("submit", fatal)),
            _ => {
                self.pending.push_back(ticket);
                Ok(())
            }
        }
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending.len() < MAX_PENDING { None } else { self.give(take) }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.script.lazy { None } else { self.give(take) }
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.give(take)
    }
}

/// What was delivered: batch, first image, whole images, whether it was the last of its batch.
#[derive(Debug, Default)]
struct Kept {
    fail: Option<(u64, bool)>,
    calls: u64,
    taken: Vec<(u64, u64, u32, bool)>,
}

impl Sink for Kept {
    fn deliver(&mut self, delivery: &Delivery, _: Outputs<'_>) -> Result<(), SinkFault> {
        self.calls += 1;
        match self.fail {
            Some((at, fatal)) if at == self.calls - 1 => Err(SinkFault { fatal }),
            _ => {
                let Delivery { batch, first_image, last_of_batch, .. } = *delivery;
                self.taken.push((batch, first_image, delivery.whole.count(), last_of_batch));
                Ok(())
            }
        }
    }
}

fn mask(images: &[u32]) -> ImageMask {
    let mut mask = ImageMask::default();
    images.iter().for_each(|&image| mask.insert(image));
    mask
}

/// Seven whole images in three batches: all four, the middle two, the last one.
fn push_jobs(pool: &mut BurstPool, producer: &mut ProducerEnd<'_>) {
    for (batch, images) in [(0, &[0, 1, 2, 3][..]), (1, &[1, 2]), (2, &[3])] {
        let job = Job {
            burst: pool.take().expect("a buffer").begin().seal(),
            batch,
            first_image: batch * u64::from(BATCH),
            whole: mask(images),
            event: Event::DONE,
            last_packet: Nanos::ZERO,
            anchor: Anchor { join: 0, discontinuities: 0 },
        };
        producer.jobs.push(job).expect("room for a job");
    }
}

/// How a run of the three jobs ended.
struct Ended {
    counters: ConsumerCounters,
    failure: Option<ConsumerFailure>,
    taken: Vec<(u64, u64, u32, bool)>,
    /// Buffers in flight and retained, after each step.
    buffers: Vec<(usize, usize)>,
}

fn run(script: Script) -> Ended {
    let mut pool = BurstPool::new(3).expect("a pool");
    let mut link = Box::new(Link::new());
    let (mut producer, end) = link.split(4, 3).expect("a link");
    let signals = producer.signals();
    push_jobs(&mut pool, &mut producer);
    let stage = Stage { script, submissions: 0, pending: VecDeque::new() };
    let sink = Kept { fail: script.deliver, ..Kept::default() };
    let mut consumer = Consumer::new(end, stage, sink, BATCH, SIZE);
    let mut buffers = Vec::new();
    let mut steps = 0..100;
    let mut step = |consumer: &mut Consumer<'_, Stage, Kept>| {
        steps.next().expect("it does not go on for ever");
        let next = consumer.step();
        buffers.push(consumer.buffers());
        next
    };
    while step(&mut consumer) == Next::Again {}
    // It waits for more, dead or alive, until the producer has ended.
    assert_eq!(consumer.step(), Next::Wait(None));
    assert_eq!(signals.consumer_dead.get(), consumer.failure().is_some());
    signals.producer_done.set();
    while step(&mut consumer) == Next::Again {}
    assert_eq!((consumer.step(), consumer.buffers()), (Next::Done, (0, 0)));
    let (counters, failure) = (*consumer.counters(), consumer.failure());
    let all = counters.delivered + counters.infer_failed + counters.sink_failed;
    assert_eq!((counters.jobs, all), (3, 7), "{script:?}: {counters:?}");
    let (_, sink) = consumer.into_parts();
    let mut back = 0;
    while let Some(burst) = producer.returns.pop() {
        pool.put(burst).expect("a buffer of the pool");
        back += 1;
    }
    assert_eq!((back, pool.free()), (3, 3), "{script:?}");
    Ended { counters, failure, taken: sink.taken, buffers }
}

/// Submissions, delivered, lost to the inference, lost to the sink.
fn fates(script: Script) -> ((u64, u64, u64, u64), Option<ConsumerFailure>) {
    let Ended { counters: c, failure, .. } = run(script);
    ((c.submissions, c.delivered, c.infer_failed, c.sink_failed), failure)
}

/// The time for draining ends after some steps: what was begun is delivered, the rest of the batch
/// and what is queued is lost by name, every buffer comes back, and the run ends.
#[test]
fn what_is_queued_when_the_time_is_over_is_lost_by_name() {
    for (steps, delivered, lost) in [(0, 0, 7), (1, 2, 5), (2, 4, 3), (4, 6, 1), (5, 7, 0)] {
        let mut pool = BurstPool::new(3).expect("a pool");
        let mut link = Box::new(Link::new());
        let (mut producer, end) = link.split(4, 3).expect("a link");
        let signals = producer.signals();
        push_jobs(&mut pool, &mut producer);
        let stage = Stage { script: Script::default(), submissions: 0, pending: VecDeque::new() };
        let mut consumer = Consumer::new(end, stage, Kept::default(), BATCH, SIZE);
        for _ in 0..steps {
            assert_eq!(consumer.step(), Next::Again);
        }
        signals.hurry.set();
        signals.producer_done.set();
        let mut more = 0..10;
        while consumer.step() != Next::Done {
            more.next().expect("it ends soon");
        }
        let counters = *consumer.counters();
        assert_eq!((counters.delivered, counters.shutdown), (delivered, lost), "{steps}");
        assert!(consumer.infer().pending.is_empty() && !signals.consumer_dead.get());
        while let Some(burst) = producer.returns.pop() {
            pool.put(burst).expect("a buffer of the pool");
        }
        assert_eq!(pool.free(), 3);
    }
}

#[test]
fn each_sub_batch_with_a_whole_image_is_inferred_and_delivered_in_order() {
    for lazy in [false, true] {
        let ended = run(Script { lazy, ..Script::default() });
        let expected = [
            (0, 0, 2, false),
            (0, 2, 2, true),
            (1, 4, 1, false),
            (1, 6, 1, true),
            (2, 10, 1, true),
        ];
        assert_eq!(ended.taken, expected);
        assert_eq!((ended.counters.submissions, ended.counters.delivered), (5, 7));
        // In flight while sub-batches are to come, retained until the last result.
        assert_eq!(ended.buffers[..3], [(1, 0), (0, 1), (1, 0)]);
    }
}

#[test]
fn a_submission_that_fails_costs_its_own_images() {
    let at = |submission| fates(Script { submit: Some((submission, false)), ..Script::default() });
    for (submission, lost) in [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)] {
        assert_eq!(at(submission), ((4, 7 - lost, lost, 0), None), "{submission}");
    }
}

#[test]
fn a_submission_that_fails_for_good_costs_everything_that_is_left() {
    for (submission, submitted, delivered) in
        [(0, 0, 0), (1, 1, 2), (2, 2, 4), (3, 3, 5), (4, 4, 6)]
    {
        let failure = Some(ConsumerFailure::Infer(error("submit", true)));
        let script = Script { submit: Some((submission, true)), ..Script::default() };
        assert_eq!(fates(script), ((submitted, delivered, 7 - delivered, 0), failure));
    }
}

#[test]
fn a_result_that_fails_costs_its_own_images_or_all_that_is_left() {
    for (ticket, lost) in [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)] {
        let script = Script { result: Some((ticket, false)), ..Script::default() };
        assert_eq!(fates(script), ((5, 7 - lost, lost, 0), None), "{ticket}");
    }
    // The one submitted behind it is still delivered.
    let failure = Some(ConsumerFailure::Infer(error("result", true)));
    for (ticket, submitted, delivered) in [(0, 2, 2), (1, 3, 3), (4, 5, 6)] {
        let script = Script { result: Some((ticket, true)), ..Script::default() };
        assert_eq!(fates(script), ((submitted, delivered, 7 - delivered, 0), failure), "{ticket}");
    }
}

#[test]
fn a_sink_that_fails_costs_its_own_images_or_all_that_is_left() {
    for (call, lost) in [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)] {
        let script = Script { deliver: Some((call, false)), ..Script::default() };
        assert_eq!(fates(script), ((5, 7 - lost, 0, lost), None), "{call}");
    }
    let failure = Some(ConsumerFailure::Sink(SinkFault { fatal: true }));
    let script = Script { deliver: Some((1, true)), ..Script::default() };
    // Two are delivered, two are lost to the sink; of the second batch, one image was submitted.
    assert_eq!(fates(script), ((3, 3, 2, 2), failure));
}

#[test]
fn a_result_out_of_turn_is_not_delivered_and_ends_the_run() {
    let (fates, failure) = fates(Script { swapped: Some(1), ..Script::default() });
    assert_eq!(fates, (3, 3, 4, 0));
    let expected = Some(Ticket(1));
    assert_eq!(failure, Some(ConsumerFailure::OutOfTurn { expected, reported: Ticket(101) }));
    let words = failure.map(|failure| failure.to_string());
    let expected = "inference 101 was reported when Some(Ticket(1)) was due";
    assert_eq!(words.as_deref(), Some(expected));
    let failed = ConsumerFailure::Infer(error("enqueue", true));
    assert_eq!(failed.to_string(), "inference: enqueue failed (code -9)");
}

#[test]
fn what_a_dead_stage_never_reports_is_given_up_by_name() {
    // Submission 3 fails for good, and the one before is never reported.
    let script = Script { submit: Some((3, true)), mute: Some(2), ..Script::default() };
    let (fates, failure) = fates(script);
    assert_eq!(fates, (3, 4, 3, 0));
    assert!(matches!(failure, Some(ConsumerFailure::Infer(_))));
}

#[test]
fn an_inference_is_at_least_one_image_and_at_most_a_batch() {
    let submissions = |size: u32| {
        let mut pool = BurstPool::new(3).expect("a pool");
        let mut link = Box::new(Link::new());
        let (mut producer, end) = link.split(4, 3).expect("a link");
        push_jobs(&mut pool, &mut producer);
        producer.signals().producer_done.set();
        let stage = Stage { script: Script::default(), submissions: 0, pending: VecDeque::new() };
        let mut consumer = Consumer::new(end, stage, Kept::default(), BATCH, size);
        while consumer.step() != Next::Done {}
        consumer.counters().submissions
    };
    assert_eq!([0, 1, 2, 4, 99].map(submissions), [7, 7, 5, 3, 3]);
}
