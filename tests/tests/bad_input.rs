//! Bad input gets one clear message and its exit code, and leaves everything as it was.

use std::fs;

use tensorwire_tests::pcap::Pcap;
use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Output, Workplace, config};

const CAPTURE: &str = "data/cifar10_resnet.pcap";

/// A valid small configuration `c.yaml` and its capture of 64 images.
fn fixture() -> Workplace {
    let place = Workplace::new();
    place.write("c.yaml", Yaml::small(Small::MINI));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Runs a command that is refused. It says nothing on stdout, does not panic, says `said` on the
/// first line of stderr, and changes no file.
#[track_caller]
fn refused(place: &Workplace, run: impl FnOnce() -> Output, code: i32, said: &[&str]) -> Output {
    let before = place.contents();
    let output = run().expect_code(code);
    assert_eq!(output.stdout, "");
    let first = output.stderr.lines().next().unwrap_or_default();
    for word in said {
        assert!(first.contains(word), "no `{word}` in `{first}`");
    }
    let text = &output.stderr;
    assert!(!text.contains("panicked") && !text.contains("RUST_BACKTRACE"), "{text}");
    // Debug output of an error is no message.
    assert!(!text.contains("Error {") && !text.contains("Err("), "{text}");
    let files = place.files();
    assert!(place.contents() == before, "something was left behind or changed: {files:?}");
    output
}

/// [`refused`], with one line and nothing else.
#[track_caller]
fn refuse(place: &Workplace, line: &str, code: i32, said: &[&str]) {
    let output = refused(place, || place.tensorwire(&words(line)), code, said);
    assert_eq!(output.stderr.lines().count(), 1, "{line}: {}", output.stderr);
    assert!(output.stderr.starts_with("tensorwire: "), "{line}: {}", output.stderr);
}

const RUN: &str = "run c.yaml --no-pin --backend none";

#[test]
fn files_that_are_not_there_are_named() {
    let place = fixture();
    let none = "No such file";
    for line in ["run", "geometry", "prepare --synthetic 1 --out new/z.pcap --config"] {
        refuse(&place, &format!("{line} no.yaml"), 7, &["no.yaml: cannot be read", none]);
    }
    refuse(&place, &format!("{RUN} --dataset no.pcap"), 7, &["no.pcap", none]);
    refuse(
        &place,
        "run c.yaml --no-pin",
        7,
        &["models/resnet50_features.onnx", none, "export-model"],
    );
    refuse(&place, "prepare --cifar10 no.bin --out new/z.pcap", 7, &["no.bin", none]);
    refuse(&place, "prepare --images no --out new/z.pcap", 7, &["no", none]);
    let export = "export-model --arch resnet18 --output new/x.onnx --weights";
    refuse(&place, &format!("{export} no.safetensors"), 7, &["no.safetensors", none]);
    place.write("l.yaml", Yaml::small(Small::MINI).set("labels_path", "no.labels"));
    refuse(&place, "run l.yaml --no-pin --backend none", 7, &["no.labels", none]);
}

#[test]
fn p03_p04_p09_p13_what_is_no_whole_ethernet_capture_is_refused_by_name() {
    let place = fixture();
    let capture = fs::read(place.file(CAPTURE)).expect("a capture");
    let refuse_bytes = |bytes: &[u8], said: &[&str]| {
        place.write("x.pcap", bytes);
        let said = [&["x.pcap"], said].concat();
        refuse(&place, &format!("{RUN} --dataset x.pcap"), 7, &said);
    };
    // Cut in the header of the file, in that of a record, in a frame.
    refuse_bytes(&capture[..10], &["10 bytes"]);
    refuse_bytes(&capture[..24 + 272 * 18 + 7], &["byte 4927", "18 whole frames"]);
    refuse_bytes(&capture[..5_000], &["byte 5000", "18 whole frames"]);
    for link_type in [0_u8, 101, 113, 228] {
        let mut other = capture.clone();
        other[20] = link_type;
        refuse_bytes(&other, &[&format!("link type {link_type}")]);
    }
    refuse_bytes(&[&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 60]].concat(), &["pcapng", "editcap"]);
    refuse_bytes(&[], &["empty"]);
    refuse_bytes(&capture[..24], &["without a frame"]);
    refuse_bytes(b"this is no capture, it is a line of text\n", &["not"]);
    refuse(&place, &format!("{RUN} --dataset data"), 7, &["data", "a directory"]);
    let _ = place.shell("mkfifo fifo").expect_code(0);
    // A FIFO cannot be among the files that are compared: it has no end.
    let output = place.tensorwire(&words(&format!("{RUN} --dataset fifo"))).expect_code(7);
    assert_eq!(output.stderr, "tensorwire: cannot read fifo: it is a FIFO, not a file\n");
}

