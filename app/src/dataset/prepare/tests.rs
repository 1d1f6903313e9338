use std::fs;

use tempfile::TempDir;
use tensorwire_core::header::classify;

use super::*;
use crate::dataset::testkit::{self, MINI, flows, geometry, read_json};
use crate::dataset::{Capture, ErrorClass, LoadOptions, load_capture};

/// Options in a directory of their own, with a synthetic source.
struct Case {
    dir: TempDir,
    options: PrepareOptions,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options = PrepareOptions {
            source: Source::Synthetic { seed: 1, size: SyntheticSize::Small },
            num_images: Some(8),
            geometry: geometry(&MINI),
            header: DEFAULT_HEADER,
            interval_us: 1,
            out: dir.path().join("x.pcap"),
        };
        Self { dir, options }
    }

    /// A case whose source is a flat folder of 16 × 16 images, so that nothing is resized.
    fn of_images(images: &[Vec<u8>]) -> Self {
        let mut case = Self::new();
        let folder = case.dir.path().join("images");
        fs::create_dir(&folder).expect("writable");
        for (i, pixels) in images.iter().enumerate() {
            let file = [b"P6 16 16 255\n", &pixels[..]].concat();
            fs::write(folder.join(format!("{i:03}.ppm")), file).expect("writable");
        }
        case.options.source = Source::Images(folder);
        case.options.num_images = None;
        case
    }

    fn prepare(&self) -> Result<PrepareReport, DatasetError> {
        prepare(&self.options, &mut |_, _| {})
    }

    fn prepared(&self) -> PrepareReport {
        self.prepare().expect("prepared")
    }

    fn refusal(&self) -> (ErrorClass, String) {
        let error = self.prepare().expect_err("refused");
        (error.class(), error.to_string())
    }

    fn load(&self) -> Capture {
        let options = LoadOptions::new(flows());
        load_capture(&self.options.out, &self.options.geometry, &options).expect("loaded")
    }

    /// Names of the files beside the capture.
    fn files(&self) -> Vec<String> {
        let parent = self.options.out.parent().expect("a parent");
        let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "images")
            .collect();
        names.sort();
        names
    }
}

/// The payloads of one image, one behind the other: `[3, height, width]`, int8.
fn planes(capture: &Capture, geometry: &Geometry, image: usize) -> Vec<u8> {
    let packets = geometry.packets_per_image() as usize;
    (image * packets..(image + 1) * packets)
        .flat_map(|i| capture.frame(i)[geometry.payload_offset()..].to_vec())
        .collect()
}

#[test]
fn an_image_becomes_planes_of_int8() {
    // Red is the position, green is constant, blue runs backwards: planes and order are told apart.
    let position = 0..=255_u8;
    let pixels: Vec<u8> = position.clone().flat_map(|i| [i, 3, 255 - i]).collect();
    let case = Case::of_images(&[pixels]);
    let report = case.prepared();
    assert_eq!((report.images, report.padding_from, report.wrapped), (4, Some(0), true));
    let capture = case.load();
    let expected: Vec<u8> = position
        .clone()
        .map(|i| i.wrapping_sub(128))
        .chain([3_u8.wrapping_sub(128); 256])
        .chain(position.map(|i| (255 - i).wrapping_sub(128)))
        .collect();
    for image in 0..4 {
        assert_eq!(planes(&capture, &case.options.geometry, image), expected);
    }
}

