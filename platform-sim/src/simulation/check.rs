//! What must hold after every step and at the end.

use std::cell::RefCell;

use tensorwire_core::counters::RangeList;
use tensorwire_core::pipeline::consumer::ConsumerCounters;
use tensorwire_core::pipeline::poller::SplitQueue;
use tensorwire_core::pipeline::producer::{Backpressure, EndReason, MissingPolicy};
use tensorwire_core::pipeline::producer::{ProducerReport, ProducerStatus};
use tensorwire_core::port::{Delivery, RxQueue};
use tensorwire_core::time::Nanos;

use super::faults::Fault;
use super::model::Certain;
use super::parts::NicPoller;
use super::plan::Plan;
use super::stages::SLOTS;
use super::truth::{Arrival, Content};
use super::violation::Violation;
use super::world::{Between, Row, RxSide, World};
use crate::infer::features_of;
use crate::pool::PacketView;

/// Checks one delivery, row by row.
pub(super) fn delivery(
    world: &mut World,
    delivery: &Delivery,
    rows: &[Row],
    features: &[f32],
) -> Result<(), Violation> {
    Violation::count("rows of a delivery", rows.len() as u64, delivery.images.into())?;
    let dim = features.len() / rows.len().max(1);
    for ((row, got), number) in rows.iter().zip(features.chunks(dim.max(1))).zip(0_u32..) {
        let image = delivery.first_image + u64::from(number);
        let whole = delivery.whole.contains(number);
        slots(world, image, row)?;
        let holes = row.slots.contains(&Content::Nothing);
        match (whole, holes) {
            (true, true) => return Err(Violation::Hole { image }),
            (false, false) => return Err(Violation::Whole { image }),
            (false, true) => continue,
            (true, false) => {}
        }
        let expected = world.taken.last().map_or(0, |last| last + 1);
        if image < expected {
            return Err(Violation::Order { image, expected });
        }
        if got != features_of(row.crc) {
            return Err(Violation::Features { image });
        }
        identity(world, image, row)?;
        world.taken.push(image);
    }
    Ok(())
}

/// Every slot holds zeros, or a packet that arrived with the number that belongs there.
fn slots(world: &World, image: u64, row: &Row) -> Result<(), Violation> {
    let shape = &world.truth.shape;
    for (packet, content) in row.slots.iter().enumerate() {
        let (first, last) = match *content {
            Content::Nothing => continue,
            Content::Unknown => return Err(Violation::Bytes { image, packet }),
            Content::Again => return Err(Violation::Stale { image, packet }),
            Content::Of(first, last) => (first as usize, last as usize),
        };
        let copies = world.truth.arrivals.get(first..=last).unwrap_or(&[]);
        let number = (image * shape.packets_per_image + packet as u64) % shape.space();
        let [Arrival { wire, slot, .. }, ..] = copies else {
            return Err(Violation::Bytes { image, packet });
        };
        // A copy of the payload may have arrived under another number.
        if !copies.iter().any(|copy| copy.slot == *slot && u64::from(copy.wire) == number) {
            return Err(Violation::Place { image, packet, wire: *wire });
        }
    }
    Ok(())
}

/// A delivered image is one image that was sent, and its index is as far from the true one as that
/// of its neighbours; where the stream leaves a doubt, it may be otherwise.
fn identity(world: &mut World, image: u64, row: &Row) -> Result<(), Violation> {
    let size = world.truth.shape.packets_per_image;
    let arrivals = &world.truth.arrivals;
    let spans = row.slots.iter().filter_map(|content| match content {
        Content::Of(first, last) => Some((*first, *last)),
        _ => None,
    });
    let first = spans.clone().map(|(first, _)| first).min().unwrap_or(0);
    let last = spans.clone().map(|(_, last)| last).max().unwrap_or(0);
    let Some(stretch) = world.hazards.stretch(first, last) else { return Ok(()) };
    let mut images = spans.filter_map(|(first, _)| {
        let arrival = arrivals.get(first as usize)?;
        Some((arrival.genuine, arrival.epoch, arrival.number / size))
    });
    let Some((true, epoch, really)) = images.next() else {
        return Err(Violation::Mixed { image });
    };
    if images.any(|other| other != (true, epoch, really)) {
        return Err(Violation::Mixed { image });
    }
    let distance = i128::from(image) - i128::from(really);
    // Before the first hazard the index follows from the first packet of all.
    let join = arrivals.first().filter(|_| stretch.0 == 0).map(|join| {
        let (wire, number) = (i128::from(join.wire), i128::from(join.number));
        (stretch, epoch, (wire - number) / i128::from(size))
    });
    let known = join.or(world.distance.filter(|(at, of, _)| (*at, *of) == (stretch, epoch)));
    if known.is_some_and(|(_, _, known)| known != distance) {
        return Err(Violation::Index { image, really });
    }
    world.distance = Some((stretch, epoch, distance));
    Ok(())
}

