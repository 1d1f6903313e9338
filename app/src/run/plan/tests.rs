use tensorwire_sim::nic::{SwNicConfig, TxMode};

use super::*;
use crate::model::Arch;
use crate::run::machines;
use crate::run::testkit::{Case, frames, only};

fn software(plan: Plan) -> SwNicConfig {
    let crate::run::nic::NicPlan::Software(nic) = plan.nic else { panic!("a loopback") };
    *nic
}

fn labels(plan: &Plan) -> Option<&[u16]> {
    plan.labels.as_ref().map(Labels::as_slice)
}

#[test]
fn labels_are_those_of_the_capture_that_is_sent() {
    let case = Case::new()
        .capture("a.pcap", 4)
        .capture("b.pcap", 4)
        .file("a.labels", "1\n1\n1\n1\n")
        .file("a.pcap.labels", "2\n2\n2\n2\n")
        .file("b.pcap.labels", "3\n3\n3\n3\n")
        .file("other", "4\n4\n4\n4\n")
        .dataset("a.pcap", Some("a.labels"));
    let (b, other) = (case.path("b.pcap"), case.path("other"));
    let (b, other) = (b.to_string_lossy(), other.to_string_lossy());
    assert_eq!(labels(&case.planned(&[])), Some(&[1; 4][..]));
    assert_eq!(labels(&case.planned(&["--dataset", &b])), Some(&[3; 4][..]));
    assert_eq!(labels(&case.planned(&["--labels", &other])), Some(&[4; 4][..]));
    let both = case.planned(&["--dataset", &b, "--labels", &other]);
    assert_eq!(labels(&both), Some(&[4; 4][..]));
    std::fs::remove_file(&*b.replace("b.pcap", "b.pcap.labels")).expect("there");
    assert_eq!(labels(&case.planned(&["--dataset", &b])), None, "not those of another capture");
    let (exit, reason) = case.refusal(&["--labels", "/nowhere/labels"]);
    assert!(exit == 7 && reason.starts_with("cannot read /nowhere/labels: "), "{reason}");
}

#[test]
fn s01_fewer_labels_than_images_are_refused_if_asked_to() {
    let case = |labels: &str| {
        let case = Case::new().capture("x.pcap", 16).dataset("x.pcap", None);
        if labels.is_empty() { case } else { case.file("x.pcap.labels", labels) }
    };
    for (labels, count) in [("1\n2\n3\n4\n5\n6\n7\n8\n9\n0\n", 10), ("\n", 0), ("", 0)] {
        let case = case(labels);
        assert_eq!(case.planned(&[]).pass_images, Some(16));
        let (exit, reason) = case.refusal(&["--strict-labels"]);
        let words = format!(
            "x.pcap: {count} labels for 16 images; images without a label are refused \
             (--strict-labels)"
        );
        assert_eq!((exit, reason), (7, words));
    }
    case(&"7\n".repeat(16)).planned(&["--strict-labels"]);
}

#[test]
fn p12_the_limit_of_a_capture_is_a_flag() {
    let case = Case::new().capture("x.pcap", 4).dataset("x.pcap", None);
    // 24 bytes, and 16 frames of 16 + 256.
    let (exit, reason) = case.refusal(&["--max-capture-bytes", "4375"]);
    assert_eq!(exit, 7);
    assert!(reason.starts_with("x.pcap: 4376 bytes, allowed 4375"), "{reason}");
    assert!(reason.ends_with("; --max-capture-bytes sets another limit"), "{reason}");
    case.planned(&["--max-capture-bytes", "4376"]);
}

