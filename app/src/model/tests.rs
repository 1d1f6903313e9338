//! The exporter end to end. Small images keep it short; the real network runs once.

use std::fs;
use std::path::Path;

use tensorwire_onnx::{Dim, ElemType, Engine, ModelExpect, Profile, RtenEngine, read_header};

use super::*;
use crate::dataset::Resizer;

fn options(folder: &Path) -> ExportOptions {
    let output = folder.join("models/m.onnx");
    ExportOptions {
        height: 32,
        width: 40,
        head: Head::Both,
        ..ExportOptions::new(Arch::Resnet18, WeightsSource::Seed(3), output)
    }
}

/// Exports the same network in every way and compares each file with the plain forward pass.
#[test]
fn every_kind_of_export_passes_its_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let kinds = [
        (InputType::Fp16, Precision::Fp16, Precision::Fp32, Head::Both),
        (InputType::Fp16, Precision::Fp32, Precision::Fp16, Head::Features),
        (InputType::Int8, Precision::Fp16, Precision::Fp16, Head::Logits),
        (InputType::Int8, Precision::Fp32, Precision::Fp32, Head::Both),
        (InputType::Fp32, Precision::Fp16, Precision::Fp16, Head::Features),
        (InputType::Fp32, Precision::Fp32, Precision::Fp32, Head::Logits),
    ];
    for (input_type, precision, front, head) in kinds {
        let options = options(folder.path());
        let options = ExportOptions { input_type, precision, front, head, check: true, ..options };
        let report = export(&options).unwrap_or_else(|e| panic!("{options:?}: {e}"));
        let check = report.check.expect("asked for");
        assert_eq!(check.features.is_some(), head != Head::Logits);
        assert_eq!(check.logits.is_some(), head != Head::Features);
        assert_eq!((report.feature_dim, report.bytes), (512, size(&options.output)));
        assert_eq!(report.classes, if head == Head::Features { 0 } else { 10 });
    }
    let left: Vec<_> = fs::read_dir(folder.path().join("models")).expect("there").collect();
    assert_eq!(left.len(), 1, "no temporary file stays: {left:?}");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("written").len()
}

#[test]
fn the_header_says_what_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    export(&options).expect("writable");
    let io = read_header(&options.output).expect("our own file");
    let text: Vec<String> = io.inputs.iter().chain(&io.outputs).map(ToString::to_string).collect();
    assert_eq!(
        text,
        ["'input' fp16 [batch,3,32,40]", "'features' fp32 [batch,512]", "'logits' fp32 [batch,10]"]
    );
    assert_eq!(io.opset, Some(13));
    assert_eq!(io.inputs[0].dims.as_ref().map(|d| &d[0]), Some(&Dim::Symbol("batch".into())));
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    export(&options).expect("writable");
    let first = fs::read(&options.output).expect("written");
    export(&options).expect("writable");
    assert!(first == fs::read(&options.output).expect("written"));
}

/// Features do not depend, in any bit, on the images beside them or on the number of threads.
#[test]
fn features_are_the_same_in_any_batch_and_on_any_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ExportOptions {
        input_type: InputType::Int8,
        head: Head::Features,
        ..options(folder.path())
    };
    export(&options).expect("writable");
    let expect = ModelExpect {
        input_name: graph::INPUT.into(),
        output_name: graph::FEATURES.into(),
        logits_name: None,
        channels: 3,
        height: 32,
        width: 40,
        input_type: ElemType::Int8,
        feature_dim: 512,
        images_per_inference: 4,
        profile: Profile { min: 1, opt: 4, max: 4 },
    };
    let pixels: Vec<u8> = (0..4 * 3840_u32).map(|i| (i * i % 251).to_le_bytes()[0]).collect();
    let mut seen = Vec::new();
    for (threads, batch) in [(1, 1), (3, 4), (1, 4), (2, 2), (2, 3)] {
        let mut engine = RtenEngine::open(&options.output, &expect, threads).expect("our file");
        let mut features = vec![0.0; 4 * 512];
        for (images, rows) in pixels.chunks(batch * 3840).zip(features.chunks_mut(batch * 512)) {
            engine.run(images, images.len() / 3840, rows, &mut []).expect("runs");
        }
        seen.push(features.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    }
    assert!(seen.iter().all(|features| *features == seen[0]));
    assert!(seen[0].chunks(512).any(|row| row != &seen[0][..512]), "images differ");
}

