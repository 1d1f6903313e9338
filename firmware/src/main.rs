//! `tensorwire` as firmware: one configuration, checked while the program was built and part of
//! it; three words on the command line; a record of a crash that survives the restart.
//!
//! The pipeline is that of the program `tensorwire`, as a library without its command line and
//! without a reader of YAML. `docs/firmware.md` says how it is built, started and updated.

#[cfg(any(
    all(feature = "igx", feature = "dgx"),
    all(feature = "igx", feature = "sim"),
    all(feature = "dgx", feature = "sim"),
    not(any(feature = "igx", feature = "dgx", feature = "sim")),
))]
compile_error!("one platform: --no-default-features --features igx (or dgx, or sim)");

mod platform;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;

use tensorwire::exit::{ExitCode, Failure};
use tensorwire::metrics::{END_POINT, end_point};
use tensorwire::run::args::RunArgs;
use tensorwire::run::noted::told;
use tensorwire::run::signals::StopRequest;
use tensorwire::run::{self, selftest};
use tensorwire::service::DRAIN;
use tensorwire::talk::Talk;
use tensorwire_host::crash;

/// Counts, so that a run can tell whether its loops allocate.
#[global_allocator]
static ALLOCATOR: tensorwire_host::alloc::Counting = tensorwire_host::alloc::Counting;

/// The version, with the word of whoever built it.
const BUILD: &str = match option_env!("TENSORWIRE_BUILD") {
    Some(build) => build,
    None => concat!(env!("CARGO_PKG_VERSION"), " (no TENSORWIRE_BUILD)"),
};

const USAGE: &str = "usage: tensorwire-firmware run | selftest | version";

/// Where Prometheus and `tensorwire status` are answered: `[ADDR:]PORT`, or [`NOWHERE`].
const METRICS: &str = "TENSORWIRE_METRICS";

/// Nobody is answered.
const NOWHERE: &str = "off";

/// The features that the self-test expects, in the folder that the program is started in.
const GOLDEN: &str = "golden.npy";

fn main() -> process::ExitCode {
    let mut words = env::args_os().skip(1);
    let (command, more) = (words.next().unwrap_or_default(), words.next());
    let result = match (command.to_str(), more) {
        (Some("run"), None) => start().and_then(|args| run(&args)),
        (Some("selftest"), None) => start().and_then(|args| test(&args)),
        (Some("version"), None) => version(),
        _ => Err(Failure { exit: ExitCode::Usage, reason: USAGE.to_owned() }),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(Failure { exit, reason }) => {
            Talk::new(true).error(format_args!("tensorwire-firmware: {reason}"));
            exit.into()
        }
    }
}

/// What both commands begin with: the record of a crash, and the flags of the run.
fn start() -> Result<RunArgs, Failure> {
    let metrics = metrics(env::var_os(METRICS))?;
    let talk = Talk::new(false);
    talk.say(format_args!("tensorwire-firmware {BUILD} for {}", platform::NAME));
    if let Some(path) = crash_file() {
        let before = crash::open(&path, BUILD).map_err(|error| Failure {
            exit: ExitCode::File,
            reason: format!("{}: no record of crashes: {error}", path.display()),
        })?;
        if let Some(record) = before {
            talk.error(format_args!("the last run crashed: {}", told(&record)));
        }
    }
    // An engine that does not fit is not built on the machine: the bundle was made for another.
    Ok(RunArgs { no_rebuild: true, drain: DRAIN, metrics, ..RunArgs::default() })
}

/// Where a run answers, by what `said` of the environment says. It answers by itself: a bundle that
/// nobody can ask is never confirmed.
fn metrics(said: Option<OsString>) -> Result<Option<SocketAddr>, Failure> {
    let Some(said) = said else { return Ok(Some(END_POINT)) };
    let said = said.to_string_lossy();
    if said == NOWHERE {
        return Ok(None);
    }
    let failed = |what| Failure {
        exit: ExitCode::Usage,
        reason: format!("{METRICS}={said}: {what}, or {NOWHERE}"),
    };
    end_point(&said).map(Some).map_err(failed)
}

/// Where crashes are written: the service manager's folder of state. Without it there is no
/// record.
fn crash_file() -> Option<PathBuf> {
    env::var_os("STATE_DIRECTORY").map(|folder| Path::new(&folder).join("crash"))
}

fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let config = platform::config();
    platform::check(&config)?;
    let golden = Path::new(GOLDEN);
    if !golden.exists() {
        Talk::new(false).say(format_args!("notice: no self-test: there is no {GOLDEN} here"));
    }
    run::run_config(config, args, golden.exists().then_some(golden))
}

fn test(args: &RunArgs) -> Result<ExitCode, Failure> {
    let config = platform::config();
    platform::check(&config)?;
    let stop = StopRequest::install()
        .map_err(|error| Failure { exit: ExitCode::Device, reason: format!("signals: {error}") })?;
    selftest::against(&config, args, Path::new(GOLDEN), &stop)?;
    Ok(ExitCode::Complete)
}

/// What this is, on stdout; the newest record of a crash besides.
fn version() -> Result<ExitCode, Failure> {
    let record = crash_file().and_then(|path| crash::newest(&path));
    let crash = record.map_or_else(|| "none".to_owned(), |record| told(&record));
    let text =
        format!("tensorwire-firmware {BUILD}\nplatform: {}\nlast crash: {crash}\n", platform::NAME);
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let reason = format!("stdout cannot be written: {error}");
            Err(Failure { exit: ExitCode::File, reason })
        }
        _ => Ok(ExitCode::Complete),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_where_status_asks_unless_told_otherwise() {
        let at = |said: Option<&str>| metrics(said.map(OsString::from)).map_err(|f| f.reason);
        assert_eq!(at(None), Ok(Some(END_POINT)));
        assert_eq!(END_POINT.to_string(), "127.0.0.1:9474");
        assert_eq!(at(Some("0")), Ok(Some(([127, 0, 0, 1], 0).into())));
        assert_eq!(at(Some("0.0.0.0:80")), Ok(Some(([0, 0, 0, 0], 80).into())));
        assert_eq!(at(Some("off")), Ok(None));
        for wrong in ["", "on", "65536"] {
            let reason = at(Some(wrong)).expect_err("refused");
            let begin = format!("TENSORWIRE_METRICS={wrong}: expected a port");
            assert!(reason.starts_with(&begin) && reason.ends_with(", or off"), "{reason}");
        }
    }
}
