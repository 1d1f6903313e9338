//! What becomes of the decisions of the reassembly: packets to the reorder stage, batches to the
//! consumer, images that are not whole to the counters.
#![forbid(unsafe_code)]

use super::{MissingPolicy, Producer};
use crate::burst::{Burst, Filling, PacketDesc};
use crate::counters::RangeList;
use crate::pipeline::producer::EndReason;
use crate::pipeline::{Anchor, Job};
use crate::port::{Event, Reorder, RxQueue};
use crate::reassembly::{Action, Gap};
use crate::time::Nanos;
use crate::window::{CloseCause, Closed, ImageMask};

impl<Q: RxQueue, O: Reorder> Producer<'_, Q, O> {
    #[inline]
    pub(super) fn place(
        &mut self,
        window: u8,
        slot: u32,
        mut packet: PacketDesc,
        now: Nanos,
    ) -> Result<(), Action<PacketDesc>> {
        let w = usize::from(window);
        let Some(buffer) = self.buffers.get_mut(w) else {
            self.retire(packet);
            return Ok(());
        };
        if buffer.is_none() {
            *buffer = self.pool.take().map(Burst::begin);
        }
        let Some(buffer) = buffer else {
            if self.may_wait() {
                return Err(Action::Place { window, slot, packet });
            }
            self.reassembly.unplace(window, slot);
            self.packets.no_buffer += 1;
            self.retire(packet);
            return Ok(());
        };
        // Before the stage may take the packet. What the NIC says cannot be later than now.
        let arrived = self.rx.arrived(&packet).map_or(now, |at| at.min(now));
        self.reorder.place(buffer, slot, &mut packet, &self.rx);
        if let Some(newest) = self.newest.get_mut(w) {
            *newest = arrived;
        }
        if packet.is_none() {
            if let Some(kept) = self.kept.get_mut(w) {
                *kept += 1;
            }
        } else {
            self.retire(packet);
        }
        Ok(())
    }

    /// Hands the closed batch over, or gives it up. `Err` when it has to wait for the consumer.
    pub(super) fn close(&mut self, window: u8) -> Result<(), ()> {
        let w = usize::from(window);
        let closed = *self.reassembly.closed();
        let Some(mut buffer) = self.buffers.get_mut(w).and_then(Option::take) else {
            // Every packet of it was dropped for want of a buffer.
            self.note_closed(&closed);
            return Ok(());
        };
        let whole = u64::from(closed.whole.count());
        let partial = closed.cause != CloseCause::Complete;
        let given_up = whole == 0 || (partial && self.config.missing == MissingPolicy::Drop);
        if !given_up && self.end.jobs.free() == 0 && self.may_wait() {
            if let Some(slot) = self.buffers.get_mut(w) {
                *slot = Some(buffer);
            }
            return Err(());
        }
        self.note_closed(&closed);
        let kept = self.kept.get_mut(w).map_or(0, core::mem::take);
        self.in_reorder += kept;
        if given_up || self.end.jobs.free() == 0 {
            self.reorder.abandon(&mut buffer);
            self.recycle(buffer);
            let dropped = &mut self.images.dropped;
            if self.end.signals.consumer_dead.get() {
                dropped.infer_failed += whole;
            } else if given_up {
                dropped.policy += whole;
            } else if !planted!(UncountedDrop) {
                dropped.queue_full += whole;
            }
            return Ok(());
        }
        self.hand_over(buffer, &closed, window);
        Ok(())
    }

    fn hand_over(&mut self, mut buffer: Burst<Filling>, closed: &Closed, window: u8) {
        let whole = u64::from(closed.whole.count());
        let event = match self.reorder.start(&mut buffer, self.reassembly.slots(window)) {
            Ok(event) => event,
            Err(error) => {
                self.recycle(buffer);
                self.images.dropped.infer_failed += whole;
                if error.fatal {
                    self.stop(EndReason::ReorderFailed(error));
                }
                return;
            }
        };
        let job = self.job(buffer, closed, event, window);
        match self.end.jobs.push(job) {
            Ok(()) => {
                self.pushed += 1;
                self.handed += whole;
            }
            // Cannot be: only this end pushes, and there was room.
            Err(full) => {
                self.images.dropped.queue_full += whole;
                let burst = full.0.burst.discard();
                let taken = self.pool.put(burst);
                debug_assert!(taken.is_ok(), "its own buffer was refused: {taken:?}");
            }
        }
    }

    fn job(&self, buffer: Burst<Filling>, closed: &Closed, event: Event, window: u8) -> Job {
        let images = u64::from(self.config.geometry.images_per_batch());
        // A batch that a discontinuity closed lies before it.
        let before = u64::from(closed.cause == CloseCause::Discontinuity);
        let seen = self.reassembly.counters().discontinuities;
        Job {
            burst: buffer.seal(),
            batch: closed.batch,
            first_image: if planted!(LabelsByArrival) {
                self.pushed * images
            } else {
                closed.batch * images
            },
            whole: closed.whole,
            event,
            last_packet: self.newest.get(usize::from(window)).copied().unwrap_or_default(),
            anchor: Anchor {
                join: self.reassembly.join().unwrap_or_default(),
                discontinuities: seen - before,
            },
        }
    }

    fn recycle(&mut self, buffer: Burst<Filling>) {
        let taken = self.pool.put(buffer.abandon());
        debug_assert!(taken.is_ok(), "its own buffer was refused: {taken:?}");
    }

    /// Counts the images of a closed batch that are not whole, and names them.
    fn note_closed(&mut self, closed: &Closed) {
        if closed.cause == CloseCause::Complete {
            return;
        }
        let first = closed.batch * u64::from(self.config.geometry.images_per_batch());
        let name = |list: &mut RangeList, images: &ImageMask| {
            for image in images.iter() {
                let index = first + u64::from(image);
                list.add(index, index);
            }
            u64::from(images.count())
        };
        self.images.damaged += name(&mut self.damaged, &closed.damaged);
        self.images.missing += name(&mut self.missing, &closed.missing);
        self.images.unfinished += u64::from(closed.unfinished.count());
    }

    pub(super) fn note_gap(&mut self, gap: &Gap) {
        for &(first, count) in gap.missing.iter().filter(|(_, count)| *count > 0) {
            self.images.missing += count;
            self.missing.add(first, first + count - 1);
        }
    }
}