/// A check that cannot fail is none: the file of one seed against the weights of another.
#[test]
fn a_model_of_other_weights_fails_its_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ExportOptions { precision: Precision::Fp16, ..options(folder.path()) };
    export(&options).expect("writable");
    let network = options.arch.network();
    let check = |weights: &Weights| check::check(&options, &options.output, &network, weights);
    check(&seed::weights(&network, 3)).expect("its own weights");
    let other = check(&seed::weights(&network, 4)).expect_err("other weights");
    assert!(matches!(other, CheckError::Differs(..)), "{other}");
    // One weight of eleven million, in the layer whose part in the result is smallest.
    let mut touched = seed::weights(&network, 3);
    let mut tensor = touched.get("layer4.1.conv2.weight").expect("a layer").clone();
    tensor.values[4] += 4.0;
    touched.insert("layer4.1.conv2.weight".into(), tensor);
    check(&touched).expect_err("a touched weight");
}

#[test]
fn a_model_that_leaves_fp16_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("big.safetensors");
    let network = Arch::Resnet18.network();
    let mut weights = seed::weights(&network, 3);
    let mut norm = weights.get("bn1.weight").expect("the first norm").clone();
    norm.values.fill(60_000.0);
    weights.insert("bn1.weight".into(), norm);
    fs::write(&file, safetensors(&network, &weights)).expect("writable");
    let options = ExportOptions {
        weights: WeightsSource::File(file),
        precision: Precision::Fp16,
        check: true,
        ..options(folder.path())
    };
    let error = export(&options).expect_err("beyond fp16");
    assert!(error.to_string().contains("leaves the range of fp16"), "{error}");
    assert!(!options.output.exists(), "a model that failed its check is not there");
    export(&ExportOptions { precision: Precision::Fp32, ..options }).expect("fp32 holds it");
}

/// The weights as a safetensors file of fp32.
fn safetensors(network: &arch::Network, weights: &Weights) -> Vec<u8> {
    let mut names: Vec<String> = network.tensors().into_iter().map(|(name, _)| name).collect();
    names.extend(["fc.weight".into(), "fc.bias".into()]);
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for name in names {
        let start = data.len();
        data.extend(weights.values(&name).iter().flat_map(|v| v.to_le_bytes()));
        let shape = &weights.get(&name).expect("a tensor of the network").shape;
        let offsets = [start, data.len()];
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": offsets});
        header.insert(name, entry);
    }
    let header = serde_json::Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

#[test]
fn weights_of_another_network_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let network = Arch::Resnet18.network();
    let file = folder.path().join("w.safetensors");
    fs::write(&file, safetensors(&network, &seed::weights(&network, 3))).expect("writable");
    let weights = WeightsSource::File(file.clone());
    let right = ExportOptions { weights, ..options(folder.path()) };
    let report = export(&right).expect("its own network");
    let from_seed = export(&options(folder.path())).expect("the same weights");
    assert_eq!((report.bytes, report.parameters), (from_seed.bytes, from_seed.parameters));

    let error = export(&ExportOptions { arch: Arch::Resnet34, ..right }).expect_err("18 is not 34");
    let text = error.to_string();
    let start = format!("{}: not weights for resnet34, but for resnet18:\n", file.display());
    assert!(text.starts_with(&start), "{text}");
    assert!(text.contains("missing layer1.2.bn1.bias [64]"), "{text}");
    assert!(text.ends_with("more"), "a long list is cut: {text}");
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("none.safetensors");
    let weights = WeightsSource::File(missing.clone());
    let error = export(&ExportOptions { weights, ..options(folder.path()) }).expect_err("missing");
    assert!(matches!(error, ModelError::Read { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("{}: cannot be read: ", missing.display())));

    let weights = WeightsSource::File(folder.path().into());
    let error = export(&ExportOptions { weights, ..options(folder.path()) }).expect_err("a folder");
    assert!(error.to_string().contains("not a regular file"), "{error}");

    for output in [folder.path().to_path_buf(), "/dev/null".into(), "/".into()] {
        let options = ExportOptions { output, ..options(folder.path()) };
        let error = export(&options).expect_err("no regular file");
        assert!(matches!(error, ModelError::File(_)), "{error}");
        assert_eq!(error.class(), ModelErrorClass::File);
    }

    let empty = ExportOptions { height: 0, ..options(folder.path()) };
    assert!(matches!(export(&empty), Err(ModelError::Size { height: 0, width: 40 })));
}

/// The folder of test inputs that the project does not contain.
fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("TENSORWIRE_SHARED").map_or_else(beside, PathBuf::from);
    if !folder.join("models/golden.json").is_file() {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: no trained model at {}", folder.display());
        }
        return None;
    }
    Some(folder)
}

