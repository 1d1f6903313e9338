//! SIGINT and SIGTERM: the first ends the run in order, the second ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{ExitCode, Failure};

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
        for (signal, code) in [(SIGINT, 130), (SIGTERM, 143)] {
            // Order matters: the first signal must find the flag down, then raise it.
            flag::register_conditional_shutdown(signal, code, Arc::clone(&stop))?;
            flag::register(signal, Arc::clone(&stop))?;
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
