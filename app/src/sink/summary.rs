//! The summary of a run: every counter under its name, once.

use std::fmt;

use serde::Serialize;
use tensorwire_core::counters::{NicStats, RangeList};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::limits::MAX_RANGES;
use tensorwire_core::pipeline::Anchor;
use tensorwire_core::pipeline::consumer::{ConsumerCounters, ConsumerFailure};
use tensorwire_core::pipeline::producer::{EndReason, ProducerReport};
use tensorwire_core::time::Nanos;

use super::anchoring::Anchoring;
use super::classes::{ClassReport, ConfusionRow};
use super::features::SinkReport;
use super::latency::Latency;
use super::parts::{
    Dropped, Images, Join, LatencyMs, LinkTotals, LoopCost, Mode, Nic, Packets, Partial, Port,
    Slots, Truncated, TxTotals,
};
use super::rates::{RateInputs, RateMeter, Rates, RxWindow};
use crate::exit::{self, ExitCode, Failure, Owed};

/// Version of the JSON object; it changes when a key changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// What a run counted, as its parts hand it over.
#[derive(Clone, Debug)]
pub struct RunFacts<'a> {
    /// Which sides ran.
    pub mode: Mode,
    /// What the run had to bring.
    pub owed: Owed,
    /// Shape of packets, images and batches.
    pub geometry: Geometry,
    /// Images of one submission to the inference.
    pub images_per_inference: u32,
    /// How the place of an image in the data set becomes certain.
    pub anchoring: Anchoring,
    /// What the producer counted; `None` where nothing was received.
    pub producer: Option<&'a ProducerReport>,
    /// What the consumer counted.
    pub consumer: ConsumerCounters,
    /// Why the consumer gave up, if it did.
    pub consumer_failure: Option<ConsumerFailure>,
    /// When, and for how long.
    pub timing: Timing<'a>,
    /// What the sender did, where it ran here.
    pub tx: Option<TxTotals>,
    /// The links that were watched.
    pub links: Vec<LinkTotals>,
    /// Times that the system's clock was set.
    pub clock_steps: u64,
    /// What the loops have cost.
    pub steady: Vec<LoopCost>,
    /// What else ended the run before its end; it decides before every other failure.
    pub failure: Option<Failure>,
}

/// What a NIC counted over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Of its receiving side; `None` where the producer's word is the last.
    pub rx: Option<NicStats>,
    /// What it missed are groups of packets: how many packets they held, nobody knows.
    pub in_groups: bool,
    /// In the words of the drivers.
    pub ports: Vec<Port>,
}

/// The times of a run; all of one epoch.
#[derive(Clone, Copy, Debug)]
pub struct Timing<'a> {
    /// When the receiver was ready.
    pub started: Nanos,
    /// When the last result was delivered, or the run was given up.
    pub ended: Nanos,
    /// The deliveries.
    pub meter: &'a RateMeter,
    /// By submission: the inference alone.
    pub infer: &'a Latency,
    /// By batch: the reorder.
    pub reorder: &'a Latency,
    /// By batch: from its last packet to its features in the sink.
    pub last_packet_to_features: &'a Latency,
}

