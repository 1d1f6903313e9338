//! A model with more outputs than it has.
//!
//! Two messages of Protocol Buffers one behind the other are one message in which repeated fields
//! are joined, so nodes and outputs are appended to the bytes of a model; nothing of it is decoded.

use crate::types::{ElemType, TensorInfo};
use crate::wire::put_message;
use crate::write::{Attribute, Node, encode_value_info};

/// Behind the name of a value stands this in the name of its output.
pub const SUFFIX: &str = "__exposed";

/// The name of the output of a value.
#[must_use]
pub fn output_of(value: &str) -> String {
    format!("{value}{SUFFIX}")
}

/// The model with these values as outputs in fp32, `NAME__exposed`, behind those that it has. The
/// values must be among those of the model.
#[must_use]
pub fn expose(model: &[u8], values: &[String]) -> Vec<u8> {
    let mut out = model.to_vec();
    put_message(&mut out, 7, |graph| {
        for value in values {
            let output = output_of(value);
            let to = ElemType::Fp32.code().cast_signed();
            let cast = Node {
                op_type: "Cast",
                name: output.clone(),
                inputs: vec![value.clone()],
                outputs: vec![output.clone()],
                attributes: vec![("to", Attribute::Int(to))],
            };
            put_message(graph, 1, |node| cast.encode(node));
            // No shape: whoever reads the model derives it.
            let info = TensorInfo { name: output, elem_type: ElemType::Fp32, dims: None };
            put_message(graph, 12, |of| encode_value_info(of, &info));
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ModelGraph;
    use crate::types::Dim;
    use crate::write::{Graph, OnnxModel};

    #[test]
    fn outputs_are_added_behind_those_that_there_are() {
        let node = Node {
            op_type: "Relu",
            name: "r".into(),
            inputs: vec!["x".into()],
            outputs: vec!["y".into()],
            attributes: Vec::new(),
        };
        let info = |name: &str| TensorInfo {
            name: name.into(),
            elem_type: ElemType::Fp16,
            dims: Some(vec![Dim::Fixed(1), Dim::Fixed(4)]),
        };
        let graph = Graph {
            nodes: vec![node],
            inputs: vec![info("x")],
            outputs: vec![info("y")],
            ..Graph::default()
        };
        let model = OnnxModel {
            producer: "test".into(),
            producer_version: "1".into(),
            ir_version: 7,
            opset: 13,
            metadata: Vec::new(),
            graph,
        };
        let bytes = model.to_bytes().expect("small");
        let more = expose(&bytes, &["r".into()]);
        let graph = ModelGraph::read(&more).expect("a model");
        assert_eq!(graph.io.outputs.len(), 2);
        assert_eq!(graph.io.outputs[1].to_string(), "'r__exposed' fp32 of no stated shape");
        assert_eq!(graph.nodes[1].op_type, "Cast");
        assert_eq!((graph.nodes[1].int("to"), graph.nodes[1].inputs[0].as_str()), (Some(1), "r"));
        assert_eq!(expose(&bytes, &[]).len(), bytes.len() + 2, "an empty message");
    }
}
