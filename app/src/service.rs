//! A run under a service manager: it says when it is ready, that it makes progress, what it does,
//! and that it ends; and it ends in time.
//!
//! Without a manager (no `NOTIFY_SOCKET`) nothing is said, and the rest is the same.

mod notify;
mod watchdog;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tensorwire_configs::Backend;
use tensorwire_core::pipeline::Signals;
use tensorwire_core::time::Nanos;

pub use notify::{Notify, NotifyError};
pub use watchdog::{Verdict, Watchdog};

use crate::exit::{ExitCode, Failure};
use crate::metrics::{Board, LinkBoard, Server};
use crate::run::link::Links;
use crate::run::plan::Plan;
use crate::run::vitals::Vitals;
use crate::talk::Talk;

/// After a signal: how long what was received is worked off if nobody says otherwise (`--drain`).
pub const DRAIN: Duration = Duration::from_secs(10);

/// Beyond the time for draining: how long a call that is under way (an inference, a write) may
/// still take before the process ends without it.
pub const GRACE: Duration = Duration::from_secs(10);

/// The longest time for which the manager waits for an engine that is being built.
pub const LOADING: Duration = Duration::from_secs(1800);

/// How often the status line is said again.
const STATUS_EVERY: Nanos = Nanos::from_secs(1);

/// What a run has to do with the outside besides its packets.
#[derive(Debug)]
pub struct Service {
    notify: Notify,
    board: Option<Board>,
    server: Option<Server>,
    drain: Duration,
}

impl Service {
    /// Opens the end point at `metrics`, if there is to be one, and the manager's socket. `drain`
    /// is the time for draining.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) when either cannot be had.
    pub fn open(
        metrics: Option<SocketAddr>,
        plan: &Plan,
        drain: Duration,
    ) -> Result<Self, Failure> {
        let failed = |what: &str, error: &dyn fmt::Display| Failure {
            exit: ExitCode::Device,
            reason: format!("{what}: {error}"),
        };
        let notify = Notify::from_env().map_err(|error| failed("NOTIFY_SOCKET", &error))?;
        let infers = match plan.config.settings.inference_backend {
            _ if plan.model.is_none() => "none",
            Backend::TensorRt => "tensorrt",
            Backend::Onnx => "onnx",
            _ => "auto",
        };
        let board = metrics.map(|_| Board::new(&plan.mode.to_string(), infers));
        let server = metrics.zip(board.as_ref());
        let server = server.map(|(address, board)| Server::start(address, board.numbers()));
        let server = server.transpose().map_err(|error| failed("metrics", &error))?;
        Ok(Self { notify, board, server, drain })
    }

    /// Of a run that nobody is told of: a self-test is not ready, and does not end the service.
    #[must_use]
    pub const fn unseen() -> Self {
        Self { notify: Notify::nobody(), board: None, server: None, drain: GRACE }
    }

    /// The numbers, if somebody may ask for them.
    #[must_use]
    pub const fn board(&self) -> Option<&Board> {
        self.board.as_ref()
    }

    /// Something that takes long is about to be done before readiness.
    pub fn loading(&self, what: &str) {
        let micros = LOADING.as_micros();
        self.notify.say(&format!("EXTEND_TIMEOUT_USEC={micros}\nSTATUS={what}\n"));
    }

    /// The run takes frames.
    pub fn ready(&self, talk: Talk) {
        if let Some(board) = &self.board {
            board.ready();
        }
        if let Some(server) = &self.server {
            talk.say(format_args!("metrics: http://{}/metrics", server.address()));
        }
        self.notify.say("READY=1\nSTATUS=ready\n");
    }

    /// The run is over; what is left is the summary.
    pub fn ended(&self, how: &dyn fmt::Display) {
        self.notify.say(&format!("STOPPING=1\nSTATUS={how}\n"));
    }

    /// The one who watches the run from its start on.
    #[must_use]
    pub fn keeper<'a>(&'a self, vitals: &'a Vitals, split: bool, receives: bool) -> Keeper<'a> {
        Keeper {
            service: self,
            vitals,
            watchdog: Watchdog::new(split, receives),
            links: None,
            linked: None,
            fed: None,
            said: None,
            stopped: None,
        }
    }
}

/// Looks at a run now and then.
#[derive(Debug)]
pub struct Keeper<'a> {
    service: &'a Service,
    vitals: &'a Vitals,
    watchdog: Watchdog,
    links: Option<LinkBoard>,
    linked: Option<Nanos>,
    fed: Option<Nanos>,
    said: Option<Nanos>,
    stopped: Option<Nanos>,
}

