//! What we need of TensorRT, small enough that a test can stand in for it.
#![allow(unsafe_code)] // a promise about device memory that a caller makes

use std::ffi::CStr;
use std::fmt;

use tensorwire_core::port::StageError;
use tensorwire_onnx::{Dim, ElemType, ModelIo, Profile, TensorInfo};

use crate::gpu::RawStream;

/// Which of the two libraries it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// TensorRT.
    TensorRt,
    /// TensorRT for RTX, with version numbers of its own.
    Rtx,
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TensorRt => "TensorRT",
            Self::Rtx => "TensorRT-RTX",
        })
    }
}

/// A version of TensorRT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch.
    pub patch: u32,
}

impl Version {
    /// The version behind the number that a library gives: 8601 is 8.6.1, 100300 is 10.3.0, and of
    /// RTX 10701 is 1.7.1.
    #[must_use]
    pub const fn from_number(number: u32, flavor: Flavor) -> Self {
        let short = number < 10_000 && matches!(flavor, Flavor::TensorRt);
        let unit = if short { 1_000 } else { 10_000 };
        Self { major: number / unit, minor: number % unit / 100, patch: number % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The library that runs, and what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Which library.
    pub flavor: Flavor,
    /// Version of the headers that this program was built with.
    pub header: Version,
    /// Version of the library that was loaded.
    pub library: Version,
    /// Whether a build reports its steps and can be stopped.
    pub reports_progress: bool,
    /// Whether times measured in one build serve the next.
    pub has_timing_cache: bool,
    /// Whether it builds for GPUs that are not here.
    pub has_targets: bool,
    /// Whether ranges of int8 can come from outside the model.
    pub has_implicit_int8: bool,
}

/// What an engine computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32-bit floats, and nothing that is only called so (TF32).
    Fp32,
    /// 16-bit floats, where the model has them.
    Fp16,
    /// 8-bit integers between the model's quantize and dequantize nodes, else as
    /// [`Precision::Fp16`].
    Int8,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
        })
    }
}

/// Where the ranges of int8 come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges<'a> {
    /// The model's own quantize and dequantize nodes.
    #[default]
    Model,
    /// A calibration table, as the library writes them and `trt calibrate` does.
    Table(&'a [u8]),
    /// One range for all values. What the engine computes is of no use; how long it takes is.
    Dummy,
}

/// Which of the library's calibrators a table is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// By the least information that is lost.
    Entropy,
    /// By the largest magnitude.
    MinMax,
}

/// What the first line of a calibration table says. A table holds for one version of TensorRT, on
/// any GPU.
///
/// # Errors
///
/// [`RuntimeError`] when it is none, or one of another version: with both.
pub fn table_kind(table: &[u8], library: &Versions) -> Result<TableKind, RuntimeError> {
    let refused = |text| Err(RuntimeError { fault: RuntimeFault::Config, text });
    let first = table.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(&first[..first.len().min(64)]);
    let parts = first.trim_end().strip_prefix("TRT-").and_then(|rest| rest.split_once('-'));
    let known = parts.and_then(|(number, kind)| {
        let kind = match kind {
            "EntropyCalibration2" => TableKind::Entropy,
            "MinMaxCalibration" => TableKind::MinMax,
            _ => return None,
        };
        Some((Version::from_number(number.parse().ok()?, library.flavor), kind))
    });
    let Some((version, kind)) = known else {
        return refused(format!(
            "no calibration table: its first line is {first:?}; expected TRT-NUMBER-\
             EntropyCalibration2 or TRT-NUMBER-MinMaxCalibration"
        ));
    };
    if version != library.library {
        let ours = library.library;
        return refused(format!(
            "the calibration table is of TensorRT {version}, the library is {ours}; make one for \
             it (trt calibrate --trt-version)"
        ));
    }
    Ok(kind)
}