#[test]
fn p04_the_whole_frames_of_a_cut_capture_are_used_where_asked_for() {
    let place = fixture();
    let capture = fs::read(place.file(CAPTURE)).expect("a capture");
    place.write("cut.pcap", &capture[..24 + 272 * 18 + 100]);
    place.write("cut.pcap.labels", "1\n".repeat(64));
    let line = format!("{RUN} --dataset cut.pcap --keep-whole-frames --json");
    let output = place.tensorwire(&words(&line)).expect_code(4);
    let summary = output.json();
    assert_eq!(summary["tx"]["sent"], 18);
    assert_eq!(summary["exit_reason"], "4 of 64 images (sender done)");
    // 18 frames are 4 images and half of one; the others of the 64 labels never came.
    assert_eq!(summary["damaged_ranges"], serde_json::json!([[4, 4]]));
    assert_eq!(summary["missing_ranges"], serde_json::json!([[5, 63]]));
}

#[test]
fn p11_a_sliced_capture_is_said_once() {
    let place = fixture();
    let mut capture = Pcap::read(&place.file(CAPTURE));
    for record in &mut capture.records {
        record.truncate(16 + 96);
        record[8..12].copy_from_slice(&96_u32.to_le_bytes());
    }
    place.write("s.pcap", capture.bytes());
    refuse(&place, &format!("{RUN} --dataset s.pcap"), 7, &["s.pcap", "96", "256", "sliced"]);
}

#[test]
fn r12_a_capture_of_another_width_is_refused_both_ways() {
    let place = Workplace::new();
    let config = |name: &str| config(name).display().to_string();
    let of_12 = config("resnet50_sw_loopback.yaml");
    let of_16 = config("resnet50_routable_loopback.yaml");
    for (yaml, out) in [(&of_12, "w12.pcap"), (&of_16, "w16.pcap")] {
        let args = ["prepare", "--synthetic", "5", "--num-images", "32", "--out", out, "--config"];
        let _ = place.tensorwire(&[&args[..], &[yaml]].concat()).expect_code(0);
    }
    let run = |yaml: &str, capture: &str| {
        format!("run {yaml} --no-pin --backend none --dataset {capture}")
    };
    refuse(&place, &run(&of_16, "w12.pcap"), 3, &["w12.pcap", "12"]);
    refuse(&place, &run(&of_12, "w16.pcap"), 3, &["w16.pcap", "16"]);
    // Another geometry altogether.
    place.write("c.yaml", Yaml::small(Small::MINI));
    refuse(&place, &run("c.yaml", "w16.pcap"), 3, &["w16.pcap", "256", "1240"]);
}

#[test]
fn a_capture_without_a_frame_of_the_flow_is_refused() {
    let place = fixture();
    // A receiver that listens elsewhere.
    place.write("p.yaml", Yaml::small(Small::MINI).set_at("match:", "udp_dst", 5_000));
    // Without --quiet there is a warning besides, which names the two lines of the configuration.
    let line = "run p.yaml --no-pin --backend none --quiet";
    refuse(&place, line, 7, &[CAPTURE, "256"]);
}

