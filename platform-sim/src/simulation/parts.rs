//! The parts of a simulated run: the machines of the product, and the stages around them.

use std::cell::RefCell;
use std::fmt;

use tensorwire_core::flow::{FlowMatch, FlowTable, PortRange};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::PacketCheck;
use tensorwire_core::pipeline::consumer::{Consumer, ConsumerCounters, ConsumerFailure};
use tensorwire_core::pipeline::poller::{Poller, SplitLink};
use tensorwire_core::pipeline::producer::{Producer, ProducerConfig};
use tensorwire_core::pipeline::transmitter::{Transmitter, TransmitterConfig};
use tensorwire_core::pipeline::{ConsumerEnd, Next};
use tensorwire_core::time::Nanos;

use super::cable::{Cable, EXTRA, Plug};
use super::frames::Frames;
use super::outcome::Failure;
use super::plan::{Plan, RxPoll};
use super::reading::PORT;
use super::stages::{NicQueue, Queue, SLOTS, SimInfer, SimReorder, SimSink, Way};
use super::world::{Between, World};
use crate::nic::{Oversize, SwNicConfig};
use crate::pool::{BatchMemory, PacketView};
use crate::reorder::CpuReorder;
use crate::trace::Recorded;

pub(super) type Sender<'c, 'n> = Transmitter<Plug<'c, 'n>, &'c Frames>;
pub(super) type Receiver<'c, 'n> =
    Producer<'c, Recorded<Queue<'c, 'n>>, Recorded<SimReorder<'c, 'c>>>;

pub(super) type NicPoller<'c, 'n> = Poller<'c, NicQueue<'c, 'n>, SLOTS>;

/// The consumer, with one kind of inference or the other.
#[derive(Debug)]
pub(super) enum Inference<'c> {
    Later(Consumer<'c, SimInfer<'c, 'c, false>, SimSink<'c>>),
    Now(Consumer<'c, SimInfer<'c, 'c, true>, SimSink<'c>>),
}

impl Inference<'_> {
    pub(super) fn step(&mut self) -> Next {
        match self {
            Self::Later(consumer) => consumer.step(),
            Self::Now(consumer) => consumer.step(),
        }
    }

    pub(super) const fn counters(&self) -> &ConsumerCounters {
        match self {
            Self::Later(consumer) => consumer.counters(),
            Self::Now(consumer) => consumer.counters(),
        }
    }

    pub(super) fn buffers(&self) -> (usize, usize) {
        match self {
            Self::Later(consumer) => consumer.buffers(),
            Self::Now(consumer) => consumer.buffers(),
        }
    }

    pub(super) const fn failure(&self) -> Option<ConsumerFailure> {
        match self {
            Self::Later(consumer) => consumer.failure(),
            Self::Now(consumer) => consumer.failure(),
        }
    }
}

pub(super) fn refused(why: &dyn fmt::Display) -> Failure {
    Failure::Plan(why.to_string())
}

pub(super) fn nic_config(plan: &Plan, geometry: &Geometry) -> SwNicConfig {
    SwNicConfig {
        rx_bufs: plan.rx_bufs,
        rx_buf_size: geometry.frame_bytes(),
        rx_ring: plan.rx_ring,
        tx_bufs: plan.tx_ring,
        tx_buf_size: geometry.frame_bytes() + EXTRA,
        tx_ring: plan.tx_ring,
        mode: plan.mode,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    }
}

/// How packets get to the producer, and the poller if that takes one; `link` is for its two sides.
pub(super) fn way<'c, 'n>(
    plan: &Plan,
    queue: NicQueue<'c, 'n>,
    link: &'c mut SplitLink<SLOTS>,
) -> Result<(Way<'c, 'n>, Option<NicPoller<'c, 'n>>), Failure> {
    if plan.rx_poll == RxPoll::Fused {
        return Ok((Way::Fused(queue), None));
    }
    queue.world.borrow_mut().between = Some(Between::default());
    let view = queue.view.clone();
    let ends = link.split(queue, view, plan.between(), plan.rx_bufs);
    let (poller, queue) = ends.map_err(|error| refused(&error))?;
    Ok((Way::Split(queue), Some(poller)))
}

pub(super) fn reorder<'c>(
    plan: &Plan,
    geometry: &Geometry,
    memory: &'c BatchMemory,
    view: PacketView,
    world: &'c RefCell<World>,
) -> Result<SimReorder<'c, 'c>, Failure> {
    let inner = match plan.at_close {
        None => CpuReorder::at_placement(geometry, memory),
        Some(lag) => CpuReorder::at_close(geometry, memory, view, lag),
    };
    Ok(SimReorder { inner: inner.map_err(|error| refused(&error))?, world, late: 0 })
}

pub(super) fn producer_config(plan: &Plan, geometry: &Geometry) -> Result<ProducerConfig, Failure> {
    let mut flows = FlowTable::new();
    let flow = FlowMatch { udp_dst: Some(PortRange::single(PORT)), ..FlowMatch::any(0) };
    flows.push(&flow).map_err(|error| refused(&error))?;
    Ok(ProducerConfig {
        geometry: *geometry,
        check: PacketCheck::new(geometry, &flows, plan.verify, false),
        windows: plan.windows,
        timeout: plan.timeout,
        missing: plan.missing,
        backpressure: plan.backpressure,
        poll: plan.poll,
        rx_ring: plan.rx_ring,
        startup_wait: plan.startup,
        quiesce_wait: plan.quiesce,
        owed_images: plan.owed(),
        time_limit: None,
    })
}

pub(super) fn sender<'c, 'n>(
    plan: &Plan,
    geometry: &Geometry,
    cable: &'c RefCell<Cable<'n>>,
    frames: &'c Frames,
) -> Sender<'c, 'n> {
    let per_pass = plan.images * u64::from(geometry.packets_per_image());
    let config = TransmitterConfig {
        passes: Some(plan.passes),
        renumber: Some((geometry.seq_field(), per_pass)),
        eth_dst: None,
        pacing_mbps: 0,
        stall_after: Nanos::from_secs(60),
    };
    Transmitter::new(config, Plug(cable), frames)
}

pub(super) fn inference<'c>(
    plan: &Plan,
    geometry: &Geometry,
    end: ConsumerEnd<'c>,
    memory: &'c BatchMemory,
    world: &'c RefCell<World>,
) -> Inference<'c> {
    let (images, at_a_time) = (geometry.images_per_batch(), plan.images_per_inference);
    let (image, slot) = (geometry.image_bytes(), geometry.slot_stride());
    let sink = SimSink { world };
    if plan.done_on_submit {
        let infer = SimInfer::new(memory, world, image, slot);
        Inference::Now(Consumer::new(end, infer, sink, images, at_a_time))
    } else {
        let infer = SimInfer::new(memory, world, image, slot);
        Inference::Later(Consumer::new(end, infer, sink, images, at_a_time))
    }
}
