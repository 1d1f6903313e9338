//! Rules about single operators: channels, activations, plugins, shapes, types, weights.

use tensorwire_onnx::{Constant, Dim, ElemType, GraphNode, ModelGraph};

use super::{Finding, Level, Rule, at, plural};

const CHANNELS: Rule = Rule {
    code: "TL01",
    level: Level::Warning,
    why: "tensor cores take channels in groups: 8 for fp16, 32 (best 64) for int8; the rest of a \
          group is padding that is computed and thrown away, and layers around it get reformatted",
    hint: "round the number of channels up to a multiple of 32",
};
const PRELU: Rule = Rule {
    code: "TL02",
    level: Level::Warning,
    why: "a PReLU has a slope for each channel and is a layer of its own; TensorRT fuses a \
          LeakyReLU, which has one slope, into the convolution before it",
    hint: "use LeakyRelu with the mean slope and train on for a little",
};
const PRELU_SAME: Rule = Rule {
    code: "TL03",
    level: Level::Warning,
    hint: "replace it by LeakyRelu with that slope: the result is the same",
    ..PRELU
};
const PLUGIN: Rule = Rule {
    code: "TL04",
    level: Level::Warning,
    why: "the parser needs a plugin for it, which takes the formats that it was written for; \
          TensorRT puts reformat layers before and behind, and fuses nothing across",
    hint: "export with operators of ONNX, or give the plugin the formats of its neighbours (for \
           int8 and fp16: kCHW32, kHWC8)",
};
const BATCH: Rule = Rule {
    code: "TL05",
    level: Level::Warning,
    why: "an engine of this model takes this number of images and no other; partial batches are \
          padded, and a profile has no effect",
    hint: "export with an open batch (a named or negative first dimension)",
};
const WIDE: Rule = Rule {
    code: "TL06",
    level: Level::Note,
    why: "TensorRT 11 and RTX build what the model says: fp32 weights are computed in fp32 (19 to \
          67 Tflop/s where fp16 has 990 on an H200); up to TensorRT 10 a flag can allow fp16",
    hint: "export fp16: `tensorwire export-model --precision fp16`",
};
const DEAD: Rule = Rule {
    code: "TL07",
    level: Level::Note,
    why: "a filter of zeros gives the same value everywhere; it costs as much time as any other",
    hint: "prune those filters, down to a multiple of 32, and train on",
};
const SPARSE: Rule = Rule {
    code: "TL08",
    level: Level::Note,
    why: "of each four weights along the input two are zero: sparse tensor cores (Ampere and \
          later) do that at up to twice the rate",
    hint: "build with sparse weights (trtexec --sparsity=enable)",
};
const NORM: Rule = Rule {
    code: "TL09",
    level: Level::Warning,
    why: "a norm right behind a convolution is folded into it; this one has another layer before \
          it, or a convolution whose result somebody else takes as well, and stays a layer",
    hint: "move it behind a convolution, or fold it into the one that follows",
};

/// Largest weight of a dead filter, as part of the largest of the layer.
const DEAD_BELOW: f32 = 1e-4;

/// Operators that NVIDIA's parser has without a plugin, as far as image networks have them. What
/// is not among them may need one: the finding says so, and says which.
const KNOWN: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "CumSum",
    "DepthToSpace",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "Einsum",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "EyeLike",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GridSample",
    "GroupNormalization",
    "GRU",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "If",
    "InstanceNormalization",
    "IsInf",
    "IsNaN",
    "LRN",
    "LSTM",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "Loop",
    "LpNormalization",
    "LpPool",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "OneHot",
    "Or",
    "PRelu",
    "Pad",
    "ParametricSoftplus",
    "Pow",
    "QuantizeLinear",
    "RNN",
    "RandomNormal",
    "RandomUniform",
    "Range",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "RoiAlign",
    "Round",
    "Scan",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shape",
    "Sigmoid",
    "Sign",
    "Sin",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Upsample",
    "Where",
    "Xor",
];

