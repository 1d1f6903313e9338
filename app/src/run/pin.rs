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

/// The cores that the kernel keeps free of everything that is not put there (`isolcpus=`, or an
/// isolated partition of cpusets).
#[must_use]
pub fn isolated() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    list(&text).unwrap_or_default()
}

/// Numbers in a list of the kernel, as `0-3,8`; `None` if it is none.
#[must_use]
pub fn list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; a list that says so is not believed.
        if last >= 65_536 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
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
