//! Each rule on a model that breaks it, and on one that does not.

use tensorwire_onnx::write::{Attribute, Graph, Initializer, Node, OnnxModel};
use tensorwire_onnx::{Dim, ElemType, TensorInfo};

use super::*;

/// A model in the making.
struct Case(Graph);

impl Case {
    fn new(batch: Dim) -> Self {
        let dims = [batch, Dim::Fixed(3), Dim::Fixed(8), Dim::Fixed(8)];
        let input =
            TensorInfo { name: "x".into(), elem_type: ElemType::Fp16, dims: Some(dims.into()) };
        Self(Graph { inputs: vec![input], ..Graph::default() })
    }

    fn open() -> Self {
        Self::new(Dim::Symbol("batch".into()))
    }

    fn node(mut self, op_type: &'static str, name: &str, inputs: &[&str]) -> Self {
        self.0.nodes.push(Node {
            op_type,
            name: name.into(),
            inputs: inputs.iter().map(|input| (*input).into()).collect(),
            outputs: vec![name.into()],
            attributes: vec![("group", Attribute::Int(1))],
        });
        self
    }

    fn constant(mut self, name: &str, dims: &[usize], value: impl Fn(usize) -> f32) -> Self {
        let count = dims.iter().product::<usize>();
        let half = |at| half::f16::from_f32(value(at)).to_le_bytes();
        self.0.initializers.push(Initializer {
            name: name.into(),
            elem_type: ElemType::Fp16,
            dims: dims.into(),
            data: (0..count).flat_map(half).collect(),
        });
        self
    }

    /// A convolution `inputs → outputs` of the value `x`.
    fn conv(self, name: &str, x: &str, outputs: usize, inputs: usize) -> Self {
        let weights = format!("{name}.w");
        // No zeros, no two filters alike.
        let case = self.constant(&weights, &[outputs, inputs, 1, 1], |at| 1.0 + (at % 7) as f32);
        case.node("Conv", name, &[x, &weights])
    }

    /// Quantizes and dequantizes `x` with the scales that the constant `scale` holds.
    fn quantized(self, name: &str, x: &str, scale: &str) -> Self {
        let (q, dq) = (format!("{name}.q"), name);
        self.node("QuantizeLinear", &q, &[x, scale]).node("DequantizeLinear", dq, &[&q, scale])
    }

    fn findings(self) -> Vec<Finding> {
        let model = OnnxModel {
            producer: "test".into(),
            producer_version: "1".into(),
            ir_version: 7,
            opset: 13,
            metadata: Vec::new(),
            graph: self.0,
        };
        let bytes = model.to_bytes().expect("small");
        let graph = ModelGraph::read(&bytes).expect("a model");
        lint(&graph)
    }

    fn found(self) -> Vec<(&'static str, Vec<String>)> {
        self.findings().into_iter().map(|found| (found.rule.code, found.nodes)).collect()
    }

    /// The nodes that `code` was found at.
    fn at(self, code: &str) -> Option<Vec<String>> {
        self.found().into_iter().find(|(found, _)| *found == code).map(|(_, nodes)| nodes)
    }
}

/// Two convolutions as they should be, behind the image.
fn sound() -> Case {
    Case::open().conv("c1", "x", 64, 3).node("Relu", "r1", &["c1"]).conv("c2", "r1", 128, 64)
}

/// The same in int8, with an addition whose sides are alike.
fn sound_int8() -> Case {
    let case = Case::open()
        .constant("s", &[], |_| 0.1)
        .constant("sw1", &[64], |_| 0.1)
        .constant("sw2", &[64], |_| 0.2)
        .constant("c1.w", &[64, 3, 1, 1], |at| 1.0 + (at % 7) as f32)
        .constant("c2.w", &[64, 64, 1, 1], |at| 1.0 + (at % 7) as f32);
    case.quantized("xq", "x", "s")
        .quantized("w1", "c1.w", "sw1")
        .node("Conv", "c1", &["xq", "w1"])
        .quantized("c1q", "c1", "s")
        .quantized("w2", "c2.w", "sw2")
        .node("Conv", "c2", &["c1q", "w2"])
        .quantized("c2q", "c2", "s")
        .node("Add", "sum", &["c1q", "c2"])
}

#[test]
fn a_sound_model_has_no_warning() {
    let codes = |case: Case| case.found().into_iter().map(|(code, _)| code).collect::<Vec<_>>();
    assert_eq!(codes(sound()), ["TL20"], "but the note that it says nothing about int8");
    assert_eq!(codes(sound_int8()), [""; 0]);
}

#[test]
fn channels_come_in_groups() {
    let by_8 = sound().conv("c3", "c2", 100, 128).at("TL01").expect("found");
    assert_eq!(by_8, ["c3 (128 → 100)"]);
    let by_32 = sound().conv("c3", "c2", 40, 128).at("TL01").expect("found");
    assert_eq!(by_32, ["c3 (128 → 40)"]);
    // The two are told apart.
    let said = |outputs: usize| {
        let findings = sound().conv("c3", "c2", outputs, 128).findings();
        findings.into_iter().find(|f| f.rule.code == "TL01").expect("found").what
    };
    assert!(said(100).contains("no multiple of 8"), "{}", said(100));
    assert!(said(40).contains("of 8 and not of 32"), "{}", said(40));
    // Inputs count like outputs; those of the image itself do not.
    assert!(sound().conv("c3", "c2", 128, 36).at("TL01").is_some());
    assert_eq!(Case::open().conv("c1", "x", 64, 3).at("TL01"), None);
}

