//! Any model that can be described is written, and its header is read back as it was.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire_onnx::write::{Attribute, Graph, Initializer, Node, OnnxModel};
use tensorwire_onnx::{Dim, ElemType, ModelIo, TensorInfo, read_header_bytes};

#[derive(Arbitrary, Debug)]
enum Size {
    Fixed(u64),
    Symbol(String),
    Open,
}

#[derive(Arbitrary, Debug)]
struct Tensor {
    name: String,
    /// Number of the element type in the format.
    code: u64,
    dims: Option<Vec<Size>>,
}

#[derive(Arbitrary, Debug)]
struct Constant {
    name: String,
    dims: Vec<u8>,
    wide: bool,
    byte: u8,
}

#[derive(Arbitrary, Debug)]
struct Operator {
    name: String,
    inputs: Vec<String>,
    ints: Vec<i64>,
    float: f32,
}

#[derive(Arbitrary, Debug)]
struct Input {
    producer: String,
    producer_version: String,
    ir_version: u32,
    opset: u32,
    metadata: Vec<(String, String)>,
    name: String,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    constants: Vec<Constant>,
    operators: Vec<Operator>,
}

fn tensors(all: &[Tensor]) -> Vec<TensorInfo> {
    let dim = |size: &Size| match size {
        // The format counts in signed numbers, and a negative one or an empty name is no size.
        Size::Fixed(n) if n.cast_signed() >= 0 => Dim::Fixed(*n),
        Size::Symbol(name) if !name.is_empty() => Dim::Symbol(name.clone()),
        Size::Fixed(_) | Size::Symbol(_) | Size::Open => Dim::Open,
    };
    let info = |tensor: &Tensor| TensorInfo {
        name: tensor.name.clone(),
        elem_type: ElemType::from_code(tensor.code),
        dims: tensor.dims.as_ref().map(|dims| dims.iter().take(64).map(dim).collect()),
    };
    all.iter().take(1024).map(info).collect()
}

fn constant(constant: &Constant) -> Initializer {
    let dims: Vec<usize> = constant.dims.iter().take(3).map(|dim| usize::from(dim % 8)).collect();
    let elem_type = if constant.wide { ElemType::Fp64 } else { ElemType::Int8 };
    let elements: usize = dims.iter().product();
    let data = vec![constant.byte; elements * elem_type.bytes().expect("known")];
    Initializer { name: constant.name.clone(), elem_type, dims, data }
}

fn operator(operator: &Operator) -> Node {
    Node {
        op_type: "Conv",
        name: operator.name.clone(),
        inputs: operator.inputs.clone(),
        outputs: vec![operator.name.clone()],
        attributes: vec![
            ("ints", Attribute::Ints(operator.ints.clone())),
            ("int", Attribute::Int(operator.ints.len() as i64)),
            ("float", Attribute::Float(operator.float)),
        ],
    }
}

fuzz_target!(|input: Input| {
    let (inputs, outputs) = (tensors(&input.inputs), tensors(&input.outputs));
    let model = OnnxModel {
        producer: input.producer.clone(),
        producer_version: input.producer_version.clone(),
        ir_version: input.ir_version,
        opset: input.opset,
        metadata: input.metadata,
        graph: Graph {
            name: input.name,
            nodes: input.operators.iter().map(operator).collect(),
            initializers: input.constants.iter().map(constant).collect(),
            inputs: inputs.clone(),
            outputs: outputs.clone(),
        },
    };
    let bytes = model.to_bytes().expect("every constant is as long as it says");
    let fixed: HashSet<&str> = input.constants.iter().map(|c| c.name.as_str()).collect();
    let version = &input.producer_version;
    let expected = ModelIo {
        inputs: inputs.into_iter().filter(|i| !fixed.contains(i.name.as_str())).collect(),
        outputs,
        opset: Some(input.opset.into()),
        ir_version: input.ir_version.into(),
        producer: match version.is_empty() {
            true => input.producer,
            false => format!("{} {version}", input.producer),
        },
    };
    assert_eq!(read_header_bytes(&bytes).expect("as it was written"), expected);
});
