//! The numbers: their names, units and help, and who keeps them.
//!
//! Names are those of Prometheus' conventions: a prefix, base units, `_total` on what only grows.
//! Losses stand side by side under one name, apart by their cause, so that a sum over a name is a
//! balance: of `tensorwire_packets_total` it is `tensorwire_packets_offered_total`.

use std::fmt;

use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tensorwire_core::counters::{ImageCounters, NicStats, PacketCounters, PartialBy};
use tensorwire_core::pipeline::consumer::ConsumerCounters;
use tensorwire_core::pipeline::producer::ProducerStatus;
use tensorwire_core::pipeline::transmitter::TransmitCounters;
use tensorwire_core::time::Nanos;

use crate::sink::LinkTotals;

/// What the producer sees of the receive side at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its counters.
    pub status: ProducerStatus,
    /// Those of the NIC.
    pub nic: NicStats,
    /// Batch buffers: free, and being filled.
    pub buffers: (usize, usize),
    /// Batches that were reordered and timed, and the time that they took.
    pub reordered: (u64, Nanos),
}

/// What the consumer sees at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Its counters.
    pub counters: ConsumerCounters,
    /// Time spent in inference.
    pub inferring: Nanos,
    /// Time from the last packet of a batch to its features, since the start: median and 99th
    /// percentile; `None` before the first batch.
    pub delay: Option<(Nanos, Nanos)>,
}

