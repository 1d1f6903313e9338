//! Summaries for the tests of this crate.

use tensorwire_core::counters::{
    ImageCounters, MalformedCounters, NicStats, PacketCounters, PartialBy, RangeList, SlotCounters,
    TxStats,
};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::pipeline::consumer::ConsumerCounters;
use tensorwire_core::pipeline::producer::{EndReason, ProducerReport};
use tensorwire_core::pipeline::transmitter::TransmitCounters;
use tensorwire_core::reassembly::ReassemblyCounters;
use tensorwire_core::time::Nanos;

use super::{
    Anchoring, ClassReport, ConfusionRow, Counted, Counter, Latency, LinkTotals, LoopCost, Mode,
    Port, RateMeter, RunFacts, SinkReport, Summary, Timing, TxTotals,
};
use crate::exit::Owed;

/// A receiver to which nothing happened.
pub(crate) fn silent() -> ProducerReport {
    ProducerReport {
        packets: PacketCounters::default(),
        reassembly: ReassemblyCounters::default(),
        images: ImageCounters::default(),
        damaged: RangeList::new(),
        missing: RangeList::new(),
        pushed: 0,
        nic: NicStats::default(),
        join: None,
        end: None,
        active: None,
        blocked: Nanos::ZERO,
        next: 0,
    }
}

/// The summary of a run of which nothing is known but `producer`, its facts `change`d.
pub(crate) fn summary<'a>(
    producer: &'a ProducerReport,
    report: SinkReport,
    change: impl FnOnce(&mut RunFacts<'a>),
) -> Summary {
    // These live as long as the test program, so that `change` may put in what lives shorter.
    let latency: &'static Latency = Box::leak(Box::default());
    let meter: &'static RateMeter = Box::leak(Box::default());
    let geometry = Geometry::new(&GeometrySpec::DOCUMENTED).expect("the documented one is valid");
    let mut facts = RunFacts {
        mode: Mode::Rx,
        owed: Owed::SomeImage,
        geometry,
        images_per_inference: 32,
        anchoring: Anchoring::new(&geometry, None, false),
        producer: Some(producer),
        consumer: ConsumerCounters::default(),
        consumer_failure: None,
        timing: Timing {
            started: Nanos::ZERO,
            ended: Nanos::ZERO,
            meter,
            infer: latency,
            reorder: latency,
            last_packet_to_features: latency,
        },
        steady: Vec::new(),
        tx: None,
        links: Vec::new(),
        clock_steps: 0,
        failure: None,
    };
    change(&mut facts);
    Summary::new(&facts, report)
}

/// The summary of a run in which nothing happened.
pub(crate) fn empty(mode: Mode) -> Summary {
    summary(&silent(), SinkReport::default(), |facts| facts.mode = mode)
}

/// The summary of a run with a figure for everything: 8 batches sent, of which one lost packets.
pub(crate) fn full() -> Summary {
    let producer = lossy();
    let mut latency = Latency::new();
    for us in [8_400_u64, 8_500, 9_360] {
        latency.record(Nanos::from_micros(us));
    }
    let mut meter = RateMeter::new();
    meter.delivered(Nanos::from_secs(1), 28);
    meter.delivered(Nanos::from_secs(2), 224);
    let mut summary = summary(&producer, found(), |facts| {
        facts.mode = Mode::Both;
        facts.owed = Owed::Images(256);
        // A pass that fills the number space: a new position keeps the place in it.
        facts.anchoring = Anchoring::new(&facts.geometry, Some(32), false);
        facts.consumer = ConsumerCounters {
            jobs: 8,
            submissions: 8,
            delivered: 252,
            ..ConsumerCounters::default()
        };
        facts.timing = Timing {
            started: Nanos::ZERO,
            ended: Nanos::from_millis(2_100),
            meter: &meter,
            infer: &latency,
            reorder: &latency,
            last_packet_to_features: &latency,
        };
        let sent = TransmitCounters { sent: 32_768, no_burst_polls: 12, ..Default::default() };
        let queue = TxStats { sent: 32_768, wire_dropped: 120, wire_duplicated: 1 };
        facts.tx = Some(TxTotals::new(32_768, &sent, queue, Nanos(51_074_100)));
    });
    let counter = |(name, value): (&str, u64)| Counter { name: name.to_owned(), value };
    let counters = [("rx_good_packets", 32_643), ("rx_errors", 0), ("rx_missed_errors", 3)];
    let counters = counters.map(counter).to_vec();
    let name = "0000:01:00.1".to_owned();
    let link = LinkTotals { up: true, downs: 2, down_seconds: 1.25, resets: 1, name };
    summary.links = vec![link];
    summary.clock_steps = 1;
    summary.steady = vec![LoopCost {
        thread: "tw-producer",
        turns: 1_000_000,
        allocations: Some(0),
        minor_faults: 2,
        major_faults: 1,
        longest_turn_ms: 0.125,
    }];
    let port = Port { port: "0000:01:00.1".to_owned(), counters };
    let counted = Counted { rx: Some(producer.nic), in_groups: false, ports: vec![port] };
    summary.of_nic(counted);
    summary
}

/// 32,637 of 32,768 packets placed.
fn lossy() -> ProducerReport {
    let mut producer = silent();
    producer.damaged.add(7, 7);
    producer.damaged.add(15, 16);
    producer.missing.add(31, 31);
    producer.images =
        ImageCounters { damaged: 3, missing: 1, pending: 252, ..ImageCounters::default() };
    producer.packets = PacketCounters {
        offered: 32_643,
        placed: 32_637,
        duplicate: 1,
        late: 1,
        malformed: MalformedCounters { vlan: 1, checksum: 2, ..MalformedCounters::default() },
        other_flow: 1,
        ..PacketCounters::default()
    };
    producer.reassembly = ReassemblyCounters {
        placed: 32_637,
        duplicate: 1,
        late: 1,
        cut_by_timeout: 1,
        discontinuities: 1,
        partial: PartialBy { moved: 1, deadline: 1, ..PartialBy::default() },
        slots: SlotCounters { batches: 8, placed: 32_637, missing: 131, ..SlotCounters::default() },
        ..ReassemblyCounters::default()
    };
    producer.pushed = 8;
    producer.next = 32_768;
    producer.nic = NicStats { missed: 3, errors: 2, no_buffer: 1 };
    producer.join = Some(0);
    producer.end = Some(EndReason::Quiet);
    producer.active = Some((Nanos::ZERO, Nanos::from_millis(10)));
    producer
}

/// What the sink found out about 252 images.
fn found() -> SinkReport {
    let class = |class, name: &str| ClassReport {
        class,
        name: name.to_owned(),
        images: 126,
        mean: vec![0.2014, 0.0331],
        norm: 3.8421,
    };
    let confusion = |class, name: &str, predicted: [u64; 2]| ConfusionRow {
        class,
        name: name.to_owned(),
        predicted: predicted.to_vec(),
    };
    SinkReport {
        batches: 8,
        images: 252,
        span: Some((0, 256)),
        unlabelled: 2,
        not_finite: 1,
        top_k: 2,
        withheld: None,
        classes: vec![class(0, "airplane"), class(1, "automobile")],
        confusion: vec![confusion(0, "airplane", [120, 5]), confusion(1, "automobile", [6, 119])],
        scored: 250,
        correct: 239,
        predicted: Some(vec![Some(0), None, Some(1)]),
        predicted_truncated: false,
    }
}
