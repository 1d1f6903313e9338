use std::fs;
use std::fs::File;

use tempfile::TempDir;
use tensorwire_core::geometry::GeometrySpec;
use tensorwire_core::header::build;

use super::*;
use crate::dataset::testkit::{MINI, data_frame, data_frames, flows, geometry, pcap_of};
use crate::dataset::{DEFAULT_HEADER, ErrorClass};

/// A directory with a capture `x.pcap` in it.
struct Case {
    dir: TempDir,
    geometry: Geometry,
    options: LoadOptions,
}

impl Case {
    fn new(file: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("x.pcap"), file).expect("writable");
        Self { dir, geometry: geometry(&MINI), options: LoadOptions::new(flows()) }
    }

    fn of(frames: &[Vec<u8>]) -> Self {
        Self::new(&pcap_of(frames))
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("x.pcap")
    }

    fn labels(self, content: &str) -> Self {
        fs::write(self.dir.path().join("x.pcap.labels"), content).expect("writable");
        self
    }

    fn load(&self) -> Result<Capture, DatasetError> {
        load_capture(&self.path(), &self.geometry, &self.options)
    }

    fn loaded(&self) -> Capture {
        self.load().expect("loaded")
    }

    /// Class and message of the refusal, without the path.
    fn refusal(&self) -> (ErrorClass, String) {
        let error = self.load().expect_err("refused");
        let message = error.to_string();
        let path = format!("{}: ", self.path().display());
        (error.class(), message.strip_prefix(&path).unwrap_or(&message).to_string())
    }
}

/// The frames of these numbers in MINI.
fn frames(numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    data_frames(&geometry(&MINI), numbers)
}

/// A record of a little-endian file.
fn record(time: (u32, u32), original: u32, bytes: &[u8]) -> Vec<u8> {
    let captured = u32::try_from(bytes.len()).expect("short");
    let words = [time.0, time.1, captured, original];
    words.iter().flat_map(|word| word.to_le_bytes()).chain(bytes.iter().copied()).collect()
}

fn file_header(nanoseconds: bool, snaplen: u32) -> Vec<u8> {
    let mut header = pcap_of(&[]);
    if nanoseconds {
        header[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    }
    header[16..20].copy_from_slice(&snaplen.to_le_bytes());
    header
}

fn all_frames(capture: &Capture) -> Vec<Vec<u8>> {
    (0..capture.frames()).map(|i| capture.frame(i).to_vec()).collect()
}

#[test]
fn frames_come_back_as_they_are() {
    let sent = frames(0..16);
    let capture = Case::of(&sent).loaded();
    assert_eq!(all_frames(&capture), sent);
    assert_eq!((capture.images(), capture.packets_per_pass()), (4, 16));
    assert_eq!((capture.anchored(), capture.first_number()), (true, 0));
    assert_eq!(capture.report(), &LoadReport { records: 16, ..LoadReport::default() });
    assert!(capture.report().notes().is_empty());
    // The same through the eyes of the transmitter.
    let source = &capture;
    assert_eq!((FrameSource::frames(&source), FrameSource::len(&source, 3)), (16, 256));
    let mut out = vec![0; 256];
    source.write(3, &mut out);
    assert_eq!(out, sent[3]);
    assert_eq!(source.lent(3), Some(&sent[3][..]));
    assert_eq!(FrameSource::len(&source, 16), 0);
}

#[test]
fn p02_recorded_gaps_are_right_in_both_units() {
    let frames = frames(0..2);
    for (nanoseconds, unit) in [(false, 1_000), (true, 1_000_000)] {
        let mut file = file_header(nanoseconds, 65_535);
        file.extend(record((5, 7 * unit), 256, &frames[0]));
        file.extend(record((5, 8 * unit), 256, &frames[1]));
        let capture = Case::new(&file).loaded();
        assert_eq!((capture.time_ns(0), capture.time_ns(1)), (0, 1_000_000));
    }
}

#[test]
fn p02_times_that_cannot_be_are_no_gap_and_said() {
    let times = [
        (10, 0),
        (10, 500),       // +500 µs
        (10, 1_000_000), // no fraction: no gap
        (10, 700),       // after an invalid one: no gap
        (9, 0),          // back: no gap
        (9, 100),        // +100 µs
        (10, 100),       // one image a second, as some generators stamp: a real gap
    ];
    let mut file = file_header(false, 65_535);
    for (time, frame) in times.into_iter().zip(frames(0..7)) {
        file.extend(record(time, 256, &frame));
    }
    let capture = Case::new(&file).loaded();
    let seen: Vec<u64> = (0..7).map(|i| capture.time_ns(i) / 1000).collect();
    assert_eq!(seen, [0, 500, 500, 500, 500, 600, 1_000_600]);
    assert_eq!(capture.report().bad_times, 2);
    assert!(capture.report().notes()[0].starts_with("2 time stamps"));
}

#[test]
fn p03_pcapng_is_never_an_empty_success() {
    let (class, message) = Case::new(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0]).refusal();
    assert_eq!(class, ErrorClass::File);
    assert!(message.contains("editcap"), "{message}");
}

