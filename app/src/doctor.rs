//! `doctor`: what of this machine would keep a run from being fast, or from being at all.
//!
//! Everything is read, nothing is changed or opened, and all of it through [`machine::Machine`], so
//! that tests can build a machine of files. Without a configuration the machine is described, and
//! what a NIC under DPDK would want is noted; with one, what it needs and does not find is a
//! problem.

mod cores;
mod gpu;
mod machine;
mod memory;
mod nic;
mod platform;
mod rights;

use std::fmt;

use serde::Serialize;
use tensorwire_configs::{Address, Config, RegionKind};

pub use machine::Machine;

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it stands.
    pub state: State,
    /// What was looked at.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Nothing that is needed here, or nothing that can be told from here.
    Note,
    /// The configuration needs it otherwise.
    Problem,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<16} {}", self.state.word(), self.subject, self.found)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}

/// The findings so far.
#[derive(Debug)]
struct Findings {
    all: Vec<Finding>,
    /// How something is judged that is not as it should be.
    lack: State,
}

impl Findings {
    fn push(&mut self, state: State, subject: &str, found: String, fix: Option<String>) {
        self.all.push(Finding { state, subject: subject.to_owned(), found, fix });
    }

    fn ok(&mut self, subject: &str, found: impl Into<String>) {
        self.push(State::Ok, subject, found.into(), None);
    }

    fn note(&mut self, subject: &str, found: impl Into<String>) {
        self.push(State::Note, subject, found.into(), None);
    }

    /// Something is not as a run would have it; a problem only if a configuration asks for it.
    fn lacks(&mut self, subject: &str, found: impl Into<String>, fix: impl Into<String>) {
        self.push(self.lack, subject, found.into(), Some(fix.into()));
    }

    /// Something costs speed, but keeps no run from being right.
    fn slows(&mut self, subject: &str, found: impl Into<String>, fix: impl Into<String>) {
        self.push(State::Note, subject, found.into(), Some(fix.into()));
    }
}

/// What a configuration needs of a machine.
#[derive(Debug, Default)]
struct Needs<'c> {
    config: Option<&'c Config>,
    /// Bytes of huge pages.
    huge: u64,
    /// Bytes of other memory of the host.
    host: u64,
    /// Interfaces by address, each once.
    interfaces: Vec<&'c Address>,
    /// Cores with what runs there.
    cores: Vec<(u32, &'static str)>,
    /// Bytes of the longest frame.
    frame: usize,
}

impl<'c> Needs<'c> {
    fn of(config: &'c Config) -> Self {
        let bytes = |kinds: &[RegionKind]| {
            let regions = config.regions.iter().filter(|region| kinds.contains(&region.kind));
            regions.map(tensorwire_configs::Region::bytes).sum()
        };
        let mut needs = Self {
            config: Some(config),
            huge: bytes(&[RegionKind::Huge]),
            host: bytes(&[RegionKind::Host, RegionKind::HostPinned]),
            frame: config.geometry.frame_bytes(),
            ..Self::default()
        };
        let ends =
            [config.rx.as_ref().map(|rx| &rx.address), config.tx.as_ref().map(|tx| &tx.address)];
        for address in ends.into_iter().flatten() {
            if !config.software_loopback && !needs.interfaces.contains(&address) {
                needs.interfaces.push(address);
            }
        }
        let cores = [
            (Some(config.master_core), "the main thread"),
            (config.rx.as_ref().and_then(|rx| rx.poller_core), "the poller"),
            (config.rx.as_ref().and_then(|rx| rx.producer_core), "the producer"),
            (config.inference.as_ref().and_then(|model| model.cpu_core), "the consumer"),
            (config.tx.as_ref().and_then(|tx| tx.worker_core.or(tx.queue_core)), "the sender"),
        ];
        needs.cores = cores.into_iter().filter_map(|(core, who)| Some((core?, who))).collect();
        needs
    }

    /// Whether a NIC is driven from user space.
    fn device(&self) -> bool {
        let user = |address: &&Address| {
            matches!(address, Address::Pci(_) | Address::Interface(_) | Address::Virtual(_))
        };
        self.interfaces.iter().any(user)
    }

    fn region(&self, kind: RegionKind) -> bool {
        self.config.is_some_and(|config| config.regions.iter().any(|r| r.kind == kind))
    }
}

/// Looks at everything.
#[must_use]
pub fn examine(machine: &Machine, config: Option<&Config>) -> Vec<Finding> {
    let needs = config.map(Needs::of).unwrap_or_default();
    let lack = if config.is_some() { State::Problem } else { State::Note };
    let mut findings = Findings { all: Vec::new(), lack };
    platform::examine(machine, &needs, &mut findings);
    memory::examine(machine, &needs, &mut findings);
    nic::examine(machine, &needs, &mut findings);
    cores::examine(machine, &needs, &mut findings);
    rights::examine(machine, &needs, &mut findings);
    gpu::examine(machine, &needs, &mut findings);
    findings.all
}

#[cfg(test)]
mod tests;
