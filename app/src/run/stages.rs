//! Builds the stages of a run, puts the machines on their threads, and waits for them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::thread::{self, ScopedJoinHandle};

use tensorwire_configs::{Backpressure, Missing, Receiver};
use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::flow::FlowTable;
use tensorwire_core::geometry::{ElementType, Geometry};
use tensorwire_core::header::PacketCheck;
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::consumer::{Consumer, ConsumerCounters};
use tensorwire_core::pipeline::poller::{Poller, SplitLink, SplitQueue};
use tensorwire_core::pipeline::producer::{self, Producer, ProducerConfig, ProducerReport};
use tensorwire_core::pipeline::transmitter::{Transmitter, TransmitterConfig};
use tensorwire_core::pipeline::{ConsumerEnd, Link, ProducerEnd, Signals};
use tensorwire_core::port::RxQueue;
use tensorwire_core::sync::Published;
use tensorwire_core::time::Nanos;
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, SwRx, SwTx, TxMode};
use tensorwire_sim::pool::{BatchMemory, PacketView};
use tensorwire_sim::reorder::CpuReorder;
use tensorwire_sim::wire::{Faulty, WireFaults};

use super::backend::{Backend, ModelShape};
use super::clock::Clock;
use super::frames::Frames;
use super::plan::{Passes, Plan, failure};
use super::progress::Progress;
use super::report;
use super::seats::Seats;
use super::signals::StopRequest;
use super::threads::{Seat, Transmitted, Watch, consume, outcome, poll, produce, transmit};
use super::timed::Timed;
use crate::cli::RunArgs;
use crate::exit::{ExitCode, Failure, Owed};
use crate::sink::{FeatureSink, Latency, NpyWriter, SinkConfig, SinkOutputs, Summary, TimedSink};
use crate::talk::Talk;

/// Runs the plan: builds everything, starts the threads, waits, and adds up.
pub(super) fn execute(
    plan: &Plan,
    args: &RunArgs,
    clock: Clock,
    talk: Talk,
    stop: &StopRequest,
) -> Result<Summary, Failure> {
    let config = &plan.config;
    let geometry = &config.geometry;
    let rx = config.rx.as_ref().ok_or_else(|| {
        failure(ExitCode::Internal, "a run without a receiver reached the software NIC")
    })?;
    let ready = args.ready_fd.map(ready_file).transpose()?;
    let seats = Seats::new(config, plan.fused, args.no_pin, talk)?;
    let output = config.regions.get(rx.output_region).map_or(0, |region| region.buffers);
    let pool = BurstPool::new(output as usize)
        .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
    let memory = BatchMemory::new(&pool, geometry.batch_bytes(), kernel(geometry)?)
        .map_err(|error| failure(ExitCode::Device, error.to_string()))?;
    // The model's own threads are made here, before any thread of ours is pinned.
    let (backend, shape) = Backend::load(plan, &memory, talk)?;
    let sink = make_sink(plan, args, shape, talk)?;
    let mut nic = SwNic::new(nic_config(plan, args, rx, flows_of(rx)?))
        .map_err(|error| failure(ExitCode::Device, error.to_string()))?;
    let mut link = Box::new(Link::new());
    let (producer_end, consumer_end) = link
        .split(config.settings.queue_depth as usize, output as usize)
        .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
    let run = Run { plan, args, clock, talk, stop, ready, seats, rx };
    run.go(Stages {
        pool,
        memory: &memory,
        backend,
        sink,
        nic: &mut nic,
        producer_end,
        consumer_end,
    })
}

/// What a run consists of besides its stages.
struct Run<'a> {
    plan: &'a Plan,
    args: &'a RunArgs,
    clock: Clock,
    talk: Talk,
    stop: &'a StopRequest,
    ready: Option<File>,
    seats: Seats,
    rx: &'a Receiver,
}

struct Stages<'a> {
    pool: BurstPool,
    memory: &'a BatchMemory,
    backend: Backend<'a>,
    sink: FeatureSink,
    nic: &'a mut SwNic,
    producer_end: ProducerEnd<'a>,
    consumer_end: ConsumerEnd<'a>,
}

/// What the threads left behind.
pub(super) struct Left {
    pub(super) producer: Result<ProducerOutcome, Failure>,
    pub(super) consumer: Result<ConsumerOutcome, Failure>,
    pub(super) sender: Result<Transmitted, Failure>,
}

/// What the producer left behind, once the consumer has ended too.
pub(super) struct ProducerOutcome {
    pub(super) report: ProducerReport,
    pub(super) reorder: Latency,
    pub(super) all_free: bool,
}

