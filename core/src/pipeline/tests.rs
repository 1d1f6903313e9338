//! The machines against each other, in one thread, over stages that keep everything in vectors.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::consumer::{Consumer, ConsumerFailure};
use super::poller::SplitLink;
use super::producer::{
    Backpressure, EndReason, MissingPolicy, Producer, ProducerConfig, ProducerReport,
};
use super::*;
use crate::burst::{BurstPool, Filling, InFlight, PacketDesc};
use crate::counters::NicStats;
use crate::flow::{FlowMatch, FlowTable, PortRange};
use crate::geometry::{Geometry, GeometrySpec};
use crate::header::{self, HeaderSpec, PacketCheck, Verify};
use crate::port::{
    Delivery, Event, Infer, Outputs, PacketMemory, Reorder, RxQueue, Sink, SinkFault, StageError,
    Ticket,
};
use crate::window::SlotMap;

mod alone;
mod cases;

const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [1, 1, 1, 1],
    ip_dst: [2, 2, 2, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

fn mini() -> Geometry {
    Geometry::new(&GeometrySpec {
        channels: 3,
        height: 16,
        width: 16,
        packets_per_image: 4,
        images_per_batch: 4,
        payload_bytes: 192,
        seq_bit_width: 8,
        ..GeometrySpec::DOCUMENTED
    })
    .expect("MINI is legal")
}

/// Packet `position`: its payload is its position, so that every byte tells where it belongs.
fn frame(position: u64) -> Vec<u8> {
    let geometry = mini();
    let mut frame = vec![0; geometry.frame_bytes()];
    for (i, byte) in frame[geometry.payload_offset()..].iter_mut().enumerate() {
        *byte = position.to_be_bytes()[i % 8];
    }
    header::build(&HEADER, &mut frame).expect("a frame of the geometry");
    let wire = u32::try_from(position % geometry.sequence_space()).expect("8 bits");
    assert!(header::set_sequence(&mut frame, geometry.seq_field(), wire));
    frame
}

/// A NIC: frames in, a fixed number of buffers, everything visible.
#[derive(Debug)]
struct Nic {
    arriving: VecDeque<Vec<u8>>,
    buffers: BTreeMap<u64, Vec<u8>>,
    free: Vec<u64>,
    polls: usize,
    /// Whether it can be said that all that arrived was handed over.
    knows: bool,
    /// Packets are stamped: with this and the number of their buffer.
    stamp: Option<u64>,
}

type SharedNic = Rc<RefCell<Nic>>;

/// The queue that the producer owns. The memory is a copy of the frames by buffer, so that
/// `bytes` can lend it.
#[derive(Debug)]
struct Queue {
    nic: SharedNic,
    frames: BTreeMap<u64, Vec<u8>>,
}

impl Queue {
    fn new(buffers: u64) -> (Self, SharedNic) {
        let nic = Rc::new(RefCell::new(Nic {
            arriving: VecDeque::new(),
            buffers: BTreeMap::new(),
            free: (0..buffers).collect(),
            polls: 0,
            knows: true,
            stamp: None,
        }));
        (Self { nic: nic.clone(), frames: BTreeMap::new() }, nic)
    }
}

impl PacketMemory for Queue {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        &self.frames[&packet.handle()]
    }

    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        let at = self.nic.borrow().stamp?;
        Some(Nanos(at + packet.handle()))
    }
}

impl RxQueue for Queue {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let mut nic = self.nic.borrow_mut();
        nic.polls += 1;
        let mut came = 0;
        for slot in out {
            assert!(slot.is_none(), "a token would be lost");
            let Some(buffer) = nic.free.last().copied() else { break };
            let Some(frame) = nic.arriving.pop_front() else { break };
            nic.free.pop();
            let len = u32::try_from(frame.len()).expect("a frame");
            self.frames.insert(buffer, frame.clone());
            nic.buffers.insert(buffer, frame);
            *slot = PacketDesc::fake(buffer, len, 0);
            came += 1;
        }
        came
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        let mut nic = self.nic.borrow_mut();
        for packet in packets {
            if packet.is_none() {
                continue;
            }
            let buffer = packet.take().handle();
            assert!(nic.buffers.remove(&buffer).is_some(), "buffer {buffer} was not taken");
            nic.free.push(buffer);
        }
    }

    fn free_buffers(&self) -> usize {
        self.nic.borrow().free.len()
    }

    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        self.nic.borrow().knows.then_some(now)
    }

    fn stats(&self) -> NicStats {
        NicStats::default()
    }
}

