//! What each machine of a run shows of itself, put together from its stages.

use tensorwire_core::pipeline::transmitter::TransmitCounters;
use tensorwire_core::port::RxQueue;
use tensorwire_core::time::Nanos;

use super::stages::{RunConsumer, RunProducer};
use super::vitals::{View, Vitals};
use crate::metrics::{Seen, Taken};
use crate::service::Service;

/// What shows the consumer after a step.
pub(super) fn consumer<'c>(
    service: &Service,
    vitals: &Vitals,
) -> impl FnMut(Nanos, &RunConsumer<'c>) + Send {
    let mut view = View::of_consumer(vitals, service.board());
    move |now, consumer| view.show(now, || taken(consumer))
}

/// What shows the producer after a step.
pub(super) fn producer<'p, Q: RxQueue>(
    service: &Service,
    vitals: &Vitals,
) -> impl FnMut(Nanos, &RunProducer<'p, Q>) + Send {
    let mut view = View::of_producer(vitals, service.board());
    move |now, producer| view.show(now, || seen(producer))
}

/// What shows the poller after a step.
pub(super) fn poller(vitals: &Vitals) -> impl FnMut(Nanos) + Send {
    let mut view = View::of_poller(vitals);
    move |now| view.show(now)
}

/// What shows the sender after a step; `alone`: nothing is received.
pub(super) fn sender(
    service: &Service,
    vitals: &Vitals,
    alone: bool,
) -> impl FnMut(Nanos, &TransmitCounters) + Send {
    let mut view = View::of_sender(vitals, service.board());
    move |now, counters| view.show(now, alone, counters)
}

fn seen<Q: RxQueue>(producer: &RunProducer<'_, Q>) -> Seen {
    let reorder = producer.reorder().inner().latency();
    Seen {
        status: producer.status(),
        nic: producer.rx().stats(),
        buffers: producer.buffers(),
        reordered: (reorder.count(), reorder.total()),
    }
}

fn taken(consumer: &RunConsumer<'_>) -> Taken {
    let delay = consumer.sink().inner().last_packet_to_features();
    Taken {
        counters: *consumer.counters(),
        inferring: consumer.infer().inner().latency().total(),
        delay: delay.percentile(50).zip(delay.percentile(99)),
    }
}
