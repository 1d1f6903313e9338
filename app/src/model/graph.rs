//! The network as an ONNX graph.
//!
//! An int8 model (`quantized.rs`) has its norms folded, and `QuantizeLinear`/`DequantizeLinear`.
//!
//! Plain operators of operator set 13, which every runtime of the last years reads: `Cast`, `Mul`,
//! `Add`, `Conv`, `BatchNormalization`, `Relu`, `MaxPool`, `GlobalAveragePool`, `Flatten`, `Gemm`.
//! Norms stay operators of their own: runtimes fold them into the convolutions in fp32 or better,
//! while weights that were folded and then rounded to fp16 would lose digits.

use half::f16;
use half::slice::HalfFloatSliceExt;
use tensorwire_onnx::write::{Attribute, Graph, Initializer, Node, OnnxModel};
use tensorwire_onnx::{Dim, ElemType, TensorInfo};

use super::arch::{Block, Conv, NORM_EPSILON, Network};
use super::calibrate::Scales;
use super::front;
use super::options::{ExportOptions, Head};
use super::weights::Weights;

mod quantized;

/// Name of the input.
pub const INPUT: &str = "input";
/// Name of the output with the feature vectors.
pub const FEATURES: &str = "features";
/// Name of the output with the class scores.
pub const LOGITS: &str = "logits";
/// Operator set; file format version 7 belongs to it.
const OPSET: u32 = 13;
const IR_VERSION: u32 = 7;

/// The model that `options` ask for. The weights must be those of `network`.
pub(super) fn build(options: &ExportOptions, network: &Network, weights: &Weights) -> OnnxModel {
    model(options, network, weights, Norms::Apart).0
}

/// The model in int8, with these steps; without them the same in fp32, and the names of the values
/// whose steps are needed.
pub(super) fn build_folded(
    options: &ExportOptions,
    network: &Network,
    weights: &Weights,
    scales: Option<&Scales>,
) -> (OnnxModel, Vec<String>) {
    model(options, network, weights, Norms::Folded { scales, points: Vec::new() })
}

fn model(
    options: &ExportOptions,
    network: &Network,
    weights: &Weights,
    norms: Norms<'_>,
) -> (OnnxModel, Vec<String>) {
    let trunk = options.precision.elem_type();
    let mut builder = Builder { weights, trunk, norms, graph: Graph::default() };
    let x = builder.front(options);
    let x = builder.stem(&network.stem, x);
    let x = network.blocks.iter().fold(x, |x, block| builder.block(block, x));
    builder.head(options.head, x);
    let points = match builder.norms {
        Norms::Apart => Vec::new(),
        Norms::Folded { points, .. } => points,
    };
    let mut graph = builder.graph;
    graph.name = options.arch.name().into();
    graph.inputs = vec![TensorInfo {
        name: INPUT.into(),
        elem_type: options.input_type.elem_type(),
        dims: Some(dims(&[3, options.height, options.width])),
    }];
    let rows = |name: &str, width: usize| TensorInfo {
        name: name.into(),
        elem_type: ElemType::Fp32,
        dims: Some(dims(&[width])),
    };
    if options.head != Head::Logits {
        graph.outputs.push(rows(FEATURES, network.feature_dim));
    }
    if options.head != Head::Features {
        graph.outputs.push(rows(LOGITS, weights.classes().unwrap_or(0)));
    }
    let model = OnnxModel {
        producer: "tensorwire".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        ir_version: IR_VERSION,
        opset: OPSET,
        metadata: vec![
            ("arch".into(), options.arch.to_string()),
            ("precision".into(), options.precision.to_string()),
            ("front".into(), options.front.to_string()),
            ("input".into(), "int8 value of pixel - 128, R G B planes".into()),
        ],
        graph,
    };
    (model, points)
}

/// An open batch and the given dimensions.
fn dims(inner: &[usize]) -> Vec<Dim> {
    let fixed = inner.iter().map(|n| Dim::Fixed(*n as u64));
    std::iter::once(Dim::Symbol("batch".into())).chain(fixed).collect()
}

struct Builder<'a> {
    weights: &'a Weights,
    /// Element type of the trunk.
    trunk: ElemType,
    norms: Norms<'a>,
    graph: Graph,
}

/// What becomes of the norms.
enum Norms<'a> {
    /// They stay operators.
    Apart,
    /// They are folded into the convolutions, whose weights are quantized then: the scale of a
    /// filter belongs to what it really multiplies by.
    Folded {
        /// The steps; without them nothing is quantized.
        scales: Option<&'a Scales>,
        /// Values that are quantized, or would be.
        points: Vec<String>,
    },
}

fn int(value: usize) -> i64 {
    (value as u64).cast_signed()
}

