//! Adds up what the threads left behind.

use tensorwire_configs::Mode;
use tensorwire_core::pipeline::consumer::{ConsumerCounters, ConsumerFailure};
use tensorwire_core::pipeline::producer::{EndReason, ProducerReport};
use tensorwire_core::pipeline::transmitter::{FrameSource, TransmitEnd};
use tensorwire_core::time::Nanos;

use super::left::{ConsumerOutcome, Left, ProducerOutcome};
use super::plan::{Plan, failure};
use super::threads::Transmitted;
use crate::exit::{ExitCode, Failure};
use crate::sink::{self, Latency, RateMeter, RunFacts, SinkReport, Summary, Timing, TxTotals};

/// The failure behind a consumer that gave up, with the words of the stage that failed.
pub(crate) fn why(failed: &ConsumerFailure, detail: Option<String>) -> Failure {
    let exit = match failed {
        ConsumerFailure::Infer(_) => ExitCode::Device,
        ConsumerFailure::Sink(_) => ExitCode::File,
        _ => ExitCode::Internal,
    };
    let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    failure(exit, format!("{failed}{detail}"))
}

/// The summary of a run that was ready at `started`.
pub(super) fn add_up(plan: &Plan, started: Nanos, ended: Nanos, left: Left) -> Summary {
    let poller_cost = left.poller;
    let (mut consumer, consumer_failed) = split(left.consumer);
    let (producer, producer_failed) = split(left.producer);
    let (sender, sender_failed) = split(left.sender);
    // The first cause that is known: what a stage says before what its thread says.
    let failed = left
        .device
        .err()
        .or_else(|| consumer.as_mut().and_then(|consumer| consumer.failure.take()))
        .or(consumer_failed)
        .or(producer_failed)
        .or(sender_failed)
        .or_else(|| consumer.as_mut().and_then(close_sink))
        .or_else(|| producer.as_ref().and_then(producer_failure))
        .or_else(|| sender.as_ref().and_then(sender_failure));
    let (none, never) = (Latency::new(), RateMeter::new());
    let sink = consumer.as_ref().map(|consumer| &consumer.sink);
    let costs = [
        producer.as_ref().and_then(|producer| producer.cost),
        poller_cost,
        consumer.as_ref().and_then(|consumer| consumer.cost),
        sender.as_ref().and_then(|sender| sender.cost),
    ];
    let steady = costs.into_iter().flatten().collect();
    let facts = RunFacts {
        mode: match plan.mode {
            Mode::Rx => sink::Mode::Rx,
            Mode::Tx => sink::Mode::Tx,
            Mode::Both => sink::Mode::Both,
        },
        owed: plan.owed,
        geometry: plan.config.geometry,
        images_per_inference: plan.images_per_inference(),
        anchoring: plan.anchoring,
        producer: producer.as_ref().map(|producer| &producer.report),
        consumer: consumer.as_ref().map_or_else(ConsumerCounters::default, |c| c.counters),
        consumer_failure: None,
        timing: Timing {
            started,
            ended,
            meter: sink.map_or(&never, |sink| sink.meter()),
            infer: consumer.as_ref().map_or(&none, |consumer| &consumer.infer),
            reorder: producer.as_ref().map_or(&none, |producer| &producer.reorder),
            last_packet_to_features: sink.map_or(&none, |sink| sink.last_packet_to_features()),
        },
        steady,
        tx: sender.as_ref().map(|sender| totals(plan, sender)),
        links: left.links.totals(ended),
        clock_steps: left.clock_steps,
        failure: failed,
    };
    Summary::new(&facts, sink.map_or_else(SinkReport::default, |sink| sink.inner().report()))
}

fn split<T>(result: Result<Option<T>, Failure>) -> (Option<T>, Option<Failure>) {
    match result {
        Ok(value) => (value, None),
        Err(failure) => (None, Some(failure)),
    }
}

/// Puts the feature file in its place.
fn close_sink(consumer: &mut ConsumerOutcome) -> Option<Failure> {
    let error = consumer.sink.inner_mut().finish().err()?;
    Some(failure(ExitCode::File, error.to_string()))
}

fn producer_failure(producer: &ProducerOutcome) -> Option<Failure> {
    reorder_failure(&producer.report).or_else(|| {
        (!producer.all_free)
            .then(|| failure(ExitCode::Internal, "a batch buffer did not come back to its pool"))
    })
}

/// The failure of a reorder stage that ended the run.
pub(crate) fn reorder_failure(report: &ProducerReport) -> Option<Failure> {
    match report.end {
        Some(EndReason::ReorderFailed(error)) => {
            Some(failure(ExitCode::Device, format!("reorder: {error}")))
        }
        _ => None,
    }
}

fn sender_failure(sender: &Transmitted) -> Option<Failure> {
    match sender.end {
        Some(end @ TransmitEnd::TooLong(_)) => Some(failure(ExitCode::Config, end.to_string())),
        Some(end @ TransmitEnd::Stalled) => {
            Some(failure(ExitCode::Device, format!("sender: {end}")))
        }
        _ => None,
    }
}

fn totals(plan: &Plan, sender: &Transmitted) -> TxTotals {
    let per_pass = plan.frames.as_ref().map_or(0, |frames| FrameSource::frames(&frames));
    let frames = sender.owed.unwrap_or(per_pass);
    TxTotals::new(frames, &sender.counters, sender.wire, sender.span)
}
