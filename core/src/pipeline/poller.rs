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
use crate::pipeline::{Next, Signals};
use crate::port::{PacketMemory, RxQueue};
use crate::ring::{CapacityError, Receiver, Ring, Sender};
use crate::sync::{Flag, Published, Rounds};
use crate::time::Nanos;

/// What poller and producer share. `SLOTS` bounds both rings; only a test wants it smaller.
#[derive(Debug)]
pub struct SplitLink<const SLOTS: usize = MAX_SPLIT> {
    received: Ring<PacketDesc, SLOTS>,
    released: Ring<PacketDesc, SLOTS>,
    shared: Shared,
}

#[derive(Debug)]
struct Shared {
    stop: Flag,
    /// Steps of the poller that found the NIC empty.
    empty: Rounds,
    free: Published,
    missed: Published,
    errors: Published,
    no_buffer: Published,
}

impl<const SLOTS: usize> Default for SplitLink<SLOTS> {
    fn default() -> Self {
        Self::with_slots()
    }
}

impl SplitLink {
    /// An empty link for any NIC. Large: box it.
    #[must_use]
    pub fn new() -> Self {
        Self::with_slots()
    }
}

impl<const SLOTS: usize> SplitLink<SLOTS> {
    /// An empty link of another size.
    #[must_use]
    pub fn with_slots() -> Self {
        Self {
            received: Ring::new(),
            released: Ring::new(),
            shared: Shared {
                stop: Flag::new(),
                empty: Rounds::new(),
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
    /// [`CapacityError`] when one of the two is not in 1..=`SLOTS`.
    pub fn split<Q: RxQueue, M: PacketMemory>(
        &mut self,
        rx: Q,
        memory: M,
        descriptors: usize,
        buffers: usize,
    ) -> Result<Ends<'_, Q, M, SLOTS>, CapacityError> {
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
        let (empty, mark) = (0, (shared.empty.made(), Nanos::ZERO));
        let (forward, back) = (forward_out, back_in);
        Ok((poller, SplitQueue { forward, back, memory, shared, empty, mark }))
    }
}

/// The two sides of a [`SplitLink`].
type Ends<'a, Q, M, const SLOTS: usize> = (Poller<'a, Q, SLOTS>, SplitQueue<'a, M, SLOTS>);

/// Polls the NIC and passes descriptors on, each way.
#[derive(Debug)]
pub struct Poller<'a, Q, const SLOTS: usize = MAX_SPLIT> {
    rx: Q,
    forward: Sender<'a, PacketDesc, SLOTS>,
    back: Receiver<'a, PacketDesc, SLOTS>,
    shared: &'a Shared,
    batch: [PacketDesc; MAX_POLL],
    drained: bool,
}

impl<Q: RxQueue, const SLOTS: usize> Poller<'_, Q, SLOTS> {
    /// Does one round of work: one burst each way. Takes no more from the NIC than the ring has
    /// room for, so what cannot be passed on waits in the NIC. Never blocks.
    pub fn step(&mut self) -> Next {
        // Read before the rings: what the producer released before it raised the flag is seen.
        let stopping = self.shared.stop.get();
        let freed = self.back.pop_batch(&mut self.batch);
        if let Some(batch) = self.batch.get_mut(..freed) {
            if planted!(PollerForgets) && freed > 1 {
                batch.iter_mut().skip(1).for_each(|packet| *packet = PacketDesc::EMPTY);
            }
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
            self.drained = came < room;
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

    /// A [`step`](Self::step) where the sender is ours too. The producer sees what was passed on,
    /// not what the NIC still holds, so it is the poller that raises
    /// [`sender_done`](Signals::sender_done): once a step that began after `sent` was raised (all
    /// frames are on the wire) finds the NIC empty.
    pub fn step_until(&mut self, sent: &Flag, signals: &Signals) -> Next {
        // Read before the poll: what was sent before the flag was raised is then found.
        let all_sent = sent.get();
        let next = self.step();
        if all_sent && (self.drained || planted!(DoneUnpolled)) {
            signals.sender_done.set();
        }
        next
    }

    /// Whether the last step asked the NIC for packets and it had fewer than there was room for.
    #[must_use]
    pub const fn drained(&self) -> bool {
        self.drained
    }

    /// Packets on their way to the producer, and back.
    #[must_use]
    pub fn under_way(&self) -> (usize, usize) {
        (self.forward.capacity() - self.forward.free(), self.back.len())
    }

    /// Gives everything back that is on its way to the producer or from it, once both have ended:
    /// what a run that was stopped did not take. A NIC that lends its memory wants it all back.
    pub fn reclaim<M>(&mut self, queue: &mut SplitQueue<'_, M, SLOTS>) {
        loop {
            let forward = queue.forward.pop_batch(&mut self.batch);
            self.rx.release(self.batch.get_mut(..forward).unwrap_or_default());
            let back = self.back.pop_batch(&mut self.batch);
            self.rx.release(self.batch.get_mut(..back).unwrap_or_default());
            if forward + back == 0 {
                return;
            }
        }
    }

    fn publish(&self) {
        let stats = if planted!(StatsUnshown) { NicStats::default() } else { self.rx.stats() };
        self.shared.free.set(self.rx.free_buffers() as u64);
        self.shared.missed.set(stats.missed);
        self.shared.errors.set(stats.errors);
        self.shared.no_buffer.set(stats.no_buffer);
        if self.drained {
            // Last: whoever sees it finds the packets of this step in the ring.
            self.shared.empty.count();
        }
    }

    /// The queue, for its own reports.
    pub const fn rx(&self) -> &Q {
        &self.rx
    }
}

/// The producer's queue where another thread polls the NIC.
#[derive(Debug)]
pub struct SplitQueue<'a, M, const SLOTS: usize = MAX_SPLIT> {
    forward: Receiver<'a, PacketDesc, SLOTS>,
    back: Sender<'a, PacketDesc, SLOTS>,
    memory: M,
    shared: &'a Shared,
    /// Empty steps of the poller before the last burst.
    empty: u32,
    /// How many there had been when the producer last looked, and the time of that step.
    mark: (u32, Nanos),
}

impl<M, const SLOTS: usize> SplitQueue<'_, M, SLOTS> {
    /// Tells the poller to end, once everything was released. What is still in the ring to the
    /// producer waits for [`Poller::reclaim`].
    pub fn close(&self) {
        self.shared.stop.set();
    }
}

