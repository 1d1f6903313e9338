//! The field cases of buffers, geometry, roles and cores, each under its id.

use tensorwire_configs::{
    Backend, Mode, Options, Receiver, Severity, Verdict, check_file, check_str, render, shipped,
};
use tensorwire_core::flow::FlowTable;
use tensorwire_core::geometry::GeometrySpec;

use crate::support::{MINI, check, errors, file, line, mini_port, the, with};

#[test]
fn c13_buffers_of_a_queue_depend_on_ring_and_batch() {
    let cases = [
        (8192, 1024, Some(12_288)),
        (12_287, 1024, Some(12_288)),
        (12_288, 1024, None),
        (24_576, 10_240, Some(28_672)),
        (28_672, 10_240, None),
    ];
    for (buffers, batch, floor) in cases {
        let text = with(
            &mini_port(),
            "{name: rx, kind: host, num_bufs: 16384",
            &format!("{{name: rx, kind: host, num_bufs: {buffers}"),
        );
        let text = with(&text, "cpu_core: 2, batch_size: 16", &format!("batch_size: {batch}"));
        let checked = check(&text);
        match floor {
            None => assert_eq!(errors(&checked), [""; 0], "({buffers}, {batch})"),
            Some(floor) => {
                assert_eq!(errors(&checked), ["TW0603"], "({buffers}, {batch})");
                let found = the(&checked, "TW0603");
                assert_eq!(found.key, "daqiri.cfg.memory_regions[1].num_bufs");
                let expected = found.expected.clone().unwrap_or_default().replace(',', "");
                assert!(expected.starts_with(&format!("at least {floor} = max(")), "{expected}");
                // The number that is proposed satisfies the rule itself.
                let help = found.help.clone().unwrap_or_default();
                let good: u64 = help.trim_start_matches("write ").parse().expect("a number");
                let from = format!("num_bufs: {buffers}");
                let mended = check(&with(&text, &from, &format!("num_bufs: {good}")));
                assert_eq!(errors(&mended), [""; 0]);
            }
        }
    }
}

#[test]
fn c15_queue_sizes_that_straddle_batches_are_notes() {
    let text = with(MINI, "cpu_core: 2, batch_size: 16", "cpu_core: 2, batch_size: 24");
    let text = with(&text, "cpu_core: 1, batch_size: 16", "cpu_core: 1, batch_size: 10");
    for text in [text.clone(), with(&text, "timeout_us: 0, ", "")] {
        let checked = check(&text);
        assert!(checked.config.is_some());
        for number in ["TW0904", "TW0905", "TW0906"] {
            let found = the(&checked, number);
            assert_eq!(found.severity(), Severity::Note);
            assert!(found.message.contains("DAQIRI would"), "{}", found.message);
        }
    }
}

#[test]
fn c16_one_default_for_the_sequence_number() {
    // Documented files state what the default is; a file without the keys means the same.
    let documented = GeometrySpec::DOCUMENTED;
    for (name, text) in tensorwire_configs::SHIPPED {
        // Two hosts over the kernel's stack use the routable layout.
        if ["routable", "socket", "veth"].iter().any(|layout| name.contains(layout)) {
            continue;
        }
        let config = check(text).config.expect("a shipped file");
        assert_eq!(config.geometry.spec(), &documented, "{name}");
        let bare = with(&with(text, "  seq_bit_width: 12\n", ""), "  seq_bit_offset: 128\n", "");
        let bare = check(&bare).config.expect("the defaults are right");
        assert_eq!(bare.geometry.spec(), &documented, "{name} without the keys");
    }
    let schema = tensorwire_configs::schema();
    let width = format!("\"default\": {}", documented.seq_bit_width);
    let after = schema.split("\"seq_bit_width\"").nth(1).expect("in the schema");
    assert!(after.split('}').next().is_some_and(|field| field.contains(&width)));
    let page = include_str!("../../../docs/config.md");
    assert!(page.contains("`seq_bit_width` | 1 to 32 (bits) | 12 |"), "docs/config.md says so");
}

