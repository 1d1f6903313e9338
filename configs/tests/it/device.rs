//! The network side: flows, queues, stages and regions that contradict themselves.

use tensorwire_configs::{Address, Severity};
use tensorwire_core::flow::{FlowMatch, PortRange};
use tensorwire_core::outer::{Outer, Tag, Tunnel, TunnelKind};

use crate::support::{MINI, check, errors, mini_port, the, with};

const FLOW: &str = "            - name: f
              id: 0
              action: {type: queue, id: 0}
              match: {udp_src: 4096, udp_dst: 4096}
";

/// MINI with another receive flow.
fn flow(text: &str) -> String {
    with(MINI, FLOW, &format!("            - {{name: f, id: 0, {text}}}\n"))
}

/// MINI with one more key in `reorder`.
fn app(text: &str) -> String {
    with(MINI, "seq_bit_width: 8", &format!("seq_bit_width: 8\n  {text}"))
}

/// Each file has exactly this error, at a key that ends so.
fn faults(cases: &[(String, &str, &str)]) {
    for (text, number, key) in cases {
        let checked = check(text);
        assert_eq!(errors(&checked), [*number], "{key}: {:#?}", checked.diagnostics);
        assert!(the(&checked, number).key.ends_with(key), "{key}: {}", the(&checked, number).key);
    }
}

#[test]
fn actions_of_flows() {
    let queue = "{type: queue, id: 0}";
    faults(&[
        (flow("match: {udp_src: 1}"), "TW0403", "flows[0].action"),
        (flow("action: {type: vlan_pop}"), "TW0403", "flows[0].action"),
        (flow("actions: []"), "TW0403", "flows[0].actions"),
        (flow(&format!("actions: [{queue}, {{type: vlan_pop}}]")), "TW0403", "flows[0].actions"),
        (flow(&format!("actions: [{queue}, {queue}]")), "TW0403", "flows[0].actions"),
        (flow("action: {type: queue}"), "TW0403", "action.id"),
        (flow("action: {type: queue, id: 0, ids: [0]}"), "TW0407", "action.ids"),
        (flow("action: {type: queue, ids: [0, 0]}"), "TW0402", "action.ids"),
        (flow("action: {type: queue, ids: [1]}"), "TW0401", "action.ids"),
        (flow("action: {type: queue, id: 0, vlan_id: 1}"), "TW0403", "action.vlan_id"),
        (flow(&format!("action: {queue}, actions: [{queue}]")), "TW0407", "flows[0].actions"),
        (flow(&format!("actions: [{{type: tunnel_decap}}, {queue}]")), "TW0203", "[0].tunnel"),
        (
            flow(&format!("actions: [{{type: tunnel_encap, tunnel: {{type: gre}}}}, {queue}]")),
            "TW0403",
            "actions[0].type",
        ),
        (
            flow(&format!(
                "actions: [{{type: tunnel_decap, tunnel: {{type: gre, vni: 1}}}}, {queue}]"
            )),
            "TW0403",
            "tunnel.vni",
        ),
    ]);
    // A queue that one flow reaches by a list of one is as good as any.
    assert_eq!(errors(&check(&flow("action: {type: queue, ids: [0]}"))), [""; 0]);
    let tx = |action: &str| {
        let flows = format!("          flows: [{{name: p, id: 0, action: {action}}}]\n");
        with(
            MINI,
            "          queues:\n            - {name: tq",
            &format!("{flows}          queues:\n            - {{name: tq"),
        )
    };
    faults(&[
        (tx("{type: vlan_push}"), "TW0203", "action.vlan_id"),
        (tx("{type: queue, id: 0}"), "TW0403", "action.type"),
        (tx("{type: vlan_push, vlan_id: 4096}"), "TW0303", "action.vlan_id"),
    ]);
    // The software NIC of that file changes no header; a port does.
    let checked = check(&tx("{type: vlan_push, vlan_id: 100, ethertype: 0x8100}"));
    assert_eq!(
        (errors(&checked).len(), the(&checked, "TW0205").severity()),
        (0, Severity::Unsupported)
    );
}