#[test]
fn p04_the_error_of_a_cut_capture_names_the_flag_that_uses_the_rest() {
    let bytes = crate::dataset::testkit::pcap_of(&frames(5));
    let case = Case::new().file("x.pcap", &bytes[..bytes.len() - 1]).dataset("x.pcap", None);
    let (exit, reason) = case.refusal(&[]);
    assert_eq!(exit, 7);
    let end = "19 whole frames lie before it; --keep-whole-frames sends these";
    assert!(reason.ends_with(end), "{reason}");
    assert_eq!(case.planned(&["--keep-whole-frames"]).pass_images, Some(5));
    // A file without a whole frame has nothing to send.
    let case = Case::new().file("x.pcap", &bytes[..100]).dataset("x.pcap", None);
    assert!(!case.refusal(&[]).1.contains("--keep"));
}

#[test]
fn a_feature_file_that_cannot_be_is_refused_before_anything_is_read() {
    // The capture is not there: whoever looked at it would say so.
    let case = || Case::new().dataset("none.pcap", None);
    let (exit, reason) = case().refusal(&["--features", "f.npy"]);
    assert!(exit == 2 && reason.starts_with("--features: there are no features"), "{reason}");
    let (exit, reason) = case().refusal(&["--logits", "l.npy"]);
    assert!(exit == 2 && reason.starts_with("--logits: there are no logits"), "{reason}");
    let keyed = |backend: &str| {
        case().with("inference_backend: none,", &format!("{backend}features: f.npy,"))
    };
    // TW0810, which the check of the file tells.
    let (exit, reason) = keyed("inference_backend: none, ").refusal(&[]);
    assert!(exit == 3 && reason.ends_with("c.yaml: 1 error"), "{reason}");
    // The flag says what is not in the file: then nothing is wrong with the file.
    let (exit, reason) = keyed("").refusal(&["--backend", "none"]);
    assert!(exit == 7 && reason.contains("none.pcap"), "{reason}");
}

#[test]
fn a_model_is_looked_at_before_the_capture() {
    let case = |model: &str| {
        let case = Case::new().dataset("none.pcap", None);
        case.with("inference_backend: none, ", "")
            .with("{height: 16", &format!("{{{model}height: 16"))
    };
    // TW0809, which the check of the file tells.
    let (exit, reason) = case("").refusal(&[]);
    assert!(exit == 3 && reason.ends_with("c.yaml: 1 error"), "{reason}");
    // An engine is a model, for a build with TensorRT.
    let (exit, reason) = case("engine_path: m.engine, ").refusal(&[]);
    if tensorwire_tensorrt::BUILT {
        // Whether there is such an engine, and a GPU, is found out at the start.
        assert!(exit == 7 && reason.contains("none.pcap"), "{reason}");
    } else {
        assert!(exit == 5 && reason.starts_with("inference.engine_path: "), "{reason}");
        assert!(reason.contains("this program has no TensorRT: "), "{reason}");
    }
    let (exit, reason) = case("onnx_path: /nowhere/m.onnx, ").refusal(&[]);
    assert_eq!(exit, 7);
    assert!(reason.contains("/nowhere/m.onnx"), "{reason}");
    assert!(reason.ends_with("; `tensorwire export-model` writes one"), "{reason}");
    let (exit, reason) = case("onnx_path: /dev/null, ").refusal(&[]);
    assert!(exit == 7 && reason.contains("/dev/null"), "{reason}");
    let (exit, reason) = case("onnx_path: m.onnx, ").refusal(&["--backend", "tensorrt"]);
    if tensorwire_tensorrt::BUILT {
        assert!(exit == 7 && reason.contains("m.onnx"), "{reason}");
    } else {
        assert!(exit == 5 && reason.contains("`tensorrt`"), "{reason}");
    }
}

