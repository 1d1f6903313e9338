//! `trt sweep`.

use std::fs;
use std::io::Write;

use tensorwire_onnx::{Profile, read_header};
use tensorwire_tensorrt::measure::sweep as measure;
use tensorwire_tensorrt::{BuildRequest, CudaGpu, Precision, Ranges};

use super::build::input;
use super::engine::{Opened, built, device, open};
use super::{print, print_json, say};
use crate::cli::TrtSweepArgs;
use crate::exit::{ExitCode, Failure};
use crate::file::NewFile;
use crate::run::plan::failure;
use crate::trt::plot;
use crate::trt::table::{self, SweepRow};

pub(super) fn sweep(args: &TrtSweepArgs) -> Result<ExitCode, Failure> {
    let opened =
        if args.dummy_ranges { dummy(args)? } else { open(&args.engine, args.measure.gpu)? };
    let gpu = CudaGpu::new(opened.gpu.clone(), None);
    let options = args.measure.options(args.graph);
    let points = measure(&opened.engine, gpu, &args.batch, &options, &mut |point| {
        say(&format_args!("batch {}: {:.3} ms", point.images, point.percentile(50)));
    })
    .map_err(|error| device(format!("{}: {error}", args.engine.display())))?;
    let rows: Vec<SweepRow> = points.iter().map(SweepRow::of).collect();
    if let Some(path) = &args.svg {
        let title = format!("{} on {}", args.engine.display(), opened.gpu.name());
        let file = |error: &dyn std::fmt::Display| {
            failure(ExitCode::File, format!("{}: {error}", path.display()))
        };
        let mut out = NewFile::create(path).map_err(|error| file(&error))?;
        out.write_all(plot::sweep(&title, &rows).as_bytes()).map_err(|error| file(&error))?;
        out.publish().map_err(|error| file(&error))?;
    }
    if args.measure.json {
        print_json(&rows)?;
    } else if args.measure.csv {
        print(&table::sweep_csv(&rows))?;
    } else {
        print(&table::sweep(&rows))?;
    }
    Ok(ExitCode::Complete)
}

/// An int8 engine of a model that has no ranges. It is not kept: what it computes is of no use.
fn dummy(args: &TrtSweepArgs) -> Result<Opened, Failure> {
    let file = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", args.engine.display()))
    };
    let header =
        read_header(&args.engine).map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let (input, image, fixed) = input(&header).map_err(|why| file(&why))?;
    let model = fs::read(&args.engine).map_err(|error| file(&error))?;
    let least = args.batch.iter().copied().min().unwrap_or(1);
    let most = args.batch.iter().copied().max().unwrap_or(1);
    let request = BuildRequest {
        model: &model,
        input: &input,
        image,
        profile: (!fixed).then_some(Profile { min: least, opt: most, max: most }),
        precision: Precision::Int8,
        ranges: Ranges::Dummy,
        workspace_bytes: None,
        detailed: false,
        targets: &[],
        timing_cache: None,
    };
    built(&args.engine, args.measure.gpu, &request)
}
