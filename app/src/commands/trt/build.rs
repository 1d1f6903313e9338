//! `trt build`.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use tensorwire_onnx::{Dim, ModelIo, Profile, read_header};
use tensorwire_tensorrt::{BuildRequest, BuildStep, Precision, Ranges, Runtime};

use super::engine::{device, gpu, library};
use super::{print_json, say};
use crate::cli::TrtBuildArgs;
use crate::exit::{ExitCode, Failure};
use crate::file::NewFile;
use crate::run::plan::failure;
use crate::run::signals::StopRequest;
use crate::run::tensorrt::still_building;

/// How often a build that goes on is told.
const STILL: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Report {
    model: String,
    engine: String,
    bytes: usize,
    precision: String,
    /// Least, best and largest batch; absent where the model fixes its own.
    profile: Option<[u32; 3]>,
    targets: Vec<u32>,
    library: String,
    seconds: f64,
}

pub(super) fn build(args: &TrtBuildArgs) -> Result<ExitCode, Failure> {
    let precision = precision(&args.precision)?;
    let profile = profile(&args.batch)?;
    let table = table(args, precision)?;
    let file = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", args.model.display()))
    };
    let header =
        read_header(&args.model).map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let (input, image, fixed) = input(&header).map_err(|why| file(&why))?;
    let model = fs::read(&args.model).map_err(|error| file(&error))?;
    let mut runtime = library()?;
    // A build for another GPU needs none.
    let gpu = args.target.is_empty().then(|| gpu(args.gpu)).transpose()?;
    let _entered = gpu.as_ref().map(|gpu| gpu.enter_kept()).transpose().map_err(device)?;
    let stop = StopRequest::install().map_err(|error| device(format!("signals: {error}")))?;
    let began = Instant::now();
    let mut told = began;
    let mut progress = |step: BuildStep<'_>| {
        if told.elapsed() >= STILL {
            told = Instant::now();
            say(&still_building(&step, began.elapsed()));
        }
        !stop.requested()
    };
    let request = BuildRequest {
        model: &model,
        input: &input,
        image,
        profile: (!fixed).then_some(profile),
        precision,
        ranges: table.as_deref().map_or(Ranges::Model, Ranges::Table),
        workspace_bytes: args.workspace.map(|mib| u64::from(mib) << 20),
        detailed: args.detailed,
        targets: &args.target,
        timing_cache: None,
    };
    let built = runtime.build(&request, &mut progress).map_err(|error| {
        stop.check().err().unwrap_or_else(|| device(format!("{}: {error}", args.model.display())))
    })?;
    let output = args.output.clone().unwrap_or_else(|| args.model.with_extension("engine"));
    let mut engine =
        NewFile::create(&output).map_err(|error| failure(ExitCode::File, error.to_string()))?;
    engine
        .write_all(&built.plan)
        .map_err(|error| failure(ExitCode::File, format!("{}: {error}", output.display())))?;
    engine.publish().map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let versions = runtime.versions();
    let report = Report {
        model: args.model.display().to_string(),
        engine: output.display().to_string(),
        bytes: built.plan.len(),
        precision: precision.to_string(),
        profile: (!fixed).then_some([profile.min, profile.opt, profile.max]),
        targets: args.target.clone(),
        library: format!("{} {}", versions.flavor, versions.library),
        seconds: began.elapsed().as_secs_f64(),
    };
    if args.json {
        print_json(&report)?;
    } else {
        say(&format_args!(
            "{}: {} bytes, {} by {} in {:.1} s",
            report.engine, report.bytes, report.precision, report.library, report.seconds
        ));
    }
    Ok(ExitCode::Complete)
}

/// The calibration table, if one is to be used.
fn table(args: &TrtBuildArgs, precision: Precision) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = &args.calibration else { return Ok(None) };
    if precision != Precision::Int8 {
        let text = format!("--calibration: a table is for int8, not for {precision}");
        return Err(failure(ExitCode::Usage, text));
    }
    let read = fs::read(path);
    read.map(Some).map_err(|error| failure(ExitCode::File, format!("{}: {error}", path.display())))
}

pub(super) fn precision(text: &str) -> Result<Precision, Failure> {
    match text {
        "fp32" => Ok(Precision::Fp32),
        "fp16" => Ok(Precision::Fp16),
        "int8" => Ok(Precision::Int8),
        _ => Err(failure(
            ExitCode::Usage,
            format!("--precision: '{text}' is not fp32, fp16 or int8"),
        )),
    }
}

fn profile(batch: &[u32]) -> Result<Profile, Failure> {
    match *batch {
        [min, opt, max] if min >= 1 && min <= opt && opt <= max => Ok(Profile { min, opt, max }),
        _ => Err(failure(
            ExitCode::Usage,
            "--batch: expected MIN,OPT,MAX with 1 ≤ MIN ≤ OPT ≤ MAX, as in 1,32,256",
        )),
    }
}

/// Name and image of the one input, and whether its batch is fixed.
pub(super) fn input(header: &ModelIo) -> Result<(String, [usize; 3], bool), String> {
    let [input] = header.inputs.as_slice() else {
        return Err(format!("{} inputs; one can be built for", header.inputs.len()));
    };
    let Some([batch, Dim::Fixed(c), Dim::Fixed(h), Dim::Fixed(w)]) = input.dims.as_deref() else {
        return Err(format!("the input {input} is not [batch, channels, rows, columns]"));
    };
    let size = |n: &u64| usize::try_from(*n).unwrap_or(usize::MAX);
    Ok((input.name.clone(), [size(c), size(h), size(w)], matches!(batch, Dim::Fixed(_))))
}
