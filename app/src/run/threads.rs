//! The threads of a run: each is a loop around a state machine of the core.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tensorwire_core::counters::TxStats;
use tensorwire_core::pipeline::consumer::{Consumer, ConsumerCounters, ConsumerFailure};
use tensorwire_core::pipeline::poller::Poller;
use tensorwire_core::pipeline::producer::Producer;
use tensorwire_core::pipeline::transmitter::{
    FrameSource, TransmitCounters, TransmitEnd, Transmitter,
};
use tensorwire_core::pipeline::{Next, Signals};
use tensorwire_core::port::{Infer, Reorder, RxQueue, Sink, TxQueue};
use tensorwire_core::sync::Flag;
use tensorwire_core::time::Nanos;
use tensorwire_host::realtime;
use tensorwire_sim::trace::{self, SharedLog};

use super::clock::{Clock, Waiting, drive};
use super::pin::Pin;
use super::steady::Start;
use crate::exit::{ExitCode, Failure};
use crate::sink::LoopCost;

/// A thread of the run: its name, its core, how it waits.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Name of the thread, at most 15 bytes.
    pub name: &'static str,
    /// Its core; `None`: wherever the system likes.
    pub pin: Option<Pin>,
    /// Its priority in the real-time class; `None`: it is not in it.
    pub priority: Option<u8>,
    /// How it waits for work.
    pub waiting: Waiting,
}

impl Seat {
    /// Seats the calling thread, and waits until all others are seated too.
    fn take(&self, start: &Start) -> Result<(), Failure> {
        let seated = self.pin.as_ref().map_or(Ok(()), Pin::apply).and_then(|()| self.class());
        start.seated();
        seated
    }

    fn class(&self) -> Result<(), Failure> {
        let Some(priority) = self.priority else { return Ok(()) };
        realtime::make_fifo(priority).map_err(|error| Failure {
            exit: ExitCode::Device,
            reason: format!(
                "tensorwire.realtime_priority: thread `{}` is not real time: {error}",
                self.name
            ),
        })
    }
}

/// What the consumer's thread leaves behind.
#[derive(Debug)]
pub struct Consumed<I, S> {
    /// What was counted.
    pub counters: ConsumerCounters,
    /// Why it gave up, if it did.
    pub failure: Option<ConsumerFailure>,
    /// The inference stage.
    pub infer: I,
    /// The sink.
    pub sink: S,
    /// What its loop has cost.
    pub cost: Option<LoopCost>,
}

/// What the sender's thread leaves behind.
#[derive(Clone, Copy, Debug)]
pub struct Transmitted {
    /// What its loop has cost.
    pub cost: Option<LoopCost>,
    /// What was counted.
    pub counters: TransmitCounters,
    /// Frames that were owed.
    pub owed: Option<u64>,
    /// Why it ended.
    pub end: Option<TransmitEnd>,
    /// What queue and wire counted.
    pub wire: TxStats,
    /// How long it ran.
    pub span: Nanos,
}

/// Raises the consumer's flag when its thread unwinds, so that the producer does not wait for it.
struct DeadOnPanic<'a>(&'a Signals);

impl Drop for DeadOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.consumer_dead.set();
        }
    }
}

/// Runs the consumer to its end; `show` is called after each step.
///
/// # Errors
///
/// A [`Failure`] when the thread cannot be seated; the producer is told.
pub fn consume<'a, I: Infer, S: Sink>(
    seat: &Seat,
    (signals, start): (&Signals, &Start),
    mut consumer: Consumer<'a, I, S>,
    mut show: impl FnMut(Nanos, &Consumer<'a, I, S>),
) -> Result<Consumed<I, S>, Failure> {
    let _guard = DeadOnPanic(signals);
    if let Err(failure) = seat.take(start) {
        signals.consumer_dead.set();
        return Err(failure);
    }
    let mut meter = start.meter();
    drive(seat.waiting, &mut meter, |now| {
        let next = consumer.step();
        show(now, &consumer);
        next
    });
    let cost = meter.cost(seat.name);
    let (counters, failure) = (*consumer.counters(), consumer.failure());
    let (infer, sink) = consumer.into_parts();
    Ok(Consumed { counters, failure, infer, sink, cost })
}

/// How a receiver becomes ready on a wire: what came before is polled and given back, and counts as
/// early; then the producer starts, and then the world is told.
#[derive(Debug)]
pub struct Readiness {
    /// The NIC has been found empty once (or the producer polls it itself and will see).
    emptied: Flag,
    /// The producer has started.
    started: Flag,
}