/// The summary of a run. Serialised, it is the JSON object of `--json`; the order of the fields is
/// the order of the keys.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Version of this object.
    pub schema: u32,
    /// Which sides ran.
    pub mode: Mode,
    /// The exit code of the program.
    pub exit_code: u8,
    /// Why it is that one.
    pub exit_reason: String,
    /// What ended the reception.
    pub ended_by: Option<String>,
    /// Whether the accounting adds up.
    pub balanced: bool,
    /// Images by what became of them.
    pub images: Images,
    /// Damaged images, as `[first, last]`.
    pub damaged_ranges: Vec<(u64, u64)>,
    /// Missing images, as `[first, last]`.
    pub missing_ranges: Vec<(u64, u64)>,
    /// Batches closed.
    pub batches: u64,
    /// Batches handed to the inference.
    pub jobs: u64,
    /// Batches closed before they were complete, by what closed them.
    pub partial_by: Partial,
    /// Late packets whose batch a deadline had closed.
    pub cut_by_timeout: u64,
    /// Times the stream took another position.
    pub discontinuities: u64,
    /// Where the receiver joined.
    pub join: Option<Join>,
    /// Packets by what became of them.
    pub packets: Packets,
    /// Slots by what became of them.
    pub slots: Slots,
    /// What the NIC counted.
    pub nic: Nic,
    /// Links by what became of them.
    pub links: Vec<LinkTotals>,
    /// Times that the system's clock was set while the run went on; nothing of it goes by that.
    pub clock_steps: u64,
    /// What the drivers of its ports counted besides, and those of the sender's.
    pub ports: Vec<Port>,
    /// What the sender did.
    pub tx: Option<TxTotals>,
    /// Images of one submission to the inference.
    pub images_per_inference: u32,
    /// The inference alone.
    pub infer_ms: LatencyMs,
    /// The reorder.
    pub reorder_ms: LatencyMs,
    /// From the last packet of a batch to its features.
    pub last_packet_to_features_ms: LatencyMs,
    /// The rates.
    pub rate: Rates,
    /// Submissions that the sink took images of.
    pub delivered_batches: u64,
    /// What the loops have cost, thread by thread.
    pub steady: Vec<LoopCost>,
    /// Images without a label.
    pub unlabelled: u64,
    /// Images with a value that is not finite.
    pub not_finite: u64,
    /// Why the statistics by class are withheld.
    pub class_stats_withheld: Option<String>,
    /// Mean features by class.
    pub classes: Vec<ClassReport>,
    /// Part of the scored images whose prediction is their label.
    pub accuracy: Option<f64>,
    /// Images with a label and a prediction.
    pub scored: u64,
    /// Those of them whose prediction is their label.
    pub correct: u64,
    /// Predictions by class.
    pub confusion: Vec<ConfusionRow>,
    /// The class predicted for each image of the pass.
    pub predicted: Option<Vec<Option<u32>>>,
    /// Which lists were cut.
    pub truncated: Truncated,
    /// How the program ends.
    #[serde(skip)]
    pub exit: ExitCode,
    /// What ended the run before its end.
    #[serde(skip)]
    pub failure: Option<Failure>,
    /// Whole images handed to the inference.
    #[serde(skip)]
    pub pushed: u64,
    /// Dimensions shown of a mean.
    #[serde(skip)]
    pub top_k: usize,
    /// The images that the sink took lie in `[first, end)`.
    #[serde(skip)]
    span: Option<(u64, u64)>,
}

impl Summary {
    /// Brings together what the pipeline counted and what the sink found out, and decides how the
    /// run ends.
    ///
    /// Images that are owed but that the stream never showed (it ended early, or nothing came at
    /// all) are added to `missing`; their indices to `missing_ranges`, where they are known.
    #[must_use]
    pub fn new(facts: &RunFacts<'_>, sink: SinkReport) -> Self {
        let mut summary = Self::of_sink(facts, sink);
        summary.of_consumer(facts);
        if let Some(producer) = facts.producer {
            summary.of_producer(facts, producer);
        }
        if let Owed::Images(owed) = facts.owed {
            summary.images.owed = Some(owed);
        }
        summary.exit = exit::decide(&summary, facts.owed);
        summary.exit_code = summary.exit.code();
        summary.exit_reason = exit::reason(&summary, facts.owed, summary.exit);
        summary
    }

    /// What the NIC counted, asked when nothing polls it any more.
    pub fn of_nic(&mut self, counted: Counted) {
        if let Some(stats) = counted.rx {
            self.nic = stats.into();
            if counted.in_groups {
                self.nic.count_groups();
            }
        }
        self.ports = counted.ports;
    }