pub(super) fn check(graph: &ModelGraph<'_>, findings: &mut Vec<Finding>) {
    channels(graph, findings);
    prelus(graph, findings);
    findings.extend(at(PLUGIN, plugins(graph), |n| {
        format!(
            "{} not of those that TensorRT's parser has",
            plural(n, "operator is", "operators are")
        )
    }));
    batch(graph, findings);
    findings.extend(at(WIDE, wide(graph), |n| {
        format!("{} fp32 weights", plural(n, "layer has", "layers have"))
    }));
    dead(graph, findings);
    findings.extend(at(SPARSE, sparse(graph), |n| {
        format!("{} weights of two in four", plural(n, "layer has", "layers have"))
    }));
    findings.extend(at(NORM, norms(graph), |n| {
        format!("{} not be folded into a convolution", plural(n, "norm can", "norms can"))
    }));
}

/// The constant weights of a convolution or a linear layer, behind quantize nodes too.
pub(super) fn weights<'g, 'a>(
    graph: &'g ModelGraph<'a>,
    node: &GraphNode,
) -> Option<&'g Constant<'a>> {
    if !matches!(node.op_type.as_str(), "Conv" | "ConvTranspose" | "Gemm" | "MatMul") {
        return None;
    }
    let mut name = node.inputs.get(1)?.as_str();
    loop {
        if let Some(constant) = graph.constant(name) {
            return Some(constant);
        }
        let maker = graph.maker(name)?;
        let passes = ["QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Transpose"];
        if !passes.contains(&maker.op_type.as_str()) {
            return None;
        }
        name = maker.inputs.first()?;
    }
}

fn channels(graph: &ModelGraph<'_>, findings: &mut Vec<Finding>) {
    let (mut by_8, mut by_32) = (Vec::new(), Vec::new());
    for node in graph.nodes.iter().filter(|node| node.op_type == "Conv") {
        let Some(weights) = weights(graph, node) else { continue };
        let &[outputs, inputs, ..] = weights.dims.as_slice() else { continue };
        let groups = usize::try_from(node.int("group").unwrap_or(1)).unwrap_or(1);
        // A convolution of the image itself has few channels, and kernels of its own; one for each
        // channel has no use for tensor cores.
        let first = graph.io.inputs.iter().any(|i| node.inputs.first() == Some(&i.name));
        let image = first || (groups == 1 && inputs <= 4);
        if groups > 1 && inputs == 1 {
            continue;
        }
        let wrong =
            |group| !outputs.is_multiple_of(group) || (!image && !inputs.is_multiple_of(group));
        let named = || format!("{} ({inputs} → {outputs})", node.label());
        if wrong(8) {
            by_8.push(named());
        } else if wrong(32) {
            by_32.push(named());
        }
    }
    findings.extend(at(CHANNELS, by_8, |n| {
        format!(
            "{} channels that are no multiple of 8",
            plural(n, "convolution has", "convolutions have")
        )
    }));
    findings.extend(at(CHANNELS, by_32, |n| {
        format!(
            "{} channels that are a multiple of 8 and not of 32, which costs in int8",
            plural(n, "convolution has", "convolutions have")
        )
    }));
}

fn prelus(graph: &ModelGraph<'_>, findings: &mut Vec<Finding>) {
    let mut several = Vec::new();
    for node in graph.nodes.iter().filter(|node| node.op_type == "PRelu") {
        let slopes = node.inputs.get(1).and_then(|name| graph.constant(name)?.values());
        let one = slopes.as_ref().and_then(|slopes| {
            let first = *slopes.first()?;
            slopes.iter().all(|slope| (slope - first).abs() <= 1e-6).then_some(first)
        });
        match one {
            Some(slope) => findings.push(Finding {
                rule: PRELU_SAME,
                what: format!("a PReLU with the slope {slope} for all channels"),
                nodes: vec![node.label().to_owned()],
            }),
            None => several.push(node.label().to_owned()),
        }
    }
    findings.extend(at(PRELU, several, |n| plural(n, "PReLU", "PReLUs")));
}

