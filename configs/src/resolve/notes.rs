//! What a right configuration does to a stream: limits, rates and traps, with their numbers.

use tensorwire_core::flow::PortRange;
use tensorwire_core::geometry::{Effect, Geometry, Grouped, Overlap};
use tensorwire_core::header::Verify;

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::{Config, Receiver, RegionKind, Sender};
use crate::resolve::device::Device;
use crate::resolve::geometry::Parts;
use crate::rules::Code;

/// A deadline that asks for more than this is a warning: many links, and every paced sender, are
/// slower.
const FAST_BPS: u64 = 1_000_000_000;

pub(super) fn check(
    parts: &Parts<'_>,
    device: &Device<'_>,
    geometry: &Geometry,
    report: &mut Report<'_>,
) {
    sequence_space(parts, geometry, report);
    overlap(parts, geometry, report);
    if let Some(rx) = &parts.rx {
        receive_batches(rx.queue, geometry, report);
        deadline(rx.queue, geometry, parts, report);
    }
    if let Some(tx) = &parts.tx {
        send_batches(tx.bench, tx.queue, geometry, report);
    }
    if !device.software {
        absorption(parts, geometry, report);
        memory_kind(parts, report);
    }
}

/// What the numbers can still tell apart.
fn sequence_space(parts: &Parts<'_>, geometry: &Geometry, report: &mut Report<'_>) {
    let app = parts.app;
    let (path, span) = (app.path("seq_bit_width"), app.span("seq_bit_width"));
    let (space, burst) = (geometry.sequence_space(), geometry.largest_placed_burst());
    let width = geometry.seq_field().width_bits();
    let limit = format!(
        "2^{width} − {} = {} packets lost in a row",
        geometry.confirmations(),
        Grouped(burst)
    );
    let batches = geometry.batches_in_sequence_space();
    if batches == 1 {
        let message = format!(
            "the {} sequence numbers cover one batch; up to {limit} are placed rightly, more look \
             like fewer",
            Grouped(space)
        );
        report
            .add(Code::OneBatch, &path, span, message)
            .help("more bits tell batches apart; see configs/resnet50_routable_loopback.yaml");
    } else {
        let message = format!(
            "{} sequence numbers cover {} batches; up to {limit} are placed rightly",
            Grouped(space),
            Grouped(batches)
        );
        report.add(Code::LossLimit, &path, span, message);
    }
}

/// What the sequence number lies on top of.
fn overlap(parts: &Parts<'_>, geometry: &Geometry, report: &mut Report<'_>) {
    let app = parts.app;
    let verify = verify(parts.settings);
    let on_length = parts.rx.iter().flat_map(|rx| rx.half.maps("flows")).find_map(|flow| {
        let matched = flow.map("match")?;
        matched.given("ipv4_len").map(|given| given.item.span)
    });
    let (path, span) = (app.path("seq_bit_offset"), app.span("seq_bit_offset"));
    let all: Vec<(Overlap, Effect)> = geometry
        .overlaps()
        .map(|overlap| (overlap, overlap.effect(on_length.is_some(), verify)))
        .collect();
    let said = |wanted: Effect| -> Vec<String> {
        let of = all.iter().filter(|(_, effect)| *effect == wanted);
        of.map(|(overlap, _)| format!("the {} ({})", overlap.name(), overlap.consequence()))
            .collect()
    };
    let broken = said(Effect::Breaks);
    if !broken.is_empty() {
        let message = format!("the sequence number overwrites {}", broken.join(" and "));
        let found = report.add(Code::SequenceBreaks, &path, span, message);
        found.help("bit 336 is the first behind the UDP header");
        if let Some(span) = on_length {
            found.second(span, "a flow matches on the length");
        }
        return;
    }
    let noted = said(Effect::Note);
    if !noted.is_empty() {
        let message = format!("the sequence number lies on {}", noted.join(" and "));
        report.add(Code::SequenceOnField, &path, span, message).help(
            "bit 336 is the first behind the UDP header; the configs/resnet50_routable_* use it",
        );
    }
}

pub(super) fn verify(settings: &Fields) -> Verify {
    match settings.word("verify") {
        Some("ip") => Verify::Ip,
        Some("udp") => Verify::Udp,
        _ => Verify::None,
    }
}

