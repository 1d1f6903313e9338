//! A model of a few nodes, whose right answers are known: features are 2 × the image's elements,
//! logits are sums.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::check::Profile;
use crate::types::{Dim, TensorInfo};
use crate::write::{Attribute, Graph, Initializer, Node, OnnxModel};

/// Elements of an image, and so the length of its features: 2 channels of 1×3.
const ELEMENTS: usize = 6;

fn node(op_type: &'static str, inputs: &[&str], output: &str) -> Node {
    Node {
        op_type,
        name: format!("node of {output}"),
        inputs: inputs.iter().map(|s| (*s).into()).collect(),
        outputs: vec![output.into()],
        attributes: Vec::new(),
    }
}

fn info(name: &str, elem_type: ElemType, batch: Option<u64>, inner: &[u64]) -> TensorInfo {
    let batch = batch.map_or(Dim::Symbol("batch".into()), Dim::Fixed);
    let dims = std::iter::once(batch).chain(inner.iter().map(|n| Dim::Fixed(*n))).collect();
    TensorInfo { name: name.into(), elem_type, dims: Some(dims) }
}

fn constant(name: &str, dims: &[usize], values: &[f32]) -> Initializer {
    let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Initializer { name: name.into(), elem_type: ElemType::Fp32, dims: dims.to_vec(), data }
}

fn model(input: ElemType, batch: Option<u64>) -> OnnxModel {
    let mut cast = node("Cast", &["input"], "wide");
    cast.attributes = vec![("to", Attribute::Int(1))];
    let nodes = vec![
        cast,
        node("Flatten", &["wide"], "flat"),
        node("Mul", &["flat", "two"], "features"),
        node("Gemm", &["flat", "ones"], "logits"),
    ];
    OnnxModel {
        producer: "tensorwire tests".into(),
        producer_version: String::new(),
        ir_version: 7,
        opset: 13,
        metadata: Vec::new(),
        graph: Graph {
            name: "doubled".into(),
            nodes,
            initializers: vec![
                constant("two", &[1], &[2.0]),
                constant("ones", &[ELEMENTS, 1], &[1.0; ELEMENTS]),
            ],
            inputs: vec![info("input", input, batch, &[2, 1, 3])],
            outputs: vec![
                info("features", ElemType::Fp32, batch, &[ELEMENTS as u64]),
                info("logits", ElemType::Fp32, batch, &[1]),
            ],
        },
    }
}

fn expect(input_type: ElemType) -> ModelExpect {
    ModelExpect {
        input_name: "input".into(),
        output_name: "features".into(),
        logits_name: Some("logits".into()),
        channels: 2,
        height: 1,
        width: 3,
        input_type,
        feature_dim: 6,
        images_per_inference: 4,
        profile: Profile { min: 1, opt: 4, max: 4 },
    }
}

/// A folder of its own for each test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tw-onnx-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn write(&self, model: &OnnxModel) -> PathBuf {
        let path = self.0.join("model.onnx");
        fs::write(&path, model.to_bytes().expect("sizes fit")).expect("writable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whole numbers −12 to 11: exact in every type.
fn numbers() -> impl Iterator<Item = i8> {
    -12..12
}

fn encoded(input: ElemType) -> Vec<u8> {
    match input {
        ElemType::Int8 => numbers().map(i8::cast_unsigned).collect(),
        ElemType::Fp16 => {
            numbers().flat_map(|n| f16::from_f32(f32::from(n)).to_le_bytes()).collect()
        }
        _ => numbers().flat_map(|n| f32::from(n).to_le_bytes()).collect(),
    }
}

fn run(engine: &mut impl Engine, bytes: &[u8], images: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut features, mut logits) = (vec![f32::NAN; images * ELEMENTS], vec![f32::NAN; images]);
    engine.run(bytes, images, &mut features, &mut logits).expect("runs");
    (features, logits)
}

#[test]
fn every_input_type_and_number_of_images_gives_the_right_rows() {
    let folder = Folder::new("types");
    let right: Vec<f32> = numbers().map(|n| 2.0 * f32::from(n)).collect();
    let sums = [-57.0, -21.0, 15.0, 51.0];
    for input in [ElemType::Fp16, ElemType::Int8, ElemType::Fp32] {
        for batch in [None, Some(4)] {
            let path = folder.write(&model(input, batch));
            let mut engine = RtenEngine::open(&path, &expect(input), 2).expect("opens");
            let bytes = encoded(input);
            let image = bytes.len() / 4;
            for images in 1..=4 {
                let (features, logits) = run(&mut engine, &bytes[..image * images], images);
                assert_eq!(features, right[..images * ELEMENTS], "{input}, batch {batch:?}");
                assert_eq!(logits, sums[..images], "{input}, batch {batch:?}");
            }
            let widened = if input == ElemType::Fp16 { 10 * 6 * 4 } else { 0 };
            assert_eq!(engine.widened_bytes(), widened, "{input}: what is copied is counted");
        }
    }
}

