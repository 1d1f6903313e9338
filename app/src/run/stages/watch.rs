//! What the main thread does of a run: it lets the threads go, says that the receiver is ready, and
//! looks at all of it until the end.

use std::io::Write;
use std::process;
use std::thread;
use std::time::Duration;

use tensorwire_core::pipeline::Signals;

use super::Run;
use crate::exit::{Failure, Owed};
use crate::run::link::Links;
use crate::run::nic::Watched;
use crate::run::pin::Pin;
use crate::run::steady::{Start, settle};
use crate::run::threads::{Readiness, Watch};
use crate::run::wall::WallClock;
use crate::service::Keeper;

impl Run<'_> {
    /// From threads that are there to a receiver that is ready.
    pub(super) fn begin(
        &self,
        start: &Start,
        threads: usize,
        early: Option<&Readiness>,
        alive: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        // Behind all threads: one inherits the cores of the one that makes it.
        self.seats.main.as_ref().map_or(Ok(()), Pin::apply)?;
        start.all_seated(threads, &alive);
        settle(self.plan)?;
        start.open();
        while early.is_some_and(|early| !early.reached()) && alive() {
            thread::sleep(Duration::from_millis(1));
        }
        self.announce(start);
        Ok(())
    }

    /// Says that the receiver can take frames. This is the one place where readiness is declared:
    /// from here on the loops are in their steady state.
    fn announce(&self, start: &Start) {
        start.ready();
        self.plan.talk.result(format_args!("tensorwire: ready"));
        self.service.ready(self.plan.talk);
        if let Some(mut ready) = self.plan.ready.as_ref()
            && let Err(error) = ready.write_all(b"ready\n")
        {
            self.plan.talk.error(format_args!("tensorwire: --ready-fd: {error}"));
        }
    }

    /// The links that somebody can say something of.
    pub(super) fn links(&self, watched: Vec<Watched>) -> Links {
        let mut links = Links::new();
        for (name, probe) in watched {
            links.watch(&name, probe, self.clock.now());
        }
        links
    }

    /// Waits for the threads, and tells them to stop when a signal came, when a device is gone,
    /// or when it is `over`.
    ///
    /// # Errors
    ///
    /// The [`Failure`] of the device.
    pub(super) fn supervise(
        &self,
        watch: Watch,
        (links, wall, keeper): (&mut Links, &mut WallClock, &mut Keeper<'_>),
        signals: &Signals,
        mut over: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        let mut device = Ok(());
        watch.wait(|| {
            if device.is_ok() {
                device = links.look(self.clock.now(), self.plan.talk);
            }
            wall.look(self.clock, self.plan.talk);
            if over() || self.stop.requested() || device.is_err() {
                signals.stop.set();
            }
            self.look(keeper, (links, wall), signals);
        });
        device
    }

    /// Lets the service look at the run. One that does not end in time ends with the process: a
    /// thread that hangs in a call cannot be ended otherwise, and nothing can be added up.
    fn look(
        &self,
        keeper: &mut Keeper<'_>,
        (links, wall): (&Links, &WallClock),
        signals: &Signals,
    ) {
        let now = self.clock.now();
        keeper.links(now, links);
        keeper.clock_steps(wall.steps());
        if let Err(failure) = keeper.look(now, self.stop.requested(), signals) {
            self.plan.talk.error(format_args!("tensorwire: {}", failure.reason));
            process::exit(failure.exit.code().into());
        }
    }

    pub(super) fn expected(&self) -> u64 {
        match self.plan.owed {
            Owed::Images(images) => images,
            _ => 0,
        }
    }
}
