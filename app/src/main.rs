//! The `tensorwire` program: parses the command line, runs a command, ends with its exit code.

use std::panic::catch_unwind;
use std::process;

use clap::Parser;
use clap::error::ErrorKind;
use tensorwire::cli::{BenchCommand, Cli, Command};
use tensorwire::commands::{
    self, bench, demo, doctor, export, gpu, prepare, selftest, sim, status, trt, validate,
};
use tensorwire::exit::{ExitCode, Failure};
use tensorwire::run;

/// Counts, so that a run can tell whether its loops allocate.
#[global_allocator]
static ALLOCATOR: tensorwire_host::alloc::Counting = tensorwire_host::alloc::Counting;

fn main() -> process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe leaves nobody to tell.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::Complete.into(),
                _ => ExitCode::Usage.into(),
            };
        }
    };
    // The panic has told its place on stderr; the shell is told that it is a fault of ours.
    match catch_unwind(|| dispatch(&cli.command)) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(Failure { exit, reason })) => {
            commands::say(&reason);
            exit.into()
        }
        Err(_) => ExitCode::Internal.into(),
    }
}

fn dispatch(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(args) => demo::demo(args),
        Command::Prepare(args) => prepare::prepare(args),
        Command::ExportModel(args) => export::export(args),
        Command::Validate(args) => validate::validate(args),
        Command::Geometry(args) => validate::geometry(args),
        Command::Explain(args) => validate::explain(&args.code),
        Command::Schema => validate::schema(),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::status(args),
        Command::Selftest(args) => selftest::selftest(args),
        Command::Bench(BenchCommand::Reorder(args)) => bench::bench_reorder(args),
        Command::Sim(args) => sim::sim(args),
        Command::Trt(command) => trt::trt(command),
        Command::Gpu(args) => gpu::gpu(args),
    }
}