/// Needs the library; without `ORT_DYLIB_PATH` the test says that it is skipped.
#[cfg(feature = "onnxruntime")]
#[test]
fn onnx_runtime_gives_the_same_rows() {
    if std::env::var_os("ORT_DYLIB_PATH").is_none() {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: no ONNX Runtime library named by ORT_DYLIB_PATH");
        }
        return;
    }
    let folder = Folder::new("ort");
    for input in [ElemType::Fp16, ElemType::Int8, ElemType::Fp32] {
        for batch in [None, Some(4)] {
            let path = folder.write(&model(input, batch));
            let engine = crate::onnxruntime::OrtEngine::open(&path, &expect(input), 2);
            let mut ort = engine.unwrap_or_else(|e| panic!("{e}"));
            let mut rten = RtenEngine::open(&path, &expect(input), 2).expect("opens");
            let bytes = encoded(input);
            let mut shifted = vec![0_u8; 1];
            shifted.extend_from_slice(&bytes);
            let image = bytes.len() / 4;
            for images in 1..=4 {
                let right = run(&mut rten, &bytes[..image * images], images);
                assert_eq!(run(&mut ort, &bytes[..image * images], images), right);
                assert_eq!(run(&mut ort, &shifted[1..=image * images], images), right);
            }
        }
    }
}

#[test]
fn images_at_an_odd_address_are_read_all_the_same() {
    let folder = Folder::new("odd");
    for input in [ElemType::Fp16, ElemType::Fp32] {
        let path = folder.write(&model(input, None));
        let mut engine = RtenEngine::open(&path, &expect(input), 1).expect("opens");
        let mut shifted = vec![0_u8; 1];
        shifted.extend(encoded(input));
        let (features, _) = run(&mut engine, &shifted[1..], 4);
        let right: Vec<f32> = numbers().map(|n| 2.0 * f32::from(n)).collect();
        assert_eq!(features, right);
    }
}

#[test]
fn a_missing_file_is_a_header_error() {
    let error = RtenEngine::open(Path::new("none/model.onnx"), &expect(ElemType::Fp16), 1);
    let error = error.expect_err("no such file");
    assert!(matches!(error, OpenError::Header(_)), "{error}");
    assert!(error.to_string().starts_with("none/model.onnx: cannot be opened"), "{error}");
}

#[test]
fn another_shape_is_a_mismatch() {
    let folder = Folder::new("shape");
    let path = folder.write(&model(ElemType::Fp16, None));
    let wanted = ModelExpect { height: 7, ..expect(ElemType::Fp16) };
    let error = RtenEngine::open(&path, &wanted, 1).expect_err("another height");
    assert!(matches!(error, OpenError::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("model [batch,2,1,3], config [4,2,7,3]"), "{error}");
}

#[test]
fn an_operator_that_rten_lacks_is_named() {
    let folder = Folder::new("operator");
    let mut strange = model(ElemType::Fp16, None);
    strange.graph.nodes[2].op_type = "Frobnicate";
    let path = folder.write(&strange);
    let error = RtenEngine::open(&path, &expect(ElemType::Fp16), 1).expect_err("no such operator");
    assert!(matches!(error, OpenError::Engine { .. }), "{error}");
    assert!(error.to_string().contains("Frobnicate"), "{error}");
}

#[test]
fn a_model_that_lies_about_its_outputs_is_found_before_the_first_batch() {
    let folder = Folder::new("lies");
    let mut lying = model(ElemType::Fp16, None);
    lying.graph.outputs[0] = info("features", ElemType::Fp32, None, &[5]);
    let path = folder.write(&lying);
    let wanted = ModelExpect { feature_dim: 5, ..expect(ElemType::Fp16) };
    let error = RtenEngine::open(&path, &wanted, 1).expect_err("6 values come");
    let OpenError::Trial { source, .. } = error else { panic!("{error}") };
    let (name, given, expected) = ("features".into(), 6, 5);
    assert_eq!(source, RunError::OutputLength { name, given, expected });
}