/// What the consumer left behind.
pub(super) struct ConsumerOutcome {
    pub(super) counters: ConsumerCounters,
    pub(super) failure: Option<Failure>,
    pub(super) infer: Latency,
    pub(super) sink: RunSink,
}

/// The sink with its watch.
pub(super) type RunSink = TimedSink<FeatureSink, Box<dyn FnMut() -> Nanos + Send>>;

impl Run<'_> {
    fn go(&self, stages: Stages<'_>) -> Result<Summary, Failure> {
        let settings = &self.plan.config.settings;
        let progress = Published::new();
        let packets = stages.nic.packets();
        let (tx, rx) = stages.nic.split();
        let transmitter = self.transmitter(tx)?;
        let geometry = &self.plan.config.geometry;
        let reorder = CpuReorder::at_placement(geometry, stages.memory)
            .map_err(|error| failure(ExitCode::Internal, error.to_string()))?;
        let reorder = Timed::new(reorder, self.clock);
        let mut backlog: Vec<PacketDesc> = Vec::new();
        backlog.resize_with(self.rx_bufs().max(MAX_POLL), PacketDesc::default);
        let consumer = self.consumer(stages.backend, stages.sink, stages.consumer_end, &progress);
        let config = self.producer_config(&flows_of(self.rx)?);
        let (pool, end) = (stages.pool, stages.producer_end);
        let signals = end.signals();
        let started = self.clock.now();
        let left = if self.plan.fused {
            let producer = Producer::new(config, rx, reorder, pool, end, &mut backlog);
            let none = None::<Poller<'_, SwRx<'_>>>;
            self.threads(signals, producer, |_| (), none, consumer, transmitter, &progress)
        } else {
            let mut split = Box::new(SplitLink::new());
            let (poller, queue) = split
                .split(rx, packets, settings.rx_ring as usize * 2, self.rx_bufs())
                .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
            let producer = Producer::new(config, queue, reorder, pool, end, &mut backlog);
            let close = |queue: &SplitQueue<'_, PacketView>| queue.close();
            self.threads(signals, producer, close, Some(poller), consumer, transmitter, &progress)
        };
        Ok(report::add_up(self.plan, started, self.clock.now(), left))
    }

    fn consumer<'a>(
        &self,
        backend: Backend<'a>,
        sink: FeatureSink,
        end: ConsumerEnd<'a>,
        progress: &'a Published,
    ) -> RunConsumer<'a> {
        let (plan, clock) = (self.plan, self.clock);
        let watch: Box<dyn FnMut() -> Nanos + Send> = Box::new(move || clock.now());
        let sink = Progress::new(TimedSink::new(sink, watch), progress);
        let images = plan.config.geometry.images_per_batch();
        Consumer::new(end, Timed::new(backend, clock), sink, images, plan.images_per_inference())
    }

    fn transmitter<'a>(&'a self, tx: SwTx<'a>) -> Result<RunTransmitter<'a>, Failure> {
        let (plan, config) = (self.plan, &self.plan.config);
        let frames = plan.frames.as_ref().ok_or_else(|| {
            failure(ExitCode::Internal, "a run without frames reached the sender")
        })?;
        let faults = WireFaults {
            drop: self.args.sim_drop.and_then(NonZeroU64::new),
            dup: self.args.sim_dup.and_then(NonZeroU64::new),
            shuffle: self.args.sim_shuffle,
            seed: self.args.sim_seed,
        };
        let tx = Faulty::new(tx, faults, self.region_bytes(config.tx.as_ref().map(|tx| tx.region)))
            .map_err(|error| failure(ExitCode::Usage, error.to_string()))?;
        let renumber =
            (plan.passes == Passes::Loop).then(|| (config.geometry.seq_field(), plan.pass_packets));
        let settings = TransmitterConfig {
            passes: (plan.passes == Passes::Once).then_some(1),
            renumber,
            eth_dst: None,
            pacing_mbps: 0,
            // As long as the receiver waits for its first packet.
            stall_after: Nanos::from_secs(u64::from(config.settings.startup_wait_s)),
        };
        Ok(Transmitter::new(settings, tx, frames))
    }

    fn region_bytes(&self, region: Option<usize>) -> usize {
        let region = region.and_then(|region| self.plan.config.regions.get(region));
        region.map_or(self.plan.config.geometry.frame_bytes(), |r| r.buffer_bytes as usize)
    }

    fn rx_bufs(&self) -> usize {
        self.plan.config.regions.get(self.rx.region).map_or(0, |region| region.buffers as usize)
    }

    fn producer_config(&self, flows: &FlowTable) -> ProducerConfig {
        let (plan, settings) = (self.plan, &self.plan.config.settings);
        let geometry = plan.config.geometry;
        ProducerConfig {
            geometry,
            check: PacketCheck::new(&geometry, flows, settings.verify, settings.accept_trailer),
            windows: settings.window,
            timeout: self.rx.timeout,
            missing: match settings.missing {
                Missing::Passthrough => producer::MissingPolicy::Passthrough,
                Missing::Drop => producer::MissingPolicy::Drop,
            },
            backpressure: match settings.backpressure {
                Backpressure::Block => producer::Backpressure::Block,
                Backpressure::Drop => producer::Backpressure::Drop,
            },
            poll: (self.rx.batch_size as usize).min(MAX_POLL),
            rx_ring: settings.rx_ring as usize,
            startup_wait: Nanos::from_secs(u64::from(settings.startup_wait_s)),
            quiesce_wait: Nanos::from_secs(u64::from(settings.quiesce_wait_s)),
            owed_images: self.args.expected_images,
            time_limit: self
                .args
                .seconds
                .map(|s| Nanos(u64::try_from(s.as_nanos()).unwrap_or(u64::MAX))),
        }
    }

    /// Starts the threads, consumer first, says that the receiver is ready, and waits.
    #[expect(clippy::too_many_arguments, reason = "one for each machine, and what ties them")]
    fn threads<'a, Q>(
        &self,
        signals: &Signals,
        producer: Producer<'a, Q, Timed<CpuReorder<'a>>>,
        close: impl FnOnce(&Q) + Send,
        poller: Option<Poller<'_, SwRx<'_>>>,
        consumer: RunConsumer<'_>,
        transmitter: RunTransmitter<'_>,
        progress: &Published,
    ) -> Left
    where
        Q: RxQueue + Send,
    {
        let (seats, clock) = (self.seats, self.clock);
        let bar = self.talk.progress(self.expected(), "images", "images");
        let mut watch = Watch::new();
        thread::scope(|scope| {
            let body = watch.guard(move || consume(seats.consumer, signals, consumer));
            let consumer = spawn(scope, seats.consumer, body);
            let polling = poller.zip(seats.poller).map(|(poller, seat)| {
                spawn(scope, seat, watch.guard(move || poll(seat, signals, poller)))
            });
            let body = watch.guard(move || {
                let producer = produce(seats.producer, signals, clock, producer);
                if let Ok(producer) = &producer {
                    close(producer.rx());
                }
                producer
            });
            let producer = spawn(scope, seats.producer, body);
            self.announce();
            let body =
                watch.guard(move || transmit(seats.transmitter, signals, clock, transmitter));
            let sender = spawn(scope, seats.transmitter, body);
            watch.wait(|| {
                if self.stop.requested() || producer.is_finished() {
                    signals.stop.set();
                }
                bar.set_position(progress.get());
            });
            bar.finish_and_clear();
            let consumer = outcome("tw-consumer", consumer.join()).map(|left| {
                let sink = left.sink.into_inner();
                let words = left.infer.inner().last_error();
                let words = words.or_else(|| sink.inner().fault().map(ToString::to_string));
                ConsumerOutcome {
                    counters: left.counters,
                    failure: left.failure.map(|failure| report::why(&failure, words)),
                    infer: left.infer.latency().clone(),
                    sink,
                }
            });
            let producer = outcome("tw-producer", producer.join()).map(|mut p| ProducerOutcome {
                all_free: p.all_buffers_free(),
                report: p.report(),
                reorder: p.reorder().latency().clone(),
            });
            let sender = outcome("tw-sender", sender.join());
            let polled = polling.map_or(Ok(()), |thread| outcome("tw-poller", thread.join()));
            Left { producer: polled.and(producer), consumer, sender }
        })
    }

    fn expected(&self) -> u64 {
        match self.plan.owed {
            Owed::Images(images) => images,
            _ => 0,
        }
    }

    /// Says that the receiver can take frames.
    fn announce(&self) {
        self.talk.say(format_args!("tensorwire: ready"));
        if let Some(mut ready) = self.ready.as_ref()
            && let Err(error) = ready.write_all(b"ready\n")
        {
            self.talk.error(format_args!("tensorwire: --ready-fd: {error}"));
        }
    }
}

