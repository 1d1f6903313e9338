//! What a simulated run consists of, and how a seed decides it.

use std::num::NonZeroU64;

use tensorwire_core::geometry::GeometrySpec;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy};
use tensorwire_core::port::Ticket;
use tensorwire_core::time::Nanos;

use crate::infer::{FailPlan, Failure};
use crate::nic::TxMode;
use crate::prng::Prng;
use crate::wire::WireFaults;

/// How often each machine is stepped, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The transmitter.
    pub sender: u32,
    /// The producer.
    pub producer: u32,
    /// The consumer.
    pub consumer: u32,
}

/// Everything that decides a run. Two runs of the same plan are the same, step for step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides the pixels and the order of the steps.
    pub seed: u64,
    /// Shape of the stream.
    pub geometry: GeometrySpec,
    /// Images of one pass.
    pub images: u64,
    /// Passes over them, numbered on.
    pub passes: u64,
    /// Batches open at once.
    pub windows: u32,
    /// Batch buffers.
    pub buffers: usize,
    /// Jobs that wait for the consumer.
    pub queue_depth: usize,
    /// Packet buffers.
    pub rx_bufs: usize,
    /// Receive descriptors.
    pub rx_ring: usize,
    /// Packets per poll.
    pub poll: usize,
    /// Transmit descriptors: the most frames in one step of the sender.
    pub tx_ring: usize,
    /// What happens when the receiver cannot take a frame.
    pub mode: TxMode,
    /// `Some(lag)`: packets are kept until their batch closes, and for `lag` polls more.
    pub at_close: Option<u32>,
    /// Images of one inference.
    pub images_per_inference: u32,
    /// What happens to a batch with holes.
    pub missing: MissingPolicy,
    /// What happens when the consumer cannot keep up.
    pub backpressure: Backpressure,
    /// Deadline of a batch; zero: none.
    pub timeout: Nanos,
    /// Faults of the wire.
    pub wire: WireFaults,
    /// Faults of the inference.
    pub infer: FailPlan,
    /// The delivery with this number (0-based) that the sink does not take, and whether it takes
    /// none after it.
    pub sink_fault: Option<(u64, bool)>,
    /// How often each machine is stepped.
    pub weights: Weights,
    /// The longest time that passes between two steps.
    pub tick: Nanos,
    /// The step at which the receiver becomes ready.
    pub ready_at: u64,
    /// The step at which the stop signal comes.
    pub stop_at: Option<u64>,
    /// Steps after which a run that has not ended counts as stuck.
    pub max_steps: u64,
}

/// 3×16×16 images of 4 packets, 4 images to a batch, an 8-bit sequence: 16 slots, 16 batches in the
/// number space.
pub const MINI: GeometrySpec = GeometrySpec {
    channels: 3,
    height: 16,
    width: 16,
    packets_per_image: 4,
    images_per_batch: 4,
    payload_bytes: 192,
    seq_bit_width: 8,
    ..GeometrySpec::DOCUMENTED
};

impl Plan {
    /// A run in which nothing goes wrong: 32 images of the small geometry.
    #[must_use]
    pub const fn quiet(seed: u64) -> Self {
        Self {
            seed,
            geometry: MINI,
            images: 32,
            passes: 1,
            windows: 2,
            buffers: 13,
            queue_depth: 8,
            rx_bufs: 192,
            rx_ring: 64,
            poll: 32,
            tx_ring: 32,
            mode: TxMode::Lossless,
            at_close: None,
            images_per_inference: 4,
            missing: MissingPolicy::Passthrough,
            backpressure: Backpressure::Block,
            timeout: Nanos::ZERO,
            wire: WireFaults { drop: None, dup: None, shuffle: 0, seed: 0 },
            infer: FailPlan::new(),
            sink_fault: None,
            weights: Weights { sender: 1, producer: 1, consumer: 1 },
            tick: Nanos(2_000),
            ready_at: 0,
            stop_at: None,
            max_steps: 200_000,
        }
    }