/// An engine to be built.
#[derive(Clone, Debug)]
pub struct BuildRequest<'a> {
    /// The ONNX model, weights included.
    pub model: &'a [u8],
    /// Name of the input.
    pub input: &'a str,
    /// Shape of one image: channels, rows, columns.
    pub image: [usize; 3],
    /// Batch sizes to build for; `None` where the model fixes its own.
    pub profile: Option<Profile>,
    /// What it computes in.
    pub precision: Precision,
    /// Where the ranges of int8 come from.
    pub ranges: Ranges<'a>,
    /// Most scratch memory that a layer may take, in bytes; `None` leaves it to the library.
    pub workspace_bytes: Option<u64>,
    /// Whether layers keep their names and tactics for [`Engine::inspect`].
    pub detailed: bool,
    /// Compute capabilities (major × 10 + minor) to build for; empty for the GPU that is here.
    pub targets: &'a [u32],
    /// Times of an earlier build.
    pub timing_cache: Option<&'a [u8]>,
}

/// A step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildStep<'a> {
    /// What the library is at.
    pub phase: &'a str,
    /// Steps of the phase that are done.
    pub step: u32,
    /// Steps of the phase, 0 where it is not known.
    pub steps: u32,
}

/// What a build gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The serialized engine.
    pub plan: Vec<u8>,
    /// Measured times, for the next build.
    pub timing_cache: Option<Vec<u8>>,
}

/// The kind of a failure of TensorRT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeFault {
    /// There is no TensorRT here, or this program was built without it.
    Unavailable,
    /// The library and the headers of this program do not belong together.
    Version,
    /// The library gives no builder or runtime, as without a GPU.
    NoBuilder,
    /// The model is refused.
    Parse,
    /// An option is refused, or this version lacks it.
    Config,
    /// No engine came of the build.
    Build,
    /// The caller stopped the build.
    Cancelled,
    /// The plan is refused.
    Load,
    /// Anything else, by its code in the shim.
    Other(i32),
}

