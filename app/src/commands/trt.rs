//! `trt`: commands about models and engines of TensorRT.

mod build;
mod calibrate;
mod dump;
mod engine;
mod inspect;
mod lint;
mod profile;
mod sweep;
mod version;

use serde::Serialize;

use super::{print, say};
use crate::cli::TrtCommand;
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;

/// Runs a command of `trt`.
///
/// # Errors
///
/// A [`Failure`]: 7 for a file that cannot be read or written, 5 for what TensorRT or a GPU is
/// needed for and is not there, or fails.
pub fn trt(command: &TrtCommand) -> Result<ExitCode, Failure> {
    match command {
        TrtCommand::Version(args) => version::version(args),
        TrtCommand::Lint(args) => lint::lint(args),
        TrtCommand::Build(args) => build::build(args),
        TrtCommand::Inspect(args) => inspect::inspect(args),
        TrtCommand::Profile(args) => profile::profile(args),
        TrtCommand::Sweep(args) => sweep::sweep(args),
        TrtCommand::Dump(args) => dump::dump(args),
        TrtCommand::Calibrate(args) => calibrate::calibrate(args),
    }
}

/// Prints one JSON object.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| failure(ExitCode::Internal, format!("JSON: {error}")))?;
    print(&(text + "\n"))
}
