//! The numbers: their names, units and help, and who keeps them.
//!
//! Names are those of Prometheus' conventions: a prefix, base units, `_total` on what only grows.
//! Losses stand side by side under one name, apart by their cause, so that a sum over a name is a
//! balance: of `tensorwire_packets_total` it is `tensorwire_packets_offered_total`.

use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tensorwire_core::counters::{ImageCounters, NicStats, PacketCounters, PartialBy};
use tensorwire_core::pipeline::consumer::ConsumerCounters;
use tensorwire_core::pipeline::producer::ProducerStatus;
use tensorwire_core::pipeline::transmitter::TransmitCounters;
use tensorwire_core::time::Nanos;

/// How often a thread shows its numbers.
pub const SHOWN_EVERY: Nanos = Nanos::from_millis(100);

/// What the producer sees of the receive side at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its counters.
    pub status: ProducerStatus,
    /// Those of the NIC.
    pub nic: NicStats,
    /// Batch buffers: free, and being filled.
    pub buffers: (usize, usize),
}

/// Name, label, and what it is.
type Row<T, N> = (&'static str, Option<(&'static str, &'static str)>, fn(&T) -> N);

const PACKETS: &str = "tensorwire_packets_total";
const IMAGES: &str = "tensorwire_images_lost_total";
const NIC: &str = "tensorwire_nic_lost_total";
const PARTIAL: &str = "tensorwire_batches_partial_total";

/// A packet's cause.
const fn packet(cause: &'static str, of: fn(&Seen) -> u64) -> Row<Seen, u64> {
    (PACKETS, Some(("cause", cause)), of)
}

const fn image(cause: &'static str, of: fn(&Seen) -> u64) -> Row<Seen, u64> {
    (IMAGES, Some(("cause", cause)), of)
}

const fn partial(by: &'static str, of: fn(&Seen) -> u64) -> Row<Seen, u64> {
    (PARTIAL, Some(("by", by)), of)
}

/// What only grows on the receive side.
const RECEIVED: [Row<Seen, u64>; 34] = [
    ("tensorwire_packets_offered_total", None, |s| packets(s).offered),
    packet("placed", |s| packets(s).placed),
    packet("duplicate", |s| packets(s).duplicate),
    packet("late", |s| packets(s).late),
    packet("wild", |s| packets(s).wild),
    packet("short", |s| packets(s).short),
    packet("long", |s| packets(s).long),
    packet("vlan", |s| packets(s).malformed.vlan),
    packet("fragment", |s| packets(s).malformed.fragment),
    packet("ihl", |s| packets(s).malformed.ihl),
    packet("checksum", |s| packets(s).malformed.checksum),
    packet("not_udp", |s| packets(s).malformed.not_udp),
    packet("other_flow", |s| packets(s).other_flow),
    packet("no_buffer", |s| packets(s).no_buffer),
    packet("early", |s| packets(s).early),
    (NIC, Some(("cause", "missed")), |s| s.nic.missed),
    (NIC, Some(("cause", "errors")), |s| s.nic.errors),
    (NIC, Some(("cause", "no_buffer")), |s| s.nic.no_buffer),
    image("damaged", |s| images(s).damaged),
    image("missing", |s| images(s).missing),
    image("unfinished", |s| images(s).unfinished),
    image("queue_full", |s| images(s).dropped.queue_full),
    image("policy", |s| images(s).dropped.policy),
    image("reorder_failed", |s| images(s).dropped.infer_failed),
    ("tensorwire_batches_total", None, |s| s.status.pushed),
    partial("moved", |s| by(s).moved),
    partial("deadline", |s| by(s).deadline),
    partial("pool", |s| by(s).pool),
    partial("discontinuity", |s| by(s).discontinuity),
    partial("shutdown", |s| by(s).shutdown),
    ("tensorwire_slots_missing_total", None, |s| s.status.reassembly.slots.missing),
    ("tensorwire_slots_skipped_total", None, |s| s.status.reassembly.slots.skipped),
    ("tensorwire_discontinuities_total", None, |s| s.status.reassembly.discontinuities),
    ("tensorwire_images_handed_total", None, |s| images(s).pending),
];

/// What goes up and down there, or is no whole number.
const STANDS: [Row<Seen, f64>; 6] = [
    ("tensorwire_packets_held", None, |s| float(packets(s).held)),
    ("tensorwire_batch_buffers", Some(("state", "free")), |s| float(s.buffers.0 as u64)),
    ("tensorwire_batch_buffers", Some(("state", "filling")), |s| float(s.buffers.1 as u64)),
    ("tensorwire_producer_waiting", None, |s| float(u64::from(s.status.waiting))),
    ("tensorwire_backlog_packets", None, |s| float(s.status.backlog as u64)),
    ("tensorwire_producer_blocked_seconds", None, |s| float(s.status.blocked.0) / 1e9),
];

/// Gauges are of `f64`: whole up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "see above")]
const fn float(number: u64) -> f64 {
    number as f64
}

/// What only grows at the consumer.
const CONSUMED: [Row<ConsumerCounters, u64>; 5] = [
    ("tensorwire_jobs_total", None, |c| c.jobs),
    ("tensorwire_inferences_total", None, |c| c.submissions),
    ("tensorwire_images_delivered_total", None, |c| c.delivered),
    (IMAGES, Some(("cause", "infer_failed")), |c| c.infer_failed),
    (IMAGES, Some(("cause", "sink_failed")), |c| c.sink_failed),
];

/// What only grows at the sender.
const SENT: [Row<TransmitCounters, u64>; 4] = [
    ("tensorwire_tx_frames_total", None, |c| c.sent),
    ("tensorwire_tx_send_failures_total", None, |c| c.send_failures),
    ("tensorwire_tx_fill_failures_total", None, |c| c.fill_failures),
    ("tensorwire_tx_no_burst_polls_total", None, |c| c.no_burst_polls),
];

/// Name and help of every number.
const HELP: [(&str, &str); 24] = [
    ("tensorwire_packets_offered_total", "Frames that the NIC handed over."),
    (PACKETS, "Frames by what became of them; with those held their sum is the frames offered."),
    ("tensorwire_packets_held", "Packets that are neither placed nor refuted yet."),
    (NIC, "What the NIC dropped or counted as broken before it handed anything over."),
    (IMAGES, "Images that were not delivered, by cause."),
    ("tensorwire_images_delivered_total", "Whole images, inferred and taken by the sink."),
    ("tensorwire_images_handed_total", "Whole images handed to the consumer."),
    ("tensorwire_batches_total", "Batches handed to the consumer."),
    (PARTIAL, "Batches that closed before every slot was covered, by what closed them."),
    ("tensorwire_slots_missing_total", "Slots of packets that were lost."),
    ("tensorwire_slots_skipped_total", "Slots in the gap of a discontinuity."),
    (
        "tensorwire_discontinuities_total",
        "Restarts of the sender, or more than half of the numbers lost.",
    ),
    ("tensorwire_producer_blocked_seconds", "Time for which the receiver waited for the consumer."),
    ("tensorwire_producer_waiting", "1 while the receiver waits for the consumer."),
    ("tensorwire_backlog_packets", "Packets polled and not looked at yet."),
    ("tensorwire_batch_buffers", "Batch buffers of the producer, by state."),
    ("tensorwire_jobs_total", "Batches that the consumer took."),
    ("tensorwire_inferences_total", "Inferences enqueued."),
    ("tensorwire_tx_frames_total", "Frames sent."),
    ("tensorwire_tx_send_failures_total", "Times that the NIC took no frame."),
    ("tensorwire_tx_fill_failures_total", "Frames that could not be made."),
    ("tensorwire_tx_no_burst_polls_total", "Polls that found no room to send."),
    ("tensorwire_ready", "1 once the receiver takes frames."),
    ("tensorwire_build_info", "1, with the version of the program."),
];

const fn packets(seen: &Seen) -> &PacketCounters {
    &seen.status.packets
}

const fn images(seen: &Seen) -> &ImageCounters {
    &seen.status.images
}

const fn by(seen: &Seen) -> &PartialBy {
    &seen.status.reassembly.partial
}

static METADATA: Metadata<'static> = Metadata::new("tensorwire", Level::INFO, Some(module_path!()));

/// All numbers of a run.
#[derive(Debug)]
pub struct Board {
    recorder: PrometheusRecorder,
    ready: Gauge,
}

/// Those that the producer keeps.
#[derive(Debug)]
pub struct ProducerBoard {
    counters: Vec<Counter>,
    gauges: Vec<Gauge>,
    next: Nanos,
}

/// Those that the consumer keeps.
#[derive(Debug)]
pub struct ConsumerBoard {
    counters: Vec<Counter>,
}

/// Those that the sender keeps.
#[derive(Debug)]
pub struct SenderBoard {
    counters: Vec<Counter>,
    next: Nanos,
}

fn key<T, N>((name, label, _): &Row<T, N>) -> Key {
    let labels: Vec<_> = label.iter().map(|(key, value)| Label::new(*key, *value)).collect();
    Key::from_parts(*name, labels)
}

impl Board {
    /// Numbers that nobody keeps yet.
    #[must_use]
    pub fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        for (name, help) in HELP {
            // The kind is that of the number when it is made; the help belongs to the name.
            recorder.describe_counter(name.into(), None, help.into());
        }
        let version = Label::new("version", env!("CARGO_PKG_VERSION"));
        let info = Key::from_parts("tensorwire_build_info", vec![version]);
        recorder.register_gauge(&info, &METADATA).set(1.0);
        let ready = recorder.register_gauge(&Key::from_name("tensorwire_ready"), &METADATA);
        ready.set(0.0);
        Self { recorder, ready }
    }

    fn counters<T>(&self, rows: &[Row<T, u64>]) -> Vec<Counter> {
        rows.iter().map(|row| self.recorder.register_counter(&key(row), &METADATA)).collect()
    }

    /// The producer's numbers; to be asked for once.
    #[must_use]
    pub fn producer(&self) -> ProducerBoard {
        let gauges = STANDS.iter();
        let gauges = gauges.map(|row| self.recorder.register_gauge(&key(row), &METADATA)).collect();
        ProducerBoard { counters: self.counters(&RECEIVED), gauges, next: Nanos::ZERO }
    }

    /// The consumer's numbers; to be asked for once.
    #[must_use]
    pub fn consumer(&self) -> ConsumerBoard {
        ConsumerBoard { counters: self.counters(&CONSUMED) }
    }

    /// The sender's numbers; to be asked for once.
    #[must_use]
    pub fn sender(&self) -> SenderBoard {
        SenderBoard { counters: self.counters(&SENT), next: Nanos::ZERO }
    }

    /// The receiver takes frames from now on.
    pub fn ready(&self) {
        self.ready.set(1.0);
    }

    /// The text of all numbers, whenever it is asked for.
    #[must_use]
    pub fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

fn show<T>(rows: &[Row<T, u64>], counters: &[Counter], seen: &T) {
    for ((.., of), counter) in rows.iter().zip(counters) {
        counter.absolute(of(seen));
    }
}

/// Whether `next` has come; if so, it is moved on.
fn due(next: &mut Nanos, now: Nanos) -> bool {
    if now < *next {
        return false;
    }
    *next = now.plus(SHOWN_EVERY);
    true
}

impl ProducerBoard {
    /// Shows what `seen` says, if it is time to.
    #[inline]
    pub fn show_at(&mut self, now: Nanos, seen: impl FnOnce() -> Seen) {
        if due(&mut self.next, now) {
            self.show(&seen());
        }
    }

    /// Shows what was seen.
    #[inline(never)]
    pub fn show(&self, seen: &Seen) {
        show(&RECEIVED, &self.counters, seen);
        for ((.., of), gauge) in STANDS.iter().zip(&self.gauges) {
            gauge.set(of(seen));
        }
    }
}

impl ConsumerBoard {
    /// Shows what was counted.
    pub fn show(&self, counters: &ConsumerCounters) {
        show(&CONSUMED, &self.counters, counters);
    }
}

impl SenderBoard {
    /// Shows what was counted, if it is time to.
    #[inline]
    pub fn show_at(&mut self, now: Nanos, counters: &TransmitCounters) {
        if due(&mut self.next, now) {
            self.show(counters);
        }
    }

    /// Shows what was counted.
    pub fn show(&self, counters: &TransmitCounters) {
        show(&SENT, &self.counters, counters);
    }
}

#[cfg(test)]
mod tests;