/// The batch buffers, shared by reorder and inference: bytes by buffer and slot.
type Memory = Rc<RefCell<BTreeMap<u16, BTreeMap<u32, Vec<u8>>>>>;

#[derive(Debug)]
struct Stage {
    memory: Memory,
    /// Whether packets are kept until their batch closes.
    keeps: bool,
    kept: BTreeMap<u16, Vec<PacketDesc>>,
    finished: VecDeque<PacketDesc>,
    fail_at: Option<(u64, bool)>,
    started: u64,
    /// A device that is not done: nothing comes back.
    holds: Rc<Cell<bool>>,
}

impl Stage {
    fn new(memory: &Memory, keeps: bool) -> Self {
        Self {
            memory: memory.clone(),
            keeps,
            kept: BTreeMap::new(),
            finished: VecDeque::new(),
            fail_at: None,
            started: 0,
            holds: Rc::default(),
        }
    }
}

impl Reorder for Stage {
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        let payload = memory.bytes(packet)[64..].to_vec();
        self.memory.borrow_mut().entry(batch.index()).or_default().insert(slot, payload);
        if self.keeps {
            self.kept.entry(batch.index()).or_default().push(packet.take());
        }
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        self.finished.extend(self.kept.remove(&batch.index()).unwrap_or_default());
        let mut memory = self.memory.borrow_mut();
        let slots = memory.entry(batch.index()).or_default();
        for (first, count) in placed.missing() {
            for slot in first..first + count {
                slots.insert(slot, vec![0; 192]);
            }
        }
        self.started += 1;
        match self.fail_at {
            Some((at, fatal)) if at == self.started => {
                Err(StageError { call: "start", code: 7, fatal })
            }
            _ => Ok(Event::DONE),
        }
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        self.finished.extend(self.kept.remove(&batch.index()).unwrap_or_default());
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        let mut count = 0;
        if self.holds.get() {
            return 0;
        }
        for slot in done {
            assert!(slot.is_none(), "a token would be lost");
            let Some(packet) = self.finished.pop_front() else { break };
            *slot = packet;
            count += 1;
        }
        count
    }
}

/// An inference whose feature is the first position found in each image, and that checks that the
/// image is of one piece.
#[derive(Debug)]
struct Reader {
    memory: Memory,
    pending: VecDeque<(Ticket, Vec<f32>)>,
    /// Fails the submission with this number (0-based), fatally or not.
    fail_at: Option<(u64, bool)>,
    submitted: u64,
    /// Results come only by drain or after a further submission: a device that is slow.
    lazy: bool,
}

impl Reader {
    fn new(memory: &Memory) -> Self {
        let memory = memory.clone();
        Self { memory, pending: VecDeque::new(), fail_at: None, submitted: 0, lazy: false }
    }

    fn give<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        let (ticket, features) = self.pending.pop_front()?;
        let outputs = Outputs { features: &features, feature_dim: 1, logits: &[], classes: 0 };
        Some(Ok(take(ticket, outputs)))
    }
}