#[test]
fn p04_a_cut_file_is_refused_unless_its_whole_frames_are_asked_for() {
    let file = pcap_of(&frames(0..3));
    assert_eq!(file.len(), 840);
    for (end, whole) in [(30, 0), (39, 0), (40, 0), (100, 0), (300, 1), (839, 2)] {
        let mut case = Case::new(&file[..end]);
        let (class, message) = case.refusal();
        assert_eq!(class, ErrorClass::File);
        assert!(message.starts_with(&format!("cut short at byte {end}: ")), "{message}");
        assert!(message.ends_with(&format!("{whole} whole frames lie before it")), "{message}");
        case.options.keep_whole_frames = true;
        if whole == 0 {
            assert_eq!(case.refusal().1, "a capture without a frame");
        } else {
            let capture = case.loaded();
            assert_eq!(capture.frames(), whole);
            assert_eq!(capture.report().cut_at, Some(end as u64));
            assert!(capture.report().notes()[0].contains(&format!("at byte {end}")));
        }
    }
    let mut case = Case::new(&file[..10]);
    case.options.keep_whole_frames = true;
    assert!(case.refusal().1.starts_with("cut short: 10 bytes"));
    assert_eq!(Case::new(&file[..296]).loaded().frames(), 1);
}

#[test]
fn p05_stray_bytes_never_reach_the_payload() {
    let sent = frames(0..2);
    let mut file = file_header(false, 65_535);
    file.extend(record((0, 0), 256, &[&sent[0][..], &[0xee; 4]].concat()));
    file.extend(record((0, 0), 256, &sent[1]));
    file.extend(record((0, 0), 1, &sent[1]));
    file.extend(record((0, 0), 0, &sent[1]));
    let capture = Case::new(&file).loaded();
    assert_eq!(all_frames(&capture), sent);
    let report = capture.report();
    assert_eq!((report.trimmed, report.skipped.short, report.skipped.empty), (3, 1, 1));
}

#[test]
fn p06_a_record_above_the_snapshot_length_is_taken() {
    let sent = frames(0..1);
    let mut file = file_header(false, 96);
    file.extend(record((0, 0), 256, &sent[0]));
    assert_eq!(all_frames(&Case::new(&file).loaded()), sent);
}

#[test]
fn p09_another_link_type_is_refused() {
    let mut file = pcap_of(&frames(0..1));
    file[20] = 113;
    let (class, message) = Case::new(&file).refusal();
    assert_eq!(class, ErrorClass::File);
    assert_eq!(message, "link type 113, Linux cooked (LINUX_SLL); only 1, Ethernet, is read");
}

