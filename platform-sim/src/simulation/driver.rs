//! The scheduler of a simulated run: which machine is stepped next, what time it is, what comes
//! from outside, and when it is over.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Mutex};

use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::consumer::ConsumerFailure;
use tensorwire_core::pipeline::producer::{EndReason, Producer, ProducerConfig, ProducerStatus};
use tensorwire_core::pipeline::{Link, Next, Signals};
use tensorwire_core::port::TxQueue;
use tensorwire_core::time::Nanos;
use tensorwire_kernels::{Conversion, Kernel};

use super::cable::{Cable, Reach, strict};
use super::check::{self, Look};
use super::faults::{Fault, Injector};
use super::frames::Frames;
use super::hazard::Hazards;
use super::model::Model;
use super::outcome::{Ending, Failure, Outcome};
use super::parts::{
    Inference, Receiver, Sender, inference, nic_config, producer_config, refused, reorder, sender,
};
use super::plan::{Plan, Weights};
use super::reading::Shape;
use super::stages::Queue;
use super::truth::Truth;
use super::violation::Violation;
use super::world::{RxSide, World};
use crate::clock::VirtualClock;
use crate::nic::SwNic;
use crate::pool::BatchMemory;
use crate::prng::Prng;
use crate::trace::{self, Header, Log, Recorded, SharedLog, Sizes};

/// The clock starts here, so that it can step back.
const EPOCH: Nanos = Nanos::from_secs(3_600);

/// Carries out a plan.
///
/// # Errors
///
/// [`Failure`] when an invariant is broken, or when the numbers of the plan do not fit each other.
pub fn run(plan: &Plan) -> Result<Outcome, Failure> {
    carry_out(plan, None)
}

/// Carries out a plan and writes a [`trace`] of it to `out`. Not for a plan whose
/// packets are kept until their batch closes: when they come back is not in the trace.
///
/// # Errors
///
/// As [`run`]; [`Failure::Plan`] also for a plan that cannot be recorded, and where the trace
/// cannot be written.
pub fn record(plan: &Plan, out: Box<dyn Write + Send>) -> Result<Outcome, Failure> {
    if plan.at_close.is_some() {
        return Err(Failure::Plan("packets are kept until their batch closes".to_owned()));
    }
    carry_out(plan, Some(out))
}

fn carry_out(plan: &Plan, out: Option<Box<dyn Write + Send>>) -> Result<Outcome, Failure> {
    let geometry = Geometry::new(&plan.geometry).map_err(|all| refused(&all))?;
    let mut prng = Prng::new(plan.seed);
    let frames = Frames::new(&geometry, plan.images, &mut prng.child());
    let mut schedule = prng.child();
    let injector = Injector::new(&plan.faults, &mut prng);
    let shape = Shape::new(&plan.geometry, plan.verify);
    let truth = Truth::new(shape, geometry.slot_stride());
    let model = Model::new(shape, plan.windows.into());
    let world = RefCell::new(World::new(injector, truth, model, Hazards::new(shape)));
    world.borrow_mut().now = EPOCH;

    let pool = BurstPool::new(plan.buffers).map_err(|error| refused(&error))?;
    let kernel = Kernel::new(Conversion::Int8ToFp16);
    let memory =
        BatchMemory::new(&pool, geometry.batch_bytes(), kernel).map_err(|error| refused(&error))?;
    let mut nic = SwNic::new(nic_config(plan, &geometry)).map_err(|error| refused(&error))?;
    let view = nic.packets();
    let (tx, rx) = nic.split();
    let side = RefCell::new(RxSide::new(rx));
    let reach = Reach { reorder: plan.reorder, delay: plan.delay };
    let cable = RefCell::new(Cable::new(tx, &world, &frames, reach, strict(&plan.geometry)));
    let mut link = Box::new(Link::new());
    let (producer_end, consumer_end) =
        link.split(plan.queue_depth, plan.buffers).map_err(|error| refused(&error))?;
    let mut backlog: Vec<PacketDesc> =
        (0..plan.rx_bufs.max(MAX_POLL)).map(|_| PacketDesc::EMPTY).collect();

    let reorder = reorder(plan, &geometry, &memory, view.clone(), &world)?;
    let config = producer_config(plan, &geometry)?;
    let log = out.map(|out| log(plan, &config, out)).transpose()?;
    let logged = log.as_ref().map(|log| (Arc::clone(log), config.check.clone()));
    let queue = Recorded::new(Queue { side: &side, view, world: &world }, logged.clone());
    let reorder = Recorded::new(reorder, logged);
    let signals = producer_end.signals();
    let receiver = Producer::new(config, queue, reorder, pool, producer_end, &mut backlog);
    let ready_at = world.borrow_mut().injector.draw(Fault::EngineSlow).map_or(0, |a| 1 + a % 300);
    let mut simulation = Simulation {
        plan,
        world: &world,
        cable: &cable,
        side: &side,
        frames: &frames,
        geometry: &geometry,
        signals,
        sender: sender(plan, &geometry, &cable, &frames),
        before: receiver.status(),
        receiver,
        inference: inference(plan, &geometry, consumer_end, &memory, &world),
        clock: VirtualClock::new(),
        skew: 0,
        ready_at,
        started: EPOCH,
        paused: [0; 3],
        restarts: 0,
        prng: schedule.child(),
        steps: 0,
        trace: 0,
        log,
    };
    simulation.run().map_err(|violation| Failure::Broken {
        seed: plan.seed,
        step: simulation.steps,
        now: world.borrow().now,
        violation,
        events: world.borrow().injector.happened().to_vec(),
    })?;
    if let Some(log) = &simulation.log {
        let report = simulation.receiver.report();
        trace::lock(log).finish(&report).map_err(|error| refused(&error))?;
    }
    Ok(simulation.outcome())
}