#[test]
fn c17_the_sequence_number_on_header_fields() {
    let at = |offset: u32, extra: (&str, &str)| {
        let text = with(MINI, "seq_bit_offset: 128", &format!("seq_bit_offset: {offset}"));
        check(&with(&text, extra.0, extra.1))
    };
    let none = ("version: 1", "version: 1");
    let checked = at(128, none);
    assert!(the(&checked, "TW0903").message.contains("IPv4 total length"));
    assert!(checked.config.is_some());
    let checked = at(336, none);
    assert!(checked.config.is_some());
    assert!(!checked.diagnostics.iter().any(|found| found.code.to_string() == "TW0903"));
    for (offset, field) in [(112, "version"), (184, "protocol"), (288, "UDP destination port")] {
        let checked = at(offset, none);
        let found = the(&checked, "TW0512");
        assert!(found.message.contains(field), "{offset}: {}", found.message);
        assert_eq!(line(&checked, found), format!("seq_bit_offset: {offset}"));
        assert!(checked.config.is_none());
    }
    // One bit past the header of 64 bytes: 505 + 8 = 513.
    assert_eq!(errors(&at(505, none)), ["TW0511"]);
    assert_eq!(errors(&at(504, none)), [""; 0]);
    // A flow that matches on the length makes the documented place wrong.
    let matched = ("udp_dst: 4096}", "udp_dst: 4096, ipv4_len: 242}");
    assert!(the(&at(128, matched), "TW0512").second.is_some());
}

#[test]
fn c21_roles() {
    let tx = file("resnet50_tx_spark_xhost.yaml");
    let rx = file("resnet50_rx_spark_xhost.yaml");
    // A sender needs neither model nor labels, a receiver no sender.
    let bare = tx.split("inference:").next().expect("a part").to_owned();
    let checked = check(&bare);
    let (mode, config) = checked.for_mode(None).expect("a sender");
    assert_eq!((mode, config.shape_given, config.inference), (Mode::Tx, false, None));
    assert_eq!(config.geometry.image_bytes(), 301_056);
    let checked = check(rx);
    assert_eq!(checked.for_mode(Some(Mode::Rx)).map(|(mode, _)| mode), Ok(Mode::Rx));
    for (text, mode, block) in
        [(tx, Mode::Rx, "bench_rx"), (rx, Mode::Tx, "bench_tx"), (rx, Mode::Both, "bench_tx")]
    {
        let refused = check(text).for_mode(Some(mode)).expect_err("not made for it");
        let found = refused.iter().find(|found| found.severity() == Severity::Error);
        let found = found.expect("an error");
        assert_eq!((&*found.code.to_string(), &*found.key), ("TW0802", block));
    }
    // Both ends: each alone, or the two.
    let both = check(MINI);
    let ends = |mode| {
        let (_, config) = both.for_mode(mode).expect("both ends");
        (config.rx.is_some(), config.tx.is_some())
    };
    assert_eq!(ends(None), (true, true));
    assert_eq!(ends(Some(Mode::Rx)), (true, false));
    assert_eq!(ends(Some(Mode::Tx)), (false, true));
    // Neither, by name.
    let neither = MINI.replace("bench_rx:", "bench_a:").replace("bench_tx:", "bench_b:");
    let checked = check(&neither);
    assert!(the(&checked, "TW0801").message.contains("neither `bench_rx` nor `bench_tx`"));
    // A receiver without a model says that it has none.
    let model = "inference: {onnx_path: m.onnx, height: 16, width: 16, cpu_core: 5}";
    assert!(errors(&check(&with(MINI, model, ""))).contains(&"TW0804".to_owned()));
    let none = with(MINI, model, "tensorwire: {inference_backend: none}");
    assert_eq!(errors(&check(&none)), [""; 0]);
}

#[test]
fn c21_the_reorder_stage_written_twice() {
    let stage = |width: u32, offset: u32| {
        let method = format!(
            "seq_packets_per_batch: {{sequence_number: {{bit_offset: 128, bit_width: {width}}}, \
             packets_per_batch: 16}}"
        );
        let stage = format!(
            "{{name: stage, reorder_type: cpu, memory_region: out, payload_byte_offset: {offset}, \
             flow_ids: [0], method: {{{method}}}}}"
        );
        let stages = format!("          reorder_configs: [{stage}]\n          flows:\n");
        with(MINI, "          flows:\n", &stages)
    };
    // The device's stage copies int8, so the application's must too.
    let int8 = |text: &str| {
        let text = with(text, "seq_bit_width: 8", "seq_bit_width: 8\n  output_type: int8");
        let text = with(&text, "buf_size: 6144", "buf_size: 3072");
        with(&text, "height: 16,", "height: 16, enable_int8: true,")
    };
    let checked = check(&int8(&stage(8, 64)));
    assert_eq!(errors(&checked), [""; 0], "{:#?}", checked.diagnostics);
    let checked = check(&int8(&stage(16, 60)));
    assert_eq!(errors(&checked), ["TW0517", "TW0517"]);
    for found in checked.diagnostics.iter().filter(|found| found.severity() == Severity::Error) {
        let second = found.second.as_ref().expect("both places");
        assert!(found.key.starts_with("reorder."));
        assert!(second.position.line < found.position.line);
    }
    assert_eq!(errors(&check(&stage(8, 64))), ["TW0517"], "fp16 here, a copy there");
}

