//! What the tests of this module share.

use std::path::{Path, PathBuf};

use tensorwire_core::flow::{FlowMatch, FlowTable, PortRange};
use tensorwire_core::geometry::{ElementType, Geometry, GeometrySpec};
use tensorwire_core::header::{build, set_sequence};

use super::DEFAULT_HEADER;
use super::pcap::CaptureWriter;

/// The folder of reference inputs, or `None` with a line that says so.
///
/// It is named by `TENSORWIRE_SHARED`, or stands beside the workspace as `shared`.
#[expect(clippy::print_stderr, reason = "a skipped test must say so")]
pub(crate) fn shared() -> Option<PathBuf> {
    let path = match std::env::var_os("TENSORWIRE_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    if path.join("models/golden.json").exists() {
        return Some(path);
    }
    eprintln!("skipped: no reference inputs at {} (set TENSORWIRE_SHARED)", path.display());
    None
}

/// A JSON file of the reference inputs.
pub(crate) fn read_json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("a readable file");
    serde_json::from_str(&text).expect("JSON")
}

/// The small geometry of the tests: 3 × 16 × 16 in 4 packets of 192 bytes (frame 256 B), 4 images
/// a batch, so 16 packets a batch.
pub(crate) const MINI: GeometrySpec = GeometrySpec {
    channels: 3,
    height: 16,
    width: 16,
    packets_per_image: 4,
    images_per_batch: 4,
    payload_byte_offset: 64,
    payload_bytes: 192,
    seq_bit_offset: 336,
    seq_bit_width: 8,
    input: ElementType::Int8,
    output: ElementType::Fp16,
};

/// A geometry that is known to hold.
pub(crate) fn geometry(spec: &GeometrySpec) -> Geometry {
    Geometry::new(spec).expect("a geometry that holds")
}

/// The documented flow: UDP 4096 to 4096.
pub(crate) fn flows() -> FlowTable {
    let port = Some(PortRange::single(4096));
    let mut flows = FlowTable::new();
    flows
        .push(&FlowMatch { id: 201, udp_src: port, udp_dst: port, ipv4_len: None })
        .expect("room for one");
    flows
}

/// A data frame with a payload of its own for each `seed`.
pub(crate) fn data_frame(geometry: &Geometry, number: u32, seed: u64) -> Vec<u8> {
    let mut frame = vec![0; geometry.frame_bytes()];
    let mut random = Random(seed);
    for byte in &mut frame[geometry.payload_offset()..] {
        *byte = u8::try_from(random.below(256)).expect("below 256");
    }
    build(&DEFAULT_HEADER, &mut frame).expect("a frame of a geometry");
    assert!(set_sequence(&mut frame, geometry.seq_field(), number), "the field is in the frame");
    frame
}

/// The data frames of these numbers, masked to the width.
pub(crate) fn data_frames(
    geometry: &Geometry,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<Vec<u8>> {
    let mask = u64::from(geometry.seq_field().max());
    numbers
        .into_iter()
        .map(|number| {
            let wire = u32::try_from(number & mask).expect("masked");
            data_frame(geometry, wire, number)
        })
        .collect()
}

/// A little-endian µs capture of these frames, 10 µs apart.
pub(crate) fn pcap_of(frames: &[Vec<u8>]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.pcap");
    let mut writer = CaptureWriter::create(&path).expect("writable");
    for (i, frame) in (0..).zip(frames) {
        writer.write(10 * i, frame).expect("written");
    }
    writer.finish().expect("renamed");
    std::fs::read(&path).expect("readable")
}

/// `SplitMix64`, for streams that a test disturbs.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Moves each item by up to `reach` places.
    pub(crate) fn shuffle<T>(&mut self, items: Vec<T>, reach: u64) -> Vec<T> {
        let mut keyed: Vec<_> = (0..)
            .zip(items)
            .map(|(i, item): (u64, T)| (2 * i + self.below(2 * reach + 1), item))
            .collect();
        keyed.sort_by_key(|&(key, _)| key);
        keyed.into_iter().map(|(_, item)| item).collect()
    }
}
