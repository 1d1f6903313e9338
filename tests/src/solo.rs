//! The whole pipeline in one thread: the machines that `run` puts on threads, stepped in turn.
//!
//! The stages are the product's own: software NIC, CPU reorder, any inference, any sink. Time is
//! virtual: each round is a microsecond.

use std::thread;

use tensorwire::run::clock::Clock;
use tensorwire::run::timed::Timed;
use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{PacketCheck, Verify};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::consumer::{Consumer, ConsumerCounters};
use tensorwire_core::pipeline::poller::{Poller, SplitLink, SplitQueue};
use tensorwire_core::pipeline::producer::{
    Backpressure, MissingPolicy, Producer, ProducerConfig, ProducerReport,
};
use tensorwire_core::pipeline::transmitter::{FrameSource, Transmitter, TransmitterConfig};
use tensorwire_core::pipeline::{Link, Next, Signals};
use tensorwire_core::port::{Infer, RxQueue, Sink};
use tensorwire_core::time::Nanos;
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, SwRx, SwTx, TxMode};
use tensorwire_sim::pool::{BatchMemory, PacketView};
use tensorwire_sim::reorder::CpuReorder;
use tensorwire_sim::wire::{Faulty, WireFaults};

const RX_BUFS: usize = 16_384;
const RX_RING: usize = 4_096;
const BATCH_BUFS: usize = 16;
const QUEUE_DEPTH: usize = 8;
const ROUND: Nanos = Nanos(1_000);

/// What the machines work on.
#[derive(Debug)]
pub struct Room {
    geometry: Geometry,
    pool: Option<BurstPool>,
    memory: BatchMemory,
    nic: SwNic,
    link: Box<Link>,
    split: Box<SplitLink>,
    backlog: Vec<PacketDesc>,
}

impl Room {
    /// Room for batches of `geometry`, int8 to fp16.
    ///
    /// # Panics
    ///
    /// If there is no memory for it.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        let pool = BurstPool::new(BATCH_BUFS).expect("a pool");
        let kernel = Kernel::new(Conversion::Int8ToFp16);
        let memory = BatchMemory::new(&pool, geometry.batch_bytes(), kernel).expect("memory");
        let nic = SwNic::new(SwNicConfig {
            rx_bufs: RX_BUFS,
            rx_buf_size: geometry.frame_bytes(),
            rx_ring: RX_RING,
            tx_bufs: RX_BUFS,
            tx_buf_size: geometry.frame_bytes(),
            tx_ring: RX_RING,
            mode: TxMode::Lossless,
            oversize: Oversize::Cut,
            tx_eth_src: None,
            flows: None,
        })
        .expect("a software NIC");
        let mut backlog = Vec::new();
        backlog.resize_with(RX_BUFS.max(MAX_POLL), PacketDesc::default);
        Self {
            geometry,
            pool: Some(pool),
            memory,
            nic,
            link: boxed(Link::new),
            split: boxed(SplitLink::new),
            backlog,
        }
    }

    /// The room, to put machines into. Once.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn parts(&mut self) -> Parts<'_> {
        Parts {
            memory: &self.memory,
            geometry: self.geometry,
            pool: self.pool.take().expect("a fresh room"),
            nic: &mut self.nic,
            link: &mut self.link,
            split: &mut self.split,
            backlog: &mut self.backlog,
        }
    }
}

/// Makes something large and boxes it, on a thread with a stack that it fits: the threads of tests
/// have little.
fn boxed<T: Send + 'static>(make: fn() -> T) -> Box<T> {
    let thread = thread::Builder::new().stack_size(32 << 20);
    let made = thread.spawn(move || Box::new(make())).expect("a thread").join();
    made.expect("it can be made")
}

/// What the machines are made from.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The batch buffers, for an inference to read.
    pub memory: &'a BatchMemory,
    geometry: Geometry,
    pool: BurstPool,
    nic: &'a mut SwNic,
    link: &'a mut Link,
    split: &'a mut SplitLink,
    backlog: &'a mut [PacketDesc],
}

/// What is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// Passes over the frames; `None`: without end, with one running sequence.
    pub passes: Option<u64>,
    /// What the wire does.
    pub faults: WireFaults,
}

/// The producer's queue, and the poller behind it where there is one.
type Received<'a, Q> = (Q, Option<Poller<'a, SwRx<'a>>>);

impl<'a> Parts<'a> {
    /// The pipeline with poller and producer in one.
    ///
    /// # Panics
    ///
    /// If the parts do not fit together.
    pub fn fused<I: Infer, S: Sink, F: FrameSource>(
        self,
        infer: I,
        sink: S,
        frames: F,
        sending: Sending,
    ) -> Solo<'a, SwRx<'a>, I, S, F> {
        self.assemble(infer, sink, frames, sending, |rx, _, _| (rx, None))
    }

