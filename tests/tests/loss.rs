//! Loss is exact: a lost packet costs its image and nothing else, at any width of the sequence
//! number, whatever the wire does besides.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tensorwire::sink::npy::{self, NpyArray};
use tensorwire_tests::pcap::Pcap;
use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Output, Workplace, config};

/// What a faulty wire was told to do, in the words of the command line.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    drop: Option<u64>,
    dup: Option<u64>,
    shuffle: u64,
    seed: u64,
}

impl Wire {
    fn args(&self) -> Vec<String> {
        let mut args =
            vec![format!("--sim-shuffle={}", self.shuffle), format!("--sim-seed={}", self.seed)];
        args.extend(self.drop.map(|n| format!("--sim-drop=1/{n}")));
        args.extend(self.dup.map(|n| format!("--sim-dup=1/{n}")));
        args
    }

    /// The frames of `count` that the wire loses: counted from 1, every n-th one.
    fn lost(&self, count: u64) -> Vec<u64> {
        let hit = |number: &u64| self.drop.is_some_and(|n| number.is_multiple_of(n));
        (1..=count).filter(hit).map(|number| number - 1).collect()
    }

    /// How many of `count` frames are sent twice: every n-th one that is not lost.
    fn doubled(&self, count: u64) -> u64 {
        let lost = |number: &u64| self.drop.is_some_and(|n| number.is_multiple_of(n));
        let dup = self.dup.unwrap_or(u64::MAX);
        (1..=count).filter(|number| number.is_multiple_of(dup) && !lost(number)).count() as u64
    }
}

