//! Captures of frames with any numbers, lengths and time stamps, loaded for a replay: what is
//! loaded is the frames of the flow in their order, everything else is counted under one reason.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire::dataset::{DatasetError, LabelsFrom, LoadError, LoadOptions, load_capture};
use tensorwire_core::flow::{FlowMatch, FlowTable, PortRange};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::header::{HeaderSpec, build, set_sequence};

#[path = "support/scratch.rs"]
mod scratch;

static FILE: LazyLock<scratch::Scratch> = LazyLock::new(|| scratch::Scratch::new("capture"));
static LABELS: LazyLock<scratch::Scratch> = LazyLock::new(|| scratch::Scratch::new("labels"));

const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [1, 1, 1, 1],
    ip_dst: [2, 2, 2, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

#[derive(Arbitrary, Debug)]
enum Frame {
    /// A packet of the geometry with the next number, moved on by this much.
    Next {
        by: i8,
        time: u32,
    },
    Number {
        number: u32,
        time: u32,
    },
    /// As many packets in order.
    Run {
        count: u8,
    },
    /// A packet of another length.
    Length {
        bytes: u16,
    },
    OtherPort,
    /// A frame of which only the front was kept.
    Sliced {
        bytes: u8,
    },
    Junk {
        bytes: Vec<u8>,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    width: u8,
    offset: bool,
    frames: Vec<Frame>,
    /// Bytes that are cut off at the end.
    cut: u8,
    keep_whole_frames: bool,
    accept_trailer: bool,
    strict_labels: bool,
    labels: Option<Vec<u8>>,
}

/// The file in the making, and what is to be found in it.
#[derive(Default)]
struct Made {
    file: Vec<u8>,
    data: Vec<Vec<u8>>,
    records: u64,
    sliced: bool,
}

impl Made {
    fn record(&mut self, frame: &[u8], original: usize, time: u32) {
        let seconds = time / 1_000_000;
        for word in [seconds, time % 1_000_001, frame.len() as u32, original as u32] {
            self.file.extend(word.to_le_bytes());
        }
        self.file.extend(frame);
        self.records += 1;
    }

    fn data(&mut self, frame: Vec<u8>, time: u32) {
        self.record(&frame, frame.len(), time);
        self.data.push(frame);
    }
}

fn geometry(input: &Input) -> Geometry {
    let spec = GeometrySpec {
        height: 16,
        width: 16,
        packets_per_image: 4,
        images_per_batch: 4,
        payload_bytes: 192,
        seq_bit_offset: if input.offset { 336 } else { 128 },
        seq_bit_width: 4 + u32::from(input.width % 29),
        ..GeometrySpec::DOCUMENTED
    };
    Geometry::new(&spec).expect("a geometry that holds")
}

fn frame(geometry: &Geometry, port: u16, length: usize, number: u32) -> Vec<u8> {
    let mut frame = vec![0; length];
    build(&HeaderSpec { udp_dst: port, ..HEADER }, &mut frame).expect("room for the headers");
    assert!(set_sequence(&mut frame, geometry.seq_field(), number), "the field is in the headers");
    frame
}

fn make(input: &Input, geometry: &Geometry) -> Made {
    let mut made = Made::default();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        made.file.extend(word.to_le_bytes());
    }
    let full = geometry.frame_bytes();
    let mut next = 0_u32;
    for kind in input.frames.iter().take(300) {
        match kind {
            Frame::Next { by, time } => {
                let number = next.wrapping_add_signed(i32::from(*by));
                made.data(frame(geometry, 4096, full, number), *time);
                next = number.wrapping_add(1);
            }
            Frame::Number { number, time } => {
                made.data(frame(geometry, 4096, full, *number), *time);
                next = number.wrapping_add(1);
            }
            Frame::Run { count } => {
                for _ in 0..*count {
                    made.data(frame(geometry, 4096, full, next), next);
                    next = next.wrapping_add(1);
                }
            }
            Frame::Length { bytes } => {
                let length = 64 + usize::from(bytes % 512);
                made.data(frame(geometry, 4096, length, next), 0);
            }
            Frame::OtherPort => {
                let frame = frame(geometry, 4097, full, next);
                made.record(&frame, full, 0);
            }
            Frame::Sliced { bytes } => {
                let frame = frame(geometry, 4096, full, next);
                let kept = usize::from(*bytes).min(full - 1);
                made.record(&frame[..kept], full, 0);
                made.sliced = true;
            }
            // Never taken for IPv4, whatever the bytes are.
            Frame::Junk { bytes } => {
                let mut frame = bytes.clone();
                if let Some(kind) = frame.get_mut(12) {
                    *kind = 0xff;
                }
                made.record(&frame, frame.len(), 0);
            }
        }
    }
    made
}

fuzz_target!(|input: Input| {
    let geometry = geometry(&input);
    let made = make(&input, &geometry);
    let kept = made.file.len().saturating_sub(usize::from(input.cut)).max(24);
    let cut = kept < made.file.len();
    let path = FILE.put(&made.file[..kept]);

    let port = Some(PortRange::single(4096));
    let mut flows = FlowTable::new();
    flows.push(&FlowMatch { udp_src: port, udp_dst: port, ..FlowMatch::any(7) }).expect("room");
    let mut options = LoadOptions::new(flows);
    options.keep_whole_frames = input.keep_whole_frames;
    options.accept_trailer = input.accept_trailer;
    options.strict_labels = input.strict_labels;
    options.labels = match &input.labels {
        Some(labels) => LabelsFrom::File(LABELS.put(labels).to_path_buf()),
        None => LabelsFrom::Nowhere,
    };
    let capture = match load_capture(path, &geometry, &options) {
        Ok(capture) => capture,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            if let DatasetError::Load { error: LoadError::Sliced { .. }, .. } = error {
                assert!(made.sliced);
            }
            return;
        }
    };
    let report = capture.report();
    assert!(!report.notes().iter().any(|note| note.contains('\n')));
    let data = capture.frames();
    assert_eq!(report.records, data as u64 + report.skipped.total());
    assert!(!cut && report.records == made.records || cut && report.records <= made.records);
    assert!(data > 0 && (cut || made.sliced || data == made.data.len()));
    for (index, frame) in made.data.iter().enumerate().take(data) {
        assert_eq!(capture.frame(index), frame);
        assert!(index == 0 || capture.time_ns(index) >= capture.time_ns(index - 1));
    }
    assert!(capture.frame(data).is_empty());
    assert!(capture.images() >= capture.images_in_frames());
    let labels = capture.labels().map_or(0, |labels| labels.len() as u64);
    assert!(!input.strict_labels || input.labels.is_none() || labels >= capture.images());
    assert!(capture.images() == 0 || capture.label(capture.images()) == capture.label(0));
});