#[test]
fn c23_shared_and_missing_cores() {
    let shared = with(MINI, "cpu_core: 3}", "cpu_core: 2}");
    let shared = with(&shared, "cpu_core: 5}", "cpu_core: 0}");
    let checked = check(&shared);
    let found = the(&checked, "TW0703");
    assert_eq!(found.severity(), Severity::Warning);
    for part in
        ["core 0: daqiri.cfg.master_core, inference.cpu_core", "core 2: ", "bench_rx.cpu_core"]
    {
        assert!(found.message.contains(part), "{}", found.message);
    }
    assert!(checked.config.is_some());
    assert!(!check(MINI).diagnostics.iter().any(|found| found.code.to_string() == "TW0703"));

    let cores = |text: &str, cores: &[u32]| {
        let options = Options { cores_available: Some(cores.to_vec()), ..Options::default() };
        check_str("x", text, &options)
    };
    let all = cores(&mini_port(), &[0, 1, 2, 3, 4, 5]);
    assert_eq!(errors(&all), [""; 0]);
    let lacking = cores(&mini_port(), &[0, 1, 2, 4]);
    assert_eq!(errors(&lacking), ["TW0701", "TW0701"]);
    let keys: Vec<&str> = lacking
        .diagnostics
        .iter()
        .filter(|found| found.code.to_string() == "TW0701")
        .map(|found| &*found.key)
        .collect();
    assert_eq!(keys, ["bench_rx.cpu_core", "inference.cpu_core"]);
    // In the software loopback it is one notice.
    let looped = cores(MINI, &[0]);
    assert!(looped.config.is_some());
    let found = the(&looped, "TW0702");
    assert_eq!(found.severity(), Severity::Note);
    for core in ["999", "4095"] {
        assert!(
            check(&with(MINI, "cpu_core: 3}", &format!("cpu_core: {core}}}"))).config.is_some()
        );
    }
    assert_eq!(errors(&check(&with(MINI, "cpu_core: 3}", "cpu_core: -1}"))), ["TW0303"]);
}

#[test]
fn c26_a_missing_file_is_not_an_invalid_one() {
    let missing = std::path::Path::new("no/such/file.yaml");
    let error = check_file(missing, &Options::default()).expect_err("there is no such file");
    assert!(error.to_string().starts_with("no/such/file.yaml: cannot be read: "), "{error}");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    check_file(folder, &Options::default()).expect_err("a folder is no file");
    let good = folder.join("resnet50_sw_loopback.yaml");
    let checked = check_file(&good, &Options::default()).expect("it can be read");
    assert_eq!(checked.verdict(), Verdict::Clean);
    // Several files in one report keep their order, good and missing ones included.
    let bad = check_str("bad.yaml", "daqiri: 1\n", &Options::default());
    let files = [Ok(&checked), Ok(&bad), Err(&error), Ok(&checked)];
    let all = render::render_all(&files, render::Format::Json);
    let verdicts: Vec<&str> =
        all.lines().filter(|line| line.contains("\"verdict\"")).map(str::trim).collect();
    assert_eq!(
        verdicts,
        [
            "\"verdict\": \"clean\",",
            "\"verdict\": \"invalid\",",
            "\"verdict\": \"unreadable\",",
            "\"verdict\": \"clean\",",
        ]
    );
    for (format, said) in [
        (render::Format::Text, "no/such/file.yaml: cannot be read: "),
        (render::Format::Json, "\"error\": \"No such file"),
        (render::Format::Sarif, "\"executionSuccessful\": false"),
        (render::Format::Github, "::error file=no/such/file.yaml::cannot be read: "),
    ] {
        let shown = render::render_all(&files, format);
        assert_eq!(shown.matches(said).count(), 1, "{format:?}: {shown}");
    }
}

