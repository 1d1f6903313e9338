//! How batches close: by deadline, for want of packet buffers, because the stream moved on, at its
//! end; and what is reported of them.
#![forbid(unsafe_code)]

use super::{Action, After, Reassembly, small, window_index};
use crate::time::Nanos;
use crate::window::{CloseCause, Window};

impl<P> Reassembly<P> {
    /// Closes what the deadline demands. `now` must not include time in which the producer was
    /// blocked, and the call is due only after a poll that returned fewer packets than asked for:
    /// otherwise a stalled poller would cut batches whose packets wait in the NIC.
    ///
    /// The actions follow by [`Reassembly::next_action`]. Does nothing while actions are due.
    pub fn tick(&mut self, now: Nanos) {
        if self.timeout == Nanos::ZERO || self.due {
            return;
        }
        self.now = now;
        let timeout = if planted!(DeadlineHalf) { Nanos(self.timeout.0 / 2) } else { self.timeout };
        let from_last = planted!(DeadlineFromLast);
        let since = |w: &Window| if from_last { w.last_packet() } else { w.first_packet() };
        let expired = (self.base..self.base.saturating_add(self.open)).rev().find(|&batch| {
            self.window(batch).is_some_and(|w| w.count() > 0 && now.since(since(w)) >= timeout)
        });
        if let Some(batch) = expired {
            let cause = CloseCause::Deadline;
            self.refute_then(After::CloseUpTo { batch: batch + 1, cause }, false);
        }
    }

    /// Closes the oldest open window as partial, to get its packets back. Does nothing while
    /// actions are due or no window is open.
    pub fn relieve(&mut self, now: Nanos) {
        if self.due {
            return;
        }
        self.now = now;
        let oldest = (self.base..self.base.saturating_add(self.open))
            .find(|&batch| self.window(batch).is_some_and(|w| w.count() > 0));
        if let Some(batch) = oldest {
            let cause = CloseCause::Pool;
            self.refute_then(After::CloseUpTo { batch: batch + 1, cause }, false);
        }
    }

    /// Ends the stream: held packets are refuted, open windows close. Does nothing while actions
    /// are due.
    pub fn finish(&mut self, now: Nanos) {
        if self.due {
            return;
        }
        self.now = now;
        let batch = self.after_reached() - u64::from(planted!(LastStaysOpen));
        self.refute_then(After::CloseUpTo { batch, cause: CloseCause::Shutdown }, true);
    }

    /// The batch after the last one that the stream reached, also when every packet of that was
    /// taken back.
    pub(super) fn after_reached(&self) -> u64 {
        match self.next().checked_sub(1) {
            Some(last) => (last >> self.batch_shift) + 1,
            None => self.base,
        }
    }

    pub(super) fn close_up_to(&mut self, batch: u64, cause: CloseCause) {
        if batch > self.close_to {
            self.close_to = batch;
            self.close_cause = cause;
        }
    }

    #[inline]
    pub(super) fn close_is_due(&self) -> bool {
        self.base < self.close_to
            || self.window(self.base).is_some_and(|w| w.count() == self.packets_per_batch)
    }

    /// Closes the batch at `base`, or passes over the run of empty ones that begins there.
    pub(super) fn close_base(&mut self) -> Action<P> {
        let open = self.base..self.base.saturating_add(self.open);
        let filled = open
            .clone()
            .find(|&batch| self.window(batch).is_some_and(|w| w.count() > 0))
            .unwrap_or(u64::MAX);
        if filled == self.base {
            return self.close_window();
        }
        let end = filled.min(self.close_to);
        let gap = self.describe_gap(self.base, end);
        // One bit for each batch of the gap, as many as are remembered.
        let passed = 1u64.checked_shl(small(gap.batches)).unwrap_or(0);
        self.deadline_history = self.deadline_history.wrapping_mul(passed);
        if self.close_cause == CloseCause::Deadline {
            self.deadline_history |= passed.wrapping_sub(1);
        }
        self.base = end;
        Action::Gap(gap)
    }

    fn close_window(&mut self) -> Action<P> {
        let batch = self.base;
        let index = window_index(batch);
        let cause = match self.window(batch) {
            Some(w) if w.count() == self.packets_per_batch => CloseCause::Complete,
            _ => self.close_cause,
        };
        self.closed = self.describe(batch, cause);
        self.counters.slots.batches += 1;
        let partial = &mut self.counters.partial;
        match cause {
            CloseCause::Complete => {}
            CloseCause::Moved => partial.moved += 1,
            CloseCause::Deadline => partial.deadline += 1,
            CloseCause::Pool => partial.pool += 1,
            CloseCause::Discontinuity => partial.discontinuity += 1,
            CloseCause::Shutdown => partial.shutdown += 1,
        }
        self.deadline_history =
            self.deadline_history << 1 | u64::from(cause == CloseCause::Deadline);
        self.closing = true;
        #[expect(clippy::cast_possible_truncation, reason = "below MAX_WINDOWS = 4")]
        let window = index as u8;
        Action::Close { window }
    }

    pub(super) fn finish_close(&mut self) {
        let slots = self.packets_per_batch;
        if let Some(window) = self.windows.get_mut(window_index(self.base)) {
            window.clear(slots);
        }
        self.base += 1;
        self.closing = false;
    }
}