/// The log of a run of `plan`.
fn log(
    plan: &Plan,
    config: &ProducerConfig,
    out: Box<dyn Write + Send>,
) -> Result<SharedLog, Failure> {
    let sizes = Sizes {
        queue_depth: plan.queue_depth,
        buffers: plan.buffers,
        rx_bufs: plan.rx_bufs,
        accept_trailer: false,
    };
    let log = Log::new(out, &Header::new(config, sizes)).map_err(|error| refused(&error))?;
    Ok(Arc::new(Mutex::new(log)))
}

/// The machines, in the order of [`Weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    Sender,
    Producer,
    Consumer,
}

const MACHINES: [Machine; 3] = [Machine::Sender, Machine::Producer, Machine::Consumer];

/// What a machine says that may find something new to do.
fn again(said: Next) -> Next {
    if said == Next::Done { said } else { Next::Again }
}

/// A run under way.
struct Simulation<'p, 'c, 'n> {
    plan: &'p Plan,
    world: &'c RefCell<World>,
    cable: &'c RefCell<Cable<'n>>,
    side: &'c RefCell<RxSide<'n>>,
    frames: &'c Frames,
    geometry: &'p Geometry,
    signals: &'c Signals,
    sender: Sender<'c, 'n>,
    receiver: Receiver<'c, 'n>,
    inference: Inference<'c>,
    /// What the producer had counted after its step before.
    before: ProducerStatus,
    clock: VirtualClock,
    /// By how many nanoseconds the clock has stepped.
    skew: i64,
    /// The step at which the receiver becomes ready.
    ready_at: u64,
    started: Nanos,
    /// The steps until which each machine is not stepped.
    paused: [u64; 3],
    restarts: u64,
    prng: Prng,
    steps: u64,
    trace: u64,
    log: Option<SharedLog>,
}

