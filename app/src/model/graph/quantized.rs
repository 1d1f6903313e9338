//! What an int8 model has besides: folded norms, and pairs of quantize and dequantize nodes.
//!
//! Weights have a step for each filter, values one for the whole tensor. TensorRT from 8.6 on takes
//! the pairs as what they are: between them it computes in int8. They are of operator set 13, whose
//! steps are fp32, and weights are kept in fp32 in front of their pair, which every version reads.

use tensorwire_onnx::ElemType;
use tensorwire_onnx::write::{Attribute, Initializer};

use super::{Builder, NORM_EPSILON, Norms};
use crate::model::arch::Conv;

/// Steps of int8 on each side of 0; −128 is not used, so that no sum is one-sided.
const STEPS: f32 = 127.0;

impl Builder<'_> {
    /// Weights and bias of a convolution with its norm folded in, the weights quantized where the
    /// model is.
    pub(super) fn folded(&mut self, conv: &Conv) -> (String, String) {
        let weights = self.weights;
        let part = |part: &str| weights.values(&format!("{}.{part}", conv.norm));
        let (gamma, beta, mean, var) =
            (part("weight"), part("bias"), part("running_mean"), part("running_var"));
        let factors: Vec<f32> =
            gamma.iter().zip(var).map(|(g, v)| g / (v + NORM_EPSILON).sqrt()).collect();
        let name = format!("{}.weight", conv.name);
        let values = weights.values(&name);
        let per_filter = values.len() / conv.outputs.max(1);
        let filters = values.chunks(per_filter.max(1)).zip(&factors);
        let folded: Vec<f32> = filters.flat_map(|(f, by)| f.iter().map(move |w| w * by)).collect();
        let bias: Vec<f32> =
            beta.iter().zip(mean).zip(&factors).map(|((b, m), by)| b - m * by).collect();
        let dims = vec![conv.outputs, conv.inputs, conv.kernel, conv.kernel];
        let weight = self.constant(&name, ElemType::Fp32, dims, &folded);
        let bias = self.constant(
            &format!("{}.bias", conv.name),
            ElemType::Fp32,
            vec![conv.outputs],
            &bias,
        );
        if !matches!(self.norms, Norms::Folded { scales: Some(_), .. }) {
            return (weight, bias);
        }
        let peak = |filter: &[f32]| filter.iter().fold(0.0_f32, |peak, w| peak.max(w.abs()));
        // A filter of zeros is zeros with any step.
        let step = |filter: &[f32]| Some(peak(filter) / STEPS).filter(|s| *s > 0.0).unwrap_or(1.0);
        let steps: Vec<f32> = folded.chunks(per_filter.max(1)).map(step).collect();
        (self.pair(&weight, &steps, true), bias)
    }

    /// The value `x` in int8 steps and back, if this model is quantized.
    pub(super) fn quantized(&mut self, x: String) -> String {
        let Norms::Folded { scales, points } = &mut self.norms else { return x };
        points.push(x.clone());
        let Some(scales) = scales else { return x };
        let scale = scales.0.get(&x).copied().unwrap_or(1.0);
        self.pair(&x, &[scale], false)
    }

    /// A quantize and a dequantize node behind `x`; `along` for a step for each filter.
    fn pair(&mut self, x: &str, steps: &[f32], along: bool) -> String {
        let dims = if along { vec![steps.len()] } else { Vec::new() };
        let scale = self.constant(&format!("{x}.scale"), ElemType::Fp32, dims.clone(), steps);
        let zero = format!("{x}.zero");
        self.graph.initializers.push(Initializer {
            name: zero.clone(),
            elem_type: ElemType::Int8,
            dims,
            data: vec![0; steps.len()],
        });
        let axis = || if along { vec![("axis", Attribute::Int(0))] } else { Vec::new() };
        let q = self.node("QuantizeLinear", &format!("{x}.q"), &[x, &scale, &zero], axis());
        self.node("DequantizeLinear", &format!("{x}.dq"), &[&q, &scale, &zero], axis())
    }
}