fn receive_batches(queue: &Fields, geometry: &Geometry, report: &mut Report<'_>) {
    let packets = u64::from(geometry.packets_per_batch());
    let Some(batch) = queue.integer("batch_size").filter(|batch| batch % packets != 0) else {
        return;
    };
    let message = format!(
        "{} is no multiple of {} packets per batch: DAQIRI would cut batches here, tensorwire \
         does not",
        Grouped(batch),
        Grouped(packets)
    );
    report.add(Code::RxAlignment, &queue.path("batch_size"), queue.span("batch_size"), message);
}

fn send_batches(bench: &Fields, queue: &Fields, geometry: &Geometry, report: &mut Report<'_>) {
    let packets = u64::from(geometry.packets_per_batch());
    let fields = if bench.given("batch_size").is_some() { bench } else { queue };
    let batch = fields.integer("batch_size").filter(|batch| *batch != packets);
    let Some(batch) = batch else { return };
    let message = format!(
        "{} is not the {} packets of a batch: DAQIRI would send parts of batches, tensorwire's \
         receiver does not mind",
        Grouped(batch),
        Grouped(packets)
    );
    report.add(Code::TxAlignment, &fields.path("batch_size"), fields.span("batch_size"), message);
}

/// What the time limit of a batch means, or that there is none.
fn deadline(queue: &Fields, geometry: &Geometry, parts: &Parts<'_>, report: &mut Report<'_>) {
    let Some(timeout) = queue.integer("timeout_us") else { return };
    let (path, span) = (queue.path("timeout_us"), queue.span("timeout_us"));
    let Some(rate) = geometry.minimum_rate_bps(timeout) else {
        let message = "no deadline: a batch whose last packets are lost waits for later packets, \
                       or for the end of the run; DAQIRI would wait for ever";
        report.add(Code::NoDeadline, &path, span, message);
        return;
    };
    let message = format!(
        "{} packets × {} B × 8 / {} µs: below {} every batch is cut by its deadline",
        Grouped(geometry.packets_per_batch().into()),
        Grouped(geometry.frame_bytes() as u64),
        Grouped(timeout),
        bits_per_second(rate),
    );
    let paced = parts.tx.and_then(|tx| {
        let mbps = tx.queue.integer("pacing_mbps").filter(|mbps| *mbps > 0)?;
        (mbps.saturating_mul(1_000_000) < rate).then(|| tx.queue.span("pacing_mbps"))
    });
    let code =
        if rate >= FAST_BPS || paced.is_some() { Code::FastDeadline } else { Code::Deadline };
    let found = report.add(code, &path, span, message);
    if let Some(span) = paced {
        found.second(span, "the sender is slower");
    }
    if code == Code::FastDeadline {
        found.help("0 disables the deadline; batches then close when the stream moves on");
    }
}

/// How long `block` can hold a NIC up before the NIC drops.
fn absorption(parts: &Parts<'_>, geometry: &Geometry, report: &mut Report<'_>) {
    let block = parts.settings.word("backpressure") == Some("block");
    let Some(region) = parts.rx_region.filter(|_| block) else { return };
    let ring = parts.settings.integer("rx_ring");
    let Some((buffers, ring)) = region.integer("num_bufs").zip(ring) else { return };
    let packets = buffers.saturating_sub(ring);
    let bits = packets.saturating_mul(geometry.frame_bytes() as u64).saturating_mul(8);
    let message = format!(
        "while inference is behind, {} − {} = {} packets ({} batches) are taken in before the NIC \
         drops: {} at 10 Gb/s, {} at 100 Gb/s",
        Grouped(buffers),
        Grouped(ring),
        Grouped(packets),
        tenths(packets.saturating_mul(10) / u64::from(geometry.packets_per_batch())),
        milliseconds(bits / 10),
        milliseconds(bits / 100),
    );
    report.add(Code::Absorption, &region.path("num_bufs"), region.span("num_bufs"), message);
}

