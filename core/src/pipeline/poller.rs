//! The poller of a *split* receive side: it only polls the NIC and passes descriptors on.
//!
//! ```text
//! NIC ─rx_burst→ Poller ─ring→ SplitQueue (the producer's RxQueue)
//! NIC ←release─  Poller ←ring─ SplitQueue
//! ```
#![forbid(unsafe_code)]

use crate::burst::PacketDesc;
use crate::counters::NicStats;
use crate::limits::{MAX_POLL, MAX_SPLIT};
use crate::pipeline::Next;
use crate::port::{PacketMemory, RxQueue};
use crate::ring::{CapacityError, Receiver, Ring, Sender};
use crate::sync::{Flag, Published};

/// What poller and producer share.
#[derive(Debug)]
pub struct SplitLink {
    received: Ring<PacketDesc, MAX_SPLIT>,
    released: Ring<PacketDesc, MAX_SPLIT>,
    shared: Shared,
}

#[derive(Debug)]
struct Shared {
    stop: Flag,
    free: Published,
    missed: Published,
    errors: Published,
    no_buffer: Published,
}

impl Default for SplitLink {
    fn default() -> Self {
        Self::new()
    }
}

impl SplitLink {
    /// An empty link. Large: box it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            received: Ring::new(),
            released: Ring::new(),
            shared: Shared {
                stop: Flag::new(),
                free: Published::new(),
                missed: Published::new(),
                errors: Published::new(),
                no_buffer: Published::new(),
            },
        }
    }

    /// Lends the two sides: the poller over `rx`, and the producer's queue, which reads packets
    /// through `memory`. `descriptors` are on their way to the producer at most (2 × the NIC's
    /// ring); `buffers` is the number of packet buffers of the NIC, so that a release never fails.
    ///
    /// # Errors
    ///
    /// [`CapacityError`] when one of the two is not in 1..=[`MAX_SPLIT`].
    pub fn split<Q: RxQueue, M: PacketMemory>(
        &mut self,
        rx: Q,
        memory: M,
        descriptors: usize,
        buffers: usize,
    ) -> Result<(Poller<'_, Q>, SplitQueue<'_, M>), CapacityError> {
        self.shared.free.set(rx.free_buffers() as u64);
        let (forward_in, forward_out) = self.received.split(descriptors)?;
        let (back_in, back_out) = self.released.split(buffers)?;
        let shared = &self.shared;
        let poller = Poller {
            rx,
            forward: forward_in,
            back: back_out,
            shared,
            batch: [const { PacketDesc::EMPTY }; MAX_POLL],
            drained: false,
        };
        Ok((poller, SplitQueue { forward: forward_out, back: back_in, memory, shared }))
    }
}

/// Polls the NIC and passes descriptors on, each way.
#[derive(Debug)]
pub struct Poller<'a, Q> {
    rx: Q,
    forward: Sender<'a, PacketDesc, MAX_SPLIT>,
    back: Receiver<'a, PacketDesc, MAX_SPLIT>,
    shared: &'a Shared,
    batch: [PacketDesc; MAX_POLL],
    drained: bool,
}

impl<Q: RxQueue> Poller<'_, Q> {
    /// Does one round of work: one burst each way. Takes no more from the NIC than the ring has
    /// room for, so what cannot be passed on waits in the NIC. Never blocks.
    pub fn step(&mut self) -> Next {
        // Read before the rings: what the producer released before it raised the flag is seen.
        let stopping = self.shared.stop.get();
        let freed = self.back.pop_batch(&mut self.batch);
        if let Some(batch) = self.batch.get_mut(..freed) {
            self.rx.release(batch);
        }
        let room = self.forward.free().min(MAX_POLL);
        let mut came = 0;
        self.drained = false;
        if !stopping
            && let Some(batch) = self.batch.get_mut(..room)
            && !batch.is_empty()
        {
            came = self.rx.rx_burst(batch);
            self.drained = came == 0;
            if let Some(batch) = batch.get_mut(..came) {
                let passed = self.forward.push_batch(batch);
                debug_assert_eq!(passed, came, "there was room");
                if passed < came {
                    // Cannot be: only this end pushes. Given back rather than lost.
                    self.rx.release(batch);
                }
            }
        }
        self.publish();
        match (stopping && freed == 0, freed + came > 0) {
            (true, _) => Next::Done,
            (_, true) => Next::Again,
            (_, false) => Next::Wait(None),
        }
    }

    /// Whether the last step asked the NIC for packets and it had none.
    ///
    /// The producer sees what was passed on, not what the NIC still holds. So where the sender is
    /// ours too, [`sender_done`](crate::pipeline::Signals::sender_done) is raised by whoever steps
    /// the poller: once a step that began after the last frame was sent leaves this true.
    #[must_use]
    pub const fn drained(&self) -> bool {
        self.drained
    }

    fn publish(&self) {
        let stats = self.rx.stats();
        self.shared.free.set(self.rx.free_buffers() as u64);
        self.shared.missed.set(stats.missed);
        self.shared.errors.set(stats.errors);
        self.shared.no_buffer.set(stats.no_buffer);
    }

    /// The queue, for its own reports.
    pub const fn rx(&self) -> &Q {
        &self.rx
    }
}

/// The producer's queue where another thread polls the NIC.
#[derive(Debug)]
pub struct SplitQueue<'a, M> {
    forward: Receiver<'a, PacketDesc, MAX_SPLIT>,
    back: Sender<'a, PacketDesc, MAX_SPLIT>,
    memory: M,
    shared: &'a Shared,
}

impl<M> SplitQueue<'_, M> {
    /// Tells the poller to end, once everything was released. What is still in the ring to the
    /// producer stays the NIC's to reclaim when it closes.
    pub fn close(&self) {
        self.shared.stop.set();
    }
}

impl<M: PacketMemory> PacketMemory for SplitQueue<'_, M> {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.memory.bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        self.memory.prefetch(packet);
    }
}

impl<M: PacketMemory> RxQueue for SplitQueue<'_, M> {
    #[inline]
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        self.forward.pop_batch(out)
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        // Slots without a packet have no buffer to go back.
        for packets in packets.split_mut(PacketDesc::is_none) {
            let count = packets.len();
            let passed = self.back.push_batch(packets);
            debug_assert_eq!(passed, count, "the ring has an entry for every buffer");
        }
    }

    fn free_buffers(&self) -> usize {
        usize::try_from(self.shared.free.get()).unwrap_or(usize::MAX)
    }

    fn stats(&self) -> NicStats {
        NicStats {
            missed: self.shared.missed.get(),
            errors: self.shared.errors.get(),
            no_buffer: self.shared.no_buffer.get(),
        }
    }
}

#[cfg(test)]
mod tests;