impl Infer for Reader {
    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        assert_eq!(ready, Event::DONE);
        assert!(self.pending.len() < 2, "at most two are pending");
        self.submitted += 1;
        if let Some((at, fatal)) = self.fail_at
            && at == self.submitted - 1
        {
            return Err(StageError { call: "submit", code: -3, fatal });
        }
        let memory = self.memory.borrow();
        let slots = &memory[&input.index()];
        let features = (first..first + images).map(|image| {
            let bytes: Vec<&Vec<u8>> =
                (image * 4..image * 4 + 4).map(|slot| &slots[&slot]).collect();
            let position =
                |slot: usize| u64::from_be_bytes(bytes[slot][..8].try_into().expect("8 bytes"));
            let whole = (1..4).all(|slot| position(slot) == position(0) + slot as u64);
            if whole { position(0) as f32 } else { f32::NAN }
        });
        self.pending.push_back((ticket, features.collect()));
        Ok(())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending.len() < 2 { None } else { self.give(take) }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.lazy { None } else { self.give(take) }
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.give(take)
    }
}

/// Index of an image in the stream and the position its packets began with.
#[derive(Debug, Default)]
struct Delivered {
    images: Vec<(u64, f32)>,
    fail_at: Option<(usize, bool)>,
    calls: usize,
}

impl Sink for Delivered {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        self.calls += 1;
        if let Some((at, fatal)) = self.fail_at
            && at == self.calls - 1
        {
            return Err(SinkFault { fatal });
        }
        assert_eq!(outputs.features.len(), delivery.images as usize);
        for row in delivery.whole.iter() {
            let index = delivery.first_image + u64::from(row);
            self.images.push((index, outputs.features[row as usize]));
        }
        Ok(())
    }
}

/// What a test changes of the default run.
#[derive(Debug, Clone)]
struct Plan {
    keeps: bool,
    buffers: usize,
    packets: u64,
    queue_depth: usize,
    sub_batch: u32,
    missing: MissingPolicy,
    backpressure: Backpressure,
    timeout: Nanos,
    /// The consumer steps once in so many steps of the producer.
    consumer_every: u64,
    infer_fail: Option<(u64, bool)>,
    reorder_fail: Option<(u64, bool)>,
    sink_fail: Option<(usize, bool)>,
    owed: Option<u64>,
    lazy: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            keeps: false,
            buffers: 13,
            packets: 400,
            queue_depth: 8,
            sub_batch: 4,
            missing: MissingPolicy::Passthrough,
            backpressure: Backpressure::Block,
            timeout: Nanos::ZERO,
            consumer_every: 1,
            infer_fail: None,
            reorder_fail: None,
            sink_fail: None,
            owed: None,
            lazy: false,
        }
    }
}

fn config(plan: &Plan) -> ProducerConfig {
    let geometry = mini();
    let port = PortRange::new(4096, 4096).expect("a port");
    let flow = FlowMatch { id: 201, udp_src: Some(port), udp_dst: Some(port), ipv4_len: None };
    let mut flows = FlowTable::new();
    flows.push(&flow).expect("one flow");
    ProducerConfig {
        geometry,
        check: PacketCheck::new(&geometry, &flows, Verify::None, false),
        windows: 2,
        timeout: plan.timeout,
        missing: plan.missing,
        backpressure: plan.backpressure,
        poll: 32,
        rx_ring: 64,
        startup_wait: Nanos::from_secs(180),
        quiesce_wait: Nanos::from_secs(5),
        owed_images: plan.owed,
        time_limit: None,
    }
}

struct Result_ {
    producer: ProducerReport,
    consumer: super::consumer::ConsumerCounters,
    failure: Option<ConsumerFailure>,
    delivered: Vec<(u64, f32)>,
    all_free: bool,
    packets_free: bool,
}

impl Result_ {
    fn indices(&self) -> Vec<u64> {
        self.delivered.iter().map(|(index, _)| *index).collect()
    }
}

