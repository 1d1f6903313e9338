//! Two hosts over a cable: two processes in two network namespaces joined by veth. Skipped with the
//! reason where this process is not root or `ip` is missing.
//!
//! Everything here is written for a *pair* of configurations, so that another kind of NIC on the
//! same cable is one more pair.

use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tensorwire::sink::npy;
use tensorwire_tests::netns::{Host, TwoHosts};
use tensorwire_tests::yaml::Yaml;
use tensorwire_tests::{Output, Workplace, report, shared, with_dpdk};

mod offload;

/// Images of the capture.
const IMAGES: u64 = 256;

/// Frames of the capture.
const FRAMES: u64 = IMAGES * 128;

/// The two configurations of one kind of NIC, for the routable layout.
#[derive(Clone, Copy)]
struct Pair {
    tx: &'static str,
    rx: &'static str,
    /// The program has to have DPDK in it.
    dpdk: bool,
}

const SOCKETS: Pair =
    Pair { tx: "resnet50_tx_socket.yaml", rx: "resnet50_rx_socket.yaml", dpdk: false };

/// Raw frames on the interfaces of the kernel, by DPDK's af_packet.
const VETH: Pair = Pair { tx: "resnet50_tx_veth.yaml", rx: "resnet50_rx_veth.yaml", dpdk: true };

impl Pair {
    /// Two hosts, where this kind of NIC can run; otherwise says why `test` is skipped.
    fn hosts(self, test: &str) -> Option<TwoHosts> {
        if self.dpdk && !with_dpdk(test) {
            return None;
        }
        TwoHosts::new(test)
    }

    /// Two hosts whose cable, once pulled, loses what is sent, unseen by the sender: it is pulled
    /// behind a switch.
    fn losing_hosts(self, test: &str) -> Option<TwoHosts> {
        if self.dpdk && !with_dpdk(test) {
            return None;
        }
        TwoHosts::behind_a_switch(test)
    }

    /// A folder with both, changed as the test wants: paced so that a busy machine keeps up.
    fn place(self, mbps: u32, change: impl Fn(Yaml) -> Yaml) -> Workplace {
        let place = Workplace::new();
        place.write("tx.yaml", change(Yaml::shipped(self.tx).set("pacing_mbps", mbps)));
        place.write("rx.yaml", change(Yaml::shipped(self.rx)));
        place
    }
}

