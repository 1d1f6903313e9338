//! The field cases of YAML, values and names, each under its id.

use std::time::Duration;

use tensorwire_configs::{Address, Checked, Options, Verdict, check_bytes, check_str};

use crate::robustness::worked;
use crate::support::{MINI, check, errors, file, line, mini_port, the, with};

/// A file whose receive port has this address, written this way.
fn address(written: &str) -> Checked {
    check(&with(&mini_port(), "address: 0000:01:00.0", &format!("address: {written}")))
}

#[test]
fn c01_a_pci_address_is_text_quoted_or_not() {
    for text in ["0000:01:00.0", "0002:01:00.1", "0000:03:00.0", "0000:b3:00.0"] {
        for written in [text.to_owned(), format!("\"{text}\"")] {
            let checked = address(&written);
            let config = checked.config.as_ref().expect("a valid address");
            let address = config.rx.as_ref().map(|rx| rx.address.clone());
            assert!(matches!(address, Some(Address::Pci(_))));
            assert_eq!(address.map(|address| address.to_string()).as_deref(), Some(text));
        }
    }
    for text in ["60.0", "01:00.0", "0000:01:00", "0000:01:20.0", "0000:0g:00.0", "7260.1"] {
        let checked = address(text);
        let found = the(&checked, "TW0307");
        assert_eq!(found.key, "daqiri.cfg.interfaces[0].address");
        assert_eq!(line(&checked, found), format!("address: {text}"));
    }
}

#[test]
fn c03_a_misspelt_key_or_word_names_the_nearest() {
    let tx = file("resnet50_sw_loopback.yaml");
    let cases = [
        ("batch_size: 4096", "batch_sise: 4096", "TW0201", "batch_size"),
        ("kind: \"host_pinned\"", "kind: devcie", "TW0304", "device"),
        ("loopback: \"sw\"", "loopback: \"locla\"", "TW0304", ""),
        ("log_level: \"info\"", "log_level: verbose", "TW0304", ""),
        ("[\"tx_eth_src\"]", "[\"tx_eth_scr\"]", "TW0304", "tx_eth_src"),
    ];
    for (from, to, number, near) in cases {
        let checked = check(&with(tx, from, to));
        assert_eq!(checked.verdict(), Verdict::Invalid);
        let found = the(&checked, number);
        let help = found.help.clone().unwrap_or_default();
        assert_eq!(near.is_empty(), help.is_empty(), "{to}: {help}");
        assert!(help.contains(near), "{to}: {help}");
        assert!(found.key.contains('.') && found.position.line > 10, "{to}: {found:?}");
    }
    // A misspelt block is no block of another program.
    let checked = check(&MINI.replace("bench_rx:", "bench_rz:"));
    let help = the(&checked, "TW0201").help.clone().unwrap_or_default();
    assert_eq!(help, "did you mean `bench_rx`?");
    // A key that another block has is named with its home.
    let checked = check(&with(MINI, "master_core: 0", "master_core: 0\n    packets_per_image: 4"));
    let help = the(&checked, "TW0201").help.clone().unwrap_or_default();
    assert!(help.contains("key of `reorder`"), "{help}");
}

#[test]
fn c05_one_rule_for_integers() {
    let core = |written: &str| {
        check(&with(
            MINI,
            "{interface_name: port, cpu_core: 3}",
            &format!("\n  interface_name: port\n  cpu_core: {written}"),
        ))
    };
    for written in ["9", "0x9", "0o11"] {
        let config = core(written).config.expect("an integer");
        assert_eq!(config.rx.and_then(|rx| rx.producer_core), Some(9), "{written}");
    }
    let refused = [
        ("\"9\"", "TW0302"),
        ("09", "TW0302"),
        ("08", "TW0302"),
        ("010", "TW0302"),
        ("9.0", "TW0302"),
        ("1e1", "TW0302"),
        ("1_0", "TW0302"),
        ("[9]", "TW0301"),
        ("[8,9]", "TW0301"),
        ("~", "TW0301"),
        ("", "TW0301"),
        ("five", "TW0301"),
        ("{a: 1}", "TW0301"),
    ];
    for (written, number) in refused {
        let checked = core(written);
        let found = the(&checked, number);
        assert_eq!(found.key, "bench_rx.cpu_core", "{written}");
        assert!(line(&checked, found).starts_with("cpu_core:"), "{written}");
        assert_eq!(errors(&checked), [number], "{written} is one fault");
    }
    let checked = core("[8,9]");
    let found = the(&checked, "TW0301");
    assert_eq!(found.message, "a list of 2 where an integer from 0 to 4095 is due");
}