#[test]
fn frames_are_numbered_in_order_with_right_headers() {
    for (offset, width) in [(336, 8), (128, 12), (128, 4), (336, 16), (340, 7)] {
        let mut case = Case::new();
        let spec = GeometrySpec { seq_bit_offset: offset, seq_bit_width: width, ..MINI };
        case.options.geometry = geometry(&spec);
        case.options.num_images = Some(80);
        case.prepared();
        let capture = case.load();
        assert_eq!(capture.frames(), 320);
        let field = case.options.geometry.seq_field();
        for i in 0..320_u32 {
            let frame = capture.frame(i as usize);
            assert_eq!(field.read(frame), Some(i & field.max()), "bit {offset}, width {width}");
            let header = classify(frame, frame.len(), Verify::Udp).expect("right checksums");
            assert_eq!((header.src_port, header.dst_port), (4096, 4096));
            assert_eq!(header.udp_len, 256 - 34);
            if offset != 128 {
                assert_eq!(header.ip_total_len, 256 - 14);
            }
            assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            // Nothing but the number is in the filler.
            let mut filler = frame.to_vec();
            assert!(field.write(&mut filler, 0));
            assert!(filler[42..64].iter().all(|&byte| byte == 0));
            assert_eq!(capture.time_ns(i as usize), u64::from(i) * 1000);
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let (a, b) = (Case::new(), Case::new());
    let report = a.prepared();
    b.prepared();
    for suffix in ["", ".labels", ".classes"] {
        let read = |case: &Case| fs::read(file::with_suffix(&case.options.out, suffix));
        let (a, b) = (read(&a).expect("there"), read(&b).expect("there"));
        assert!(a == b && !a.is_empty(), "x.pcap{suffix}");
    }
    assert_eq!(report.bytes, fs::metadata(&a.options.out).expect("there").len());
    assert_eq!(a.files(), ["x.pcap", "x.pcap.classes", "x.pcap.labels"]);
    // Another seed gives another capture.
    let mut c = Case::new();
    c.options.source = Source::Synthetic { seed: 2, size: SyntheticSize::Small };
    c.prepared();
    assert!(fs::read(&c.options.out).expect("there") != fs::read(&a.options.out).expect("there"));
}

#[test]
fn i04_padding_images_follow_and_are_recorded() {
    let mut case = Case::new();
    case.options.num_images = Some(5);
    let mut seen = Vec::new();
    let report = prepare(&case.options, &mut |done, all| seen.push((done, all))).expect("prepared");
    assert_eq!((report.asked, report.images, report.batches, report.frames), (5, 8, 2, 32));
    assert_eq!((report.padding_from, report.wrapped), (Some(5), false));
    let text = report.to_string();
    assert!(
        text.contains(
            "3 more images than the 5 asked for fill the last batch: those of the source \
                       from number 5 on"
        ),
        "{text}"
    );
    assert_eq!(seen, (1..=8).map(|done| (done, 8)).collect::<Vec<_>>());
    // Frames, labels and images agree, and the images are those that follow.
    let capture = case.load();
    assert_eq!((capture.frames(), capture.images(), capture.images_in_frames()), (32, 8, 8));
    assert_eq!(capture.labels().expect("labels").len(), 8);
    assert_eq!(capture.classes().len(), 10);
    let mut eight = Case::new();
    eight.options.num_images = Some(8);
    eight.prepared();
    let bytes = |case: &Case| fs::read(&case.options.out).expect("there");
    assert!(bytes(&case) == bytes(&eight));
}

#[test]
fn i04_a_source_that_ends_is_taken_from_its_beginning() {
    let images: Vec<Vec<u8>> = (0..6).map(|i| vec![i; 768]).collect();
    let case = Case::of_images(&images);
    let report = case.prepared();
    assert_eq!((report.asked, report.images), (6, 8));
    assert_eq!((report.padding_from, report.wrapped), (Some(0), true));
    assert!(report.to_string().contains("and then from its beginning"));
    let capture = case.load();
    let first = |image| planes(&capture, &case.options.geometry, image)[0].wrapping_add(128);
    assert_eq!((0..8).map(first).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 0, 1]);
}

#[test]
fn i04_the_generator_refuses_what_the_validator_refuses() {
    let flags = |payload: u32, width: u32| {
        let flags = GeometryFlags {
            out_payload_len: Some(payload),
            seq_bit_width: Some(width),
            ..GeometryFlags::default()
        };
        flags.apply(MINI)
    };
    for (payload, width, part) in [
        (192, 3, Some("2^")),
        (192, 4, None), // exactly one batch
        (192, 5, None),
        (192, 33, Some("33")),
        (192, 0, Some("0")),
        (191, 8, Some("191")),
    ] {
        match (flags(payload, width), part) {
            (Ok(made), None) => assert_eq!(made.spec().seq_bit_width, width),
            (Err(error), Some(part)) => {
                assert_eq!(error.class(), ErrorClass::Config);
                assert!(error.to_string().contains(part), "{error}");
                // Word for word what the rules of the geometry say.
                let DatasetError::Geometry(violations) = error else { panic!("{error}") };
                let spec = GeometrySpec { payload_bytes: payload, seq_bit_width: width, ..MINI };
                assert_eq!(*violations, spec.violations());
            }
            (result, _) => panic!("payload {payload}, width {width}: {result:?}"),
        }
    }
}

#[test]
fn i04_both_names_of_the_payload_offset() {
    let both = |header_size, payload_byte_offset| {
        GeometryFlags { header_size, payload_byte_offset, ..GeometryFlags::default() }.apply(MINI)
    };
    let offset = |header, payload| both(header, payload).expect("holds").payload_offset();
    assert_eq!(offset(Some(80), None), 80);
    assert_eq!(offset(None, Some(96)), 96);
    assert_eq!(offset(Some(96), Some(96)), 96);
    assert_eq!(offset(None, None), 64);
    let error = both(Some(64), Some(80)).expect_err("two numbers");
    assert_eq!(error.class(), ErrorClass::Usage);
    assert!(error.to_string().contains("--header-size 64 and --payload-byte-offset 80"));
}

#[test]
fn i04_no_image_and_too_many() {
    let mut case = Case::of_images(&[vec![0; 768]]);
    case.options.num_images = Some(0);
    let usage = |message: &str| (ErrorClass::Usage, message.to_string());
    assert_eq!(case.refusal(), usage("0 images asked for, at least 1 is needed"));
    case.options.num_images = Some(2);
    assert_eq!(case.refusal(), usage("2 images asked for, the source has 1"));
    case.options.source = Source::Synthetic { seed: 1, size: SyntheticSize::Small };
    case.options.num_images = Some(u64::MAX);
    assert_eq!(case.refusal().0, ErrorClass::Usage);
    assert_eq!(case.files(), [""; 0]);
}

#[test]
fn i04_missing_directories_are_made_and_nothing_is_left_on_an_error() {
    let mut case = Case::of_images(&[vec![1; 768], vec![2; 768]]);
    case.options.out = case.dir.path().join("a/b/x.pcap");
    let Source::Images(folder) = case.options.source.clone() else { panic!("a folder") };
    fs::write(folder.join("001.ppm"), b"P6 16 16 255\nshort").expect("writable");
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::File);
    assert!(message.ends_with("001.ppm: cut short: 5 of 768 bytes of pixels"), "{message}");
    assert!(!case.dir.path().join("a").exists());
    fs::write(folder.join("001.ppm"), [b"P6 16 16 255\n", &[2; 768][..]].concat())
        .expect("writable");
    case.prepared();
    assert_eq!(case.files(), ["x.pcap"]);
}

