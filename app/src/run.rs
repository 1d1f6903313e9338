//! `run`: the pipeline on threads, from a configuration to a summary.
//!
//! [`plan`] decides what happens and refuses what cannot; `stages` builds the stages, puts each
//! machine on its thread and waits; `report` adds everything up. The machines themselves are in
//! `tensorwire_core::pipeline`, what a plan asks of them in `machines`.

pub mod args;
pub mod backend;
pub mod clock;
pub mod data;
pub mod frames;
pub mod gpu;
mod left;
pub mod link;
#[cfg(feature = "cli")]
pub mod load;
mod machines;
pub mod nic;
pub mod noted;
pub mod output;
pub mod pin;
pub mod plan;
pub mod progress;
pub(crate) mod report;
pub mod seats;
pub mod selftest;
mod shown;
pub mod signals;
mod stages;
pub mod steady;
pub mod tensorrt;
#[cfg(all(test, feature = "cli"))]
pub(crate) mod testkit;
pub mod threads;
pub mod timed;
pub mod vitals;
mod wall;

use std::io::{self, Write};
use std::path::Path;

use tensorwire_configs::Config;

use crate::exit::{ExitCode, Failure};
use crate::run::args::RunArgs;
use crate::service::Service;
use crate::sink::Summary;
use crate::talk::Talk;
use clock::Clock;
use plan::{Plan, failure};
use signals::StopRequest;

/// Runs `run` and says how it ended.
///
/// # Errors
///
/// A [`Failure`] when there is no summary to show.
#[cfg(feature = "cli")]
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let stop = StopRequest::install()
        .map_err(|error| failure(ExitCode::Device, format!("signals: {error}")))?;
    let plan = Plan::new(args, Talk::new(args.quiet))?;
    if args.dry_run {
        plan.talk.result(format_args!("dry run: {}", plan.describe()));
        return Ok(ExitCode::Complete);
    }
    let summary = execute(&plan, args, &stop)?;
    present(&summary, args.json, plan.talk)?;
    Ok(summary.exit)
}

/// Runs `config`, which was checked when the program was built, and says how it ended. With a file
/// of `golden` features the self-test comes first.
///
/// # Errors
///
/// A [`Failure`] when there is no summary to show, or when the self-test fails.
pub fn run_config(
    config: Config,
    args: &RunArgs,
    golden: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let stop = StopRequest::install()
        .map_err(|error| failure(ExitCode::Device, format!("signals: {error}")))?;
    if let Some(golden) = golden {
        selftest::against(&config, args, golden, &stop)?;
    }
    let plan = Plan::of(config, args, Talk::new(args.quiet))?;
    let summary = execute(&plan, args, &stop)?;
    present(&summary, args.json, plan.talk)?;
    Ok(summary.exit)
}

/// Runs what `plan` says.
///
/// # Errors
///
/// A [`Failure`] when the stages cannot be built: nothing was sent or received then.
pub fn execute(plan: &Plan, args: &RunArgs, stop: &StopRequest) -> Result<Summary, Failure> {
    stop.check()?;
    let service = Service::open(args.metrics, plan, args.drain)?;
    let summary = stages::execute(plan, args, Clock::start(), (stop, &service));
    match &summary {
        Ok(summary) => service.ended(&summary.verdict()),
        Err(failure) => service.ended(&failure.reason),
    }
    summary
}

/// Shows a summary: for people on stderr (quiet: the verdict alone, and only where the run is not
/// complete), with `json` as one object on stdout.
///
/// # Errors
///
/// A [`Failure`] (exit 7) when stdout cannot be written; a closed pipe is none.
pub fn present(summary: &Summary, json: bool, talk: Talk) -> Result<(), Failure> {
    if !talk.quiet() {
        // A stderr that cannot be written to leaves nobody to tell.
        let _ = summary.write_text(&mut io::stderr());
    } else if summary.exit != ExitCode::Complete {
        talk.error(format_args!("{}", summary.verdict()));
    }
    if !json {
        return Ok(());
    }
    let text = summary
        .to_json()
        .map_err(|error| failure(ExitCode::Internal, format!("summary: {error}")))?;
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failure(ExitCode::File, format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}