#[test]
fn c06_nothing_wraps() {
    let sw = file("resnet50_sw_loopback.yaml");
    let cases = [
        ("batch_size: 8192", "batch_size: 4294967296", "1 to 1048576"),
        ("seq_bit_width: 12", "seq_bit_width: 272", "1 to 32"),
        ("num_bufs: 51200", "num_bufs: -1", "1 to 268435456"),
        ("udp_src: 4096", "udp_src: 70000", "0 to 65535"),
        ("timeout_us: 0", "timeout_us: 18446744073709551616", "0 to 3600000000"),
    ];
    for (from, to, range) in cases {
        let checked = check(&with(sw, from, to));
        let found = the(&checked, "TW0303");
        let expected = found.expected.clone().unwrap_or_default();
        assert!(expected.contains(range), "{to}: {expected}");
        assert!(checked.config.is_none());
    }
    let checked = check(&with(sw, "buf_size: 2048", "buf_size: 1.5"));
    assert!(the(&checked, "TW0302").message.contains("floating-point"));
    let checked = check(&with(sw, "udp_dst: 4096", "udp_dst: 5001junk"));
    assert!(the(&checked, "TW0301").message.contains("`5001junk`"));
}

#[test]
fn c07_the_same_key_twice_names_both_lines() {
    let sw = file("resnet50_sw_loopback.yaml");
    let twice = with(sw, "num_bufs: 51200\n", "num_bufs: 51200\n        \"num_bufs\": 16\n");
    let checked = check(&twice);
    let found = the(&checked, "TW0202");
    assert_eq!(found.key, "daqiri.cfg.memory_regions[0].num_bufs");
    let second = found.second.as_ref().expect("the first of the two");
    assert_eq!(found.position.line, second.position.line + 1);
    let block = with(sw, "stats:", "bench_rx: []\nstats:");
    assert_eq!(the(&check(&block), "TW0202").key, "bench_rx");
    // Blocks that are not read are looked at all the same.
    let foreign = format!("{MINI}\nsocket_bench_server: {{a: 1, a: 2}}\n");
    assert_eq!(the(&check(&foreign), "TW0202").key, "socket_bench_server.a");
}

#[test]
fn c09_directive_mark_line_ends_and_documents() {
    let plain = MINI.to_owned();
    let same = [
        plain.clone(),
        format!("%YAML 1.2\n---\n{plain}"),
        format!("\u{feff}%YAML 1.2\n---\n{plain}"),
        format!("# a comment\n%YAML 1.2\n---\n{plain}"),
        plain.replace('\n', "\r\n"),
        format!("%YAML 1.2\r\n---\r\n{}", plain.replace('\n', "\r\n")),
        format!("{plain}...\n"),
        format!("{plain}...\n# the end\n"),
    ];
    let first = check(&plain).config.expect("a valid file");
    for text in &same {
        let checked = check(text);
        assert_eq!(checked.config.as_ref(), Some(&first), "{:#?}", checked.diagnostics);
    }
    let tab = check(&with(&plain, "    version: 1", "\tversion: 1"));
    assert_eq!((the(&tab, "TW0105").position.line, errors(&tab).len()), (3, 1));
    for end in ["---\nstats: {}\n", "...\n---\nstats: {}\n", "---\n"] {
        let checked = check(&format!("{plain}{end}"));
        assert_eq!(errors(&checked), ["TW0106"], "{end:?}");
    }
    for empty in ["", "\n\n", "# only a comment\n", "---\n", "%YAML 1.2\n---\n", "\u{feff}", "~"] {
        assert_eq!(errors(&check(empty)), ["TW0103"], "{empty:?}");
    }
    for (bytes, what) in [(&b"a: \xff"[..], "0xff"), (b"\xff\xfea\0", "UTF-16")] {
        let checked = check_bytes("x", bytes, &Options::default());
        assert!(the(&checked, "TW0101").message.contains(what));
    }
}

#[test]
fn c10_an_alias_bomb_is_refused_fast_and_an_ordinary_anchor_works() {
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (before, now) in ('a'..'i').zip('b'..='i') {
        let list = vec![format!("*{before}"); 9].join(",");
        bomb.push_str(&format!("{now}: &{now} [{list}]\n"));
    }
    assert!(bomb.len() < 400, "{} bytes", bomb.len());
    let start = worked();
    let checked = check(&bomb);
    let time = worked() - start;
    assert!(time < Duration::from_secs(1), "{time:?}");
    assert!(the(&checked, "TW0107").message.contains("50000 values"));

    let anchored = with(MINI, "[rx]}", "&regions [rx]}");
    let anchored = with(&anchored, "flows:", "dynamic_flow_capacity: &zero 0\n          flows:");
    let anchored = with(&anchored, "id: 0\n", "id: *zero\n");
    assert!(check(&anchored).config.is_some(), "{:#?}", check(&anchored).diagnostics);
    assert_eq!(errors(&check("a: *nowhere\n")), ["TW0104"]);
    assert_eq!(errors(&check("a: &a\n  b: *a\n")), ["TW0109"]);
}

