//! Rules about int8: quantize nodes, the scales of an addition's sides, linear layers.

use tensorwire_onnx::{GraphNode, ModelGraph};

use super::layers::weights;
use super::{Finding, Level, Rule, at, plural};

const NO_QDQ: Rule = Rule {
    code: "TL20",
    level: Level::Note,
    why: "int8 without quantize nodes needs a calibration table (TensorRT up to 10); TensorRT 11 \
          and RTX take int8 from quantize nodes alone, and build this model in its own types \
          whatever is asked for",
    hint: "`tensorwire export-model --precision qdq --calibrate CAPTURE` writes them",
};
const PARTLY: Rule = Rule {
    code: "TL21",
    level: Level::Warning,
    why: "a convolution whose input or weights are not quantized runs in fp16 or fp32, with a \
          reformat before and behind it",
    hint: "quantize its input and its weights too, or leave it out on purpose (first and last \
           layers often are)",
};
const ADD_SIDES: Rule = Rule {
    code: "TL22",
    level: Level::Warning,
    why: "TensorRT does a residual addition in the kernel of the convolution before it, in int8, \
          only where the shortcut is quantized and the result of that convolution is not; else it \
          is a layer of its own in a wider type",
    hint: "quantize the shortcut of each addition, and nothing between the convolution and it",
};
const PER_TENSOR: Rule = Rule {
    code: "TL23",
    level: Level::Warning,
    why: "filters of one layer differ in size by factors of ten; with one scale for all the small \
          ones keep a few of 256 steps",
    hint: "quantize weights per output channel: it costs no time",
};
const LINEAR_INT8: Rule = Rule {
    code: "TL24",
    level: Level::Warning,
    why: "a linear layer over one row per image is bound by reading its weights, not by computing; \
          int8 gains little there and costs accuracy where it is least to be had back, at the end",
    hint: "hybrid mode: leave linear layers in fp16 inside the int8 network (no quantize nodes \
           around them)",
};
const LINEAR: Rule = Rule {
    code: "TL25",
    level: Level::Note,
    why: LINEAR_INT8.why,
    hint: "when the network is calibrated to int8, keep this layer in fp16 (hybrid mode)",
};
const LARGE: usize = 1 << 16;

pub(super) fn check(graph: &ModelGraph<'_>, findings: &mut Vec<Finding>) {
    let quantized = graph.nodes.iter().any(|node| node.op_type == "QuantizeLinear");
    let linear = |wanted: bool| {
        let large = |node: &&GraphNode| {
            matches!(node.op_type.as_str(), "Gemm" | "MatMul")
                && weights(graph, node).is_some_and(|w| w.dims.iter().product::<usize>() >= LARGE)
                && is_quantized(graph, node) == wanted
        };
        graph.nodes.iter().filter(large).map(|node| node.label().to_owned()).collect::<Vec<_>>()
    };
    if !quantized {
        let what = "no quantize nodes: the model says nothing about int8".to_owned();
        findings.push(Finding { rule: NO_QDQ, what, nodes: Vec::new() });
        findings.extend(at(LINEAR, linear(false), |n| plural(n, "linear layer", "linear layers")));
        return;
    }
    findings.extend(at(LINEAR_INT8, linear(true), |n| {
        format!("{} in int8", plural(n, "linear layer is", "linear layers are"))
    }));
    findings.extend(at(PARTLY, partly(graph), |n| {
        format!(
            "{} not quantized in a quantized model",
            plural(n, "convolution is", "convolutions are")
        )
    }));
    findings.extend(at(ADD_SIDES, additions(graph), |n| {
        format!(
            "{} not be fused with a convolution",
            plural(n, "residual addition can", "residual additions can")
        )
    }));
    findings.extend(at(PER_TENSOR, per_tensor(graph), |n| {
        format!(
            "{} weights quantized with one scale",
            plural(n, "convolution has", "convolutions have")
        )
    }));
}

/// The dequantize node that makes a value, behind nothing but casts.
fn dequantize<'g>(graph: &'g ModelGraph<'_>, name: &str) -> Option<&'g GraphNode> {
    let maker = graph.maker(name)?;
    match maker.op_type.as_str() {
        "DequantizeLinear" => Some(maker),
        "Cast" => dequantize(graph, maker.inputs.first()?),
        _ => None,
    }
}

/// Whether input and weights of a layer are quantized.
pub(super) fn is_quantized(graph: &ModelGraph<'_>, node: &GraphNode) -> bool {
    let side =
        |at: usize| node.inputs.get(at).is_some_and(|name| dequantize(graph, name).is_some());
    side(0) && side(1)
}

fn partly(graph: &ModelGraph<'_>) -> Vec<String> {
    let not = |node: &&GraphNode| node.op_type == "Conv" && !is_quantized(graph, node);
    graph.nodes.iter().filter(not).map(|node| node.label().to_owned()).collect()
}

/// The scale of a quantized value.
fn scale(graph: &ModelGraph<'_>, name: &str) -> Option<Vec<f32>> {
    graph.constant(dequantize(graph, name)?.inputs.get(1)?)?.values()
}

/// Whether a convolution makes the value, with its norm perhaps.
fn of_conv(graph: &ModelGraph<'_>, name: &str) -> bool {
    graph.maker(name).is_some_and(|maker| match maker.op_type.as_str() {
        "Conv" => true,
        "BatchNormalization" => maker.inputs.first().is_some_and(|x| of_conv(graph, x)),
        _ => false,
    })
}

fn additions(graph: &ModelGraph<'_>) -> Vec<String> {
    let fuses =
        |conv: &str, shortcut: &str| of_conv(graph, conv) && dequantize(graph, shortcut).is_some();
    let wrong = |node: &&GraphNode| {
        let [a, b] = node.inputs.as_slice() else { return false };
        // An addition without a convolution before it is none of a residual block; one with a
        // constant is none of two branches.
        let behind = |name: &str| {
            let raw = dequantize(graph, name)
                .and_then(|dq| graph.maker(dq.inputs.first()?)?.inputs.first().map(String::as_str));
            of_conv(graph, raw.unwrap_or(name))
        };
        let residual = behind(a) || behind(b);
        node.op_type == "Add" && residual && !fuses(a, b) && !fuses(b, a)
    };
    graph.nodes.iter().filter(wrong).map(|node| node.label().to_owned()).collect()
}

fn per_tensor(graph: &ModelGraph<'_>) -> Vec<String> {
    let one = |node: &&GraphNode| {
        let Some(scale) = node.inputs.get(1).and_then(|name| scale(graph, name)) else {
            return false;
        };
        let outputs = weights(graph, node).and_then(|w| w.dims.first().copied()).unwrap_or(1);
        node.op_type == "Conv" && scale.len() == 1 && outputs > 1
    };
    graph.nodes.iter().filter(one).map(|node| node.label().to_owned()).collect()
}