#[test]
fn s01_s02_labels_that_cannot_be_used_are_refused_with_their_line() {
    let place = fixture();
    for (text, said) in [
        ("3\nx\n5\n", "labels:2"),
        ("1\n-1\n", "labels:2"),
        ("2147483647\n", "labels:1"),
        ("1\n2\n1.5\n", "labels:3"),
        ("3 4\n", "labels:1"),
    ] {
        place.write(&format!("{CAPTURE}.labels"), text);
        refuse(&place, RUN, 7, &[said]);
    }
    // What editors do to a file is no fault, and too few labels are a warning.
    for text in ["\u{feff}1\r\n2\r\n", "1\n2", "1\n2\n\n"] {
        place.write(&format!("{CAPTURE}.labels"), text);
        let output = place.tensorwire(&words(RUN)).expect_code(0);
        assert!(output.stderr.contains("62 images have no label"), "{text:?}: {}", output.stderr);
    }
}

#[test]
fn e06_e07_models_that_do_not_fit_are_refused_before_a_batch() {
    let place = fixture();
    let export = "export-model --arch resnet18 --weights seed:1 --output";
    let _ = place.tensorwire(&words(&format!("{export} m.onnx"))).expect_code(0);
    let model = fs::read(place.file("m.onnx")).expect("a model");
    let with = |onnx: &str| Yaml::small(Small::MINI).set("onnx_path", onnx);
    place.write("cut.onnx", &model[..model.len() / 2]);
    place.write("text.onnx", "this is no model");
    place.write("empty.onnx", "");
    for name in ["cut.onnx", "text.onnx", "empty.onnx"] {
        place.write("m.yaml", with(name));
        refuse(&place, "run m.yaml --no-pin", 7, &[name]);
    }
    place.write("m.yaml", with("data"));
    refuse(&place, "run m.yaml --no-pin", 7, &["data"]);
    // Another image size, and another number of features: both in one message, with both sides.
    place.write("m.yaml", with("m.onnx"));
    let run = || place.tensorwire(&words("run m.yaml --no-pin --features f.npy"));
    let output = refused(&place, run, 3, &["tensorwire: m.onnx", "do not agree"]);
    for said in ["[batch,3,224,224]", "[4,3,16,16]", "[batch,512]", "[4,2048]"] {
        assert!(output.stderr.contains(said), "no {said} in {}", output.stderr);
    }
    // An engine alone is right, and this build cannot load it; no model at all is wrong.
    let engine = Yaml::small(Small::MINI).without("onnx_path");
    for (yaml, code) in [(engine.clone(), 5), (engine.without("engine_path"), 3)] {
        place.write("m.yaml", yaml);
        let run = || place.tensorwire(&words("run m.yaml --no-pin"));
        let output = refused(&place, run, code, &[]);
        assert!(output.stderr.contains("onnx_path"), "{}", output.stderr);
    }
}

#[test]
fn i02_flags_that_do_not_exist_or_contradict_start_nothing() {
    let place = fixture();
    for (line, said) in [
        ("run c.yaml --dataest x", "--dataest"),
        ("run c.yaml --mode", "--mode"),
        ("run c.yaml --seconds ten", "ten"),
        ("run c.yaml --seconds -5", "-5"),
        ("run c.yaml --expected-images 99999999999999999999", "99999999999999999999"),
        ("run c.yaml --expected-images 0", "0"),
        ("run c.yaml --loop --replay-once", "--replay-once"),
        ("run c.yaml --loop --loop-verbatim", "--loop-verbatim"),
        ("run", "required"),
        ("run c.yaml d.yaml", "d.yaml"),
        ("run c.yaml --sim-drop 1/1", "1/1"),
        ("run c.yaml --images-per-batch 0", "0"),
        ("prepare --out z.pcap", "required"),
        ("prepare --synthetic 1 --images data --out z.pcap", "--images"),
        ("demo --images 0 --out d", "0"),
        ("frobnicate", "frobnicate"),
    ] {
        let run = || place.tensorwire(&words(line));
        let output = refused(&place, run, 2, &["error: "]);
        assert!(output.stderr.contains(said), "{line}: {}", output.stderr);
    }
    refuse(&place, &format!("{RUN} --sim-shuffle 70000"), 2, &["70000", "65536"]);
    let run = || place.tensorwire(&words("run c.yaml --backend foo"));
    let output = refused(&place, run, 2, &["error: ", "foo"]);
    assert!(output.stderr.contains("auto, tensorrt, onnx, none"), "{}", output.stderr);
    refuse(&place, "run c.yaml --model resnet77", 2, &["--model", "resnet77", "resnet152"]);
    refuse(&place, &format!("{RUN} --ready-fd 9"), 2, &["--ready-fd 9"]);
    refuse(&place, "explain TW9999", 2, &["TW9999"]);
    let export = "export-model --arch resnet18 --output x.onnx";
    refuse(&place, &format!("{export} --weights seed:x"), 2, &["--weights", "seed:x"]);
    refuse(&place, &format!("{export} --weights seed:1 --head all"), 2, &["--head", "all"]);
}

