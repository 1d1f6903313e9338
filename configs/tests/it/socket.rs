//! Socket streams: end points, and what a socket carries.

use std::net::{Ipv4Addr, SocketAddrV4};

use tensorwire_configs::{Severity, Verdict};

use crate::support::{check, errors, file, the, with};

const RX: &str = "resnet50_rx_socket.yaml";
const TX: &str = "resnet50_tx_socket.yaml";

const LOCAL: &str = "          local_addr: \"udp://10.77.0.2:4096\"\n";

fn end_point(last: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, last), 4_096)
}

#[test]
fn the_end_points_of_the_shipped_files() {
    let receiver = check(file(RX)).config.and_then(|config| config.rx).expect("a receiver");
    assert_eq!(receiver.socket, Some(end_point(2)));
    assert!(!receiver.pools.retained, "the CPU reads a packet when it arrives");
    let sender = check(file(TX)).config.and_then(|config| config.tx).expect("a sender");
    assert_eq!(sender.socket, Some((end_point(1), end_point(2))));
    // What the frames have is what the kernel writes.
    let other = with(file(TX), "udp_dst_port: 4096", "udp_dst_port: 5000");
    let sender = check(&other).config.and_then(|config| config.tx).expect("a sender");
    assert_eq!((sender.header.udp_dst, sender.header.ip_dst), (4_096, [10, 77, 0, 2]));
    assert_eq!(the(&check(file(TX)), "TW0204").key, "bench_tx[0].eth_dst_addr");
}

#[test]
fn the_older_form_and_an_end_point_that_the_kernel_chooses() {
    let older = "          local_ip: 10.77.0.2\n          local_port: 4096\n";
    let checked = check(&with(file(RX), LOCAL, older));
    let receiver = checked.config.and_then(|config| config.rx).expect("a receiver");
    assert_eq!(receiver.socket, Some(end_point(2)));
    let chosen = with(file(TX), "          local_addr: \"udp://10.77.0.1:4096\"\n", "");
    let sender = check(&chosen).config.and_then(|config| config.tx).expect("a sender");
    let own = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 0);
    assert_eq!(sender.socket, Some((own, end_point(2))));
}

#[test]
fn receive_offload_is_asked_for_and_of_sockets_that_receive() {
    let on = |name: &str| check(&format!("{}\ntensorwire: {{socket_gro: true}}\n", file(name)));
    let receiver = with(file(RX), "  rx_poll: fused", "  rx_poll: fused\n  socket_gro: true");
    for (text, wanted) in [(file(RX), false), (&receiver, true)] {
        let checked = check(text);
        let found = checked.diagnostics.iter().find(|found| found.key.ends_with("socket_gro"));
        assert!(found.is_none(), "{found:?}");
        assert_eq!(checked.config.map(|config| config.settings.socket_gro), Some(wanted));
    }
    // A sender by sockets, and frames that are raw.
    for name in [TX, "resnet50_tx_veth.yaml"] {
        let checked = on(name);
        let ignored = checked.diagnostics.iter().find(|found| found.key.ends_with("socket_gro"));
        let ignored = ignored.unwrap_or_else(|| panic!("{name}: {:#?}", checked.diagnostics));
        assert_eq!(ignored.code.to_string(), "TW0204", "{name}");
        assert!(ignored.message.contains("no socket receives"), "{}", ignored.message);
    }
}

/// Each change gives exactly this error, at a key that ends so.
#[track_caller]
fn refused(name: &str, from: &str, to: &str, number: &str, key: &str) {
    let checked = check(&with(file(name), from, to));
    assert_eq!(errors(&checked), [number], "{to}: {:#?}", checked.diagnostics);
    assert!(the(&checked, number).key.ends_with(key), "{to}: {}", the(&checked, number).key);
    assert!(checked.config.is_none());
}