/// Runs `frames` through producer and consumer, both stepped from here, with a clock that moves a
/// microsecond a step and jumps when nothing happens.
fn run(plan: &Plan, frames: Vec<Vec<u8>>) -> Result_ {
    let mut link = Link::new();
    let (producer_end, consumer_end) = link.split(plan.queue_depth, plan.buffers).expect("legal");
    let memory = Memory::default();
    let (queue, nic) = Queue::new(plan.packets);
    nic.borrow_mut().arriving = frames.into();
    let mut stage = Stage::new(&memory, plan.keeps);
    stage.fail_at = plan.reorder_fail;
    let pool = BurstPool::new(plan.buffers).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..400).map(|_| PacketDesc::EMPTY).collect();
    let mut producer = Producer::new(config(plan), queue, stage, pool, producer_end, &mut backlog);
    let mut reader = Reader::new(&memory);
    reader.fail_at = plan.infer_fail;
    reader.lazy = plan.lazy;
    let sink = Delivered { fail_at: plan.sink_fail, ..Delivered::default() };
    let mut consumer = Consumer::new(consumer_end, reader, sink, 4, plan.sub_batch);

    let mut now = Nanos::from_secs(1);
    producer.start(now);
    let mut idle = 0;
    for turn in 0u64.. {
        assert!(turn < 1_000_000, "no progress: {:?}", producer.report());
        now = now.plus(Nanos::from_micros(1));
        let p = producer.step(now);
        let report = producer.report();
        assert!(report.packets.balanced(), "{report:?}");
        let steps = turn % plan.consumer_every == 0;
        let c = if steps { consumer.step() } else { Next::Wait(None) };
        match (p, c) {
            (Next::Done, Next::Done) => break,
            (Next::Wait(None), Next::Wait(None)) => idle = 0,
            (Next::Again, _) | (_, Next::Again) => idle = 0,
            _ => idle += 1,
        }
        if idle > 2
            && let Next::Wait(Some(at)) = p
        {
            now = now.max(at);
        }
    }
    let report = producer.report();
    assert!(report.reassembly.slots.balanced(16));
    let all_free = producer.all_buffers_free();
    let counters = *consumer.counters();
    let failure = consumer.failure();
    let (_, sink) = consumer.into_parts();
    let packets_free = nic.borrow().free.len() as u64 == plan.packets;
    let handed = report.images.pending;
    assert_eq!(handed, counters.delivered + counters.infer_failed + counters.sink_failed);
    Result_ {
        producer: report,
        consumer: counters,
        failure,
        delivered: sink.images,
        all_free,
        packets_free,
    }
}

fn frames(positions: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
    positions.into_iter().map(frame).collect()
}

/// Every delivered image holds its own packets.
fn assert_right(result: &Result_) {
    for &(index, position) in &result.delivered {
        assert_eq!(position, (index * 4) as f32, "image {index}");
    }
    assert!(result.all_free, "a batch buffer is missing");
    assert!(result.packets_free, "a packet buffer is missing");
}

#[test]
fn all_images_arrive_in_order_each_once() {
    for keeps in [false, true] {
        for sub_batch in [1, 2, 4] {
            let plan = Plan { keeps, sub_batch, ..Plan::default() };
            let result = run(&plan, frames(0..320));
            assert_right(&result);
            assert_eq!(result.indices(), (0..80).collect::<Vec<_>>());
            assert_eq!(result.consumer.delivered, 80);
            assert_eq!(result.producer.end, Some(EndReason::Quiet));
            assert_eq!(result.producer.pushed, 20);
            assert_eq!(result.consumer.submissions, 20 * u64::from(4 / sub_batch));
        }
    }
}

#[test]
fn a_lost_packet_costs_its_image_and_nothing_else() {
    let result = run(&Plan::default(), frames((0..320).filter(|n| n % 50 != 7)));
    assert_right(&result);
    let hit: Vec<u64> = (0..320).filter(|n| n % 50 == 7).map(|n| n / 4).collect();
    assert_eq!(result.indices(), (0..80).filter(|i| !hit.contains(i)).collect::<Vec<_>>());
    let named: Vec<u64> = result.producer.damaged.as_slice().iter().map(|r| r.0).collect();
    assert_eq!(named, hit);
    assert_eq!(result.producer.images.damaged, hit.len() as u64);
}