    /// The part that the sink and the clocks tell; no packet yet.
    fn of_sink(facts: &RunFacts<'_>, sink: SinkReport) -> Self {
        let timing = &facts.timing;
        Self {
            schema: SCHEMA,
            mode: facts.mode,
            exit_code: 0,
            exit_reason: String::new(),
            ended_by: None,
            balanced: true,
            images: Images::default(),
            damaged_ranges: Vec::new(),
            missing_ranges: Vec::new(),
            batches: 0,
            jobs: 0,
            pushed: 0,
            partial_by: Partial::default(),
            cut_by_timeout: 0,
            discontinuities: 0,
            join: None,
            packets: Packets::default(),
            slots: Slots::default(),
            nic: Nic::default(),
            links: facts.links.clone(),
            clock_steps: facts.clock_steps,
            ports: Vec::new(),
            tx: facts.tx,
            images_per_inference: facts.images_per_inference,
            infer_ms: timing.infer.into(),
            reorder_ms: timing.reorder.into(),
            last_packet_to_features_ms: timing.last_packet_to_features.into(),
            rate: facts.rates(),
            delivered_batches: sink.batches,
            span: sink.span,
            steady: facts.steady.clone(),
            unlabelled: sink.unlabelled,
            not_finite: sink.not_finite,
            class_stats_withheld: sink.withheld,
            classes: sink.classes,
            accuracy: (sink.scored > 0).then(|| sink.correct as f64 / sink.scored as f64),
            scored: sink.scored,
            correct: sink.correct,
            confusion: sink.confusion,
            predicted: sink.predicted,
            truncated: Truncated { predicted: sink.predicted_truncated, ..Truncated::default() },
            exit: ExitCode::Complete,
            failure: facts.failure(),
            top_k: sink.top_k,
        }
    }

    /// The part that the consumer tells: what became of the images that it was handed.
    fn of_consumer(&mut self, facts: &RunFacts<'_>) {
        let consumer = &facts.consumer;
        self.images.delivered = consumer.delivered;
        self.images.dropped.infer_failed = consumer.infer_failed;
        self.images.dropped.sink_failed = consumer.sink_failed;
        self.images.dropped.shutdown = consumer.shutdown;
        self.images.expected = self.images.sum();
    }

    /// The part that the producer tells: packets, and all other images.
    fn of_producer(&mut self, facts: &RunFacts<'_>, producer: &ProducerReport) {
        let reassembly = &producer.reassembly;
        self.packets = producer.packets.into();
        self.slots = reassembly.slots.into();
        self.batches = reassembly.slots.batches;
        self.jobs = producer.pushed;
        self.pushed = producer.images.pending;
        self.partial_by = reassembly.partial.into();
        self.cut_by_timeout = reassembly.cut_by_timeout;
        self.discontinuities = reassembly.discontinuities;
        let discontinuities = reassembly.discontinuities;
        self.join = producer.join.map(|wire| {
            let doubt = facts.anchoring.doubt(Anchor { join: wire, discontinuities });
            Join { wire, anchored: doubt.is_none() }
        });
        let anchored = self.join.is_none_or(|join| join.anchored);
        self.nic = producer.nic.into();
        self.ended_by = producer.end.map(|end| end.to_string());

        // Every image handed over came back as delivered or failed, or is still on its way.
        let images = Images::from(producer.images);
        let returned = self.images.expected;
        self.images = Images {
            delivered: images.delivered + self.images.delivered,
            dropped: Dropped {
                infer_failed: images.dropped.infer_failed + self.images.dropped.infer_failed,
                sink_failed: images.dropped.sink_failed + self.images.dropped.sink_failed,
                shutdown: images.dropped.shutdown + self.images.dropped.shutdown,
                ..images.dropped
            },
            pending: images.pending.saturating_sub(returned),
            ..images
        };
        self.balanced = producer.packets.balanced()
            && reassembly.slots.balanced(u64::from(facts.geometry.packets_per_batch()))
            && self.images.expected == self.images.sum();

        let mut damaged = Ranges::from(&producer.damaged);
        let mut missing = Ranges::from(&producer.missing);
        if let Owed::Images(owed) = facts.owed {
            let seen = self.seen(facts, producer, &damaged, &missing);
            if anchored && seen.1 <= owed {
                self.add_cut_off(seen.1, &mut damaged);
            }
            self.add_never_seen(owed, anchored.then_some(seen), &mut missing);
        }
        self.truncated.damaged_ranges = damaged.truncated;
        self.damaged_ranges = damaged.list;
        self.truncated.missing_ranges = missing.truncated;
        self.missing_ranges = missing.list;
    }

    /// Counts an image that is owed, and that the end of the stream cut off, as damaged: some of
    /// its packets came, and no more will. There is at most one, the last before `end`.
    fn add_cut_off(&mut self, end: u64, damaged: &mut Ranges) {
        if self.images.unfinished == 1 {
            self.images.unfinished = 0;
            self.images.damaged += 1;
            damaged.add_behind(end.saturating_sub(1), end);
        }
    }