#[test]
fn p11_sliced_frames_are_refused_once() {
    let said = "the capture was sliced at 96 of 256 bytes (record 0); cannot replay";
    let mut file = file_header(false, 96);
    for frame in frames(0..16) {
        file.extend(record((0, 0), 256, &frame[..96]));
    }
    assert_eq!(Case::new(&file).refusal(), (ErrorClass::File, said.to_string()));
    // Sliced inside the headers: the length on the wire tells that it is one of ours.
    let mut file = file_header(false, 30);
    file.extend(record((0, 0), 256, &frames(0..1)[0][..30]));
    assert!(Case::new(&file).refusal().1.starts_with("the capture was sliced at 30 of 256"));
    // Sliced traffic of others does no harm.
    let mut file = file_header(false, 96);
    file.extend(record((0, 0), 1514, &foreign_frames()[0][..60]));
    file.extend(record((0, 0), 256, &frames(0..1)[0]));
    assert_eq!(Case::new(&file).loaded().frames(), 1);
}

#[test]
fn p12_a_file_above_the_limit_is_refused_by_its_size() {
    let mut case = Case::new(&pcap_of(&frames(0..1)));
    let sparse = File::options().write(true).open(case.path()).expect("writable");
    sparse.set_len(6 << 30).expect("a sparse file");
    case.options.max_bytes = 4 << 30;
    let message = "6442450944 bytes, allowed 4294967296: a replay is held in memory";
    assert_eq!(case.refusal(), (ErrorClass::File, message.to_string()));
}

#[test]
fn p12_a_million_tiny_frames_are_streamed() {
    let mut file = file_header(false, 65_535);
    let tiny = record((0, 0), 14, &foreign_frames()[0][..14]);
    for _ in 0..1_048_577 {
        file.extend_from_slice(&tiny);
    }
    file.extend(record((0, 0), 256, &frames(0..1)[0]));
    let capture = Case::new(&file).loaded();
    assert_eq!((capture.frames(), capture.report().skipped.not_ipv4), (1, 1_048_577));
    assert!(capture.memory_bytes() < 1024, "{} bytes", capture.memory_bytes());
}

#[test]
fn p12_the_memory_is_limited_too() {
    // 32 frames of 42 bytes: 1880 bytes of file, but 32 lines of 64 bytes of memory.
    let mut headers = vec![0; 42];
    build(&DEFAULT_HEADER, &mut headers).expect("headers");
    let mut case = Case::of(&vec![headers; 32]);
    case.options.max_bytes = 1_900;
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::File);
    assert!(message.ends_with("bytes of memory, allowed 1900"), "{message}");
}

#[test]
fn p13_nothing_in_it_has_a_message_of_its_own_each_time() {
    let messages = [
        Case::new(&[]).refusal().1,
        Case::of(&[]).refusal().1,
        Case::of(&foreign_frames()).refusal().1,
    ];
    assert_eq!(messages[0], "the file is empty (0 bytes)");
    assert_eq!(messages[1], "a capture without a frame");
    assert_eq!(
        messages[2],
        "none of its 8 frames is of the configured flow: short 1, not IPv4 3, not UDP 1, other \
         flow 1, VLAN tag 1, fragment 1"
    );
    // A record of length 0 between good ones is counted and left out.
    let mut sent = frames(0..4);
    sent.insert(2, Vec::new());
    let capture = Case::of(&sent).loaded();
    assert_eq!((capture.frames(), capture.report().skipped.empty), (4, 1));
}

#[test]
fn p13_what_is_no_file_is_refused_without_waiting() {
    let case = Case::new(&[]);
    let load = |path: &Path| {
        let error = load_capture(path, &case.geometry, &case.options).expect_err("no file");
        assert_eq!(error.class(), ErrorClass::File);
        error.to_string()
    };
    assert!(load(case.dir.path()).ends_with("it is a directory, not a file"));
    assert!(load(&case.dir.path().join("none.pcap")).contains("No such file"));
    #[cfg(unix)]
    {
        let fifo = case.dir.path().join("fifo.pcap");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs");
        assert!(made.success());
        assert!(load(&fifo).ends_with("it is a FIFO, not a file"));
    }
}