/// What is looked at after a step.
#[derive(Debug)]
pub(super) struct Look<'a, 'n> {
    pub(super) plan: &'a Plan,
    pub(super) status: ProducerStatus,
    /// Batch buffers: free and filling at the producer, in flight and retained at the consumer.
    pub(super) buffers: (usize, usize),
    pub(super) consumer: (usize, usize),
    pub(super) counters: ConsumerCounters,
    pub(super) side: &'a RefCell<RxSide<'n>>,
    /// Frames that the NIC took and has not put on its ring.
    pub(super) staged: usize,
}

impl Look<'_, '_> {
    /// What holds after every step.
    pub(super) fn step(&self, world: &mut World) -> Result<(), Violation> {
        self.packets(world)?;
        self.buffers(world)?;
        self.bounds(world)?;
        let (counters, images) = (&self.counters, &self.status.images);
        Violation::count("images delivered", counters.delivered, world.taken.len() as u64)?;
        Violation::count("images the sink refused", counters.sink_failed, world.refused)?;
        let ended = counters.delivered + counters.infer_failed + counters.sink_failed;
        if ended > images.pending {
            return Violation::count("images that came out", ended, images.pending);
        }
        Ok(())
    }

    /// Nothing grows with the length of the stream: all that waits anywhere is bounded by the plan.
    /// (The core itself cannot grow: it is linked without an allocator, `core/link-proofs`.)
    fn bounds(&self, world: &World) -> Result<(), Violation> {
        let (plan, status) = (self.plan, &self.status);
        let held = status.packets.held.saturating_sub(status.backlog as u64);
        let jobs = status.pushed - self.counters.jobs;
        let (windows, buffers) = (plan.windows as usize, plan.rx_bufs);
        Violation::most("packets that are polled and wait", status.backlog, buffers)?;
        // Those of a run, the one after it, and the one that waits for its window.
        let most = world.truth.shape.confirmations() + 2;
        Violation::most("packets that are held", held, most)?;
        Violation::most("batches that are filled", self.buffers.1, windows)?;
        Violation::most("jobs that wait", jobs, plan.queue_depth)?;
        Violation::most("batches at the inference", self.consumer.0 + self.consumer.1, 3_usize)?;
        Violation::most("packets that a reorder keeps", world.kept, buffers)
    }

    fn packets(&self, world: &mut World) -> Result<(), Violation> {
        let (status, truth) = (&self.status, &world.truth);
        let packets = &status.packets;
        Violation::count("packets offered", packets.offered, truth.handed)?;
        Violation::count("packets under a cause", packets.accounted(), packets.offered)?;
        Violation::count("packets that came early", packets.early, truth.early)?;
        let slots = &status.reassembly.slots;
        let found =
            slots.placed + slots.missing + slots.before_join + slots.unfinished + slots.skipped;
        let size = truth.shape.packets_per_batch();
        Violation::count("slots of the batches passed", found, slots.batches * size)?;
        if status.backlog > 0 {
            return Ok(());
        }
        if let Some((what, found, expected)) = truth.tally.differs(packets) {
            return Violation::count(what, found, expected);
        }
        let ours = packets.placed
            + packets.duplicate
            + packets.late
            + packets.wild
            + packets.no_buffer
            + packets.held;
        Violation::count("packets of the stream", ours, truth.tally.ours)?;
        self.certain_packets(world)
    }

    fn certain_packets(&self, world: &mut World) -> Result<(), Violation> {
        let (packets, reassembly) = (&self.status.packets, &self.status.reassembly);
        let partial = &reassembly.partial;
        if packets.no_buffer + partial.deadline + partial.pool > 0 {
            world.model.doubt();
        }
        let Some(certain) = world.model.certain() else { return Ok(()) };
        Violation::count("discontinuities", reassembly.discontinuities, 0)?;
        if packets.held > 0 {
            return Ok(());
        }
        Violation::count("packets placed", packets.placed, certain.placed)?;
        Violation::count("duplicates", packets.duplicate, certain.duplicate)?;
        Violation::count("late packets", packets.late, certain.late)?;
        Violation::count("wild packets", packets.wild, 0)
    }

