//! What a signal does to the process: the first asks for the end, a second one is the end.
#![forbid(unsafe_code)]

/// One of the things that a signal does. A shell carries them out in its signal handler, so each
/// is no more than a flag that is looked at or raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// If an earlier signal has asked for the end, the process ends at once: no machine makes
    /// another step, nothing is flushed, and the exit code is that of the signal.
    EndIfAsked,
    /// Asks for the end: [`stop`](super::Signals::stop) is raised, and the run drains.
    Ask,
}

/// What every signal does, in this order: the other way round, the first would end the process.
#[must_use]
pub fn on_signal() -> [Reaction; 2] {
    if planted!(SecondUnheeded) {
        return [Reaction::Ask; 2];
    }
    if planted!(FirstEndsAtOnce) {
        return [Reaction::Ask, Reaction::EndIfAsked];
    }
    [Reaction::EndIfAsked, Reaction::Ask]
}
