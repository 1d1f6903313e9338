//! Weights of a network: read from a file, held as fp32 by name, compared with what a network has.

mod pickle;
mod pth;
mod safetensors;
mod zip;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::arch::{Arch, NORM_EPSILON, Network};
use super::options::Precision;

/// Counters that training keeps beside a norm; no network needs them to run.
const IGNORED_SUFFIX: &str = ".num_batches_tracked";

/// A tensor as fp32, row-major.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Elements.
    pub values: Vec<f32>,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor {:?}", self.shape)
    }
}

/// Tensors by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights(BTreeMap<String, Tensor>);

impl Weights {
    /// Adds a tensor; returns whether the name was new.
    pub fn insert(&mut self, name: String, tensor: Tensor) -> bool {
        self.0.insert(name, tensor).is_none()
    }

    /// The tensor called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }

    /// All tensors, by name in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The elements of the tensor called `name`; empty when there is none, which
    /// [`Weights::problems`] has reported.
    #[must_use]
    pub fn values(&self, name: &str) -> &[f32] {
        self.0.get(name).map_or(&[], |tensor| tensor.values.as_slice())
    }
}

/// Element types that weights may have in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dtype {
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The elements in `bytes` (little-endian, a whole number of them) as fp32.
    fn widen(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F16 => {
                let halves: Vec<f16> =
                    bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
                let mut values = vec![0.0; halves.len()];
                halves.convert_to_f32_slice(&mut values);
                values
            }
            Self::Bf16 => {
                let wide = |b: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
                bytes.as_chunks().0.iter().map(wide).collect()
            }
            Self::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Self::F64 => {
                bytes.as_chunks().0.iter().map(|b| narrow(f64::from_le_bytes(*b))).collect()
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
const fn narrow(value: f64) -> f32 {
    value as f32
}

/// Why a weights file could not be read. The path is not repeated here; the caller names it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    Io(std::io::Error),
    /// It is a folder, a pipe or a device.
    NotAFile,
    /// The file is neither safetensors nor a `.pth` of PyTorch 1.6 or later.
    UnknownFormat,
    /// A `.pth` in the format before PyTorch 1.6.
    LegacyPth,
    /// The content is damaged or not as its format demands.
    Malformed {
        /// The format.
        format: &'static str,
        /// Where in the file: an entry, a tensor, a byte.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The content is well formed and uses something that we refuse.
    Refused {
        /// The format.
        format: &'static str,
        /// What it is.
        what: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "cannot be read: {e}"),
            Self::NotAFile => f.write_str("cannot be read: it is not a regular file"),
            Self::UnknownFormat => {
                f.write_str("neither a safetensors file nor a .pth file (zip with a pickle)")
            }
            Self::LegacyPth => f.write_str(
                "a .pth file in the format before PyTorch 1.6; load it there and save it again",
            ),
            Self::Malformed { format, place, what } => write!(f, "{format}: {place}: {what}"),
            Self::Refused { format, what } => write!(f, "{format}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

/// Reads the weights in the file `path`. The format is seen from the first bytes, not the name.
///
/// # Errors
///
/// [`ReadError`] when the file cannot be read, is damaged, or holds something other than tensors.
pub fn read(path: &Path) -> Result<Weights, ReadError> {
    // Asked before it is opened: the open of a pipe may never return, and a device never ends.
    if !std::fs::metadata(path).map_err(ReadError::Io)?.is_file() {
        return Err(ReadError::NotAFile);
    }
    let bytes = std::fs::read(path).map_err(ReadError::Io)?;
    read_bytes(&bytes)
}

/// Reads the weights in a file whose content is `bytes`. Any bytes are weights or an error, and the
/// tensors have no more elements together than the file has bytes.
///
/// # Errors
///
/// [`ReadError`] when the content is damaged or holds something other than tensors.
pub fn read_bytes(bytes: &[u8]) -> Result<Weights, ReadError> {
    match bytes {
        // A length and a header. First, since a length may begin like either of the others; a zip
        // has a method of compression where the brace is, an old `.pth` the end of a magic number.
        [_, _, _, _, _, _, _, _, b'{', ..] => safetensors::parse(bytes),
        [b'P', b'K', 3, 4, ..] => pth::parse(bytes),
        // A pickle of protocol 2 to 5 without a zip around it.
        [0x80, 2..=5, ..] => Err(ReadError::LegacyPth),
        _ => Err(ReadError::UnknownFormat),
    }
}

/// One thing that is wrong with weights.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WeightProblem {
    /// The network has a tensor that the weights lack.
    Missing {
        /// Name of the tensor.
        name: String,
        /// Shape in the network.
        shape: Vec<usize>,
    },
    /// The weights have a tensor that the network lacks.
    Extra {
        /// Name of the tensor.
        name: String,
        /// Shape in the weights.
        shape: Vec<usize>,
    },
    /// Shapes differ.
    Shape {
        /// Name of the tensor.
        name: String,
        /// Shape in the network.
        expected: Vec<usize>,
        /// Shape in the weights.
        given: Vec<usize>,
    },
    /// Some values are no numbers.
    NotFinite {
        /// Name of the tensor.
        name: String,
        /// How many values are infinite or not a number.
        count: usize,
    },
    /// A variance so negative that its root cannot be taken.
    Variance {
        /// Name of the tensor.
        name: String,
        /// The value.
        value: f32,
    },
    /// A value is beyond the range of fp16.
    Fp16Range {
        /// Name of the tensor.
        name: String,
        /// The value furthest from zero.
        value: f32,
    },
}

impl fmt::Display for WeightProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name, shape } => write!(f, "missing {name} {shape:?}"),
            Self::Extra { name, shape } => write!(f, "not in the network: {name} {shape:?}"),
            Self::Shape { name, expected, given } => {
                write!(f, "shape of {name}: weights {given:?}, network {expected:?}")
            }
            Self::NotFinite { name, count } => {
                write!(f, "{name}: {count} values are infinite or not a number")
            }
            Self::Variance { name, value } => write!(f, "{name}: a variance of {value}"),
            Self::Fp16Range { name, value } => {
                write!(f, "{name}: {value} is beyond fp16 (±65504); use --precision fp32")
            }
        }
    }
}

