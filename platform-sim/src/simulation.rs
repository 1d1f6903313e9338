//! The whole pipeline in one thread, under a virtual clock and a seeded scheduler.
//!
//! The machines are those of the product (`tensorwire_core::pipeline`), on the software NIC and the
//! CPU stages; only the order of their steps and the time are made up. A [`Plan`] decides
//! everything, so a run can be repeated step for step; [`run`] checks the accounting after every
//! step and the content of every image that comes out.
//!
//! ```
//! use tensorwire_sim::simulation::{Plan, run};
//!
//! let outcome = run(&Plan::quiet(1))?;
//! assert_eq!(outcome.delivered.len(), 32);
//! # Ok::<(), tensorwire_sim::simulation::Failure>(())
//! ```

mod check;
mod frames;
mod plan;

use std::fmt;

use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::counters::{NicStats, TxStats};
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{PacketCheck, Verify};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::consumer::{Consumer, ConsumerCounters, ConsumerFailure};
use tensorwire_core::pipeline::producer::{Producer, ProducerConfig, ProducerReport};
use tensorwire_core::pipeline::transmitter::{Transmitter, TransmitterConfig};
use tensorwire_core::pipeline::{ConsumerEnd, Link, Next, Signals};
use tensorwire_core::port::{RxQueue, SendError, TxQueue};
use tensorwire_core::time::Nanos;
use tensorwire_kernels::{Conversion, Kernel};

pub use check::Violation;
pub use plan::{MINI, Plan, Weights};

use crate::clock::VirtualClock;
use crate::infer::HashInfer;
use crate::nic::{Oversize, SwNic, SwNicConfig, SwRx, SwTx};
use crate::pool::{BatchMemory, PacketView};
use crate::prng::Prng;
use crate::reorder::CpuReorder;
use crate::wire::Faulty;
use check::{Certainty, Ledger};
use frames::Frames;

/// Why a run is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The plan cannot be carried out: what was refused, in words.
    Plan(String),
    /// An invariant was broken.
    Broken {
        /// The seed of the plan.
        seed: u64,
        /// The step after which it was seen.
        step: u64,
        /// The virtual time of that step.
        now: Nanos,
        /// What was broken.
        violation: Violation,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(why) => write!(f, "the plan cannot be carried out: {why}"),
            Self::Broken { seed, step, now, violation } => {
                write!(f, "seed {seed}, step {step}, {now}: {violation}")
            }
        }
    }
}

impl std::error::Error for Failure {}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Steps made.
    pub steps: u64,
    /// A number that depends on every step: equal for equal runs, and hardly ever otherwise.
    pub trace: u64,
    /// The virtual time at the end.
    pub ended: Nanos,
    /// What the producer counted.
    pub producer: ProducerReport,
    /// What the consumer counted.
    pub consumer: ConsumerCounters,
    /// Why the consumer gave up, if it did.
    pub failure: Option<ConsumerFailure>,
    /// What the wire counted.
    pub wire: TxStats,
    /// Indices of the images that the sink took, ascending.
    pub delivered: Vec<u64>,
}

/// The transmit queue of the NIC, watched for frames lost in a row.
#[derive(Debug)]
struct Watched<'n> {
    tx: SwTx<'n>,
    /// Frames that must arrive in a row for the receiver to know where it is.
    settle: u64,
    /// Frames from the first to the last lost one, with no more than `settle` between two of them.
    burst: u64,
    /// Frames that arrived since the last one was lost.
    since: u64,
    longest: u64,
}

impl TxQueue for Watched<'_> {
    fn room(&mut self) -> usize {
        self.tx.room()
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let before = self.tx.nic_stats().missed;
        self.tx.send(len, fill)?;
        if self.tx.nic_stats().missed == before {
            self.since += 1;
            return Ok(());
        }
        self.burst = if self.since < self.settle { self.burst + self.since + 1 } else { 1 };
        self.since = 0;
        self.longest = self.longest.max(self.burst);
        Ok(())
    }

    fn flush(&mut self) {
        self.tx.flush();
    }

    fn finish(&mut self) -> bool {
        self.tx.finish()
    }

    fn stats(&self) -> TxStats {
        self.tx.stats()
    }
}

type Sender<'a> = Transmitter<Faulty<Watched<'a>>, &'a Frames>;
type Receiver<'a> = Producer<'a, SwRx<'a>, CpuReorder<'a>>;
type Inference<'a> = Consumer<'a, HashInfer<'a>, Ledger<'a>>;