#[test]
fn the_rows_of_a_feature_file_have_to_be_known() {
    let case = Case::new().with("inference_backend: none, ", "");
    let model = case.path("m.onnx");
    let options = crate::model::ExportOptions {
        height: 16,
        width: 16,
        ..crate::model::ExportOptions::new(
            Arch::Resnet18,
            crate::model::WeightsSource::Seed(1),
            model.clone(),
        )
    };
    crate::model::export(&options).expect("a model");
    let model = format!("onnx_path: {}, feature_dim: 512, ", model.display());
    let case = case.with("{height: 16", &format!("{{{model}height: 16"));
    let flags = ["--features", "f.npy"];
    let (exit, reason) = case.refusal(&flags);
    assert!(exit == 2 && reason.contains("rows of the feature file"), "{reason}");
    let rows =
        |more: &[&str]| case.planned(&[&flags, more].concat()).features.map(|file| file.rows);
    assert_eq!(rows(&["--expected-images", "100"]), Some(100));
    assert_eq!(rows(&["--replay-once"]), Some(4), "one batch of made-up frames");
    // A place that cannot be written is told before the model is loaded, which would say "model".
    let failure = case.failure(&["--replay-once", "--features", "/dev/null"]);
    assert_eq!(failure.exit, ExitCode::File);
    assert!(failure.reason.contains("cannot create /dev/null"), "{}", failure.reason);
    assert!(only(&case.path("x"), &["c.yaml", "m.onnx"]));
}

#[test]
fn what_is_sent_how_often_and_owed() {
    let made_up = Case::new();
    let case = Case::new().capture("x.pcap", 8).dataset("x.pcap", None);
    let of = |case: &Case, flags: &[&str]| {
        let plan = case.planned(flags);
        (plan.passes, plan.owed)
    };
    assert_eq!(of(&case, &[]), (Passes::Once, Owed::Images(8)));
    assert_eq!(of(&case, &["--loop"]), (Passes::Loop, Owed::SomeImage));
    assert_eq!(of(&case, &["--loop-verbatim"]), (Passes::Verbatim, Owed::SomeImage));
    assert_eq!(of(&case, &["--seconds", "1"]), (Passes::Once, Owed::SomeImage));
    // More than is sent: owed all the same, so that the run does not end with 0.
    assert_eq!(of(&case, &["--expected-images", "9"]), (Passes::Once, Owed::Images(9)));
    assert_eq!(of(&made_up, &[]), (Passes::Loop, Owed::SomeImage));
    assert_eq!(of(&made_up, &["--loop-verbatim"]), (Passes::Verbatim, Owed::SomeImage));
    assert_eq!(of(&made_up, &["--replay-once"]), (Passes::Once, Owed::Images(4)));
    for flag in ["--strict-labels", "--keep-whole-frames", "--max-capture-bytes=9", "--labels=x"] {
        let (exit, reason) = made_up.refusal(&[flag]);
        assert!(exit == 2 && reason.contains("there is no capture"), "{flag}: {reason}");
    }
}

#[test]
fn s03_more_images_owed_than_sent_end_the_run_with_4() {
    let case = Case::new().capture("x.pcap", 8).dataset("x.pcap", None);
    let summary = case.run(&["--expected-images", "12"]);
    assert_eq!((summary.exit_code, summary.images.delivered), (4, 8));
    assert!(summary.exit_reason.starts_with("8 of 12 images"), "{}", summary.exit_reason);
}

#[test]
fn the_wire_is_lossless_unless_time_bounds_the_run_or_a_flag_says_so() {
    let mode = |flags: &[&str]| software(Case::new().planned(flags)).mode;
    assert_eq!(mode(&[]), TxMode::Lossless);
    assert_eq!(mode(&["--seconds", "1"]), TxMode::Wire);
    assert_eq!(mode(&["--seconds", "1", "--sim-tx", "lossless"]), TxMode::Lossless);
    assert_eq!(mode(&["--sim-tx", "wire"]), TxMode::Wire);
}