fn plugins(graph: &ModelGraph<'_>) -> Vec<String> {
    let foreign =
        |node: &&GraphNode| !node.domain.is_empty() || !KNOWN.contains(&node.op_type.as_str());
    let named = |node: &GraphNode| {
        let domain = if node.domain.is_empty() { "" } else { "::" };
        format!("{} ({}{domain}{})", node.label(), node.domain, node.op_type)
    };
    graph.nodes.iter().filter(foreign).map(named).collect()
}

fn batch(graph: &ModelGraph<'_>, findings: &mut Vec<Finding>) {
    for input in &graph.io.inputs {
        if let Some([Dim::Fixed(images), _, ..]) = input.dims.as_deref() {
            findings.push(Finding {
                rule: BATCH,
                what: format!("the input '{}' has a fixed batch of {images}", input.name),
                nodes: Vec::new(),
            });
        }
    }
}

fn wide(graph: &ModelGraph<'_>) -> Vec<String> {
    let conv = |node: &&GraphNode| {
        node.op_type == "Conv"
            && weights(graph, node).is_some_and(|w| w.elem_type == ElemType::Fp32)
            && !super::quantized::is_quantized(graph, node)
    };
    graph.nodes.iter().filter(conv).map(|node| node.label().to_owned()).collect()
}

/// The largest magnitude of each filter; `None` without weights to look at.
fn filters(graph: &ModelGraph<'_>, node: &GraphNode) -> Option<Vec<f32>> {
    let weights = weights(graph, node).filter(|_| node.op_type == "Conv")?;
    let outputs = *weights.dims.first().filter(|n| **n > 0)?;
    let values = weights.values()?;
    let peak = |filter: &[f32]| filter.iter().fold(0.0_f32, |peak, v| peak.max(v.abs()));
    Some(values.chunks(values.len().div_ceil(outputs).max(1)).map(peak).collect())
}

fn dead(graph: &ModelGraph<'_>, findings: &mut Vec<Finding>) {
    let mut nodes = Vec::new();
    for node in &graph.nodes {
        let Some(peaks) = filters(graph, node) else { continue };
        let most = peaks.iter().fold(0.0_f32, |most, peak| most.max(*peak));
        let dead = peaks.iter().filter(|peak| **peak <= most * DEAD_BELOW).count();
        if dead > 0 {
            nodes.push(format!("{} ({dead} of {})", node.label(), peaks.len()));
        }
    }
    findings.extend(at(DEAD, nodes, |n| {
        format!(
            "{} filters that are all but zero",
            plural(n, "convolution has", "convolutions have")
        )
    }));
}

/// Convolutions with at most two weights other than zero in each four input channels, and zeros
/// enough that this is no chance.
fn sparse(graph: &ModelGraph<'_>) -> Vec<String> {
    let is_sparse = |node: &&GraphNode| {
        let found = weights(graph, node).filter(|_| node.op_type == "Conv");
        let Some((weights, values)) = found.and_then(|w| Some((w, w.values()?))) else {
            return false;
        };
        let &[outputs, inputs, ref kernel @ ..] = weights.dims.as_slice() else { return false };
        let taps = kernel.iter().product::<usize>();
        if inputs % 4 != 0 || outputs * inputs * taps != values.len() || values.is_empty() {
            return false;
        }
        values.chunks_exact(inputs * taps).all(|filter| {
            (0..taps).all(|tap| {
                (0..inputs / 4).all(|group| {
                    let at = |channel: usize| filter[(group * 4 + channel) * taps + tap];
                    (0..4).filter(|channel| at(*channel) != 0.0).count() <= 2
                })
            })
        })
    };
    graph.nodes.iter().filter(is_sparse).map(|node| node.label().to_owned()).collect()
}

fn norms(graph: &ModelGraph<'_>) -> Vec<String> {
    let alone = |node: &&GraphNode| {
        let input = node.inputs.first().map_or("", |input| input);
        let behind_conv = graph.maker(input).is_some_and(|maker| maker.op_type == "Conv")
            && graph.takers(input).count() == 1;
        node.op_type == "BatchNormalization" && !behind_conv
    };
    graph.nodes.iter().filter(alone).map(|node| node.label().to_owned()).collect()
}