#[test]
fn what_cannot_be_asked_of_this_configuration_is_refused() {
    let place = fixture();
    refuse(&place, &format!("{RUN} --features f.npy"), 2, &["--features", "none"]);
    let other = Yaml::small(Small::MINI).set("onnx_path", "models/net.onnx");
    place.write("m.yaml", other);
    refuse(&place, "run m.yaml --model resnet18", 2, &["--model resnet18", "models/net.onnx"]);
    refuse(&place, &format!("{RUN} --eth-dst 1:2"), 2, &["--eth-dst", "1:2", "MAC"]);
    let line = format!("ETH_DST_ADDR=zz \"$TW\" {RUN}");
    let output = refused(&place, || place.shell(&line), 2, &["ETH_DST_ADDR", "zz", "MAC"]);
    assert_eq!(output.stderr.lines().count(), 1);
    let prepare = "prepare --synthetic 1 --out z.pcap";
    refuse(&place, &format!("{prepare} --eth-src zz"), 2, &["--eth-src", "zz"]);
    // Windows keep their size: sub-batches have to divide them.
    for images in [3, 8, 32] {
        let line = format!("{RUN} --images-per-batch {images}");
        let output = refused(&place, || place.tensorwire(&words(&line)), 3, &["error[TW"]);
        assert!(output.stderr.contains(&format!("{images} images per inference")));
        assert!(output.stderr.ends_with("tensorwire: c.yaml: 1 error\n"), "{}", output.stderr);
    }
}

