//! Reorder stages as the device knows them, and whether the application's block says the same.

use tensorwire_core::geometry::{ElementType, Grouped};

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::RegionKind;
use crate::resolve::device::{Device, region_kind, unique, unresolved, unresolved_id};
use crate::resolve::flows::spread;
use crate::rules::Code;
use crate::source::Span;

/// `runs`: the file has a pipeline, whose own block says how long a payload is.
pub(super) fn check(device: &Device<'_>, runs: bool, report: &mut Report<'_>) {
    let rx = device.interfaces.iter().filter_map(|interface| interface.map("rx"));
    let all: Vec<&Fields> = rx.clone().flat_map(|rx| rx.maps("reorder_configs")).collect();
    unique(&all, "name", "reorder config", report);
    for rx in rx {
        check_flows(rx, report);
        for config in rx.maps("reorder_configs") {
            check_region(device, config, report);
            check_types(config, report);
            let packets = check_method(config, report);
            if !runs {
                check_size(device, rx, config, packets, report);
            }
        }
    }
}

/// Flows exist, belong to one config each, and go to one queue.
fn check_flows(rx: &Fields, report: &mut Report<'_>) {
    let known: Vec<Option<u64>> = rx.maps("flows").map(|flow| flow.integer("id")).collect();
    let mut taken: Vec<(u64, Span)> = Vec::new();
    for config in rx.maps("reorder_configs") {
        let path = config.path("flow_ids");
        if config.given("flow_ids").is_some_and(|given| given.item.is_empty_list()) {
            report.add(Code::Missing, &path, config.span("flow_ids"), "no flow is reordered");
        }
        for (id, span) in config.integers("flow_ids") {
            if !known.contains(&Some(id)) {
                unresolved_id("flow", id, &known, (&path, span), report);
            } else if let Some((_, earlier)) = taken.iter().find(|(other, _)| *other == id) {
                let message = format!("flow {id} is reordered twice");
                report
                    .add(Code::ReorderedTwice, &path, span, message)
                    .second(*earlier, "first here");
            } else {
                check_spread(rx, id, (&path, span), report);
            }
            taken.push((id, span));
        }
    }
}

/// Numbers of a reordered flow must meet in one queue.
pub(super) fn check_spread(rx: &Fields, id: u64, place: (&str, Span), report: &mut Report<'_>) {
    let flow = rx.maps("flows").find(|flow| flow.integer("id") == Some(id));
    let actions = flow
        .into_iter()
        .flat_map(|flow| flow.map("action").into_iter().chain(flow.maps("actions")));
    for action in actions.filter(|action| spread(action)) {
        let message = format!("flow {id} is spread over several queues, so it cannot be reordered");
        report.add(Code::Rss, place.0, place.1, message).second(action.span("ids"), "spread here");
    }
}

fn check_region(device: &Device<'_>, config: &Fields, report: &mut Report<'_>) {
    let Some(name) = config.text("memory_region") else { return };
    let (path, span) = (config.path("memory_region"), config.span("memory_region"));
    let Some(region) = device.region(name).and_then(|at| device.regions.get(at)) else {
        let names = device.regions.iter().map(|region| region.text("name"));
        return unresolved("region", name, names, &path, span, report);
    };
    writable(config, region, report);
}

/// A stage can write to the region of its batches.
pub(super) fn writable(config: &Fields, region: &Fields, report: &mut Report<'_>) {
    let Some(who) = config.word("reorder_type") else { return };
    let allowed: &[RegionKind] = match who {
        "gpu" => &[RegionKind::Device, RegionKind::HostPinned],
        _ => &[RegionKind::Host, RegionKind::HostPinned, RegionKind::Huge],
    };
    let Some(kind) = region_kind(region).filter(|kind| !allowed.contains(kind)) else { return };
    let words: Vec<&str> = allowed.iter().map(|kind| kind.word()).collect();
    let message = format!("a {who} reorder cannot write to a region of kind `{}`", kind.word());
    let found = report.add(Code::RegionKind, &region.path("kind"), region.span("kind"), message);
    found.expected(words.join(" or "));
    if config.given("reorder_type").is_some() {
        found.second(config.span("reorder_type"), "the stage");
    } else {
        found.second(config.anchor, format!("`reorder_type` defaults to {who} here"));
    }
}

fn check_types(config: &Fields, report: &mut Report<'_>) {
    if let Some(types) = config.given("data_types")
        && config.word("reorder_type") == Some("cpu")
    {
        let message = "a cpu reorder copies; only a gpu one converts";
        report
            .add(Code::OneOf, &config.path("data_types"), types.key_span, message)
            .second(config.span("reorder_type"), "cpu here");
    }
}