/// CIFAR-10 images where this machine has them, made-up ones elsewhere.
fn prepare(place: &Workplace) {
    let count = IMAGES.to_string();
    let source = shared("CIFAR-10 images on two hosts (made-up ones are sent)");
    let source = match &source {
        Some(shared) => [
            "--cifar10".to_owned(),
            shared.join("data/cifar10_test_1000.bin").display().to_string(),
        ],
        None => ["--synthetic".to_owned(), "5".to_owned()],
    };
    let [kind, from] = &source;
    let args = ["prepare", kind, from, "--num-images", &count, "--config", "tx.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
}

/// One run: the receiver with these arguments, then the sender.
fn run(hosts: &TwoHosts, place: &Workplace, rx_args: &[&str]) -> (Output, Output) {
    run_with(hosts, place, rx_args, || ())
}

/// The same; `meanwhile` once the sender is on its way.
fn run_with(
    hosts: &TwoHosts,
    place: &Workplace,
    rx_args: &[&str],
    meanwhile: impl FnOnce(),
) -> (Output, Output) {
    let args = [&["run", "rx.yaml", "--no-pin", "--json"], rx_args].concat();
    let mut rx = hosts.start(Host::Rx, place, &args);
    rx.wait_until_ready();
    let tx = send(hosts, place);
    meanwhile();
    (rx.wait(), tx.wait())
}

fn send(hosts: &TwoHosts, place: &Workplace) -> tensorwire_tests::background::Background {
    let mut tx = hosts.start(Host::Tx, place, &["run", "tx.yaml", "--no-pin", "--json"]);
    tx.wait_until_ready();
    tx
}

#[track_caller]
fn number(summary: &Value, path: &str) -> u64 {
    let found = summary.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {path}: {summary:#}"))
}

/// What holds of every run, whatever was lost.
#[track_caller]
fn assert_accounted(rx: &Output, tx: &Output) -> (Value, Value) {
    let (received, sent) = (rx.json(), tx.json());
    assert_eq!(tx.code, Some(0), "{}", tx.stderr);
    assert_eq!(number(&sent, "/tx/sent"), FRAMES);
    assert_eq!(sent["exit_reason"], json!(format!("sent {FRAMES} of {FRAMES} frames")));
    let said = format!("sent {FRAMES}/{FRAMES} frames in ");
    assert!(tx.stderr.contains(&said), "{}", tx.stderr);
    assert_eq!(received["balanced"], true, "{received:#}");
    let count = |key: &str| number(&received, &format!("/images/{key}"));
    let images = count("delivered") + count("damaged") + count("missing") + count("unfinished");
    assert_eq!(images, count("expected"), "{received:#}");
    (received, sent)
}

/// Everything came, and nothing else.
#[track_caller]
fn assert_whole(rx: &Output, tx: &Output) {
    assert_eq!(rx.code, Some(0), "{}\n{}", rx.stdout, rx.stderr);
    let (received, _) = assert_accounted(rx, tx);
    for (path, expected) in [
        ("/images/delivered", IMAGES),
        ("/images/expected", IMAGES),
        ("/packets/placed", FRAMES),
        ("/batches", IMAGES / 32),
        ("/nic/missed", 0),
        ("/nic/errors", 0),
        ("/discontinuities", 0),
        ("/join/wire", 0),
    ] {
        assert_eq!(number(&received, path), expected, "{path}: {received:#}");
    }
    assert_eq!(ours(&received), FRAMES, "{received:#}");
    for (cause, count) in received["partial_by"].as_object().expect("causes") {
        assert_eq!(count, &json!(0), "partial by {cause}");
    }
    assert_eq!(received["join"]["anchored"], true);
}

/// Arguments of a run that infers.
const INFERRED: [&str; 5] = ["--expected-images", "256", "--model", "resnet18", "--features"];

/// The features of the software NIC's run, in `sw.npy`.
fn infer_by_software(place: &Workplace) {
    let model = "models/resnet18_features.onnx";
    let args = ["export-model", "--arch", "resnet18", "--weights", "seed:5", "--output", model];
    let _ = place.tensorwire(&args).expect_code(0);
    place.write("sw.yaml", Yaml::shipped("resnet50_routable_loopback.yaml"));
    let args = [&["run", "sw.yaml", "--no-pin", "--json"], &INFERRED[..], &["sw.npy"]].concat();
    let _ = place.tensorwire(&args).expect_code(0);
    let software = npy::read(&place.file("sw.npy")).expect("features");
    assert_eq!(u64::from(u32::try_from(software.rows).expect("small")), IMAGES);
}

/// A run over the cable that infers: everything comes, and the features are those of `sw.npy`.
fn same_features(hosts: &TwoHosts, place: &Workplace) -> Value {
    let (rx, tx) = run(hosts, place, &[&INFERRED[..], &["rx.npy"]].concat());
    assert_whole(&rx, &tx);
    let same = fs::read(place.file("sw.npy")).expect("a file")
        == fs::read(place.file("rx.npy")).expect("a file");
    assert!(same, "other features than over the software NIC");
    rx.json()
}

/// 256 images three times in a row, none partial; one run infers on top of counting, as that takes
/// a while: the features are those of the software NIC, bit for bit.
fn all_images_arrive(test: &str, pair: Pair) {
    let Some(hosts) = pair.hosts(test) else { return };
    let place = pair.place(200, |yaml| yaml);
    prepare(&place);
    infer_by_software(&place);
    let _ = same_features(&hosts, &place);
    for _ in 0..2 {
        let (rx, tx) = run(&hosts, &place, &COUNTED);
        assert_whole(&rx, &tx);
    }
}

/// A receiver that comes late gets the rest, and says what it did not get.
fn a_late_receiver_says_what_it_lacks(test: &str, pair: Pair) {
    let Some(hosts) = pair.hosts(test) else { return };
    // 331 Mb, so 11 s.
    let place = pair.place(30, |yaml| yaml);
    prepare(&place);
    let tx = send(&hosts, &place);
    thread::sleep(Duration::from_secs(5));
    let args = ["run", "rx.yaml", "--no-pin", "--json", "--backend", "none"];
    let owed = ["--expected-images", "256"];
    let rx = hosts.start(Host::Rx, &place, &[&args[..], &owed].concat()).wait();
    let (received, _) = assert_accounted(&rx, &tx.wait());
    assert_eq!(rx.code, Some(4), "{}", rx.stderr);
    let delivered = number(&received, "/images/delivered");
    assert!((1..IMAGES).contains(&delivered), "{received:#}");
    assert_eq!(
        number(&received, "/images/missing") + number(&received, "/images/damaged"),
        IMAGES - delivered
    );
    // 16 bits hold every number of this capture, so the images are known by their own indices.
    assert!(number(&received, "/join/wire") > 0, "{received:#}");
    assert_eq!(received["join"]["anchored"], true);
    let first = received["missing_ranges"][0][0].as_u64();
    assert_eq!(first, Some(0), "{received:#}");
    let reason = received["exit_reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with(&format!("{delivered} of 256 images")), "{reason}");
}

/// Frames of the capture that were offered. A raw port sees what the kernels say to each other
/// besides (neighbour discovery), also before anything is sent.
fn ours(received: &Value) -> u64 {
    let count = |key: &str| number(received, &format!("/packets/{key}"));
    let kinds = received["packets"]["malformed"].as_object().expect("kinds");
    let malformed: u64 = kinds.values().filter_map(Value::as_u64).sum();
    count("offered") - count("early") - count("other_flow") - count("short") - malformed
}

/// Frames that a receiver did not get, by the sender's total.
fn lost(received: &Value) -> u64 {
    FRAMES - ours(received)
}

/// Images are only counted: what infers is slower than what is lost here.
const COUNTED: [&str; 4] = ["--backend", "none", "--expected-images", "256"];

/// The cable is pulled for this long in the middle.
fn pulled_for(hosts: &TwoHosts, place: &Workplace, time: Duration) -> (Output, Output) {
    run_with(hosts, place, &COUNTED, || {
        thread::sleep(Duration::from_millis(700));
        hosts.cable(false);
        thread::sleep(time);
        hosts.cable(true);
    })
}

/// The cable is pulled while the sender sends about this many frames, however long that takes it:
/// how fast a sender and the commands that pull a cable are is up to how busy the machine is.
fn pulled_while(hosts: &TwoHosts, place: &Workplace, frames: u64) -> (Output, Output) {
    // A frame of the capture; what the kernel sends in one piece has one header instead of some.
    let bytes = |frames: u64| frames * 1_240;
    run_with(hosts, place, &COUNTED, || {
        hosts.cable_pulled(bytes(4_000), bytes(frames));
    })
}

/// Pulls it until the loss is within `wanted`, which is all around `frames`.
fn pulled_until(
    test: &str,
    (hosts, place): (&TwoHosts, &Workplace),
    frames: u64,
    wanted: Range<u64>,
) -> (Output, u64) {
    for attempt in 1..=8 {
        let (rx, tx) = pulled_while(hosts, place, frames);
        let (received, _) = assert_accounted(&rx, &tx);
        let lost = lost(&received);
        report(&format!("{test}: attempt {attempt}: {lost} frames lost"));
        assert_eq!(rx.code, Some(4), "{}", rx.stderr);
        if wanted.contains(&lost) {
            return (rx, lost);
        }
    }
    panic!("eight times, none of the losses was within {wanted:?}");
}

/// Within what the numbers can tell, the loss is exact: every image has its own index.
fn a_pulled_cable_costs_what_was_lost(test: &str, pair: Pair) {
    let Some(hosts) = pair.losing_hosts(test) else { return };
    let place = pair.place(30, |yaml| yaml);
    prepare(&place);
    // 16 bits: far from the half of the number space, and more than a stumble.
    let (rx, lost) = pulled_until(test, (&hosts, &place), 6_000, 1_000..20_000);
    let received = rx.json();
    assert_eq!(number(&received, "/discontinuities"), 0, "{received:#}");
    assert_eq!(number(&received, "/images/expected"), IMAGES);
    assert_eq!(number(&received, "/slots/missing") + number(&received, "/slots/unfinished"), lost);
    // A burst damages at most the image at each end.
    let (damaged, missing) =
        (number(&received, "/images/damaged"), number(&received, "/images/missing"));
    assert!((1..=2).contains(&damaged) || lost.is_multiple_of(128), "{received:#}");
    assert!(missing * 128 <= lost && lost <= (missing + damaged) * 128, "{received:#}");
    assert_eq!(number(&received, "/join/wire"), 0);
    let link = &received["links"][0];
    assert_eq!(
        (&link["name"], &link["up"], &link["downs"]),
        (&json!("twx1"), &json!(true), &json!(1))
    );
    assert!(link["down_seconds"].as_f64() > Some(0.0), "{link:#}");
}

/// A device that is taken away does not come back to who had it: the run ends and says so.
fn a_device_that_is_gone_ends_the_run(test: &str, pair: Pair) {
    let Some(hosts) = pair.losing_hosts(test) else { return };
    let place = pair.place(30, |yaml| yaml);
    prepare(&place);
    let (rx, tx) = run_with(&hosts, &place, &COUNTED, || {
        thread::sleep(Duration::from_millis(700));
        hosts.remove_receiver();
    });
    assert_eq!((rx.code, tx.code), (Some(5), Some(0)), "{}", rx.stderr);
    let received = rx.json();
    assert_eq!(received["exit_reason"], json!("link twx1: the device is gone"));
    assert_eq!(received["balanced"], true, "{received:#}");
    assert!(number(&received, "/packets/placed") > 0, "{received:#}");
}

/// Beyond it the numbers repeat: what can be seen is seen, and the run is never taken for complete.
fn beyond_the_limit_the_run_is_never_complete(test: &str, pair: Pair) {
    let Some(hosts) = pair.losing_hosts(test) else { return };
    // 12 bits: 4,096 numbers, the limit is 4,088. What is more than a half of the number space,
    // modulo the space, looks like a step back: less what the reassembly holds until it is
    // confirmed.
    let place = pair.place(30, |yaml| yaml.set("seq_bit_width", 12));
    prepare(&place);
    let looks_like_a_step_back = 4_096 + 2_048 + 16..2 * 4_096 - 16;
    let (rx, _) = pulled_until(test, (&hosts, &place), 7_000, looks_like_a_step_back);
    let received = rx.json();
    assert!(number(&received, "/discontinuities") >= 1, "{received:#}");
}

#[test]
fn sockets_bring_256_of_256_images_three_times() {
    all_images_arrive("sockets: all images", SOCKETS);
}

#[test]
fn a_socket_that_is_opened_late() {
    a_late_receiver_says_what_it_lacks("sockets: late receiver", SOCKETS);
}

#[test]
fn sockets_on_a_cable_that_is_pulled() {
    a_pulled_cable_costs_what_was_lost("sockets: pulled cable", SOCKETS);
}

#[test]
fn sockets_on_a_cable_that_is_pulled_for_long() {
    beyond_the_limit_the_run_is_never_complete("sockets: pulled for long", SOCKETS);
}

/// Without a switch the sender's own kernel drops what has no carrier, and its socket is not told.
#[test]
fn a_socket_without_carrier_loses_what_is_counted() {
    let test = "sockets: no carrier";
    let Some(hosts) = SOCKETS.hosts(test) else { return };
    let place = SOCKETS.place(50, |yaml| yaml);
    prepare(&place);
    let (rx, tx) = pulled_for(&hosts, &place, Duration::from_millis(1_500));
    let (received, _) = assert_accounted(&rx, &tx);
    let lost = lost(&received);
    report(&format!("{test}: {lost} frames lost"));
    assert!(lost > 0, "{received:#}");
    assert_eq!(rx.code, Some(4), "{}", rx.stderr);
    assert_eq!(number(&received, "/slots/missing") + number(&received, "/slots/unfinished"), lost);
}

#[test]
fn a_socket_whose_interface_is_gone() {
    a_device_that_is_gone_ends_the_run("sockets: interface gone", SOCKETS);
}

#[test]
fn raw_frames_whose_interface_is_gone() {
    a_device_that_is_gone_ends_the_run("af_packet: interface gone", VETH);
}

#[test]
fn raw_frames_bring_256_of_256_images_three_times() {
    all_images_arrive("af_packet: all images", VETH);
}

#[test]
fn a_raw_receiver_that_is_started_late() {
    a_late_receiver_says_what_it_lacks("af_packet: late receiver", VETH);
}

#[test]
fn raw_frames_on_a_cable_that_is_pulled() {
    a_pulled_cable_costs_what_was_lost("af_packet: pulled cable", VETH);
}

#[test]
fn raw_frames_on_a_cable_that_is_pulled_for_long() {
    beyond_the_limit_the_run_is_never_complete("af_packet: pulled for long", VETH);
}

/// Without a switch next to nothing is lost: the sender's kernel keeps the frames while there is no
/// carrier, its ring runs full, and the sender waits.
#[test]
fn raw_frames_wait_while_the_sender_has_no_carrier() {
    let Some(hosts) = VETH.hosts("af_packet: no carrier") else { return };
    let place = VETH.place(100, |yaml| yaml);
    prepare(&place);
    let (rx, tx) = pulled_for(&hosts, &place, Duration::from_millis(1_500));
    let (received, _) = assert_accounted(&rx, &tx);
    // 15,000 frames are due in that time; one that is on its way at that moment may be lost.
    assert!(lost(&received) < 64, "{received:#}");
}

/// Frames of a flow that nobody asked for come in, as the device has no rules; they are counted and
/// go no further.
#[test]
fn raw_frames_of_another_flow_are_counted_only() {
    let Some(hosts) = VETH.hosts("af_packet: another flow") else { return };
    let place = VETH.place(400, |yaml| yaml);
    prepare(&place);
    place.write("rx.yaml", Yaml::shipped(VETH.rx).set("udp_dst", 4097));
    let args = ["--expected-images", "256", "--backend", "none", "--seconds", "8"];
    let (rx, tx) = run(&hosts, &place, &args);
    assert_eq!((rx.code, tx.code), (Some(4), Some(0)), "{}", rx.stderr);
    let received = rx.json();
    // How many, in that time, is up to how busy the machine is.
    assert!(number(&received, "/packets/other_flow") > 1_000, "{received:#}");
    assert_eq!(number(&received, "/packets/placed"), 0, "{received:#}");
}

/// The documented layout, whose number lies on the IPv4 total length: no socket carries it, and a
/// raw frame crosses a cable with it. The script that ships with the project runs both ends.
#[test]
fn raw_frames_in_the_documented_layout() {
    let Some(hosts) = VETH.hosts("af_packet: documented layout") else { return };
    let documented = |yaml: Yaml| yaml.set("seq_bit_offset", 128).set("seq_bit_width", 12);
    let place = VETH.place(400, documented);
    prepare(&place);
    let (rx, tx) = run(&hosts, &place, &["--expected-images", "256", "--backend", "none"]);
    assert_whole(&rx, &tx);
    // 4096 numbers are one batch: every batch begins with number 0 again.
    assert_eq!(number(&rx.json(), "/batches"), IMAGES / 32);
}

#[test]
fn the_script_runs_both_ends_and_gives_both_exit_codes() {
    let Some(hosts) = TwoHosts::new("run_xhost.sh") else { return };
    let place = SOCKETS.place(400, |yaml| yaml);
    prepare(&place);
    let script = tensorwire_tests::config("run_xhost.sh").display().to_string();
    let (tx, rx) = (hosts.namespace(Host::Tx), hosts.namespace(Host::Rx));
    let line = |rx_args: &str, tx_config: &str| {
        format!(
            "TENSORWIRE=$TW {script} --rx 'ip netns exec {rx}' --tx 'ip netns exec {tx}' \
             --rx-args '--no-pin --json --backend none {rx_args}' --tx-args '--no-pin --json' \
             --tx-out tx.json rx.yaml {tx_config}"
        )
    };
    let whole = place.shell(&line("--expected-images 256", "tx.yaml")).expect_code(0);
    assert_eq!(number(&whole.json(), "/images/delivered"), IMAGES);
    let sent = fs::read_to_string(place.file("tx.json")).expect("the sender's summary");
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    assert_eq!(number(&sent, "/tx/sent"), FRAMES);
    assert!(whole.stderr.ends_with("run_xhost.sh: receiver 0, sender 0\n"), "{}", whole.stderr);
    // The receiver is owed more than is sent.
    let owed = place.shell(&line("--expected-images 257", "tx.yaml")).expect_code(4);
    assert!(owed.stderr.ends_with("run_xhost.sh: receiver 4, sender 0\n"), "{}", owed.stderr);
    // The sender has no configuration, and the receiver does not wait for it.
    let none = place.shell(&line("--expected-images 256", "none.yaml")).expect_code(4);
    assert!(none.stderr.ends_with("run_xhost.sh: receiver 4, sender 7\n"), "{}", none.stderr);
    // The receiver is refused: nothing is sent.
    let refused = place.shell(&line("--no-such-flag", "tx.yaml")).expect_code(2);
    assert!(refused.stderr.contains("never ready (exit code 2)"), "{}", refused.stderr);
}