/// The trained ResNet-50 on real images, against the logits and features of its training
/// framework. Tolerances: absolute logit difference 0.02, relative feature norm 1 %.
#[test]
fn a_trained_network_gives_the_golden_answers() {
    const IMAGES: usize = 4;
    let Some(shared) = shared() else { return };
    let golden = fs::read(shared.join("models/golden.json")).expect("readable");
    let golden: serde_json::Value = serde_json::from_slice(&golden).expect("JSON");
    let records = fs::read(shared.join("data/cifar10_test_1000.bin")).expect("readable");
    let folder = tempfile::tempdir().expect("a folder");
    let options = ExportOptions {
        weights: WeightsSource::File(shared.join("models/resnet50_cifar10.safetensors")),
        input_type: InputType::Int8,
        precision: Precision::Fp16,
        head: Head::Both,
        ..ExportOptions::new(Arch::Resnet50, WeightsSource::Seed(0), folder.path().join("r.onnx"))
    };
    export(&options).expect("good weights");
    let expect = ModelExpect {
        input_name: graph::INPUT.into(),
        output_name: graph::FEATURES.into(),
        logits_name: Some(graph::LOGITS.into()),
        channels: 3,
        height: 224,
        width: 224,
        input_type: ElemType::Int8,
        feature_dim: 2048,
        images_per_inference: 4,
        profile: Profile { min: 1, opt: 4, max: 4 },
    };
    let mut engine = RtenEngine::open(&options.output, &expect, 0).expect("our own file");
    let input: Vec<u8> = records.chunks(3073).take(IMAGES).flat_map(enlarged).collect();
    let (mut features, mut logits) = (vec![0.0; IMAGES * 2048], vec![0.0; IMAGES * 10]);
    engine.run(&input, IMAGES, &mut features, &mut logits).expect("runs");
    for (i, (features, logits)) in features.chunks(2048).zip(logits.chunks(10)).enumerate() {
        let golden = &golden["golden"][i];
        for (class, logit) in logits.iter().enumerate() {
            let right = golden["logits"][class].as_f64().expect("a number");
            assert!((f64::from(*logit) - right).abs() <= 0.02, "image {i} class {class}: {logit}");
        }
        let squares: f64 = features.iter().map(|v| f64::from(*v).powi(2)).sum();
        let norm = golden["feat_l2"].as_f64().expect("a number");
        assert!((squares.sqrt() / norm - 1.0).abs() <= 0.01, "image {i}: |features|");
        for (j, feature) in features.iter().enumerate().take(8) {
            let right = golden["feat8"][j].as_f64().expect("a number");
            assert!((f64::from(*feature) - right).abs() <= 0.01, "image {i} feature {j}");
        }
    }
}