/// The longest time for which early packets are looked for: a sender that does not wait for the
/// receiver leaves no poll empty.
const EARLY_WAIT: Nanos = Nanos::from_millis(100);

impl Readiness {
    /// Not ready yet. `emptied`: no poller has to find the NIC empty first.
    #[must_use]
    pub fn new(emptied: bool) -> Self {
        let readiness = Self { emptied: Flag::new(), started: Flag::new() };
        if emptied {
            readiness.emptied.set();
        }
        readiness
    }

    /// Whether the producer has started.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.started.get()
    }
}

/// Gives back what came before the producer was ready.
fn discard_early<'a, Q: RxQueue, O: Reorder>(
    readiness: &Readiness,
    clock: Clock,
    producer: &mut Producer<'a, Q, O>,
    stepped: impl Fn(Nanos, &Producer<'a, Q, O>),
) {
    let end = clock.now().plus(EARLY_WAIT);
    loop {
        // Read before the step: what the poller had passed on by then is polled by it.
        let emptied = readiness.emptied.get();
        let now = clock.now();
        let next = producer.step(now);
        stepped(now, producer);
        match next {
            Next::Again if now < end => {}
            Next::Wait(_) if !emptied && now < end => thread::yield_now(),
            _ => return,
        }
    }
}

/// Runs the producer to its end, and writes down what it meets if there is a `log`. The caller
/// takes the last buffers back once the consumer has ended too. `early`: packets may have come
/// before it is ready, and somebody waits until it is. `show` is called after each step.
///
/// # Errors
///
/// A [`Failure`] when the thread cannot be seated (the run is told to stop), or when the log
/// cannot be written.
pub fn produce<'a, Q: RxQueue, O: Reorder>(
    seat: &Seat,
    (signals, start): (&Signals, &Start),
    clock: Clock,
    mut producer: Producer<'a, Q, O>,
    log: Option<&SharedLog>,
    early: Option<&Readiness>,
    mut show: impl FnMut(Nanos, &Producer<'a, Q, O>),
) -> Result<(Producer<'a, Q, O>, Option<LoopCost>), Failure> {
    let seated = seat.take(start);
    if seated.is_err() {
        signals.stop.set();
    }
    let record = |now: Nanos, producer: &Producer<'a, Q, O>| {
        let Some(log) = log else { return };
        let dead = signals.consumer_dead.get();
        trace::lock(log).step(now, producer.status(), producer.buffers(), dead);
    };
    if let Some(readiness) = early {
        discard_early(readiness, clock, &mut producer, record);
    }
    let now = clock.now();
    producer.start(now);
    early.inspect(|readiness| readiness.started.set());
    let mut meter = start.meter();
    let Some(log) = log else {
        drive(seat.waiting, &mut meter, |now| {
            let next = producer.step(now);
            show(now, &producer);
            next
        });
        let cost = meter.cost(seat.name);
        return seated.map(|()| (producer, cost));
    };
    trace::lock(log).start(now);
    drive(seat.waiting, &mut meter, |now| {
        let next = producer.step(now);
        record(now, &producer);
        show(now, &producer);
        next
    });
    let cost = meter.cost(seat.name);
    let written = trace::lock(log).finish(&producer.report());
    written.map_err(|error| Failure {
        exit: ExitCode::File,
        reason: format!("--record-trace: cannot be written: {error}"),
    })?;
    seated.map(|()| (producer, cost))
}

/// Runs the poller of a split receive side to its end, and gives it back. `sent` is raised when all
/// frames are on the wire; the producer is told when all that came of them is on its way to it.
/// `show` is called after each step.
///
/// # Errors
///
/// A [`Failure`] when the thread cannot be seated; the run is told to stop.
pub fn poll<'a, Q: RxQueue>(
    seat: &Seat,
    (signals, start): (&Signals, &Start),
    sent: &Flag,
    readiness: &Readiness,
    mut poller: Poller<'a, Q>,
    mut show: impl FnMut(Nanos),
) -> Result<(Poller<'a, Q>, Option<LoopCost>), Failure> {
    let seated = seat.take(start);
    if seated.is_err() {
        signals.stop.set();
    }
    let mut meter = start.meter();
    drive(seat.waiting, &mut meter, |now| {
        let next = poller.step_until(sent, signals);
        if poller.drained() {
            readiness.emptied.set();
        }
        show(now);
        next
    });
    let cost = meter.cost(seat.name);
    seated.map(|()| (poller, cost))
}

