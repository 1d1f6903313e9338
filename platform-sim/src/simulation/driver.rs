//! The scheduler of a simulated run: which machine is stepped next, what time it is, what comes
//! from outside, and when it is over.

mod end;

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Mutex};

use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::poller::SplitLink;
use tensorwire_core::pipeline::producer::{Producer, ProducerConfig, ProducerStatus};
use tensorwire_core::pipeline::{Link, Next, Signals};
use tensorwire_core::sync::Flag;
use tensorwire_core::time::Nanos;
use tensorwire_kernels::{Conversion, Kernel};

use super::cable::{Cable, Reach, strict};
use super::check::{self, Look};
use super::faults::{Fault, Injector};
use super::frames::Frames;
use super::hazard::Hazards;
use super::interrupt::Interrupts;
use super::meter;
use super::model::Model;
use super::outcome::{Failure, Outcome};
use super::parts::{
    Inference, NicPoller, Receiver, Sender, inference, nic_config, producer_config, refused,
    reorder, sender, way,
};
use super::plan::{Plan, Weights};
use super::reading::Shape;
use super::stages::{NicQueue, Queue, Way};
use super::truth::Truth;
use super::violation::Violation;
use super::world::{Between, RxSide, World};
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
    let mut split = Box::new(SplitLink::with_slots());
    let (way, poller) = way(plan, NicQueue { side: &side, view, world: &world }, &mut split)?;
    let queue = Recorded::new(Queue { way, world: &world }, logged.clone());
    let reorder = Recorded::new(reorder, logged);
    let signals = producer_end.signals();
    let receiver = Producer::new(config, queue, reorder, pool, producer_end, &mut backlog);
    let mut simulation = Simulation {
        plan,
        world: &world,
        cable: &cable,
        side: &side,
        frames: &frames,
        geometry: &geometry,
        signals,
        sender: sender(plan, &geometry, &cable, &frames),
        sent: Flag::new(),
        poller,
        before: receiver.status(),
        receiver,
        inference: inference(plan, &geometry, consumer_end, &memory, &world),
        clock: VirtualClock::new(),
        skew: 0,
        ready_at: ready_at(&world),
        started: EPOCH,
        paused: [0; MACHINES.len()],
        restarts: 0,
        interrupts: Interrupts::default(),
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
    simulation.close_log()?;
    Ok(simulation.outcome())
}

/// The step at which the receiver becomes ready.
fn ready_at(world: &RefCell<World>) -> u64 {
    world.borrow_mut().injector.draw(Fault::EngineSlow).map_or(0, |arg| 1 + arg % 300)
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
    Poller,
    Producer,
    Consumer,
}

const MACHINES: [Machine; 4] =
    [Machine::Sender, Machine::Poller, Machine::Producer, Machine::Consumer];

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
    /// All frames are on the wire; where there is a poller, it is for it to tell the producer.
    sent: Flag,
    poller: Option<NicPoller<'c, 'n>>,
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
    paused: [u64; MACHINES.len()],
    restarts: u64,
    interrupts: Interrupts,
    prng: Prng,
    steps: u64,
    trace: u64,
    log: Option<SharedLog>,
}

