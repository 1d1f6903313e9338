//! `demo`: the whole pipeline on this machine, without any input file.

use std::path::Path;
use std::time::Instant;

use clap::Parser;
use tensorwire_core::geometry::{Geometry, GeometrySpec};

use super::{export, prepare, say, say_all};
use crate::cli::{Cli, Command, DemoArgs, RunArgs};
use crate::dataset::{DEFAULT_HEADER, PrepareOptions, Source, SyntheticSize};
use crate::exit::{ExitCode, Failure};
use crate::file::NewFile;
use crate::model::{Arch, ExportOptions, Head, WeightsSource};
use crate::run::plan::{Plan, failure};
use crate::run::signals::StopRequest;
use crate::run::{execute, present};
use crate::talk::Talk;

/// What the images and the weights are made from.
const SEED: u64 = 1;

/// The configuration of the demo: the shipped software loopback.
const CONFIG: &str = "resnet50_sw_loopback.yaml";

/// Makes a data set and a model, sends the one through the other, and says where everything lies.
///
/// # Errors
///
/// A [`Failure`] when something cannot be made or run.
pub fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let talk = Talk::new(false);
    let stop = StopRequest::install()
        .map_err(|error| failure(ExitCode::Device, format!("signals: {error}")))?;
    let out = &args.out;
    let capture = out.join("demo.pcap");
    let model = out.join("resnet50_features.onnx");
    let features = out.join("features.npy");
    let config = out.join("demo.yaml");

    let began = Instant::now();
    let geometry = Geometry::new(&GeometrySpec::DOCUMENTED)
        .map_err(|violations| failure(ExitCode::Internal, violations.to_string()))?;
    let made = prepare::make(
        &PrepareOptions {
            source: Source::Synthetic { seed: SEED, size: SyntheticSize::default() },
            num_images: Some(args.images),
            geometry,
            header: DEFAULT_HEADER,
            interval_us: 1,
            out: capture.clone(),
        },
        talk,
    )?;
    say_all(&format!("{made} ({:.1} s)", began.elapsed().as_secs_f64()));
    stop.check()?;
    let began = Instant::now();
    let weights = WeightsSource::Seed(SEED);
    let options = ExportOptions {
        head: Head::Both,
        ..ExportOptions::new(Arch::Resnet50, weights, model.clone())
    };
    let report = export::make(&options)?;
    say_all(&format!("{report} ({:.1} s)", began.elapsed().as_secs_f64()));
    let labels = made.labels.unwrap_or_else(|| capture.with_extension("labels"));
    write_config(
        &config,
        &[("pcap_path", &capture), ("labels_path", &labels), ("onnx_path", &model)],
    )?;
    say(&format!("{}: {CONFIG} with these paths", config.display()));

    let args = run_args(&config, &features, args.json)?;
    let plan = Plan::new(&args, talk)?;
    let summary = execute(&plan, &args, &stop)?;
    present(&summary, args.json, plan.talk)?;
    say(&format!(
        "capture {}, labels beside it, model {}, features {}, configuration {}",
        capture.display(),
        model.display(),
        features.display(),
        config.display()
    ));
    say(&format!("again: tensorwire run {} --replay-once", config.display()));
    Ok(summary.exit)
}

/// The shipped configuration with other paths in it.
fn write_config(path: &Path, paths: &[(&str, &Path)]) -> Result<(), Failure> {
    let shipped = tensorwire_configs::SHIPPED.iter().find(|(name, _)| *name == CONFIG);
    let (_, text) =
        shipped.ok_or_else(|| failure(ExitCode::Internal, "no shipped configuration"))?;
    let mut own = String::new();
    for line in text.lines() {
        let (key, _) = line.trim_start().split_once(':').unwrap_or_default();
        match paths.iter().find(|(name, _)| *name == key) {
            Some((_, path)) => {
                let indent = line.len() - line.trim_start().len();
                own.push_str(&format!("{:indent$}{key}: {:?}\n", "", path.display().to_string()));
            }
            None => {
                own.push_str(line);
                own.push('\n');
            }
        }
    }
    let file = NewFile::create(path).and_then(|mut file| {
        file.append(own.as_bytes())?;
        file.publish()
    });
    file.map_err(|error| failure(ExitCode::File, error.to_string()))
}

/// The arguments of the run, as a person would type them.
fn run_args(config: &Path, features: &Path, json: bool) -> Result<RunArgs, Failure> {
    let mut line: Vec<std::ffi::OsString> = vec!["tensorwire".into(), "run".into(), config.into()];
    line.extend(["--replay-once".into(), "--features".into(), features.into()]);
    if json {
        line.push("--json".into());
    }
    match Cli::try_parse_from(line) {
        Ok(Cli { command: Command::Run(args) }) => Ok(*args),
        _ => Err(failure(ExitCode::Internal, "the demo's own command line is wrong")),
    }
}
