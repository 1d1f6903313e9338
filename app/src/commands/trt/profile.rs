//! `trt profile`.

use std::path::Path;

use tensorwire_tensorrt::CudaGpu;
use tensorwire_tensorrt::measure::{LayerTime, profile as measure};

use super::engine::{device, open};
use super::{print, print_json};
use crate::cli::TrtProfileArgs;
use crate::exit::{ExitCode, Failure};
use crate::talk::plain;
use crate::trt::table::{self, Profiled};

pub(super) fn profile(args: &TrtProfileArgs) -> Result<ExitCode, Failure> {
    let profiles = args.engines.iter().map(|path| Ok(Profiled::new(path, one(args, path)?)));
    let profiles = profiles.collect::<Result<Vec<_>, Failure>>()?;
    if args.measure.json {
        print_json(&profiles)?;
    } else if args.measure.csv {
        print(&table::layers_csv(&profiles))?;
    } else {
        print(&plain(&table::layers(&profiles, args.batch)))?;
    }
    Ok(ExitCode::Complete)
}

fn one(args: &TrtProfileArgs, path: &Path) -> Result<Vec<LayerTime>, Failure> {
    let opened = open(path, args.measure.gpu)?;
    let gpu = CudaGpu::new(opened.gpu.clone(), None);
    let options = args.measure.options(false);
    measure(&opened.engine, gpu, args.batch, &options, args.sync)
        .map_err(|error| device(format!("{}: {error}", path.display())))
}