fn number(summary: &Value, path: &str) -> u64 {
    let found = summary.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {path}: {summary:#}"))
}

/// Images that a list of ranges names.
fn named(summary: &Value, list: &str) -> BTreeSet<u64> {
    let ranges = summary[list].as_array().expect("a list of ranges");
    let bounds = |range: &Value| {
        let bound = |i: usize| range[i].as_u64().expect("an index");
        bound(0)..=bound(1)
    };
    ranges.iter().flat_map(bounds).collect()
}

/// Compares a summary with what the wire did to `images` images of `size` packets. Gives the
/// images that were hit.
#[track_caller]
fn assert_exact(output: &Output, wire: Wire, images: u64, size: u64) -> BTreeSet<u64> {
    let summary = output.json();
    let frames = images * size;
    let lost = wire.lost(frames);
    let mut packets: BTreeMap<u64, u64> = BTreeMap::new();
    lost.iter().for_each(|frame| *packets.entry(frame / size).or_default() += 1);
    let (missing, damaged): (BTreeMap<_, _>, _) =
        packets.into_iter().partition(|(_, lost)| *lost == size);
    let (missing, damaged): (BTreeSet<u64>, BTreeSet<u64>) =
        (missing.into_keys().collect(), damaged.into_keys().collect());
    let what = format!("{wire:?}: {summary:#}");
    assert_eq!(named(&summary, "damaged_ranges"), damaged, "{what}");
    assert_eq!(named(&summary, "missing_ranges"), missing, "{what}");
    let whole = images - (damaged.len() + missing.len()) as u64;
    let code = if whole == images { 0 } else { 4 };
    let doubled = wire.doubled(frames);
    for (path, expected) in [
        ("/exit_code", code),
        ("/images/expected", images),
        ("/images/delivered", whole),
        ("/images/damaged", damaged.len() as u64),
        ("/images/missing", missing.len() as u64),
        ("/images/unfinished", 0),
        ("/packets/placed", frames - lost.len() as u64),
        ("/packets/wild", 0),
        ("/discontinuities", 0),
        ("/tx/sent", frames),
        ("/tx/wire_dropped", lost.len() as u64),
        ("/tx/wire_duplicated", doubled),
    ] {
        assert_eq!(number(&summary, path), expected, "{path} {what}");
    }
    // A second copy is one whether its batch is still open or not.
    let copies = number(&summary, "/packets/duplicate") + number(&summary, "/packets/late");
    assert_eq!(copies, doubled, "{what}");
    assert_eq!(output.code, Some(i32::try_from(code).expect("a code")), "{what}");
    &damaged | &missing
}

/// 64 images and a ResNet-18 for a shipped configuration.
fn fixture(yaml: &str) -> Workplace {
    let place = Workplace::new();
    let yaml = config(yaml).display().to_string();
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", &yaml];
    let _ = place.tensorwire(&args).expect_code(0);
    let model = "models/resnet18_features.onnx";
    let args = ["export-model", "--arch", "resnet18", "--weights", "seed:5", "--output", model];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

/// Runs the 64 images through `wire`; gives the features and the images that were hit.
#[track_caller]
fn infer(place: &Workplace, yaml: &str, wire: Wire) -> (NpyArray, BTreeSet<u64>) {
    let yaml = config(yaml).display().to_string();
    let args = ["run", &yaml, "--replay-once", "--model", "resnet18", "--json", "--features"];
    let mut args: Vec<String> = args.map(str::to_owned).to_vec();
    args.push("f.npy".to_owned());
    args.extend(wire.args());
    let output = place.tensorwire(&args);
    let hit = assert_exact(&output, wire, 64, 128);
    (npy::read(&place.file("f.npy")).expect("the features"), hit)
}

/// Rows that were hit hold NaN, all others the very bits of the baseline.
#[track_caller]
fn assert_same(features: &NpyArray, baseline: &NpyArray, hit: &BTreeSet<u64>) {
    assert_eq!((features.rows, features.columns), (64, 512));
    for (row, image) in (0..features.rows).zip(0..) {
        let (ours, theirs) = (features.row(row).expect("a row"), baseline.row(row).expect("a row"));
        if hit.contains(&image) {
            assert!(ours.iter().all(|value| value.is_nan()), "image {image} was hit");
        } else {
            let same = ours.iter().zip(theirs).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "image {image} has other features");
        }
    }
}

/// The promise of the project, at one width of the sequence number.
#[track_caller]
fn losses_cost_what_they_hit(yaml: &str, wires: &[Wire]) {
    let place = fixture(yaml);
    let (baseline, hit) = infer(&place, yaml, Wire::default());
    assert!(hit.is_empty() && baseline.values.iter().all(|value| value.is_finite()));
    // Were two images alike, their rows could be swapped unseen.
    let rows: BTreeSet<Vec<u32>> = (0..64)
        .map(|row| baseline.row(row).expect("a row").iter().map(|v| v.to_bits()).collect())
        .collect();
    assert_eq!(rows.len(), 64);
    for &wire in wires {
        let (features, hit) = infer(&place, yaml, wire);
        // The frames 1000, 2000, … 8000 are of these images.
        let thousandth = if wire.drop.is_some() { &THOUSANDTH[..] } else { &[] };
        assert!(hit.iter().eq(thousandth), "{wire:?}: {hit:?}");
        assert_same(&features, &baseline, &hit);
    }
}

const THOUSANDTH: [u64; 8] = [7, 15, 23, 31, 39, 46, 54, 62];
const SHUFFLE: Wire = Wire { drop: None, dup: None, shuffle: 200, seed: 1 };
const DROP: Wire = Wire { drop: Some(1000), dup: None, shuffle: 0, seed: 0 };
const DUP: Wire = Wire { drop: None, dup: Some(500), shuffle: 0, seed: 0 };

#[test]
fn at_width_12_losses_cost_the_images_they_hit() {
    let all = Wire { drop: DROP.drop, dup: DUP.dup, ..SHUFFLE };
    losses_cost_what_they_hit("resnet50_sw_loopback.yaml", &[SHUFFLE, DROP, DUP, all]);
}

#[test]
fn at_width_16_losses_cost_the_images_they_hit() {
    let (seed, dup) = (2, DUP.dup);
    let harmless = Wire { dup, seed, ..SHUFFLE };
    let all = Wire { drop: DROP.drop, dup, seed, ..SHUFFLE };
    losses_cost_what_they_hit("resnet50_routable_loopback.yaml", &[harmless, DROP, all]);
}

/// Runs a small geometry through many wires, without inference.
#[track_caller]
fn sweep(small: Small, images: u64, wires: impl IntoIterator<Item = Wire>) {
    let place = Workplace::new();
    place.write("c.yaml", Yaml::small(small));
    let count = images.to_string();
    let args = ["prepare", "--synthetic", "5", "--num-images", &count, "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    for wire in wires {
        let args = ["run", "c.yaml", "--backend", "none", "--no-pin", "--json", "--quiet"];
        let mut args: Vec<String> = args.map(str::to_owned).to_vec();
        args.extend(wire.args());
        let output = place.tensorwire(&args);
        assert_exact(&output, wire, images, small.packets_per_image.into());
    }
}

#[test]
fn every_rate_of_loss_costs_what_it_hits() {
    // From every other packet, with which nothing is whole, to the very last one of 1024.
    let drops = [2, 3, 4, 5, 7, 16, 31, 64, 100, 255, 256, 1000, 1023, 1024, 1025];
    let wires = drops.map(|n| Wire { drop: Some(n), ..Wire::default() });
    sweep(Small::MINI, 256, wires);
}

#[test]
fn whole_images_that_are_lost_are_missing_and_not_damaged() {
    // One packet is an image here. The number space is one batch, as in the documented layout.
    let small = Small { packets_per_image: 1, images_per_batch: 32, seq_bit_width: 5 };
    let wires = [2, 3, 10, 32, 33, 128].map(|n| Wire { drop: Some(n), ..Wire::default() });
    sweep(small, 128, wires);
}

#[test]
fn any_order_within_a_step_and_any_copy_is_right_for_any_seed() {
    // 64 packets in a batch. Numbers of 6 bits: one batch in the number space, as in the documented
    // layout; a step is 8 packets. Numbers of 12 bits: a step is 32.
    for (seq_bit_width, shuffle) in [(6, 3), (12, 16)] {
        let small = Small { packets_per_image: 4, images_per_batch: 16, seq_bit_width };
        let wires = (0..48).map(|seed| Wire {
            // With and without each of the others.
            drop: (seed % 2 == 1).then_some(10 + seed),
            dup: (seed % 3 > 0).then_some(5 + seed),
            shuffle: if seed % 4 == 3 { 0 } else { shuffle },
            seed,
        });
        sweep(small, 256, wires);
    }
}

/// Runs a capture that was taken apart, in the MINI geometry; gives the summary.
#[track_caller]
fn replay(change: impl FnOnce(&mut Pcap), code: i32) -> Value {
    replay_of(Small::MINI, change, code)
}

/// The same for any geometry of 4 packets an image.
#[track_caller]
fn replay_of(small: Small, change: impl FnOnce(&mut Pcap), code: i32) -> Value {
    let place = Workplace::new();
    place.write("c.yaml", Yaml::small(small));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    let path = place.file("data/cifar10_resnet.pcap");
    let mut capture = Pcap::read(&path);
    assert_eq!(capture.records.len(), 256);
    change(&mut capture);
    place.write("data/cifar10_resnet.pcap", capture.bytes());
    let args = ["run", "c.yaml", "--backend", "none", "--no-pin", "--json", "--quiet"];
    place.tensorwire(&args).expect_code(code).json()
}

#[test]
fn r02_r10_recorded_losses_are_named_by_image() {
    // A packet of image 2; image 5 whole; the whole batch of the images 8 to 11; the end.
    let summary = replay(
        |capture| {
            let lost =
                |i: usize| i == 9 || (20..24).contains(&i) || (32..48).contains(&i) || i > 253;
            let all = std::mem::take(&mut capture.records).into_iter().enumerate();
            capture.records = all.filter(|(i, _)| !lost(*i)).map(|(_, record)| record).collect();
        },
        4,
    );
    assert_eq!(named(&summary, "damaged_ranges"), BTreeSet::from([2, 63]), "{summary:#}");
    assert_eq!(named(&summary, "missing_ranges"), BTreeSet::from([5, 8, 9, 10, 11]));
    assert_eq!(number(&summary, "/images/delivered"), 64 - 7);
    assert_eq!(number(&summary, "/packets/placed"), 256 - 1 - 4 - 16 - 2);
}

#[test]
fn r11_a_full_period_lost_shows_in_what_is_owed() {
    // 32 packets in a row at 5 bits: the numbers go on as if nothing had happened, so the eight
    // images are missed at the end of what is owed, not where they were.
    let summary = replay_of(
        Small { seq_bit_width: 5, ..Small::MINI },
        |capture| drop(capture.records.drain(40..72)),
        4,
    );
    assert_eq!(number(&summary, "/images/delivered"), 64 - 8, "{summary:#}");
    assert_eq!(number(&summary, "/images/damaged"), 0);
    assert_eq!(named(&summary, "missing_ranges"), (56..64).collect());
    assert_eq!(number(&summary, "/slots/missing"), 0, "the numbers show no loss");
    assert_eq!(number(&summary, "/discontinuities"), 0);
}

#[test]
fn recorded_swaps_and_copies_harm_nothing() {
    let summary = replay(
        |capture| {
            capture.records.swap(15, 16);
            capture.records.swap(100, 103);
            let copy = capture.records[200].clone();
            capture.records.insert(203, copy);
        },
        0,
    );
    assert_eq!(number(&summary, "/images/delivered"), 64);
    assert_eq!(number(&summary, "/packets/duplicate"), 1);
    assert_eq!(number(&summary, "/packets/placed"), 256);
}

#[test]
fn p14_h01_other_traffic_in_between_harms_nothing() {
    let summary = replay(
        |capture| {
            let data = capture.records[10].clone();
            let (header, frame) = data.split_at(16);
            let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 46]].concat();
            let mut other_port = frame.to_vec();
            other_port[36..38].copy_from_slice(&9_u16.to_be_bytes());
            let tagged = [&frame[..12], &[0x81, 0x00, 0x00, 0x05], &frame[12..]].concat();
            let mut tcp = frame.to_vec();
            tcp[23] = 6;
            for (frame, at) in [arp, other_port, tagged, tcp].iter().zip([3, 40, 41, 200]) {
                capture.records.insert(at, Pcap::record(header, frame));
            }
        },
        0,
    );
    assert_eq!(number(&summary, "/images/delivered"), 64);
    assert_eq!(number(&summary, "/packets/placed"), 256);
    assert_eq!(number(&summary, "/packets/offered"), 256);
}

