//! Weights from a number: for demonstrations and tests that have no trained file.
//!
//! Integer arithmetic and exactly rounded operations only, so every machine makes the same bits.

use super::arch::Network;
use super::weights::{Tensor, Weights};

/// Scale of the last norm of each block. Small, so that a block changes little of what its
/// shortcut carries and the values stay within fp16 through any number of blocks.
const LAST_NORM_SCALE: f32 = 0.125;

/// Classes of a network without trained weights.
pub(super) const CLASSES: usize = 10;

/// Sebastiano Vigna's SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Close to a normal distribution with mean 0 and variance 1: the sum of four independent
    /// uniform numbers of 16 bits each, shifted and scaled. No logarithm, no cosine: those differ
    /// in the last bit between machines.
    fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum: u32 = [0, 16, 32, 48].map(|shift| field(bits, shift)).iter().sum();
        // Mean of the sum: 4 × 65535/2. Variance: 4 × (2^32 − 1)/12, so its root is 2^16/√3.
        let centred = f64::from(sum) - 131_070.0;
        narrow(centred * (3.0_f64.sqrt() / 65_536.0))
    }
}

fn field(bits: u64, shift: u32) -> u32 {
    let [low, high, ..] = (bits >> shift).to_le_bytes();
    u32::from(u16::from_le_bytes([low, high]))
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
const fn narrow(value: f64) -> f32 {
    value as f32
}

/// Weights for `network` and a head of [`CLASSES`] classes, the same for the same `seed`:
/// convolutions normal with variance 2 / fan-in (He et al. 2015), norms that pass their input, the
/// last one of each block scaled down.
pub(super) fn weights(network: &Network, seed: u64) -> Weights {
    let mut random = SplitMix(seed);
    let mut weights = Weights::default();
    let last: Vec<&str> =
        network.blocks.iter().filter_map(|b| b.convs.last()).map(|c| c.norm.as_str()).collect();
    for conv in network.convs() {
        let shape = vec![conv.outputs, conv.inputs, conv.kernel, conv.kernel];
        let fan_in = conv.inputs * conv.kernel * conv.kernel;
        weights.insert(format!("{}.weight", conv.name), normal(&mut random, shape, fan_in, 2.0));
        let scale = if last.contains(&conv.norm.as_str()) { LAST_NORM_SCALE } else { 1.0 };
        let parts = [("weight", scale), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)];
        for (part, value) in parts {
            let tensor = Tensor { shape: vec![conv.outputs], values: vec![value; conv.outputs] };
            weights.insert(format!("{}.{part}", conv.norm), tensor);
        }
    }
    let shape = vec![CLASSES, network.feature_dim];
    let head = normal(&mut random, shape, network.feature_dim, 1.0);
    weights.insert("fc.weight".into(), head);
    let bias = Tensor { shape: vec![CLASSES], values: vec![0.0; CLASSES] };
    weights.insert("fc.bias".into(), bias);
    weights
}

fn normal(random: &mut SplitMix, shape: Vec<usize>, fan_in: usize, gain: f64) -> Tensor {
    let fan_in = u32::try_from(fan_in).map_or(f64::MAX, f64::from);
    let deviation = narrow((gain / fan_in).sqrt());
    let count = shape.iter().product();
    let values = (0..count).map(|_| random.normal() * deviation).collect();
    Tensor { shape, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::arch::Arch;

    #[test]
    fn the_numbers_are_normal_and_always_the_same() {
        // The generator's published first output for seed 0.
        assert_eq!(SplitMix(0).next(), 0xe220_a839_7b1d_cdaf);
        let mut random = SplitMix(7);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(random.normal())).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.01, "{variance}");
    }

    #[test]
    fn one_seed_one_network() {
        let network = Arch::Resnet18.network();
        let (a, b, c) = (weights(&network, 1), weights(&network, 1), weights(&network, 2));
        assert!(a == b);
        assert!(a != c);
        let last = a.get("layer2.1.bn2.weight").expect("a last norm");
        assert!(last.values.iter().all(|v| *v == LAST_NORM_SCALE));
        let inner = a.get("layer2.1.bn1.weight").expect("an inner norm");
        assert!(inner.values.iter().all(|v| *v == 1.0));
    }
}
