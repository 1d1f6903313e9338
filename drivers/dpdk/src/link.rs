//! The link of a port, for those who look at it without its thread.

use std::thread;
use std::time::{Duration, Instant};

use tensorwire_dpdk_sys as sys;

use crate::error::CallError;
use crate::event::Reported;

/// How often a port that lingers looks whether its link is still up.
const LINGER_STEP: Duration = Duration::from_millis(10);

/// The link of a port.
#[derive(Clone, Debug)]
pub struct LinkProbe {
    port: u16,
    reported: Reported,
}

impl LinkProbe {
    pub(crate) const fn new(port: u16, reported: Reported) -> Self {
        Self { port, reported }
    }

    /// Speed of the link in megabits per second, 0 where it is not known; `None` while it is down,
    /// and while the driver sets the port up anew. Never waits for the link.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the port cannot say: its device was removed, or it is closed
    /// ([`CallError::no_device`]).
    pub fn look(&self) -> Result<Option<u32>, CallError> {
        if self.reported.recovering() {
            return Ok(None);
        }
        let (mut mbps, mut up) = (0, 0);
        // SAFETY: both are ours to write to; a port that does not exist is an error.
        let result = unsafe { sys::twd_port_link(self.port, &raw mut mbps, &raw mut up) };
        CallError::check("rte_eth_link_get_nowait", result)?;
        // All ones: the driver does not know.
        Ok((up == 1).then_some(if mbps == u32::MAX { 0 } else { mbps }))
    }

    /// What the port's driver reports.
    #[must_use]
    pub const fn reported(&self) -> &Reported {
        &self.reported
    }

    /// Waits for `time`, as long as the link is up: nothing leaves it without.
    pub(crate) fn linger(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && matches!(self.look(), Ok(Some(_))) {
            thread::sleep(LINGER_STEP.min(time));
        }
    }
}
