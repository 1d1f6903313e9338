//! Where compiled kernels come from.
//!
//! 1. The fat binary that was embedded when the program was built.
//! 2. Where there is none, or the driver refuses it (an older driver, a GPU that nobody knew): what
//!    NVRTC compiled at an earlier start.
//! 3. NVRTC, now; the result is kept.
//!
//! Nothing of it works: the GPU is not used, and [`NoKernels`] says why, step by step, in one line.

use std::fmt;

use crate::cache::{Cache, Key};
use crate::error::CudaError;

/// What is asked of CUDA on the way; tests have their own.
pub trait Toolchain {
    /// A loaded module.
    type Module;

    /// Loads a compiled module.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses it.
    fn load(&mut self, image: &[u8]) -> Result<Self::Module, CudaError>;

    /// Version of NVRTC: major, minor; or why there is none.
    ///
    /// # Errors
    ///
    /// A few words.
    fn compiler(&mut self) -> Result<(i32, i32), String>;

    /// Compiles the sources for a compute capability.
    ///
    /// # Errors
    ///
    /// A few words, among them the compiler's first.
    fn compile(&mut self, architecture: u32) -> Result<Vec<u8>, String>;
}

/// Where a module came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Embedded in the program.
    Embedded,
    /// Compiled at an earlier start.
    Cached,
    /// Compiled just now; and why that could not be kept, if it could not.
    Compiled {
        /// A few words.
        not_kept: Option<String>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Cached => f.write_str("compiled at an earlier start"),
            Self::Compiled { not_kept: None } => f.write_str("compiled now by NVRTC"),
            Self::Compiled { not_kept: Some(why) } => {
                write!(f, "compiled now by NVRTC, and not kept: {why}")
            }
        }
    }
}

/// Why there are no kernels for this GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKernels {
    /// What became of each way.
    NoWay {
        /// Of the embedded ones.
        embedded: String,
        /// Of NVRTC.
        compiler: String,
    },
    /// The driver failed in a way that another module would not mend.
    Cuda(CudaError),
}

impl fmt::Display for NoKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWay { embedded, compiler } => {
                write!(f, "no kernels for this GPU: embedded: {embedded}; NVRTC: {compiler}")
            }
            Self::Cuda(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NoKernels {}

/// What is compiled, and for which GPU.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The embedded fat binary, or why there is none.
    pub embedded: Result<&'a [u8], &'a str>,
    /// Hash of all sources and options.
    pub sources: u64,
    /// Compute capability, as 90.
    pub architecture: u32,
    /// Where compiled kernels are kept.
    pub cache: Option<&'a Cache>,
}

/// Loads kernels, by the first of the ways that works.
///
/// # Errors
///
/// [`NoKernels`] when none does.
pub fn load<T: Toolchain>(
    wanted: &Wanted<'_>,
    tools: &mut T,
) -> Result<(T::Module, Origin), NoKernels> {
    let embedded = match wanted.embedded.map(|image| tools.load(image)) {
        Ok(Ok(module)) => return Ok((module, Origin::Embedded)),
        Ok(Err(error)) if error.refused_image() => error.to_string(),
        Ok(Err(error)) => return Err(NoKernels::Cuda(error)),
        Err(why) => why.to_owned(),
    };
    let no_way = |compiler: String| NoKernels::NoWay { embedded: embedded.clone(), compiler };
    let compiler = tools.compiler().map_err(no_way)?;
    let Wanted { sources, architecture, cache, .. } = *wanted;
    let key = Key { sources, architecture, compiler };
    if let Some(image) = cache.and_then(|cache| cache.get(&key)) {
        match tools.load(&image) {
            Ok(module) => return Ok((module, Origin::Cached)),
            // Kept by another driver, say: compiled again below.
            Err(error) if error.refused_image() => {}
            Err(error) => return Err(NoKernels::Cuda(error)),
        }
    }
    let image = tools.compile(architecture).map_err(no_way)?;
    let module = tools.load(&image).map_err(|error| no_way(error.to_string()))?;
    let kept = match cache {
        Some(cache) => cache
            .put(&key, &image)
            .map_err(|error| format!("{} cannot be written: {error}", cache.folder().display())),
        None => Err("neither XDG_CACHE_HOME nor HOME is set".to_owned()),
    };
    Ok((module, Origin::Compiled { not_kept: kept.err() }))
}

#[cfg(test)]
mod tests;
