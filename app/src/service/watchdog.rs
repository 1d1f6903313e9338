//! Whether a run moves: what the manager's watchdog is fed by.
//!
//! It moves if every loop turns and each does what it has to do: the consumer ends images as long
//! as there are any, the receiver gets out of waiting for it, and packets come through while the
//! NIC has some. Where nothing comes, all this holds: a quiet sensor is no fault of the run.

use std::fmt;

use tensorwire_core::time::Nanos;

use crate::run::vitals::{Loop, Signs};

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that has to move does.
    Moves,
    /// Nothing has moved yet that should, and for how long.
    Stands(Cause, Nanos),
}

/// What does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A loop that does not come round.
    Turn(Loop),
    /// The consumer turns and ends no image, although some are with it.
    Images,
    /// The receiver waits for a batch buffer or for room, and nothing is with the consumer.
    Waiting,
    /// The NIC loses frames, and hands none over.
    Packets,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(of) => write!(f, "{} does not come round", of.thread()),
            Self::Images => f.write_str("no image is ended"),
            Self::Waiting => f.write_str("the receiver waits for a buffer"),
            Self::Packets => f.write_str("the NIC loses frames and hands none over"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stands(cause, since) if *since >= SHORT => {
                write!(f, "{cause} for {} s", since.0 / 1_000_000_000)
            }
            _ => f.write_str("running"),
        }
    }
}

/// The loops show themselves ten times a second; what stands for less says nothing.
const SHORT: Nanos = Nanos::from_secs(1);

impl Verdict {
    /// For how long something has stood that should move; zero if that is not worth a word.
    #[must_use]
    pub fn stalled(&self) -> Nanos {
        match self {
            Self::Stands(_, since) if *since >= SHORT => *since,
            _ => Nanos::ZERO,
        }
    }
}

/// Compares what the loops show with what they showed when everything last moved.
#[derive(Debug)]
pub struct Watchdog {
    watched: [bool; 3],
    mark: Signs,
    moved: Option<Nanos>,
}

impl Watchdog {
    /// A watch over the loops that there are: a poller where the receive side is `split`, a
    /// consumer where something is received.
    #[must_use]
    pub fn new(split: bool, receives: bool) -> Self {
        let watched = [true, receives, split];
        Self { watched, mark: Signs::default(), moved: None }
    }

    /// One look, at `now`.
    pub fn look(&mut self, now: Nanos, signs: Signs) -> Verdict {
        match self.standing(&signs) {
            None => {
                self.mark = signs;
                self.moved = Some(now);
                Verdict::Moves
            }
            // The first look begins the time.
            Some(cause) => Verdict::Stands(cause, now.since(*self.moved.get_or_insert(now))),
        }
    }

    fn standing(&self, signs: &Signs) -> Option<Cause> {
        let mark = &self.mark;
        let turns = mark.turns.iter().zip(&signs.turns).zip(self.watched);
        let mut turned = Loop::ALL.into_iter().zip(turns);
        if let Some((of, _)) =
            turned.find(|(_, ((before, now), watched))| *watched && before == now)
        {
            return Some(Cause::Turn(of));
        }
        if mark.handed > mark.ended && signs.ended == mark.ended {
            return Some(Cause::Images);
        }
        let still = (signs.offered, signs.ended) == (mark.offered, mark.ended);
        if mark.waiting && signs.waiting && still {
            return Some(Cause::Waiting);
        }
        (signs.missed > mark.missed && signs.offered == mark.offered).then_some(Cause::Packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown at a second: every loop turns.
    fn at(second: u64) -> Signs {
        Signs { turns: [second; 3], ..Signs::default() }
    }

    /// Looks once a second from 1 on; the verdicts.
    fn looks(split: bool, receives: bool, shown: impl Fn(u64) -> Signs) -> Vec<Verdict> {
        let mut watchdog = Watchdog::new(split, receives);
        (1..=5).map(|second| watchdog.look(Nanos::from_secs(second), shown(second))).collect()
    }

    fn stands(verdicts: &[Verdict]) -> Option<Cause> {
        match verdicts.last() {
            Some(Verdict::Stands(cause, since)) => {
                assert!(*since >= Nanos::from_secs(3), "{since:?}");
                Some(*cause)
            }
            _ => None,
        }
    }

    #[test]
    fn idle_and_progress_both_feed() {
        assert_eq!(looks(true, true, at), [Verdict::Moves; 5]);
        let busy = |second| Signs {
            offered: second * 100,
            handed: second * 4 + 8,
            ended: second * 4,
            missed: second,
            waiting: true,
            ..at(second)
        };
        assert_eq!(looks(true, true, busy), [Verdict::Moves; 5]);
        // A first job after a long quiet time gets its time.
        let first = |second| Signs { handed: u64::from(second == 5) * 4, ..at(second) };
        assert_eq!(looks(true, true, first), [Verdict::Moves; 5]);
    }

    #[test]
    fn a_loop_that_hangs_starves() {
        for (n, hung) in Loop::ALL.into_iter().enumerate() {
            let shown = |second| {
                let mut signs = Signs { offered: second, ..at(second) };
                signs.turns[n] = 1;
                signs
            };
            assert_eq!(stands(&looks(true, true, shown)), Some(Cause::Turn(hung)));
        }
        // Of a sender only its own loop.
        let alone = |second| Signs { turns: [second, 0, 0], ..Signs::default() };
        assert_eq!(looks(false, false, alone), [Verdict::Moves; 5]);
        assert_eq!(stands(&looks(false, true, alone)), Some(Cause::Turn(Loop::Consumer)));
    }

    #[test]
    fn a_loop_that_turns_and_does_nothing_starves() {
        let images = |second| Signs { handed: 8, ended: 4, offered: second, ..at(second) };
        assert_eq!(stands(&looks(true, true, images)), Some(Cause::Images));
        let waiting = |second| Signs { waiting: true, ..at(second) };
        assert_eq!(stands(&looks(true, true, waiting)), Some(Cause::Waiting));
        let packets = |second| Signs { missed: second, offered: 7, ..at(second) };
        assert_eq!(stands(&looks(true, true, packets)), Some(Cause::Packets));
        let verdict = looks(true, true, packets)[4];
        assert_eq!(verdict.to_string(), "the NIC loses frames and hands none over for 4 s");
    }
}
