//! The whole way without inference: sender, software NIC, producer, consumer, a thread each, with
//! frames of the documented geometry. It shows where the time goes: gigabits of payload per second
//! of wall time, and for each thread the time per packet that it was on a core, which a machine
//! that is shared with others falsifies less.
//!
//! `cargo bench -p tensorwire-sim --bench loopback -- [--batches N] [--shuffle N] [--ring N]`

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::flow::{FlowMatch, FlowTable, PortRange};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::header::{self, HeaderSpec, PacketCheck, Verify};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::consumer::Consumer;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy, Producer, ProducerConfig};
use tensorwire_core::pipeline::transmitter::{FrameSource, Transmitter, TransmitterConfig};
use tensorwire_core::pipeline::{Link, Next};
use tensorwire_core::port::{Delivery, Outputs, Sink, SinkFault};
use tensorwire_core::time::Nanos;
use tensorwire_kernels::{Conversion, Kernel, prefetch};
use tensorwire_sim::infer::NullInfer;
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, TxMode};
use tensorwire_sim::pool::BatchMemory;
use tensorwire_sim::reorder::CpuReorder;
use tensorwire_sim::wire::{Faulty, WireFaults};

/// Batches of one pass: as many as the documented capture of 256 images has.
const PASS: u32 = 8;

/// Batches of a run unless the command line says otherwise.
const BATCHES: u64 = 256;

/// One pass of frames, in memory as a capture is.
struct Frames {
    bytes: Vec<u8>,
    frame_bytes: usize,
}

impl Frames {
    fn new(geometry: &Geometry) -> Result<Self, Box<dyn Error>> {
        let spec = HeaderSpec {
            eth_src: [2, 0, 0, 0, 0, 1],
            eth_dst: [2, 0, 0, 0, 0, 2],
            ip_src: [1, 1, 1, 1],
            ip_dst: [2, 2, 2, 2],
            udp_src: 4096,
            udp_dst: 4096,
        };
        let frame_bytes = geometry.frame_bytes();
        let count = PASS * geometry.packets_per_batch();
        let mut bytes = vec![0; frame_bytes * count as usize];
        for (frame, number) in bytes.chunks_exact_mut(frame_bytes).zip(0u32..) {
            frame[geometry.payload_offset()..].fill(number.to_le_bytes()[0]);
            header::build(&spec, frame)?;
            assert!(header::set_sequence(frame, geometry.seq_field(), number));
        }
        Ok(Self { bytes, frame_bytes })
    }

    fn frame(&self, index: u64) -> &[u8] {
        let start = usize::try_from(index).unwrap_or(usize::MAX) * self.frame_bytes;
        &self.bytes[start..][..self.frame_bytes]
    }
}

impl FrameSource for &Frames {
    fn frames(&self) -> u64 {
        (self.bytes.len() / self.frame_bytes) as u64
    }

    fn len(&self, _index: u64) -> usize {
        self.frame_bytes
    }

    fn lent(&self, index: u64) -> Option<&[u8]> {
        // As the program does, see its `run::frames`.
        if index + 2 < self.frames() {
            prefetch(self.frame(index + 2));
        }
        Some(self.frame(index))
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        out.copy_from_slice(self.frame(index));
    }
}

/// A sink for batches without features.
struct Nothing;

impl Sink for Nothing {
    fn deliver(&mut self, _: &Delivery, _: Outputs<'_>) -> Result<(), SinkFault> {
        Ok(())
    }
}

/// Steps a machine until it is done; milliseconds on a core. There may be fewer cores than threads,
/// so a thread without work leaves its core to the others after a while.
fn drive(mut step: impl FnMut() -> Next) -> f64 {
    let mut idle = 0u32;
    loop {
        match step() {
            Next::Again => idle = 0,
            Next::Wait(_) => {
                match idle {
                    0..64 => std::hint::spin_loop(),
                    64..512 => thread::yield_now(),
                    _ => thread::sleep(Duration::from_micros(50)),
                }
                idle = idle.saturating_add(1);
            }
            Next::Done => return on_core_ms(),
        }
    }
}

/// How long the calling thread has been on a core; not a number where the system does not say.
fn on_core_ms() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
    nanos.map_or(f64::NAN, |nanos| nanos / 1e6)
}