    /// Counts the images that are owed and that the core never heard of as missing.
    /// `seen`: those that it heard of lie in `[first, end)`, where that is known.
    fn add_never_seen(&mut self, owed: u64, seen: Option<(u64, u64)>, missing: &mut Ranges) {
        let unseen = owed.saturating_sub(self.images.expected);
        if unseen == 0 {
            return;
        }
        self.images.missing += unseen;
        self.images.expected += unseen;
        let Some((first, end)) = seen else { return };
        // Named where the two ends that the stream left out are all that it left out.
        let (head, tail) = (first.min(owed), owed.saturating_sub(end));
        if head + tail == unseen {
            missing.add_before(head);
            missing.add_behind(end, owed);
        }
    }

    /// The images that the stream showed lie in `[first, end)`.
    fn seen(
        &self,
        facts: &RunFacts<'_>,
        producer: &ProducerReport,
        damaged: &Ranges,
        missing: &Ranges,
    ) -> (u64, u64) {
        let size = u64::from(facts.geometry.packets_per_image());
        // The stream was joined at the wire number's own position; late ones of before may have
        // come as well.
        let joined = producer.join.map(|wire| u64::from(wire) / size);
        let first = |list: &[(u64, u64)]| list.first().map(|range| range.0);
        let taken = self.span.map(|span| span.0);
        let known = [joined, taken, first(&damaged.list), first(&missing.list)];
        (known.into_iter().flatten().min().unwrap_or(0), producer.next.div_ceil(size))
    }
}

impl RunFacts<'_> {
    fn rates(&self) -> Rates {
        let rx = self.producer.and_then(|producer| {
            let (first, last) = producer.active?;
            let payload_bytes = producer.packets.placed * self.geometry.payload_bytes() as u64;
            Some(RxWindow { first, last, payload_bytes })
        });
        Rates::new(&RateInputs {
            started: self.timing.started,
            ended: self.timing.ended,
            meter: self.timing.meter,
            rx,
            infer_total: self.timing.infer.total(),
            inferred_images: self.consumer.delivered + self.consumer.sink_failed,
        })
    }

    /// What ended the run before its end, if something did.
    fn failure(&self) -> Option<Failure> {
        let of = |exit, reason: &dyn fmt::Display| Failure { exit, reason: reason.to_string() };
        let consumer = || {
            self.consumer_failure.map(|failure| match failure {
                ConsumerFailure::Infer(_) => of(ExitCode::Device, &failure),
                ConsumerFailure::Sink(_) => of(ExitCode::File, &failure),
                _ => of(ExitCode::Internal, &failure),
            })
        };
        let reorder = || match self.producer?.end? {
            end @ EndReason::ReorderFailed(_) => Some(of(ExitCode::Device, &end)),
            _ => None,
        };
        self.failure.clone().or_else(consumer).or_else(reorder)
    }
}

/// A bounded list of ranges that can grow at both ends.
struct Ranges {
    list: Vec<(u64, u64)>,
    truncated: bool,
}

impl From<&RangeList> for Ranges {
    fn from(of: &RangeList) -> Self {
        Self { list: of.as_slice().to_vec(), truncated: of.truncated() }
    }
}

impl Ranges {
    /// Puts `[0, end)` before all others.
    fn add_before(&mut self, end: u64) {
        if end == 0 {
            return;
        }
        match self.list.first_mut() {
            Some(next) if next.0 == end => next.0 = 0,
            _ => self.list.insert(0, (0, end - 1)),
        }
        self.limit();
    }

    /// Puts `[first, end)` behind all others. A list that was cut stays as it is: what comes
    /// behind is not in it.
    fn add_behind(&mut self, first: u64, end: u64) {
        if self.truncated || first >= end {
            return;
        }
        match self.list.last_mut() {
            Some(before) if before.1 + 1 == first => before.1 = end - 1,
            _ => self.list.push((first, end - 1)),
        }
        self.limit();
    }

    fn limit(&mut self) {
        self.truncated |= self.list.len() > MAX_RANGES;
        self.list.truncate(MAX_RANGES);
    }
}

#[cfg(test)]
mod tests;