/// Everything that is wrong with weights, and the file they are from.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightProblems {
    /// The file.
    pub path: PathBuf,
    /// The network they should be for.
    pub arch: Arch,
    /// What is wrong; never empty.
    pub problems: Vec<WeightProblem>,
    /// Another network whose tensors these are.
    pub fits: Option<Arch>,
}

/// Problems shown in a message. A wrong network has hundreds, and the first ones tell it.
const SHOWN: usize = 40;

impl fmt::Display for WeightProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not weights for {}", self.path.display(), self.arch)?;
        if let Some(other) = self.fits {
            write!(f, ", but for {other}")?;
        }
        f.write_str(":")?;
        for problem in self.problems.iter().take(SHOWN) {
            write!(f, "\n  {problem}")?;
        }
        if self.problems.len() > SHOWN {
            write!(f, "\n  and {} more", self.problems.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl Weights {
    /// Classes of the linear head, `None` where there is none.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        match self.get("fc.weight")?.shape[..] {
            [classes, _] => Some(classes),
            _ => None,
        }
    }

    /// Everything that keeps these weights from being those of `network`. The head (`fc`) is asked
    /// for only where `head` is set; where it is there, it must fit all the same.
    #[must_use]
    pub fn problems(
        &self,
        network: &Network,
        head: bool,
        precision: Precision,
    ) -> Vec<WeightProblem> {
        let mut expected: BTreeMap<String, Vec<usize>> = network.tensors().into_iter().collect();
        if head || self.get("fc.weight").is_some() || self.get("fc.bias").is_some() {
            let classes = self.classes().filter(|n| *n > 0).unwrap_or(1);
            expected.insert("fc.weight".into(), vec![classes, network.feature_dim]);
            expected.insert("fc.bias".into(), vec![classes]);
        }
        let mut problems = Vec::new();
        for (name, shape) in &expected {
            match self.0.get(name) {
                None => {
                    let (name, shape) = (name.clone(), shape.clone());
                    problems.push(WeightProblem::Missing { name, shape });
                }
                Some(tensor) if tensor.shape != *shape => problems.push(WeightProblem::Shape {
                    name: name.clone(),
                    expected: shape.clone(),
                    given: tensor.shape.clone(),
                }),
                Some(tensor) => check_values(name, &tensor.values, precision, &mut problems),
            }
        }
        for (name, tensor) in &self.0 {
            if !expected.contains_key(name) {
                let (name, shape) = (name.clone(), tensor.shape.clone());
                problems.push(WeightProblem::Extra { name, shape });
            }
        }
        problems
    }
}

fn check_values(
    name: &str,
    values: &[f32],
    precision: Precision,
    problems: &mut Vec<WeightProblem>,
) {
    let name = name.to_string();
    let count = values.iter().filter(|v| !v.is_finite()).count();
    if count > 0 {
        problems.push(WeightProblem::NotFinite { name, count });
        return;
    }
    if name.ends_with(".running_var")
        && let Some(value) = values.iter().copied().find(|v| v + NORM_EPSILON <= 0.0)
    {
        problems.push(WeightProblem::Variance { name: name.clone(), value });
    }
    // The head stays in fp32 whatever the precision.
    if precision == Precision::Fp16 && !name.starts_with("fc.") {
        let furthest =
            values.iter().copied().fold(0.0, |a: f32, b| if b.abs() > a.abs() { b } else { a });
        if f16::from_f32(furthest).is_infinite() {
            problems.push(WeightProblem::Fp16Range { name, value: furthest });
        }
    }
}

#[cfg(test)]
mod tests;