#[test]
fn e11_what_this_build_cannot_do_has_its_own_exit_code() {
    let place = fixture();
    refuse(&place, "run c.yaml --no-pin --backend tensorrt", 5, &["tensorrt", "onnx"]);
    for mode in ["tx", "rx"] {
        refuse(&place, &format!("{RUN} --mode {mode}"), 5, &[&format!("mode `{mode}`")]);
    }
    for name in ["resnet50_rx_spark_xhost", "resnet50_tx_spark_xhost", "resnet50_wire_loopback"] {
        let path = config(&format!("{name}.yaml")).display().to_string();
        let mac = ["--eth-dst", "48:b0:2d:00:00:01"];
        let run = || place.tensorwire(&[&["run", &path, "--no-pin"], &mac[..]].concat());
        // A build with DPDK looks for the NIC, and says more than one line: tests/dpdk.
        if tensorwire::run::nic::dpdk::BUILT {
            continue;
        }
        let output =
            refused(&place, run, 5, &["0000:01:00", "DPDK", "--features dpdk", "loopback"]);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

#[test]
fn c21_a_side_that_the_file_does_not_have_is_named() {
    let place = Workplace::new();
    for (have, want) in [("tx", "rx"), ("rx", "tx"), ("rx", "both")] {
        let path = config(&format!("resnet50_{have}_spark_xhost.yaml")).display().to_string();
        let mac = ["--eth-dst", "48:b0:2d:00:00:01"];
        let args = [&["run", &path, "--no-pin", "--mode", want], &mac[..]].concat();
        let output = refused(&place, || place.tensorwire(&args), 3, &["error[TW"]);
        let said = format!("mode `{want}` needs `bench_");
        assert!(output.stderr.contains(&said), "no {said} in {}", output.stderr);
        assert!(output.stderr.contains(&format!("made for mode `{have}`")), "{}", output.stderr);
    }
}

#[test]
fn c25_a_configuration_that_is_wrong_is_refused_with_every_fault() {
    let place = fixture();
    let yaml = Yaml::small(Small::MINI).set_at("Data_RX_GPU", "buf_size", 255);
    let text = String::from_utf8(yaml.as_ref().to_vec()).expect("text");
    place.write("bad.yaml", text.replace("flow_isolation: true", "flow_isolaton: maybe"));
    let mut verdicts = Vec::new();
    for line in ["run bad.yaml --no-pin", "prepare --synthetic 1 --out z.pcap --config bad.yaml"] {
        let output = refused(&place, || place.tensorwire(&words(line)), 3, &["error[TW"]);
        for said in ["bad.yaml:", "flow_isolaton", "flow_isolation", "255"] {
            assert!(output.stderr.contains(said), "no {said} in {}", output.stderr);
        }
        assert!(output.stderr.ends_with(" errors\n"), "{}", output.stderr);
        verdicts.push(output.stderr.replace("tensorwire: ", ""));
    }
    // One set of checks: `validate` says the same on its stdout, notes aside.
    let validated = place.tensorwire(&["validate", "bad.yaml"]).expect_code(3).stdout;
    assert_eq!(verdicts[0], verdicts[1]);
    for line in verdicts[0].lines().filter(|line| line.starts_with("error[")) {
        assert!(validated.contains(line), "`{line}` is not in {validated}");
    }
}

#[test]
fn zero_images_are_no_data_set() {
    let place = fixture();
    let _ = place.shell("mkdir empty && : >empty.bin").expect_code(0);
    refuse(&place, "prepare --synthetic 1 --num-images 0 --out z.pcap", 2, &["0 images"]);
    refuse(&place, "prepare --images empty --out new/z.pcap", 7, &["empty", "no image"]);
    refuse(&place, "prepare --cifar10 empty.bin --out new/z.pcap", 7, &["empty.bin"]);
    refuse(&place, "prepare --cifar10 c.yaml --out new/z.pcap", 7, &["c.yaml", "3073"]);
}

#[test]
fn i04_i06_a_geometry_that_cannot_be_is_refused_by_the_generator() {
    let place = fixture();
    let prepare = "prepare --synthetic 1 --num-images 5 --out new/z.pcap";
    for (flag, said) in [
        ("--seq-bit-width 3", "seq_bit_width"),
        ("--seq-bit-width 0", "seq_bit_width: a bit field of 0 bits, allowed 1 to 32"),
        ("--seq-bit-width 33", "seq_bit_width: a bit field of 33 bits, allowed 1 to 32"),
        ("--out-payload-len 1000", "588"),
        ("--packets-per-image 100", "packets_per_image"),
        ("--header-size 41", "41"),
    ] {
        let line = format!("{prepare} {flag}");
        let output = refused(&place, || place.tensorwire(&words(&line)), 3, &["tensorwire: "]);
        assert!(output.stderr.contains(said), "{flag}: {}", output.stderr);
    }
}

#[test]
fn outputs_that_cannot_be_written_are_named_and_nothing_is_half_written() {
    let place = fixture();
    // A path below a file.
    refuse(&place, "prepare --synthetic 1 --out c.yaml/z.pcap", 7, &["c.yaml/z.pcap", "directory"]);
    let export = "export-model --arch resnet18 --weights seed:1 --output";
    refuse(&place, &format!("{export} c.yaml/x.onnx"), 7, &["c.yaml/x.onnx", "irectory"]);
    refuse(&place, "demo --images 1 --out c.yaml/d", 7, &["c.yaml/d", "irectory"]);
    // A directory in the place of the file.
    refuse(&place, "prepare --synthetic 1 --out data", 7, &["data", "directory"]);
    refuse(&place, &format!("{export} data"), 7, &["data", "not a"]);
    // What is no file keeps its name. (Were it not so, this test would replace the device: the
    // link is in its stead.)
    std::os::unix::fs::symlink("/dev/full", place.file("full")).expect("a link");
    for line in ["prepare --synthetic 1 --out full", &format!("{export} full")] {
        let output = place.tensorwire(&words(line)).expect_code(7);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains("full"), "{}", output.stderr);
        let link = fs::symlink_metadata(place.file("full")).expect("the link");
        assert!(link.is_symlink(), "{line} replaced it");
    }
}

#[test]
fn a_feature_file_that_cannot_be_written_stops_the_run_before_it_starts() {
    let place = Workplace::new();
    let loopback = config("resnet50_sw_loopback.yaml").display().to_string();
    let prepare = format!("prepare --synthetic 5 --num-images 32 --config {loopback}");
    let _ = place.tensorwire(&words(&prepare)).expect_code(0);
    let model = "models/resnet18_features.onnx";
    let export = format!("export-model --arch resnet18 --weights seed:1 --output {model}");
    let _ = place.tensorwire(&words(&export)).expect_code(0);
    std::os::unix::fs::symlink("/dev/full", place.file("full")).expect("a link");
    for (path, said) in [
        ("models/resnet18_features.onnx/f.npy", "irectory"),
        ("models", "irectory"),
        ("full", "not a file"),
    ] {
        let line = format!("run {loopback} --no-pin --model resnet18 --quiet --features {path}");
        let output = place.tensorwire(&words(&line)).expect_code(7);
        assert_eq!((output.stdout.as_str(), output.stderr.lines().count()), ("", 1));
        assert!(output.stderr.contains(path) && output.stderr.contains(said), "{}", output.stderr);
    }
    assert!(fs::symlink_metadata(place.file("full")).is_ok_and(|link| link.is_symlink()));
    assert_eq!(place.files().iter().filter(|name| name.contains("npy")).count(), 0);
}

#[test]
fn a_disk_that_fills_up_leaves_nothing_half_written() {
    let place = Workplace::new();
    let loopback = config("resnet50_sw_loopback.yaml").display().to_string();
    let export = "export-model --arch resnet18 --weights seed:1 --output";
    let model = "models/resnet18_features.onnx";
    let _ = place.tensorwire(&words(&format!("{export} {model}"))).expect_code(0);
    let prepare = format!("prepare --synthetic 5 --num-images 32 --config {loopback}");
    let _ = place.tensorwire(&words(&prepare)).expect_code(0);
    // No file may grow beyond this many blocks; the signal that comes with it is ignored. Over what
    // is there already, over a new name, and in a new folder.
    let run = format!("run {loopback} --no-pin --quiet --model resnet18 --features f.npy");
    for line in [
        &prepare,
        &format!("{prepare} --out new/z.pcap"),
        &format!("{export} {model}"),
        &format!("{export} x.onnx"),
        &run,
    ] {
        let line = format!("trap '' XFSZ; ulimit -f 16; exec \"$TW\" {line}");
        let output = refused(&place, || place.shell(&line), 7, &["tensorwire: "]);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains("File too large"), "{}", output.stderr);
    }
}

