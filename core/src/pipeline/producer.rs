//! The producer: polls the NIC, parses, places, closes batches and hands them to the consumer.
#![forbid(unsafe_code)]

mod handover;
mod lifetime;
mod report;
mod settings;

pub use report::{EndReason, ProducerReport, ProducerStatus};
pub use settings::{Backpressure, MissingPolicy, ProducerConfig};

use crate::burst::{Burst, BurstPool, Filling, PacketDesc};
use crate::counters::{ImageCounters, PacketCounters, RangeList};
use crate::limits::{MAX_POLL, MAX_WINDOWS};
use crate::pipeline::backlog::Backlog;
use crate::pipeline::{Next, ProducerEnd};
use crate::port::{Reorder, RxQueue};
use crate::reassembly::{Action, DropCause, Place, Reassembly};
use crate::time::Nanos;

/// How many packets lie between the one that is processed and the one whose bytes are asked for:
/// at some 200 ns each, about as long as memory takes.
const PREFETCH: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not ready: frames that arrive are counted as early and given back.
    Waiting,
    Running,
    /// What was polled is processed, then the stream is finished.
    Draining,
    /// The stream is finished; its last actions run.
    Finishing,
    /// Submitted reorders complete and give their packets back.
    Flushing,
    Done,
}

/// The receive side of a pipeline. `Q` is a queue of a NIC, `O` the reorder stage.
#[derive(Debug)]
pub struct Producer<'a, Q, O> {
    config: ProducerConfig,
    rx: Q,
    reorder: O,
    end: ProducerEnd<'a>,
    reassembly: Reassembly<PacketDesc>,
    pool: BurstPool,
    backlog: Backlog<'a>,
    buffers: [Option<Burst<Filling>>; MAX_WINDOWS],
    /// When the newest packet of each window came.
    newest: [Nanos; MAX_WINDOWS],
    /// Packets of each window that the reorder stage keeps.
    kept: [usize; MAX_WINDOWS],
    /// Packets of submitted reorders that have not come back.
    in_reorder: usize,
    /// The action that waits for a buffer or for room in the job ring.
    stalled: Option<Action<PacketDesc>>,
    /// Packets to give back to the NIC, in bulk.
    spent: [PacketDesc; MAX_POLL],
    spent_len: usize,

    phase: Phase,
    started: Nanos,
    blocked: Nanos,
    blocked_since: Option<Nanos>,
    first_activity: Option<Nanos>,
    last_activity: Nanos,
    ended: Option<EndReason>,
    packets: PacketCounters,
    images: ImageCounters,
    handed: u64,
    pushed: u64,
    damaged: RangeList,
    missing: RangeList,
}

impl<'a, Q: RxQueue, O: Reorder> Producer<'a, Q, O> {
    /// A producer that is not ready yet: until [`Producer::start`], what arrives is counted as
    /// early and given back.
    ///
    /// `backlog` is room for the packets that are polled while the producer is blocked: as many as
    /// the NIC has packet buffers, [`MAX_POLL`] at least. `pool` are the batch buffers that
    /// `reorder` writes to.
    pub fn new(
        config: ProducerConfig,
        rx: Q,
        reorder: O,
        pool: BurstPool,
        end: ProducerEnd<'a>,
        backlog: &'a mut [PacketDesc],
    ) -> Self {
        let reassembly = Reassembly::new(&config.geometry, config.windows, config.timeout);
        Self {
            config,
            rx,
            reorder,
            end,
            reassembly,
            pool,
            backlog: Backlog::new(backlog),
            buffers: [const { None }; MAX_WINDOWS],
            newest: [Nanos::ZERO; MAX_WINDOWS],
            kept: [0; MAX_WINDOWS],
            in_reorder: 0,
            stalled: None,
            spent: [const { PacketDesc::EMPTY }; MAX_POLL],
            spent_len: 0,
            phase: Phase::Waiting,
            started: Nanos::ZERO,
            blocked: Nanos::ZERO,
            blocked_since: None,
            first_activity: None,
            last_activity: Nanos::ZERO,
            ended: None,
            packets: PacketCounters::default(),
            images: ImageCounters::default(),
            handed: 0,
            pushed: 0,
            damaged: RangeList::new(),
            missing: RangeList::new(),
        }
    }

