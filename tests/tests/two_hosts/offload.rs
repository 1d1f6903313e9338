//! Sockets with receive offload.

use std::net::UdpSocket;
use std::process::Command;

use serde_json::{Value, json};
use tensorwire_tests::yaml::Yaml;
use tensorwire_tests::{Workplace, program, report, workspace};

use super::{
    COUNTED, FRAMES, SOCKETS, assert_accounted, infer_by_software, lost, number, prepare, run,
    same_features,
};

/// A folder with a sender that is not paced, since datagrams that are make no groups, and a
/// receiver with receive offload, whose kernel keeps so many packets.
fn offloaded(ring: u32) -> Workplace {
    let place = SOCKETS.place(0, |yaml| yaml);
    let receiver = format!("fused\n  socket_gro: true\n  rx_ring: {ring}");
    place.write("rx.yaml", Yaml::shipped(SOCKETS.rx).set("rx_poll", receiver));
    prepare(&place);
    place
}

/// What the receiving socket counted in groups.
fn in_groups(received: &Value) -> [u64; 3] {
    let counters = received["ports"][0]["counters"].as_array().expect("counters");
    ["gro_groups", "gro_packets", "gro_copied_packets"].map(|name| {
        let found = counters.iter().find(|counter| counter["name"] == name);
        found.and_then(|counter| counter["value"].as_u64()).expect(name)
    })
}

#[test]
fn sockets_with_receive_offload_bring_the_same_features() {
    let Some(hosts) = SOCKETS.hosts("sockets: receive offload") else { return };
    // The kernel keeps the whole capture, all 32,768 packets, if it has to.
    let place = offloaded(32_768);
    infer_by_software(&place);
    let received = same_features(&hosts, &place);
    let [groups, packets, copied] = in_groups(&received);
    report(&format!("sockets: receive offload: {packets} packets in {groups} groups"));
    assert!(groups > 0 && packets > 10 * groups && packets <= FRAMES, "{received:#}");
    assert_eq!(copied, 0, "{received:#}");
}

/// The kernel counts groups that it drops, and nothing is claimed of the packets in them; by their
/// numbers the loss is exact all the same.
#[test]
fn what_is_lost_with_receive_offload_is_known_by_its_numbers() {
    let test = "sockets: receive offload, a small buffer";
    let Some(hosts) = SOCKETS.hosts(test) else { return };
    let place = offloaded(64);
    for attempt in 1..=8 {
        let (rx, tx) = run(&hosts, &place, &COUNTED);
        let (received, _) = assert_accounted(&rx, &tx);
        let (lost, groups) = (lost(&received), number(&received, "/nic/missed_groups"));
        report(&format!("{test}: attempt {attempt}: {lost} packets lost, {groups} groups"));
        if groups == 0 {
            assert_eq!((lost, &received["nic"]["missed"]), (0, &json!(0)), "{received:#}");
            continue;
        }
        assert!(received["nic"]["missed"].is_null(), "{received:#}");
        assert!(groups < lost, "{received:#}");
        let missing = number(&received, "/slots/missing") + number(&received, "/slots/unfinished");
        assert_eq!(missing + number(&received, "/slots/before_join"), lost, "{received:#}");
        return;
    }
    panic!("eight times, nothing was lost");
}

/// The way to a library that takes the option away from the program, built in `place`; `None`, said
/// with a reason, where that cannot be.
fn without_the_option(test: &str, place: &Workplace) -> Option<String> {
    let compiler = Command::new("cc").arg("--version").output();
    let linked = Command::new("ldd").arg(program()).output().ok()?;
    if compiler.is_err() || !String::from_utf8_lossy(&linked.stdout).contains("libc.so") {
        report(&format!("skipped: {test}: no `cc`, or libc is in the program and no library"));
        return None;
    }
    let library = place.file("refuse.so").display().to_string();
    let source = workspace().join("tests/tests/two_hosts/refuse.c").display().to_string();
    let line = format!("cc -shared -fPIC -O1 -Wall -Werror -o {library} {source} -ldl");
    let _ = place.shell(&line).expect_code(0);
    Some(library)
}

#[test]
fn a_kernel_without_receive_offload_is_told_of_once() {
    let test = "sockets: a kernel without receive offload";
    let place = Workplace::new();
    let Some(library) = without_the_option(test, &place) else { return };
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port();
    let receiver = Yaml::shipped(SOCKETS.rx)
        .set("local_addr", format!("\"udp://127.0.0.1:{port}\""))
        .set("address", "\"127.0.0.1\"")
        .set("udp_dst", port)
        .set("rx_poll", "fused\n  socket_gro: true");
    let receiver = receiver.without("labels_path").text().replace("\ndataset:\n", "\n");
    place.write("rx.yaml", receiver);
    let run = |environment: &str| {
        let program = program().display().to_string();
        let line = format!(
            "{environment} {program} run rx.yaml --no-pin --json --backend none --seconds 1"
        );
        place.shell(&line).expect_code(4)
    };
    let notice = "notice: tensorwire.socket_gro: the kernel has no UDP_GRO (Protocol not available \
                  (os error 92)); datagrams come one by one\n";
    let refused = run(&format!("LD_PRELOAD={library}"));
    assert_eq!(refused.stderr.matches(notice).count(), 1, "{}", refused.stderr);
    assert_eq!(refused.json()["ports"], json!([]));
    let granted = run("");
    assert!(!granted.stderr.contains("UDP_GRO"), "{}", granted.stderr);
    assert_eq!(granted.json()["ports"][0]["port"], json!(format!("udp://127.0.0.1:{port}")));
}