/// The descriptor `fd` that the process inherited. Opening it by its name in /proc takes nothing
/// over that is not ours. A pipe that nobody reads is refused, where the open would wait for a
/// reader.
fn ready_file(fd: i32) -> Result<File, Failure> {
    let path = format!("/proc/self/fd/{fd}");
    let opened = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
    opened.map_err(|error| failure(ExitCode::Usage, format!("--ready-fd {fd}: {error}")))
}

type RunConsumer<'a> = Consumer<'a, Timed<Backend<'a>>, Progress<'a, RunSink>>;
type RunTransmitter<'a> = Transmitter<Faulty<SwTx<'a>>, &'a Frames>;

fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    seat: Seat,
    body: impl FnOnce() -> R + Send + 'scope,
) -> ScopedJoinHandle<'scope, R> {
    // A thread that the system refuses cannot be told to the others any more: they would wait.
    thread::Builder::new()
        .name(seat.name.to_owned())
        .spawn_scoped(scope, body)
        .unwrap_or_else(|error| panic!("thread `{}` cannot be started: {error}", seat.name))
}

fn flows_of(rx: &Receiver) -> Result<FlowTable, Failure> {
    rx.flow_table().map_err(|error| failure(ExitCode::Config, format!("rx.flows: {error}")))
}

