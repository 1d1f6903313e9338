//! When the producer begins, when it wakes, and how it ends.
#![forbid(unsafe_code)]

use super::{EndReason, Phase, Producer};
use crate::port::{Reorder, RxQueue};
use crate::time::Nanos;

impl<Q: RxQueue, O: Reorder> Producer<'_, Q, O> {
    /// The engine is ready: from now on packets are placed.
    pub fn start(&mut self, now: Nanos) {
        if self.phase == Phase::Waiting {
            self.phase = Phase::Running;
            self.started = now;
            self.last_activity = now;
        }
    }

    /// Ends the stream as if the stop signal had been raised, for another reason.
    pub fn stop(&mut self, reason: EndReason) {
        if matches!(self.phase, Phase::Waiting | Phase::Running) {
            self.phase = Phase::Draining;
            self.ended = Some(reason);
        }
    }

    /// The next time at which something happens by itself. Deadlines stand still while blocked.
    pub(super) fn wake_up(&self) -> Option<Nanos> {
        if self.phase != Phase::Running || self.stalled.is_some() {
            return None;
        }
        let deadline = self.reassembly.deadline().map(|at| at.plus(self.blocked));
        let wait = if self.first_activity.is_some() {
            self.config.quiesce_wait
        } else {
            self.config.startup_wait
        };
        let idle = self.last_activity.plus(wait);
        let limit = self.config.time_limit.map(|limit| self.started.plus(limit));
        [deadline, Some(idle), limit].into_iter().flatten().min()
    }

    pub(super) fn heed_signals(&mut self) {
        if !matches!(self.phase, Phase::Waiting | Phase::Running) {
            return;
        }
        if self.end.signals.consumer_dead.get() {
            self.stop(EndReason::ConsumerDead);
        } else if self.end.signals.stop.get() {
            self.stop(EndReason::Stopped);
        }
    }

    /// Whether the run is over; `silent`: the sender is done and nothing is left to process.
    pub(super) fn check_end(&mut self, now: Nanos, silent: bool) {
        if self.phase != Phase::Running {
            return;
        }
        let complete = self.config.owed_images.is_some_and(|owed| self.handed >= owed && owed > 0);
        let waited = now.since(self.last_activity);
        let reason = if complete {
            EndReason::Complete
        } else if silent {
            EndReason::SenderDone
        } else if self.config.time_limit.is_some_and(|limit| now.since(self.started) >= limit) {
            EndReason::TimeLimit
        } else if self.stalled.is_some() {
            return;
        } else if self.first_activity.is_none() && waited >= self.config.startup_wait {
            EndReason::NothingArrived
        } else if self.first_activity.is_some() && waited >= self.config.quiesce_wait {
            EndReason::Quiet
        } else {
            return;
        };
        self.stop(reason);
    }

    /// The run is over: processes what was polled, then ends the stream.
    pub(super) fn drain(&mut self, now: Nanos) -> bool {
        let mut busy = self.resume(now);
        while planted!(StopForgets)
            && let Some(packet) = self.backlog.pop()
        {
            self.retire(packet);
        }
        busy |= self.process(now);
        if self.backlog.is_empty() && self.stalled.is_none() {
            self.reassembly.finish(self.unblocked(now));
            self.run_actions(None, now);
            self.phase = Phase::Finishing;
            busy = true;
        }
        busy
    }
}
