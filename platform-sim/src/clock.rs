//! Time that nobody has to wait for.

use tensorwire_core::time::Nanos;

/// A clock that stands still until it is moved. It never goes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualClock {
    now: Nanos,
}

impl VirtualClock {
    /// A clock at time zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { now: Nanos::ZERO }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Lets `span` pass.
    pub const fn advance(&mut self, span: Nanos) {
        self.now = self.now.plus(span);
    }

    /// Lets the time until `at` pass, none if that lies behind.
    pub const fn jump_to(&mut self, at: Nanos) {
        self.advance(at.since(self.now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_never_goes_back() {
        let mut clock = VirtualClock::new();
        clock.advance(Nanos(5));
        clock.jump_to(Nanos(3));
        assert_eq!(clock.now(), Nanos(5));
        clock.jump_to(Nanos(9));
        clock.advance(Nanos(u64::MAX));
        assert_eq!(clock.now(), Nanos(u64::MAX));
    }
}
