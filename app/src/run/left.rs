//! What the threads of a run leave behind.

use tensorwire_core::pipeline::consumer::ConsumerCounters;
use tensorwire_core::pipeline::producer::ProducerReport;
use tensorwire_core::port::RxQueue;
use tensorwire_core::time::Nanos;

use super::link::Links;
use super::progress::Progress;
use super::report;
use super::stages::{RunInfer, RunProducer};
use super::threads::{Consumed, Transmitted};
use crate::exit::Failure;
use crate::sink::{FeatureSink, Latency, LoopCost, TimedSink};

/// What the threads left behind; `None` for those that the run did not have.
pub(super) struct Left {
    pub(super) producer: Result<Option<ProducerOutcome>, Failure>,
    pub(super) consumer: Result<Option<ConsumerOutcome>, Failure>,
    pub(super) sender: Result<Option<Transmitted>, Failure>,
    /// What the loop of the poller has cost.
    pub(super) poller: Option<LoopCost>,
    pub(super) links: Links,
    /// Times that the system's clock was set.
    pub(super) clock_steps: u64,
    /// That a device is gone.
    pub(super) device: Result<(), Failure>,
}

/// What the producer left behind, once the consumer has ended too.
pub(super) struct ProducerOutcome {
    pub(super) report: ProducerReport,
    pub(super) reorder: Latency,
    pub(super) all_free: bool,
    pub(super) cost: Option<LoopCost>,
}

/// What the consumer left behind.
pub(super) struct ConsumerOutcome {
    pub(super) counters: ConsumerCounters,
    pub(super) failure: Option<Failure>,
    pub(super) infer: Latency,
    pub(super) sink: RunSink,
    pub(super) cost: Option<LoopCost>,
}

/// The sink with its watch.
pub(super) type RunSink = TimedSink<FeatureSink, Box<dyn FnMut() -> Nanos + Send>>;

/// What the producer leaves behind, once the consumer has ended.
pub(super) fn produced<Q: RxQueue>(
    (mut producer, cost): (RunProducer<'_, Q>, Option<LoopCost>),
) -> ProducerOutcome {
    ProducerOutcome {
        cost,
        all_free: producer.all_buffers_free(),
        report: producer.report(),
        reorder: producer.reorder().inner().latency().clone(),
    }
}

/// What the consumer leaves behind, with the words of the stage that failed.
pub(super) fn consumed(left: Consumed<RunInfer<'_>, Progress<'_, RunSink>>) -> ConsumerOutcome {
    let sink = left.sink.into_inner();
    let infer = left.infer.inner();
    let words = infer.inner().last_error();
    let words = words.or_else(|| sink.inner().fault().map(ToString::to_string));
    ConsumerOutcome {
        counters: left.counters,
        failure: left.failure.map(|failure| report::why(&failure, words)),
        infer: infer.latency().clone(),
        sink,
        cost: left.cost,
    }
}
