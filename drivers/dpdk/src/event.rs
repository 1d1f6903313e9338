//! What the driver of a port reports of its own accord: a device that is gone, a reset.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tensorwire_dpdk_sys as sys;

use crate::error::{CallError, undone};

/// How long a driver gets to finish what it has begun, before its port is taken down all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a port carries no packet any more until it is set up anew, which is a start of its own:
/// DPDK's reset takes a port back to the state before its first configuration, with all threads
/// away from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortFault {
    /// The device is gone (`RTE_ETH_EVENT_INTR_RMV`).
    Gone,
    /// Its driver asks for a reset, as that of a virtual function does when the physical one was
    /// reset (`RTE_ETH_EVENT_INTR_RESET`).
    Reset,
    /// Its driver has tried to recover it, and could not (`RTE_ETH_EVENT_RECOVERY_FAILED`).
    NotRecovered,
    /// Its driver has recovered it without the rules that steer to its queue
    /// (`RTE_ETH_EVENT_RECOVERY_SUCCESS`).
    RulesLost,
}

impl PortFault {
    /// The same in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Gone => "the device is gone",
            Self::Reset => "the NIC asks for a reset; a new start sets it up again",
            Self::NotRecovered => "the NIC had an error and could not be recovered by its driver",
            Self::RulesLost => {
                "the NIC has recovered from an error and lost the rules that steer to its queue; a \
                 new start sets them up again"
            }
        }
    }
}

impl fmt::Display for PortFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What the driver of a port has reported so far, for anybody to read at any time.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    counts: Arc<sys::Events>,
    /// It has rules that a recovery takes away.
    rules: bool,
}

/// A counter of events. Acquire: who sees an event sees what the driver did before.
fn read(count: &AtomicU32) -> u32 {
    count.load(Ordering::Acquire)
}

impl Reported {
    /// Why the port is of no use any more; the worst, where there are several reasons.
    #[must_use]
    pub fn fault(&self) -> Option<PortFault> {
        let counts = &*self.counts;
        let rules_lost = self.rules && read(&counts.recovered) > 0;
        [
            (PortFault::Gone, read(&counts.removals) > 0),
            (PortFault::NotRecovered, read(&counts.failed) > 0),
            (PortFault::Reset, read(&counts.resets) > 0),
            (PortFault::RulesLost, rules_lost),
        ]
        .into_iter()
        .find_map(|(fault, is)| is.then_some(fault))
    }

    /// Times that the NIC was reset, or asked for it.
    #[must_use]
    pub fn resets(&self) -> u64 {
        u64::from(read(&self.counts.resets)) + u64::from(read(&self.counts.recoveries))
    }

    /// Whether the driver is setting the port up anew just now: no packet passes, and nothing may
    /// be asked of the port.
    #[must_use]
    pub fn recovering(&self) -> bool {
        read(&self.counts.recovering) != 0
    }
}

/// Watches a port; no more when it goes, which is before the port is closed.
#[derive(Debug)]
pub(crate) struct Watch {
    port: u16,
    counts: Arc<sys::Events>,
}

impl Watch {
    /// Watches `port` from now on.
    pub(crate) fn new(port: u16) -> Result<Self, CallError> {
        let counts = Arc::new(sys::Events::default());
        // SAFETY: DPDK counts there from its own threads, which atomics allow, until it is told to
        // forget them: the value keeps them until then.
        let result = unsafe { sys::twd_events_watch(port, Arc::as_ptr(&counts)) };
        CallError::check("rte_eth_dev_callback_register", result)?;
        Ok(Self { port, counts })
    }

    /// What is reported; `rules` are in the port that a recovery takes away.
    pub(crate) fn reported(&self, rules: bool) -> Reported {
        Reported { counts: Arc::clone(&self.counts), rules }
    }

    /// Lets the driver finish: a port may not be touched while it is being recovered.
    pub(crate) fn settle(&self) {
        let reported = self.reported(false);
        let until = Instant::now() + PATIENCE;
        while reported.recovering() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            // SAFETY: the pair that was given when it was watched; the counters are there.
            let result = unsafe { sys::twd_events_forget(self.port, Arc::as_ptr(&self.counts)) };
            if result == 0 {
                return;
            }
            if result != -libc::EAGAIN || Instant::now() > until {
                break;
            }
            thread::yield_now();
        }
        // DPDK may still count there: they stay.
        undone(false);
        let _ = Arc::into_raw(Arc::clone(&self.counts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_a_recovery_takes_away_are_a_fault_and_the_worst_is_named() {
        let watch = |rules| Reported { counts: Arc::default(), rules };
        let (with, without) = (watch(true), watch(false));
        for reported in [&with, &without] {
            assert_eq!(reported.fault(), None);
            reported.counts.recovered.store(1, Ordering::Release);
        }
        assert_eq!(without.fault(), None);
        assert_eq!(with.fault(), Some(PortFault::RulesLost));
        with.counts.resets.store(2, Ordering::Release);
        assert_eq!((with.fault(), with.resets()), (Some(PortFault::Reset), 2));
        with.counts.failed.store(1, Ordering::Release);
        assert_eq!(with.fault(), Some(PortFault::NotRecovered));
        with.counts.removals.store(1, Ordering::Release);
        assert_eq!(with.fault(), Some(PortFault::Gone));
        assert_eq!(PortFault::Gone.to_string(), "the device is gone");
    }
}
