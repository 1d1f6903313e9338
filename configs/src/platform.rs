//! What differs from one kind of machine to another, as far as a configuration can be judged by it.
//!
//! The machines themselves are described by the crates `platform-dgx` and `platform-igx`.

use crate::model::RegionKind;

/// A kind of machine.
#[derive(Debug)]
pub struct Platform {
    /// Its name in messages.
    pub name: &'static str,
    /// Words that the name of the machine has, as its firmware tells it (DMI or device tree), in
    /// small letters; all of them.
    pub signs: &'static [&'static str],
    /// What each kind of memory is worth there for packets.
    pub packets: Packets,
}

/// What each kind of memory is worth for packets; one is the best.
#[derive(Debug)]
pub struct Packets {
    device: Worth,
    host_pinned: Worth,
    host: Worth,
}

impl Packets {
    /// `device`: memory of a GPU; `host_pinned`: memory of the host that a GPU reads in place;
    /// `host`: other memory of the host, huge pages among it.
    ///
    /// # Panics
    ///
    /// When not exactly one is the best: of a constant, the program is not built then.
    #[must_use]
    pub const fn new(device: Worth, host_pinned: Worth, host: Worth) -> Self {
        let best = device.is_best() as u8 + host_pinned.is_best() as u8 + host.is_best() as u8;
        assert!(best == 1, "one kind of memory is the best for packets");
        Self { device, host_pinned, host }
    }
}

/// What a kind of memory is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// The one to use.
    Best,
    /// It works; why another is better.
    Slower(&'static str),
    /// It cannot be; why.
    Impossible(&'static str),
}

impl Worth {
    const fn is_best(self) -> bool {
        matches!(self, Self::Best)
    }

    /// Of memory that no GPU reads.
    pub const ON_CPU: Self = Self::Slower("the GPU cannot read it: batches are built by the CPU");
    /// Of a GPU's memory where there is none of its own.
    pub const SHARED: Self =
        Self::Impossible("processor and GPU share one memory; a NIC cannot be given a GPU's");
}

impl Platform {
    /// Whether a machine that tells `name` of itself is one of these.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        !self.signs.is_empty() && self.signs.iter().all(|sign| name.contains(sign))
    }

    /// What a kind of memory is worth.
    #[must_use]
    pub const fn worth(&self, kind: RegionKind) -> Worth {
        match kind {
            RegionKind::Device => self.packets.device,
            RegionKind::HostPinned => self.packets.host_pinned,
            RegionKind::Huge | RegionKind::Host => self.packets.host,
        }
    }

    /// The kind of memory to use.
    #[must_use]
    pub const fn best(&self) -> RegionKind {
        match self.packets {
            Packets { device: Worth::Best, .. } => RegionKind::Device,
            Packets { host_pinned: Worth::Best, .. } => RegionKind::HostPinned,
            _ => RegionKind::Huge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: Platform = Platform {
        name: "a board",
        signs: &["acme", "board"],
        packets: Packets::new(Worth::SHARED, Worth::ON_CPU, Worth::Best),
    };

    #[test]
    fn a_machine_is_known_by_all_of_its_signs() {
        assert!(BOARD.is("ACME Board 7"));
        assert!(!BOARD.is("ACME Workstation"));
        assert!(!BOARD.is(""));
        let unknown = Platform { signs: &[], ..BOARD };
        assert!(!unknown.is("anything"), "without a sign it is none");
    }

    #[test]
    fn what_memory_is_worth() {
        assert_eq!(BOARD.worth(RegionKind::Device), Worth::SHARED);
        assert_eq!(BOARD.worth(RegionKind::HostPinned), Worth::ON_CPU);
        assert_eq!(BOARD.worth(RegionKind::Host), Worth::Best);
        assert_eq!(BOARD.best(), RegionKind::Huge);
    }

    #[test]
    #[should_panic(expected = "one kind of memory is the best")]
    fn two_kinds_are_not_both_the_best() {
        let _ = Packets::new(Worth::Best, Worth::Best, Worth::ON_CPU);
    }
}