impl Builder<'_> {
    /// Adds a node with one output, called like the node, and returns that name.
    fn node(
        &mut self,
        op_type: &'static str,
        name: &str,
        inputs: &[&str],
        attributes: Vec<(&'static str, Attribute)>,
    ) -> String {
        self.graph.nodes.push(Node {
            op_type,
            name: name.into(),
            inputs: inputs.iter().map(|s| (*s).into()).collect(),
            outputs: vec![name.into()],
            attributes,
        });
        name.into()
    }

    fn cast(&mut self, name: &str, input: &str, to: ElemType) -> String {
        self.node("Cast", name, &[input], vec![("to", Attribute::Int(to.code().cast_signed()))])
    }

    /// Adds a constant and returns its name.
    fn constant(
        &mut self,
        name: &str,
        elem_type: ElemType,
        dims: Vec<usize>,
        values: &[f32],
    ) -> String {
        let data = match elem_type {
            ElemType::Fp16 => {
                let mut halves = vec![f16::ZERO; values.len()];
                halves.convert_from_f32_slice(values);
                halves.iter().flat_map(|v| v.to_le_bytes()).collect()
            }
            _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        self.graph.initializers.push(Initializer { name: name.into(), elem_type, dims, data });
        name.into()
    }

    /// Adds the weights called `name` in the element type `elem_type`.
    fn weight(&mut self, name: &str, elem_type: ElemType) -> String {
        let weights = self.weights;
        let dims = weights.get(name).map(|tensor| tensor.shape.clone()).unwrap_or_default();
        self.constant(name, elem_type, dims, weights.values(name))
    }

    fn front(&mut self, options: &ExportOptions) -> String {
        let front = options.front.elem_type();
        let mut x = INPUT.to_string();
        if options.input_type.elem_type() != front {
            x = self.cast("front.cast", &x, front);
        }
        let scale = self.constant("front.scale", front, vec![1, 3, 1, 1], &front::scale());
        let offset = self.constant("front.offset", front, vec![1, 3, 1, 1], &front::offset());
        x = self.node("Mul", "front.mul", &[&x, &scale], vec![]);
        x = self.node("Add", "front.add", &[&x, &offset], vec![]);
        if front != self.trunk {
            x = self.cast("front.out", &x, self.trunk);
        }
        self.quantized(x)
    }

    fn conv(&mut self, conv: &Conv, input: &str) -> String {
        let (kernel, stride) = (int(conv.kernel), int(conv.stride));
        let attributes = vec![
            ("kernel_shape", Attribute::Ints(vec![kernel; 2])),
            ("pads", Attribute::Ints(vec![int(conv.padding()); 4])),
            ("strides", Attribute::Ints(vec![stride; 2])),
        ];
        if matches!(self.norms, Norms::Folded { .. }) {
            let (weight, bias) = self.folded(conv);
            return self.node("Conv", &conv.name, &[input, &weight, &bias], attributes);
        }
        let weight = self.weight(&format!("{}.weight", conv.name), self.trunk);
        let x = self.node("Conv", &conv.name, &[input, &weight], attributes);
        let parts = ["weight", "bias", "running_mean", "running_var"]
            .map(|part| self.weight(&format!("{}.{part}", conv.norm), self.trunk));
        let [scale, bias, mean, var] = &parts;
        let epsilon = vec![("epsilon", Attribute::Float(NORM_EPSILON))];
        self.node("BatchNormalization", &conv.norm, &[&x, scale, bias, mean, var], epsilon)
    }

    fn stem(&mut self, stem: &Conv, input: String) -> String {
        let x = self.conv(stem, &input);
        let x = self.node("Relu", "relu", &[&x], vec![]);
        let attributes = vec![
            ("kernel_shape", Attribute::Ints(vec![3; 2])),
            ("pads", Attribute::Ints(vec![1; 4])),
            ("strides", Attribute::Ints(vec![2; 2])),
        ];
        self.node("MaxPool", "maxpool", &[&x], attributes)
    }

    fn block(&mut self, block: &Block, input: String) -> String {
        let name = &block.name;
        // One step for the block's input, whoever takes it: the convolutions and the shortcut.
        let input = self.quantized(input);
        let mut x = input.clone();
        for (i, conv) in block.convs.iter().enumerate() {
            if i > 0 {
                x = self.node("Relu", &format!("{name}.relu{i}"), &[&x], vec![]);
                x = self.quantized(x);
            }
            x = self.conv(conv, &x);
        }
        // The shortcut of every block is quantized, and the convolution's own result is not: so
        // TensorRT does the addition in the kernel of that convolution.
        let shortcut = match &block.downsample {
            Some(conv) => {
                let x = self.conv(conv, &input);
                self.quantized(x)
            }
            None => input,
        };
        let x = self.node("Add", &format!("{name}.add"), &[&x, &shortcut], vec![]);
        self.node("Relu", &format!("{name}.relu"), &[&x], vec![])
    }

    /// Mean over all positions and linear layer, always in fp32. What the mean is taken of is
    /// quantized as every block's input is: without that the last block adds its shortcut in fp16,
    /// for which TensorRT turns it back by a kernel of its own, and the sum is rearranged besides.
    fn head(&mut self, head: Head, input: String) {
        let mut x = self.quantized(input);
        if self.trunk != ElemType::Fp32 {
            x = self.cast("head.cast", &x, ElemType::Fp32);
        }
        let x = self.node("GlobalAveragePool", "avgpool", &[&x], vec![]);
        let name = if head == Head::Logits { "flatten" } else { FEATURES };
        let x = self.node("Flatten", name, &[&x], vec![("axis", Attribute::Int(1))]);
        if head != Head::Features {
            let weight = self.weight("fc.weight", ElemType::Fp32);
            let bias = self.weight("fc.bias", ElemType::Fp32);
            let attributes = vec![("transB", Attribute::Int(1))];
            self.node("Gemm", LOGITS, &[&x, &weight, &bias], attributes);
        }
    }
}
