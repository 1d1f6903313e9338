//! The written file against a plain forward pass.

use std::fmt;
use std::path::Path;

use half::f16;
use tensorwire_onnx::{Engine, ModelExpect, OpenError, Profile, RtenEngine, RunError};

use super::arch::Network;
use super::forward::{self, Answer, Rounding};
use super::graph::{FEATURES, INPUT, LOGITS};
use super::options::{ExportOptions, Head, InputType, Precision};
use super::samples;
use super::weights::Weights;

/// Images of a check.
const IMAGES: usize = 2;
/// Largest relative difference. Both sides compute in fp32 with the same constants, so only the
/// order of their sums differs; a wrong layer is off by far more.
const LIMIT: f32 = 1e-3;
/// The same for int8, whose steps are a part in 127: a network of 50 layers is off by some per
/// cent.
const LIMIT_INT8: f32 = 0.15;

/// How far an output is from the plain forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Largest absolute difference of one value.
    pub max_abs: f32,
    /// L2 norm of the difference over the L2 norm of the right vector, of the worst image.
    pub relative_l2: f32,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckReport {
    /// Images that were compared.
    pub images: usize,
    /// The features, where the model has them as an output.
    pub features: Option<Difference>,
    /// The class scores, likewise.
    pub logits: Option<Difference>,
    /// Largest absolute value inside the network.
    pub peak: f32,
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checked on {} images:", self.images)?;
        for (name, difference) in [(FEATURES, self.features), (LOGITS, self.logits)] {
            if let Some(Difference { max_abs, relative_l2 }) = difference {
                write!(f, " {name} differ by at most {max_abs:.1e} (relative {relative_l2:.1e}),")?;
            }
        }
        write!(f, " largest value inside {:.1}", self.peak)
    }
}

/// Why a check failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The written file cannot be opened or run.
    Open(OpenError),
    /// The images that it was calibrated on cannot be had again.
    Samples(samples::SamplesError),
    /// The written file cannot be run.
    Run(RunError),
    /// The results differ, by more than this relatively.
    Differs(CheckReport, f32),
    /// The model is to compute in fp16, and values inside it are beyond that.
    Overflow(CheckReport),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => e.fmt(f),
            Self::Samples(e) => e.fmt(f),
            Self::Run(e) => write!(f, "cannot be run: {e}"),
            Self::Differs(report, limit) => {
                write!(f, "differs from a plain forward pass by more than {limit:.0e}: {report}")
            }
            Self::Overflow(report) => {
                write!(f, "leaves the range of fp16 (±65504); use --precision fp32: {report}")
            }
        }
    }
}

impl std::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) => Some(e),
            Self::Samples(e) => Some(e),
            Self::Run(e) => Some(e),
            Self::Differs(..) | Self::Overflow(_) => None,
        }
    }
}

/// Compares the model file `path` with a plain forward pass over `weights` on two made-up images,
/// or for int8 on two of those that it was calibrated on.
pub(super) fn check(
    options: &ExportOptions,
    path: &Path,
    network: &Network,
    weights: &Weights,
) -> Result<CheckReport, CheckError> {
    let size = [options.height, options.width];
    // The steps of int8 are those of the images that it was calibrated on: others are cut off.
    let calibrated = options.calibrate.as_ref().filter(|_| options.precision == Precision::Qdq);
    let images: Vec<Vec<i8>> = match calibrated {
        Some(capture) => samples::images(capture, size, IMAGES).map_err(CheckError::Samples)?,
        None => (0..IMAGES).map(|i| image(i, size)).collect(),
    };
    let count = images.len();
    let results = run_file(options, path, network, weights, &images)?;
    let rounding = Rounding { front: options.front, trunk: options.precision };
    let answers: Vec<Answer> =
        images.iter().map(|x| forward::run(network, weights, rounding, x, size)).collect();
    let wanted = |head: &[Head]| head.contains(&options.head);
    let report = CheckReport {
        images: count,
        features: wanted(&[Head::Features, Head::Both])
            .then(|| compare(&results, &answers, |answer| &answer.features)),
        logits: wanted(&[Head::Logits, Head::Both])
            .then(|| compare(&results, &answers, |answer| &answer.logits)),
        peak: answers.iter().map(|answer| answer.peak).fold(0.0, f32::max),
    };
    let limit = if options.precision == Precision::Qdq { LIMIT_INT8 } else { LIMIT };
    let close = |d: Option<Difference>| d.is_none_or(|d| d.relative_l2 <= limit);
    if !close(report.features) || !close(report.logits) {
        return Err(CheckError::Differs(report, limit));
    }
    if options.precision == Precision::Fp16 && f16::from_f32(report.peak).is_infinite() {
        return Err(CheckError::Overflow(report));
    }
    Ok(report)
}