    /// A run that the seed decides in all its parts: every kind of fault is off in some runs and
    /// frequent in others.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut root = Prng::new(seed);
        // A generator for each part: one more draw in one of them leaves the others as they are.
        let (mut shape, mut wire) = (root.child(), root.child());
        let (mut stages, mut time) = (root.child(), root.child());
        let mut plan = Self::quiet(seed);
        draw_shape(&mut plan, &mut shape);
        plan.wire = draw_wire(&mut wire);
        draw_stages(&mut plan, &mut stages);
        draw_time(&mut plan, &mut time);
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
    plan.geometry.seq_bit_width = small(prng, 4, 12);
    if one_in(prng, 2) {
        // The first bit after the UDP header, or the documented place.
        plan.geometry.seq_bit_offset = 336;
    }
    plan.images = between(prng, 1, 80);
    plan.passes = between(prng, 1, 3);
    plan.windows = small(prng, 1, 4);
    plan.queue_depth = size(prng, 1, 8);
    plan.buffers = plan.windows as usize + plan.queue_depth + 3 + size(prng, 0, 3);
    plan.images_per_inference = 1 << prng.below(3);
    plan.rx_ring = size(prng, 8, 80);
    plan.poll = size(prng, 1, 64);
    plan.tx_ring = size(prng, 1, 64);
    plan.rx_bufs = plan.rx_ring + plan.poll + size(prng, 0, 64);
    if one_in(prng, 3) {
        plan.at_close = Some(small(prng, 0, 4));
        // What is kept: the open windows and the reorders in flight.
        plan.rx_bufs += (plan.windows as usize + 2) * 16;
    }
    if one_in(prng, 3) {
        plan.mode = TxMode::Wire;
    }
}

fn draw_wire(prng: &mut Prng) -> WireFaults {
    let rate = |prng: &mut Prng| match prng.below(4) {
        0 => NonZeroU64::new(between(prng, 2, 20)),
        1 => NonZeroU64::new(between(prng, 20, 400)),
        _ => None,
    };
    let (drop, dup) = (rate(prng), rate(prng));
    let shuffle = match prng.below(4) {
        0 => small(prng, 1, 8),
        1 => small(prng, 8, 40),
        _ => 0,
    };
    WireFaults { drop, dup, shuffle, seed: prng.next_u64() }
}

fn draw_stages(plan: &mut Plan, prng: &mut Prng) {
    if one_in(prng, 4) {
        plan.missing = MissingPolicy::Drop;
    }
    if one_in(prng, 4) {
        plan.backpressure = Backpressure::Drop;
    }
    if one_in(prng, 3) {
        for _ in 0..between(prng, 1, 4) {
            let ticket = Ticket(prng.below(60));
            let failure = match prng.below(9) {
                0 => Failure::Submit { fatal: true },
                1 => Failure::Device { fatal: true },
                2 => Failure::Hang,
                3 | 4 => Failure::Submit { fatal: false },
                5 => Failure::Device { fatal: false },
                6 => Failure::WrongShape,
                _ => Failure::Slow { polls: small(prng, 1, 50) },
            };
            plan.infer = std::mem::take(&mut plan.infer).with(ticket, failure);
        }
    }
    if one_in(prng, 6) {
        plan.sink_fault = Some((prng.below(40), one_in(prng, 2)));
    }
}

fn draw_time(plan: &mut Plan, prng: &mut Prng) {
    let weight = |prng: &mut Prng| small(prng, 1, 4) * if one_in(prng, 4) { 10 } else { 1 };
    plan.weights = Weights { sender: weight(prng), producer: weight(prng), consumer: weight(prng) };
    if one_in(prng, 3) {
        plan.timeout = Nanos::from_micros(between(prng, 5, 2_000));
    }
    if one_in(prng, 6) {
        plan.ready_at = between(prng, 1, 100);
    }
    if one_in(prng, 6) {
        plan.stop_at = Some(between(prng, 1, 1_000));
    }
}
