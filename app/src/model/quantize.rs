//! The steps of an int8 model, from images of a capture.

use super::ModelError;
use super::arch::Network;
use super::calibrate::{Scales, count, scales as scales_of};
use super::graph::{self, INPUT};
use super::options::{ExportOptions, InputType, Precision};
use super::samples;
use super::weights::Weights;
use tensorwire_onnx::{Probe, RunError};

/// The steps for the model that `options` ask for, and on how many images they rest; `None` for a
/// model that is not quantized.
pub(super) fn scales(
    options: &ExportOptions,
    network: &Network,
    weights: &Weights,
) -> Result<Option<(Scales, usize)>, ModelError> {
    let capture = match (&options.calibrate, options.precision) {
        (None, Precision::Qdq) => {
            let what = "--precision qdq needs images to calibrate on: give --calibrate CAPTURE";
            return Err(ModelError::Calibrate(what));
        }
        (Some(capture), Precision::Qdq) => capture,
        (Some(_), _) => {
            let what = "--calibrate is for --precision qdq; other models need no calibration";
            return Err(ModelError::Calibrate(what));
        }
        (None, _) => return Ok(None),
    };
    let size = [options.height, options.width];
    let images =
        samples::images(capture, size, options.calibration_images).map_err(ModelError::Samples)?;
    let images: Vec<Vec<f32>> =
        images.iter().map(|image| image.iter().copied().map(f32::from).collect()).collect();
    // The same network in fp32, with nothing quantized.
    let plain = ExportOptions { input_type: InputType::Fp32, ..options.clone() };
    let (model, points) = graph::build_folded(&plain, network, weights, None);
    let write = |source| ModelError::Write { path: options.output.clone(), source };
    let bytes = model.to_bytes().map_err(write)?;
    let probe = Probe::read(bytes, INPUT, [3, size[0], size[1]], &points);
    let run = |error: RunError| ModelError::Run(error);
    let histograms = count(&probe.map_err(run)?, &images, |_| true).map_err(run)?;
    Ok(Some((scales_of(&histograms, options.method), images.len())))
}