    fn buffers(&self, world: &World) -> Result<(), Violation> {
        let (status, plan) = (&self.status, self.plan);
        let ready = status.pushed - self.counters.jobs;
        let places = [self.buffers.0, self.buffers.1, self.consumer.0, self.consumer.1];
        let found = places.iter().sum::<usize>() + status.returning;
        Violation::count("batch buffers", found as u64 + ready, plan.buffers as u64)?;
        let side = self.side.borrow();
        let Between { forward, back, .. } = world.between.unwrap_or_default();
        let waiting = (side.rx.waiting() + self.staged) as u64 + forward;
        let expected = world.truth.waiting.len() as u64;
        Violation::count("frames on their way to the producer", waiting, expected)?;
        // A packet that waits for a batch buffer is in nobody's list.
        let found = side.held_up() + world.kept + side.free();
        let found = found as u64 + status.packets.held + forward + back;
        let all = plan.rx_bufs as u64;
        if found == all || (status.waiting && found + 1 == all) {
            return Ok(());
        }
        Violation::count("packet buffers", found, all)
    }

    /// What holds in the rings of a split receive side, and what its poller shows after its step.
    pub(super) fn between(
        &self,
        world: &World,
        poller: &NicPoller<'_, '_>,
        queue: &SplitQueue<'_, PacketView, SLOTS>,
        polled: bool,
    ) -> Result<(), Violation> {
        let Between { forward, back, .. } = world.between.unwrap_or_default();
        let (to, fro) = poller.under_way();
        Violation::count("packets in the ring to the producer", to as u64, forward)?;
        Violation::count("packets in the ring to the poller", fro as u64, back)?;
        Violation::most("packets on their way to the producer", forward, self.plan.between())?;
        if !polled {
            return Ok(());
        }
        let side = self.side.borrow();
        let (shown, nic) = (queue.stats(), side.rx.stats());
        // More may have come back than the poller takes in one step.
        let (free, expected) = (queue.free_buffers() as u64, side.free() as u64 + back);
        Violation::count("free packet buffers shown", free, expected)?;
        Violation::count("frames shown as missed", shown.missed, nic.missed)?;
        Violation::count("frames shown as errors", shown.errors, nic.errors)
    }

    /// Whether the producer closed what its deadline and its pool demanded, and nothing else;
    /// `before`: what it had counted before this step of it.
    pub(super) fn closings(&self, before: &ProducerStatus, world: &World) -> Result<(), Violation> {
        let (now, was) = (&self.status.reassembly.partial, &before.reassembly.partial);
        let fired = now.deadline > was.deadline;
        let drained = world.poll.is_some_and(|poll| poll.came < poll.asked);
        let proved = world.poll.and_then(|poll| poll.proved);
        // A batch that has to wait for the consumer closes later than it was decided.
        if fired && !drained && !before.waiting {
            return Err(Violation::UnpolledDeadline);
        }
        if now.pool > was.pool
            && (self.plan.at_close.is_none() || world.least_free >= self.plan.rx_ring)
        {
            return Violation::count("batches closed for the pool", now.pool, was.pool);
        }
        if world.model.certain().is_none() {
            return Ok(());
        }
        let timeout = self.plan.timeout;
        let open = world.model.oldest(world.now).unwrap_or(Nanos::ZERO);
        let due = timeout > Nanos::ZERO && open >= timeout;
        if fired && !due {
            return Err(Violation::EarlyDeadline { open });
        }
        // Frames that waited since before the deadline may belong to the batch, wherever they were.
        let deadline = world.now.since(open.since(timeout));
        let steady = world.injector.count(Fault::ClockStep) == 0;
        if fired && steady && world.waits_since().is_some_and(|since| since < deadline) {
            return Err(Violation::UnpolledDeadline);
        }
        let status = &self.status;
        // What was due by the time up to which everything was handed over.
        let open = proved.and_then(|at| world.model.oldest(at)).unwrap_or(Nanos::ZERO);
        let due = timeout > Nanos::ZERO && open >= timeout;
        let idle = drained && !world.stepped_back;
        let idle = idle && status.backlog == 0 && !status.waiting && !before.waiting;
        if due && !fired && idle && status.blocked == Nanos::ZERO {
            return Err(Violation::LateDeadline { open });
        }
        Ok(())
    }
}

