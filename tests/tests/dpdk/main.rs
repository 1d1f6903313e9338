//! Runs over DPDK's virtual devices: rings and memif, which need neither a NIC nor a privilege.
//! Interfaces of the kernel are in `two_hosts`. Without DPDK in the build each test says that it
//! is skipped.

mod on_gpu;
mod standin;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Output, Workplace, report, shared, with_dpdk};

/// Images of the capture.
const IMAGES: u64 = 256;

/// Frames of the capture.
const FRAMES: u64 = IMAGES * 128;

/// Receiver and sender on the one port of a ring: what is sent is received there.
fn on_a_ring(yaml: Yaml) -> Yaml {
    yaml.set("loopback", "\"\"").set("address", "net_ring0")
}

/// The receiver's end of a memif pair, or the sender's; the socket lies in `place`.
fn memif(place: &Workplace, role: &str) -> String {
    let socket = place.file("memif.sock");
    let number = u8::from(role == "client");
    let socket = socket.display();
    format!("\"net_memif{number},role={role},id=0,rsize=12,socket={socket},socket-abstract=no\"")
}

/// Two ports of one process, joined by memif, in the routable layout.
fn on_memif(place: &Workplace) -> Yaml {
    Yaml::shipped("resnet50_wire_loopback.yaml")
        .set_at("\"tx_port\"", "address", memif(place, "client"))
        .set_at("\"rx_port\"", "address", memif(place, "server"))
        .set("eth_dst_addr", "\"02:00:00:00:00:02\"")
        .set("seq_bit_offset", 336)
        .set("seq_bit_width", 16)
}

#[track_caller]
fn number(summary: &Value, path: &str) -> u64 {
    let found = summary.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {path}: {summary:#}"))
}

/// What the driver of `port` counted under `name`.
#[track_caller]
fn driver(port: &Value, name: &str) -> u64 {
    let counters = port["counters"].as_array().expect("a list");
    let found = counters.iter().find(|counter| counter["name"] == name);
    found.and_then(|counter| counter["value"].as_u64()).unwrap_or_else(|| panic!("{name}: {port}"))
}

/// Everything came, nothing else, and everything was taken down.
#[track_caller]
fn assert_whole(output: &Output, images: u64, frames: u64) {
    assert_eq!(output.code, Some(0), "{}\n{}", output.stdout, output.stderr);
    let summary = output.json();
    for (path, expected) in [
        ("/images/delivered", images),
        ("/images/expected", images),
        ("/packets/offered", frames),
        ("/packets/placed", frames),
        ("/nic/missed", 0),
        ("/nic/errors", 0),
        ("/nic/no_buffer", 0),
        ("/discontinuities", 0),
        ("/join/wire", 0),
    ] {
        assert_eq!(number(&summary, path), expected, "{path}: {summary:#}");
    }
    // What the drivers say agrees, to the frame; the software NIC has none.
    let ports = summary["ports"].as_array().expect("a list");
    assert_eq!(ports.is_empty(), !output.stderr.contains("DPDK "), "{}", output.stderr);
    if let ports @ [receiver, ..] = ports.as_slice() {
        assert_eq!(driver(receiver, "rx_good_packets"), frames);
        assert_eq!(driver(receiver, "rx_missed_errors"), 0);
        assert_eq!(ports.last().map(|sender| driver(sender, "tx_good_packets")), Some(frames));
    }
    for (cause, count) in summary["partial_by"].as_object().expect("causes") {
        assert_eq!(count, 0, "partial by {cause}");
    }
    assert!(!output.stderr.contains("could not be taken down"), "{}", output.stderr);
}

/// Run-time folders of DPDK whose process is gone.
fn left_behind() -> Vec<PathBuf> {
    let places = ["/var/run/dpdk", "/tmp/dpdk"];
    let entries = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten());
    let dead = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = name.strip_prefix("tensorwire-");
        // One that lived when it was listed has taken its folder along.
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) && folder.exists()
    };
    entries.flatten().map(|entry| entry.path()).filter(dead).collect()
}

