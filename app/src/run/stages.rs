//! Builds the stages of a run, puts the machines on their threads, and waits for them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::process;
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use tensorwire_configs::Receiver;
use tensorwire_core::burst::{BurstPool, PacketDesc, PoolId};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::memory::HostMemory;
use tensorwire_core::pipeline::consumer::Consumer;
use tensorwire_core::pipeline::poller::{Poller, SplitLink, SplitQueue};
use tensorwire_core::pipeline::producer::{Producer, ProducerConfig};
use tensorwire_core::pipeline::transmitter::Transmitter;
use tensorwire_core::pipeline::{ConsumerEnd, Link, ProducerEnd, Signals};
use tensorwire_core::port::{RxQueue, TxQueue};
use tensorwire_core::sync::{Flag, Published};
use tensorwire_core::time::Nanos;
use tensorwire_sim::nic::{NicError, SwNic};
use tensorwire_sim::pool::BatchMemory;
use tensorwire_sim::trace::{Header, Log, Recorded, SharedLog, Sizes};
use tensorwire_sim::wire::Faulty;
use tensorwire_tensorrt::Rebuild;

use super::backend::Backend;
use super::clock::Clock;
use super::frames::Frames;
use super::gpu::{self, Awaited, GpuParts, ReorderStage};
use super::left::{Left, RunSink, consumed, produced};
use super::link::Links;
use super::machines::quiesce_wait;
use super::nic::{EndsOf, Nic, NicPlan, Watched};
use super::pin::Pin;
use super::plan::{Plan, failure};
use super::progress::Progress;
use super::seats::Seats;
use super::signals::StopRequest;
use super::steady::{Start, settle};
use super::tensorrt::{self, Job, TensorRt};
use super::threads::{
    Readiness, Seat, Transmitted, Watch, consume, linger_on_wire, outcome, poll, produce, transmit,
};
use super::timed::Timed;
use super::vitals::Vitals;
use super::{machines, nic, output, report, shown};
use crate::exit::{ExitCode, Failure, Owed};
use crate::run::args::RunArgs;
use crate::service::{Keeper, Service};
use crate::sink::{FeatureSink, Summary, TimedSink};

/// Runs the plan: opens the NIC, builds everything, starts the threads, waits, and adds up.
pub(super) fn execute(
    plan: &Plan,
    args: &RunArgs,
    clock: Clock,
    (stop, service): (&StopRequest, &Service),
) -> Result<Summary, Failure> {
    let seats = Seats::here(&plan.config, plan.fused, args.no_pin, plan.talk)?;
    let run = Run { plan, args, clock, stop, seats, service };
    match &plan.nic {
        NicPlan::Software(config) => {
            let refused = |error: NicError| failure(ExitCode::Device, error.to_string());
            run.on(|memory| {
                let config = config.as_ref().clone();
                let nic = match memory {
                    Some(memory) => SwNic::new_in(config, memory),
                    None => SwNic::new(config),
                };
                nic.map_err(refused)
            })
        }
        NicPlan::Socket { rx, tx } => {
            // No memory of a GPU is lent to it: `NicPlan::lent_bytes` says why.
            run.on(|_| nic::open_sockets(rx.as_ref(), tx.as_ref(), plan.talk))
        }
        #[cfg(has_dpdk)]
        NicPlan::Dpdk(config) => {
            let summary = run.on(|memory| nic::dpdk::open(config, memory, plan.talk));
            nic::dpdk::standing(plan.talk);
            summary
        }
        // Not reached: the plan was refused.
        #[cfg(not(has_dpdk))]
        NicPlan::Dpdk(_) => Err(failure(ExitCode::Device, nic::dpdk::HOW)),
    }
}

/// What a run consists of besides its stages.
struct Run<'a> {
    plan: &'a Plan,
    args: &'a RunArgs,
    clock: Clock,
    stop: &'a StopRequest,
    seats: Seats,
    service: &'a Service,
}

/// The stages that a receiver has behind its NIC.
struct Stages<'a> {
    rx: &'a Receiver,
    pool: BurstPool,
    memory: &'a BatchMemory,
    gpu: Option<GpuParts>,
    backend: Backend<'a>,
    sink: FeatureSink,
    producer_end: ProducerEnd<'a>,
    consumer_end: ConsumerEnd<'a>,
}

