//! A plain forward pass: the answer that a model file is compared with.
//!
//! Written from the definitions, one image at a time, fp32 throughout, norms not folded. It
//! shares the table of layers with the exporter and nothing else, and it needs seconds, not
//! milliseconds, for an image.

use half::f16;

use super::arch::{Block, Conv, NORM_EPSILON, Network};
use super::front;
use super::options::Precision;
use super::weights::Weights;

/// Values of one image, `[channels, rows, columns]`.
struct Plane {
    channels: usize,
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

/// Features and class scores of one image; the scores are empty without a head.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) features: Vec<f32>,
    pub(super) logits: Vec<f32>,
    /// Largest absolute value inside the network.
    pub(super) peak: f32,
}

/// How the constants of the model are rounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    pub(super) front: Precision,
    pub(super) trunk: Precision,
}

fn round(precision: Precision, value: f32) -> f32 {
    match precision {
        Precision::Fp32 | Precision::Qdq => value,
        Precision::Fp16 => f16::from_f32(value).to_f32(),
    }
}

/// Runs `network` on one image: `pixels` are `pixel − 128` in R, G, B planes of `rows × columns`.
pub(super) fn run(
    network: &Network,
    weights: &Weights,
    rounding: Rounding,
    pixels: &[i8],
    [rows, columns]: [usize; 2],
) -> Answer {
    let mut pass = Pass { weights, trunk: rounding.trunk, peak: 0.0 };
    let (scale, offset) = (front::scale(), front::offset());
    let mut values = Vec::with_capacity(pixels.len());
    for (channel, plane) in pixels.chunks_exact(rows * columns).enumerate() {
        let a = round(rounding.front, scale[channel % 3]);
        let b = round(rounding.front, offset[channel % 3]);
        values.extend(plane.iter().map(|x| f32::from(*x) * a + b));
    }
    let image = Plane { channels: 3, rows, columns, values };
    let mut x = max_pool(&relu(pass.conv(&network.stem, &image)));
    for block in &network.blocks {
        x = pass.block(block, &x);
    }
    let features = mean(&x);
    let logits = pass.head(&features);
    Answer { features, logits, peak: pass.peak }
}

struct Pass<'a> {
    weights: &'a Weights,
    trunk: Precision,
    peak: f32,
}

impl Pass<'_> {
    fn block(&mut self, block: &Block, input: &Plane) -> Plane {
        let mut x = None::<Plane>;
        for conv in &block.convs {
            x = Some(match x {
                None => self.conv(conv, input),
                Some(x) => self.conv(conv, &relu(x)),
            });
        }
        let shortcut = block.downsample.as_ref().map(|conv| self.conv(conv, input));
        let shortcut = shortcut.as_ref().unwrap_or(input);
        let values = x.iter().flat_map(|x| &x.values).zip(&shortcut.values).map(|(a, b)| a + b);
        let values: Vec<f32> = values.collect();
        self.note(&values);
        relu(Plane { values, ..Plane::empty(shortcut.channels, shortcut.rows, shortcut.columns) })
    }

    /// Convolution and norm.
    fn conv(&mut self, conv: &Conv, input: &Plane) -> Plane {
        let kernel = self.rounded(&format!("{}.weight", conv.name));
        let (rows, columns) = (conv.output_size(input.rows), conv.output_size(input.columns));
        let patches = im2col(conv, input, rows, columns);
        let mut out = multiply(&kernel, &patches, conv.outputs, rows * columns);
        self.note(&out);
        let part = |part: &str| self.rounded(&format!("{}.{part}", conv.norm));
        let (gamma, beta) = (part("weight"), part("bias"));
        let (mean, var) = (part("running_mean"), part("running_var"));
        for (c, plane) in out.chunks_exact_mut(rows * columns).enumerate() {
            let scale = gamma[c] / (var[c] + NORM_EPSILON).sqrt();
            for value in plane {
                *value = (*value - mean[c]) * scale + beta[c];
            }
        }
        self.note(&out);
        Plane { values: out, ..Plane::empty(conv.outputs, rows, columns) }
    }

    fn note(&mut self, values: &[f32]) {
        self.peak = values.iter().fold(self.peak, |peak, v| peak.max(v.abs()));
    }

    fn rounded(&self, name: &str) -> Vec<f32> {
        self.weights.values(name).iter().map(|v| round(self.trunk, *v)).collect()
    }

    fn head(&self, features: &[f32]) -> Vec<f32> {
        let (weight, bias) = (self.weights.values("fc.weight"), self.weights.values("fc.bias"));
        let rows = weight.chunks_exact(features.len());
        let dot = |row: &[f32]| row.iter().zip(features).map(|(w, x)| w * x).sum::<f32>();
        rows.zip(bias).map(|(row, b)| dot(row) + b).collect()
    }
}