impl Simulation<'_, '_, '_> {
    fn run(&mut self) -> Result<(), Violation> {
        // What each machine said last: a machine that waits is stepped all the same, as a polling
        // thread would, but when all of them wait, time jumps.
        let mut last = [Next::Again; 3];
        loop {
            if self.steps >= self.limit() {
                return Err(Violation::NoProgress { steps: self.steps });
            }
            self.outside();
            let machine = self.pick();
            let next = self.step(machine);
            self.steps += 1;
            self.note(machine, next);
            self.check(machine)?;
            if next == Next::Again {
                last = last.map(again);
            }
            last[machine as usize] = next;
            let [_, producer, consumer] = last;
            let died = self.world.borrow().consumer_died;
            if producer == Next::Done && (consumer == Next::Done || died) {
                return self.check_end();
            }
            self.clock.advance(Nanos(self.prng.below(self.plan.tick.0)));
            self.jump(&mut last);
        }
    }

    /// The step by which the run must have ended.
    fn limit(&self) -> u64 {
        let bound = self.plan.fault_steps + self.plan.drain_steps() * (1 + self.restarts);
        self.plan.max_steps.map_or(bound, |max| bound.min(max))
    }

    /// What comes from outside before a step: the time, readiness, faults that hit no stage.
    fn outside(&mut self) {
        let quiet = self.steps >= self.plan.fault_steps;
        let mut world = self.world.borrow_mut();
        if quiet && !world.quiet {
            world.quiet = true;
            world.injector.stop();
            self.paused = [0; 3];
        }
        world.step = self.steps;
        world.injector.at_step(self.steps);
        if let Some(arg) = world.injector.draw(Fault::ClockStep) {
            let span = i64::try_from(1_u64 << (10 + arg % 25)).unwrap_or(0);
            let span = if arg >> 32 & 1 == 0 { span } else { -span };
            // An hour back is as far as the clock can go.
            self.skew = (self.skew + span).max(-3_000_000_000_000);
            world.stepped = true;
        }
        world.passed = self.clock.now();
        let now = EPOCH.plus(world.passed);
        world.set_time(Nanos(now.0.saturating_add_signed(self.skew)));
        self.side.borrow_mut().arrive(if quiet { u64::MAX } else { self.steps });
        if !world.ready && (quiet || self.steps >= self.ready_at) {
            world.ready = true;
            self.started = world.now;
            self.receiver.start(world.now);
            if let Some(log) = &self.log {
                trace::lock(log).start(world.now);
            }
        }
        let mut pause = |fault, machine: Machine, longest: u64| {
            if let Some(arg) = world.injector.draw(fault) {
                let until = &mut self.paused[machine as usize];
                *until = (*until).max(self.steps + 1 + arg % longest);
            }
        };
        pause(Fault::SenderPause, Machine::Sender, 150);
        pause(Fault::SlowConsumer, Machine::Consumer, 150);
        // Long enough for the sender to fill the ring, if it has as much to send.
        pause(Fault::RingFull, Machine::Producer, 4 * self.plan.rx_ring as u64);
        if world.injector.draw(Fault::ConsumerDeath).is_some() {
            world.consumer_died = true;
            self.signals.consumer_dead.set();
        }
        let restart = world.injector.draw(Fault::SenderRestart).is_some();
        let stop = world.injector.draw(Fault::Signal).is_some();
        drop(world);
        if stop {
            self.signals.stop.set();
            self.sender.stop();
        }
        if restart && self.sender.end().is_none() && !self.signals.stop.get() {
            self.cable.borrow_mut().restart();
            self.restarts += 1;
            self.sender = sender(self.plan, self.geometry, self.cable, self.frames);
        }
    }

    fn pick(&mut self) -> Machine {
        if self.steps >= self.plan.fault_steps {
            return MACHINES[usize::try_from(self.steps % 3).unwrap_or(0)];
        }
        let Weights { sender, producer, consumer } = self.plan.weights;
        let mut weights = [sender, producer, consumer].map(u64::from);
        for (weight, until) in weights.iter_mut().zip(self.paused) {
            if self.steps < until {
                *weight = 0;
            }
        }
        let mut drawn = self.prng.below(weights.iter().sum());
        for (machine, weight) in MACHINES.into_iter().zip(weights) {
            if drawn < weight {
                return machine;
            }
            drawn -= weight;
        }
        // All of them pause: a step of the one that matters least.
        Machine::Consumer
    }

    fn step(&mut self, machine: Machine) -> Next {
        let now = self.world.borrow().now;
        match machine {
            Machine::Sender => {
                let next = self.sender.step(now);
                if next == Next::Done {
                    self.signals.sender_done.set();
                }
                next
            }
            Machine::Producer => {
                let mut world = self.world.borrow_mut();
                (world.poll, world.least_free) = (None, usize::MAX);
                drop(world);
                let next = self.receiver.step(now);
                if let Some(log) = &self.log {
                    let (status, buffers) = (self.receiver.status(), self.receiver.buffers());
                    let dead = self.signals.consumer_dead.get();
                    trace::lock(log).step(now, status, buffers, dead);
                }
                next
            }
            // What it says last is what a dead thread says: nothing that others could wait for.
            Machine::Consumer if self.world.borrow().consumer_died => Next::Wait(None),
            Machine::Consumer => self.inference.step(),
        }
    }

    /// When nobody has anything to do, the time of the first who will. Not while something is under
    /// way that will be there soon and that no machine knows of yet; once it is there, each of them
    /// is asked again.
    fn jump(&mut self, last: &mut [Next; 3]) {
        let (side, cable) = (self.side.borrow(), self.cable.borrow());
        let retained = self.receiver.reorder().inner().inner.retained();
        let held_up = side.rx.waiting() + side.held_up() + retained > 0 || cable.stalls();
        if held_up || self.paused.iter().any(|until| self.steps < *until) {
            *last = last.map(again);
            return;
        }
        let world = self.world.borrow();
        let mut shortest = cable.under_way().1.map(|due| due.since(self.clock.now()));
        for next in last {
            match *next {
                Next::Again => return,
                Next::Wait(Some(at)) => {
                    let wait = at.since(world.now);
                    shortest = Some(shortest.map_or(wait, |shortest: Nanos| shortest.min(wait)));
                }
                _ => {}
            }
        }
        if let Some(span) = shortest {
            self.clock.advance(span);
        }
    }

    /// Mixes a step into the trace.
    fn note(&mut self, machine: Machine, next: Next) {
        let next = match next {
            Next::Again => 0,
            Next::Wait(at) => 1 + at.map_or(0, |at| at.0),
            Next::Done => 2,
        };
        let status = self.receiver.status();
        let words = [
            machine as u64,
            next,
            self.world.borrow().now.0,
            status.packets.placed,
            status.pushed,
            self.inference.counters().delivered,
        ];
        for word in words {
            self.trace = (self.trace ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
        }
    }

    /// Checks what holds after every step.
    fn check(&mut self, machine: Machine) -> Result<(), Violation> {
        let status = self.receiver.status();
        let world = &mut *self.world.borrow_mut();
        if let Some(violation) = world.broken {
            return Err(violation);
        }
        let cable = self.cable.borrow();
        let look = Look {
            plan: self.plan,
            status,
            buffers: self.receiver.buffers(),
            consumer: self.inference.buffers(),
            counters: *self.inference.counters(),
            side: self.side,
            staged: cable.staged(),
        };
        if machine == Machine::Producer {
            look.closings(&self.before, world)?;
        }
        if let (Some(reason), None) = (status.end, self.before.end) {
            let flags = (self.signals.sender_done.get(), self.signals.stop.get());
            let reason = (reason, status.images.pending);
            check::reason(self.plan, world, reason, flags, self.started)?;
        }
        look.step(world)?;
        cable.balance(world.truth.handed, world.truth.waiting.len() as u64)?;
        self.before = status;
        Ok(())
    }

    /// What holds when the run has ended.
    fn check_end(&mut self) -> Result<(), Violation> {
        self.side.borrow_mut().arrive(u64::MAX);
        let died = self.world.borrow().consumer_died;
        let all_free = self.receiver.all_buffers_free();
        let (free, _) = self.receiver.buffers();
        let all = self.plan.buffers as u64;
        // What a consumer had that died is lost with it; every step has counted it.
        if !died {
            Violation::count("free batch buffers in the end", free as u64, all)?;
            Violation::count("pools of free batch buffers", all_free.into(), 1)?;
        }
        let side = self.side.borrow();
        let on_nic = side.rx.waiting() + self.cable.borrow().staged();
        let waiting = self.world.borrow().truth.waiting.len() as u64;
        Violation::count("frames left on the NIC", on_nic as u64, waiting)?;
        let (free, all) = (side.free() as u64, self.plan.rx_bufs as u64);
        Violation::count("free packet buffers in the end", free, all)?;
        Violation::count("foreign packets", side.rx.foreign(), 0)?;
        let report = self.receiver.report();
        if report.end.is_none() {
            return Err(Violation::End { reason: None });
        }
        check::end(self.plan, &mut self.world.borrow_mut(), &report, self.inference.counters())
    }

    /// How the program must end, by what is known of the run.
    fn ending(&self) -> Ending {
        let world = self.world.borrow();
        let (counters, report) = (self.inference.counters(), self.receiver.report());
        let lost = counters.infer_failed + report.images.dropped.infer_failed;
        let broken = matches!(report.end, Some(EndReason::ReorderFailed(_)));
        if world.consumer_died {
            return Ending::Internal;
        }
        match self.inference.failure() {
            Some(ConsumerFailure::Sink(_)) => Ending::File,
            Some(_) => Ending::Device,
            None if broken || lost > 0 => Ending::Device,
            None if world.refused > 0 => Ending::File,
            None if world.taken.len() as u64 >= self.plan.sent_images() => Ending::Complete,
            None => Ending::Owed,
        }
    }

    fn outcome(self) -> Outcome {
        let ending = self.ending();
        let world = self.world.borrow();
        Outcome {
            steps: self.steps,
            trace: self.trace,
            ended: self.clock.now(),
            producer: self.receiver.report(),
            consumer: *self.inference.counters(),
            failure: self.inference.failure(),
            wire: self.sender.queue().stats(),
            delivered: world.taken.clone(),
            events: world.injector.happened().to_vec(),
            ending,
            certain: world.model.certain().is_some(),
        }
    }
}