#[test]
fn a_prelu_may_be_a_leaky_relu() {
    let prelu = |slope: fn(usize) -> f32| {
        sound().constant("slope", &[128, 1, 1], slope).node("PRelu", "p", &["c2", "slope"])
    };
    assert_eq!(prelu(|_| 0.25).at("TL03"), Some(vec!["p".into()]));
    assert_eq!(prelu(|_| 0.25).at("TL02"), None);
    assert_eq!(prelu(|at| at as f32).at("TL02"), Some(vec!["p".into()]));
}

#[test]
fn what_the_parser_lacks_is_a_plugin() {
    let case = sound().node("MultiscaleDeformableAttn", "attn", &["c2"]);
    assert_eq!(case.at("TL04"), Some(vec!["attn (MultiscaleDeformableAttn)".into()]));
}

#[test]
fn a_fixed_batch_is_told() {
    assert_eq!(Case::new(Dim::Fixed(1)).at("TL05"), Some(Vec::new()));
    assert_eq!(Case::open().at("TL05"), None);
}

#[test]
fn filters_of_zeros_can_be_pruned() {
    let value = |at: usize| if at < 3 * 64 { 0.0 } else { 1.0 + (at % 7) as f32 };
    let case = sound().constant("w", &[128, 64, 1, 1], value).node("Conv", "c3", &["r1", "w"]);
    assert_eq!(case.at("TL07"), Some(vec!["c3 (3 of 128)".into()]));
}

#[test]
fn two_of_four_is_sparse() {
    let value = |at: usize| if at % 4 < 2 { 0.0 } else { 1.0 + (at % 7) as f32 };
    let case = sound().constant("w", &[128, 64, 1, 1], value).node("Conv", "c3", &["r1", "w"]);
    assert_eq!(case.at("TL08"), Some(vec!["c3".into()]));
    // Along the input, not along the kernel.
    let case = sound().constant("w", &[128, 64, 2, 2], value).node("Conv", "c3", &["r1", "w"]);
    assert_eq!(case.at("TL08"), None);
}

#[test]
fn a_norm_is_folded_only_into_its_own_convolution() {
    let norm = |x: &str| sound().node("BatchNormalization", "n", &[x]);
    assert_eq!(norm("c2").at("TL09"), None);
    assert_eq!(norm("r1").at("TL09"), Some(vec!["n".into()]));
    let shared = norm("c2").node("Relu", "r2", &["c2"]);
    assert_eq!(shared.at("TL09"), Some(vec!["n".into()]));
}

#[test]
fn a_quantized_model_is_quantized_throughout() {
    let case = sound_int8().conv("c3", "sum", 64, 64);
    assert_eq!(case.at("TL21"), Some(vec!["c3".into()]));
}

#[test]
fn the_shortcut_of_an_addition_is_quantized_and_its_convolution_is_not() {
    for sides in [["c1q", "c2q"], ["c1", "c2"], ["c2q", "c1q"], ["r", "c2"]] {
        let case = sound_int8().node("Relu", "r", &["c1"]).node("Add", "sum2", &sides);
        assert_eq!(case.at("TL22"), Some(vec!["sum2".into()]), "{sides:?}");
    }
    assert_eq!(sound_int8().node("Add", "sum2", &["c2", "c1q"]).at("TL22"), None);
    // In fp16 nothing is asked of it.
    assert_eq!(sound().node("Add", "sum", &["c2", "c1"]).at("TL22"), None);
}

#[test]
fn weights_have_a_scale_for_each_filter() {
    let case = sound_int8().quantized("w3", "c2.w", "s").node("Conv", "c3", &["c1q", "w3"]);
    assert_eq!(case.at("TL23"), Some(vec!["c3".into()]));
}

#[test]
fn linear_layers_want_to_stay_wide() {
    let weights = |case: Case| case.constant("fc.w", &[1000, 512], |_| 1.0);
    let float = weights(sound()).node("Gemm", "fc", &["c2", "fc.w"]);
    assert_eq!(float.at("TL25"), Some(vec!["fc".into()]));
    let int8 = weights(sound_int8()).quantized("fcq", "fc.w", "s");
    assert_eq!(int8.node("Gemm", "fc", &["c2q", "fcq"]).at("TL24"), Some(vec!["fc".into()]));
    let hybrid = weights(sound_int8()).node("Gemm", "fc", &["sum", "fc.w"]);
    assert_eq!(hybrid.at("TL24"), None);
}

#[test]
fn a_finding_says_why_and_what_to_do() {
    let text = at(
        Rule { code: "TL99", level: Level::Warning, why: "because", hint: "that" },
        (0..8).map(|n| format!("n{n}")).collect(),
        |n| plural(n, "node", "nodes"),
    )
    .expect("nodes")
    .to_string();
    let expected = "warning[TL99]: 8 nodes\n  at: n0, n1, n2, n3, n4, n5 and 2 more\n  why: \
                    because\n  do: that";
    assert_eq!(text, expected);
}
