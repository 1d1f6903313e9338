//! What can go wrong.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why something was not done. Nothing was changed then, unless it says otherwise.
#[derive(Debug)]
#[non_exhaustive]
pub enum BundleError {
    /// The system refused.
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It is no bundle, or not as it was made.
    Broken(PathBuf, String),
    /// The self-test ended with something else than 0.
    SelfTest(String),
    /// The state of things does not allow it.
    State(String),
}

impl BundleError {
    /// For `map_err`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, path: path.to_owned(), error }
    }

    pub(crate) fn broken(path: &Path, what: impl Into<String>) -> Self {
        Self::Broken(path.to_owned(), what.into())
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())
            }
            Self::Broken(path, what) => write!(f, "{}: {what}", path.display()),
            Self::SelfTest(what) => write!(f, "the self-test {what}; nothing was changed"),
            Self::State(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for BundleError {}
