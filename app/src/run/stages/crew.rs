//! The threads of a run: made consumer first, and waited for.

use std::thread::{self, ScopedJoinHandle};

use tensorwire_core::pipeline::Signals;
use tensorwire_core::pipeline::poller::Poller;
use tensorwire_core::port::{RxQueue, TxQueue};
use tensorwire_core::sync::{Flag, Published};
use tensorwire_sim::trace::SharedLog;

use super::{Run, RunConsumer, RunProducer, RunTransmitter};
use crate::exit::{ExitCode, Failure};
use crate::run::clock::Clock;
use crate::run::left::{Left, consumed, produced};
use crate::run::link::Links;
use crate::run::machines::quiesce_wait;
use crate::run::plan::failure;
use crate::run::seats::Seats;
use crate::run::shown;
use crate::run::steady::Start;
use crate::run::threads::{
    Readiness, Seat, Transmitted, Watch, consume, linger_on_wire, outcome, poll, produce, transmit,
};
use crate::run::vitals::Vitals;
use crate::run::wall::WallClock;
use crate::service::Service;

/// A thread of a run, with the end that the watch has noticed.
type Running<'scope, R> = ScopedJoinHandle<'scope, thread::Result<Result<R, Failure>>>;

/// What all threads of a receiving run share.
pub(super) struct Crew<'a> {
    pub(super) signals: &'a Signals,
    pub(super) seats: &'a Seats,
    pub(super) clock: Clock,
    /// See [`Nic::JOINED`](crate::run::nic::Nic::JOINED).
    pub(super) joined: bool,
    pub(super) progress: &'a Published,
    pub(super) links: Links,
    pub(super) vitals: &'a Vitals,
    pub(super) service: &'a Service,
}

impl Run<'_> {
    /// Starts the threads, consumer first, says that the receiver is ready, and waits.
    pub(super) fn threads<'p, Q, R, T>(
        &self,
        mut crew: Crew<'_>,
        (producer, log): (RunProducer<'_, Q>, Option<SharedLog>),
        (close, reclaim): (impl FnOnce(&Q) + Send, impl FnOnce(&mut Q, Poller<'p, R>)),
        poller: Option<Poller<'p, R>>,
        consumer: RunConsumer<'_>,
        transmitter: Option<RunTransmitter<'_, T>>,
    ) -> Result<Left, Failure>
    where
        Q: RxQueue + Send,
        R: RxQueue + Send + 'p,
        T: TxQueue + Send,
    {
        let (seats, clock, signals) = (crew.seats, crew.clock, crew.signals);
        let bar = self.plan.talk.progress(self.expected(), "images", "images");
        let (mut watch, start) = (Watch::new(), &Start::new(clock));
        let mut keeper = self.service.keeper(crew.vitals, poller.is_some(), true);
        // The producer ends when the sender has, and with a poller between them it is the poller
        // that knows when nothing of it is on its way any more.
        let on_wire = Flag::new();
        let sent = if poller.is_some() { &on_wire } else { &signals.sender_done };
        // Nothing can come early from a sender that is started when the receiver is ready.
        let readiness = &Readiness::new(crew.joined || poller.is_none());
        let early = (!crew.joined).then_some(readiness);
        thread::scope(|scope| {
            // What is started waits for what is not, unless it is told: each failure raises the
            // flag that ends those before it, and nobody waits for a start any more.
            let _guard = start.guard();
            let seat = &seats.consumer;
            let show = shown::consumer(self.service, crew.vitals);
            let body = watch.guard(move || consume(seat, (signals, start), consumer, show));
            let consumer = spawn(scope, seat, body)?;
            let seat = &seats.producer;
            let show = shown::producer(self.service, crew.vitals);
            let body = watch.guard(move || {
                let (seated, log) = ((signals, start), log.as_ref());
                let left = produce(seat, seated, clock, producer, log, early, show);
                if let Ok((producer, _)) = &left {
                    close(producer.rx());
                }
                left
            });
            let producer = spawn(scope, seat, body).inspect_err(|_| signals.producer_done.set())?;
            let stop = |_: &Failure| signals.stop.set();
            let polling = match poller.zip(seats.poller.as_ref()) {
                None => None,
                Some((poller, seat)) => {
                    let show = shown::poller(crew.vitals);
                    let seated = (signals, start);
                    let body =
                        watch.guard(move || poll(seat, seated, sent, readiness, poller, show));
                    Some(spawn(scope, seat, body).inspect_err(stop)?)
                }
            };
            let sending = self.sending(scope, &crew, (&mut watch, start, sent), transmitter)?;
            let threads = 2 + usize::from(polling.is_some()) + usize::from(sending.is_some());
            let alive = || !producer.is_finished() && !consumer.is_finished();
            self.begin(start, threads, early, alive).inspect_err(stop)?;
            let mut wall = WallClock::default();
            let eyes = (&mut crew.links, &mut wall, &mut keeper);
            let device = self.supervise(watch, eyes, signals, || {
                bar.set_position(crew.progress.get());
                producer.is_finished()
            });
            bar.finish_and_clear();
            let mut producer = outcome("tw-producer", producer.join());
            let polled = polling.map(|thread| outcome("tw-poller", thread.join())).transpose();
            let polled = polled.map(|poller| {
                let (poller, cost) = poller.unzip();
                if let (Some(poller), Ok((producer, _))) = (poller, &mut producer) {
                    reclaim(producer.rx_mut(), poller);
                }
                cost.flatten()
            });
            Ok(Left {
                poller: polled.as_ref().ok().copied().flatten(),
                producer: polled.and(producer.map(produced)).map(Some),
                consumer: outcome("tw-consumer", consumer.join()).map(consumed).map(Some),
                sender: sending.map(|thread| outcome("tw-sender", thread.join())).transpose(),
                links: crew.links,
                clock_steps: wall.steps(),
                device,
            })
        })
    }

    /// Starts the sender, if there is one; `sent` is raised when all that it sent must have come.
    fn sending<'scope, 'env, T: TxQueue + Send + 'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, 'env>,
        crew: &Crew<'env>,
        (watch, start, sent): (&mut Watch, &'env Start, &'env Flag),
        transmitter: Option<RunTransmitter<'env, T>>,
    ) -> Result<Option<Running<'scope, Transmitted>>, Failure>
    where
        'env: 'scope,
    {
        let Some(transmitter) = transmitter else { return Ok(None) };
        let (signals, clock) = (crew.signals, crew.clock);
        let seats = crew.seats;
        let seat = &seats.transmitter;
        let linger = (!crew.joined).then_some(quiesce_wait(&self.plan.config));
        let show = shown::sender(crew.service, crew.vitals, false);
        let body = watch.guard(move || {
            let left = transmit(seat, (signals, start), clock, transmitter, show);
            linger_on_wire(signals, clock, linger);
            sent.set();
            left
        });
        spawn(scope, seat, body).inspect_err(|_| signals.stop.set()).map(Some)
    }
}

/// Starts the thread of a seat.
pub(super) fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    seat: &Seat,
    body: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>, Failure> {
    let name = seat.name;
    thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body).map_err(|error| {
        failure(ExitCode::Device, format!("thread `{name}` cannot be started: {error}"))
    })
}
