//! How a run starts, what ends it, and what it says meanwhile.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tensorwire::sink::npy;
use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Output, Workplace};

/// A configuration `c.yaml` and its capture of `images` images.
fn small(yaml: &Yaml, images: u32) -> Workplace {
    let place = Workplace::new();
    place.write("c.yaml", yaml);
    let images = images.to_string();
    let args = ["prepare", "--synthetic", "5", "--num-images", &images, "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

/// A ResNet-18 besides, and a configuration in the documented geometry.
fn large(yaml: &Yaml, images: u32) -> Workplace {
    let place = small(yaml, images);
    let model = "models/resnet18_features.onnx";
    let args = ["export-model", "--arch", "resnet18", "--weights", "seed:5", "--output", model];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

fn documented() -> Yaml {
    Yaml::shipped("resnet50_sw_loopback.yaml")
}

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "c.yaml", "--no-pin"], more].concat()
}

fn number(summary: &Value, path: &str) -> u64 {
    let found = summary.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {path}: {summary:#}"))
}

/// Starts a run that goes on until it is stopped, sends it a signal once it delivers, and waits.
/// Nothing shows from outside when the first image was delivered; on a busy machine it takes
/// longer, so a run that was stopped too early is tried again with more patience.
fn stopped_by(place: &Workplace, args: &[&str], signal: &str) -> Output {
    let mut pauses = [200, 2_000, 20_000].into_iter().map(Duration::from_millis);
    loop {
        let pause = pauses.next().expect("images are delivered within 20 s");
        let mut running = place.start(args);
        running.wait_until_ready();
        thread::sleep(pause);
        running.signal(signal);
        let output = running.wait();
        if number(&output.json(), "/images/delivered") > 0 {
            return output;
        }
    }
}

#[test]
fn a_signal_ends_a_run_in_order_with_the_exit_code_of_what_is_owed() {
    let place = small(&Yaml::small(Small::MINI), 64);
    for signal in ["INT", "TERM"] {
        let args = run(&["--backend", "none", "--loop", "--json"]);
        let output = stopped_by(&place, &args, signal).expect_code(0);
        let summary = output.json();
        assert_eq!(summary["ended_by"], "stopped");
        assert_eq!(summary["balanced"], true);
        // Everything that was handed over was still delivered.
        assert_eq!(number(&summary, "/images/pending"), 0);
        let last = output.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("tensorwire: complete: "), "{}", output.stderr);
    }
    let owed = ["--backend", "none", "--loop", "--json", "--expected-images", "1000000000000"];
    let output = stopped_by(&place, &run(&owed), "INT").expect_code(4);
    let reason = output.json()["exit_reason"].to_string();
    assert!(reason.contains("of 1000000000000 images (stopped)"), "{reason}");
}

#[test]
fn a_second_signal_ends_a_run_that_drains() {
    let place = large(&documented(), 32);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let args = run(&["--model", "resnet18", "--loop", "--json", "--features", "f.npy"]);
        let mut running = place.start(&args);
        running.wait_until_ready();
        // By then several batches wait for an inference that takes a while for each.
        thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        let output = running.wait().expect_code(code);
        assert_eq!(output.stdout, "", "no summary of a run that was cut off");
        assert!(!place.file("f.npy").exists());
    }
}

#[test]
fn a_limit_of_seconds_ends_any_run() {
    let looped = small(&Yaml::small(Small::MINI), 64);
    let args = run(&["--backend", "none", "--loop", "--seconds", "1", "--json"]);
    let summary = looped.tensorwire(&args).expect_code(0).json();
    assert_eq!(summary["ended_by"], "time limit", "{summary:#}");
    let seconds = summary["rate"]["wall_seconds"].as_f64().expect("a time");
    assert!(seconds >= 1.0, "{seconds} s");

    let synthetic = Workplace::new();
    synthetic.write("c.yaml", Yaml::small(Small::MINI).synthetic());
    let args = run(&["--backend", "none", "--seconds", "0.3", "--json"]);
    let summary = synthetic.tensorwire(&args).expect_code(0).json();
    assert_eq!(summary["ended_by"], "time limit", "{summary:#}");
    assert_eq!(summary["balanced"], true);
}

#[test]
fn l03_nothing_arrived_is_never_a_success() {
    // Made-up frames to one port, a receiver that listens on another.
    let deaf = Yaml::small(Small::MINI).synthetic().set_at("match:", "udp_dst", 5_000);
    let place = Workplace::new();
    place.write("c.yaml", deaf);
    let args = run(&["--backend", "none", "--seconds", "0.3", "--json"]);
    let summary = place.tensorwire(&args).expect_code(4).json();
    assert_eq!(number(&summary, "/images/delivered"), 0);
    assert!(number(&summary, "/packets/other_flow") > 0, "{summary:#}");
    assert_eq!(summary["exit_reason"], "0 images, none owed (time limit)");
}