/// A failure of TensorRT outside the loop of inferences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// The kind.
    pub fault: RuntimeFault,
    /// One sentence, with what the library last complained of.
    pub text: String,
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message of the library may hold line breaks; ours is one line.
        for (i, line) in self.text.lines().map(str::trim).enumerate() {
            let gap = if i > 0 { " " } else { "" };
            write!(f, "{gap}{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for RuntimeError {}

/// TensorRT.
pub trait Runtime {
    /// What it makes of plans.
    type Engine: Engine;

    /// The library that runs.
    fn versions(&self) -> Versions;

    /// Builds an engine, which takes minutes. `progress` is told of each step, if the library says
    /// them, and stops the build by `false`.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`] when no engine came of it.
    fn build(
        &mut self,
        request: &BuildRequest<'_>,
        progress: &mut dyn FnMut(BuildStep<'_>) -> bool,
    ) -> Result<Built, RuntimeError>;

    /// Makes an engine of a plan.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`] when the plan is not one of this library and GPU.
    fn load(&mut self, plan: &[u8]) -> Result<Self::Engine, RuntimeError>;

    /// Version of the interface of its ONNX parser, whose library is loaded for it.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`] when there is no parser.
    fn parser_version(&mut self) -> Result<Version, RuntimeError>;
}

/// An input or output of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineTensor {
    /// Name.
    pub name: String,
    /// Whether it is an input.
    pub is_input: bool,
    /// Element type.
    pub elem_type: ElemType,
    /// Shape, `-1` where a dimension is open.
    pub shape: Vec<i64>,
    /// Least, best and largest value of the first dimension, for an input with a profile.
    pub batch: Option<Profile>,
}

/// An engine, ready to be run.
pub trait Engine {
    /// What runs it.
    type Context: Context;

    /// Its inputs and outputs.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`] when the library does not say.
    fn tensors(&self) -> Result<Vec<EngineTensor>, RuntimeError>;

    /// A context, with scratch memory of its own.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`] when there is no memory for it.
    fn context(&self) -> Result<Self::Context, RuntimeError>;

    /// Scratch memory of a context, in bytes.
    fn device_memory(&self) -> u64;

    /// The layers, as the JSON of the library.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`] when the library has no such thing.
    fn inspect(&self) -> Result<String, RuntimeError>;
}

/// One execution context: a shape, addresses, and scratch memory. It belongs to one thread at a
/// time and one stream. Nothing here allocates or waits.
pub trait Context {
    /// Sets the shape of an input.
    ///
    /// # Errors
    ///
    /// [`StageError`] when it is outside the profile.
    fn set_shape(&mut self, input: &CStr, shape: &[i64]) -> Result<(), StageError>;

    /// Sets the address of an input or output, in memory of the GPU.
    ///
    /// # Errors
    ///
    /// [`StageError`] when there is no such tensor.
    fn set_address(&mut self, tensor: &CStr, address: u64) -> Result<(), StageError>;

    /// Enqueues one inference.
    ///
    /// # Errors
    ///
    /// [`StageError`] when it could not be enqueued, or only in part.
    ///
    /// # Safety
    ///
    /// Until the stream has done it, the addresses that were set are of memory that holds the
    /// tensors of the shape that was set, nothing writes to the inputs, and nobody uses the
    /// outputs. The stream is one of the GPU of the engine.
    unsafe fn enqueue(&mut self, stream: RawStream) -> Result<(), StageError>;

    /// Whether the library waits after each layer of what is enqueued, and names the one that
    /// failed.
    fn debug_sync(&mut self, on: bool);

    /// As [`Context::enqueue`], with the time of each layer passed to `layer`, in order. The call
    /// waits for them.
    ///
    /// # Errors
    ///
    /// [`StageError`] as there.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn profile(
        &mut self,
        stream: RawStream,
        layer: &mut dyn FnMut(&str, f32),
    ) -> Result<(), StageError>;

    /// What the library said about the last call that failed.
    fn last_error(&self) -> &str;
}

/// The tensors of an engine in the words of a model file, so that one set of checks serves both.
#[must_use]
pub fn as_model(tensors: &[EngineTensor]) -> ModelIo {
    let info = |tensor: &EngineTensor| TensorInfo {
        name: tensor.name.clone(),
        elem_type: tensor.elem_type,
        dims: Some(
            tensor.shape.iter().map(|&d| u64::try_from(d).map_or(Dim::Open, Dim::Fixed)).collect(),
        ),
    };
    let side = |input| tensors.iter().filter(move |t| t.is_input == input).map(info).collect();
    ModelIo {
        inputs: side(true),
        outputs: side(false),
        opset: None,
        ir_version: 0,
        producer: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Flavor, RuntimeError, RuntimeFault, TableKind, Version, Versions, table_kind};

    #[test]
    fn numbers_of_all_versions_are_understood() {
        let text = |number, flavor| Version::from_number(number, flavor).to_string();
        assert_eq!(text(8_601, Flavor::TensorRt), "8.6.1");
        assert_eq!(text(100_300, Flavor::TensorRt), "10.3.0");
        assert_eq!(text(101_602, Flavor::TensorRt), "10.16.2");
        assert_eq!(text(110_400, Flavor::TensorRt), "11.4.0");
        assert_eq!(text(10_701, Flavor::Rtx), "1.7.1");
    }

    #[test]
    fn a_table_is_of_one_version_and_one_calibrator() {
        let version = Version { major: 8, minor: 6, patch: 0 };
        let versions = Versions {
            flavor: Flavor::TensorRt,
            header: version,
            library: version,
            reports_progress: false,
            has_timing_cache: true,
            has_targets: false,
            has_implicit_int8: true,
        };
        let kind = |text: &str| table_kind(text.as_bytes(), &versions);
        assert_eq!(kind("TRT-8600-EntropyCalibration2\ninput: 3f"), Ok(TableKind::Entropy));
        assert_eq!(kind("TRT-8600-MinMaxCalibration\r\n"), Ok(TableKind::MinMax));
        let other = kind("TRT-100300-EntropyCalibration2\n").expect_err("another version");
        let said = "the calibration table is of TensorRT 10.3.0, the library is 8.6.0; make one \
                    for it (trt calibrate --trt-version)";
        assert_eq!(other.to_string(), said);
        for none in ["", "\n", "TRT-8600", "TRT-x-MinMaxCalibration", "TRT-8600-Legacy", "{}"] {
            let error = kind(none).expect_err(none).to_string();
            assert!(error.starts_with("no calibration table: its first line is"), "{error}");
        }
        let long = kind(&"x".repeat(1_000)).expect_err("no table").to_string();
        assert!(long.len() < 250, "{long}");
    }

    #[test]
    fn an_error_is_one_line() {
        let text = "the parser refuses the model: node 3\n  (Conv): bad\n".to_owned();
        let error = RuntimeError { fault: RuntimeFault::Parse, text };
        assert_eq!(error.to_string(), "the parser refuses the model: node 3 (Conv): bad");
    }
}