#[test]
fn i04_an_existing_file_is_replaced_only_by_a_whole_one() {
    let case = Case::of_images(&[vec![1; 768]]);
    for name in ["x.pcap", "x.pcap.labels", "x.pcap.classes"] {
        fs::write(case.dir.path().join(name), "old").expect("writable");
    }
    let Source::Images(folder) = case.options.source.clone() else { panic!("a folder") };
    let image = folder.join("000.ppm");
    let good = fs::read(&image).expect("there");
    fs::write(&image, "no image").expect("writable");
    assert_eq!(case.refusal().0, ErrorClass::File);
    assert_eq!(fs::read(&case.options.out).expect("there"), b"old");
    assert_eq!(case.files().len(), 3);
    // This source has no labels: those of the old capture would be taken for its own.
    fs::write(&image, good).expect("writable");
    let report = case.prepared();
    assert_eq!((report.labels.is_none(), report.removed.len()), (true, 2));
    assert!(report.to_string().contains("x.pcap.labels (of an earlier capture)"));
    assert_eq!(case.files(), ["x.pcap"]);
    assert_eq!(case.load().images(), 4);
}

#[test]
fn i04_an_output_that_cannot_be_written_is_named() {
    let mut case = Case::new();
    case.options.out = case.dir.path().to_path_buf();
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::File);
    assert!(message.ends_with("it is a directory, not a file"), "{message}");
    // A file where a directory should be.
    fs::write(case.dir.path().join("file"), "").expect("writable");
    case.options.out = case.dir.path().join("file/x.pcap");
    let (class, message) = case.refusal();
    assert_eq!(class, ErrorClass::File);
    assert!(message.starts_with("cannot "), "{message}");
    // A directory in the place of the labels.
    case.options.out = case.dir.path().join("x.pcap");
    fs::create_dir(case.dir.path().join("x.pcap.labels")).expect("writable");
    assert!(case.refusal().1.ends_with("it is a directory, not a file"));
    assert_eq!(case.files(), ["file", "x.pcap.labels"]);
}

