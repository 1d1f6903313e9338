//! The numbers that follow from a configuration, and its header as a picture.

use std::fmt::Write as _;

use tensorwire_core::bits::BitField;
use tensorwire_core::geometry::{Geometry, Grouped, Overlap};

use crate::model::{Config, Receiver};
use crate::resolve::bits_per_second;

/// Explains the geometry of a configuration: each derived number with its formula, the limits that
/// follow, and a drawing of the header in which `#` marks the bits of the sequence number.
#[must_use]
pub fn geometry_report(config: &Config) -> String {
    let mut out = String::new();
    for (name, value) in numbers(config) {
        let _ = writeln!(out, "{name:<20} {value}");
    }
    out.push('\n');
    out.push_str(&header(&config.geometry));
    out
}

fn numbers(config: &Config) -> Vec<(&'static str, String)> {
    let geometry = &config.geometry;
    let spec = geometry.spec();
    let grouped = |number: usize| Grouped(u64::try_from(number).unwrap_or(u64::MAX));
    let packets = geometry.packets_per_batch();
    let elements = grouped(geometry.elements_per_image());
    let [channels, height, width] = config.image_shape();
    let mut numbers = vec![
        ("image", format!("{channels} × {height} × {width} = {elements} elements")),
        (
            "in packets",
            format!(
                "{} packets × {} B {}",
                geometry.packets_per_image(),
                geometry.payload_bytes(),
                spec.input
            ),
        ),
        (
            "frame",
            format!(
                "{} + {} = {} B",
                geometry.payload_offset(),
                geometry.payload_bytes(),
                geometry.frame_bytes()
            ),
        ),
        (
            "slot",
            format!(
                "{} B {} → {} B {}",
                geometry.payload_bytes(),
                spec.input,
                geometry.slot_stride(),
                spec.output
            ),
        ),
        (
            "image in the batch",
            format!("{elements} × {} = {} B", spec.output.bytes(), grouped(geometry.image_bytes())),
        ),
        (
            "batch",
            format!(
                "{} images × {} packets = {} packets × {} B = {} B, [{}, {channels}, {height}, \
                 {width}] {}",
                geometry.images_per_batch(),
                geometry.packets_per_image(),
                Grouped(packets.into()),
                geometry.slot_stride(),
                grouped(geometry.batch_bytes()),
                geometry.images_per_batch(),
                spec.output
            ),
        ),
        ("sequence", sequence(geometry)),
        (
            "longest loss",
            format!(
                "2^{} − {} = {} packets in a row are placed rightly",
                spec.seq_bit_width,
                geometry.confirmations(),
                Grouped(geometry.largest_placed_burst())
            ),
        ),
    ];
    if let Some(rx) = &config.rx {
        numbers.extend(buffers(config, rx));
    }
    numbers
}

fn sequence(geometry: &Geometry) -> String {
    let field = geometry.seq_field();
    let batches = geometry.batches_in_sequence_space();
    format!(
        "bits {} to {} of the frame: {} numbers, {} batch{}",
        field.offset_bits(),
        field.end_bits() - 1,
        Grouped(geometry.sequence_space()),
        Grouped(batches),
        if batches == 1 { "" } else { "es" }
    )
}

fn buffers(config: &Config, rx: &Receiver) -> Vec<(&'static str, String)> {
    let geometry = &config.geometry;
    let pools = &rx.pools;
    let retained = if pools.retained {
        let floor = pools.retained_floor(geometry.packets_per_batch().into());
        format!(
            "{} ≥ {} = ring {} + batch {} + ({} windows + {} reorders) × {}",
            Grouped(pools.rx_bufs),
            Grouped(floor),
            Grouped(pools.rx_ring),
            Grouped(pools.rx_batch),
            pools.windows,
            pools.reorders_in_flight,
            Grouped(geometry.packets_per_batch().into())
        )
    } else {
        format!("{}, each given back once it is read", Grouped(pools.rx_bufs))
    };
    let timeout_us = rx.timeout.0 / 1_000;
    let deadline = match geometry.minimum_rate_bps(timeout_us) {
        None => "none".to_owned(),
        Some(rate) => {
            format!("{} µs: the stream must reach {}", Grouped(timeout_us), bits_per_second(rate))
        }
    };
    vec![
        (
            "output buffers",
            format!(
                "{} ≥ {} = {} windows + 1 + {} jobs + 2",
                Grouped(pools.output_bufs),
                Grouped(pools.output_floor()),
                pools.windows,
                pools.queue_depth
            ),
        ),
        ("receive buffers", retained),
        ("deadline", deadline),
    ]
}

/// Four bytes a row, one letter a bit, the fields of the row beside it.
fn header(geometry: &Geometry) -> String {
    let field = geometry.seq_field();
    let bytes = u32::try_from(geometry.payload_offset()).unwrap_or(u32::MAX);
    let mut out = format!("the {bytes} bytes before the payload, # = sequence number\n\n");
    let _ = writeln!(out, "  byte  +0       +1       +2       +3");
    let mut skipped = false;
    for row in (0..bytes).step_by(4) {
        let end = (row + 4).min(bytes);
        if row >= 44 && !touches(field, row, end) && end < bytes {
            if !skipped {
                out.push_str("   ...\n");
            }
            skipped = true;
            continue;
        }
        skipped = false;
        let picture: Vec<String> = (row..end).map(|byte| bits(field, byte)).collect();
        let names = names(field, row, end);
        let _ = writeln!(out, "{row:>6}  {:<35}  {}", picture.join(" "), names.join(", "));
    }
    let _ = writeln!(out, "{bytes:>6}  payload, {} bytes", geometry.payload_bytes());
    out
}

fn touches(field: BitField, from: u32, to: u32) -> bool {
    field.offset_bits() < to * 8 && from * 8 < field.end_bits()
}

/// The eight bits of a byte.
fn bits(field: BitField, byte: u32) -> String {
    let letter = match overlap(byte) {
        Some(Overlap::Filler) | None => '.',
        Some(Overlap::EthDst | Overlap::EthSrc | Overlap::EtherType) => 'e',
        Some(
            Overlap::UdpSrcPort | Overlap::UdpDstPort | Overlap::UdpLength | Overlap::UdpChecksum,
        ) => 'u',
        Some(_) => 'i',
    };
    let sequence = field.offset_bits()..field.end_bits();
    (byte * 8..byte * 8 + 8).map(|bit| if sequence.contains(&bit) { '#' } else { letter }).collect()
}

/// The header field that a byte belongs to.
fn overlap(byte: u32) -> Option<Overlap> {
    BitField::new(byte * 8, 8).ok().and_then(|field| Overlap::of(field).next())
}

fn names(field: BitField, from: u32, to: u32) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for byte in from..to {
        let name = overlap(byte).map_or("filler", Overlap::name);
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    if touches(field, from, to) {
        names.insert(0, "sequence number");
    }
    names
}
