//! What must hold when a run is over, and how it came out.

use tensorwire_core::pipeline::consumer::ConsumerFailure;
use tensorwire_core::pipeline::producer::EndReason;
use tensorwire_core::port::{RxQueue, TxQueue};

use super::super::check;
use super::super::outcome::{Ending, Failure, Outcome};
use super::super::parts::refused;
use super::super::violation::Violation;
use super::Simulation;
use crate::trace;

impl Simulation<'_, '_, '_> {
    /// Writes the last line of the log, if there is one. A process that ends at once writes none.
    pub(super) fn close_log(&self) -> Result<(), Failure> {
        let Some(log) = self.log.as_ref().filter(|_| !self.ending().at_once()) else {
            return Ok(());
        };
        trace::lock(log).finish(&self.receiver.report()).map_err(|error| refused(&error))
    }

    /// What holds when the run has ended.
    pub(super) fn check_end(&mut self) -> Result<(), Violation> {
        self.side.borrow_mut().arrive(u64::MAX);
        let died = self.world.borrow().consumer_died;
        let all_free = self.receiver.all_buffers_free();
        let (free, _) = self.receiver.buffers();
        let all = self.plan.buffers as u64;
        // What a consumer had that died is lost with it; every step has counted it.
        if !died {
            Violation::count("free batch buffers in the end", free as u64, all)?;
            Violation::count("pools of free batch buffers", all_free.into(), 1)?;
        }
        let side = self.side.borrow();
        let between = self.world.borrow().between.unwrap_or_default();
        Violation::count("packets that the poller left on their way back", between.back, 0)?;
        let forward = usize::try_from(between.forward).unwrap_or(usize::MAX);
        let on_nic = side.rx.waiting() + self.cable.borrow().staged() + forward;
        let waiting = self.world.borrow().truth.waiting.len() as u64;
        Violation::count("frames left on the NIC", on_nic as u64, waiting)?;
        // What was on its way to a producer that has ended is the NIC's to reclaim.
        let (free, all) = (side.free() as u64 + between.forward, self.plan.rx_bufs as u64);
        Violation::count("free packet buffers in the end", free, all)?;
        Violation::count("foreign packets", side.rx.foreign(), 0)?;
        let report = self.receiver.report();
        if report.end.is_none() {
            return Err(Violation::End { reason: None });
        }
        if report.end == Some(EndReason::SenderDone) {
            // Whoever reads the counters of the run finds every frame that was sent.
            let seen = report.nic;
            let nic = side.rx.stats();
            Violation::count("frames told as missed", seen.missed, nic.missed)?;
            Violation::count("frames told as errors", seen.errors, nic.errors)?;
            Violation::count("frames told as without a buffer", seen.no_buffer, nic.no_buffer)?;
        }
        check::end(self.plan, &mut self.world.borrow_mut(), &report, self.inference.counters())
    }

    /// What holds when a second signal has ended the process in the middle of the run. Nothing is
    /// stepped any more, so nothing can be delivered: what was, is all there is. Each delivery was
    /// checked when it came (whole, in order, once) and every packet and buffer after the last
    /// step; what is left is that no image came too early.
    pub(super) fn check_cut(&self) -> Result<(), Violation> {
        let world = &mut *self.world.borrow_mut();
        if self.before.end.is_some() {
            // The first signal, or something else, had ended the stream.
            world.model.finish();
        }
        Violation::count(
            "images delivered",
            self.inference.counters().delivered,
            world.taken.len() as u64,
        )?;
        check::taken_are_whole(world)
    }

    /// How the program must end, by what is known of the run.
    pub(super) fn ending(&self) -> Ending {
        if let Ok(Some(ending)) = self.interrupts.ended() {
            return ending;
        }
        let world = self.world.borrow();
        let (counters, report) = (self.inference.counters(), self.receiver.report());
        let lost = counters.infer_failed + report.images.dropped.infer_failed;
        let broken = matches!(report.end, Some(EndReason::ReorderFailed(_)));
        if world.consumer_died {
            return Ending::Internal;
        }
        match self.inference.failure() {
            Some(ConsumerFailure::Sink(_)) => Ending::File,
            Some(_) => Ending::Device,
            None if broken || lost > 0 => Ending::Device,
            None if world.refused > 0 => Ending::File,
            None if world.taken.len() as u64 >= self.plan.sent_images() => Ending::Complete,
            None => Ending::Owed,
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        let ending = self.ending();
        let world = self.world.borrow();
        Outcome {
            steps: self.steps,
            trace: self.trace,
            ended: self.clock.now(),
            producer: self.receiver.report(),
            consumer: *self.inference.counters(),
            failure: self.inference.failure(),
            wire: self.sender.queue().stats(),
            delivered: world.taken.clone(),
            events: world.injector.happened().to_vec(),
            ending,
            rx_poll: self.plan.rx_poll,
            certain: world.model.certain().is_some(),
        }
    }
}