/// What holds when the run has ended.
pub(super) fn end(
    plan: &Plan,
    world: &mut World,
    report: &ProducerReport,
    counters: &ConsumerCounters,
) -> Result<(), Violation> {
    let ended = counters.delivered + counters.infer_failed + counters.sink_failed;
    if !world.consumer_died {
        Violation::count("images that came out in the end", ended, report.images.pending)?;
    }
    Violation::count("packets that are held in the end", report.packets.held, 0)?;
    let dropped = &report.images.dropped;
    let injector = &world.injector;
    let happened = |faults: &[Fault]| faults.iter().any(|fault| injector.count(*fault) > 0);
    let fatal = [
        Fault::InferError,
        Fault::InferHang,
        Fault::ReorderError,
        Fault::SinkError,
        Fault::ConsumerDeath,
    ];
    if !happened(&fatal) {
        let failed = dropped.infer_failed + counters.infer_failed;
        Violation::count("images that inference lost", failed, 0)?;
    }
    if plan.missing != MissingPolicy::Drop {
        Violation::count("images dropped by policy", dropped.policy, 0)?;
    }
    if plan.backpressure != Backpressure::Drop {
        Violation::count("images dropped by a full queue", dropped.queue_full, 0)?;
        Violation::count("packets without a buffer", report.packets.no_buffer, 0)?;
    }
    all_images(world, report)?;
    world.model.finish();
    let Some(certain) = world.model.certain() else { return Ok(()) };
    certain_images(certain, world, report)
}

/// From the first packet to the last, every image is under one cause. Not where a batch closed
/// before the stream had passed it, or where the stream took another position.
fn all_images(world: &World, report: &ProducerReport) -> Result<(), Violation> {
    let (shape, reassembly) = (&world.truth.shape, &report.reassembly);
    let partial = &reassembly.partial;
    let cut = partial.deadline + partial.pool + reassembly.discontinuities;
    let Some(join) = report.join.filter(|_| cut + reassembly.slots.before_join == 0) else {
        return Ok(());
    };
    let first = u64::from(join) / shape.packets_per_batch() * shape.images_per_batch;
    let end = report.next.div_ceil(shape.packets_per_image);
    Violation::count("images under a cause", report.images.expected(), end - first)
}

/// Every image is under the cause that it must be under.
fn certain_images(
    certain: &Certain,
    world: &World,
    report: &ProducerReport,
) -> Result<(), Violation> {
    let images = &report.images;
    let whole = images.pending + images.dropped.total();
    Violation::count("whole images", whole, certain.whole.len() as u64)?;
    Violation::count("damaged images", images.damaged, certain.damaged.len() as u64)?;
    Violation::count("missing images", images.missing, certain.missing.len() as u64)?;
    Violation::count("unfinished images", images.unfinished, certain.unfinished)?;
    Violation::count("batches cut", report.reassembly.partial.moved, certain.moved)?;
    named("images named as damaged", &report.damaged, &certain.damaged)?;
    named("images named as missing", &report.missing, &certain.missing)?;
    taken_are_whole(world)
}

/// Every image that was taken is one that is whole, if that is certain.
pub(super) fn taken_are_whole(world: &World) -> Result<(), Violation> {
    let Some(certain) = world.model.certain() else { return Ok(()) };
    let mut whole = certain.whole.iter();
    match world.taken.iter().find(|image| !whole.any(|other| other == *image)) {
        Some(image) => Err(Violation::Hole { image: *image }),
        None => Ok(()),
    }
}

/// The ranges name these images and no others.
fn named(what: &'static str, ranges: &RangeList, images: &[u64]) -> Result<(), Violation> {
    let mut all = ranges.as_slice().iter().flat_map(|(first, last)| *first..=*last);
    let wrong = images.iter().find(|image| all.next() != Some(**image));
    match wrong.copied().or(all.next()) {
        Some(image) => Err(Violation::Named { what, image }),
        None => Ok(()),
    }
}

/// Whether the producer had this reason to end, at this moment.
pub(super) fn reason(
    plan: &Plan,
    world: &World,
    (reason, handed): (EndReason, u64),
    (sender_done, stopped): (bool, bool),
    started: Nanos,
) -> Result<(), Violation> {
    let waited = |since: Nanos, wait: Nanos| world.now.since(since) >= wait;
    let holds = match reason {
        EndReason::Complete => plan.owed().is_some_and(|owed| handed >= owed),
        EndReason::SenderDone => sender_done && world.truth.waiting.is_empty(),
        EndReason::Quiet => {
            // A sender that is there is never quiet for so long, unless the clock says so.
            let quiet = sender_done || world.stepped;
            quiet && world.last_ours.is_some_and(|last| waited(last, plan.quiesce))
        }
        EndReason::NothingArrived => world.last_ours.is_none() && waited(started, plan.startup),
        EndReason::Stopped => stopped,
        EndReason::ConsumerDead => world.infer_fatal || world.sink_fatal || world.consumer_died,
        EndReason::ReorderFailed(_) => world.reorder_fatal,
        _ => false,
    };
    if holds { Ok(()) } else { Err(Violation::End { reason: Some(reason) }) }
}