#[test]
fn s03_a_pass_that_brings_less_than_owed_says_how_much_less() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let owed = ["--backend", "none", "--expected-images", "100", "--json", "--quiet"];
    let output = place.tensorwire(&run(&owed)).expect_code(4);
    assert_eq!(
        output.stderr,
        "tensorwire: not complete: 64 of 100 images (sender done) (exit code 4)\n"
    );
    let summary = output.json();
    assert_eq!(summary["missing_ranges"], serde_json::json!([[64, 99]]));
    // More labels than images are a debt as well.
    let labels = "data/cifar10_resnet.pcap.labels";
    let more = fs::read_to_string(place.file(labels)).expect("labels") + "1\n2\n";
    place.write(labels, more);
    let output = place.tensorwire(&run(&["--backend", "none", "--json"])).expect_code(4);
    assert_eq!(output.json()["exit_reason"], "64 of 66 images (sender done)");
}

#[test]
fn l01_readiness_is_said_on_stderr_and_on_a_descriptor() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let line =
        "exec \"$TW\" run c.yaml --no-pin --backend none --loop --quiet --ready-fd 3 3>ready";
    let mut running = place.start_shell(line);
    running.wait_until(|_| {
        fs::read_to_string(place.file("ready")).is_ok_and(|said| said == "ready\n")
    });
    running.signal("INT");
    let output = running.wait();
    // It said so on the descriptor alone, and only once.
    assert_eq!(output.stdout, "");
    assert_eq!(fs::read_to_string(place.file("ready")).expect("the file"), "ready\n");
    // On a pipe.
    let line =
        "\"$TW\" run c.yaml --no-pin --backend none --quiet --ready-fd 3 3>&1 >/dev/null | cat";
    let output = place.shell(line).expect_code(0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("ready\n", ""));
    // On stderr it is a line of its own, before the summary.
    let output = place.tensorwire(&run(&["--backend", "none"])).expect_code(0);
    let at = |line: &str| output.stderr.lines().position(|said| said.starts_with(line));
    assert!(at("tensorwire: ready").is_some() && at("tensorwire: ready") < at("images: "));
}

#[test]
fn l04_a_start_that_fails_at_any_stage_leaves_nothing_behind() {
    let place = large(&documented(), 32);
    let (model, capture) = ("models/resnet18_features.onnx", "data/cifar10_resnet.pcap");
    let whole = fs::read(place.file(model)).expect("the model");
    let frames = fs::read(place.file(capture)).expect("the capture");
    let args = run(&["--model", "resnet18", "--features", "f.npy", "--quiet"]);
    let before = place.files();
    // In the order of the start: each stage fails when those before it have what they need.
    let fail = |stage: &str, line: &str, code: i32| {
        let output = place.shell(line).expect_code(code);
        assert_eq!(place.files(), before, "{stage}: {}", output.stderr);
    };
    let line = format!("exec \"$TW\" {}", args.join(" "));
    fail("descriptor", &format!("{line} --ready-fd 9 9>&-"), 2);
    fail("option", &format!("{line} --sim-shuffle 1000000"), 2);
    place.write("c.yaml", documented().set("packets_per_image", 3));
    fail("configuration", &line, 3);
    place.write("c.yaml", documented());
    place.write(capture, &frames[..frames.len() - 1]);
    fail("capture", &line, 7);
    place.write(capture, &frames);
    place.write(model, &whole[..whole.len() / 2]);
    fail("model", &line, 7);
    place.write(model, &whole);
    // Nothing has to be cleaned up: the next start succeeds, and the one after it, too.
    for _ in 0..2 {
        let _ = place.tensorwire(&args).expect_code(0);
        assert_eq!(place.files().len(), before.len() + 1, "the features and nothing else");
    }
}

#[test]
fn l06_json_is_one_object_and_quiet_is_quiet() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let output = place.tensorwire(&run(&["--backend", "none", "--json"])).expect_code(0);
    // One line, one object, one line end.
    assert_eq!(output.stdout.matches('\n').count(), 1);
    assert!(output.stdout.starts_with('{') && output.stdout.ends_with("}\n"));
    let summary = output.json();
    assert_eq!((number(&summary, "/exit_code"), number(&summary, "/schema")), (0, 1));
    // The talk has the same figures.
    assert!(output.stderr.contains("images: expected=64 delivered=64 "), "{}", output.stderr);
    let output = place.tensorwire(&run(&["--backend", "none", "--quiet"])).expect_code(0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""));
    let output = place.tensorwire(&run(&["--backend", "none", "--quiet", "--json"]));
    assert_eq!((output.json()["exit_code"].as_u64(), output.stderr.as_str()), (Some(0), ""));
    // Without a terminal there are neither colours nor progress bars.
    let output = place.tensorwire(&run(&["--backend", "none"])).expect_code(0);
    assert!(!output.stderr.contains('\u{1b}') && !output.stderr.contains('\r'));
}