#[test]
fn c27_the_rate_that_a_timeout_asks_for() {
    let sw = file("resnet50_sw_loopback.yaml");
    let checked = check(&with(sw, "timeout_us: 0", "timeout_us: 2000"));
    let found = the(&checked, "TW0908");
    assert_eq!(found.severity(), Severity::Warning);
    let formula = "4096 packets × 1240 B × 8 / 2000 µs: below 20.3 Gb/s";
    assert!(found.message.starts_with(formula), "{}", found.message);
    // MINI: 16 × 256 × 8 / 2 ms = 16.384 Mb/s, which any link has.
    let slow = with(MINI, "timeout_us: 0", "timeout_us: 2000");
    let checked = check(&slow);
    assert!(the(&checked, "TW0907").message.contains("16.3 Mb/s"));
    assert!(checked.verdict() == Verdict::Clean && checked.config.is_some());
}

#[test]
fn r01_r11_the_largest_loss_that_the_width_can_tell() {
    let width =
        |bits: u32| check(&with(MINI, "seq_bit_width: 8", &format!("seq_bit_width: {bits}")));
    // Width 4 covers one batch of 16 and is accepted; N = clamp(2^w / 8, 2, 8).
    let checked = width(4);
    assert!(checked.config.is_some());
    assert!(the(&checked, "TW0901").message.contains("2^4 − 2 = 14 packets"));
    assert!(the(&width(5), "TW0902").message.contains("2^5 − 4 = 28 packets"));
    assert!(the(&width(8), "TW0902").message.contains("2^8 − 8 = 248 packets"));
    assert_eq!(errors(&width(3)), ["TW0510"]);
}

#[test]
fn e08_the_profile_holds_the_batch() {
    let model = |keys: &str| check(&with(MINI, "height: 16, ", &format!("height: 16, {keys}, ")));
    assert_eq!(errors(&model("opt_avg: 2, opt_max: 3")), ["TW0513"]);
    assert_eq!(errors(&model("opt_avg: 4, opt_max: 4")), [""; 0]);
    assert_eq!(errors(&model("opt_min: 64")), ["TW0519"]);
    assert_eq!(errors(&model("opt_max: 16")), ["TW0519"], "opt_avg is 32 by default");
    assert_eq!(errors(&model("opt_max: 0")), ["TW0303"]);
    // Sub-batches need less.
    assert_eq!(errors(&model("opt_avg: 2, opt_max: 2, images_per_batch: 2")), [""; 0]);
}

#[test]
fn i01_an_override_that_does_not_fill_the_batch() {
    let run = |images: u32| {
        let options = Options { images_per_inference: Some(images), ..Options::default() };
        check_str("x", MINI, &options)
    };
    for images in [1, 2, 4] {
        let config = run(images).config.expect("a power of two that divides 4");
        assert_eq!(config.geometry.images_per_batch(), 4, "the window keeps its size");
        assert_eq!(config.inference.map(|model| model.images_per_inference), Some(images));
    }
    for images in [0, 3, 8] {
        let checked = run(images);
        assert_eq!(the(&checked, "TW0514").key, "--images-per-batch");
    }
}

#[test]
fn a_backend_that_the_run_asks_for_takes_the_place_of_the_files() {
    let run = |text: &str, backend| {
        check_str("x", text, &Options { backend: Some(backend), ..Options::default() })
    };
    let text = with(MINI, "inference:", "tensorwire: {inference_backend: tensorrt}\ninference:");
    for backend in [Backend::None, Backend::Onnx, Backend::Auto] {
        let config = run(&text, backend).config.expect("valid");
        assert_eq!(config.settings.inference_backend, backend);
    }
    assert_eq!(
        check(&text).config.map(|config| config.settings.inference_backend),
        Some(Backend::TensorRt)
    );
    // Without a model only a receiver that does not infer is whole.
    let (without, _) = MINI.split_once("inference:").expect("the block");
    assert!(errors(&check(without)).contains(&"TW0804".to_owned()));
    assert!(!errors(&run(without, Backend::None)).contains(&"TW0804".to_owned()));
}

#[test]
fn the_rate_limit_of_the_transmit_queue_reaches_the_sender() {
    let limited = with(MINI, "{name: tq, id: 0,", "{name: tq, id: 0, pacing_mbps: 1500,");
    let sender = |text: &str| check(text).config.and_then(|config| config.tx).expect("a sender");
    assert_eq!(sender(&limited).pacing_mbps, 1500);
    assert_eq!(sender(MINI).pacing_mbps, 0, "no limit unless one is asked for");
    let far = with(MINI, "{name: tq, id: 0,", "{name: tq, id: 0, pacing_mbps: 1000001,");
    assert_eq!(errors(&check(&far)), ["TW0303"]);
}