/// A producer that goes without a word, because its thread panicked or was not to run at all, has
/// nothing to release any more, and the poller would wait for it for ever.
impl<M, const SLOTS: usize> Drop for SplitQueue<'_, M, SLOTS> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<M: PacketMemory, const SLOTS: usize> PacketMemory for SplitQueue<'_, M, SLOTS> {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.memory.bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        self.memory.prefetch(packet);
    }

    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        self.memory.arrived(packet)
    }
}

impl<M: PacketMemory, const SLOTS: usize> RxQueue for SplitQueue<'_, M, SLOTS> {
    #[inline]
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        // Read before the ring: what was passed on in these steps is then found.
        self.empty = self.shared.empty.made();
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

    /// Those on their way back count as free: the producer can do no more for them. In this order,
    /// so that a packet which arrives meanwhile is rather counted twice than not at all.
    fn free_buffers(&self) -> usize {
        let back = self.back.capacity() - self.back.free();
        let back = if planted!(ReturnsUncounted) { 0 } else { back };
        back.saturating_add(usize::try_from(self.shared.free.get()).unwrap_or(usize::MAX))
    }

    fn stats(&self) -> NicStats {
        NicStats {
            missed: self.shared.missed.get(),
            errors: self.shared.errors.get(),
            no_buffer: self.shared.no_buffer.get(),
        }
    }

    /// A step of the poller that found the NIC empty may have begun long before it was counted. Of
    /// two, the second began after the first was: so once two were counted since the producer
    /// looked, all that had arrived when it did is in the ring, and the ring has been emptied.
    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        if planted!(StallUnseen) {
            return Some(now);
        }
        let (empty, looked) = self.mark;
        if self.empty.wrapping_sub(empty) < 2 {
            return None;
        }
        self.mark = (self.empty, now);
        Some(looked.min(now))
    }
}

#[cfg(test)]
mod tests;
