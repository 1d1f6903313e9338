//! What a configuration asks of ports.

use super::*;

fn config(name: &str, change: impl Fn(&str) -> String) -> Config {
    let text = tensorwire_configs::shipped(name).expect("shipped");
    let checked = tensorwire_configs::check_str("x", &change(text), &Default::default());
    checked.config.unwrap_or_else(|| panic!("{:#?}", checked.diagnostics))
}

fn sides(config: &Config) -> (Result<RxConfig, Failure>, Result<TxConfig, Failure>) {
    let (rx, tx) = (config.rx.as_ref().expect("rx"), config.tx.as_ref().expect("tx"));
    (receiver(config, rx), sender(config, tx))
}

fn ring_loopback(text: &str) -> String {
    text.replace("loopback: \"sw\"", "loopback: \"\"")
        .replace("address: \"loopback\"", "address: \"net_ring0\"")
}

#[test]
fn the_configuration_says_which_ports() {
    let config = config("resnet50_routable_loopback.yaml", ring_loopback);
    let (rx, tx) = sides(&config);
    let (rx, tx) = (rx.expect("a receiver"), tx.expect("a sender"));
    let port = PortAddress::Virtual("net_ring0".to_owned());
    assert_eq!((&rx.port, &tx.port), (&port, &port));
    let buffers =
        |room_bytes| Buffers { count: 51_200, frame_bytes: 1240, room_bytes, pages: Pages::Plain };
    assert_eq!((rx.buffers, tx.buffers), (buffers(0), buffers(2048)));
    assert_eq!((rx.ring, tx.ring, tx.eth_src), (8192, 8192, true));
    assert!(rx.flows.isolation);
    let ids: Vec<u32> = rx.flows.flows.iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [201]);
}

#[test]
fn a_gpu_lends_memory_to_every_port_but_a_ring() {
    let of = |port: &'static str| {
        let text = config("resnet50_routable_loopback.yaml", |text| {
            ring_loopback(text).replace("net_ring0", port)
        });
        let (rx, tx) = sides(&text);
        lent_bytes(&NicConfig { rx: rx.ok(), tx: tx.ok() })
    };
    // 51,200 buffers of 128 + 2048 bytes.
    assert_eq!(of("net_memif0,role=server"), Ok(111_411_200));
    let ring = of("net_ring0").expect_err("the sender's buffers come in");
    assert!(ring.starts_with("`net_ring0` passes on the sender's own buffers"), "{ring}");
}

#[test]
fn only_reordered_flows_are_steered() {
    let more = "          flows:\n            - {name: other, id: 7, action: {type: queue, id: \
                0}, match: {udp_dst: 5000}}\n";
    let config = config("resnet50_routable_loopback.yaml", |text| {
        ring_loopback(text).replacen("          flows:\n", more, 1).replacen(
            "reorder:\n",
            "reorder:\n  flow_ids: [201]\n",
            1,
        )
    });
    let flows = sides(&config).0.expect("a receiver").flows.flows;
    assert_eq!(flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), [201]);
}

#[test]
fn regions_say_which_pages() {
    let region = |kind| Region {
        name: "Data_RX".to_owned(),
        kind,
        affinity: 0,
        buffers: 7,
        buffer_bytes: 1240,
    };
    let pages = |kind| pages(&region(kind));
    assert_eq!(pages(RegionKind::Huge), Ok(Pages::Huge));
    assert_eq!(pages(RegionKind::Host), Ok(Pages::Plain));
    assert_eq!(pages(RegionKind::HostPinned), Ok(Pages::Plain));
    let refused = pages(RegionKind::Device).expect_err("memory of a GPU");
    assert_eq!(refused.exit, ExitCode::Device);
    let said = "memory region `Data_RX` is of kind `device`: frames to send are written by the \
                CPU";
    assert!(refused.reason.starts_with(said), "{}", refused.reason);
    let refused = ring("rx_ring", 65_536).expect_err("16 bits");
    assert!(refused.reason.starts_with("tensorwire.rx_ring: 65536"), "{}", refused.reason);
}

/// The main job's receiver at a NIC, with packets in memory of a GPU; `change` changes its text.
fn on_gpu(change: impl Fn(String) -> String) -> Result<RxConfig, Failure> {
    let config = config("resnet50_routable_loopback.yaml", |text| {
        let text = ring_loopback(text).replace("net_ring0", "0000:01:00.0");
        let (pinned, device) = ["host_pinned", "device"]
            .map(|kind| format!("- name: \"Data_RX_GPU\"\n        kind: \"{kind}\""))
            .into();
        change(text.replace(&pinned, &device))
    });
    receiver(&config, config.rx.as_ref().expect("rx"))
}

#[test]
fn packets_lie_on_a_gpu_where_no_cpu_has_to_reach_them() {
    const ACTION: &str = "action:\n                type: queue\n                id: 0\n";
    let rx = on_gpu(|text| text).expect("a NIC");
    assert_eq!((rx.on_device, rx.buffers.pages), (Some(64), Pages::Plain));
    let refused = |change: fn(String) -> String, why: &str| {
        let refused = on_gpu(change).expect_err(why);
        assert_eq!(refused.exit, ExitCode::Device);
        let begin = "memory region `Data_RX_GPU` is of kind `device`: ";
        assert!(refused.reason.starts_with(begin), "{}", refused.reason);
        assert!(refused.reason.contains(why), "{}", refused.reason);
    };
    let software = "is software, which writes with the CPU";
    refused(|text| text.replace("0000:01:00.0", "net_memif0"), software);
    refused(|text| text.replace("0000:01:00.0", "eth7"), software);
    refused(
        |text| text.replacen("reorder:\n", "reorder:\n  reorder_type: cpu\n", 1),
        "`reorder_type` is `cpu`",
    );
    refused(
        |text| {
            assert!(text.contains(ACTION));
            text.replacen(ACTION, "actions: [{type: vlan_pop}, {type: queue, id: 0}]\n", 1)
        },
        "`vlan_pop` and `tunnel_decap`",
    );
    let longer = [("header_size: 64", "header_size: 128"), ("offset: 64", "offset: 128")];
    let front = |text: String| {
        longer.iter().fold(text.replace("buf_size: 1240", "buf_size: 1304"), |text, (was, is)| {
            assert!(text.contains(was), "{was}");
            text.replace(was, is)
        })
    };
    on_gpu(front).expect("its number is where it was");
    let refused = on_gpu(|text| front(text).replace("bit_offset: 336", "bit_offset: 504"));
    let refused = refused.expect_err("the number ends behind byte 64");
    assert!(refused.reason.contains("in the first 64 bytes of its frame"), "{}", refused.reason);
}
