//! `trt sweep`.

use std::io::Write;

use tensorwire_tensorrt::CudaGpu;
use tensorwire_tensorrt::measure::sweep as measure;

use super::engine::{device, open};
use super::{print, print_json, say};
use crate::cli::TrtSweepArgs;
use crate::exit::{ExitCode, Failure};
use crate::file::NewFile;
use crate::run::plan::failure;
use crate::trt::plot;
use crate::trt::table::{self, SweepRow};

pub(super) fn sweep(args: &TrtSweepArgs) -> Result<ExitCode, Failure> {
    let opened = open(&args.engine, args.measure.gpu)?;
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
