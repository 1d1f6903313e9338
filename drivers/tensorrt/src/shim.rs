//! TensorRT of this machine as a [`Runtime`](crate::runtime::Runtime).
//!
//! In a program that was built without TensorRT's headers the type is there all the same, so that
//! nothing else differs; [`ShimRuntime::open`] then always fails, and says why.

#[cfg(not(has_tensorrt))]
mod absent;
#[cfg(has_tensorrt)]
mod callbacks;
#[cfg(has_tensorrt)]
mod real;

#[cfg(not(has_tensorrt))]
pub use absent::{ShimContext, ShimEngine, ShimRuntime};
#[cfg(has_tensorrt)]
pub use real::{ShimContext, ShimEngine, ShimRuntime};

use std::ffi::CString;

/// Takes a message of the library, with its severity: 0 internal error, 1 error, 2 warning, 3 info,
/// 4 verbose. A logged error is no failure: a build that drops an old timing cache logs one.
pub type LogSink = Box<dyn Fn(i32, &str) + Send + Sync>;

/// Which library to load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// Name or path of the library; the versioned name that goes with the headers where not given.
    pub tensorrt: Option<CString>,
    /// Name or path of the ONNX parser; likewise.
    pub parser: Option<CString>,
}

impl Libraries {
    /// What `TENSORWIRE_TENSORRT` and `TENSORWIRE_TENSORRT_PARSER` name, through `variable` (the
    /// environment, or a stand-in).
    #[must_use]
    pub fn of_user(variable: impl Fn(&str) -> Option<String>) -> Self {
        let named = |name| variable(name).and_then(|value| CString::new(value).ok());
        Self { tensorrt: named("TENSORWIRE_TENSORRT"), parser: named("TENSORWIRE_TENSORRT_PARSER") }
    }
}

#[cfg(test)]
mod tests;