/// The number behind `flag` on the command line.
fn argument(flag: &str, default: u64) -> Result<u64, Box<dyn Error>> {
    let mut args = std::env::args().skip_while(|arg| arg != flag).skip(1);
    args.next().map_or(Ok(default), |text| Ok(text.parse()?))
}

fn nic_config(geometry: &Geometry, flows: &FlowTable, rx_ring: usize) -> SwNicConfig {
    SwNicConfig {
        rx_bufs: 51_200,
        rx_buf_size: geometry.frame_bytes(),
        rx_ring,
        tx_bufs: 51_200,
        tx_buf_size: 2048,
        tx_ring: 8192,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: Some([2, 0, 0, 0, 0, 3]),
        flows: Some(flows.clone()),
    }
}

fn producer_config(geometry: &Geometry, flows: &FlowTable, rx_ring: usize) -> ProducerConfig {
    ProducerConfig {
        geometry: *geometry,
        check: PacketCheck::new(geometry, flows, Verify::None, false),
        windows: 2,
        timeout: Nanos::ZERO,
        missing: MissingPolicy::Passthrough,
        backpressure: Backpressure::Block,
        poll: MAX_POLL,
        rx_ring,
        startup_wait: Nanos::from_secs(180),
        quiesce_wait: Nanos::from_secs(5),
        owed_images: None,
        time_limit: None,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let passes = argument("--batches", BATCHES)?.div_ceil(u64::from(PASS));
    let rx_ring = usize::try_from(argument("--ring", 8192)?)?;
    let shuffle = u32::try_from(argument("--shuffle", 0)?)?;

    let geometry = Geometry::new(&GeometrySpec::DOCUMENTED).expect("documented");
    let frames = Frames::new(&geometry)?;
    let mut flows = FlowTable::new();
    let port = Some(PortRange::single(4096));
    flows.push(&FlowMatch { udp_src: port, udp_dst: port, ..FlowMatch::any(201) })?;
    let pool = BurstPool::new(16)?;
    let kernel = Kernel::new(Conversion::Int8ToFp16);
    let memory = BatchMemory::new(&pool, geometry.batch_bytes(), kernel)?;
    let mut nic = SwNic::new(nic_config(&geometry, &flows, rx_ring))?;
    let (tx, rx) = nic.split();
    let faults = WireFaults { shuffle, seed: 1, ..WireFaults::default() };
    let config = TransmitterConfig {
        passes: Some(passes),
        renumber: Some((geometry.seq_field(), (&frames).frames())),
        eth_dst: None,
        pacing_mbps: 0,
        stall_after: Nanos::from_secs(60),
    };
    let mut sender = Transmitter::new(config, Faulty::new(tx, faults, 2048)?, &frames);
    let reorder = CpuReorder::at_placement(&geometry, &memory)?;
    let mut backlog: Vec<PacketDesc> = Vec::new();
    backlog.resize_with(51_200, PacketDesc::default);
    let mut link = Box::new(Link::new());
    let (producer_end, consumer_end) = link.split(8, 16)?;
    let signals = producer_end.signals();
    let config = producer_config(&geometry, &flows, rx_ring);
    let mut producer = Producer::new(config, rx, reorder, pool, producer_end, &mut backlog);
    let images = geometry.images_per_batch();
    let mut consumer = Consumer::new(consumer_end, NullInfer::default(), Nothing, images, images);

    let began = Instant::now();
    let now = || Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    producer.start(now());
    let [sent, produced, consumed] = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let spent = drive(|| sender.step(now()));
            signals.sender_done.set();
            spent
        });
        let producer = scope.spawn(|| drive(|| producer.step(now())));
        let consumer = scope.spawn(|| drive(|| consumer.step()));
        [sender, producer, consumer].map(|thread| thread.join().expect("no thread panics"))
    });
    let seconds = began.elapsed().as_secs_f64();

    let packets = passes * (&frames).frames();
    let delivered = consumer.counters().delivered;
    assert_eq!(delivered, packets / u64::from(geometry.packets_per_image()), "a lossless wire");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (packets, payload) = (packets as f64, geometry.payload_bytes() as f64);
    let per_packet = |ms: f64| ms * 1e6 / packets;
    println!(
        "{:.1} Gb/s of payload over {seconds:.2} s; on a core, ns per packet: sender {:.0}, \
         producer {:.0}, consumer {:.0}",
        packets * payload * 8.0 / seconds / 1e9,
        per_packet(sent),
        per_packet(produced),
        per_packet(consumed),
    );
    Ok(())
}