    /// What was counted so far; balanced at any time.
    #[must_use]
    pub fn report(&self) -> ProducerReport {
        let status = self.status();
        ProducerReport {
            packets: status.packets,
            reassembly: status.reassembly,
            images: status.images,
            damaged: self.damaged.clone(),
            missing: self.missing.clone(),
            pushed: status.pushed,
            nic: self.rx.stats(),
            join: self.reassembly.join(),
            next: self.reassembly.next(),
            end: status.end,
            active: self.first_activity.map(|first| (first, self.last_activity)),
            blocked: status.blocked,
        }
    }

    /// The counters alone, and where the producer stands.
    #[must_use]
    pub fn status(&self) -> ProducerStatus {
        let reassembly = *self.reassembly.counters();
        let backlog = self.backlog.len();
        let mut packets = self.packets;
        packets.placed = reassembly.placed;
        packets.duplicate = reassembly.duplicate;
        packets.late = reassembly.late;
        packets.wild = reassembly.wild;
        packets.held = self.reassembly.held() + backlog as u64;
        let mut images = self.images;
        images.pending = self.handed;
        ProducerStatus {
            packets,
            reassembly,
            images,
            pushed: self.pushed,
            end: self.ended,
            backlog,
            waiting: self.stalled.is_some(),
            blocked: self.blocked,
            returning: self.end.returns.len(),
        }
    }

    /// Batch buffers by state, as far as the producer can see: free and filling here. The rest is
    /// ready, in flight, retained or on its way back.
    #[must_use]
    pub fn buffers(&self) -> (usize, usize) {
        (self.pool.free(), self.buffers.iter().flatten().count())
    }

    /// After the consumer has ended: takes the last buffers back and says whether all are there.
    #[must_use]
    pub fn all_buffers_free(&mut self) -> bool {
        self.take_returns();
        self.pool.free() == usize::from(self.pool.buffers())
    }

    /// The queue, for its own reports.
    pub const fn rx(&self) -> &Q {
        &self.rx
    }

    /// The queue, for what is left in it when the producer has ended.
    pub const fn rx_mut(&mut self) -> &mut Q {
        &mut self.rx
    }

    /// The reorder stage, for its own reports.
    pub const fn reorder(&self) -> &O {
        &self.reorder
    }