#[test]
fn missing_drop_gives_the_partial_batch_up() {
    let plan = Plan { missing: MissingPolicy::Drop, keeps: true, ..Plan::default() };
    let result = run(&plan, frames((0..320).filter(|&n| n != 37)));
    assert_right(&result);
    assert_eq!(result.producer.images.dropped.policy, 3);
    assert_eq!(result.producer.images.damaged, 1);
    assert_eq!(result.consumer.delivered, 76);
}

#[test]
fn a_batch_without_a_whole_image_is_not_pushed() {
    let result = run(&Plan::default(), frames((0..320).filter(|&n| n % 4 != 1 || n / 16 != 3)));
    assert_right(&result);
    assert_eq!(result.producer.pushed, 19);
    assert_eq!(result.producer.images.damaged, 4);
}

#[test]
fn no_free_batch_buffer_is_like_a_full_ring() {
    // Three buffers: two windows and one on its way. Below the floor that the config demands.
    for backpressure in [Backpressure::Block, Backpressure::Drop] {
        let plan = Plan { consumer_every: 60, buffers: 3, backpressure, ..Plan::default() };
        let result = run(&plan, frames(0..1600));
        assert_right(&result);
        let images = result.producer.images;
        let lost = images.damaged + images.missing + images.dropped.total();
        assert_eq!(result.consumer.delivered + lost, 400);
        match backpressure {
            Backpressure::Block => assert_eq!(lost, 0),
            Backpressure::Drop => assert!(result.producer.packets.no_buffer > 0),
        }
    }
}

#[test]
fn a_blocked_producer_polls_down_to_the_floor_of_the_pool() {
    let plan = Plan { consumer_every: 100_000, buffers: 3, packets: 200, ..Plan::default() };
    let mut link = Link::new();
    let (producer_end, _consumer) = link.split(1, 3).expect("legal");
    let (queue, nic) = Queue::new(plan.packets);
    nic.borrow_mut().arriving = frames(0..400).into();
    let memory = Memory::default();
    let pool = BurstPool::new(3).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..200).map(|_| PacketDesc::EMPTY).collect();
    let stage = Stage::new(&memory, false);
    let mut producer = Producer::new(config(&plan), queue, stage, pool, producer_end, &mut backlog);
    producer.start(Nanos::ZERO);
    for step in 0..100 {
        producer.step(Nanos::from_micros(step));
    }
    let free = nic.borrow().free.len();
    assert!((64 - 32..=64).contains(&free), "{free} buffers left, the floor is 64");
    assert!(producer.report().packets.balanced());
}

#[test]
fn a_camera_that_pauses_still_gets_its_last_batch() {
    let mut link = Link::new();
    let (producer_end, consumer_end) = link.split(8, 13).expect("legal");
    let memory = Memory::default();
    let (queue, nic) = Queue::new(100);
    nic.borrow_mut().arriving = frames(0..16).into();
    let pool = BurstPool::new(13).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..100).map(|_| PacketDesc::EMPTY).collect();
    let plan = Plan::default();
    let stage = Stage::new(&memory, false);
    let mut producer = Producer::new(config(&plan), queue, stage, pool, producer_end, &mut backlog);
    let mut consumer =
        Consumer::new(consumer_end, Reader::new(&memory), Delivered::default(), 4, 4);
    producer.start(Nanos::ZERO);
    for _ in 0..4 {
        producer.step(Nanos::ZERO);
        consumer.step();
    }
    assert_eq!(consumer.sink().images.len(), 4);
    assert_eq!(consumer.step(), Next::Wait(None));
}

#[test]
fn a_lazy_device_is_drained_at_the_end() {
    let plan = Plan { lazy: true, ..Plan::default() };
    let result = run(&plan, frames(0..320));
    assert_right(&result);
    assert_eq!(result.consumer.delivered, 80);
}