#[test]
fn l07_ten_thousand_bad_frames_are_counted_and_not_listed() {
    let place = Workplace::new();
    place.write("c.yaml", Yaml::small(Small::MINI));
    let args = ["prepare", "--synthetic", "5", "--num-images", "4000", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    let path = place.file("data/cifar10_resnet.pcap");
    let mut capture = Pcap::read(&path);
    for record in capture.records.iter_mut().skip(6_000) {
        let (header, frame) = record.split_at(16);
        *record = Pcap::record(header, &frame[..100]);
    }
    place.write("data/cifar10_resnet.pcap", capture.bytes());
    // Fewer than half of the frames: such a capture is replayed as it is.
    let few = Pcap { records: capture.records[..11_000].to_vec(), ..capture.clone() };
    place.write("few.pcap", few.bytes());
    let args = ["run", "c.yaml", "--backend", "none", "--no-pin", "--dataset", "few.pcap"];
    let output = place.tensorwire(&args).expect_code(4);
    assert!(output.stderr.contains(" short=5000 "), "{}", output.stderr);
    assert!(output.stderr.lines().count() < 30, "{}", output.stderr);
    // More than half: refused, in one line.
    let output = place.tensorwire(&args[..5]).expect_code(3);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("10000 of 16000 data frames"), "{}", output.stderr);
}

