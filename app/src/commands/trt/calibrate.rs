//! `trt calibrate`.

use std::fs;
use std::io::Write;

use tensorwire_onnx::{Dim, ModelGraph, Probe};

use super::engine::device;
use super::say;
use crate::cli::TrtCalibrateArgs;
use crate::exit::{ExitCode, Failure};
use crate::file::NewFile;
use crate::model::{Method, calibrate, samples};
use crate::run::plan::failure;
use crate::run::signals::StopRequest;

pub(super) fn calibrate(args: &TrtCalibrateArgs) -> Result<ExitCode, Failure> {
    let method: Method = args
        .method
        .parse()
        .map_err(|error| failure(ExitCode::Usage, format!("--method: {error}")))?;
    let file = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", args.model.display()))
    };
    let bytes = fs::read(&args.model).map_err(|error| file(&error))?;
    let graph = ModelGraph::read(&bytes).map_err(|error| file(&error))?;
    let (input, size) = input(&graph).map_err(|why| file(&why))?;
    let names = values(&graph);
    let images = samples::images(&args.captures, size, args.images as usize)
        .map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let images: Vec<Vec<f32>> =
        images.iter().map(|image| image.iter().copied().map(f32::from).collect()).collect();
    let stop = StopRequest::install().map_err(|error| device(format!("signals: {error}")))?;
    let probe = Probe::read(bytes, &input, [3, size[0], size[1]], &names).map_err(device)?;
    let histograms = calibrate::count(&probe, &images, |_| !stop.requested()).map_err(device)?;
    stop.check()?;
    let scales = calibrate::scales(&histograms, method);
    let table = scales.table(args.trt_version, method);
    let output = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", args.output.display()))
    };
    let mut out = NewFile::create(&args.output).map_err(|error| output(&error))?;
    out.write_all(table.as_bytes()).map_err(|error| output(&error))?;
    out.publish().map_err(|error| output(&error))?;
    say(&format_args!(
        "{}: {} values on {} images, for TensorRT {} alone",
        args.output.display(),
        scales.0.len(),
        images.len(),
        args.trt_version
    ));
    Ok(ExitCode::Complete)
}

/// Name, rows and columns of the one input.
pub(super) fn input(graph: &ModelGraph<'_>) -> Result<(String, [usize; 2]), String> {
    let [input] = graph.io.inputs.as_slice() else {
        return Err(format!("{} inputs; one can be calibrated", graph.io.inputs.len()));
    };
    let Some([_, Dim::Fixed(3), Dim::Fixed(h), Dim::Fixed(w)]) = input.dims.as_deref() else {
        return Err(format!("the input {input} is not [batch, 3, rows, columns]"));
    };
    let side = |n: &u64| usize::try_from(*n).unwrap_or(usize::MAX);
    Ok((input.name.clone(), [side(h), side(w)]))
}

/// The values that operators make, constants apart, and the input itself.
fn values(graph: &ModelGraph<'_>) -> Vec<String> {
    let made = graph.nodes.iter().filter(|node| node.op_type != "Constant");
    let made = made.flat_map(|node| &node.outputs).filter(|name| !name.is_empty());
    graph.io.inputs.iter().map(|input| &input.name).chain(made).cloned().collect()
}
