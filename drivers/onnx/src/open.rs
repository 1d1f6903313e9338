//! Whether a model can be run, before anything of it is loaded.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::check::{IoMismatch, IoPlan, ModelExpect, check_io};
use crate::header::{HeaderError, read_header};
use crate::stage::RunError;
use crate::types::ElemType;

/// Why a model cannot be run.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read, or is no ONNX model.
    Header(HeaderError),
    /// Model and configuration do not agree.
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What does not agree.
        source: Box<IoMismatch>,
    },
    /// The engine takes no input of this type.
    InputType {
        /// The file.
        path: PathBuf,
        /// The type.
        given: ElemType,
    },
    /// The library that runs the model refuses it.
    Engine {
        /// The file.
        path: PathBuf,
        /// The library.
        library: &'static str,
        /// What the library says.
        message: String,
    },
    /// The model loads, but a trial run on an image of zeros fails.
    Trial {
        /// The file.
        path: PathBuf,
        /// Why.
        source: RunError,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(error) => error.fmt(f),
            Self::Mismatch { path, source } => write!(f, "{}: {source}", path.display()),
            Self::InputType { path, given } => {
                write!(f, "{}: input of {given}: fp16, fp32 and int8 can be fed", path.display())
            }
            Self::Engine { path, library, message } => {
                write!(f, "{}: {library} refuses the model: {message}", path.display())
            }
            Self::Trial { path, source } => {
                write!(f, "{}: a trial run fails: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Header(source) => Some(source),
            Self::Mismatch { source, .. } => Some(&**source),
            Self::Trial { source, .. } => Some(source),
            Self::InputType { .. } | Self::Engine { .. } => None,
        }
    }
}

/// Reads the header of the model `path` and holds it against `expect`; nothing is loaded.
///
/// # Errors
///
/// [`OpenError`] when the file cannot be read, does not fit `expect`, or takes what cannot be fed.
pub fn plan(path: &Path, expect: &ModelExpect) -> Result<IoPlan, OpenError> {
    let header = read_header(path).map_err(OpenError::Header)?;
    let plan = check_io(&header, expect)
        .map_err(|source| OpenError::Mismatch { path: path.into(), source: Box::new(source) })?;
    match plan.input_type {
        ElemType::Fp16 | ElemType::Fp32 | ElemType::Int8 => Ok(plan),
        given => Err(OpenError::InputType { path: path.into(), given }),
    }
}
