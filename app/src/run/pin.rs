//! Threads onto cores: pinned as configured, or refused by key; never silently elsewhere.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::exit::{ExitCode, Failure};

/// The cores that this process may use.
///
/// # Errors
///
/// A [`Failure`] (exit 5) when the system does not say.
pub fn available() -> Result<Vec<u32>, Failure> {
    let set = sched_getaffinity(None).map_err(|error| Failure {
        exit: ExitCode::Device,
        reason: format!("the cores of this machine: {error}"),
    })?;
    let max = u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..max).filter(|&core| set.is_set(core as usize)).collect())
}

/// Where one thread runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The core.
    pub core: u32,
    /// The key of the configuration that asks for it.
    pub key: String,
}

impl Pin {
    /// Pins the calling thread.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) that names key and core when the system refuses.
    pub fn apply(&self) -> Result<(), Failure> {
        let mut set = CpuSet::new();
        set.set(self.core as usize);
        sched_setaffinity(None, &set).map_err(|error| Failure {
            exit: ExitCode::Device,
            reason: format!("{}: cannot pin a thread to core {}: {error}", self.key, self.core),
        })
    }
}
