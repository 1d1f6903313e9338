//! What the commands over an engine share: the library, the GPU, the file.

use std::fs;
use std::path::Path;

use tensorwire_cuda::{Choice, Gpu};
use tensorwire_tensorrt::entry::{self, EntryError};
use tensorwire_tensorrt::measure::MeasureOptions;
use tensorwire_tensorrt::{BuildRequest, Runtime, RuntimeError, ShimEngine, ShimRuntime, Versions};

use crate::cli::MeasureArgs;
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;
use crate::run::tensorrt;
use crate::talk::Talk;

/// A failure of TensorRT or of the GPU.
pub(super) fn device(error: impl std::fmt::Display) -> Failure {
    failure(ExitCode::Device, error.to_string())
}

/// TensorRT, or why there is none.
pub(super) fn library() -> Result<ShimRuntime, Failure> {
    tensorrt::library(Talk::default()).map_err(device)
}

/// The GPU of that number, or why there is none.
pub(super) fn gpu(index: u32) -> Result<Gpu, Failure> {
    Gpu::open(&Choice::Index(index)).map_err(device)
}

/// The plan in a file: one of ours has a header before it.
pub(super) fn plan(path: &Path) -> Result<Vec<u8>, Failure> {
    let named = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", path.display()))
    };
    let bytes = fs::read(path).map_err(|error| named(&error))?;
    match entry::parse(&bytes) {
        Ok(entry) => Ok(entry.body),
        Err(EntryError::Foreign) => Ok(bytes),
        Err(error) => Err(named(&error)),
    }
}

/// An engine of a file, on a GPU that is entered as long as the engine is used.
pub(super) struct Opened {
    // Dropped in this order: TensorRT frees what it has on the GPU that is current.
    pub(super) engine: ShimEngine,
    pub(super) versions: Versions,
    _entered: tensorwire_cuda::device::Kept,
    pub(super) gpu: Gpu,
}

/// Loads the engine in `path`.
pub(super) fn open(path: &Path, index: u32) -> Result<Opened, Failure> {
    // The file first: a wrong name is told on any machine.
    let plan = plan(path)?;
    let mut runtime = library()?;
    let gpu = gpu(index)?;
    let _entered = gpu.enter_kept().map_err(device)?;
    let engine =
        runtime.load(&plan).map_err(|error| device(format!("{}: {error}", path.display())))?;
    Ok(Opened { engine, versions: runtime.versions(), _entered, gpu })
}

/// Builds an engine that is not kept, and loads it.
pub(super) fn built(
    model: &Path,
    index: u32,
    request: &BuildRequest<'_>,
) -> Result<Opened, Failure> {
    let mut runtime = library()?;
    let gpu = gpu(index)?;
    let _entered = gpu.enter_kept().map_err(device)?;
    let named = |error: RuntimeError| device(format!("{}: {error}", model.display()));
    let built = runtime.build(request, &mut |_| true).map_err(named)?;
    let engine = runtime.load(&built.plan).map_err(named)?;
    Ok(Opened { engine, versions: runtime.versions(), _entered, gpu })
}

impl MeasureArgs {
    /// As the measurement takes them.
    pub(super) const fn options(&self, graph: bool) -> MeasureOptions {
        MeasureOptions { warm_up: self.warm_up, runs: self.runs, graph }
    }
}
