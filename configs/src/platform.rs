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
    pub packets: &'static [(RegionKind, Worth)],
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

impl Platform {
    /// Whether a machine that tells `name` of itself is one of these.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        !self.signs.is_empty() && self.signs.iter().all(|sign| name.contains(sign))
    }

    /// What a kind of memory is worth; `None` where nothing is known of it.
    #[must_use]
    pub fn worth(&self, kind: RegionKind) -> Option<Worth> {
        self.packets.iter().find(|(known, _)| *known == kind).map(|(_, worth)| *worth)
    }

    /// The kind of memory to use.
    #[must_use]
    pub fn best(&self) -> Option<RegionKind> {
        self.packets.iter().find(|(_, worth)| *worth == Worth::Best).map(|(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: Platform = Platform {
        name: "a board",
        signs: &["acme", "board"],
        packets: &[(RegionKind::Device, Worth::Impossible("why")), (RegionKind::Huge, Worth::Best)],
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
        assert_eq!(BOARD.worth(RegionKind::Device), Some(Worth::Impossible("why")));
        assert_eq!(BOARD.worth(RegionKind::Host), None);
        assert_eq!(BOARD.best(), Some(RegionKind::Huge));
    }
}