#[test]
fn the_destination_that_is_asked_for_reaches_the_frames() {
    let case = Case::new().capture("x.pcap", 4).dataset("x.pcap", None);
    let written = |flags: &[&str]| machines::transmitter(&case.planned(flags)).eth_dst;
    assert_eq!(written(&[]), None, "frames of a capture go where they went");
    assert_eq!(written(&["--eth-dst", "0a:0b:0c:00:00:01"]), Some([0x0a, 0x0b, 0x0c, 0, 0, 1]));
    let (exit, reason) = case.refusal(&["--eth-dst", "nonsense"]);
    assert!(exit == 2 && reason.contains("`nonsense` is no MAC address"), "{reason}");
    let data = |case: &Case| {
        let (args, plan) = (case.args(&[]), case.planned(&[]));
        let data = DataSet::load(&args, &plan.config, plan.mode, Talk::new(true));
        data.expect("loaded").other_destination(&plan.config)
    };
    assert_eq!(data(&case), None);
    let other = case.with("eth_dst_addr: 02:00:00:00:00:02", "eth_dst_addr: 02:00:00:00:00:03");
    assert_eq!(data(&other), Some([2, 0, 0, 0, 0, 2]), "the frames go elsewhere than configured");
}

#[test]
fn the_rate_limit_of_the_queue_is_kept() {
    // 64 frames of 256 + 24 bytes at 1 Mb/s: 143 ms.
    let case = Case::new().with("{name: tq, id: 0,", "{name: tq, id: 0, pacing_mbps: 1,");
    let case = case.capture("x.pcap", 16).dataset("x.pcap", None);
    let summary = case.run(&[]);
    assert_eq!((summary.exit_code, summary.images.delivered), (0, 16));
    let seconds = summary.tx.expect("a sender").seconds;
    // The last frame is on its way when the sender has ended.
    assert!(seconds >= 63.0 * 280.0 * 8.0 / 1e6, "{seconds} s are faster than the limit");
}

#[test]
fn rings_that_the_software_nic_does_not_have_are_refused_by_key() {
    let case = Case::new().with("quiesce_wait_s: 1", "quiesce_wait_s: 1, rx_ring: 32768");
    let case = case
        .with("{name: rx, kind: host, num_bufs: 16384", "{name: rx, kind: host, num_bufs: 65536");
    let (exit, reason) = case.refusal(&[]);
    assert!(exit == 5 && reason.starts_with("tensorwire.rx_ring: "), "{reason}");
    assert!(reason.contains("32768") && reason.contains("16384"), "{reason}");
}

#[test]
fn only_flows_that_are_reordered_are_data() {
    const FLOW: &str = "
            - {name: g, id: 7, action: {type: queue, id: 0}, match: {udp_dst: 5000}}
bench_rx:";
    let case = Case::new().with("\nbench_rx:", FLOW);
    let case = case.with("reorder:\n", "reorder:\n  flow_ids: [0]\n");
    let case = case.with("        rx:\n", "        rx:\n          flow_isolation: true\n");
    // A stream of the other flow between the frames, with numbers that would fit.
    let mut stream = frames(8);
    let mut other = stream.clone();
    for frame in &mut other {
        frame[36..38].copy_from_slice(&5000u16.to_be_bytes());
    }
    stream.splice(4..4, other);
    let case = case.file("x.pcap", crate::dataset::testkit::pcap_of(&stream));
    let plan = case.dataset("x.pcap", None);
    let summary = plan.run(&[]);
    assert_eq!((summary.exit_code, summary.images.delivered), (0, 8), "{}", summary.exit_reason);
    assert_eq!(summary.packets.placed, 32);
    assert_eq!(software(plan.planned(&[])).flows.map(|flows| flows.len()), Some(1));
}

