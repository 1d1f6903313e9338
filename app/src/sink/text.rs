//! The summary for people, in the words of DAQIRI's application where it has them: a script that
//! looks for its lines finds the same words in ours. `docs/summary.md` says which counter is which.

use std::fmt;
use std::io::{self, Write};

use super::features::write_values;
use super::lines::Lines;
use super::parts::{LatencyMs, Mode};
use super::summary::Summary;

/// Most ranges of images that a line names; the JSON object has them all.
const SHOWN_RANGES: usize = 32;
/// Most classes of a confusion table that is shown.
const SHOWN_CLASSES: usize = 20;

impl Summary {
    /// Writes the text of [`Summary::to_text`] by one call.
    ///
    /// # Errors
    ///
    /// What `out` says.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.to_text().write_to(out)
    }

    /// The summary as lines of text.
    #[must_use]
    pub fn to_text(&self) -> Lines {
        let mut lines = Lines::new();
        self.sender(&mut lines);
        if self.mode != Mode::Tx {
            self.stages(&mut lines);
            self.rates(&mut lines);
            self.losses(&mut lines);
            self.packets(&mut lines);
            self.steady(&mut lines);
            self.class_table(&mut lines);
            self.predictions(&mut lines);
        }
        self.links(&mut lines);
        self.clock(&mut lines);
        self.ports(&mut lines);
        if !self.balanced {
            lines.line(format_args!("warning: the counters do not add up: this is a bug"));
        }
        lines.line(format_args!("{}", self.verdict()));
        lines
    }

    /// How the run ended and why, on one line.
    pub fn verdict(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            write!(
                f,
                "tensorwire: {}: {} (exit code {})",
                if self.exit_code == 0 { "complete" } else { "not complete" },
                self.exit_reason,
                self.exit_code
            )
        })
    }

    fn sender(&self, lines: &mut Lines) {
        let Some(tx) = &self.tx else { return };
        lines.line(format_args!(
            "pcap_tx_worker: sent {}/{} frames in {:.6} s (send_failures={} fill_failures={} \
             no_burst_polls={})",
            tx.sent, tx.frames, tx.seconds, tx.send_failures, tx.fill_failures, tx.no_burst_polls
        ));
        if tx.wire_dropped + tx.wire_duplicated > 0 {
            lines.line(format_args!(
                "wire: dropped={} duplicated={} (fault injection)",
                tx.wire_dropped, tx.wire_duplicated
            ));
        }
    }

    /// What the loops have cost that they should not.
    fn steady(&self, lines: &mut Lines) {
        for cost in &self.steady {
            let counted = |allocations: u64| format!("{allocations}");
            lines.line(format_args!(
                "{}: steady state: {} turns, {} allocations, page faults {} minor {} major, \
                 longest turn {:.3} ms",
                cost.thread,
                cost.turns,
                cost.allocations.map_or_else(|| "uncounted".to_owned(), counted),
                cost.minor_faults,
                cost.major_faults,
                cost.longest_turn_ms
            ));
        }
    }

    /// The lines that the original's threads print when they end.
    fn stages(&self, lines: &mut Lines) {
        let packets = &self.packets;
        lines.line(format_args!(
            "rx_producer_worker: pushed {} images (reordered_bursts={} partial={} dropped={} \
             non_reordered_packets={})",
            self.pushed,
            self.batches,
            self.partial_by.total(),
            self.batches.saturating_sub(self.jobs),
            packets.offered - packets.placed.min(packets.offered),
        ));
        lines.line(format_args!(
            "inference_consumer_worker: {} inference batches in {:.2} s",
            self.infer_ms.n, self.rate.wall_seconds
        ));
        let size = self.images_per_inference;
        latency(
            lines,
            "inference latency (ms)",
            &self.infer_ms,
            &format!("batch of {size} images"),
        );
        latency(lines, "reorder latency (ms)", &self.reorder_ms, "batch");
        let features = &self.last_packet_to_features_ms;
        latency(lines, "last packet to features (ms)", features, "batch");
    }

    fn rates(&self, lines: &mut Lines) {
        let rate = &self.rate;
        lines.line(format_args!("\n=== ResNet inference summary ==="));
        lines.part(format_args!(
            "images={} batches={} seconds={:.2}",
            self.images.delivered, self.delivered_batches, rate.wall_seconds
        ));
        match rate.wall_images_per_s {
            Some(wall) => lines.line(format_args!(" => {wall:.2} img/s (wall)")),
            None => lines.line(format_args!("")),
        }
        if let (Some(seconds), Some(active)) = (rate.active_seconds, rate.active_images_per_s) {
            let before = rate.before_first_batch_seconds.unwrap_or(0.0);
            lines.line(format_args!(
                "active_seconds={seconds:.2} => {active:.2} img/s (excludes {before:.2} s before \
                 first batch)"
            ));
        }
        if let Some(infer) = rate.infer_only_images_per_s {
            lines.line(format_args!("inference only: {infer:.2} img/s"));
        }
        if let Some(gbps) = rate.rx_payload_gbps {
            lines.line(format_args!("receive only: {gbps:.2} Gb/s of payload"));
        }
    }

    fn losses(&self, lines: &mut Lines) {
        let (images, dropped) = (&self.images, &self.images.dropped);
        lines.line(format_args!(
            "images: expected={} delivered={} damaged={} missing={} dropped={} [queue_full={} \
             policy={} infer_failed={} sink_failed={} shutdown={}] unfinished={}",
            images.expected,
            images.delivered,
            images.damaged,
            images.missing,
            dropped.total(),
            dropped.queue_full,
            dropped.policy,
            dropped.infer_failed,
            dropped.sink_failed,
            dropped.shutdown,
            images.unfinished
        ));
        ranges(lines, "damaged", &self.damaged_ranges, self.truncated.damaged_ranges);
        ranges(lines, "missing", &self.missing_ranges, self.truncated.missing_ranges);
        let partial = &self.partial_by;
        if partial.total() > 0 {
            lines.line(format_args!(
                "partial batches: moved={} deadline={} pool={} discontinuity={} shutdown={} \
                 (cut_by_timeout={})",
                partial.moved,
                partial.deadline,
                partial.pool,
                partial.discontinuity,
                partial.shutdown,
                self.cut_by_timeout
            ));
        }
        if self.discontinuities > 0 {
            lines.line(format_args!(
                "discontinuities: {} ({} slots skipped)",
                self.discontinuities, self.slots.skipped
            ));
        }
        if let Some(join) = self.join.filter(|join| !join.anchored) {
            lines.line(format_args!(
                "joined at sequence number {}, at an uncertain place in the data set",
                join.wire
            ));
        }
    }

    fn packets(&self, lines: &mut Lines) {
        let (packets, malformed, nic) = (&self.packets, &self.packets.malformed, &self.nic);
        lines.line(format_args!(
            "packets: offered={} placed={} duplicate={} late={} wild={} short={} long={} \
             malformed={} other_flow={} no_buffer={} early={} held={}",
            packets.offered,
            packets.placed,
            packets.duplicate,
            packets.late,
            packets.wild,
            packets.short,
            packets.long,
            malformed.total(),
            packets.other_flow,
            packets.no_buffer,
            packets.early,
            packets.held
        ));
        if malformed.total() > 0 {
            lines.line(format_args!(
                "malformed packets: vlan={} fragment={} ihl={} checksum={} not_udp={}",
                malformed.vlan,
                malformed.fragment,
                malformed.ihl,
                malformed.checksum,
                malformed.not_udp
            ));
        }
        match nic.missed {
            Some(missed) => lines.part(format_args!("nic: imissed={missed}")),
            // Each of them held one packet at least.
            None => lines.part(format_args!("nic: imissed>={} (groups)", nic.missed_groups)),
        }
        lines.line(format_args!(" ierrors={} rx_nombuf={}", nic.errors, nic.no_buffer));
    }

    /// A link that was up all the time is not worth a line.
    fn links(&self, lines: &mut Lines) {
        for link in self.links.iter().filter(|link| !link.up || link.downs + link.resets > 0) {
            let (name, downs, seconds) = (&link.name, link.downs, link.down_seconds);
            let now = if link.up { "up" } else { "down" };
            lines.part(format_args!(
                "link {name}: went down {downs} times, down for {seconds:.1} s; "
            ));
            if link.resets > 0 {
                lines.part(format_args!("NIC reset {} times; ", link.resets));
            }
            lines.line(format_args!("{now} at the end"));
        }
    }

    /// A clock that was not set is not worth a line either.
    fn clock(&self, lines: &mut Lines) {
        if self.clock_steps > 0 {
            lines.line(format_args!("the system's clock was set {} times", self.clock_steps));
        }
    }

    /// What stands at 0 is in the JSON object only: a NIC has hundreds of them.
    fn ports(&self, lines: &mut Lines) {
        for port in &self.ports {
            lines.part(format_args!("port {}:", port.port));
            for counter in port.counters.iter().filter(|counter| counter.value > 0) {
                lines.part(format_args!(" {}={}", counter.name, counter.value));
            }
            lines.line(format_args!(""));
        }
    }

    fn class_table(&self, lines: &mut Lines) {
        if let Some(why) = &self.class_stats_withheld {
            lines.line(format_args!("class statistics withheld: {why}"));
            return;
        }
        if self.not_finite > 0 {
            lines.line(format_args!(
                "warning: {} images have a feature or logit that is not a finite number; they are \
                 in no statistics",
                self.not_finite
            ));
        }
        if self.classes.is_empty() {
            return;
        }
        lines.line(format_args!(
            "\nPer-class mean-feature stats (first {} dims + L2 norm of the mean vector):",
            self.top_k
        ));
        for class in &self.classes {
            lines.part(format_args!(
                "  class {:>2} {:>10} (n={:>6}): mean=[",
                class.class, class.name, class.images
            ));
            write_values(lines, class.mean.iter().copied());
            lines.line(format_args!(", ...]  |mean|={:.4}", class.norm));
        }
        if self.unlabelled > 0 {
            lines.line(format_args!("  unlabelled (n={:>6})", self.unlabelled));
        }
    }

    fn predictions(&self, lines: &mut Lines) {
        let Some(accuracy) = self.accuracy else { return };
        let (correct, scored) = (self.correct, self.scored);
        lines.line(format_args!("\naccuracy: {accuracy:.4} ({correct} of {scored} images)"));
        let columns = self.confusion.first().map_or(0, |row| row.predicted.len());
        if columns.max(self.confusion.len()) > SHOWN_CLASSES {
            lines.line(format_args!(
                "confusion table: {} × {columns} classes, see the JSON object",
                self.confusion.len()
            ));
            return;
        }
        lines.line(format_args!("confusion table (row: label, column: predicted class):"));
        lines.part(format_args!("{:21}", ""));
        for class in 0..columns {
            lines.part(format_args!(" {class:>6}"));
        }
        lines.line(format_args!(""));
        for row in &self.confusion {
            lines.part(format_args!("  class {:>2} {:>10}", row.class, row.name));
            for count in &row.predicted {
                lines.part(format_args!(" {count:>6}"));
            }
            lines.line(format_args!(""));
        }
    }
}

/// One line of figures, in the original's form; none without samples.
fn latency(lines: &mut Lines, name: &str, figures: &LatencyMs, per: &str) {
    if let (Some(mean), Some(p50), Some(p99)) = (figures.mean, figures.p50, figures.p99) {
        let n = figures.n;
        lines.line(format_args!(
            "{name}: mean={mean:.3} p50={p50:.3} p99={p99:.3} (per {per}, n={n})"
        ));
    }
}

/// One line that names images; none without images.
fn ranges(lines: &mut Lines, what: &str, ranges: &[(u64, u64)], truncated: bool) {
    if ranges.is_empty() {
        return;
    }
    lines.part(format_args!("{what} images:"));
    for (i, (first, last)) in ranges.iter().take(SHOWN_RANGES).enumerate() {
        lines.part(format_args!("{} {first}", if i > 0 { "," } else { "" }));
        if last > first {
            lines.part(format_args!("–{last}"));
        }
    }
    if truncated || ranges.len() > SHOWN_RANGES {
        lines.part(format_args!(", …"));
    }
    lines.line(format_args!(""));
}

#[cfg(test)]
mod tests;
