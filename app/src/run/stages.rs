//! Builds the stages of a run; [`crew`] puts the machines on their threads and waits for them,
//! [`watch`] says that they are ready and looks at them.

mod crew;
mod watch;

use std::fs::File;
use std::io::BufWriter;
use std::sync::{Arc, Mutex};
use std::thread;

use tensorwire_configs::Receiver;
use tensorwire_core::burst::{BurstPool, PacketDesc, PoolId};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::consumer::Consumer;
use tensorwire_core::pipeline::poller::{Poller, SplitLink, SplitQueue};
use tensorwire_core::pipeline::producer::{Producer, ProducerConfig};
use tensorwire_core::pipeline::transmitter::Transmitter;
use tensorwire_core::pipeline::{ConsumerEnd, Link, ProducerEnd};
use tensorwire_core::port::TxQueue;
use tensorwire_core::sync::Published;
use tensorwire_core::time::Nanos;
use tensorwire_sim::nic::{NicError, SwNic};
use tensorwire_sim::pool::BatchMemory;
use tensorwire_sim::trace::{Header, Log, Recorded, SharedLog, Sizes};
use tensorwire_sim::wire::Faulty;
use tensorwire_tensorrt::Rebuild;

use super::backend::Backend;
use super::clock::Clock;
use super::frames::Frames;
use super::gpu::{self, Awaited, GpuParts, Packets, ReorderStage};
use super::left::{Left, RunSink};
use super::nic::{EndsOf, Nic, NicPlan};
use super::plan::{Plan, failure};
use super::progress::Progress;
use super::seats::Seats;
use super::signals::StopRequest;
use super::steady::Start;
use super::tensorrt::{self, Job, TensorRt};
use super::threads::{Watch, outcome, transmit};
use super::timed::Timed;
use super::vitals::Vitals;
use super::wall::WallClock;
use super::{machines, nic, output, report, shown};
use crate::exit::{ExitCode, Failure};
use crate::run::args::RunArgs;
use crate::service::Service;
use crate::sink::{FeatureSink, Summary, TimedSink};
use crew::{Crew, spawn};

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
                    Some(Packets::Host(memory)) => SwNic::new_in(config, memory),
                    // Only to ports by DPDK: `NicPlan::packets_on_device`.
                    Some(Packets::Device(..)) | None => SwNic::new(config),
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
            let summary = run.on(|memory| nic::dpdk::open(config, memory, (plan.talk, clock)));
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
        open: impl FnOnce(Option<Packets>) -> Result<N, Failure>,
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
        open: impl FnOnce(Option<Packets>) -> Result<N, Failure>,
    ) -> Result<Summary, Failure> {
        let (plan, config) = (self.plan, &self.plan.config);
        // Before the model is loaded, which takes seconds: a place that cannot be written is told
        // now.
        let files = output::files(plan)?;
        let output = config.regions.get(rx.output_region).map_or(0, |region| region.buffers);
        let pool = BurstPool::new(output as usize)
            .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
        let tensorrt = tensorrt::open(plan, rx)?;
        let mut gpu = gpu::open(plan, rx, tensorrt.as_ref().map(|tensorrt| &tensorrt.gpu))?;
        let memory = gpu::batches(gpu.as_ref(), &pool, plan)?;
        let mut nic = open(gpu.as_mut().map_or(Ok(None), GpuParts::packets)?)?;
        // The model's own threads are made here, before any thread of ours is pinned.
        let backend = match tensorrt.zip(gpu.as_ref()) {
            Some((tensorrt, parts)) => self.engine(tensorrt, parts, pool.id())?,
            None => Backend::load(plan.model.as_ref(), &memory, plan.talk)?,
        };
        let sink = output::sink(plan, backend.shape(), self.args.json, files)?;
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
        let place = (rx_bufs, ends.on_gpu);
        let (reorder, events) =
            gpu::stage(stages.gpu, geometry, stages.memory, &stages.pool, place)?;
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
        let (mut links, mut wall) = (self.links(ends.links), WallClock::default());
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
            let eyes = (&mut links, &mut wall, &mut keeper);
            let device = self.supervise(watch, eyes, signals, || {
                limit.is_some_and(|limit| clock.now() >= limit)
            });
            Ok((outcome("tw-sender", sender.join()).map(Some), device))
        })?;
        let (sender, device) = ended;
        let left = Left {
            producer: Ok(None),
            consumer: Ok(None),
            sender,
            poller: None,
            links,
            clock_steps: wall.steps(),
            device,
        };
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
}

pub(super) type RunReorder<'a> = Recorded<Timed<ReorderStage<'a>>>;
pub(super) type RunProducer<'a, Q> = Producer<'a, Q, RunReorder<'a>>;
pub(super) type RunInfer<'a> = Awaited<Timed<Backend<'a>>>;
pub(super) type RunConsumer<'a> = Consumer<'a, RunInfer<'a>, Progress<'a, RunSink>>;
type RunTransmitter<'a, T> = Transmitter<Faulty<T>, &'a Frames>;

fn no_end(side: &str) -> Failure {
    failure(ExitCode::Internal, format!("the NIC was opened without its {side} side"))
}