/// The kind of memory that batches and packets lie in decides between 4,000 images a second and 12.
fn memory_kind(parts: &Parts<'_>, report: &mut Report<'_>) {
    let region = parts.output_region.or(parts.rx_region);
    let Some((region, kind)) =
        region.and_then(|region| Some((region, crate::resolve::device::region_kind(region)?)))
    else {
        return;
    };
    let (path, span) = (region.path("kind"), region.span("kind"));
    match kind {
        RegionKind::HostPinned => {
            let message = "right where CPU and GPU share their memory (GB10); a discrete GPU reads \
                           pinned memory over PCIe";
            report
                .add(Code::HostPinned, &path, span, message)
                .help("use `device` on a discrete GPU: measured 4,000 against 12.6 images/s");
        }
        RegionKind::Device => {
            let message = "right on a discrete GPU; on GB10 a NIC cannot reach `device` memory";
            report.add(Code::DeviceMemory, &path, span, message).help("use `host_pinned` there");
            same_gpu(region, parts, report);
        }
        RegionKind::Huge | RegionKind::Host => {}
    }
}

/// Batches lie on the GPU that infers.
fn same_gpu(region: &Fields, parts: &Parts<'_>, report: &mut Report<'_>) {
    let Some(inference) = parts.inference else { return };
    let pair = region.integer("affinity").zip(inference.integer("gpu_id"));
    let Some((memory, engine)) = pair.filter(|(memory, engine)| memory != engine) else { return };
    let message = format!("batches lie on GPU {memory}, GPU {engine} infers: each is copied over");
    let found =
        report.add(Code::OtherGpu, &region.path("affinity"), region.span("affinity"), message);
    found.second(inference.span("gpu_id"), "the inference");
}

/// A sender whose frames nobody takes.
pub(super) fn check_sender(
    config: &Config,
    parts: &Parts<'_>,
    eth_dst_replaced: bool,
    report: &mut Report<'_>,
) {
    let (Some(sender), Some(tx)) = (&config.tx, &parts.tx) else { return };
    if sender.header.eth_dst == [0; 6]
        && !config.software_loopback
        && sender.socket.is_none()
        && !eth_dst_replaced
    {
        let (path, span) = (tx.bench.path("eth_dst_addr"), tx.bench.span("eth_dst_addr"));
        let message = "no NIC has the address 00:00:00:00:00:00: nobody takes these frames";
        report
            .add(Code::ZeroMac, &path, span, message)
            .help("put in the receiver's MAC, or give it as ETH_DST_ADDR or --eth-dst");
    }
    if let Some(receiver) = &config.rx
        && !any_flow(receiver, sender)
    {
        let (path, span) = (tx.bench.path("udp_dst_port"), tx.bench.span("udp_dst_port"));
        let message = format!(
            "no flow of the receiver matches the frames that are sent (ports {} → {})",
            sender.header.udp_src, sender.header.udp_dst
        );
        let found = report.add(Code::NoFlow, &path, span, message);
        if let Some(rx) = &parts.rx
            && let Some(flow) = rx.half.maps("flows").next()
        {
            found.second(flow.map("match").map_or(flow.anchor, |map| map.anchor), "its flow");
        }
    }
}

/// Whether a flow lets the sender's ports in. Its IPv4 length is not looked at: the sequence may
/// lie on it.
fn any_flow(receiver: &Receiver, sender: &Sender) -> bool {
    let takes = |ports: Option<PortRange>, port: u16| {
        ports.is_none_or(|ports| (ports.first()..=ports.last()).contains(&port))
    };
    let header = &sender.header;
    receiver
        .flows
        .iter()
        .any(|flow| takes(flow.udp_src, header.udp_src) && takes(flow.udp_dst, header.udp_dst))
}

/// `20.3 Gb/s`, `16.4 Mb/s`: three digits or so.
pub(crate) fn bits_per_second(rate: u64) -> String {
    match rate {
        0..1_000_000 => format!("{} kb/s", tenths(rate / 100)),
        1_000_000..1_000_000_000 => format!("{} Mb/s", tenths(rate / 100_000)),
        _ => format!("{} Gb/s", tenths(rate / 100_000_000)),
    }
}

/// A number of tenths as a decimal.
fn tenths(tenths: u64) -> String {
    format!("{}.{}", Grouped(tenths / 10), tenths % 10)
}

/// Nanoseconds as milliseconds with one decimal.
fn milliseconds(ns: u64) -> String {
    format!("{} ms", tenths(ns / 100_000))
}