impl Simulation<'_, '_, '_> {
    fn run(&mut self) -> Result<(), Violation> {
        // What each machine said last: a machine that waits is stepped all the same, as a polling
        // thread would, but when all of them wait, time jumps. News for the others: work that was
        // done, and an end.
        let mut last = [Next::Again; MACHINES.len()];
        if self.poller.is_none() {
            last[Machine::Poller as usize] = Next::Done;
        }
        loop {
            if self.steps >= self.limit() {
                return Err(Violation::NoProgress { steps: self.steps });
            }
            self.outside();
            if self.interrupts.ended()?.is_some() {
                return self.check_cut();
            }
            let machine = self.pick();
            let told = self.signals.sender_done.get();
            let (next, allocated) = meter::step(|| self.step(machine));
            // What a log keeps in memory is no part of the run.
            if self.log.is_none() {
                Violation::count("memory taken in a step", allocated, 0)?;
            }
            self.steps += 1;
            self.note(machine, next);
            self.check(machine)?;
            let ended = next == Next::Done && last[machine as usize] != Next::Done;
            let told = self.signals.sender_done.get() && !told;
            if next == Next::Again || ended || told {
                last = last.map(again);
            }
            last[machine as usize] = next;
            let [_, poller, producer, consumer] = last;
            let died = self.world.borrow().consumer_died;
            let received = poller == Next::Done && producer == Next::Done;
            if received && (consumer == Next::Done || died) {
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
            self.paused = [0; MACHINES.len()];
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
        pause(Fault::SlowProducer, Machine::Producer, 150);
        // Long enough for the sender to fill the ring, if it has as much to send.
        let polls = if self.poller.is_some() { Machine::Poller } else { Machine::Producer };
        pause(Fault::RingFull, polls, 4 * self.plan.rx_ring as u64);
        if world.injector.draw(Fault::ConsumerDeath).is_some() {
            world.consumer_died = true;
            self.signals.consumer_dead.set();
        }
        let restart = world.injector.draw(Fault::SenderRestart).is_some();
        let first = self.interrupts.received() == 0;
        let signal = if first { Fault::Signal } else { Fault::SecondSignal };
        let signal = world.injector.draw(signal);
        drop(world);
        if let Some(arg) = signal {
            self.interrupts.receive(arg);
        }
        if self.interrupts.asked() {
            self.signals.stop.set();
            self.sender.stop();
        }
        if restart && self.sender.end().is_none() && !self.signals.stop.get() {
            self.cable.borrow_mut().restart();
            self.restarts += 1;
            self.sender = sender(self.plan, self.geometry, self.cable, self.frames);
        }
    }

    /// The machines that there are.
    fn turns(&self) -> &'static [Machine] {
        if self.poller.is_some() {
            &MACHINES
        } else {
            &[Machine::Sender, Machine::Producer, Machine::Consumer]
        }
    }

    fn pick(&mut self) -> Machine {
        if self.steps >= self.plan.fault_steps {
            let turns = self.turns();
            return turns[usize::try_from(self.steps).unwrap_or(0) % turns.len()];
        }
        let Weights { sender, poller, producer, consumer } = self.plan.weights;
        let poller = if self.poller.is_some() { poller } else { 0 };
        let mut weights = [sender, poller, producer, consumer].map(u64::from);
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
                    let sent =
                        if self.poller.is_some() { &self.sent } else { &self.signals.sender_done };
                    sent.set();
                }
                next
            }
            Machine::Poller => match &mut self.poller {
                Some(poller) => poller.step_until(&self.sent, self.signals),
                None => Next::Done,
            },
            Machine::Producer => {
                let mut world = self.world.borrow_mut();
                (world.poll, world.least_free) = (None, usize::MAX);
                drop(world);
                let next = self.receiver.step(now);
                if let (Next::Done, Way::Split(queue)) = (next, &self.receiver.rx().inner().way) {
                    queue.close();
                }
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
    fn jump(&mut self, last: &mut [Next; MACHINES.len()]) {
        let (side, cable) = (self.side.borrow(), self.cable.borrow());
        let retained = self.receiver.reorder().inner().inner.retained();
        let Between { forward, back, .. } = self.world.borrow().between.unwrap_or_default();
        let held_up = side.rx.waiting() + side.held_up() + retained > 0 || forward + back > 0;
        let held_up = held_up || cable.stalls();
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
        world.see(cable.staged());
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
        if let (Some(poller), Way::Split(queue)) = (&self.poller, &self.receiver.rx().inner().way) {
            look.between(world, poller, queue, machine == Machine::Poller)?;
        }
        look.step(world)?;
        cable.balance(world.truth.handed, world.truth.waiting.len() as u64)?;
        self.before = status;
        Ok(())
    }
}