/// ARP, LLDP, IPv6, another port, TCP in 256 bytes, a VLAN tag, a fragment, and a stump.
fn foreign_frames() -> Vec<Vec<u8>> {
    let data = data_frame(&geometry(&MINI), 0, 0);
    let with_type = |high: u8, low: u8, length: usize| {
        let mut frame = data[..length].to_vec();
        (frame[12], frame[13]) = (high, low);
        frame
    };
    let with_byte = |at: usize, value: u8| {
        let mut frame = data.clone();
        frame[at] = value;
        frame
    };
    vec![
        with_type(0x08, 0x06, 60),  // ARP
        with_type(0x88, 0xcc, 60),  // LLDP
        with_type(0x86, 0xdd, 86),  // IPv6 neighbour discovery
        with_byte(36, 0x20),        // UDP to port 8192
        with_byte(23, 6),           // TCP
        with_type(0x81, 0x00, 256), // 802.1Q
        with_byte(20, 0x20),        // more fragments
        data[..13].to_vec(),
    ]
}

#[test]
fn p14_other_traffic_is_left_out_and_counted_by_reason() {
    let sent = frames(0..64);
    let mut mixed = Vec::new();
    for (i, frame) in sent.iter().enumerate() {
        mixed.push(foreign_frames()[i % 8].clone());
        mixed.push(frame.clone());
    }
    let capture = Case::of(&mixed).loaded();
    assert_eq!(all_frames(&capture), sent);
    let expected = Skipped {
        empty: 0,
        short: 8,
        not_ipv4: 24,
        not_udp: 8,
        other_flow: 8,
        vlan: 8,
        fragment: 8,
        ihl: 0,
    };
    assert_eq!((capture.report().skipped, capture.report().records), (expected, 128));
    assert!(capture.report().notes()[0].starts_with("64 of 128 frames are no data: short 8, "));
}

#[test]
fn p15_longer_and_shorter_frames_of_the_flow_are_kept_whole() {
    let mut sent = frames(0..16);
    sent[3].extend([0xaa; 4]);
    sent[5].truncate(60);
    let capture = Case::of(&sent).loaded();
    assert_eq!(all_frames(&capture), sent);
    assert_eq!((capture.report().long, capture.report().short), (1, 1));
    assert_eq!(capture.images(), 4);
}

#[test]
fn p15_a_capture_of_longer_frames_needs_a_receiver_that_takes_them() {
    let mut sent = frames(0..16);
    sent.iter_mut().for_each(|frame| frame.extend([0; 4]));
    let mut case = Case::of(&sent);
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::Config);
    assert_eq!(
        message,
        "16 of 16 data frames are not 256 bytes as the geometry has them, most of these 260"
    );
    case.options.accept_trailer = true;
    assert_eq!(all_frames(&case.loaded()), sent);
    // Shorter ones are never taken.
    sent.iter_mut().for_each(|frame| frame.truncate(252));
    let mut case = Case::of(&sent);
    case.options.accept_trailer = true;
    assert_eq!(case.refusal().0, ErrorClass::Config);
}

#[test]
fn p17_jumbo_frames_are_whole_or_refused_before_the_first_one() {
    // 16,000 = 2 × 8000 and 17,920 = 2 × 8960 elements.
    for (payload, height, width) in [(8000, 100, 160), (8960, 128, 140)] {
        let spec = GeometrySpec {
            channels: 1,
            height,
            width,
            packets_per_image: 2,
            payload_bytes: payload,
            ..MINI
        };
        let jumbo = geometry(&spec);
        let sent = data_frames(&jumbo, 0..8);
        let frame_bytes = sent[0].len();
        let mut case = Case::of(&sent);
        case.geometry = jumbo;
        case.options.max_frame_bytes = Some(frame_bytes);
        assert_eq!(all_frames(&case.loaded()), sent);
        case.options.max_frame_bytes = Some(frame_bytes - 1);
        let (class, message) = case.refusal();
        assert_eq!(class, ErrorClass::Config);
        let buffer = frame_bytes - 1;
        let expected = format!("frame 0 is {frame_bytes} bytes, a transmit buffer has {buffer}");
        assert_eq!(message, expected);
    }
}

