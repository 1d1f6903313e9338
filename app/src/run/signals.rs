//! SIGINT and SIGTERM: the first ends the run in order, the second ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tensorwire_core::pipeline::interrupt::{Reaction, on_signal};

use crate::exit::{ExitCode, Failure};

/// The signals that end a run, and the exit code of each if it is the second.
pub const ENDS: [(i32, ExitCode); 2] =
    [(SIGINT, ExitCode::Interrupted), (SIGTERM, ExitCode::Terminated)];

/// Whether a signal asked for the end.
#[derive(Clone, Debug)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Takes the two signals over.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses.
    pub fn install() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for (signal, exit) in ENDS {
            for reaction in on_signal() {
                let stop = Arc::clone(&stop);
                match reaction {
                    Reaction::EndIfAsked => {
                        flag::register_conditional_shutdown(signal, exit.code().into(), stop)?
                    }
                    Reaction::Ask => flag::register(signal, stop)?,
                };
            }
        }
        Ok(Self(stop))
    }

    /// Refuses to go on after a signal, where nothing was started that has to end.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 4: whatever was asked for is owed).
    pub fn check(&self) -> Result<(), Failure> {
        if self.requested() {
            let reason = "stopped by a signal before the start".to_owned();
            return Err(Failure { exit: ExitCode::Owed, reason });
        }
        Ok(())
    }

    /// Whether a signal came.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