#[test]
fn passes_run_on_in_one_sequence_unless_they_are_sent_verbatim() {
    // 48 images are 192 packets; the number space is 256.
    let place = small(&Yaml::small(Small::MINI), 48);
    let looped = ["--backend", "none", "--expected-images", "500", "--json", "--loop"];
    let summary = place.tensorwire(&run(&looped)).expect_code(0).json();
    assert!(number(&summary, "/images/delivered") >= 500);
    assert_eq!(number(&summary, "/images/missing"), 0, "{summary:#}");
    assert_eq!(number(&summary, "/discontinuities"), 0);
    assert_eq!(summary["ended_by"], "complete");
    // Sent as they are, each pass begins at number 0 again: 64 numbers are left out.
    let verbatim = ["--backend", "none", "--expected-images", "500", "--json", "--loop-verbatim"];
    let summary = place.tensorwire(&run(&verbatim)).expect_code(0).json();
    assert_eq!(summary["missing_ranges"][0], serde_json::json!([48, 63]), "{summary:#}");
    // A pass that fills the number space is seamless either way.
    let place = small(&Yaml::small(Small::MINI), 64);
    for how in ["--loop", "--loop-verbatim"] {
        let args = run(&["--backend", "none", "--expected-images", "500", "--json", how]);
        let summary = place.tensorwire(&args).expect_code(0).json();
        assert_eq!(number(&summary, "/images/missing"), 0, "{how}: {summary:#}");
        assert!(number(&summary, "/images/delivered") >= 500);
    }
}

#[test]
fn a_poller_of_its_own_changes_nothing() {
    let split = Yaml::small(Small::MINI).with("tensorwire", "{rx_poll: split}");
    let place = small(&split, 256);
    place.write("fused.yaml", Yaml::small(Small::MINI));
    let faults =
        ["--sim-drop", "1/100", "--sim-dup", "1/30", "--sim-shuffle", "3", "--sim-seed", "4"];
    let mut told = Vec::new();
    for yaml in ["c.yaml", "fused.yaml"] {
        let args = ["run", yaml, "--no-pin", "--backend", "none", "--json", "--quiet"];
        let clean = place.tensorwire(&args).expect_code(0).json();
        assert_eq!(number(&clean, "/packets/placed"), 1024);
        let faulty = place.tensorwire(&[&args[..], &faults].concat()).expect_code(4).json();
        told.push(["images", "damaged_ranges", "slots"].map(|key| faulty[key].clone()));
    }
    assert_eq!(told[0], told[1]);
    // It ends on a signal as well, with every packet back.
    let args = run(&["--backend", "none", "--loop", "--json"]);
    let summary = stopped_by(&place, &args, "INT").expect_code(0).json();
    assert_eq!(summary["balanced"], true);
}

#[test]
fn g03_a_slow_model_loses_whole_batches_by_name_where_dropping_is_allowed() {
    let yaml = documented().with("tensorwire", "{backpressure: drop, queue_depth: 1}");
    let place = large(&yaml, 128);
    let args = run(&["--model", "resnet18", "--json", "--features", "f.npy"]);
    let summary = place.tensorwire(&args).expect_code(4).json();
    let delivered = number(&summary, "/images/delivered");
    let dropped = number(&summary, "/images/dropped/queue_full");
    assert_eq!(delivered + dropped, 128, "{summary:#}");
    assert!(dropped >= 32 && delivered >= 32, "{delivered} delivered, {dropped} dropped");
    // It is no loss of the network.
    for counter in ["/images/damaged", "/images/missing", "/slots/missing", "/nic/missed"] {
        assert_eq!(number(&summary, counter), 0, "{counter}");
    }
    let features = npy::read(&place.file("f.npy")).expect("the features");
    let rows = (0..128).map(|row| features.row(row).expect("a row"));
    let holes = rows.filter(|row| row.iter().all(|value| value.is_nan())).count();
    assert_eq!(holes as u64, dropped);
}

