//! `selftest`: a known batch against its features, and the file of these.

use tensorwire_configs::Options;

use crate::cli::SelftestArgs;
use crate::exit::{ExitCode, Failure};
use crate::run::args::RunArgs;
use crate::run::load::load_config;
use crate::run::plan::failure;
use crate::run::selftest as test;
use crate::run::signals::StopRequest;
use crate::talk::Talk;

/// Runs `selftest`.
///
/// # Errors
///
/// A [`Failure`] when the configuration cannot run, or the test fails.
pub fn selftest(args: &SelftestArgs) -> Result<ExitCode, Failure> {
    let stop = StopRequest::install()
        .map_err(|error| failure(ExitCode::Device, format!("signals: {error}")))?;
    let talk = Talk::new(false);
    let (_, config) = load_config(&args.config, &Options::default(), None, talk)?;
    let run = RunArgs { no_rebuild: args.no_rebuild, ..RunArgs::default() };
    if args.make {
        test::make(&config, &run, &args.golden, &stop)?;
        talk.say(format_args!("self-test: {} is written", args.golden.display()));
    } else {
        test::against(&config, &run, &args.golden, &stop)?;
    }
    Ok(ExitCode::Complete)
}