#[test]
fn i06_an_image_that_does_not_divide_is_refused_with_the_sizes_that_do() {
    let apply = |payload: u32, height: u32| {
        let flags = GeometryFlags { out_payload_len: Some(payload), ..GeometryFlags::default() };
        let error = flags.apply(GeometrySpec { height, ..MINI }).expect_err("does not divide");
        assert_eq!(error.class(), ErrorClass::Config);
        error.to_string()
    };
    // 768 = 3 × 200 + 168.
    let message = apply(200, 16);
    for part in ["768", "200", "192 B in 4 packets"] {
        assert!(message.contains(part), "{part} in: {message}");
    }
    assert!(apply(1000, 16).contains("768 B in 1 packets"), "{}", apply(1000, 16));
    // Height 17: 816 elements.
    assert!(apply(192, 17).contains("816"));
}

#[test]
fn a_geometry_that_prepare_cannot_write_is_refused() {
    let mut case = Case::new();
    let mut refusal = |spec: GeometrySpec| {
        case.options.geometry = geometry(&spec);
        let (class, message) = case.refusal();
        assert_eq!(class, ErrorClass::Config);
        assert_eq!(case.files(), [""; 0]);
        message
    };
    let grey = GeometrySpec { channels: 1, payload_bytes: 64, ..MINI };
    assert_eq!(refusal(grey), "channels: 1, images have 3 (R, G, B)");
    let wide = GeometrySpec { input: ElementType::Fp16, payload_bytes: 384, ..MINI };
    assert!(refusal(wide).ends_with("images are written as int8"));
    // The sequence on the IPv4 protocol number: the receiver would not know its own frames.
    let protocol = GeometrySpec { seq_bit_offset: 184, ..MINI };
    assert!(refusal(protocol).contains("IPv4 protocol"));
}

#[test]
fn unlabelled_and_labelled_sources_say_so() {
    let case = Case::new();
    let report = case.prepared();
    assert!(report.to_string().contains("x.pcap.labels"));
    let labels = fs::read_to_string(case.dir.path().join("x.pcap.labels")).expect("there");
    assert_eq!(labels.lines().count(), 8);
    let classes = fs::read_to_string(case.dir.path().join("x.pcap.classes")).expect("there");
    assert!(classes.starts_with("disc\nsquare\n"));
    let flat = Case::of_images(&[vec![0; 768]]);
    assert!(flat.prepared().to_string().contains("labels: none, the source has none"));
}

/// The whole way of the reference images at the documented geometry: file, resize, int8, packets,
/// capture, and back, to the CRC of the pixels that the golden logits were computed from.
#[test]
fn reference_images_come_out_of_the_capture_bit_for_bit() {
    let Some(shared) = testkit::shared() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let source = Source::Cifar10(shared.join("data/cifar10_test_1000.bin"));
    let out = dir.path().join("cifar.pcap");
    let mut options = PrepareOptions::documented(source, out.clone()).expect("documented");
    options.num_images = Some(32);
    let report = prepare(&options, &mut |_, _| {}).expect("prepared");
    assert_eq!((report.images, report.batches, report.frames), (32, 1, 4096));
    assert_eq!(report.bytes, 24 + 4096 * (16 + 1240));

    let geometry = options.geometry;
    let capture = load_capture(&out, &geometry, &LoadOptions::new(flows())).expect("loaded");
    assert_eq!((capture.images(), capture.memory_bytes() / 4096), (32, 1280));
    let golden = read_json(&shared.join("models/golden.json"));
    let names: Vec<&str> = golden["classes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(serde_json::Value::as_str)
        .collect();
    assert_eq!(capture.classes(), names);
    for image in 0..32 {
        let entry = &golden["golden"][image];
        let planes = planes(&capture, &geometry, image);
        let pixels: Vec<u8> = (0..224 * 224)
            .flat_map(|i| [0, 1, 2].map(|c| planes[c * 224 * 224 + i].wrapping_add(128)))
            .collect();
        let crc = u64::from(crc32fast::hash(&pixels));
        assert_eq!(Some(crc), entry["u8_224_crc32"].as_u64(), "image {image}");
        let label = capture.label(image as u64).map(u64::from);
        assert_eq!(label, entry["label"].as_u64(), "image {image}");
    }
}