#[test]
fn an_owed_number_of_images_ends_the_run() {
    let plan = Plan { owed: Some(80), ..Plan::default() };
    let result = run(&plan, frames(0..320));
    assert_eq!(result.producer.end, Some(EndReason::Complete));
    assert_eq!(result.consumer.delivered, 80);
}

#[test]
fn l03_nothing_arrived_is_said() {
    let result = run(&Plan::default(), Vec::new());
    assert_eq!(result.producer.end, Some(EndReason::NothingArrived));
    // Other traffic is not a packet of ours.
    let mut arp = frame(0);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let result = run(&Plan::default(), vec![arp; 10]);
    assert_eq!(result.producer.end, Some(EndReason::NothingArrived));
    assert_eq!(result.producer.packets.other_flow, 10);
}

#[test]
fn l01_frames_before_readiness_are_early() {
    let mut link = Link::new();
    let (producer_end, _consumer) = link.split(8, 13).expect("legal");
    let (queue, nic) = Queue::new(100);
    nic.borrow_mut().arriving = frames(0..32).into();
    let memory = Memory::default();
    let pool = BurstPool::new(13).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..100).map(|_| PacketDesc::EMPTY).collect();
    let plan = Plan::default();
    let stage = Stage::new(&memory, false);
    let mut producer = Producer::new(config(&plan), queue, stage, pool, producer_end, &mut backlog);
    assert_eq!(producer.step(Nanos::ZERO), Next::Again);
    let report = producer.report();
    assert_eq!((report.packets.early, report.packets.offered), (32, 32));
    assert!(report.packets.balanced());
    assert_eq!(nic.borrow().free.len(), 100);
}

#[test]
fn c27_a_deadline_never_cuts_what_waits_in_the_nic() {
    // The poller sleeps 200 ms in the middle of a batch with a timeout of 20 ms.
    let mut link = Link::new();
    let (producer_end, _consumer) = link.split(8, 13).expect("legal");
    let (queue, nic) = Queue::new(400);
    let memory = Memory::default();
    let pool = BurstPool::new(13).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..100).map(|_| PacketDesc::EMPTY).collect();
    let plan = Plan { timeout: Nanos::from_millis(20), ..Plan::default() };
    let stage = Stage::new(&memory, false);
    let mut producer = Producer::new(config(&plan), queue, stage, pool, producer_end, &mut backlog);
    producer.start(Nanos::ZERO);
    nic.borrow_mut().arriving.extend(frames(0..10));
    producer.step(Nanos::from_millis(1));
    nic.borrow_mut().arriving.extend(frames(10..80));
    for step in 0..10 {
        producer.step(Nanos::from_millis(201 + step));
    }
    let report = producer.report();
    assert_eq!(report.reassembly.partial.total(), 0);
    assert_eq!(report.pushed, 5);
}

#[test]
fn a_low_pool_closes_batches_where_packets_are_kept() {
    // 70 buffers, a floor of 64: the second window cannot fill without the first one's packets.
    let plan = Plan { keeps: true, packets: 80, ..Plan::default() };
    let result = run(&plan, frames((0..320).filter(|n| n % 16 != 3)));
    assert_right(&result);
    assert!(result.producer.reassembly.partial.pool > 0);
    assert_eq!(result.consumer.delivered, 60);
}

#[test]
fn a_batch_is_as_old_as_the_nic_says_its_last_packet_is() {
    // The last of 16 packets lies in the buffer with the lowest number that was handed out.
    for (stamp, last_packet) in [
        (None, Nanos::from_millis(30)),
        (Some(20_000_000), Nanos(20_000_000 + 84)),
        // A stamp of later than now is of a clock that is off.
        (Some(31_000_000), Nanos::from_millis(30)),
    ] {
        let (queue, nic) = Queue::new(100);
        nic.borrow_mut().stamp = stamp;
        let mut link = Link::new();
        let (producer_end, mut consumer_end) = link.split(8, 13).expect("legal");
        let pool = BurstPool::new(13).expect("a pool");
        let mut backlog: Vec<PacketDesc> = (0..100).map(|_| PacketDesc::EMPTY).collect();
        let stage = Stage::new(&Memory::default(), false);
        let config = config(&Plan::default());
        let mut producer = Producer::new(config, queue, stage, pool, producer_end, &mut backlog);
        producer.start(Nanos::ZERO);
        nic.borrow_mut().arriving.extend(frames(0..16));
        producer.step(Nanos::from_millis(30));
        let job = consumer_end.take_job().expect("a whole batch");
        assert_eq!(job.last_packet, last_packet, "{stamp:?}");
    }
}