    /// The pipeline with a poller of its own.
    ///
    /// # Panics
    ///
    /// If the parts do not fit together.
    pub fn split<I: Infer, S: Sink, F: FrameSource>(
        self,
        infer: I,
        sink: S,
        frames: F,
        sending: Sending,
    ) -> Solo<'a, SplitQueue<'a, PacketView>, I, S, F> {
        self.assemble(infer, sink, frames, sending, |rx, packets, split| {
            let (poller, queue) = split.split(rx, packets, RX_RING * 2, RX_BUFS).expect("it fits");
            (queue, Some(poller))
        })
    }

    fn assemble<Q: RxQueue, I: Infer, S: Sink, F: FrameSource>(
        self,
        infer: I,
        sink: S,
        frames: F,
        sending: Sending,
        queue: impl FnOnce(SwRx<'a>, PacketView, &'a mut SplitLink) -> Received<'a, Q>,
    ) -> Solo<'a, Q, I, S, F> {
        let (geometry, clock) = (self.geometry, Clock::start());
        let packets = self.nic.packets();
        let (tx, rx) = self.nic.split();
        let (rx, poller) = queue(rx, packets, self.split);
        let (producer_end, consumer_end) =
            self.link.split(QUEUE_DEPTH, BATCH_BUFS).expect("the rings are large enough");
        let signals = producer_end.signals();
        let tx = Faulty::new(tx, sending.faults, geometry.frame_bytes()).expect("such faults");
        let pass = frames.frames();
        let renumber = sending.passes.is_none().then(|| (geometry.seq_field(), pass));
        let settings = TransmitterConfig {
            passes: sending.passes,
            renumber,
            eth_dst: None,
            pacing_mbps: 0,
            stall_after: Nanos::from_secs(3_600),
        };
        let reorder = CpuReorder::at_placement(&geometry, self.memory).expect("it fits");
        let images = geometry.images_per_batch();
        let mut producer = Producer::new(
            producer_config(&geometry),
            rx,
            Timed::new(reorder, clock),
            self.pool,
            producer_end,
            self.backlog,
        );
        producer.start(Nanos::ZERO);
        Solo {
            signals,
            transmitter: Transmitter::new(settings, tx, frames),
            poller,
            producer,
            consumer: Consumer::new(consumer_end, Timed::new(infer, clock), sink, images, images),
            now: Nanos::ZERO,
        }
    }
}

fn producer_config(geometry: &Geometry) -> ProducerConfig {
    let mut flows = FlowTable::new();
    flows.push(&FlowMatch::any(0)).expect("room for one flow");
    ProducerConfig {
        geometry: *geometry,
        check: PacketCheck::new(geometry, &flows, Verify::None, false),
        windows: 2,
        timeout: Nanos::ZERO,
        missing: MissingPolicy::Passthrough,
        backpressure: Backpressure::Block,
        poll: MAX_POLL,
        rx_ring: RX_RING,
        startup_wait: Nanos::from_secs(3_600),
        quiesce_wait: Nanos::from_secs(3_600),
        owed_images: None,
        time_limit: None,
    }
}

/// The machines of a pipeline.
#[derive(Debug)]
pub struct Solo<'a, Q, I, S, F> {
    signals: &'a Signals,
    transmitter: Transmitter<Faulty<SwTx<'a>>, F>,
    poller: Option<Poller<'a, SwRx<'a>>>,
    producer: Producer<'a, Q, Timed<CpuReorder<'a>>>,
    consumer: Consumer<'a, Timed<I>, S>,
    now: Nanos,
}

impl<Q: RxQueue, I: Infer, S: Sink, F: FrameSource> Solo<'_, Q, I, S, F> {
    /// Gives each machine its turn; whether all have ended.
    pub fn round(&mut self) -> bool {
        self.now = self.now.plus(ROUND);
        if self.transmitter.step(self.now) == Next::Done {
            self.signals.sender_done.set();
        }
        if let Some(poller) = &mut self.poller {
            poller.step();
        }
        self.producer.step(self.now);
        self.consumer.step() == Next::Done
    }

    /// Rounds until so many batches were taken from the job ring since the start.
    ///
    /// # Panics
    ///
    /// If the pipeline ends before, or stands still.
    pub fn until_batches(&mut self, batches: u64) {
        let mut idle = 0;
        while self.consumer.counters().jobs < batches {
            let before = self.consumer.counters().jobs;
            assert!(!self.round(), "the pipeline ended after {before} batches");
            idle = if self.consumer.counters().jobs > before { 0 } else { idle + 1 };
            assert!(idle < 1_000_000, "nothing moves after {before} batches");
        }
    }

    /// Rounds until all machines have ended.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn to_the_end(&mut self) {
        let mut rounds = 0_u64;
        while !self.round() {
            rounds += 1;
            assert!(rounds < 100_000_000, "the pipeline does not end");
        }
    }

    /// What was counted.
    #[must_use]
    pub fn report(&self) -> (ProducerReport, ConsumerCounters) {
        (self.producer.report(), *self.consumer.counters())
    }

    /// The sink.
    #[must_use]
    pub fn into_sink(self) -> S {
        self.consumer.into_parts().1
    }
}