/// On ports: what flows do to headers, in the order of the file.
#[test]
fn headers_that_flows_change() {
    let ports = |text: &str| {
        text.replace("loopback: sw", "loopback: \"\"")
            .replace("address: loopback", "address: net_ring0")
            .replace("{name: out, kind: host,", "{name: out, kind: host_pinned,")
    };
    let vxlan = "{type: vxlan, vni: 7, outer_ipv4_dst: 192.0.2.1, outer_eth_dst: \
                 \"02:00:00:00:00:09\"}";
    let rx = flow(&format!(
        "actions: [{{type: vlan_pop}}, {{type: tunnel_decap, tunnel: {vxlan}}}, {{type: queue, id: \
         0}}]"
    ));
    let tunnel = Tunnel {
        kind: TunnelKind::Vxlan { vni: Some(7), udp_src: None, udp_dst: 4789 },
        eth_src: None,
        eth_dst: Some([2, 0, 0, 0, 0, 9]),
        ip_src: None,
        ip_dst: Some([192, 0, 2, 1]),
    };
    let checked = check(&ports(&rx));
    let config = checked.config.unwrap_or_else(|| panic!("{:#?}", checked.diagnostics));
    let taken = config.rx.expect("a receiver").outer;
    assert_eq!(taken, [Outer::Vlan(Tag::default()), Outer::Tunnel(tunnel)]);
    let nvgre = "{type: nvgre, tni: 5, flow_id: 9}";
    let tx = with(
        MINI,
        "          queues:\n            - {name: tq",
        &format!(
            "          flows: [{{name: p, id: 3, match: {{udp_src: 1-9}}, actions: [{{type: \
             tunnel_encap, tunnel: {nvgre}}}, {{type: vlan_push, vlan_id: 100, pcp: 5, dei: \
             1}}]}}]\n          queues:\n            - {{name: tq"
        ),
    );
    let checked = check(&ports(&tx));
    let config = checked.config.unwrap_or_else(|| panic!("{:#?}", checked.diagnostics));
    let flows = config.tx.expect("a sender").flows;
    let kind = TunnelKind::Nvgre { tni: Some(5), flow_id: 9 };
    let nvgre = Outer::Tunnel(Tunnel { kind, eth_dst: None, ip_dst: None, ..tunnel });
    let tag = Outer::Vlan(Tag { ethertype: 0x8100, control: 0xb064 });
    let udp_src = PortRange::new(1, 9).ok();
    assert_eq!(flows, [(FlowMatch { udp_src, ..FlowMatch::any(3) }, vec![nvgre, tag])]);
    // What no software does, and what it cannot tell apart.
    let unsupported = [
        flow(
            "actions: [{type: tunnel_decap, tunnel: {type: gre, gre_protocol: 0x86dd}}, {type: \
             queue, id: 0}]",
        ),
        flow(
            "actions: [{type: vlan_pop}, {type: queue, id: 0}]}\n            - {name: more, id: \
             77, action: {type: queue, id: 0}",
        ),
    ];
    for text in unsupported {
        let checked = check(&ports(&text));
        let found = the(&checked, "TW0205").severity();
        assert_eq!((errors(&checked).len(), found), (0, Severity::Unsupported), "{text}");
    }
}

#[test]
fn matches_of_flows() {
    let matched = |text: &str| flow(&format!("action: {{type: queue, id: 0}}, match: {{{text}}}"));
    faults(&[
        (matched("udp_src: \"4096\""), "TW0302", "match.udp_src"),
        (matched("udp_src: 0900"), "TW0302", "match.udp_src"),
        (matched("udp_src: 1010-1000"), "TW0303", "match.udp_src"),
        (matched("udp_src: 1-70000"), "TW0303", "match.udp_src"),
        (matched("udp_src: a-b"), "TW0301", "match.udp_src"),
        (matched("val: 1"), "TW0407", "match.val"),
        (matched("ecpri: {}, udp_src: 1"), "TW0407", "match"),
        (matched("ecpri: {pc_id: 1, rtc_id: 1}"), "TW0407", "ecpri.rtc_id"),
        (matched("ecpri:"), "TW0301", "match.ecpri"),
        (matched("flex_item_id: 1, val: 1, mask: 1"), "TW0401", "match.flex_item_id"),
    ]);
    for text in ["udp_src: 4000-5000", "udp_src: \"4000-5000\"", "udp_dst: 4096"] {
        let checked = check(&matched(text));
        assert!(checked.config.is_some(), "{text}: {:#?}", checked.diagnostics);
    }
    let item = |offset: u32| {
        let items = format!(
            "          flex_items: [{{name: x, id: 1, offset: {offset}, udp_dst_port: 4096}}]\n"
        );
        let text = with(
            &matched("flex_item_id: 1, val: 1, mask: 1"),
            "          flows:\n",
            &format!("{items}          flows:\n"),
        );
        errors(&check(&text))
    };
    assert_eq!(item(24), [""; 0]);
    assert_eq!(item(6), ["TW0303"]);
    assert_eq!(item(28), ["TW0303"]);
    let spread = flow("action: {type: queue, ids: [0, 1]}, match: {ecpri: {}}");
    let spread = with(
        &spread,
        "            - {name: rq",
        "            - {name: r2, id: 1, batch_size: 16, memory_regions: [rx]}\n            - \
         {name: rq",
    );
    assert!(errors(&check(&spread)).contains(&"TW0407".to_owned()), "eCPRI is not spread");
    assert!(errors(&check(&spread)).contains(&"TW0406".to_owned()), "nor is a reordered flow");
}