#[test]
fn addresses_that_are_none_are_refused() {
    for text in [
        "10.77.0.2:4096",
        "udp://10.77.0.2",
        "udp://10.77.0.2:0",
        "udp://10.77.0.2:65536",
        "udp://10.77.0.2:04096",
        "udp://10.77.0.256:4096",
        "udp://[fe80::1]:4096",
        "udp://host:4096",
        "udp://:4096",
        "http://10.77.0.2:4096",
        "udp://10.77.0.2:4096/x",
    ] {
        refused(RX, "udp://10.77.0.2:4096", text, "TW0412", "socket_config.local_addr");
        refused(TX, "udp://10.77.0.2:4096", text, "TW0412", "socket_config.remote_addr");
    }
    for scheme in ["tcp", "roce", "rdma"] {
        let checked = check(&with(file(RX), "udp://", &format!("{scheme}://")));
        assert_eq!(checked.verdict(), Verdict::Unsupported, "{scheme}");
        assert!(the(&checked, "TW0205").key.ends_with("local_addr"));
    }
}

#[test]
fn end_points_that_are_missing_or_elsewhere_are_refused() {
    refused(RX, LOCAL, "", "TW0203", "socket_config.local_addr");
    let remote = "          remote_addr: \"udp://10.77.0.2:4096\"\n";
    refused(TX, remote, "", "TW0203", "socket_config.remote_addr");
    let whole = ["        socket_config:\n          mode: server\n", LOCAL].concat();
    refused(RX, &whole, "", "TW0203", "socket_config");
    let both = [LOCAL, "          local_ip: 10.77.0.2\n"].concat();
    refused(RX, LOCAL, &both, "TW0407", "socket_config.local_ip");
    let zero = "          local_ip: 10.77.0.2\n          local_port: 0\n";
    refused(RX, LOCAL, zero, "TW0412", "socket_config.local_port");
    refused(RX, "udp://10.77.0.2", "udp://10.77.0.3", "TW0412", "socket_config.local_addr");
    refused(RX, "address: \"10.77.0.2\"", "address: eth0", "TW0412", "socket_config.local_addr");
    refused(TX, "address: \"10.77.0.1\"", "address: eth0", "TW0412", "socket_config.local_addr");
    let looped = "stream_type: \"socket\"\n    loopback: sw";
    refused(RX, "stream_type: \"socket\"", looped, "TW0412", "cfg.loopback");
    let small = [LOCAL, "          max_payload_size: 1197\n"].concat();
    refused(RX, LOCAL, &small, "TW0412", "socket_config.max_payload_size");
    let fits = [LOCAL, "          max_payload_size: 1198\n"].concat();
    assert!(check(&with(file(RX), LOCAL, &fits)).config.is_some());
}

#[test]
fn what_a_socket_does_not_carry_is_refused() {
    for name in [RX, TX] {
        refused(name, "seq_bit_offset: 336", "seq_bit_offset: 128", "TW0521", "seq_bit_offset");
        let later = check(&with(file(name), "seq_bit_offset: 336", "seq_bit_offset: 344"));
        assert!(later.config.is_some(), "{name}: {:#?}", later.diagnostics);
    }
    let device = "kind: \"device\"\n        num_bufs: 51200";
    let host = "kind: \"host\"\n        num_bufs: 51200";
    refused(RX, host, device, "TW0410", "memory_regions[0].kind");
}

#[test]
fn the_rules_of_queues_regions_and_flows_hold() {
    refused(RX, "              batch_size: 8192\n", "", "TW0203", "queues[0].batch_size");
    let none = "memory_regions: []";
    refused(RX, "memory_regions: [\"Data_RX\"]", none, "TW0411", "queues[0].memory_regions");
    refused(RX, "num_bufs: 51200", "num_bufs: 8192", "TW0603", "memory_regions[0].num_bufs");
    refused(RX, "buf_size: 1240", "buf_size: 2048", "TW0506", "memory_regions[0].buf_size");
    let other = check(&with(file(RX), "udp_dst: 4096", "udp_dst: 4097"));
    let found = the(&other, "TW0808");
    assert_eq!(found.severity(), Severity::Warning);
    assert!(found.message.contains("no flow takes port 4096"), "{}", found.message);
}