/// Runs the sender to its end, or until the run stops; `show` is called after each step.
///
/// # Errors
///
/// A [`Failure`] when the thread cannot be seated; the run is told to stop.
pub fn transmit<T: TxQueue, F: FrameSource>(
    seat: &Seat,
    (signals, start): (&Signals, &Start),
    clock: Clock,
    mut transmitter: Transmitter<T, F>,
    mut show: impl FnMut(Nanos, &TransmitCounters),
) -> Result<Transmitted, Failure> {
    let seated = seat.take(start);
    if seated.is_err() {
        signals.stop.set();
    }
    start.wait_until_ready();
    let began = clock.now();
    let mut meter = start.meter();
    drive(seat.waiting, &mut meter, |now| {
        // Nobody may be left to receive what the wire still holds, so it is not waited for.
        if signals.stop.get() {
            return Next::Done;
        }
        let next = transmitter.step(now);
        show(now, transmitter.counters());
        next
    });
    let cost = meter.cost(seat.name);
    let end = transmitter.end().or(Some(TransmitEnd::Stopped));
    let (counters, owed) = (*transmitter.counters(), transmitter.owed());
    let (wire, span) = (transmitter.queue().stats(), clock.now().since(began));
    seated.map(|()| Transmitted { cost, counters, owed, end, wire, span })
}

/// Waits until what was sent must have come: for `linger`, or until the run stops. `None`: it has
/// come already.
pub fn linger_on_wire(signals: &Signals, clock: Clock, linger: Option<Nanos>) {
    let Some(end) = linger.map(|linger| clock.now().plus(linger)) else { return };
    while clock.now() < end && !signals.stop.get() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Something that waits for threads to end, and does something now and then meanwhile.
#[derive(Debug)]
pub struct Watch {
    sender: mpsc::Sender<()>,
    receiver: mpsc::Receiver<()>,
    running: usize,
}

impl Watch {
    /// Nothing to wait for yet.
    #[must_use]
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver, running: 0 }
    }

    /// Wraps the body of a thread so that its end is noticed, however it ends.
    pub fn guard<R, B: FnOnce() -> R>(
        &mut self,
        body: B,
    ) -> impl FnOnce() -> thread::Result<R> + use<R, B> {
        self.running += 1;
        let done = self.sender.clone();
        move || {
            let result = catch_unwind(AssertUnwindSafe(body));
            // The receiver is gone only if nobody waits any more.
            let _ = done.send(());
            result
        }
    }

    /// Returns once all threads have ended; calls `tick` every 50 ms until then.
    pub fn wait(mut self, mut tick: impl FnMut()) {
        while self.running > 0 {
            match self.receiver.recv_timeout(Duration::from_millis(50)) {
                Ok(()) => self.running -= 1,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            tick();
        }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// What a joined thread says: its result, or that it panicked.
///
/// # Errors
///
/// The thread's own failure, or one (exit 6) that names the thread and its panic.
pub fn outcome<R>(
    name: &str,
    joined: thread::Result<thread::Result<Result<R, Failure>>>,
) -> Result<R, Failure> {
    match joined.and_then(|caught| caught) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(Failure {
                exit: ExitCode::Internal,
                reason: format!("thread `{name}` panicked: {text}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use tensorwire_core::pipeline::Link;

    use super::*;

    /// G05: a consumer's thread that panics leaves word, so that the producer does not wait for it,
    /// and the run ends with the reason. What the producer does then is tested in the core.
    #[test]
    fn g05_a_consumer_that_panics_leaves_word() {
        let mut link = Link::new();
        let (producer, _consumer) = link.split(1, 6).expect("legal");
        let signals = producer.signals();
        let mut watch = Watch::new();
        let body = watch.guard(|| -> Result<(), Failure> {
            // As `consume` begins.
            let _guard = DeadOnPanic(signals);
            panic!("the engine is gone");
        });
        let joined = thread::scope(|scope| scope.spawn(body).join());
        assert!(signals.consumer_dead.get(), "the producer would wait for ever");
        // The watch has noticed the end.
        watch.wait(|| {});
        let failure = outcome("consumer", joined).expect_err("it panicked");
        assert_eq!(failure.exit, ExitCode::Internal);
        assert_eq!(failure.reason, "thread `consumer` panicked: the engine is gone");
    }

    /// And one that ends as it should does not.
    #[test]
    fn a_consumer_that_ends_raises_nothing() {
        let mut link = Link::new();
        let (producer, _consumer) = link.split(1, 6).expect("legal");
        drop(DeadOnPanic(producer.signals()));
        assert!(!producer.signals().consumer_dead.get());
    }
}
