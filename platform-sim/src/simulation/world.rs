//! What the parts of a simulated run share: the time, the faults, the truth, and the first thing
//! that turned out to be wrong.

use std::collections::VecDeque;

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::port::RxQueue;
use tensorwire_core::time::Nanos;

use super::faults::Injector;
use super::hazard::{Hazards, Stretch};
use super::meter;
use super::model::Model;
use super::truth::{Content, Truth};
use super::violation::Violation;
use crate::nic::SwRx;

/// A row of a submission: what is in its slots, and the hash of the image.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) slots: Vec<Content>,
    pub(super) crc: u32,
}

/// The last poll of the producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    pub(super) asked: usize,
    pub(super) came: usize,
    /// It has shown that all that had reached the NIC by then was handed over.
    pub(super) proved: Option<Nanos>,
}

/// What is known of the two rings of a split receive side, by what went in and came out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Between {
    /// Packets on their way to the producer.
    pub(super) forward: u64,
    /// Packets on their way back.
    pub(super) back: u64,
    /// Free packet buffers of the NIC when the poller looked last; some may have come back since.
    pub(super) free: usize,
    /// Polls of the NIC that found it empty.
    pub(super) empty: u64,
    /// How many there had been at a poll of the producer, and the time of that.
    mark: (u64, Nanos),
}

impl Between {
    /// The producer, at `now`, finds the ring empty. Once two polls of the NIC since an earlier
    /// look have found that empty, the second of them began after it: whatever had arrived by
    /// then has been handed over.
    fn look(&mut self, now: Nanos) -> Option<Nanos> {
        if self.empty - self.mark.0 < 2 {
            return None;
        }
        let (_, at) = std::mem::replace(&mut self.mark, (self.empty, now));
        Some(at.min(now))
    }
}

#[derive(Debug)]
pub(super) struct World {
    /// The time, as the machines see it.
    pub(super) now: Nanos,
    /// The time that has really passed: no step of the clock is in it.
    pub(super) passed: Nanos,
    pub(super) step: u64,
    /// Faults have stopped.
    pub(super) quiet: bool,
    /// The receiver is ready.
    pub(super) ready: bool,
    pub(super) injector: Injector,
    pub(super) truth: Truth,
    pub(super) model: Model,
    pub(super) hazards: Hazards,
    /// The poll of this step, if there was one.
    pub(super) poll: Option<Poll>,
    /// The rings between poller and producer, where there are two.
    pub(super) between: Option<Between>,
    /// When each frame that waits could be polled first; those that cannot yet are not in it.
    visible: VecDeque<Nanos>,
    /// When a packet of the stream was handed over last.
    pub(super) last_ours: Option<Nanos>,
    /// The clock has stepped back at least once: how old something is is no more certain.
    pub(super) stepped_back: bool,
    /// Packets that the reorder stage keeps.
    pub(super) kept: usize,
    /// The fewest free packet buffers that the receiver saw in this step.
    pub(super) least_free: usize,
    /// The submission whose result is being reported.
    pub(super) reported: Option<Vec<Row>>,
    /// How far indices are from the true ones, on the stretch where that was seen last.
    pub(super) distance: Option<(Stretch, u32, i128)>,
    /// Every image that the sink took, in order.
    pub(super) taken: Vec<u64>,
    /// Whole images of deliveries that the sink refused.
    pub(super) refused: u64,
    /// Images are lost for good reason: stages that failed, and for good.
    pub(super) infer_fatal: bool,
    pub(super) sink_fatal: bool,
    pub(super) reorder_fatal: bool,
    /// The consumer's thread has died.
    pub(super) consumer_died: bool,
    /// The clock has stepped since a packet of the stream was handed over.
    pub(super) stepped: bool,
    /// The first thing that was wrong.
    pub(super) broken: Option<Violation>,
}

impl World {
    pub(super) const fn new(
        injector: Injector,
        truth: Truth,
        model: Model,
        hazards: Hazards,
    ) -> Self {
        Self {
            now: Nanos::ZERO,
            passed: Nanos::ZERO,
            step: 0,
            quiet: false,
            ready: false,
            injector,
            truth,
            model,
            hazards,
            poll: None,
            between: None,
            visible: VecDeque::new(),
            last_ours: None,
            stepped_back: false,
            kept: 0,
            least_free: usize::MAX,
            reported: None,
            distance: None,
            taken: Vec::new(),
            refused: 0,
            infer_fatal: false,
            sink_fatal: false,
            reorder_fatal: false,
            consumer_died: false,
            stepped: false,
            broken: None,
        }
    }

    /// Something is wrong. Only the first counts: what follows may be its consequence.
    pub(super) fn fail(&mut self, violation: Violation) {
        self.broken.get_or_insert(violation);
    }

    /// It is `now`. Where the clock steps back, a packet counts from the earliest time at which it
    /// can have been processed.
    pub(super) fn set_time(&mut self, now: Nanos) {
        if now < self.now {
            self.stepped_back = true;
            self.last_ours = self.last_ours.map(|last| last.min(now));
            self.model.step_back(now);
        }
        self.now = now;
    }

    /// Of the frames that wait, all but `staged` can be polled from now on.
    pub(super) fn see(&mut self, staged: usize) {
        let visible = self.truth.waiting.len().saturating_sub(staged);
        while self.visible.len() < visible {
            self.visible.push_back(self.now);
        }
    }

    /// Since when the oldest frame that can be polled has waited.
    pub(super) fn waits_since(&self) -> Option<Nanos> {
        self.visible.front().copied()
    }

    /// The receiver was handed `came` frames of the `asked` it asked for.
    pub(super) fn hand(&mut self, asked: usize, came: usize) {
        let proved = match &mut self.between {
            _ if came == asked => None,
            None => Some(self.now),
            // Before it is ready the receiver has no deadlines, and does not look.
            Some(between) if self.ready => between.look(self.now),
            Some(_) => None,
        };
        self.poll = Some(Poll { asked, came, proved });
        for _ in 0..came {
            self.visible.pop_front();
            let Some(arrival) = self.truth.hand(self.ready) else { continue };
            self.last_ours = Some(self.now);
            self.stepped = false;
            self.model.take(&arrival, self.now);
            self.hazards.take(&arrival);
        }
    }
}

/// The receive side of the NIC, and the packets that are held up on their way back to it.
#[derive(Debug)]
pub(super) struct RxSide<'n> {
    pub(super) rx: SwRx<'n>,
    limbo: VecDeque<PacketDesc>,
    /// The step at which they arrive.
    until: u64,
}

impl<'n> RxSide<'n> {
    pub(super) const fn new(rx: SwRx<'n>) -> Self {
        Self { rx, limbo: VecDeque::new(), until: 0 }
    }

    /// Packets that are held up.
    pub(super) fn held_up(&self) -> usize {
        self.limbo.len()
    }

    /// Gives the packets back that were held up long enough.
    pub(super) fn arrive(&mut self, step: u64) {
        if self.limbo.is_empty() || step < self.until {
            return;
        }
        self.rx.release(self.limbo.make_contiguous());
        self.limbo.clear();
    }

    pub(super) fn release(&mut self, packets: &mut [PacketDesc], until: Option<u64>) {
        self.until = until.unwrap_or(self.until).max(self.until);
        if until.is_none() && self.limbo.is_empty() {
            self.rx.release(packets);
        } else {
            let packets = packets.iter_mut().filter(|packet| !packet.is_none());
            meter::aside(|| self.limbo.extend(packets.map(PacketDesc::take)));
        }
    }

    pub(super) fn free(&self) -> usize {
        self.rx.free_buffers()
    }
}