#[test]
fn only_the_flows_that_are_named_are_reordered() {
    let flow =
        "            - {name: g, id: 7, action: {type: queue, id: 0}, match: {udp_dst: 9}}\n";
    let two = with(MINI, "bench_rx: {", &format!("{flow}bench_rx: {{"));
    let receiver = |text: &str| check(text).config.and_then(|config| config.rx).expect("valid");
    let flows = |rx: &Receiver| {
        let count = |table: FlowTable| table.len();
        (rx.flow_table().map(count), rx.reordered_flow_table().map(count))
    };
    assert_eq!(flows(&receiver(&two)), (Ok(2), Ok(2)));
    let one = with(&two, "reorder:\n", "reorder:\n  flow_ids: [0]\n");
    assert_eq!(flows(&receiver(&one)), (Ok(2), Ok(1)));
}

#[test]
fn threads_know_the_keys_of_their_cores() {
    let config = check(MINI).config.expect("valid");
    let (rx, tx) = (config.rx.expect("a receiver"), config.tx.expect("a sender"));
    assert_eq!(rx.queue_path, "daqiri.cfg.interfaces[0].rx.queues[0]");
    assert_eq!((rx.bench_path.as_str(), tx.bench_path.as_str()), ("bench_rx", "bench_tx"));
}

#[test]
fn i06_an_image_that_does_not_divide() {
    let payload = |bytes: u32| {
        let text = with(MINI, "out_payload_len: 192", &format!("out_payload_len: {bytes}"));
        check(&text)
    };
    for (bytes, near) in [(200, "192 B in 4 packets"), (1000, "768 B in 1 packet")] {
        let checked = payload(bytes);
        let found = the(&checked, "TW0503");
        assert!(found.message.contains(near), "{}", found.message);
        // One wrong number is one error: the sizes that speak of 192 are right.
        assert_eq!(errors(&checked), ["TW0503"], "{:#?}", checked.diagnostics);
    }
    let checked = check(&with(MINI, "height: 16", "height: 17"));
    assert_eq!(errors(&checked), ["TW0503"]);
    let checked = check(&with(MINI, "packets_per_image: 4", "packets_per_image: 8"));
    assert_eq!(errors(&checked), ["TW0503"]);
}

#[test]
fn as_many_flows_as_a_queue_has() {
    let flows = |count: u32| {
        let mut text = String::from("          flows:\n");
        for id in 0..count {
            text.push_str(&format!(
                "            - {{name: f, id: {id}, action: {{type: queue, id: 0}}}}\n"
            ));
        }
        let (before, rest) = MINI.split_once("          flows:\n").expect("flows");
        let (_, after) = rest.split_once("bench_rx:").expect("the block behind them");
        check(&format!("{before}{text}bench_rx:{after}"))
    };
    let config = flows(64).config.expect("64 flows");
    assert_eq!(config.rx.expect("a receiver").flow_table().map(|table| table.len()), Ok(64));
    assert_eq!(errors(&flows(65)), ["TW0303"]);
    assert_eq!(errors(&flows(70)), ["TW0303"]);
}

#[test]
fn p17_a_jumbo_frame_fits_its_buffers_or_is_refused() {
    // 2 × 1000 × 4 elements in one packet of 8000 bytes: frames of 8064.
    let text = with(MINI, "height: 16, width: 16", "channels: 2, height: 1000, width: 4");
    let text = with(&text, "out_payload_len: 192", "out_payload_len: 8000");
    let text = with(&text, "packets_per_image: 4", "packets_per_image: 1");
    let text = with(&text, "payload_size: 192", "payload_size: 8000");
    let text = with(&text, "seq_bit_width: 8", "seq_bit_width: 8\n  memory_region: out");
    let text = with(&text, "buf_size: 6144", "buf_size: 64000");
    let sized = |bytes: u32| text.replace("buf_size: 256", &format!("buf_size: {bytes}"));
    assert_eq!(errors(&check(&sized(8064))), [""; 0]);
    assert_eq!(errors(&check(&sized(8063))), ["TW0508", "TW0506"]);
}

#[test]
fn c25_the_dry_start_has_the_verdict_of_the_validator() {
    // What `run` starts from is what `validate` judges: one call, with no check behind it.
    for name in ["resnet50_sw_loopback.yaml", "resnet50_rx_spark_xhost.yaml"] {
        let text = shipped(name).expect("a shipped file");
        for (from, to) in [("version: 1", "version: 2"), ("buf_size: 1240", "buf_size: 1241")] {
            let checked = check(&with(text, from, to));
            assert_eq!(checked.verdict(), Verdict::Invalid);
            assert_eq!(checked.for_mode(None).expect_err("invalid"), checked.diagnostics);
        }
    }
}