#[test]
fn queues_ports_and_regions() {
    let port = mini_port();
    let two = with(
        &port,
        "bench_rx:",
        "      - name: other\n        address: \"0000:01:00.0\"\n        \
                                        tx: {queues: []}\nbench_rx:",
    );
    faults(&[
        (two.clone(), "TW0402", "interfaces[1].address"),
        (with(&port, "address: 0000:01:00.0", "address: 10.0.0.1"), "TW0307", "address"),
        (with(&port, "address: 0000:01:00.0", "address: loopback"), "TW0409", "address"),
        (with(MINI, "address: loopback", "address: eth0"), "TW0409", "address"),
        (app("memory_region: rx"), "TW0605", "memory_region"),
        (app("memory_region: no"), "TW0401", "memory_region"),
        (with(&port, "{name: out, kind: host_pinned", "{name: out, kind: huge"), "TW0410", "kind"),
    ]);
    let renamed = check(&with(MINI, "{name: rq, id: 0, ", "{name: rq, id: 3, "));
    assert_eq!(errors(&renamed), ["TW0401", "TW0401"], "the flow's queue and the receiver's");
    let other = with(&two, "\"0000:01:00.0\"", "\"0000:01:00.1\"");
    assert_eq!(errors(&check(&other)), [""; 0], "another port");
    let named = app("memory_region: out");
    assert_eq!(errors(&check(&named)), [""; 0]);
    let cpu = with(&port, "{name: out, kind: host_pinned", "{name: out, kind: huge");
    let cpu = with(&cpu, "seq_bit_width: 8", "seq_bit_width: 8\n  reorder_type: cpu");
    assert_eq!(errors(&check(&cpu)), [""; 0], "a CPU writes to huge pages");
}

#[test]
fn virtual_devices_are_addresses_with_options() {
    let at = |address: &str| with(&mini_port(), "address: 0000:01:00.0", address);
    for device in ["net_ring0", "net_memif0,role=server,id=0,socket=/tmp/m.sock", "net_tap12"] {
        let checked = check(&at(&format!("address: \"{device}\"")));
        let config = checked.config.expect("valid");
        let address = config.rx.expect("a receiver").address;
        assert_eq!(address, Address::Virtual(device.to_owned()));
        assert_eq!(address.to_string(), device);
    }
    let name = |address: &str| check(&at(address)).config.expect("valid").rx.expect("rx").address;
    assert_eq!(name("address: net_x0"), Address::Interface("net_x0".to_owned()));
    // A device that is not known, no number, no value, a space: none is a device or an interface.
    for text in
        ["net_ringg0,rsize=10", "net_memif,role=server", "net_memif0,role", "net_memif0,role=,id=1"]
    {
        faults(&[(at(&format!("address: \"{text}\"")), "TW0307", "address")]);
    }
    let two = with(
        &at("address: \"net_memif0,id=0\""),
        "bench_rx:",
        "      - {name: other, address: \"net_memif0,id=1\", tx: {queues: []}}\nbench_rx:",
    );
    faults(&[(two, "TW0402", "interfaces[1].address")]);
}

#[test]
fn sizes_that_contradict_the_geometry() {
    faults(&[
        (with(MINI, "buf_size: 256}", "buf_size: 255}"), "TW0508", "buf_size"),
        (with(MINI, "header_size: 64", "header_size: 60"), "TW0518", "header_size"),
        (with(MINI, "payload_size: 192", "payload_size: 191"), "TW0518", "payload_size"),
        (with(MINI, "buf_size: 6144", "buf_size: 6143"), "TW0507", "buf_size"),
        (with(MINI, "num_bufs: 16,", "num_bufs: 12,"), "TW0601", "num_bufs"),
        (app("packets_per_batch: 8"), "TW0509", "packets_per_batch"),
    ]);
    // Two independent faults are two errors, although both speak of the payload.
    let two = with(MINI, "out_payload_len: 192", "out_payload_len: 200");
    let two = with(&two, "buf_size: 6144", "buf_size: 6143");
    assert_eq!(errors(&check(&two)), ["TW0507", "TW0503"]);
}

#[test]
fn aliases_do_not_nest_beyond_the_limit() {
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..60 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert_eq!(errors(&check(&text)), ["TW0108"]);
}
