//! What a user says to `export-model`, as values.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tensorwire_onnx::ElemType;

use super::arch::Arch;

/// A word that is not among the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// The word.
    pub given: String,
    /// The allowed ones, for people.
    pub allowed: &'static str,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not {}", self.given, self.allowed)
    }
}

impl std::error::Error for UnknownWord {}

/// Makes an enum of words: `FromStr` and `Display` from one table.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $allowed:literal:
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),*
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(UnknownWord { given: text.into(), allowed: $allowed }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),* })
            }
        }
    };
}

words! {
    /// Element type of the model's input.
    InputType, "fp16, int8 or fp32":
    /// What the reorder stage makes of the packets by default.
    Fp16 = "fp16",
    /// The bytes of the packets as they are.
    Int8 = "int8",
    /// Single precision.
    Fp32 = "fp32",
}

words! {
    /// Precision of a part of the model.
    Precision, "fp32, fp16 or qdq":
    /// Single precision.
    Fp32 = "fp32",
    /// Half precision.
    Fp16 = "fp16",
    /// 8-bit integers between quantize and dequantize nodes, fp32 elsewhere. Not for the front end.
    Qdq = "qdq",
}

words! {
    /// How the largest magnitude that int8 stands for is chosen.
    Method, "least-error, entropy or min-max":
    /// The one with the least squared error over the calibration images.
    LeastError = "least-error",
    /// The one that changes the distribution of the magnitudes least (Kullback–Leibler), as
    /// TensorRT's own entropy calibration has it.
    Entropy = "entropy",
    /// The largest that came: nothing is cut off.
    MinMax = "min-max",
}

words! {
    /// Which outputs the model has.
    Head, "features, logits or both":
    /// `features` alone.
    Features = "features",
    /// `logits` alone.
    Logits = "logits",
    /// `features` and `logits`.
    Both = "both",
}

impl InputType {
    /// The type as ONNX files name it.
    #[must_use]
    pub const fn elem_type(self) -> ElemType {
        match self {
            Self::Fp16 => ElemType::Fp16,
            Self::Int8 => ElemType::Int8,
            Self::Fp32 => ElemType::Fp32,
        }
    }
}

impl Precision {
    /// The type as ONNX files name it.
    #[must_use]
    pub const fn elem_type(self) -> ElemType {
        match self {
            Self::Fp16 => ElemType::Fp16,
            Self::Fp32 | Self::Qdq => ElemType::Fp32,
        }
    }
}

/// Where the weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsSource {
    /// A `.safetensors` or `.pth` file; which of them is seen from its bytes.
    File(PathBuf),
    /// Made from this number.
    Seed(u64),
}

impl FromStr for WeightsSource {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let Some(number) = text.strip_prefix("seed:") else {
            return Ok(Self::File(PathBuf::from(text)));
        };
        number.parse().map(Self::Seed).map_err(|_| UnknownWord {
            given: text.into(),
            allowed: "'seed:' and a number from 0 to 18446744073709551615",
        })
    }
}

impl fmt::Display for WeightsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Seed(seed) => write!(f, "seed:{seed}"),
        }
    }
}

/// What to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The network.
    pub arch: Arch,
    /// Its weights.
    pub weights: WeightsSource,
    /// Element type of the input: must be what the batch buffer holds.
    pub input_type: InputType,
    /// Precision of convolutions and norms. The head is always computed in fp32.
    pub precision: Precision,
    /// Precision of the front end that turns pixels into the network's input.
    pub front: Precision,
    /// Outputs.
    pub head: Head,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// The file to write.
    pub output: PathBuf,
    /// Whether the file is loaded again and compared with a plain forward pass.
    pub check: bool,
    /// The capture that an int8 model is calibrated on.
    pub calibrate: Option<PathBuf>,
    /// At most so many of its images.
    pub calibration_images: usize,
    /// How its steps are chosen.
    pub method: Method,
}

impl ExportOptions {
    /// The documented model: fp16 input, fp32 arithmetic, features, images of 224×224.
    #[must_use]
    pub fn new(arch: Arch, weights: WeightsSource, output: PathBuf) -> Self {
        Self {
            arch,
            weights,
            input_type: InputType::Fp16,
            precision: Precision::Fp32,
            front: Precision::Fp32,
            head: Head::Features,
            height: 224,
            width: 224,
            output,
            check: false,
            calibrate: None,
            calibration_images: 128,
            method: Method::LeastError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_others_named() {
        for word in ["fp16", "int8", "fp32"] {
            assert_eq!(word.parse::<InputType>().expect("allowed").to_string(), word);
        }
        for word in ["fp32", "fp16"] {
            assert_eq!(word.parse::<Precision>().expect("allowed").to_string(), word);
        }
        for word in ["features", "logits", "both"] {
            assert_eq!(word.parse::<Head>().expect("allowed").to_string(), word);
        }
        let error = "FP16".parse::<Precision>().expect_err("upper case").to_string();
        assert_eq!(error, "'FP16' is not fp32, fp16 or qdq");
    }

    #[test]
    fn weights_are_a_file_unless_they_are_a_seed() {
        let max = u64::MAX;
        let source = |text: &str| text.parse::<WeightsSource>();
        assert_eq!(source("seed:7"), Ok(WeightsSource::Seed(7)));
        assert_eq!(source(&format!("seed:{max}")), Ok(WeightsSource::Seed(max)));
        assert_eq!(source("seeds.pth"), Ok(WeightsSource::File("seeds.pth".into())));
        for wrong in ["seed:", "seed:-1", "seed:18446744073709551616", "seed: 1"] {
            let error = source(wrong).expect_err("no number").to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