/// Name, label, and what it is.
type Row<T, N> = (&'static str, Option<(&'static str, &'static str)>, fn(&T) -> N);

const PACKETS: &str = "tensorwire_packets_total";
const IMAGES: &str = "tensorwire_images_lost_total";
const NIC: &str = "tensorwire_nic_lost_total";
const PARTIAL: &str = "tensorwire_batches_partial_total";
const DELAY: &str = "tensorwire_last_packet_to_features_seconds";

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
const RECEIVED: [Row<Seen, u64>; 36] = [
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
    ("tensorwire_packets_trimmed_total", None, |s| packets(s).trimmed),
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
    ("tensorwire_batches_reordered_total", None, |s| s.reordered.0),
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
const STANDS: [Row<Seen, f64>; 7] = [
    ("tensorwire_packets_held", None, |s| float(packets(s).held)),
    ("tensorwire_batch_buffers", Some(("state", "free")), |s| float(s.buffers.0 as u64)),
    ("tensorwire_batch_buffers", Some(("state", "filling")), |s| float(s.buffers.1 as u64)),
    ("tensorwire_producer_waiting", None, |s| float(u64::from(s.status.waiting))),
    ("tensorwire_backlog_packets", None, |s| float(s.status.backlog as u64)),
    ("tensorwire_producer_blocked_seconds_total", None, |s| seconds(s.status.blocked)),
    ("tensorwire_reorder_seconds_total", None, |s| seconds(s.reordered.1)),
];

/// Gauges are of `f64`: whole up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "see above")]
const fn float(number: u64) -> f64 {
    number as f64
}

const fn seconds(time: Nanos) -> f64 {
    float(time.0) / 1e9
}

/// What only grows at the consumer.
const CONSUMED: [Row<Taken, u64>; 6] = [
    ("tensorwire_jobs_total", None, |t| t.counters.jobs),
    ("tensorwire_inferences_total", None, |t| t.counters.submissions),
    ("tensorwire_images_delivered_total", None, |t| t.counters.delivered),
    (IMAGES, Some(("cause", "infer_failed")), |t| t.counters.infer_failed),
    (IMAGES, Some(("cause", "sink_failed")), |t| t.counters.sink_failed),
    (IMAGES, Some(("cause", "shutdown")), |t| t.counters.shutdown),
];

/// What is no whole number there.
const SPENT: [Row<Taken, f64>; 3] = [
    ("tensorwire_inference_seconds_total", None, |t| seconds(t.inferring)),
    (DELAY, Some(("quantile", "0.5")), |t| t.delay.map_or(f64::NAN, |(half, _)| seconds(half))),
    (DELAY, Some(("quantile", "0.99")), |t| t.delay.map_or(f64::NAN, |(_, most)| seconds(most))),
];

/// What only grows at the sender.
const SENT: [Row<TransmitCounters, u64>; 4] = [
    ("tensorwire_tx_frames_total", None, |c| c.sent),
    ("tensorwire_tx_send_failures_total", None, |c| c.send_failures),
    ("tensorwire_tx_fill_failures_total", None, |c| c.fill_failures),
    ("tensorwire_tx_no_burst_polls_total", None, |c| c.no_burst_polls),
];

/// Name and help of every number.
const HELP: [(&str, &str); 36] = [
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
    (
        "tensorwire_producer_blocked_seconds_total",
        "Time for which the receiver waited for the consumer.",
    ),
    ("tensorwire_packets_trimmed_total", "Packets placed although longer than the geometry's."),
    ("tensorwire_batches_reordered_total", "Batches whose reorder was timed."),
    ("tensorwire_reorder_seconds_total", "Time that the reorder of these batches took."),
    ("tensorwire_inference_seconds_total", "Time spent in inference."),
    (DELAY, "From the last packet of a batch to its features, since the start."),
    ("tensorwire_stalled_seconds", "For how long nothing has moved that should; 0 if all does."),
    ("tensorwire_clock_steps_total", "Times that the system's clock was set."),
    ("tensorwire_stopping", "1 from the moment at which the end was asked for."),
    ("tensorwire_producer_waiting", "1 while the receiver waits for the consumer."),
    ("tensorwire_backlog_packets", "Packets polled and not looked at yet."),
    ("tensorwire_batch_buffers", "Batch buffers of the producer, by state."),
    ("tensorwire_jobs_total", "Batches that the consumer took."),
    ("tensorwire_inferences_total", "Inferences enqueued."),
    ("tensorwire_tx_frames_total", "Frames sent."),
    ("tensorwire_tx_send_failures_total", "Times that the NIC took no frame."),
    ("tensorwire_tx_fill_failures_total", "Frames that could not be made."),
    ("tensorwire_tx_no_burst_polls_total", "Polls that found no room to send."),
    ("tensorwire_link_up", "1 while the link is up, where somebody can say so."),
    ("tensorwire_link_downs_total", "Times that the link went down."),
    ("tensorwire_link_down_seconds_total", "Time for which the link was down."),
    ("tensorwire_link_resets_total", "Times that its NIC was reset, or asked for it."),
    ("tensorwire_ready", "1 once the receiver takes frames."),
    ("tensorwire_build_info", "1, with the version of the program and what it runs."),
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
    stalled: Gauge,
    stopping: Gauge,
    clock_steps: Counter,
}

/// Those that the producer keeps.
#[derive(Debug)]
pub struct ProducerBoard {
    counters: Vec<Counter>,
    gauges: Vec<Gauge>,
}

/// Those that the consumer keeps.
#[derive(Debug)]
pub struct ConsumerBoard {
    counters: Vec<Counter>,
    gauges: Vec<Gauge>,
}

/// Those that the sender keeps.
#[derive(Debug)]
pub struct SenderBoard {
    counters: Vec<Counter>,
}

/// Those of the links, which the main thread keeps.
#[derive(Debug)]
pub struct LinkBoard(Vec<LinkNumbers>);

#[derive(Debug)]
struct LinkNumbers {
    up: Gauge,
    downs: Counter,
    down: Gauge,
    resets: Counter,
}

impl LinkBoard {
    /// Shows what became of the links, in the order in which they were made.
    pub fn show(&self, links: &[LinkTotals]) {
        for (numbers, link) in self.0.iter().zip(links) {
            numbers.up.set(f64::from(u8::from(link.up)));
            numbers.downs.absolute(link.downs);
            numbers.down.set(link.down_seconds);
            numbers.resets.absolute(link.resets);
        }
    }
}

/// The text of all numbers, whenever it is asked for.
#[derive(Clone)]
pub struct Numbers(PrometheusHandle);

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

impl Numbers {
    /// The text, in the format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        // The counters of the `metrics` crates are whole numbers. What counts seconds is a gauge to
        // them, and a counter to who reads it.
        self.0.render().replace("_seconds_total gauge\n", "_seconds_total counter\n")
    }
}

fn key<T, N>((name, label, _): &Row<T, N>) -> Key {
    let labels: Vec<_> = label.iter().map(|(key, value)| Label::new(*key, *value)).collect();
    Key::from_parts(*name, labels)
}

impl Board {
    /// Numbers that nobody keeps yet. `side` is what runs, `infers` who infers.
    #[must_use]
    pub fn new(side: &str, infers: &str) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        for (name, help) in HELP {
            // The kind is that of the number when it is made; the help belongs to the name.
            recorder.describe_counter(name.into(), None, help.into());
        }
        let labels = vec![
            Label::new("version", env!("CARGO_PKG_VERSION")),
            Label::new("mode", side.to_owned()),
            Label::new("backend", infers.to_owned()),
        ];
        let info = Key::from_parts("tensorwire_build_info", labels);
        recorder.register_gauge(&info, &METADATA).set(1.0);
        let gauge = |name| recorder.register_gauge(&Key::from_name(name), &METADATA);
        let ready = gauge("tensorwire_ready");
        let (stalled, stopping) =
            (gauge("tensorwire_stalled_seconds"), gauge("tensorwire_stopping"));
        for gauge in [&ready, &stalled, &stopping] {
            gauge.set(0.0);
        }
        let steps = Key::from_name("tensorwire_clock_steps_total");
        let clock_steps = recorder.register_counter(&steps, &METADATA);
        clock_steps.absolute(0);
        Self { recorder, ready, stalled, stopping, clock_steps }
    }

    fn counters<T>(&self, rows: &[Row<T, u64>]) -> Vec<Counter> {
        rows.iter().map(|row| self.recorder.register_counter(&key(row), &METADATA)).collect()
    }

    fn gauges<T>(&self, rows: &[Row<T, f64>]) -> Vec<Gauge> {
        rows.iter().map(|row| self.recorder.register_gauge(&key(row), &METADATA)).collect()
    }

    /// The producer's numbers; to be asked for once.
    #[must_use]
    pub fn producer(&self) -> ProducerBoard {
        ProducerBoard { counters: self.counters(&RECEIVED), gauges: self.gauges(&STANDS) }
    }

    /// The consumer's numbers; to be asked for once.
    #[must_use]
    pub fn consumer(&self) -> ConsumerBoard {
        ConsumerBoard { counters: self.counters(&CONSUMED), gauges: self.gauges(&SPENT) }
    }

    /// The sender's numbers; to be asked for once.
    #[must_use]
    pub fn sender(&self) -> SenderBoard {
        SenderBoard { counters: self.counters(&SENT) }
    }

    /// The numbers of these links, in their order.
    #[must_use]
    pub fn links(&self, links: &[LinkTotals]) -> LinkBoard {
        let key = |name: &'static str, link: &LinkTotals| {
            Key::from_parts(name, vec![Label::new("link", link.name.clone())])
        };
        let recorder = &self.recorder;
        let made = |link| LinkNumbers {
            up: recorder.register_gauge(&key("tensorwire_link_up", link), &METADATA),
            downs: recorder.register_counter(&key("tensorwire_link_downs_total", link), &METADATA),
            down: recorder
                .register_gauge(&key("tensorwire_link_down_seconds_total", link), &METADATA),
            resets: recorder
                .register_counter(&key("tensorwire_link_resets_total", link), &METADATA),
        };
        LinkBoard(links.iter().map(made).collect())
    }

    /// The receiver takes frames from now on.
    pub fn ready(&self) {
        self.ready.set(1.0);
    }

    /// For how long nothing has moved that should.
    pub fn stalled(&self, time: Nanos) {
        self.stalled.set(seconds(time));
    }

    /// How often the system's clock was set.
    pub fn clock_steps(&self, steps: u64) {
        self.clock_steps.absolute(steps);
    }

    /// The end was asked for.
    pub fn stopping(&self) {
        self.stopping.set(1.0);
    }

    /// The text of all numbers.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        Numbers(self.recorder.handle())
    }
}

fn show<T>(rows: &[Row<T, u64>], counters: &[Counter], seen: &T) {
    for ((.., of), counter) in rows.iter().zip(counters) {
        counter.absolute(of(seen));
    }
}

fn stand<T>(rows: &[Row<T, f64>], gauges: &[Gauge], seen: &T) {
    for ((.., of), gauge) in rows.iter().zip(gauges) {
        gauge.set(of(seen));
    }
}

impl ProducerBoard {
    /// Shows what was seen.
    #[inline(never)]
    pub fn show(&self, seen: &Seen) {
        show(&RECEIVED, &self.counters, seen);
        stand(&STANDS, &self.gauges, seen);
    }
}

impl ConsumerBoard {
    /// Shows what was counted.
    #[inline(never)]
    pub fn show(&self, taken: &Taken) {
        show(&CONSUMED, &self.counters, taken);
        stand(&SPENT, &self.gauges, taken);
    }
}

impl SenderBoard {
    /// Shows what was counted.
    #[inline(never)]
    pub fn show(&self, counters: &TransmitCounters) {
        show(&SENT, &self.counters, counters);
    }
}

#[cfg(test)]
mod tests;