/// Carries out a plan.
///
/// # Errors
///
/// [`Failure`] when an invariant is broken, or when the numbers of the plan do not fit each other.
pub fn run(plan: &Plan) -> Result<Outcome, Failure> {
    let geometry = Geometry::new(&plan.geometry).map_err(|all| refused(&all))?;
    let mut prng = Prng::new(plan.seed);
    let conversion = Conversion::Int8ToFp16;
    let frames = Frames::new(&geometry, plan.images, conversion, &mut prng.child());
    let pool = BurstPool::new(plan.buffers).map_err(|error| refused(&error))?;
    let memory = BatchMemory::new(&pool, geometry.batch_bytes(), Kernel::new(conversion))
        .map_err(|error| refused(&error))?;
    let mut nic = SwNic::new(nic_config(plan, &geometry)).map_err(|error| refused(&error))?;
    let view = nic.packets();
    let (tx, rx) = nic.split();
    let mut link = Link::new();
    let (producer_end, consumer_end) =
        link.split(plan.queue_depth, plan.buffers).map_err(|error| refused(&error))?;
    let mut backlog: Vec<PacketDesc> =
        (0..plan.rx_bufs.max(MAX_POLL)).map(|_| PacketDesc::EMPTY).collect();

    let reorder = reorder(plan, &geometry, &memory, view)?;
    let config = producer_config(plan, &geometry)?;
    let certainty = Certainty::of(plan, &geometry);
    let mut simulation = Simulation {
        plan,
        geometry: &geometry,
        certainty,
        signals: producer_end.signals(),
        sender: sender(plan, &geometry, tx, &frames)?,
        receiver: Producer::new(config, rx, reorder, pool, producer_end, &mut backlog),
        inference: inference(plan, &geometry, consumer_end, &memory, &frames, certainty),
        clock: VirtualClock::new(),
        prng: prng.child(),
        steps: 0,
        trace: 0,
    };
    simulation.run().map_err(|violation| Failure::Broken {
        seed: plan.seed,
        step: simulation.steps,
        now: simulation.clock.now(),
        violation,
    })?;
    Ok(simulation.outcome())
}

fn refused(why: &dyn fmt::Display) -> Failure {
    Failure::Plan(why.to_string())
}

fn nic_config(plan: &Plan, geometry: &Geometry) -> SwNicConfig {
    SwNicConfig {
        rx_bufs: plan.rx_bufs,
        rx_buf_size: geometry.frame_bytes(),
        rx_ring: plan.rx_ring,
        tx_bufs: plan.tx_ring,
        tx_buf_size: geometry.frame_bytes(),
        tx_ring: plan.tx_ring,
        mode: plan.mode,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    }
}

fn reorder<'m>(
    plan: &Plan,
    geometry: &Geometry,
    memory: &'m BatchMemory,
    view: PacketView,
) -> Result<CpuReorder<'m>, Failure> {
    match plan.at_close {
        None => CpuReorder::at_placement(geometry, memory),
        Some(lag) => CpuReorder::at_close(geometry, memory, view, lag),
    }
    .map_err(|error| refused(&error))
}

fn producer_config(plan: &Plan, geometry: &Geometry) -> Result<ProducerConfig, Failure> {
    let mut flows = FlowTable::new();
    flows.push(&FlowMatch::any(0)).map_err(|error| refused(&error))?;
    Ok(ProducerConfig {
        geometry: *geometry,
        check: PacketCheck::new(geometry, &flows, Verify::None, false),
        windows: plan.windows,
        timeout: plan.timeout,
        missing: plan.missing,
        backpressure: plan.backpressure,
        poll: plan.poll,
        rx_ring: plan.rx_ring,
        startup_wait: Nanos::from_secs(180),
        quiesce_wait: Nanos::from_secs(5),
        owed_images: None,
        time_limit: None,
    })
}