#[test]
fn r12_a_capture_of_another_width_is_a_matter_of_the_configuration() {
    let written = geometry(&GeometrySpec { seq_bit_offset: 128, seq_bit_width: 12, ..MINI });
    let read = geometry(&GeometrySpec { seq_bit_offset: 128, seq_bit_width: 16, ..MINI });
    // Other traffic in between changes nothing about it.
    let sent = data_frames(&written, 0..100);
    let mixed: Vec<_> = sent.into_iter().flat_map(|f| [foreign_frames()[0].clone(), f]).collect();
    let mut case = Case::of(&mixed);
    case.geometry = read;
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::Config);
    assert!(message.contains("seq_bit_offset 128, seq_bit_width 12"), "{message}");
}

#[test]
fn s01_images_beyond_the_labels_are_unlabelled_and_counted() {
    let labels = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let mut case = Case::of(&frames(0..64)).labels(labels);
    let capture = case.loaded();
    assert_eq!((capture.images(), capture.report().unlabelled), (16, 6));
    assert_eq!((capture.label(9), capture.label(10), capture.label(15)), (Some(9), None, None));
    // The second pass has the same labels: image 16 is image 0.
    assert_eq!((capture.label(16), capture.label(26)), (Some(0), None));
    assert_eq!(
        capture.report().notes(),
        ["6 images have no label; they are left out of the class statistics"]
    );
    case.options.strict_labels = true;
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::File);
    assert_eq!(message, "10 labels for 16 images; images without a label are refused");
}

#[test]
fn s01_no_labels_at_all() {
    let mut case = Case::of(&frames(0..64));
    let capture = case.loaded();
    assert!(capture.labels().is_none());
    assert_eq!((capture.report().unlabelled, capture.label(0)), (0, None));
    // A file that was asked for must be there.
    case.options.labels = LabelsFrom::File(case.dir.path().join("none.labels"));
    assert!(case.refusal().1.contains("No such file"));
    // An empty one labels nothing.
    let case = case.labels("");
    let case = Case { options: LoadOptions::new(flows()), ..case };
    let capture = case.loaded();
    assert_eq!((capture.report().unlabelled, capture.images()), (16, 16));
    assert!(capture.labels().is_some_and(Labels::is_empty));
}

#[test]
fn s02_a_bad_label_file_is_refused_with_its_line() {
    let (class, message) = Case::of(&frames(0..16)).labels("3\nx\n5\n").refusal();
    assert_eq!(class, ErrorClass::File);
    assert!(message.ends_with("x.pcap.labels:2: \"x\" is no class number (0 to 65535)"));
}

#[test]
fn s03_more_labels_than_images_are_expected_images() {
    let labels = "0\n".repeat(12);
    let capture = Case::of(&frames(0..32)).labels(&labels).loaded();
    assert_eq!((capture.images(), capture.images_in_frames()), (12, 8));
    assert_eq!(capture.packets_per_pass(), 48);
    assert_eq!(capture.report().unlabelled, 0);
}

#[test]
fn labels_of_another_file_and_none() {
    let mut case = Case::of(&frames(0..16)).labels("1\n1\n1\n1\n");
    let other = case.dir.path().join("other.txt");
    fs::write(&other, "2\n2\n2\n2\n").expect("writable");
    fs::write(case.dir.path().join("x.pcap.classes"), "a\nb\nc\n").expect("writable");
    assert_eq!(case.loaded().label(0), Some(1));
    case.options.labels = LabelsFrom::File(other);
    let capture = case.loaded();
    assert_eq!((capture.label(0), capture.classes().len()), (Some(2), 3));
    case.options.labels = LabelsFrom::Nowhere;
    let capture = case.loaded();
    assert!(capture.labels().is_none() && capture.classes().is_empty());
}
