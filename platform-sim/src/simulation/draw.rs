//! How a seed decides a run.

use tensorwire_core::header::Verify;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy};
use tensorwire_core::time::Nanos;

use super::faults::{Fault, FaultPlan, Rate};
use super::plan::{Plan, RxPoll, Weights};
use crate::nic::TxMode;
use crate::prng::Prng;

impl Plan {
    /// A run that the seed decides in all its parts: every kind of fault is off in many runs and
    /// frequent in others.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut root = Prng::new(seed);
        // A generator for each part: one more draw in one of them leaves the others as they are.
        let (mut shape, mut faults) = (root.child(), root.child());
        let (mut stages, mut time) = (root.child(), root.child());
        let mut plan = Self::quiet(seed);
        draw_shape(&mut plan, &mut shape);
        draw_stages(&mut plan, &mut stages);
        draw_time(&mut plan, &mut time);
        plan.faults = draw_faults(&mut faults);
        plan.reorder = match faults.below(3) {
            0 => between(&mut faults, 1, 4),
            1 => between(&mut faults, 2, 16),
            _ => between(&mut faults, 8, 80),
        };
        plan.delay = Nanos(1 << between(&mut faults, 10, 20));
        plan
    }
}

/// True in one of `n` cases.
fn one_in(prng: &mut Prng, n: u64) -> bool {
    prng.below(n) == 0
}

/// A number from `low` to `high`.
fn between(prng: &mut Prng, low: u64, high: u64) -> u64 {
    low + prng.below(high - low + 1)
}

fn size(prng: &mut Prng, low: u64, high: u64) -> usize {
    usize::try_from(between(prng, low, high)).unwrap_or(usize::MAX)
}

fn small(prng: &mut Prng, low: u64, high: u64) -> u32 {
    u32::try_from(between(prng, low, high)).unwrap_or(u32::MAX)
}

fn draw_shape(plan: &mut Plan, prng: &mut Prng) {
    let geometry = &mut plan.geometry;
    geometry.packets_per_image = 1 << between(prng, 1, 3);
    geometry.payload_bytes = 768 / geometry.packets_per_image;
    geometry.images_per_batch = 1 << between(prng, 1, 3);
    let per_batch = geometry.packets_per_image * geometry.images_per_batch;
    geometry.seq_bit_width = small(prng, per_batch.trailing_zeros().into(), 12);
    if one_in(prng, 2) {
        // The first bit after the UDP header, or the documented place.
        geometry.seq_bit_offset = 336;
    }
    let images_per_batch = geometry.images_per_batch;
    plan.images = between(prng, 1, 60);
    plan.passes = if one_in(prng, 3) { between(prng, 2, 3) } else { 1 };
    plan.complete = one_in(prng, 6);
    plan.windows = small(prng, 1, 4);
    plan.queue_depth = size(prng, 1, 8);
    plan.buffers = plan.windows as usize + plan.queue_depth + 3 + size(prng, 0, 3);
    plan.images_per_inference = 1 << prng.below(images_per_batch.trailing_zeros().into());
    if one_in(prng, 2) {
        plan.images_per_inference = images_per_batch;
    }
    plan.rx_ring = size(prng, 8, 80);
    plan.poll = size(prng, 1, 64);
    plan.tx_ring = size(prng, 1, 64);
    plan.rx_bufs = plan.rx_ring + plan.poll + size(prng, 0, 64);
    if one_in(prng, 3) {
        plan.at_close = Some(small(prng, 0, 4));
        // What is kept: the open windows and the reorders in flight. Where there are fewer, the
        // receiver has to close batches to get packets back.
        match prng.below(6) {
            0 => plan.rx_bufs = plan.rx_ring + plan.poll + size(prng, 0, 8),
            1 | 2 => {}
            _ => plan.rx_bufs += (plan.windows as usize + 2) * per_batch as usize,
        }
    }
    if one_in(prng, 4) {
        plan.mode = TxMode::Wire;
    }
    if one_in(prng, 3) {
        plan.rx_poll = RxPoll::Split;
    }
    plan.verify = match prng.below(4) {
        0 => Verify::Udp,
        1 => Verify::Ip,
        _ => Verify::None,
    };
}

fn draw_stages(plan: &mut Plan, prng: &mut Prng) {
    if one_in(prng, 4) {
        plan.missing = MissingPolicy::Drop;
    }
    if one_in(prng, 4) {
        plan.backpressure = Backpressure::Drop;
    }
    plan.done_on_submit = one_in(prng, 3);
}

fn draw_time(plan: &mut Plan, prng: &mut Prng) {
    let weight = |prng: &mut Prng| small(prng, 1, 4) * if one_in(prng, 4) { 10 } else { 1 };
    plan.weights = Weights {
        sender: weight(prng),
        producer: weight(prng),
        consumer: weight(prng),
        poller: weight(prng),
    };
    if one_in(prng, 3) {
        // About what a batch takes, or far more.
        let longest = if one_in(prng, 2) { 100 } else { 2_000 };
        plan.timeout = Nanos::from_micros(between(prng, 5, longest));
    }
    plan.fault_steps = match prng.below(3) {
        0 => between(prng, 50, 500),
        _ => between(prng, 300, 3_000),
    };
}

/// How often a kind of fault is worth its while: once in so many opportunities, the least and the
/// most, as powers of two.
const fn range(fault: Fault) -> (u64, u64) {
    match fault {
        Fault::Drop | Fault::Duplicate | Fault::Reorder => (2, 9),
        Fault::Delay | Fault::Corrupt | Fault::Truncate | Fault::Extend => (3, 9),
        Fault::ForeignFlow => (2, 8),
        Fault::WildSequence => (4, 9),
        Fault::SenderRestart => (8, 11),
        Fault::SenderPause | Fault::TxStall | Fault::RingFull => (5, 9),
        Fault::SlowProducer | Fault::SlowConsumer => (5, 9),
        Fault::PoolEmpty => (2, 6),
        Fault::SlowReorder | Fault::InferSlow => (1, 4),
        Fault::InferError | Fault::InferWrongShape | Fault::SinkError => (2, 6),
        Fault::InferHang | Fault::ReorderError => (3, 7),
        Fault::SecondSignal => (2, 7),
        Fault::EngineSlow => (0, 0),
        Fault::Signal | Fault::ConsumerDeath => (8, 12),
        Fault::ClockStep => (6, 10),
    }
}

/// Few kinds in most runs, many in some: a fault that hides another must not be there always.
fn draw_faults(prng: &mut Prng) -> FaultPlan {
    let sparse = 1 << between(prng, 1, 5);
    let mut plan = FaultPlan::new();
    for fault in Fault::ALL {
        // Every number is drawn for every kind, so that no kind moves another.
        let mut prng = prng.child();
        let (low, high) = range(fault);
        let mut rate = Rate::one_in(1 << between(&mut prng, low, high));
        if one_in(&mut prng, 4) {
            rate.burst = small(&mut prng, 2, 40);
            rate.one_in *= u64::from(rate.burst).min(16);
        }
        if one_in(&mut prng, 4) {
            rate.from = prng.below(400);
            rate.until = rate.from + between(&mut prng, 50, 1_000);
        }
        if matches!(fault, Fault::SenderRestart) {
            rate.limit = 2;
        }
        if one_in(&mut prng, sparse) {
            plan.rates.insert(fault, rate);
        }
    }
    plan
}