impl Plane {
    const fn empty(channels: usize, rows: usize, columns: usize) -> Self {
        Self { channels, rows, columns, values: Vec::new() }
    }
}

fn relu(mut x: Plane) -> Plane {
    for value in &mut x.values {
        *value = value.max(0.0);
    }
    x
}

/// The position in the input that tap `tap` of output `out` reads; `None` in the padding.
fn tap_at(out: usize, tap: usize, stride: usize, padding: usize, size: usize) -> Option<usize> {
    (out * stride + tap).checked_sub(padding).filter(|at| *at < size)
}

/// One row per (channel, kernel row, kernel column), one column per output position.
fn im2col(conv: &Conv, input: &Plane, rows: usize, columns: usize) -> Vec<f32> {
    let (kernel, stride, padding) = (conv.kernel, conv.stride, conv.padding());
    let mut patches = Vec::with_capacity(input.channels * kernel * kernel * rows * columns);
    for plane in input.values.chunks_exact(input.rows * input.columns) {
        for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
            for y in 0..rows {
                let row = tap_at(y, ky, stride, padding, input.rows)
                    .map(|y| &plane[y * input.columns..(y + 1) * input.columns]);
                patches.extend((0..columns).map(|x| {
                    let at = tap_at(x, kx, stride, padding, input.columns);
                    row.zip(at).map_or(0.0, |(row, at)| row[at])
                }));
            }
        }
    }
    patches
}

/// Columns that are worked on at a time: four rows of sums of this length stay in registers.
const TILE: usize = 16;

/// `[m, k] × [k, n]`, row-major.
fn multiply(a: &[f32], b: &[f32], m: usize, n: usize) -> Vec<f32> {
    let k = a.len() / m;
    let mut out = vec![0.0; m * n];
    for start in (0..n).step_by(TILE) {
        let width = TILE.min(n - start);
        // The tile of b, packed: the loop below then reads it from front to back.
        let mut tile = vec![[0.0; TILE]; k];
        for (row, packed) in b.chunks_exact(n).zip(&mut tile) {
            packed[..width].copy_from_slice(&row[start..start + width]);
        }
        for (i, rows) in a.chunks(4 * k).enumerate() {
            let mut sums = [[0.0_f32; TILE]; 4];
            for (row, sums) in rows.chunks_exact(k).zip(&mut sums) {
                for (factor, packed) in row.iter().zip(&tile) {
                    for (sum, value) in sums.iter_mut().zip(packed) {
                        *sum += factor * value;
                    }
                }
            }
            for (j, sums) in sums.iter().enumerate().take(rows.len() / k) {
                let at = (4 * i + j) * n + start;
                out[at..at + width].copy_from_slice(&sums[..width]);
            }
        }
    }
    out
}

/// 3×3, stride 2, padding 1.
fn max_pool(input: &Plane) -> Plane {
    let (rows, columns) = ((input.rows - 1) / 2 + 1, (input.columns - 1) / 2 + 1);
    let mut values = Vec::with_capacity(input.channels * rows * columns);
    for plane in input.values.chunks_exact(input.rows * input.columns) {
        for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
            let mut largest = f32::NEG_INFINITY;
            for (ky, kx) in (0..9).map(|tap| (tap / 3, tap % 3)) {
                let at = tap_at(y, ky, 2, 1, input.rows).zip(tap_at(x, kx, 2, 1, input.columns));
                if let Some((y, x)) = at {
                    largest = largest.max(plane[y * input.columns + x]);
                }
            }
            values.push(largest);
        }
    }
    Plane { channels: input.channels, rows, columns, values }
}

fn mean(input: &Plane) -> Vec<f32> {
    let positions = input.rows * input.columns;
    let count = u32::try_from(positions).map_or(f64::MAX, f64::from);
    let narrow = |value: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
        let value = value as f32;
        value
    };
    let planes = input.values.chunks_exact(positions);
    planes.map(|p| narrow(p.iter().copied().map(f64::from).sum::<f64>() / count)).collect()
}
