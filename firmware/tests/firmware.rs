//! The program as a whole, for the platform `sim`: what it checks of itself, and what it leaves
//! behind when it crashes.

use std::fs;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tensorwire_bundle::contents::{self, About, PROGRAM};
use tensorwire_bundle::store::Store;
use tensorwire_tests::{Workplace, program};

const FIRMWARE: &str = env!("CARGO_BIN_EXE_tensorwire-firmware");

fn firmware(place: &Workplace, word: &str) -> Command {
    let mut command = Command::new(FIRMWARE);
    command.current_dir(place.path()).env("STATE_DIRECTORY", place.path()).arg(word);
    // A port of its own for each test: they run at the same time.
    command.env("TENSORWIRE_METRICS", "0");
    command
}

fn run(place: &Workplace, word: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = firmware(place, word).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// A folder as a bundle has it: model and expected features.
fn bundle() -> Workplace {
    let place = Workplace::new();
    let args = ["export-model", "--arch", "resnet18", "--weights", "seed:5", "--output"];
    let _ = place.tensorwire(&[&args[..], &["model.onnx"]].concat()).expect_code(0);
    let yaml = concat!(env!("CARGO_MANIFEST_DIR"), "/sim.yaml");
    let _ = place.tensorwire(&["selftest", yaml, "--make"]).expect_code(0);
    place
}

#[test]
fn three_words_and_no_more() {
    let place = Workplace::new();
    for wrong in ["", "validate", "--help"] {
        let (code, stdout, stderr) = run(&place, wrong);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{wrong}");
        assert!(stderr.contains("run | selftest | version"), "{stderr}");
    }
    let (code, stdout, _) = run(&place, "version");
    assert_eq!(code, Some(0));
    assert!(stdout.ends_with("platform: any machine (software NIC)\nlast crash: none\n"));
}

#[test]
fn the_self_test_passes_and_finds_another_feature_and_another_model() {
    let place = bundle();
    let (code, _, stderr) = run(&place, "selftest");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("self-test: passed: 2 images of 512 features"), "{stderr}");

    // One feature of the second image: the 128 bytes of the header, then 512 + 7 values.
    let good = fs::read(place.file("golden.npy")).expect("the features");
    let mut bad = good.clone();
    bad[128 + 4 * (512 + 7)..][..4].copy_from_slice(&16f32.to_le_bytes());
    place.write("golden.npy", bad);
    let (code, _, stderr) = run(&place, "run");
    assert_eq!(code, Some(5), "a run does not start either: {stderr}");
    assert!(stderr.contains("self-test: failed: image 1, feature 7:"), "{stderr}");
    assert!(!stderr.contains("tensorwire: ready"), "{stderr}");

    place.write("golden.npy", good);
    let args = ["export-model", "--arch", "resnet18", "--weights", "seed:6", "--output"];
    let _ = place.tensorwire(&[&args[..], &["model.onnx"]].concat()).expect_code(0);
    let (code, _, stderr) = run(&place, "selftest");
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("self-test: failed: image 0, feature"), "{stderr}");
}

/// A run that is killed with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run, once it is ready.
fn ready(place: &Workplace, mut command: Command) -> Running {
    let said = fs::File::create(place.file("said")).expect("a file");
    let running = Running(command.stderr(said).spawn().expect("it starts"));
    let began = Instant::now();
    while !said_by(place).contains("tensorwire: ready\n") {
        assert!(began.elapsed() < Duration::from_secs(300), "not ready: {}", said_by(place));
        thread::sleep(Duration::from_millis(20));
    }
    running
}

/// What the last run has said so far.
fn said_by(place: &Workplace) -> String {
    fs::read_to_string(place.file("said")).unwrap_or_default()
}

/// A run that is ready, for so long, and then crashes.
fn crash_after(place: &Workplace, time: Duration) {
    let mut running = ready(place, firmware(place, "run"));
    thread::sleep(time);
    // The word of the shell: a machine need not have the program.
    let id = running.0.id().to_string();
    let killed = Command::new("sh").args(["-c", "kill -s SEGV \"$0\"", &id]).status();
    let status = running.0.wait().expect("it ends");
    assert!(killed.is_ok_and(|status| status.success()), "the shell has sent the signal");
    assert_eq!(status.code(), None, "it ends by the signal: {status}");
}

