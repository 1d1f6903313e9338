//! `export-model`: weights in, an ONNX file out.

use std::fmt::Display;
use std::str::FromStr;

use super::say_all;
use crate::cli::ExportArgs;
use crate::exit::{ExitCode, Failure};
use crate::model::{self, ExportOptions, ExportReport, ModelErrorClass, Precision};
use crate::run::plan::failure;

/// Writes the model that the arguments ask for.
///
/// # Errors
///
/// A [`Failure`]: 2 for what cannot be asked for, 5 when the check fails, 7 for a file that cannot
/// be read or written, or whose weights are not those of the network. Nothing is left behind then.
pub fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let arch = word("--arch", &args.arch)?;
    let weights = word("--weights", &args.weights)?;
    let options = ExportOptions {
        input_type: word("--input-dtype", &args.input_dtype)?,
        precision: word("--precision", &args.precision)?,
        front: front(&args.front)?,
        head: word("--head", &args.head)?,
        check: args.check,
        calibrate: args.calibrate.clone(),
        method: word("--calibration-method", &args.calibration_method)?,
        calibration_images: args.calibration_images as usize,
        ..ExportOptions::new(arch, weights, args.output.clone())
    };
    let report = make(&options)?;
    say_all(&report.to_string());
    Ok(ExitCode::Complete)
}

/// Writes a model.
///
/// # Errors
///
/// As [`export`].
pub fn make(options: &ExportOptions) -> Result<ExportReport, Failure> {
    model::export(options).map_err(|error| {
        let exit = match error.class() {
            ModelErrorClass::Usage => ExitCode::Usage,
            ModelErrorClass::Engine => ExitCode::Device,
            ModelErrorClass::File => ExitCode::File,
        };
        failure(exit, error.to_string())
    })
}

/// The front end is never quantized.
fn front(text: &str) -> Result<Precision, Failure> {
    match word("--front", text)? {
        Precision::Qdq => Err(failure(ExitCode::Usage, "--front: 'qdq' is not fp32 or fp16")),
        precision => Ok(precision),
    }
}

fn word<T: FromStr<Err: Display>>(flag: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| failure(ExitCode::Usage, format!("{flag}: {error}")))
}
