//! What the loops of a run show of themselves, ten times a second: that they turn and how far they
//! are, for the watchdog; their numbers, for Prometheus and for a record of a crash.
//!
//! To show something is a handful of atomic operations, without a lock and without an allocation.

use tensorwire_core::pipeline::transmitter::TransmitCounters;
use tensorwire_core::sync::Published;
use tensorwire_core::time::Nanos;

use super::noted;
use crate::metrics::{Board, ConsumerBoard, ProducerBoard, Seen, SenderBoard, Taken};

/// How often a loop shows itself.
pub const SHOWN_EVERY: Nanos = Nanos::from_millis(100);

/// The loops of a run that have to turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// The producer, or the only one of a sender.
    Producer,
    /// The consumer.
    Consumer,
    /// The poller of a split receive side.
    Poller,
}

impl Loop {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Producer, Self::Consumer, Self::Poller];

    /// The name of its thread.
    #[must_use]
    pub const fn thread(self) -> &'static str {
        match self {
            Self::Producer => "tw-producer",
            Self::Consumer => "tw-consumer",
            Self::Poller => "tw-poller",
        }
    }
}

/// What the loops show.
#[derive(Debug, Default)]
pub struct Vitals {
    turns: [Published; 3],
    offered: Published,
    missed: Published,
    handed: Published,
    waiting: Published,
    ended: Published,
}

/// What they showed at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// How often each loop has shown itself, in the order of [`Loop::ALL`].
    pub turns: [u64; 3],
    /// Frames that the NIC handed over.
    pub offered: u64,
    /// Frames that the NIC could not hand over.
    pub missed: u64,
    /// Whole images handed to the consumer.
    pub handed: u64,
    /// What the consumer is done with, delivered or not.
    pub ended: u64,
    /// Whether the producer waits for the consumer.
    pub waiting: bool,
}

impl Vitals {
    /// Nothing shown yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is shown.
    #[must_use]
    pub fn signs(&self) -> Signs {
        let [producer, consumer, poller] = &self.turns;
        Signs {
            turns: [producer.get(), consumer.get(), poller.get()],
            offered: self.offered.get(),
            missed: self.missed.get(),
            // Before what is handed: an image may be handed and end in between.
            ended: self.ended.get(),
            handed: self.handed.get(),
            waiting: self.waiting.get() > 0,
        }
    }

    fn turn(&self, of: Loop) {
        let turns = match (&self.turns, of) {
            ([turns, _, _], Loop::Producer)
            | ([_, turns, _], Loop::Consumer)
            | ([_, _, turns], Loop::Poller) => turns,
        };
        // Only the loop's own thread writes.
        turns.set(turns.get().wrapping_add(1));
    }
}

/// The one that shows for a loop. `B` are its numbers.
#[derive(Debug)]
pub struct View<'a, B> {
    vitals: &'a Vitals,
    board: Option<B>,
    next: Nanos,
}

impl<'a, B> View<'a, B> {
    fn new(vitals: &'a Vitals, board: Option<B>) -> Self {
        Self { vitals, board, next: Nanos::ZERO }
    }

    /// Whether it is time to show something.
    #[inline]
    fn due(&mut self, now: Nanos) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now.plus(SHOWN_EVERY);
        true
    }
}

impl<'a> View<'a, ProducerBoard> {
    /// For the producer.
    #[must_use]
    pub fn of_producer(vitals: &'a Vitals, board: Option<&Board>) -> Self {
        Self::new(vitals, board.map(Board::producer))
    }

    /// Shows what `seen` says, if it is time to.
    #[inline]
    pub fn show(&mut self, now: Nanos, seen: impl FnOnce() -> Seen) {
        if self.due(now) {
            self.shown(&seen());
        }
    }

    #[inline(never)]
    fn shown(&self, seen: &Seen) {
        let vitals = self.vitals;
        vitals.offered.set(seen.status.packets.offered);
        vitals.missed.set(seen.nic.missed + seen.nic.no_buffer);
        vitals.handed.set(seen.status.images.pending);
        vitals.waiting.set(u64::from(seen.status.waiting));
        vitals.turn(Loop::Producer);
        noted::seen(seen);
        if let Some(board) = &self.board {
            board.show(seen);
        }
    }
}

impl<'a> View<'a, ConsumerBoard> {
    /// For the consumer.
    #[must_use]
    pub fn of_consumer(vitals: &'a Vitals, board: Option<&Board>) -> Self {
        Self::new(vitals, board.map(Board::consumer))
    }

    /// Shows what `taken` says, if it is time to.
    #[inline]
    pub fn show(&mut self, now: Nanos, taken: impl FnOnce() -> Taken) {
        if self.due(now) {
            self.shown(&taken());
        }
    }

    #[inline(never)]
    fn shown(&self, taken: &Taken) {
        let counters = &taken.counters;
        let lost = counters.infer_failed + counters.sink_failed + counters.shutdown;
        self.vitals.ended.set(counters.delivered + lost);
        self.vitals.turn(Loop::Consumer);
        noted::consumed(counters);
        if let Some(board) = &self.board {
            board.show(taken);
        }
    }
}

impl<'a> View<'a, SenderBoard> {
    /// For the sender of a receiver, which is nobody's to watch: the producer sees what it sends.
    #[must_use]
    pub fn of_sender(vitals: &'a Vitals, board: Option<&Board>) -> Self {
        Self::new(vitals, board.map(Board::sender))
    }

    /// Shows what was counted, if it is time to; `alone`: its loop is the one to watch.
    #[inline]
    pub fn show(&mut self, now: Nanos, alone: bool, counters: &TransmitCounters) {
        if !self.due(now) {
            return;
        }
        if alone {
            self.vitals.turn(Loop::Producer);
        }
        if let Some(board) = &self.board {
            board.show(counters);
        }
    }
}

impl<'a> View<'a, ()> {
    /// For the poller, whose numbers the producer shows.
    #[must_use]
    pub fn of_poller(vitals: &'a Vitals) -> Self {
        Self::new(vitals, None)
    }

    /// Shows that the loop turns, if it is time to.
    #[inline]
    pub fn show(&mut self, now: Nanos) {
        if self.due(now) {
            self.vitals.turn(Loop::Poller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_shows_itself_ten_times_a_second_and_takes_no_memory_for_it() {
        let (vitals, board) = (Vitals::new(), Board::new("both", "none"));
        let mut consumer = View::of_consumer(&vitals, Some(&board));
        let mut poller = View::of_poller(&vitals);
        let mut looks = 0;
        let taken = allocation_counter::measure(|| {
            for ms in 0..1000 {
                consumer.show(Nanos::from_millis(ms), || {
                    looks += 1;
                    Taken::default()
                });
                poller.show(Nanos::from_millis(ms));
            }
        });
        assert_eq!((looks, taken.count_total), (10, 0));
        assert_eq!(vitals.signs().turns, [0, 10, 10]);
    }
}