    /// Does one round of work: takes buffers and packets back, polls the NIC once, processes at
    /// most [`MAX_POLL`] packets. Bounded, and never blocks.
    pub fn step(&mut self, now: Nanos) -> Next {
        let mut busy = self.take_returns();
        busy |= self.collect_reordered();
        self.heed_signals();
        match self.phase {
            Phase::Waiting => busy |= self.discard_early(),
            Phase::Running => busy |= self.run(now),
            Phase::Draining => busy |= self.drain(now),
            Phase::Finishing => {
                busy |= self.resume(now);
                if self.stalled.is_none() {
                    self.phase = Phase::Flushing;
                    busy = true;
                }
            }
            Phase::Flushing => {
                if self.in_reorder == 0 {
                    self.end.signals.producer_done.set();
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
        self.give_back();
        match (self.phase, busy) {
            (Phase::Done, _) => Next::Done,
            (_, true) => Next::Again,
            (_, false) => Next::Wait(self.wake_up()),
        }
    }

    /// Whether waiting for the consumer makes sense.
    fn may_wait(&self) -> bool {
        let dead = self.end.signals.consumer_dead.get() && !planted!(DeadUnseen);
        self.config.backpressure == Backpressure::Block && !dead
    }

    fn take_returns(&mut self) -> bool {
        let mut any = false;
        while let Some(burst) = self.end.returns.pop() {
            any = true;
            // The ring carries what this producer handed over; another pool's buffer cannot be in
            // it, and the pool would refuse it.
            let taken = self.pool.put(burst);
            debug_assert!(taken.is_ok(), "a foreign buffer came back: {taken:?}");
        }
        any
    }

    fn collect_reordered(&mut self) -> bool {
        let mut any = false;
        loop {
            self.give_back();
            let came = self.reorder.poll_done(&mut self.spent);
            self.spent_len = came;
            self.in_reorder = self.in_reorder.saturating_sub(came);
            any |= came > 0;
            if came < self.spent.len() {
                return any;
            }
        }
    }

    /// Gives the spent packets back to the NIC.
    fn give_back(&mut self) {
        if self.spent_len > 0
            && let Some(spent) = self.spent.get_mut(..self.spent_len)
        {
            self.rx.release(spent);
            self.spent_len = 0;
        }
    }

    #[inline]
    fn retire(&mut self, packet: PacketDesc) {
        if self.spent_len == self.spent.len() {
            self.give_back();
        }
        if let Some(slot) = self.spent.get_mut(self.spent_len) {
            *slot = packet;
            self.spent_len += 1;
        }
    }

    fn discard_early(&mut self) -> bool {
        let came = self.rx.rx_burst(&mut self.spent);
        self.spent_len = came;
        self.packets.offered += came as u64;
        if !planted!(EarlyUncounted) {
            self.packets.early += came as u64;
        }
        came > 0
    }

    fn run(&mut self, now: Nanos) -> bool {
        // Read before the poll: what the sender sent before it raised the flag is then seen.
        let sender_done = self.end.signals.sender_done.get();
        let mut busy = self.resume(now);
        let (asked, came) = self.poll();
        busy |= came > 0;
        let caught_up = if came < asked { self.rx.caught_up(now) } else { None };
        let caught_up = if planted!(DeadlineUnpolled) { Some(now) } else { caught_up };
        busy |= self.process(now);
        let settled = self.backlog.is_empty() && self.stalled.is_none();
        if let Some(at) = caught_up.filter(|_| settled) {
            self.reassembly.tick(self.unblocked(at));
            busy |= self.run_actions(None, now);
            self.relieve(now);
        } else {
            // Relief has to know that the NIC is empty. Nothing may come any more that would end a
            // wait, so this is asked again at once.
            busy |= settled && self.is_short();
        }
        self.check_end(now, sender_done && settled && asked > 0 && came == 0);
        busy
    }

    /// Takes packets from the NIC, unless the producer is blocked and the pool at its floor.
    fn poll(&mut self) -> (usize, usize) {
        if self.stalled.is_some() && self.rx.free_buffers() <= self.config.rx_ring {
            return (0, 0);
        }
        let rx = &mut self.rx;
        let limit = self.config.poll.clamp(1, MAX_POLL);
        let (asked, came) = self.backlog.fill(limit, |out| rx.rx_burst(out));
        self.packets.offered += came as u64;
        (asked, came)
    }

    fn process(&mut self, now: Nanos) -> bool {
        let mut any = false;
        let effective = self.unblocked(now);
        for _ in 0..MAX_POLL {
            if self.stalled.is_some() {
                break;
            }
            let Some(packet) = self.backlog.pop() else { break };
            any = true;
            if let Some(next) = self.backlog.behind(PREFETCH) {
                self.rx.prefetch(next);
            }
            self.take_packet(packet, now, effective);
        }
        any
    }

    /// Parses one packet and carries out what the reassembly decides.
    #[inline]
    fn take_packet(&mut self, packet: PacketDesc, now: Nanos, effective: Nanos) {
        let bytes = self.rx.bytes(&packet);
        let wire = match self.config.check.check(bytes, packet.len(), packet.flow()) {
            Ok(accepted) => {
                self.packets.trimmed += u64::from(accepted.trimmed);
                accepted.wire
            }
            Err(refused) => {
                refused.count(&mut self.packets);
                self.retire(packet);
                return;
            }
        };
        if self.first_activity.is_none() {
            self.first_activity = Some(now);
        }
        self.last_activity = now;
        if let Some(Place { window, slot }) = self.reassembly.place(wire, effective) {
            if let Err(waits) = self.place(window, slot, packet, now) {
                self.stall(waits, now);
            } else if self.reassembly.is_due() {
                self.run_actions(None, now);
            }
            return;
        }
        self.take_rare(packet, wire, now, effective);
    }

    /// What the reassembly does not place at once.
    #[inline(never)]
    fn take_rare(&mut self, packet: PacketDesc, wire: u32, now: Nanos, effective: Nanos) {
        match self.reassembly.accept(packet, wire, effective) {
            Ok(first) => {
                self.run_actions(first, now);
            }
            // Cannot be: a packet is taken only when no action is left. It would be lost from the
            // accounting, so it is dropped by name.
            Err(busy) => {
                self.packets.no_buffer += 1;
                self.retire(busy.0);
            }
        }
    }

    /// Carries out `first` and all that follow; stops at one that has to wait. Whether any was.
    fn run_actions(&mut self, first: Option<Action<PacketDesc>>, now: Nanos) -> bool {
        let mut any = false;
        let mut action = first.or_else(|| self.reassembly.next_action());
        while let Some(current) = action {
            match self.carry_out(current, now) {
                Ok(()) => any = true,
                Err(waits) => {
                    self.stall(waits, now);
                    return any;
                }
            }
            action = self.reassembly.next_action();
        }
        any
    }

    /// The action has to wait, and with it the stream.
    #[cold]
    fn stall(&mut self, action: Action<PacketDesc>, now: Nanos) {
        self.stalled = Some(action);
        if self.blocked_since.is_none() {
            self.blocked_since = Some(now);
        }
    }

    /// Tries the stalled action again.
    fn resume(&mut self, now: Nanos) -> bool {
        let Some(action) = self.stalled.take() else { return self.run_actions(None, now) };
        let since = self.blocked_since;
        let any = self.run_actions(Some(action), now);
        if self.stalled.is_none()
            && let Some(since) = since
        {
            self.blocked = self.blocked.plus(now.since(since));
            self.blocked_since = None;
            // The stream was not silent, it was not listened to.
            self.last_activity = now;
        }
        any
    }

    /// `now` without the time spent blocked.
    fn unblocked(&self, now: Nanos) -> Nanos {
        let current = self.blocked_since.map_or(Nanos::ZERO, |since| now.since(since));
        now.since(self.blocked.plus(current))
    }

    #[inline]
    fn carry_out(
        &mut self,
        action: Action<PacketDesc>,
        now: Nanos,
    ) -> Result<(), Action<PacketDesc>> {
        match action {
            Action::Place { window, slot, packet } => self.place(window, slot, packet, now),
            Action::Drop {
                packet,
                cause: DropCause::Duplicate | DropCause::Late | DropCause::Wild,
            } => {
                if !planted!(LostPacket) {
                    self.retire(packet);
                }
                Ok(())
            }
            Action::Close { window } => self.close(window).map_err(|()| Action::Close { window }),
            Action::Gap(gap) => {
                self.note_gap(&gap);
                Ok(())
            }
        }
    }

    /// Where packets are kept until their batch closes: closes the oldest batch when the NIC is
    /// about to run out of buffers. Without this a stream with holes and no timeout would stop.
    fn relieve(&mut self, now: Nanos) {
        // A close that waits for the consumer goes first: it frees buffers, too, and what the
        // reassembly says of it must stand until it is carried out.
        if self.stalled.is_some() || planted!(NoRelief) {
            return;
        }
        if self.is_short() {
            self.reassembly.relieve(self.unblocked(now));
            self.run_actions(None, now);
        }
    }

    /// Whether packets are kept that the NIC is about to need, and none is on its way back.
    fn is_short(&self) -> bool {
        let kept: usize = self.kept.iter().sum();
        kept > 0 && self.in_reorder == 0 && self.rx.free_buffers() < self.config.rx_ring
    }
}
