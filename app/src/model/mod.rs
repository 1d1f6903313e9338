//! Model tools: weights in, ONNX out.
//!
//! [`export`] takes a network of the ResNet family, its weights (a safetensors file, a `.pth` file,
//! or a seed) and a few choices, and writes an ONNX model whose input is the batch buffer and whose
//! outputs are what the sink takes. With [`ExportOptions::check`] the written file is loaded again
//! and compared with a plain forward pass.

pub mod arch;
pub(crate) mod calibrate;
pub mod check;
mod forward;
pub mod front;
pub mod graph;
mod options;
mod quantize;
pub(crate) mod samples;
mod seed;
pub mod weights;

use std::fmt;
use std::path::PathBuf;

use tensorwire_onnx::RunError;
use tensorwire_onnx::write::WriteError;

pub use arch::Arch;
pub use check::{CheckError, CheckReport, Difference};
pub use options::{ExportOptions, Head, InputType, Method, Precision, UnknownWord, WeightsSource};
use weights::{ReadError, WeightProblems, Weights};

use crate::file::{FileError, NewFile};

/// What was exported.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportReport {
    /// The file.
    pub output: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Elements of all constants: weights, norms with their statistics, front end.
    pub parameters: usize,
    /// Length of a feature vector.
    pub feature_dim: usize,
    /// Length of the class scores, 0 without a head.
    pub classes: usize,
    /// Images that it was calibrated on; 0 for a model that is not quantized.
    pub calibrated: usize,
    /// What the check found, where one was asked for.
    pub check: Option<CheckReport>,
}

impl fmt::Display for ExportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { output, bytes, parameters, feature_dim, classes, calibrated, check } = self;
        write!(f, "{}: {bytes} bytes, {parameters} constants", output.display())?;
        write!(f, ", {feature_dim} features, {classes} classes")?;
        if *calibrated > 0 {
            write!(f, ", int8 calibrated on {calibrated} images")?;
        }
        if let Some(check) = check {
            write!(f, "\n{check}")?;
        }
        Ok(())
    }
}

/// Why a model was not exported.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The weights file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// The weights are not those of the network.
    Weights(WeightProblems),
    /// The images are too small for the network, or too large for a model file.
    Size {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// The model does not do what it should; it was not kept.
    Check {
        /// The file it was to be.
        path: PathBuf,
        /// What is wrong.
        source: CheckError,
    },
    /// An int8 model without a capture to calibrate it on, or one for a model that is none.
    Calibrate(&'static str),
    /// No images came of the capture.
    Samples(samples::SamplesError),
    /// The network cannot be run on the images.
    Run(RunError),
    /// The model cannot be written.
    Write {
        /// The file it was to be.
        path: PathBuf,
        /// Why.
        source: WriteError,
    },
    /// The model file cannot be made, finished or put in its place.
    File(FileError),
}

/// Whose fault an error is; it decides the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorClass {
    /// What was asked for cannot be asked for (exit code 2).
    Usage,
    /// The written model does not run, or not as it should (exit code 5).
    Engine,
    /// A file cannot be read, written, or used for what it was given for (exit code 7).
    File,
}

impl ModelError {
    /// Whose fault it is.
    #[must_use]
    pub const fn class(&self) -> ModelErrorClass {
        match self {
            Self::Size { .. } | Self::Calibrate(_) => ModelErrorClass::Usage,
            Self::Check { .. } | Self::Run(_) => ModelErrorClass::Engine,
            Self::Samples(_)
            | Self::Read { .. }
            | Self::Weights(_)
            | Self::Write { .. }
            | Self::File(_) => ModelErrorClass::File,
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Weights(problems) => problems.fmt(f),
            Self::Size { height, width } => {
                write!(f, "images of {height}×{width}: must be from 1×1 to 8192×8192")
            }
            Self::Check { path, source } => {
                write!(f, "{}: not kept, the check failed: {source}", path.display())
            }
            Self::Write { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Calibrate(what) => f.write_str(what),
            Self::Samples(error) => error.fmt(f),
            Self::Run(error) => write!(f, "the network cannot be run to be calibrated: {error}"),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Write { source, .. } => Some(source),
            Self::Check { source, .. } => Some(source),
            Self::File(error) => error.source(),
            Self::Samples(error) => Some(error),
            Self::Run(error) => Some(error),
            Self::Weights(_) | Self::Size { .. } | Self::Calibrate(_) => None,
        }
    }
}

impl From<FileError> for ModelError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Writes the model that `options` ask for. The same options and weights give the same bytes.
///
/// # Errors
///
/// [`ModelError`]; the output file is then as it was.
pub fn export(options: &ExportOptions) -> Result<ExportReport, ModelError> {
    let (height, width) = (options.height, options.width);
    if [height, width].iter().any(|n| *n == 0 || *n > 8192) {
        return Err(ModelError::Size { height, width });
    }
    let network = options.arch.network();
    let weights = load(options, &network)?;
    let (model, calibrated) = match quantize::scales(options, &network, &weights)? {
        None => (graph::build(options, &network, &weights), 0),
        Some((scales, images)) => {
            (graph::build_folded(options, &network, &weights, Some(&scales)).0, images)
        }
    };
    let path = &options.output;
    let mut file = NewFile::create(path)?;
    let bytes = model
        .write_to(&mut file)
        .map_err(|source| ModelError::Write { path: path.clone(), source })?;
    file.sync()?;
    let check = if options.check {
        let found = check::check(options, file.temporary(), &network, &weights);
        Some(found.map_err(|source| ModelError::Check { path: path.clone(), source })?)
    } else {
        None
    };
    file.publish()?;
    let parameters = model.graph.initializers.iter().map(|i| i.dims.iter().product::<usize>());
    let has_head = options.head != Head::Features;
    Ok(ExportReport {
        output: path.clone(),
        bytes,
        parameters: parameters.sum(),
        feature_dim: network.feature_dim,
        classes: weights.classes().filter(|_| has_head).unwrap_or(0),
        calibrated,
        check,
    })
}

fn load(options: &ExportOptions, network: &arch::Network) -> Result<Weights, ModelError> {
    let path = match &options.weights {
        WeightsSource::Seed(seed) => return Ok(seed::weights(network, *seed)),
        WeightsSource::File(path) => path,
    };
    let weights =
        weights::read(path).map_err(|source| ModelError::Read { path: path.clone(), source })?;
    let head = options.head != Head::Features;
    let problems = weights.problems(network, head, options.precision);
    if problems.is_empty() {
        return Ok(weights);
    }
    let fits = Arch::ALL.into_iter().find(|other| {
        *other != options.arch
            && weights.problems(&other.network(), head, options.precision).is_empty()
    });
    let path = path.clone();
    Err(ModelError::Weights(WeightProblems { path, arch: options.arch, problems, fits }))
}

#[cfg(test)]
mod tests;