fn sender<'a>(
    plan: &Plan,
    geometry: &Geometry,
    tx: SwTx<'a>,
    frames: &'a Frames,
) -> Result<Sender<'a>, Failure> {
    let settle = u64::from(geometry.confirmations()) + 2 * u64::from(plan.wire.shuffle);
    let watched = Watched { tx, settle, burst: 0, since: settle, longest: 0 };
    let faulty =
        Faulty::new(watched, plan.wire, geometry.frame_bytes()).map_err(|error| refused(&error))?;
    let per_pass = plan.images * u64::from(geometry.packets_per_image());
    let config = TransmitterConfig {
        passes: Some(plan.passes),
        renumber: Some((geometry.seq_field(), per_pass)),
        eth_dst: None,
        pacing_mbps: 0,
        stall_after: Nanos::from_secs(60),
    };
    Ok(Transmitter::new(config, faulty, frames))
}

fn inference<'a>(
    plan: &Plan,
    geometry: &Geometry,
    end: ConsumerEnd<'a>,
    memory: &'a BatchMemory,
    frames: &'a Frames,
    certainty: Certainty,
) -> Inference<'a> {
    let images = geometry.images_per_batch();
    let infer = HashInfer::new(memory, geometry.image_bytes(), images as usize, plan.infer.clone());
    let ledger = Ledger::new(frames, certainty, plan.sink_fault);
    Consumer::new(end, infer, ledger, images, plan.images_per_inference)
}

/// The machines, in the order of [`Weights`].
#[derive(Clone, Copy, Debug)]
enum Machine {
    Sender,
    Producer,
    Consumer,
}

/// A run under way.
struct Simulation<'p, 'a> {
    plan: &'p Plan,
    geometry: &'p Geometry,
    certainty: Certainty,
    signals: &'a Signals,
    sender: Sender<'a>,
    receiver: Receiver<'a>,
    inference: Inference<'a>,
    clock: VirtualClock,
    prng: Prng,
    steps: u64,
    trace: u64,
}

impl Simulation<'_, '_> {
    fn run(&mut self) -> Result<(), Violation> {
        // What each machine said last: a machine that waits is stepped all the same, as a polling
        // thread would, but when all of them wait, time jumps.
        let mut last = [Next::Again; 3];
        loop {
            if self.steps == self.plan.max_steps {
                return Err(Violation::NoProgress { steps: self.steps });
            }
            self.outside();
            let machine = self.pick();
            let next = self.step(machine);
            self.steps += 1;
            self.note(machine, next);
            self.check()?;
            if next == Next::Again {
                last = last.map(|said| if said == Next::Done { said } else { Next::Again });
            }
            last[machine as usize] = next;
            let [_, producer, consumer] = last;
            if producer == Next::Done && consumer == Next::Done {
                return self.check_end();
            }
            self.clock.advance(Nanos(self.prng.below(self.plan.tick.0)));
            self.jump(last);
        }
    }

    /// What comes from outside at its step: readiness, and the stop signal.
    fn outside(&mut self) {
        if self.steps == self.plan.ready_at {
            self.receiver.start(self.clock.now());
        }
        if Some(self.steps) == self.plan.stop_at {
            self.signals.stop.set();
            self.sender.stop();
        }
    }

    fn pick(&mut self) -> Machine {
        let Weights { sender, producer, consumer } = self.plan.weights;
        let total = u64::from(sender) + u64::from(producer) + u64::from(consumer);
        let drawn = self.prng.below(total);
        if drawn < u64::from(sender) {
            Machine::Sender
        } else if drawn < u64::from(sender) + u64::from(producer) {
            Machine::Producer
        } else {
            Machine::Consumer
        }
    }

    fn step(&mut self, machine: Machine) -> Next {
        let now = self.clock.now();
        match machine {
            Machine::Sender => {
                let next = self.sender.step(now);
                if next == Next::Done {
                    self.signals.sender_done.set();
                }
                next
            }
            Machine::Producer => self.receiver.step(now),
            Machine::Consumer => self.inference.step(),
        }
    }

    /// When nobody has anything to do, the time of the first who will. Not while frames wait to be
    /// polled or the reorder is busy: those will be there soon, and no machine knows of them yet.
    fn jump(&mut self, last: [Next; 3]) {
        if self.receiver.rx().waiting() > 0 || self.receiver.reorder().retained() > 0 {
            return;
        }
        let mut wake_up = None;
        for next in last {
            match next {
                Next::Again => return,
                Next::Wait(Some(at)) => wake_up = Some(wake_up.map_or(at, |w: Nanos| w.min(at))),
                _ => {}
            }
        }
        if let Some(at) = wake_up {
            self.clock.jump_to(at);
        }
    }

