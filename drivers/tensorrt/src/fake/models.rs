//! Models for the tests: an input, an output, nothing between them.

use tensorwire_onnx::write::{Graph, OnnxModel};
use tensorwire_onnx::{Dim, ElemType, ModelExpect, Profile, TensorInfo};

/// An input or output; a negative dimension is open.
pub(crate) fn tensor(name: &str, elem_type: ElemType, dims: &[i64]) -> TensorInfo {
    let dim = |&d: &i64| u64::try_from(d).map_or(Dim::Open, Dim::Fixed);
    TensorInfo { name: name.into(), elem_type, dims: Some(dims.iter().map(dim).collect()) }
}

/// The bytes of a model with these inputs and outputs, told apart from others by `salt`.
pub(crate) fn model_of(inputs: Vec<TensorInfo>, outputs: Vec<TensorInfo>, salt: &str) -> Vec<u8> {
    let graph = Graph { name: salt.into(), inputs, outputs, ..Graph::default() };
    let model = OnnxModel {
        producer: "test".into(),
        producer_version: "1".into(),
        ir_version: 8,
        opset: 17,
        metadata: Vec::new(),
        graph,
    };
    model.to_bytes().expect("it is small")
}

/// A model of `[batch, 3, 16, 16]` to `[batch, 8]`.
pub(crate) fn model(batch: i64, salt: &str) -> Vec<u8> {
    model_of(
        vec![tensor("input", ElemType::Fp16, &[batch, 3, 16, 16])],
        vec![tensor("features", ElemType::Fp32, &[batch, 8])],
        salt,
    )
}

/// What the configuration of the tests expects: 4 images of one inference, 8 features.
pub(crate) fn expect() -> ModelExpect {
    ModelExpect {
        input_name: "input".into(),
        output_name: "features".into(),
        logits_name: None,
        channels: 3,
        height: 16,
        width: 16,
        input_type: ElemType::Fp16,
        feature_dim: 8,
        images_per_inference: 4,
        profile: Profile { min: 1, opt: 4, max: 8 },
    }
}