#[test]
fn a_number_that_is_off_costs_its_own_image() {
    // One packet with a number far ahead, or far behind; its own place stays empty.
    for (wire, counter) in [(120, "/packets/wild"), (200, "/packets/late")] {
        let summary = replay(|capture| capture.records[50][16 + 16] = wire, 4);
        assert_eq!(named(&summary, "damaged_ranges"), BTreeSet::from([12]), "{summary:#}");
        assert_eq!(number(&summary, "/images/delivered"), 63);
        assert_eq!(number(&summary, counter), 1, "{summary:#}");
    }
    // Frames that are too short and too long, likewise.
    let summary = replay(
        |capture| {
            let (header, frame) = capture.records[60].split_at(16);
            capture.records[60] = Pcap::record(header, &frame[..200]);
            let (header, frame) = capture.records[80].split_at(16);
            capture.records[80] = Pcap::record(header, &[frame, &[0; 4]].concat());
        },
        4,
    );
    assert_eq!(named(&summary, "damaged_ranges"), BTreeSet::from([15, 20]), "{summary:#}");
    assert_eq!(number(&summary, "/packets/short"), 1);
    assert_eq!(number(&summary, "/packets/long"), 1);
}

#[test]
fn the_text_names_the_images_too() {
    let place = Workplace::new();
    place.write("c.yaml", Yaml::small(Small::MINI));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    let args = ["run", "c.yaml", "--backend", "none", "--no-pin", "--sim-drop", "1/100"];
    let output = place.tensorwire(&args).expect_code(4);
    assert_eq!(output.stdout, "");
    let line = "damaged images: 24, 49";
    assert!(output.stderr.lines().any(|said| said == line), "{}", output.stderr);
    assert!(
        output
            .stderr
            .ends_with("tensorwire: not complete: 62 of 64 images (sender done) (exit code 4)\n")
    );
}