/// No run has left more of them than there were: a process that was killed leaves its own.
#[track_caller]
fn assert_nothing_left(before: &[PathBuf]) {
    let left: Vec<PathBuf> =
        left_behind().into_iter().filter(|folder| !before.contains(folder)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn rings_and_memif_bring_the_features_of_the_software_nic() {
    if !with_dpdk("dpdk: features") {
        return;
    }
    let place = Workplace::new();
    place.write("sw.yaml", Yaml::shipped("resnet50_routable_loopback.yaml"));
    place.write("ring.yaml", on_a_ring(Yaml::shipped("resnet50_routable_loopback.yaml")));
    place.write("memif.yaml", on_memif(&place));
    let images = shared("CIFAR-10 images over DPDK (made-up ones are sent)").map_or_else(
        || ["--synthetic".to_owned(), "5".to_owned()],
        |shared| {
            let file = shared.join("data/cifar10_test_1000.bin").display().to_string();
            ["--cifar10".to_owned(), file]
        },
    );
    let count = IMAGES.to_string();
    let prepare = [&images[0], &images[1], "--num-images", &count, "--config", "sw.yaml"];
    let _ = place.tensorwire(&[&["prepare"], &prepare[..]].concat()).expect_code(0);
    let model = "models/resnet18_features.onnx";
    let export = ["--arch", "resnet18", "--weights", "seed:5", "--output", model];
    let _ = place.tensorwire(&[&["export-model"], &export[..]].concat()).expect_code(0);
    let run = |name: &str| {
        let (config, features) = (format!("{name}.yaml"), format!("{name}.npy"));
        let args = ["--no-pin", "--json", "--model", "resnet18", "--expected-images", &count];
        let args = [&["run", &config], &args[..], &["--features", &features]].concat();
        let output = place.tensorwire(&args);
        assert_whole(&output, IMAGES, FRAMES);
        assert_eq!(number(&output.json(), "/batches"), 8);
        (output, fs::read(place.file(&features)).expect("a file"))
    };
    let (_, software) = run("sw");
    for name in ["ring", "memif"] {
        let (output, features) = run(name);
        assert!(features == software, "{name}: other features than over the software NIC");
        let said = &output.stderr;
        assert!(said.contains("flows are matched in software: the device has no such"), "{said}");
        assert!(said.contains(&format!("sent {FRAMES}/{FRAMES} frames in ")), "{said}");
    }
}

/// A small geometry with flows of its own, and its capture of 64 images. `rx` and `tx` are the
/// actions of the flows.
fn with_flows(rx: &str, tx: &str) -> Workplace {
    let place = Workplace::new();
    let yaml = on_a_ring(Yaml::small(Small::MINI));
    let text = String::from_utf8(yaml.as_ref().to_vec()).expect("text");
    let (head, tail) = text.split_once("              action:\n").expect("a flow");
    let tail = tail.lines().skip(2).collect::<Vec<_>>().join("\n");
    let text = format!("{head}              actions: [{rx}{{type: queue, id: 0}}]\n{tail}\n");
    let sent = format!("        tx:\n          flows: [{{name: sent, id: 1, {tx}}}]\n");
    place.write("c.yaml", text.replacen("        tx:\n", &sent, usize::from(!tx.is_empty())));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

/// VLAN tags and tunnels go around every frame and come off again, by software, as no device here
/// has rules for it; what arrives is what was sent, and the driver counts the bytes on the wire.
#[test]
fn tags_and_tunnels_are_put_and_taken_off() {
    if !with_dpdk("dpdk: tags and tunnels") {
        return;
    }
    let args = [&SMALL[..], &["--no-pin"]].concat();
    let (pop, push) = ("{type: vlan_pop}, ", "{type: vlan_push, vlan_id: 100, pcp: 5}");
    let tunnels = [
        "{type: vxlan, vni: 7, outer_ipv4_dst: 192.0.2.1}",
        "{type: gre}",
        "{type: gre, gre_protocol: 0x6558}",
        "{type: nvgre, tni: 9}",
    ];
    let mut cases = vec![(pop.to_owned(), push.to_owned())];
    for tunnel in tunnels {
        let off = format!("{{type: tunnel_decap, tunnel: {tunnel}}}, ");
        let around = format!("{{type: tunnel_encap, tunnel: {tunnel}}}");
        cases.push((format!("{pop}{off}"), format!("{around}, {push}")));
        cases.push((off, around));
    }
    for (rx, tx) in cases {
        let place = with_flows(&rx, &format!("actions: [{tx}]"));
        let output = place.tensorwire(&args);
        assert_whole(&output, 64, 256);
        let said = &output.stderr;
        assert!(said.contains("headers are taken off by software"), "{said}");
        assert!(said.contains("headers are put by software"), "{said}");
    }
    // Left on, they are what is wrong with the frame.
    let place = with_flows("", &format!("actions: [{push}]"));
    let tagged = place.tensorwire(&args).expect_code(4).json();
    assert_eq!(number(&tagged, "/packets/malformed/vlan"), 256, "{tagged:#}");
    // Another network than the one that is asked for; the protocol inside is not UDP for us.
    let (asked, sent) = ("{type: nvgre, tni: 8}", "{type: nvgre, tni: 9}");
    let off = format!("{{type: tunnel_decap, tunnel: {asked}}}, ");
    let place = with_flows(&off, &format!("action: {{type: tunnel_encap, tunnel: {sent}}}"));
    let other = place.tensorwire(&args).expect_code(4).json();
    assert_eq!(number(&other, "/packets/malformed/not_udp"), 256, "{other:#}");
    // Only the frames of the flow get them.
    let place = with_flows("", &format!("match: {{udp_dst: 9}}, actions: [{push}]"));
    assert_whole(&place.tensorwire(&args), 64, 256);
}

/// A small geometry on a ring, and its capture of 64 images: 256 frames.
fn small(change: impl Fn(Yaml) -> Yaml) -> Workplace {
    let place = Workplace::new();
    place.write("c.yaml", change(on_a_ring(Yaml::small(Small::MINI))));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

const SMALL: [&str; 7] =
    ["run", "c.yaml", "--json", "--backend", "none", "--expected-images", "64"];

#[test]
fn a_poller_of_its_own_brings_the_same() {
    if !with_dpdk("dpdk: split") {
        return;
    }
    let place = small(|yaml| yaml.with("tensorwire", "{rx_poll: split}"));
    assert_whole(&place.tensorwire(&[&SMALL[..], &["--no-pin"]].concat()), 64, 256);
}

#[test]
fn threads_sit_where_the_configuration_says_or_the_run_is_refused() {
    if !with_dpdk("dpdk: cores") {
        return;
    }
    let core = 0;
    let on = |yaml: Yaml, core: u32| {
        let yaml = yaml.set_at("\"tx_q_0\"", "cpu_core", core).set("master_core", core);
        let yaml = yaml.set_at("\"rx_q_0\"", "cpu_core", core);
        let yaml = yaml.set_at("bench_tx:", "cpu_core", core);
        yaml.set_at("bench_rx:", "cpu_core", core).set_at("inference:", "cpu_core", core)
    };
    let place = small(|yaml| on(yaml, core));
    let mut running = place.start(&["run", "c.yaml", "--json", "--backend", "none", "--loop"]);
    running.wait_until_ready();
    let tasks = format!("/proc/{}/task", running.id());
    let read = |task: &Path, file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    let mut seen = Vec::new();
    // The main thread is pinned after the others are made.
    thread::sleep(Duration::from_millis(300));
    for task in fs::read_dir(tasks).expect("threads").flatten() {
        let status = read(&task.path(), "status");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        seen.push((
            read(&task.path(), "comm").trim().to_owned(),
            line.map(|l| l.trim().to_owned()),
        ));
    }
    running.signal("TERM");
    let _ = running.wait();
    for name in ["tw-producer", "tw-consumer", "tw-sender", "tensorwire"] {
        let pinned = (name.to_owned(), Some(core.to_string()));
        assert!(seen.contains(&pinned), "{name}: {seen:?}");
    }
    let place = small(|yaml| on(yaml, 1000));
    let refused = place.tensorwire(&SMALL).expect_code(3);
    assert!(refused.stderr.contains("no core 1000"), "{}", refused.stderr);
}

/// A start that fails says why with exit code 5, whatever was up by then is taken down, and the
/// next start finds nothing of it.
#[test]
fn failed_starts_say_why_and_leave_nothing() {
    if !with_dpdk("dpdk: failed starts") {
        return;
    }
    let there = left_behind();
    let huge = fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok_and(|n| n.trim() != "0");
    let at = |address: &'static str| move |yaml: Yaml| yaml.set("address", address);
    let kind = |kind: &'static str| move |yaml: Yaml| yaml.set_at("Data_RX", "kind", kind);
    type Change = Box<dyn Fn(Yaml) -> Yaml>;
    let cases: [(&str, Change, &str); 5] = [
        ("options", Box::new(at("\"net_memif0,role=nobody\"")), "DPDK: net_memif0: attach"),
        ("no interface", Box::new(at("nosuchif0")), "DPDK: net_af_packet0: attach"),
        ("no NIC", Box::new(at("\"0000:ff:1f.7\"")), "DPDK: "),
        (
            "memory of a GPU",
            Box::new(kind("device")),
            "is of kind `device`: `net_ring0` is software",
        ),
        ("huge pages", Box::new(kind("huge")), "huge pages of 2 MiB"),
    ];
    for (what, change, said) in cases {
        if what == "huge pages" && huge {
            report("dpdk: a region of huge pages is not refused: there are some");
            let place = small(change);
            assert_whole(&place.tensorwire(&[&SMALL[..], &["--no-pin"]].concat()), 64, 256);
            continue;
        }
        let place = small(change);
        let output = place.tensorwire(&[&SMALL[..], &["--no-pin"]].concat()).expect_code(5);
        assert!(output.stderr.contains(said), "{what}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{what}");
    }
    let place = small(|yaml| yaml);
    let flag = [&SMALL[..], &["--no-pin", "--sim-tx", "wire"]].concat();
    let _ = place.tensorwire(&flag).expect_code(2);
    // The model is loaded when the ports are attached: a broken one is told then.
    let broken = small(|yaml| yaml.set("onnx_path", "\"models/broken.onnx\""));
    broken.write("models/broken.onnx", "no model");
    let output = broken.tensorwire(&["run", "c.yaml", "--no-pin", "--backend", "onnx"]);
    assert!(matches!(output.code, Some(5 | 7)), "{:?}: {}", output.code, output.stderr);
    assert_nothing_left(&there);
}

/// What a driver reports while a run goes on: a recovery by itself is counted, a reset that it asks
/// for ends the run by name.
#[test]
fn a_nic_that_is_reset_while_a_run_goes_on() {
    if !with_dpdk("dpdk: a reset") {
        return;
    }
    let place = small(|yaml| yaml);
    let args = |seconds| {
        ["run", "c.yaml", "--json", "--backend", "none", "--no-pin", "--loop", "--seconds", seconds]
    };
    let Some(asked) = standin::run(&place, "STANDIN_EVENT=3,300", &args("60")) else { return };
    let asked = asked.expect_code(5);
    assert!(asked.stderr.contains("link net_ring0: the NIC asks for a reset"), "{}", asked.stderr);
    assert!(!asked.stderr.contains("could not be taken down"), "{}", asked.stderr);
    let summary = asked.json();
    assert_eq!(number(&summary, "/links/0/resets"), 1, "{summary:#}");
    assert_eq!(summary["links"][0]["up"], false, "{summary:#}");
    // It does so by itself, and does not end: down until the run is over, which waits no longer
    // than five seconds for it.
    let Some(alone) = standin::run(&place, "STANDIN_EVENT=12,300", &args("2")) else { return };
    let summary = alone.expect_code(0).json();
    assert_eq!(number(&summary, "/links/0/resets"), 1, "{summary:#}");
    assert_eq!(number(&summary, "/links/0/downs"), 1, "{summary:#}");
    assert_eq!(summary["links"][0]["up"], false, "{summary:#}");
}

/// A batch is as old as the NIC says where it stamps packets, whoever polls it; where it does not,
/// software says it, and the start-up line says that.
#[test]
fn packets_are_timed_by_the_nic_or_by_software_and_it_says_which() {
    if !with_dpdk("dpdk: time stamps") {
        return;
    }
    let timed = |poll: &str| {
        let place = small(|yaml| yaml.with("tensorwire", &format!("{{rx_poll: {poll}}}")));
        let text = fs::read_to_string(place.file("c.yaml")).expect("the file");
        let rx = "        rx:\n";
        assert_eq!(text.matches(rx).count(), 1, "{text}");
        let with = format!("{rx}          hardware_timestamps: true\n");
        place.write("c.yaml", text.replace(rx, &with));
        place
    };
    let args = [&SMALL[..], &["--no-pin"]].concat();
    let place = timed("fused");
    let output = place.tensorwire(&args);
    assert_whole(&output, 64, 256);
    let said = "packets are timed by software: the device has no time stamps";
    assert!(output.stderr.contains(said), "{}", output.stderr);
    let args =
        ["run", "c.yaml", "--json", "--backend", "none", "--no-pin", "--loop", "--seconds", "4"];
    for poll in ["fused", "split"] {
        let place = timed(poll);
        // A second ago; nothing is older than the run itself, so those of its first second are
        // younger.
        let Some(output) = standin::run(&place, "STANDIN_STAMPS=1000", &args) else { return };
        let output = output.expect_code(0);
        let said = "packets are timed by the NIC, whose clock has 2";
        assert!(output.stderr.contains(said), "{}", output.stderr);
        let summary = output.json();
        let ms = summary["last_packet_to_features_ms"]["p50"].as_f64().expect("a time");
        assert!((950.0..2_000.0).contains(&ms), "{poll}: {ms} ms");
    }
}

/// The receiver takes back what is in the ring when its peer leaves: the sender waits for it.
#[test]
fn two_processes_over_memif_lose_nothing_at_the_end() {
    if !with_dpdk("dpdk: two processes") {
        return;
    }
    let place = Workplace::new();
    for (name, role) in [("rx", "server"), ("tx", "client")] {
        let yaml = Yaml::shipped(&format!("resnet50_{name}_veth.yaml"));
        place.write(&format!("{name}.yaml"), yaml.set("address", memif(&place, role)));
    }
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "tx.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    for _ in 0..3 {
        let args = ["run", "rx.yaml", "--no-pin", "--json", "--backend", "none"];
        let mut receiver = place.start(&[&args[..], &["--expected-images", "64"]].concat());
        receiver.wait_until_ready();
        let sender = place.tensorwire(&["run", "tx.yaml", "--no-pin", "--json"]).expect_code(0);
        let received = receiver.wait().expect_code(0).json();
        assert_eq!(number(&received, "/packets/placed"), 64 * 128, "{received:#}");
        assert_eq!(number(&sender.json(), "/tx/sent"), 64 * 128);
    }
}

#[test]
fn a_hundred_runs_leave_nothing() {
    if !with_dpdk("dpdk: a hundred runs") {
        return;
    }
    let place = small(|yaml| yaml);
    let (before, there) = (place.files(), left_behind());
    for round in 0..100 {
        // A run that is interrupted is taken down the same way.
        if round % 10 == 9 {
            let args = ["run", "c.yaml", "--json", "--backend", "none", "--no-pin", "--loop"];
            let mut running = place.start(&args);
            running.wait_until_ready();
            running.signal(if round % 20 == 9 { "INT" } else { "TERM" });
            let output = running.wait();
            assert!(!output.stderr.contains("could not be taken down"), "{}", output.stderr);
            continue;
        }
        assert_whole(&place.tensorwire(&[&SMALL[..], &["--no-pin"]].concat()), 64, 256);
    }
    assert_nothing_left(&there);
    assert_eq!(place.files(), before);
}