/// The packets that a record says were placed.
fn placed(told: &str) -> u64 {
    let (_, rest) = told.split_once("; packets: offered ").expect("the packets are told");
    let number =
        rest.split_once(", placed ").and_then(|(_, rest)| rest.split([',', ';', '\n']).next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_crash_is_told_by_version_and_by_the_next_start() {
    let place = bundle();
    // How long the first batch takes is up to the machine.
    let stdout = [1, 4, 16, 60].into_iter().find_map(|seconds| {
        crash_after(&place, Duration::from_secs(seconds));
        let (_, stdout, _) = run(&place, "version");
        (seconds == 60 || !stdout.contains(" 0 images in 0 batches")).then_some(stdout)
    });
    let stdout = stdout.expect("the last one counts in any case");
    let told = "last crash: SIGSEGV: memory that is not there, thread `";
    assert!(stdout.contains(told), "{stdout}");
    assert!(stdout.contains("; it was ready, "), "{stdout}");
    assert!(!stdout.contains(" 0 images in 0 batches"), "{stdout}");
    assert!(placed(&stdout) >= 2 * 128, "the packets of two images at least: {stdout}");
    let (code, _, stderr) = run(&place, "selftest");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("the last run crashed: SIGSEGV"), "{stderr}");
    let (_, _, stderr) = run(&place, "selftest");
    assert!(!stderr.contains("crashed"), "once: {stderr}");
    let (_, stdout, _) = run(&place, "version");
    assert!(stdout.contains(told), "and it is kept: {stdout}");
}

/// A bundle of the firmware, installed: `tensorwire-bundle make` and `install`.
fn install(store: &Store, place: &Workplace, name: &str) {
    let folder = place.file(name);
    fs::create_dir(&folder).expect("a folder");
    fs::copy(FIRMWARE, folder.join(PROGRAM)).expect("the program");
    for file in ["model.onnx", "golden.npy"] {
        fs::copy(place.file(file), folder.join(file)).expect("a file of the bundle");
    }
    let words = |word: &str| vec![word.to_owned()];
    let about = About { name: name.to_owned(), run: words("run"), selftest: words("selftest") };
    contents::make(&folder, &about).expect("a bundle");
    store.install(&folder).expect("it passes its self-test");
}

/// What `tensorwire-bundle begin` and `exec` start.
fn started(store: &Store, place: &Workplace, metrics: &str) -> Running {
    let start = store.start().expect("there is a bundle");
    let mut command = Command::new(start.folder.join(PROGRAM));
    command.current_dir(&start.folder).args(&start.about.run).env("TENSORWIRE_METRICS", metrics);
    ready(place, command)
}

/// The command of `tensorwire-confirm.service`, with the port of this run.
fn asking(place: &Workplace) -> Vec<String> {
    let said = said_by(place);
    let line = said.lines().find_map(|line| line.strip_prefix("metrics: http://"));
    let address = line.and_then(|line| line.strip_suffix("/metrics")).expect("it was said");
    let program = program().display().to_string();
    [&program, "status", "--interval", "0.3", "--address", address].map(str::to_owned).to_vec()
}

#[test]
fn a_bundle_of_firmware_is_confirmed_as_any_other() {
    let place = bundle();
    let store = Store::open(&place.file("state")).expect("a store");
    install(&store, &place, "1.0");
    install(&store, &place, "2.0");
    let after = Duration::from_secs(2);
    let running = started(&store, &place, "0");
    let ask = asking(&place);
    let confirmed = store.confirm_by(&ask, after);
    assert_eq!(confirmed.expect("confirmed").as_deref(), Some("2.0"), "{}", said_by(&place));
    drop(running);

    // One that nobody can ask is not.
    install(&store, &place, "3.0");
    let _running = started(&store, &place, "off");
    assert!(!said_by(&place).contains("metrics:"), "{}", said_by(&place));
    let error = store.confirm_by(&ask, after).expect_err("no answer").to_string();
    assert!(error.contains("no answer from 127.0.0.1:"), "{error}");
    assert_eq!(store.status().expect("readable").trial_starts, Some(1));
}