/// The kernel of the geometry's types, on the best instruction set of this machine.
fn kernel(geometry: &Geometry) -> Result<Kernel, Failure> {
    let spec = geometry.spec();
    let conversion = match (spec.input, spec.output) {
        (ElementType::Int8, ElementType::Fp16) => Conversion::Int8ToFp16,
        (ElementType::Int8, ElementType::Bf16) => Conversion::Int8ToBf16,
        (ElementType::Int8, ElementType::Fp32) => Conversion::Int8ToFp32,
        (input, output) if input == output => Conversion::Copy,
        (input, output) => {
            return Err(failure(
                ExitCode::Device,
                format!("{} to {} is not converted on the CPU", input.name(), output.name()),
            ));
        }
    };
    Ok(Kernel::new(conversion))
}

fn nic_config(plan: &Plan, args: &RunArgs, rx: &Receiver, flows: FlowTable) -> SwNicConfig {
    let config = &plan.config;
    let (tx_bufs, tx_buf_size) = config
        .tx
        .as_ref()
        .and_then(|tx| config.regions.get(tx.region))
        .map_or((1, config.geometry.frame_bytes()), |r| {
            (r.buffers as usize, r.buffer_bytes as usize)
        });
    let rx_bufs = config.regions.get(rx.region).map_or(0, |region| region.buffers as usize);
    let eth_src = config.tx.as_ref().filter(|tx| tx.offload_eth_src).map(|_| SOFTWARE_NIC_MAC);
    SwNicConfig {
        rx_bufs,
        rx_buf_size: config.geometry.frame_bytes(),
        rx_ring: config.settings.rx_ring as usize,
        tx_bufs,
        tx_buf_size,
        tx_ring: config.settings.tx_ring as usize,
        // A run that is bounded by time measures what gets through, as on a wire; one that sends
        // something is to arrive whole.
        mode: if args.seconds.is_some() { TxMode::Wire } else { TxMode::Lossless },
        oversize: Oversize::Cut,
        tx_eth_src: eth_src,
        flows: rx.flow_isolation.then_some(flows),
    }
}

/// The address that the software NIC sends from: locally administered (IEEE 802, bit 1 of byte 0).
const SOFTWARE_NIC_MAC: [u8; 6] = [0x02, 0x74, 0x77, 0, 0, 1];

fn make_sink(
    plan: &Plan,
    args: &RunArgs,
    shape: ModelShape,
    talk: Talk,
) -> Result<FeatureSink, Failure> {
    let config = &plan.config;
    let file = match (&plan.features, plan.pass_images) {
        (None, _) => None,
        (Some(path), Some(rows)) if shape.feature_dim > 0 => Some(
            NpyWriter::create(path, rows, shape.feature_dim)
                .map_err(|error| failure(ExitCode::File, error.to_string()))?,
        ),
        (Some(_), Some(_)) => {
            return Err(failure(
                ExitCode::Usage,
                "--features: there are no features with inference_backend `none`",
            ));
        }
        (Some(_), None) => {
            return Err(failure(
                ExitCode::Usage,
                "--features: the number of rows is not known; name a data set or --expected-images",
            ));
        }
    };
    let sink = SinkConfig {
        feature_dim: shape.feature_dim,
        classes: shape.classes,
        max_images: plan.images_per_inference() as usize,
        stats_enabled: config.stats.enabled && shape.feature_dim > 0,
        top_k: config.stats.top_k as usize,
        pca_every_n_batches: config.inference.as_ref().map_or(0, |i| i.pca_every_n_batches),
        labels: plan.labels.clone(),
        class_names: plan.class_names.clone(),
        anchoring: Some(plan.anchoring),
        pass_images: plan.pass_images,
    };
    let data: Option<Box<dyn Write + Send>> =
        if args.json { None } else { Some(Box::new(io::stdout())) };
    let outputs = SinkOutputs { data, talk: talk.writer(), file };
    FeatureSink::new(sink, outputs).map_err(|error| failure(ExitCode::Config, error.to_string()))
}