#[test]
fn i01_sub_batches_lose_no_image_and_give_the_same_bits() {
    let yaml = documented().set("pca_every_n_batches", 1);
    let place = large(&yaml, 32);
    let mut all = Vec::new();
    for images in ["32", "16", "8", "1"] {
        let args = ["--model", "resnet18", "--features", "f.npy", "--images-per-batch", images];
        let output = place.tensorwire(&run(&args)).expect_code(0);
        // stdout is data: a line for each image of each submission.
        let lines: Vec<&str> = output.stdout.lines().collect();
        let of_image = |i: usize| format!("image={i} class=");
        assert_eq!(lines.len(), 32, "{}", output.stdout);
        for (index, line) in lines.iter().enumerate() {
            assert!(line.starts_with("pc1=") && line.contains(" pc2="), "{line}");
            assert!(line.contains(&of_image(index)), "{line}");
        }
        let features = npy::read(&place.file("f.npy")).expect("the features");
        all.push(features.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        let per =
            format!("(per batch of {images} images, n={})", 32 / images.parse::<u32>().expect("n"));
        assert!(output.stderr.contains(&per), "no {per} in {}", output.stderr);
    }
    for other in &all[1..] {
        assert!(*other == all[0], "other features");
    }
}

#[test]
fn partial_batches_are_given_up_where_the_policy_says_so() {
    let place = small(&Yaml::small(Small::MINI).with("tensorwire", "{missing: drop}"), 256);
    let args = run(&["--backend", "none", "--json", "--sim-drop", "1/100"]);
    let summary = place.tensorwire(&args).expect_code(4).json();
    // 10 of 1024 packets are lost, each in a batch of its own: its 3 whole images are given up.
    assert_eq!(number(&summary, "/images/damaged"), 10);
    assert_eq!(number(&summary, "/images/dropped/policy"), 30);
    assert_eq!(number(&summary, "/images/delivered"), 256 - 40);
    assert_eq!(number(&summary, "/jobs"), 64 - 10);
}

#[test]
fn the_labels_of_another_data_set_are_its_own() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let args = ["prepare", "--synthetic", "6", "--num-images", "32", "--config", "c.yaml"];
    let _ = place.tensorwire(&[&args[..], &["--out", "other.pcap"]].concat()).expect_code(0);
    // 32 images and 32 labels: the 64 labels of the configuration would be a debt of 64 images.
    let args = run(&["--backend", "none", "--json", "--dataset", "other.pcap"]);
    let summary = place.tensorwire(&args).expect_code(0).json();
    assert_eq!(number(&summary, "/images/owed"), 32);
    // Without labels beside it there are none, and what its frames hold is owed.
    fs::remove_file(place.file("other.pcap.labels")).expect("it is there");
    let summary = place.tensorwire(&args).expect_code(0).json();
    assert_eq!(number(&summary, "/images/owed"), 32);
}

#[test]
fn s01_too_few_labels_are_told_once() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let labels = place.files().into_iter().find(|name| name.ends_with(".labels")).expect("labels");
    let text = fs::read_to_string(place.file(&labels)).expect("text");
    let few: Vec<&str> = text.lines().take(20).collect();
    place.write(&labels, few.join("\n"));
    let output = place.tensorwire(&run(&["--backend", "none"])).expect_code(0);
    let told = |line: &&str| line.contains("no label");
    let lines: Vec<&str> = output.stderr.lines().filter(told).collect();
    assert_eq!(lines.len(), 1, "{}", output.stderr);
    assert!(lines[0].contains("44 images have no label"), "{}", lines[0]);
}

/// Killed while it prepares: what it had begun is taken away by the next that writes the same.
#[test]
fn what_a_killed_process_had_begun_is_taken_away_by_the_next() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let begun =
        |place: &Workplace| place.files().into_iter().filter(|f| f.ends_with(".tmp")).count();
    // Many images, so that it is killed before it is done.
    let prepare = |images: &str| {
        [
            "prepare",
            "--synthetic",
            "5",
            "--num-images",
            images,
            "--config",
            "c.yaml",
            "--out",
            "x.pcap",
        ]
        .map(str::to_owned)
    };
    let running = place.start(&prepare("1000000"));
    let start = Instant::now();
    while begun(&place) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "it writes nothing");
        thread::sleep(Duration::from_millis(2));
    }
    running.signal("KILL");
    assert_eq!(running.wait().code, None);
    assert!(begun(&place) > 0, "a killed process cannot clean up");
    let _ = place.tensorwire(&prepare("64")).expect_code(0);
    assert_eq!(begun(&place), 0, "{:?}", place.files());
}

#[test]
fn c23_cores_are_never_ignored_in_silence() {
    let place = small(&Yaml::small(Small::MINI), 64);
    let args = ["run", "c.yaml", "--backend", "none"];
    // No machine has a core 1000.
    place.write("c.yaml", Yaml::small(Small::MINI).set_at("bench_rx:", "cpu_core", 1_000));
    let output = place.tensorwire(&args).expect_code(0);
    // Another notice may tell that there is no GPU.
    let of_cores = |line: &&str| line.starts_with("notice: ") && line.contains(" not pinned");
    assert_eq!(output.stderr.lines().filter(of_cores).count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("bench_rx[0].cpu_core: 1000"), "{}", output.stderr);
    // Asked not to pin, there is nothing to notice.
    let output = place.tensorwire(&[&args[..], &["--no-pin"]].concat()).expect_code(0);
    assert_eq!(output.stderr.lines().filter(of_cores).count(), 0, "{}", output.stderr);
}