/// Whether `every` has passed since `last`.
fn due(last: Option<Nanos>, now: Nanos, every: Nanos) -> bool {
    last.is_none_or(|last| now.since(last) >= every)
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl Keeper<'_> {
    /// Shows the links, once a second.
    pub fn links(&mut self, now: Nanos, links: &Links) {
        let Some(board) = self.service.board() else { return };
        if due(self.linked, now, STATUS_EVERY) {
            self.linked = Some(now);
            let totals = links.totals(now);
            self.links.get_or_insert_with(|| board.links(&totals)).show(&totals);
        }
    }

    /// Shows how often the system's clock was set.
    pub fn clock_steps(&self, steps: u64) {
        if let Some(board) = self.service.board() {
            board.clock_steps(steps);
        }
    }

    /// One look: feeds the manager's watchdog if the run moves, and says where it stands.
    /// `asked`: a signal has asked for the end. After the time for draining `signals.hurry` is
    /// raised.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) once the run has not ended within [`GRACE`] of that: a thread hangs
    /// in a call that nobody can end but the process.
    pub fn look(&mut self, now: Nanos, asked: bool, signals: &Signals) -> Result<(), Failure> {
        let signs = self.vitals.signs();
        let verdict = self.watchdog.look(now, signs);
        if let Some(board) = self.service.board() {
            board.stalled(verdict.stalled());
        }
        let notify = &self.service.notify;
        if let Some(every) = notify.watchdog()
            && verdict == Verdict::Moves
            && due(self.fed, now, nanos(every / 4))
        {
            notify.say("WATCHDOG=1\n");
            self.fed = Some(now);
        }
        if asked && self.stopped.is_none() {
            self.stopped = Some(now);
            notify.say("STOPPING=1\nSTATUS=draining\n");
            self.service.board().inspect(|board| board.stopping());
        }
        if due(self.said, now, STATUS_EVERY) && self.stopped.is_none() {
            let (packets, images) = (signs.offered, signs.ended);
            notify.say(&format!("STATUS={packets} packets, {images} images; {verdict}\n"));
            self.said = Some(now);
        }
        let Some(draining) = self.stopped.map(|at| now.since(at)) else { return Ok(()) };
        let limit = nanos(self.service.drain);
        if draining >= limit {
            signals.hurry.set();
        }
        if draining >= limit.plus(nanos(GRACE)) {
            let exit = ExitCode::Device;
            let reason =
                format!("the run did not end within {} s: {verdict}", draining.0 / 1_000_000_000);
            return Err(Failure { exit, reason });
        }
        Ok(())
    }
}

#[cfg(test)]
mod keeper_tests {
    use tensorwire_core::pipeline::Link;

    use super::*;

    /// A run that does not end: who looks at it once a second after a signal at second 100.
    #[test]
    fn a_stop_hurries_after_the_drain_and_ends_the_process_after_the_grace() {
        let (service, vitals) = (Service::unseen(), Vitals::new());
        let mut keeper = service.keeper(&vitals, false, true);
        let mut link = Box::new(Link::new());
        let (end, _) = link.split(1, 1).expect("a link");
        let signals = end.signals();
        let at = |second| Nanos::from_secs(100 + second);
        let (drain, grace) = (service.drain.as_secs(), GRACE.as_secs());
        assert!(drain > 0 && grace > 0);
        for second in 0..drain {
            keeper.look(at(second), true, signals).expect("it drains");
            assert!(!signals.hurry.get(), "after {second} s");
        }
        for second in drain..drain + grace {
            keeper.look(at(second), true, signals).expect("a call may still end");
            assert!(signals.hurry.get(), "after {second} s");
        }
        let late = keeper.look(at(drain + grace), true, signals).expect_err("it hangs");
        assert_eq!(late.exit, ExitCode::Device);
        assert_eq!(
            late.reason,
            "the run did not end within 20 s: tw-producer does not come round for 20 s"
        );
    }

    #[test]
    fn a_run_that_nobody_stops_is_not_hurried() {
        let (service, vitals) = (Service::unseen(), Vitals::new());
        let mut keeper = service.keeper(&vitals, false, true);
        let mut link = Box::new(Link::new());
        let (end, _) = link.split(1, 1).expect("a link");
        for second in 0..100 {
            keeper.look(Nanos::from_secs(second), false, end.signals()).expect("it goes on");
        }
        assert!(!end.signals().hurry.get());
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// What is said in three places: the default of the flag, this file, and the unit, which waits
    /// longer than both take together.
    #[test]
    fn the_manager_waits_longer_than_a_stop_takes() {
        let cli = Cli::try_parse_from(["tensorwire", "run", "c.yaml"]).expect("it is one");
        let Command::Run(args) = cli.command else { panic!("another command") };
        assert_eq!(args.drain, DRAIN);
        let unit = include_str!("../../packaging/systemd/tensorwire.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        let limit = limit.and_then(|seconds| seconds.parse().ok()).expect("a time");
        assert!(Duration::from_secs(limit) > DRAIN + GRACE, "{limit} s");
    }
}