#[test]
fn c26_validate_gives_every_file_its_verdict_in_order() {
    let place = fixture();
    place.write("bad.yaml", Yaml::small(Small::MINI).set("packets_per_image", 5));
    let line = "validate c.yaml bad.yaml no.yaml c.yaml";
    let output = place.tensorwire(&words(line)).expect_code(3);
    let verdicts: Vec<&str> = output
        .stdout
        .lines()
        .filter(|line| {
            line.starts_with("c.yaml: ") || line.contains("bad.yaml: ") || line.contains("no.yaml")
        })
        .collect();
    assert_eq!(verdicts.len(), 4, "{}", output.stdout);
    assert!(verdicts[0].starts_with("c.yaml: ") && verdicts[3] == verdicts[0], "{verdicts:?}");
    assert!(verdicts[1].starts_with("bad.yaml: ") && verdicts[1].contains("error"), "{verdicts:?}");
    assert!(verdicts[2].contains("no.yaml: cannot be read"), "{verdicts:?}");
    for (files, code) in [
        ("c.yaml", 0),
        ("no.yaml", 7),
        ("c.yaml no.yaml", 7),
        ("no.yaml bad.yaml", 3),
        ("c.yaml c.yaml", 0),
    ] {
        let _ = place.tensorwire(&words(&format!("validate {files}"))).expect_code(code);
    }
    let _ = place.tensorwire(&words("validate --deny-warnings c.yaml")).expect_code(0);
    let wire = config("resnet50_wire_loopback.yaml").display().to_string();
    let _ = place.tensorwire(&["validate", &wire]).expect_code(0);
    let _ = place.tensorwire(&["validate", "--deny-warnings", &wire]).expect_code(1);
}