/// A record of the CIFAR-10 format as int8 planes of 224×224, the packets' payload.
fn enlarged(record: &[u8]) -> Vec<u8> {
    let planes = &record[1..];
    let pixels: Vec<u8> = (0..1024).flat_map(|i| [0, 1, 2].map(|c| planes[c * 1024 + i])).collect();
    let mut large = vec![0; 3 * 224 * 224];
    Resizer::new((32, 32), (224, 224)).resize(&pixels, &mut large);
    // pixel − 128 as a signed byte: the same bits with the highest one turned.
    let plane = |c: usize| large.iter().skip(c).step_by(3).map(|pixel| pixel ^ 0x80);
    (0..3).flat_map(plane).collect()
}

/// A capture of the images that a check makes up, with the documented numbering. The second image
/// lacks a packet, and the fourth has one twice in the place of the next.
fn capture(path: &Path, [rows, columns]: [usize; 2]) {
    use tensorwire_core::geometry::{Geometry, GeometrySpec};
    let field = Geometry::new(&GeometrySpec::DOCUMENTED).expect("documented").seq_field();
    let mut writer = crate::dataset::pcap::CaptureWriter::create(path).expect("writable");
    let payload = 3 * rows * columns / 128;
    for image in 0..6_u32 {
        let pixels = check::image(image as usize, [rows, columns]);
        for (packet, bytes) in (0..).zip(pixels.chunks(payload)) {
            if (image, packet) == (1, 7) {
                continue;
            }
            let packet = if (image, packet) == (3, 9) { 8 } else { packet };
            let mut frame = vec![0; 64];
            frame.extend(bytes.iter().map(|b| b.cast_unsigned()));
            assert!(field.write(&mut frame, image * 128 + packet));
            writer.write(0, &frame).expect("writable");
        }
    }
    writer.finish().expect("writable");
}

#[test]
fn an_int8_model_is_close_and_its_nodes_are_where_tensorrt_wants_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = folder.path().join("c.pcap");
    let plain = options(folder.path());
    capture(&images, [plain.height, plain.width]);
    let found = samples::images(&images, [plain.height, plain.width], 100).expect("images");
    assert_eq!(found.len(), 4, "those that lack a packet are passed over");
    assert_eq!(found[1], check::image(2, [plain.height, plain.width]));
    let options =
        ExportOptions { precision: Precision::Qdq, calibrate: Some(images), check: true, ..plain };
    let report = export(&options).expect("it is close to the plain forward pass");
    assert_eq!(report.calibrated, 4);
    let bytes = fs::read(&options.output).expect("written");
    let graph = tensorwire_onnx::ModelGraph::read(&bytes).expect("our own file");
    let of = |op: &str| graph.nodes.iter().filter(|node| node.op_type == op).count();
    // Twenty convolutions: a pair for the weights of each, one for each of its inputs (the three
    // with a downsample share theirs), one for the result of each downsample, and one for what the
    // mean is taken of.
    assert_eq!((of("Conv"), of("BatchNormalization")), (20, 0));
    assert_eq!(of("QuantizeLinear"), 20 + 17 + 3 + 1);
    assert_eq!(of("DequantizeLinear"), of("QuantizeLinear"));
    let mean = graph.nodes.iter().find(|node| node.op_type == "GlobalAveragePool");
    assert_eq!(mean.expect("one").inputs, ["layer4.1.relu.dq"]);
    let findings = crate::trt::lint::lint(&graph);
    let warnings = findings.iter().filter(|f| f.rule.level == crate::trt::lint::Level::Warning);
    assert_eq!(warnings.map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn int8_is_asked_for_with_images_and_images_with_int8() {
    let folder = tempfile::tempdir().expect("a folder");
    let without = ExportOptions { precision: Precision::Qdq, ..options(folder.path()) };
    let error = export(&without).expect_err("no images");
    assert_eq!(error.class(), ModelErrorClass::Usage);
    let calibrate = Some(folder.path().join("none.pcap"));
    let error = export(&ExportOptions { calibrate: calibrate.clone(), ..options(folder.path()) });
    assert_eq!(error.expect_err("fp32").class(), ModelErrorClass::Usage);
    let error = export(&ExportOptions { calibrate, ..without }).expect_err("no such file");
    assert_eq!(error.class(), ModelErrorClass::File);
    assert!(error.to_string().contains("none.pcap"), "{error}");
}
