//! Where payloads lie when they are placed: in the buffers that the driver filled, nowhere else.

use tensorwire_core::burst::{Burst, BurstPool, Filling, PacketDesc};
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::header::{HeaderSpec, PacketCheck, Verify, build};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::Link;
use tensorwire_core::pipeline::consumer::Consumer;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy, Producer, ProducerConfig};
use tensorwire_core::port::{
    Delivery, Event, Outputs, PacketMemory, Reorder, Sink, SinkFault, StageError, TxQueue,
};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;
use tensorwire_dpdk::PacketPool;
use tensorwire_sim::infer::NullInfer;

use crate::support::{Folder, Wire, alone, eal};

/// Frames of the 256 images of the main job.
pub(crate) const FRAMES: u64 = 32_768;

/// Sees the address of every payload that is placed.
struct Places {
    pool: PacketPool,
    payload: usize,
    inside: u64,
    outside: u64,
}

impl Reorder for Places {
    fn place<M: PacketMemory>(
        &mut self,
        _: &mut Burst<Filling>,
        _: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        let payload = memory.bytes(packet).get(self.payload..).unwrap_or_default().as_ptr_range();
        let whole = payload.end.addr() - payload.start.addr() == 1176;
        let inside = whole && self.pool.contains(payload.start, payload.end);
        *(if inside { &mut self.inside } else { &mut self.outside }) += 1;
    }

    fn start(&mut self, _: &mut Burst<Filling>, _: SlotMap<'_>) -> Result<Event, StageError> {
        Ok(Event::DONE)
    }

    fn abandon(&mut self, _: &mut Burst<Filling>) {}

    fn poll_done(&mut self, _: &mut [PacketDesc]) -> usize {
        0
    }
}

/// Counts images.
#[derive(Default)]
pub(crate) struct Images(pub(crate) u64);

impl Sink for Images {
    fn deliver(&mut self, delivery: &Delivery, _: Outputs<'_>) -> Result<(), SinkFault> {
        self.0 += u64::from(delivery.whole.count());
        Ok(())
    }
}

/// The main job's packets, in the routable layout.
pub(crate) fn geometry() -> Geometry {
    let spec = GeometrySpec { seq_bit_offset: 336, seq_bit_width: 16, ..GeometrySpec::DOCUMENTED };
    Geometry::new(&spec).expect("the main job's")
}

/// What their headers say.
pub(crate) const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [10, 0, 0, 1],
    ip_dst: [10, 0, 0, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

pub(crate) fn settings(geometry: &Geometry) -> ProducerConfig {
    let mut flows = FlowTable::new();
    flows.push(&FlowMatch::any(0)).expect("room for one flow");
    ProducerConfig {
        geometry: *geometry,
        check: PacketCheck::new(geometry, &flows, Verify::Udp, false),
        windows: 2,
        timeout: Nanos::ZERO,
        missing: MissingPolicy::Passthrough,
        backpressure: Backpressure::Block,
        poll: MAX_POLL,
        rx_ring: 1024,
        startup_wait: Nanos::from_secs(3_600),
        quiesce_wait: Nanos::from_secs(3_600),
        owed_images: Some(256),
        time_limit: None,
    }
}

/// The main job's frames through `wire` into the producer, whose payloads have to lie in `pool`.
fn placed_in(wire: &mut Wire, pool: PacketPool) {
    let geometry = geometry();
    let (mut tx, rx) = wire.ends();
    let mut link = Box::new(Link::new());
    let (producer_end, consumer_end) = link.split(8, 16).expect("legal");
    let mut backlog = Vec::new();
    backlog.resize_with(8192, PacketDesc::default);
    let places = Places { pool, payload: 64, inside: 0, outside: 0 };
    let batches = BurstPool::new(16).expect("a pool");
    let mut producer =
        Producer::new(settings(&geometry), rx, places, batches, producer_end, &mut backlog);
    let images = geometry.images_per_batch();
    let mut consumer =
        Consumer::new(consumer_end, NullInfer::default(), Images::default(), images, images);
    producer.start(Nanos::ZERO);
    let (mut sent, mut turns) = (0u32, 0u64);
    while producer.report().packets.placed < FRAMES {
        let offered = producer.report().packets.offered;
        if u64::from(sent) < FRAMES && u64::from(sent) - offered < 256 {
            let fill = |frame: &mut [u8]| {
                frame.fill(7);
                build(&HEADER, frame).expect("room for headers");
                assert!(tensorwire_core::header::set_sequence(frame, geometry.seq_field(), sent));
            };
            if tx.send(geometry.frame_bytes(), fill).is_ok() {
                sent += 1;
            }
        }
        tx.flush();
        producer.step(Nanos(turns));
        consumer.step();
        turns += 1;
        assert!(turns < 500_000_000, "{sent} sent: {:?}", producer.report().packets);
    }
    for turn in 0..1000 {
        producer.step(Nanos(turns + turn));
        consumer.step();
    }
    let places = producer.reorder();
    assert_eq!((places.inside, places.outside), (FRAMES, 0), "payloads in our region, and not");
    assert_eq!(producer.rx().received(), FRAMES);
    assert_eq!(consumer.into_parts().1.0, 256);
}

/// A ring passes the sender's buffer on: the payload is placed from where it was written.
#[test]
fn payloads_over_rings_are_placed_from_the_senders_buffers() {
    alone("places::payloads_over_rings_are_placed_from_the_senders_buffers", || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 4095, 1240);
        let pool = wire.tx_pool.clone();
        placed_in(&mut wire, pool);
    });
}

/// memif is a wire: its driver writes each frame into a buffer of ours once.
#[test]
fn payloads_over_memif_are_placed_from_the_receivers_buffers() {
    alone("places::payloads_over_memif_are_placed_from_the_receivers_buffers", || {
        let folder = Folder::new();
        let eal = eal();
        let mut wire = Wire::memif(&eal, folder.path(), 4095, 1240);
        let pool = wire.rx_pool.clone();
        placed_in(&mut wire, pool);
    });
}