#[test]
fn c11_placeholders_are_reported_by_field() {
    let cases = [
        ("address: 0000:01:00.0", "address: <rx-pcie-addr>", "daqiri.cfg.interfaces[0].address"),
        ("address: 0000:01:00.0", "address: <0000:00:00.0>", "daqiri.cfg.interfaces[0].address"),
        ("address: 0000:01:00.0", "address: \"<port>\"", "daqiri.cfg.interfaces[0].address"),
        ("02:00:00:00:00:02", "<MAC>", "bench_tx.eth_dst_addr"),
        ("02:00:00:00:00:02", "${ETH_DST_ADDR}", "bench_tx.eth_dst_addr"),
        ("master_core: 0", "master_core: <CPU_CORE>", "daqiri.cfg.master_core"),
    ];
    for (from, to, key) in cases {
        let checked = check(&with(&mini_port(), from, to));
        let found = the(&checked, "TW0306");
        assert_eq!((&*found.key, errors(&checked).len()), (key, 1), "{to}");
    }
    // The run's own address takes the place of the placeholder, and of a missing key.
    let options = Options { eth_dst: Some([2, 0, 0, 0, 0, 9]), ..Options::default() };
    let placeholder = with(MINI, "02:00:00:00:00:02", "${ETH_DST_ADDR}");
    let missing = with(MINI, "  eth_dst_addr: 02:00:00:00:00:02\n", "");
    for text in [MINI, &placeholder, &missing] {
        let config = check_str("x", text, &options).config.expect("the address is given");
        assert_eq!(config.tx.map(|tx| tx.header.eth_dst), options.eth_dst);
    }
}

#[test]
fn c12_booleans_are_true_and_false_and_names_stay_names() {
    for written in ["yes", "on", "True", "\"true\"", "1", "y", "TRUE", "off"] {
        let text = with(MINI, "flow_isolation: true", &format!("flow_isolation: {written}"));
        let checked = check(&text);
        let found = the(&checked, "TW0305");
        let meant = if written == "off" { "write false" } else { "write true" };
        assert_eq!(found.help.as_deref(), Some(meant), "{written}");
    }
    let checked = check(&with(MINI, "flow_isolation: true", "flow_isolation: maybe"));
    the(&checked, "TW0301");
    for name in ["no", "on", "1e3", "true", "0x10", "12"] {
        let text = MINI.replace("name: port", &format!("name: {name}"));
        let text = text.replace("{name: rq", &format!("{{name: {name}"));
        let config = check(&text).config.expect("a name is a name");
        let rx = config.rx.expect("a receiver");
        assert_eq!((&*rx.interface, &*rx.queue), (name, name));
    }
}

#[test]
fn c20_one_fault_a_file_and_five_in_one() {
    let faults = [
        ("[rx]}", "[rxx]}", "TW0401", "queues[0].memory_regions"),
        ("action: {type: queue, id: 0}", "action: {type: queue, id: 7}", "TW0401", "action.id"),
        (
            "bench_rx: {interface_name: port",
            "bench_rx: {interface_name: prot",
            "TW0401",
            "bench_rx",
        ),
        ("{name: out, kind", "{name: rx, kind", "TW0402", "memory_regions[2].name"),
        (
            "images_per_batch: 4",
            "images_per_batch: 4\n  flow_ids: [1]",
            "TW0401",
            "reorder.flow_ids",
        ),
    ];
    let mut all = MINI.to_owned();
    for (from, to, number, key) in faults {
        let checked = check(&with(MINI, from, to));
        assert!(the(&checked, number).key.contains(key), "{to}");
        all = with(&all, from, to);
    }
    let checked = check(&all);
    for (_, to, number, key) in faults {
        let found = checked.diagnostics.iter();
        let mut found = found.filter(|found| found.code.to_string() == number);
        // The flow ids can only be looked up once the receiver's interface resolves.
        assert!(found.any(|found| found.key.contains(key)) || key == "reorder.flow_ids", "{to}");
    }
    let second = with(
        MINI,
        "bench_rx:",
        "            - {name: g, id: 0, action: {type: queue, id: 0}, match: {flex_item_id: 3, \
         val: 1, mask: 1}}\nbench_rx:",
    );
    let numbers = errors(&check(&second));
    assert_eq!(numbers, ["TW0402", "TW0404", "TW0401"], "same id; two classes; no such flex item");
    let id = check(MINI).config.and_then(|config| config.rx).map(|rx| rx.flows.as_slice()[0].id);
    assert_eq!(id, Some(0), "flow id 0 is legal");
}