#[test]
fn a_split_receive_side_loses_nothing() {
    // The link is 2 MiB, and unoptimised code builds it on the stack before it is boxed.
    let big = std::thread::Builder::new().stack_size(16 << 20);
    let test = big.spawn(split_receive_side).expect("a thread");
    test.join().expect("the test inside passes");
}

fn split_receive_side() {
    let geometry = mini();
    let plan = Plan::default();
    let memory = Memory::default();
    let (queue, nic) = Queue::new(200);
    // The split memory has to be readable by both sides; frames are made again from the handle.
    #[derive(Debug)]
    struct Frames(Vec<Vec<u8>>, SharedNic);
    impl PacketMemory for Frames {
        fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
            let nic = self.1.borrow();
            let bytes = &nic.buffers[&packet.handle()];
            self.0.iter().find(|frame| *frame == bytes).expect("a frame of the stream")
        }
    }
    let all = frames(0..256);
    nic.borrow_mut().arriving = all.clone().into();
    let mut split = Box::new(SplitLink::new());
    let (mut poller, queue) = split.split(queue, Frames(all, nic.clone()), 40, 200).expect("legal");
    let mut link = Link::new();
    let (producer_end, consumer_end) = link.split(8, 13).expect("legal");
    let pool = BurstPool::new(13).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..200).map(|_| PacketDesc::EMPTY).collect();
    let stage = Stage::new(&memory, true);
    let signals = producer_end.signals();
    let config = config(&plan);
    let mut producer = Producer::new(config, queue, stage, pool, producer_end, &mut backlog);
    let mut consumer = Consumer::new(
        consumer_end,
        Reader::new(&memory),
        Delivered::default(),
        geometry.images_per_batch(),
        4,
    );
    producer.start(Nanos::ZERO);
    // Everything was sent before the first poll. The producer, which has polled nothing yet, may
    // not take that for the end; nor when it is slow and the ring to it is full.
    for step in 0..10_000 {
        if step % 3 == 0 {
            producer.step(Nanos::from_micros(step));
        }
        consumer.step();
        poller.step();
        if poller.drained() {
            assert!(nic.borrow().arriving.is_empty(), "packets were left in the NIC");
            signals.sender_done.set();
        }
    }
    assert_eq!(producer.report().end, Some(EndReason::SenderDone));
    assert_eq!(consumer.counters().delivered, 64);
    producer.rx().close();
    while poller.step() != Next::Done {}
    assert_eq!(nic.borrow().free.len(), 200);
    assert!(producer.all_buffers_free());
}

#[test]
fn a_shell_may_do_the_consumers_part() {
    let mut link = Link::new();
    let (mut producer_end, mut consumer_end) = link.split(1, 1).expect("legal");
    let mut pool = BurstPool::new(1).expect("a pool");
    assert!(consumer_end.take_job().is_none());
    let job = Job {
        burst: pool.take().expect("one is free").begin().seal(),
        batch: 3,
        first_image: 12,
        whole: crate::window::ImageMask::EMPTY,
        event: Event::DONE,
        last_packet: Nanos::ZERO,
        anchor: Anchor::default(),
    };
    producer_end.jobs.push(job).expect("room for one");
    let taken = consumer_end.take_job().expect("one is there");
    assert_eq!((taken.batch, taken.first_image), (3, 12));
    consumer_end.give_back(taken.burst.discard());
    pool.put(producer_end.returns.pop().expect("it came back")).expect("its own pool");
}