#[test]
fn the_doctor_refuses_what_it_cannot_read_and_has_a_line_for_each_problem() {
    let place = fixture();
    place.write("bad.yaml", Yaml::small(Small::MINI).set("packets_per_image", 5));
    refuse(&place, "doctor --root no", 7, &["--root no"]);
    refuse(&place, "doctor no.yaml", 7, &["no.yaml"]);
    let output = place.tensorwire(&words("doctor bad.yaml")).expect_code(3);
    assert!(output.stdout.is_empty() && output.stderr.contains("TW0"), "{}", output.stderr);
    // An empty folder is a machine that has nothing; the device of this file is not in it.
    std::fs::create_dir(place.path().join("machine")).expect("a folder");
    let spark = config("resnet50_rx_spark_xhost.yaml").display().to_string();
    let output =
        place.tensorwire(&["doctor", "--root", "machine", "--json", &spark]).expect_code(5);
    let all: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let missing = |finding: &&serde_json::Value| {
        finding["state"] == "problem" && finding["subject"] == "0000:01:00.0"
    };
    assert_eq!(all.as_array().map(|all| all.iter().filter(missing).count()), Some(1), "{all:#}");
    let output = place.tensorwire(&words("doctor")).expect_code(0);
    assert!(output.stdout.lines().count() > 8, "{}", output.stdout);
}

/// The system refuses the program more than 64 MiB of addresses, which no reading of what it holds
/// could prove.
#[test]
fn c10_an_alias_bomb_is_refused_in_64_mebibytes() {
    let place = fixture();
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let nine = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{nine}]\n");
    }
    place.write("bomb.yaml", &bomb);
    place.write("junk.yaml", vec![b'['; 10 << 20]);
    let limited = |kib: u32, file: &str| {
        place.shell(&format!("ulimit -v {kib}; exec \"$TW\" validate {file}"))
    };
    for (file, said) in [("bomb.yaml", "error[TW0107]"), ("junk.yaml", "error[TW0102]")] {
        let refused = limited(64 << 10, file).expect_code(3);
        assert!(refused.stdout.contains(said), "{file}: {}", refused.stdout);
    }
    let _ = limited(64 << 10, "c.yaml").expect_code(0);
    // The limit is one: with next to nothing the program does not even start.
    assert_ne!(limited(1 << 10, "c.yaml").code, Some(0));
}

#[test]
fn validate_reads_standard_input() {
    let place = fixture();
    let piped = place.shell("\"$TW\" validate - <c.yaml").expect_code(0);
    let named = place.tensorwire(&["validate", "c.yaml"]).expect_code(0);
    assert_eq!(piped.stdout, named.stdout.replace("c.yaml", "<stdin>"));
    let output = place.shell("echo 'daqiri: 5' | \"$TW\" validate -").expect_code(3);
    assert!(output.stdout.contains("<stdin>:1:"), "{}", output.stdout);
    let empty = place.shell("\"$TW\" validate - </dev/null").expect_code(3);
    assert!(empty.stdout.contains("no configuration"), "{}", empty.stdout);
}

#[test]
fn a_reader_that_goes_away_is_no_fault_and_a_full_disk_is_one() {
    let place = fixture();
    let run = format!("{RUN} --json --quiet");
    for line in ["validate c.yaml", "schema", "geometry c.yaml", "explain TW0902", "--help", &run] {
        // The reader is gone before the program starts.
        let script = format!("{{ sleep 0.2; \"$TW\" {line}; echo $? >code; }} | true");
        let output = place.shell(&script);
        assert_eq!(output.stderr, "", "{line}");
        assert_eq!(fs::read_to_string(place.file("code")).expect("a code"), "0\n", "{line}");
        // Nobody listens at all.
        let output = place.shell(&format!("\"$TW\" {line} >&- 2>&-")).expect_code(0);
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""), "{line}");
        if line == "--help" {
            continue; // The text of the parser is not ours to check.
        }
        let output = place.shell(&format!("\"$TW\" {line} >/dev/full")).expect_code(7);
        assert!(output.stderr.contains("stdout cannot be written: No space left"), "{line}");
    }
}