impl Run<'_> {
    /// Runs on the NIC that `open` opens, with its packets in the memory that it is given, if any.
    fn on<N: Nic>(
        &self,
        open: impl FnOnce(Option<Box<dyn HostMemory>>) -> Result<N, Failure>,
    ) -> Result<Summary, Failure> {
        match &self.plan.config.rx {
            Some(rx) => self.receive(rx, open),
            None => {
                let mut nic = open(None)?;
                let mut summary = self.send(&mut nic)?;
                summary.of_nic(nic.counted());
                Ok(summary)
            }
        }
    }

    /// A run with a receiver, and a sender too if there is something to send.
    fn receive<N: Nic>(
        &self,
        rx: &Receiver,
        open: impl FnOnce(Option<Box<dyn HostMemory>>) -> Result<N, Failure>,
    ) -> Result<Summary, Failure> {
        let (plan, config) = (self.plan, &self.plan.config);
        // Before the model is loaded, which takes seconds: a place that cannot be written is told
        // now.
        let features = output::features(plan)?;
        let output = config.regions.get(rx.output_region).map_or(0, |region| region.buffers);
        let pool = BurstPool::new(output as usize)
            .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
        let tensorrt = tensorrt::open(plan, rx)?;
        let gpu = gpu::open(plan, rx, tensorrt.as_ref().map(|tensorrt| &tensorrt.gpu))?;
        let memory = gpu::batches(gpu.as_ref(), &pool, plan)?;
        let mut nic = open(gpu.as_ref().map_or(Ok(None), GpuParts::packets)?)?;
        // The model's own threads are made here, before any thread of ours is pinned.
        let backend = match tensorrt.zip(gpu.as_ref()) {
            Some((tensorrt, parts)) => self.engine(tensorrt, parts, pool.id())?,
            None => Backend::load(plan.model.as_ref(), &memory, plan.talk)?,
        };
        let sink = output::sink(plan, backend.shape(), self.args.json, features)?;
        let mut link = Box::new(Link::new());
        let (producer_end, consumer_end) = link
            .split(config.settings.queue_depth as usize, output as usize)
            .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
        let memory = &memory;
        let ends = nic.ends()?;
        let stages = Stages { rx, pool, memory, gpu, backend, sink, producer_end, consumer_end };
        let mut summary = self.go::<N>(stages, ends)?;
        summary.of_nic(nic.counted());
        Ok(summary)
    }

    /// The engine over the batches of the GPU.
    fn engine<'m>(
        &self,
        tensorrt: TensorRt,
        parts: &GpuParts,
        pool: PoolId,
    ) -> Result<Backend<'m>, Failure> {
        let (plan, config) = (self.plan, &self.plan.config);
        let missing = || failure(ExitCode::Internal, "TensorRT was opened without a model");
        let (model, inference) =
            plan.model.as_ref().zip(config.inference.as_ref()).ok_or_else(missing)?;
        let job = Job {
            images_per_batch: config.geometry.images_per_batch(),
            pool,
            graphs: inference.enable_cuda_graph,
            dual_context: inference.enable_dual_context,
            workspace_bytes: config.settings.workspace_mib.map(|mib| u64::from(mib) << 20),
            rebuild: if self.args.no_rebuild { Rebuild::Refused } else { Rebuild::Allowed },
            talk: &plan.talk,
        };
        self.service.loading("loading or building the engine");
        let (stage, shape) = tensorrt.load(model, parts, &job, self.stop)?;
        Ok(Backend::TensorRt(Box::new(stage), shape))
    }

    fn go<N: Nic>(&self, stages: Stages<'_>, ends: EndsOf<'_, N>) -> Result<Summary, Failure> {
        let settings = &self.plan.config.settings;
        let progress = Published::new();
        let links = self.links(ends.links);
        let (rx, packets) = ends.rx.ok_or_else(|| no_end("receive"))?;
        let transmitter = self.plan.frames.as_ref().map(|frames| self.transmitter(ends.tx, frames));
        let transmitter = transmitter.transpose()?;
        let geometry = &self.plan.config.geometry;
        let mut backlog: Vec<PacketDesc> = Vec::new();
        let rx_bufs = nic::rx_bufs(&self.plan.config);
        let (reorder, events) =
            gpu::stage(stages.gpu, geometry, stages.memory, &stages.pool, rx_bufs)?;
        backlog.resize_with(rx_bufs.max(MAX_POLL), PacketDesc::default);
        // An inference on the GPU waits for the reorder there, not here.
        let events = events.filter(|_| !stages.backend.on_gpu());
        let backend = Awaited::new(Timed::new(stages.backend, self.clock), events);
        let consumer = self.consumer(backend, stages.sink, stages.consumer_end, &progress);
        let config = machines::producer(self.plan, self.args, stages.rx)?;
        let log = self.log(stages.rx, &config)?;
        let logged = log.as_ref().map(|log| (Arc::clone(log), config.check.clone()));
        let reorder = Recorded::new(Timed::new(reorder, self.clock), logged.clone());
        let (pool, end) = (stages.pool, stages.producer_end);
        let crew = Crew {
            signals: end.signals(),
            seats: &self.seats,
            clock: self.clock,
            joined: N::JOINED,
            progress: &progress,
            links,
            vitals: &Vitals::new(),
            service: self.service,
        };
        let started = self.clock.now();
        let left = if self.plan.fused {
            let rx = Recorded::new(rx, logged);
            let producer = Producer::new(config, rx, reorder, pool, end, &mut backlog);
            let none = None::<Poller<'_, N::Rx<'_>>>;
            let split = (|_: &_| (), |_: &mut _, _| ());
            self.threads(crew, (producer, log), split, none, consumer, transmitter)?
        } else {
            let mut split = Box::new(SplitLink::new());
            let (poller, queue) = split
                .split(rx, packets, settings.rx_ring as usize * 2, rx_bufs)
                .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
            let queue = Recorded::new(queue, logged);
            let producer = Producer::new(config, queue, reorder, pool, end, &mut backlog);
            let close = |queue: &Recorded<SplitQueue<'_, _>>| queue.inner().close();
            let reclaim = |queue: &mut Recorded<SplitQueue<'_, _>>, mut poller: Poller<'_, _>| {
                poller.reclaim(queue.inner_mut());
            };
            let split = (close, reclaim);
            self.threads(crew, (producer, log), split, Some(poller), consumer, transmitter)?
        };
        Ok(report::add_up(self.plan, started, self.clock.now(), left))
    }

    /// A run that only sends.
    fn send<N: Nic>(&self, nic: &mut N) -> Result<Summary, Failure> {
        let frames = self.plan.frames.as_ref();
        let frames = frames.ok_or_else(|| {
            failure(ExitCode::Internal, "a run with neither receiver nor frames was planned")
        })?;
        let ends = nic.ends()?;
        let mut links = self.links(ends.links);
        let transmitter = self.transmitter(ends.tx, frames)?;
        // Only for its signals: there is nobody to hand a batch to.
        let mut link = Box::new(Link::new());
        let (end, _) =
            link.split(1, 1).map_err(|error| failure(ExitCode::Internal, error.to_string()))?;
        let (signals, clock) = (end.signals(), self.clock);
        let started = clock.now();
        let limit = machines::time_limit(self.args).map(|limit| started.plus(limit));
        let (mut watch, start) = (Watch::new(), &Start::new(clock));
        let vitals = &Vitals::new();
        let mut keeper = self.service.keeper(vitals, false, false);
        let ended = thread::scope(|scope| {
            let _guard = start.guard();
            let seat = &self.seats.transmitter;
            let show = shown::sender(self.service, vitals, true);
            let seated = (signals, start);
            let body = watch.guard(move || transmit(seat, seated, clock, transmitter, show));
            let sender = spawn(scope, seat, body)?;
            let stop = |_: &Failure| signals.stop.set();
            self.begin(start, 1, None, || !sender.is_finished()).inspect_err(stop)?;
            let device = self.supervise(watch, (&mut links, &mut keeper), signals, || {
                limit.is_some_and(|limit| clock.now() >= limit)
            });
            Ok((outcome("tw-sender", sender.join()).map(Some), device))
        })?;
        let (sender, device) = ended;
        let poller = None;
        let left = Left { producer: Ok(None), consumer: Ok(None), sender, poller, links, device };
        Ok(report::add_up(self.plan, started, clock.now(), left))
    }

    fn consumer<'a>(
        &self,
        backend: RunInfer<'a>,
        sink: FeatureSink,
        end: ConsumerEnd<'a>,
        progress: &'a Published,
    ) -> RunConsumer<'a> {
        let (plan, clock) = (self.plan, self.clock);
        let watch: Box<dyn FnMut() -> Nanos + Send> = Box::new(move || clock.now());
        let sink = Progress::new(TimedSink::new(sink, watch), progress);
        let images = plan.config.geometry.images_per_batch();
        Consumer::new(end, backend, sink, images, plan.images_per_inference())
    }

    fn transmitter<'a, T: TxQueue>(
        &self,
        tx: Option<T>,
        frames: &'a Frames,
    ) -> Result<RunTransmitter<'a, T>, Failure> {
        let tx = tx.ok_or_else(|| no_end("transmit"))?;
        let size = nic::tx_buf_size(&self.plan.config);
        let tx = Faulty::new(tx, self.plan.faults, size)
            .map_err(|error| failure(ExitCode::Usage, error.to_string()))?;
        Ok(Transmitter::new(machines::transmitter(self.plan), tx, frames))
    }

    /// The log of `--record-trace`.
    fn log(&self, rx: &Receiver, config: &ProducerConfig) -> Result<Option<SharedLog>, Failure> {
        let Some(path) = &self.args.record_trace else { return Ok(None) };
        let settings = &self.plan.config.settings;
        let output = self.plan.config.regions.get(rx.output_region);
        let sizes = Sizes {
            queue_depth: settings.queue_depth as usize,
            buffers: output.map_or(0, |region| region.buffers) as usize,
            rx_bufs: nic::rx_bufs(&self.plan.config),
            accept_trailer: settings.accept_trailer,
        };
        let file = File::create(path)
            .and_then(|file| Log::new(Box::new(BufWriter::new(file)), &Header::new(config, sizes)));
        let named =
            |error| failure(ExitCode::File, format!("--record-trace {}: {error}", path.display()));
        Ok(Some(Arc::new(Mutex::new(file.map_err(named)?))))
    }

    /// Starts the threads, consumer first, says that the receiver is ready, and waits.
    fn threads<'p, Q, R, T>(
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
            let eyes = (&mut crew.links, &mut keeper);
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
                device,
            })
        })
    }

    /// The links that somebody can say something of.
    fn links(&self, watched: Vec<Watched>) -> Links {
        let mut links = Links::new();
        for (name, probe) in watched {
            links.watch(&name, probe, self.clock.now());
        }
        links
    }

    /// Waits for the threads, and tells them to stop when a signal came, when a device is gone,
    /// or when it is `over`.
    ///
    /// # Errors
    ///
    /// The [`Failure`] of the device.
    fn supervise(
        &self,
        watch: Watch,
        (links, keeper): (&mut Links, &mut Keeper<'_>),
        signals: &Signals,
        mut over: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        let mut device = Ok(());
        watch.wait(|| {
            if device.is_ok() {
                device = links.look(self.clock.now(), self.plan.talk);
            }
            if over() || self.stop.requested() || device.is_err() {
                signals.stop.set();
            }
            self.look(keeper, links, signals);
        });
        device
    }

    /// Lets the service look at the run. One that does not end in time ends with the process: a
    /// thread that hangs in a call cannot be ended otherwise, and nothing can be added up.
    fn look(&self, keeper: &mut Keeper<'_>, links: &Links, signals: &Signals) {
        let now = self.clock.now();
        keeper.links(now, links);
        if let Err(failure) = keeper.look(now, self.stop.requested(), signals) {
            self.plan.talk.error(format_args!("tensorwire: {}", failure.reason));
            process::exit(failure.exit.code().into());
        }
    }

    /// From threads that are there to a receiver that is ready.
    fn begin(
        &self,
        start: &Start,
        threads: usize,
        early: Option<&Readiness>,
        alive: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        // Behind all threads: one inherits the cores of the one that makes it.
        self.seats.main.as_ref().map_or(Ok(()), Pin::apply)?;
        start.all_seated(threads, &alive);
        settle(self.plan)?;
        start.open();
        while early.is_some_and(|early| !early.reached()) && alive() {
            thread::sleep(Duration::from_millis(1));
        }
        self.announce(start);
        Ok(())
    }

    fn expected(&self) -> u64 {
        match self.plan.owed {
            Owed::Images(images) => images,
            _ => 0,
        }
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

    /// Says that the receiver can take frames. This is the one place where readiness is declared:
    /// from here on the loops are in their steady state.
    fn announce(&self, start: &Start) {
        start.ready();
        self.plan.talk.result(format_args!("tensorwire: ready"));
        self.service.ready(self.plan.talk);
        if let Some(mut ready) = self.plan.ready.as_ref()
            && let Err(error) = ready.write_all(b"ready\n")
        {
            self.plan.talk.error(format_args!("tensorwire: --ready-fd: {error}"));
        }
    }
}

pub(super) type RunReorder<'a> = Recorded<Timed<ReorderStage<'a>>>;
pub(super) type RunProducer<'a, Q> = Producer<'a, Q, RunReorder<'a>>;
pub(super) type RunInfer<'a> = Awaited<Timed<Backend<'a>>>;
pub(super) type RunConsumer<'a> = Consumer<'a, RunInfer<'a>, Progress<'a, RunSink>>;
type RunTransmitter<'a, T> = Transmitter<Faulty<T>, &'a Frames>;

/// A thread of a run, with the end that the watch has noticed.
type Running<'scope, R> = ScopedJoinHandle<'scope, thread::Result<Result<R, Failure>>>;

/// What all threads of a receiving run share.
struct Crew<'a> {
    signals: &'a Signals,
    seats: &'a Seats,
    clock: Clock,
    /// See [`Nic::JOINED`].
    joined: bool,
    progress: &'a Published,
    links: Links,
    vitals: &'a Vitals,
    service: &'a Service,
}

fn no_end(side: &str) -> Failure {
    failure(ExitCode::Internal, format!("the NIC was opened without its {side} side"))
}

fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    seat: &Seat,
    body: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>, Failure> {
    let name = seat.name;
    thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body).map_err(|error| {
        failure(ExitCode::Device, format!("thread `{name}` cannot be started: {error}"))
    })
}