    /// Mixes a step into the trace.
    fn note(&mut self, machine: Machine, next: Next) {
        let next = match next {
            Next::Again => 0,
            Next::Wait(None) => 1,
            Next::Wait(Some(at)) => 2 + at.0,
            Next::Done => u64::MAX,
        };
        let counters = self.inference.counters();
        let words = [
            machine as u64,
            next,
            self.clock.now().0,
            self.sender.counters().sent,
            self.receiver.rx().delivered(),
            counters.delivered,
            counters.submissions,
        ];
        for word in words {
            self.trace = Prng::new(self.trace ^ word).next_u64();
        }
    }

    /// What holds after every step.
    fn check(&self) -> Result<(), Violation> {
        let report = self.receiver.report();
        let (offered, accounted) = (report.packets.offered, report.packets.accounted());
        if offered != accounted {
            return Err(Violation::Packets { offered, accounted });
        }
        let ppb = u64::from(self.geometry.packets_per_batch());
        if !report.reassembly.slots.balanced(ppb) {
            return Err(Violation::Slots);
        }
        self.check_wire(offered, report.nic)?;
        let (free, filling) = self.receiver.buffers();
        let (in_flight, retained) = self.inference.buffers();
        let queued = report.pushed.saturating_sub(self.inference.counters().jobs);
        let queued = usize::try_from(queued).unwrap_or(usize::MAX);
        // Those on their way back are not seen from here; in the end there are none.
        let seen = free + filling + queued + in_flight + retained;
        if seen > self.plan.buffers {
            return Err(Violation::Buffers { seen, all: self.plan.buffers });
        }
        match self.inference.sink().disorder {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// Every frame that was sent is in one place or under one count.
    fn check_wire(&self, offered: u64, nic: NicStats) -> Result<(), Violation> {
        let wire = self.sender.queue();
        let stats = wire.stats();
        let tx = &wire.inner().tx;
        let waiting = self.receiver.rx().waiting() + tx.staged() + wire.held();
        let received = offered + nic.missed + nic.errors + waiting as u64;
        let (sent, accounted) = (stats.sent + stats.wire_duplicated, stats.wire_dropped + received);
        if sent == accounted { Ok(()) } else { Err(Violation::Wire { sent, accounted }) }
    }

    /// What holds when the run has ended.
    fn check_end(&mut self) -> Result<(), Violation> {
        let all_free = self.receiver.all_buffers_free();
        let (seen, _) = self.receiver.buffers();
        if !all_free {
            return Err(Violation::Buffers { seen, all: self.plan.buffers });
        }
        let free = self.receiver.rx().free_buffers();
        if free != self.plan.rx_bufs || self.receiver.rx().foreign() > 0 {
            return Err(Violation::PacketBuffers { free, all: self.plan.rx_bufs });
        }
        let counters = self.inference.counters();
        let accounted = counters.delivered + counters.infer_failed + counters.sink_failed;
        let ledger = self.inference.sink();
        let handed = self.receiver.report().images.pending;
        if handed != accounted || counters.delivered != ledger.taken.len() as u64 {
            return Err(Violation::Images { handed, accounted });
        }
        let longest = self.sender.queue().inner().longest;
        if let Some(wrong) = ledger.wrong
            && self.certainty.unmixed_up_to.is_some_and(|limit| longest <= limit)
        {
            return Err(wrong);
        }
        if self.certainty.exact { self.check_delivery() } else { Ok(()) }
    }

    /// Exactly the images of which the wire dropped nothing were delivered.
    fn check_delivery(&self) -> Result<(), Violation> {
        let per_image = u64::from(self.geometry.packets_per_image());
        let mut taken = self.inference.sink().taken.iter().copied().peekable();
        for image in 0..self.plan.images * self.plan.passes {
            let mut numbers = image * per_image + 1..=(image + 1) * per_image;
            let lost = numbers.any(|n| self.plan.wire.drop.is_some_and(|every| n % every == 0));
            let delivered = taken.next_if_eq(&image).is_some();
            if delivered == lost {
                return Err(Violation::Delivery { image, delivered });
            }
        }
        match taken.next() {
            Some(image) => Err(Violation::Delivery { image, delivered: true }),
            None => Ok(()),
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            steps: self.steps,
            trace: self.trace,
            ended: self.clock.now(),
            producer: self.receiver.report(),
            consumer: *self.inference.counters(),
            failure: self.inference.failure(),
            wire: self.sender.queue().stats(),
            delivered: self.inference.sink().taken.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