/// Packets of a batch, when the method says so without a fault.
fn check_method(config: &Fields, report: &mut Report<'_>) -> Option<u64> {
    let method = config.map("method")?;
    let one = method.given("seq_packets_per_batch");
    let two = method.given("seq_batch_number");
    match (one, two) {
        (None, None) => {
            let message = "no method: a packet cannot tell its place";
            report
                .add(Code::OneOf, &method.path, method.anchor, message)
                .expected("`seq_packets_per_batch` or `seq_batch_number`");
            return None;
        }
        (Some(one), Some(two)) => {
            report
                .add(Code::OneOf, &method.path("seq_batch_number"), two.key_span, "two methods")
                .second(one.key_span, "the other")
                .help("keep one of the two");
            return None;
        }
        _ => {}
    }
    if let Some(method) = method.map("seq_packets_per_batch") {
        let width = method.map("sequence_number")?.integer("bit_width")?;
        let packets = method.integer("packets_per_batch")?;
        if packets > 0 && !(1u64 << width).is_multiple_of(packets) {
            let message =
                format!("2^{width} = {} is no multiple of {packets}", Grouped(1 << width));
            report
                .add(
                    Code::SequenceSpace,
                    &method.path("packets_per_batch"),
                    method.span("packets_per_batch"),
                    message,
                )
                .expected("a number of packets that divides the number space")
                .second(method.map("sequence_number")?.span("bit_width"), "the width");
            return None;
        }
        return Some(packets);
    }
    let method = method.map("seq_batch_number")?;
    let (sequence, batch) = (method.map("sequence_number")?, method.map("batch_number")?);
    let (width, bits) = (sequence.integer("bit_width")?, batch.integer("bit_width")?);
    if bits > width {
        let message = format!("2^{width} is no multiple of 2^{bits}");
        report
            .add(Code::SequenceSpace, &batch.path("bit_width"), batch.span("bit_width"), message)
            .expected(format!("at most {width} bits"))
            .second(sequence.span("bit_width"), "the sequence number's width");
        return None;
    }
    Some(1 << (width - bits))
}

/// An output buffer holds a batch. Without a `reorder:` block the payload is what fits into a
/// packet buffer behind the offset.
fn check_size(
    device: &Device<'_>,
    rx: &Fields,
    config: &Fields,
    packets: Option<u64>,
    report: &mut Report<'_>,
) {
    let size = |name: &str, key| {
        let at = device.region(name)?;
        Some((device.regions.get(at)?.integer(key)?, *device.regions.get(at)?))
    };
    let source = source_region(rx, config);
    let payload = source
        .and_then(|name| size(name, "buf_size"))
        .zip(config.integer("payload_byte_offset"))
        .and_then(|((bytes, _), offset)| bytes.checked_sub(offset));
    let output = config.text("memory_region").and_then(|name| size(name, "buf_size"));
    let (Some(packets), Some(payload), Some((bytes, region))) = (packets, payload, output) else {
        return;
    };
    let ratio = config.map("data_types").and_then(|types| {
        let bits = |key| ElementType::from_name(types.word(key)?).map(ElementType::bits);
        Some((u64::from(bits("input_type")?), u64::from(bits("output_type")?)))
    });
    let (from, to) = ratio.unwrap_or((1, 1));
    let stride = payload.saturating_mul(to) / from;
    let batch = packets.saturating_mul(stride);
    if bytes < batch {
        let message = format!("{} bytes do not hold a batch", Grouped(bytes));
        let formula = format!("{packets} packets × {stride} B = {}", Grouped(batch));
        report
            .add(Code::OutputBufSize, &region.path("buf_size"), region.span("buf_size"), message)
            .expected(format!("at least {formula}"))
            .second(config.span("memory_region"), "reordered into this region");
    }
}

/// Region of the packets that a config reorders: that of the queue of its first flow.
fn source_region<'t>(rx: &'t Fields, config: &Fields) -> Option<&'t str> {
    let (id, _) = config.integers("flow_ids").next()?;
    let flow = rx.maps("flows").find(|flow| flow.integer("id") == Some(id))?;
    let queue = target(flow)?;
    let queue = rx.maps("queues").find(|other| other.integer("id") == Some(queue))?;
    queue.texts("memory_regions").next().map(|(name, _)| name)
}