/// A picture with slopes and edges in every channel, another one for each `index`.
pub(super) fn image(index: usize, [rows, columns]: [usize; 2]) -> Vec<i8> {
    let pixel = |channel: usize, y: usize, x: usize| {
        let slope = (y * (channel + 1) * 255 / rows + x * (3 - channel) * 255 / columns) / 2;
        let tile = (y * 6 / rows + x * 6 / columns + channel + index) % 2 * 90;
        let [byte, ..] = (slope + tile + 31 * index).to_le_bytes();
        // pixel − 128 as a signed byte: the same bits with the highest one turned.
        (byte ^ 0x80).cast_signed()
    };
    let positions = (0..3).flat_map(|c| (0..rows).map(move |y| (c, y)));
    positions.flat_map(|(c, y)| (0..columns).map(move |x| pixel(c, y, x))).collect()
}

fn encode(pixels: &[i8], input: InputType) -> Vec<u8> {
    let pixels = pixels.iter().copied();
    match input {
        InputType::Int8 => pixels.map(i8::cast_unsigned).collect(),
        InputType::Fp16 => pixels.flat_map(|x| f16::from_f32(f32::from(x)).to_ne_bytes()).collect(),
        InputType::Fp32 => pixels.flat_map(|x| f32::from(x).to_ne_bytes()).collect(),
    }
}

/// The outputs of the file for each image.
fn run_file(
    options: &ExportOptions,
    path: &Path,
    network: &Network,
    weights: &Weights,
    images: &[Vec<i8>],
) -> Result<Vec<Answer>, CheckError> {
    let u32_of = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let classes = weights.classes().unwrap_or(0);
    let (output, width) = match options.head {
        Head::Logits => (LOGITS, classes),
        Head::Features | Head::Both => (FEATURES, network.feature_dim),
    };
    let count = u32_of(images.len());
    let expect = ModelExpect {
        input_name: INPUT.into(),
        output_name: output.into(),
        logits_name: (options.head == Head::Both).then(|| LOGITS.into()),
        channels: 3,
        height: u32_of(options.height),
        width: u32_of(options.width),
        input_type: options.input_type.elem_type(),
        feature_dim: u32_of(width),
        images_per_inference: count,
        profile: Profile { min: 1, opt: count, max: count },
    };
    let mut engine = RtenEngine::open(path, &expect, 0).map_err(CheckError::Open)?;
    let input: Vec<u8> = images.iter().flat_map(|x| encode(x, options.input_type)).collect();
    let mut rows = vec![0.0; images.len() * width];
    let extra = if options.head == Head::Both { classes } else { 0 };
    let mut logits = vec![0.0; images.len() * extra];
    engine.run(&input, images.len(), &mut rows, &mut logits).map_err(CheckError::Run)?;
    let row = |all: &[f32], width: usize, i: usize| all[i * width..(i + 1) * width].to_vec();
    let answer = |i| match options.head {
        Head::Logits => Answer { logits: row(&rows, width, i), ..Answer::default() },
        Head::Features | Head::Both => Answer {
            features: row(&rows, width, i),
            logits: row(&logits, extra, i),
            ..Answer::default()
        },
    };
    Ok((0..images.len()).map(answer).collect())
}

fn compare(given: &[Answer], right: &[Answer], part: impl Fn(&Answer) -> &[f32]) -> Difference {
    let mut worst = Difference::default();
    for (given, right) in given.iter().map(&part).zip(right.iter().map(&part)) {
        let differences = || given.iter().zip(right).map(|(a, b)| (a - b).abs());
        let norm =
            |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
        let length = norm(&mut right.iter().copied()).max(f32::MIN_POSITIVE);
        let relative = norm(&mut differences()) / length;
        // Written so that a value that is no number counts as infinitely far.
        let known = |value: f32| if value.is_nan() { f32::INFINITY } else { value };
        worst.max_abs = differences().map(known).fold(worst.max_abs, f32::max);
        worst.relative_l2 = worst.relative_l2.max(known(relative));
    }
    worst
}