#[test]
fn verify_and_accept_trailer_reach_the_receiver() {
    let mut stream = frames(8);
    for frame in &mut stream[..4] {
        frame.extend_from_slice(&[0xee; 4]);
    }
    // A payload byte that the UDP checksum does not know of.
    stream[20][100] ^= 1;
    let case = Case::new().file("x.pcap", crate::dataset::testkit::pcap_of(&stream));
    let case = case.dataset("x.pcap", None);
    let case = case.with("num_bufs: 16384, buf_size: 256", "num_bufs: 16384, buf_size: 512");
    let summary = case.run(&[]);
    assert_eq!((summary.packets.long, summary.packets.malformed.checksum), (4, 0));
    assert_eq!((summary.exit_code, summary.images.delivered), (4, 7));
    let case =
        case.with("quiesce_wait_s: 1", "quiesce_wait_s: 1, verify: udp, accept_trailer: true");
    let summary = case.run(&[]);
    let packets = &summary.packets;
    assert_eq!((packets.long, packets.trimmed, packets.malformed.checksum), (0, 4, 1));
    assert_eq!((summary.exit_code, summary.images.delivered), (4, 7));
}

#[test]
fn what_cannot_be_told_or_run_is_refused() {
    let case = Case::new();
    let (exit, reason) = case.refusal(&["--ready-fd", "912"]);
    assert!(exit == 2 && reason.starts_with("--ready-fd 912: cannot be written"), "{reason}");
    let (exit, reason) = case.refusal(&["--sim-shuffle", "65537"]);
    assert!(exit == 2 && reason.contains("at most 65536"), "{reason}");
    for mode in ["rx", "tx"] {
        let (exit, reason) = case.refusal(&["--mode", mode]);
        assert!(exit == 5 && reason.contains("both have to run"), "{reason}");
    }
    case.planned(&["--model", "resnet18"]);
    let (exit, reason) = case.refusal(&["--model", "vgg"]);
    assert!(exit == 2 && reason.starts_with("--model: "), "{reason}");
}

/// A receiver of numbers of 16 bits in network order, which become fp32.
fn of_16_bits() -> Case {
    let stage = "          reorder_configs:\n            - {name: a, reorder_type: gpu, \
                 memory_region: out, payload_byte_offset: 64, flow_ids: [0], data_types: \
                 {input_type: int16, output_type: fp32, endianness: network}, method: \
                 {seq_packets_per_batch: {sequence_number: {bit_offset: 336, bit_width: 8}, \
                 packets_per_batch: 16}}}\n          flows:\n";
    Case::new()
        .with("          flows:\n", stage)
        .with(
            "rx, kind: host, num_bufs: 16384, buf_size: 256",
            "rx, kind: host, num_bufs: 16384, buf_size: 448",
        )
        .with(
            "tx, kind: host, num_bufs: 16384, buf_size: 256",
            "tx, kind: host, num_bufs: 16384, buf_size: 448",
        )
        .with(
            "kind: host, num_bufs: 16, buf_size: 6144",
            "kind: host_pinned, num_bufs: 16, buf_size: 12288",
        )
        .with("payload_size: 192", "payload_size: 384")
        .with("out_payload_len: 192", "out_payload_len: 384\n  output_type: fp32")
}

#[test]
fn what_only_a_gpu_converts_is_planned_where_one_is_to_reorder() {
    let plan = of_16_bits().planned(&[]);
    assert_eq!(plan.conversion, None);
    let why = only_on_gpu(&plan.config, "it is at home");
    assert_eq!(
        why.reason,
        "int16 in network order to fp32 is converted on a GPU alone: it is at home; the CPU \
         converts int8 to fp16, bf16 and fp32"
    );
    let copied = Case::new().planned(&[]);
    assert_eq!(copied.conversion, Some(Conversion::Int8ToFp16));
    let (exit, reason) = Case::new()
        .with(
            "out_payload_len: 192",
            "reorder_type: cpu\n  output_type: fp64\n  out_payload_len: 192",
        )
        .with("num_bufs: 16, buf_size: 6144", "num_bufs: 16, buf_size: 24576")
        .refusal(&[]);
    assert_eq!(exit, 5);
    assert!(
        reason.starts_with("int8 to fp64 is converted on a GPU alone: reorder_type"),
        "{reason}"
    );
}