/// The queue that a flow goes to; the first, where it is spread.
pub(super) fn target(flow: &Fields) -> Option<u64> {
    let mut actions = flow.map("action").into_iter().chain(flow.maps("actions"));
    let action = actions.find(|action| action.word("type") == Some("queue"))?;
    action.integer("id").or_else(|| action.integers("ids").next().map(|(id, _)| id))
}

/// The application's block and the device's one describe the same stage.
pub(super) fn agree(app: &Fields, rx: &Fields, report: &mut Report<'_>) {
    let configs: Vec<&Fields> = rx.maps("reorder_configs").collect();
    let [config] = configs.as_slice() else {
        if let Some(second) = configs.get(1) {
            let message = "several reorder stages; tensorwire runs one";
            report.add(Code::ManyQueues, &second.path, second.anchor, message);
        }
        return;
    };
    let packets = app.integer("packets_per_image").zip(app.integer("images_per_batch"));
    let packets = packets.map(|(packets, images)| packets.saturating_mul(images));
    let mut same = Same { app, report };
    same.texts("reorder_name", config, "name");
    same.texts("memory_region", config, "memory_region");
    same.words("reorder_type", config, "reorder_type");
    same.integers("payload_byte_offset", config, "payload_byte_offset");
    same.flows(config);
    same.types(config);
    let Some(method) = config.map("method") else { return };
    if let Some(method) = method.map("seq_packets_per_batch") {
        if let Some(field) = method.map("sequence_number") {
            same.integers("seq_bit_offset", field, "bit_offset");
            same.integers("seq_bit_width", field, "bit_width");
        }
        let (ours, theirs) = (packets, method.integer("packets_per_batch"));
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && ours != theirs
        {
            same.differ("images_per_batch", &ours, method, "packets_per_batch", &theirs);
        }
    } else if method.map("seq_batch_number").is_some() {
        let message = "`reorder` numbers packets, the device's stage numbers batches too";
        report
            .add(Code::Disagree, &app.path, app.anchor, message)
            .second(method.span("seq_batch_number"), "the other block");
    }
}

struct Same<'r, 's, 't> {
    app: &'t Fields,
    report: &'r mut Report<'s>,
}

impl Same<'_, '_, '_> {
    fn differ(
        &mut self,
        key: &str,
        ours: &dyn std::fmt::Display,
        config: &Fields,
        other: &str,
        theirs: &dyn std::fmt::Display,
    ) {
        let app = self.app;
        let message = format!("`reorder` says {ours}, the device's stage says {theirs}");
        self.report
            .add(Code::Disagree, &app.path(key), app.span(key), message)
            .second(config.span(other), "the other block")
            .help("let the two agree, or take one of them out");
    }

    fn integers(&mut self, key: &str, config: &Fields, other: &str) {
        if let (Some(ours), Some(theirs)) = (self.app.integer(key), config.integer(other))
            && ours != theirs
        {
            self.differ(key, &ours, config, other, &theirs);
        }
    }

    fn texts(&mut self, key: &str, config: &Fields, other: &str) {
        if let (Some(ours), Some(theirs)) = (self.app.text(key), config.text(other))
            && ours != theirs
        {
            self.differ(key, &format!("`{ours}`"), config, other, &format!("`{theirs}`"));
        }
    }

    fn words(&mut self, key: &str, config: &Fields, other: &str) {
        let given = self.app.given(key).and(self.app.word(key));
        if let (Some(ours), Some(theirs)) = (given, config.word(other))
            && ours != theirs
        {
            self.differ(key, &ours, config, other, &theirs);
        }
    }

    fn flows(&mut self, config: &Fields) {
        let sorted = |fields: &Fields| {
            let mut ids: Vec<u64> = fields.integers("flow_ids").map(|(id, _)| id).collect();
            ids.sort_unstable();
            ids
        };
        let (ours, theirs) = (sorted(self.app), sorted(config));
        if self.app.given("flow_ids").is_some() && ours != theirs {
            let (ours, theirs) = (format!("flows {ours:?}"), format!("flows {theirs:?}"));
            self.differ("flow_ids", &ours, config, "flow_ids", &theirs);
        }
    }

    /// The output type of `reorder:` comes out. Without `data_types` the device copies.
    fn types(&mut self, config: &Fields) {
        let Some(ours) = self.app.word("output_type") else { return };
        let Some(types) = config.map("data_types") else {
            if config.given("data_types").is_none() && ours != "int8" {
                self.differ("output_type", &ours, config, "data_types", &"int8 (a copy)");
            }
            return;
        };
        if let Some(theirs) = types.word("output_type").filter(|theirs| *theirs != ours) {
            self.differ("output_type", &ours, types, "output_type", &theirs);
        }
    }
}
