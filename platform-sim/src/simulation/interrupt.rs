//! The signals that the process is sent, and what it does about them: by the product's own list of
//! what a signal does, carried out here as its signal handler would.

use tensorwire_core::pipeline::interrupt::{Reaction, on_signal};

use super::outcome::Ending;
use super::violation::Violation;

#[derive(Debug, Default)]
pub(super) struct Interrupts {
    /// How many came.
    received: u32,
    /// The end was asked for.
    asked: bool,
    /// How the process ended, if it has.
    ended: Option<Ending>,
}

impl Interrupts {
    /// A signal comes: SIGINT or SIGTERM, as `arg` has it.
    pub(super) fn receive(&mut self, arg: u64) {
        let ending = if arg.is_multiple_of(2) { Ending::Interrupted } else { Ending::Terminated };
        self.received += 1;
        for reaction in on_signal() {
            match reaction {
                Reaction::EndIfAsked if self.asked => {
                    self.ended.get_or_insert(ending);
                }
                Reaction::EndIfAsked => {}
                Reaction::Ask => self.asked = true,
            }
        }
    }

    /// Whether the end was asked for.
    pub(super) const fn asked(&self) -> bool {
        self.asked
    }

    /// How many signals came.
    pub(super) const fn received(&self) -> u32 {
        self.received
    }

    /// How the process ended, if a signal ended it: the second one must have, the first must not.
    pub(super) const fn ended(&self) -> Result<Option<Ending>, Violation> {
        if self.ended.is_some() == (self.received >= 2) {
            Ok(self.ended)
        } else {
            Err(Violation::Signal { signals: self.received })
        }
    }
}
