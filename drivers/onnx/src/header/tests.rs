use super::*;
use crate::write::{Attribute, Graph, Initializer, Node, OnnxModel};

fn tensor(name: &str, elem_type: ElemType, dims: Vec<Dim>) -> TensorInfo {
    TensorInfo { name: name.into(), elem_type, dims: Some(dims) }
}

/// A model with one of everything that the writer can write.
fn sample() -> OnnxModel {
    let node = Node {
        op_type: "Gemm",
        name: "fc".into(),
        inputs: vec!["input".into(), "w".into()],
        outputs: vec!["features".into()],
        attributes: vec![
            ("alpha", Attribute::Float(1.0)),
            ("transB", Attribute::Int(1)),
            ("axes", Attribute::Ints(vec![1, -1])),
        ],
    };
    let weights = Initializer {
        name: "w".into(),
        elem_type: ElemType::Fp16,
        dims: vec![5, 3],
        data: vec![0xff; 30],
    };
    OnnxModel {
        producer: "tensorwire".into(),
        producer_version: "1.2".into(),
        ir_version: 7,
        opset: 13,
        metadata: vec![("arch".into(), "none".into())],
        graph: Graph {
            name: "main".into(),
            nodes: vec![node],
            initializers: vec![weights],
            inputs: vec![tensor(
                "input",
                ElemType::Int8,
                vec![Dim::Symbol("batch".into()), Dim::Fixed(3), Dim::Open],
            )],
            outputs: vec![tensor("features", ElemType::Fp32, vec![Dim::Open, Dim::Fixed(5)])],
        },
    }
}

#[test]
fn what_was_written_is_read_back() {
    let model = sample();
    let io = read_header_bytes(&model.to_bytes().expect("sizes fit")).expect("our own file");
    assert_eq!(io.inputs, model.graph.inputs);
    assert_eq!(io.outputs, model.graph.outputs);
    assert_eq!((io.opset, io.ir_version), (Some(13), 7));
    assert_eq!(io.producer, "tensorwire 1.2");
}

#[test]
fn initialisers_among_the_inputs_are_no_inputs() {
    let mut model = sample();
    model.graph.inputs.push(tensor("w", ElemType::Fp16, vec![Dim::Fixed(5), Dim::Fixed(3)]));
    let io = read_header_bytes(&model.to_bytes().expect("sizes fit")).expect("our own file");
    assert_eq!(io.inputs, sample().graph.inputs);
}

#[test]
fn a_tensor_without_a_shape_says_so() {
    let mut model = sample();
    model.graph.outputs[0].dims = None;
    let io = read_header_bytes(&model.to_bytes().expect("sizes fit")).expect("our own file");
    assert_eq!(io.outputs[0].dims, None);
    assert_eq!(io.outputs[0].to_string(), "'features' fp32 of no stated shape");
}

#[test]
fn a_constant_of_the_wrong_length_is_not_written() {
    let mut model = sample();
    model.graph.initializers[0].data.pop();
    let error = model.to_bytes().expect_err("29 bytes for 15 elements");
    assert_eq!(error.to_string(), "constant 'w' has 29 bytes of data, its shape asks 30");
}

#[test]
fn a_model_cut_anywhere_is_an_error_or_a_shorter_model() {
    let bytes = sample().to_bytes().expect("sizes fit");
    let graph_starts = bytes.len() - 30; // the weights are the last bytes of the file
    for end in 0..bytes.len() {
        let result = read_header_bytes(&bytes[..end]);
        assert!(end < graph_starts || result.is_err(), "cut inside the graph at {end}");
    }
}

#[test]
fn any_byte_may_be_anything() {
    let good = sample().to_bytes().expect("sizes fit");
    for at in 0..good.len() {
        for value in [0, 1, 0x0a, 0x3a, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            // No panic; an error names a byte of the file.
            if let Err(error) = read_header_bytes(&bytes)
                && let HeaderErrorKind::Malformed { at, .. } = error.kind
            {
                assert!(at <= bytes.len() as u64, "{error}");
            }
        }
    }
}

#[test]
fn what_is_no_model_is_named() {
    let text = |bytes: &[u8]| read_header_bytes(bytes).expect_err("no model").to_string();
    assert_eq!(text(b""), "not an ONNX model: the file is empty");
    assert_eq!(text(&[0x08, 7]), "not an ONNX model: there is no graph in it");
    assert!(text(b"PK\x03\x04 a zip file").starts_with("not an ONNX model"));
    let missing = read_header(Path::new("no/such/model.onnx")).expect_err("missing").to_string();
    assert!(missing.starts_with("no/such/model.onnx: cannot be opened: "), "{missing}");
    let folder = read_header(Path::new(".")).expect_err("a folder").to_string();
    assert!(folder.starts_with(".: cannot be opened: "), "{folder}");
}
