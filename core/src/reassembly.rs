//! Reassembly: sequence numbers in, decisions out.
//!
//! [`Reassembly`] is told of each packet that belongs to the stream ([`Reassembly::accept`]) and of
//! the passing of time ([`Reassembly::tick`]); it answers with [`Action`]s, one at a time
//! ([`Reassembly::next_action`]), which the producer carries out. It holds no payload: `P` is
//! whatever stands for a packet (a NIC's token in the product, a number in the tests).
//!
//! # The rules
//!
//! `next` is one more than the highest position accepted, `step` the largest jump that is believed
//! at once, `N` the number of confirmations ([`Geometry::step`], [`Geometry::confirmations`]).
//!
//! - A packet at `next ..= next + step` is *plain*. So is one at most `step` behind `next` whose
//!   slot is empty in an open window, unless a run of held packets agrees with it.
//! - Any other packet is *held*. `N` held packets in a row, each within `step` of the one before,
//!   confirm each other. A plain packet, or one that disagrees, refutes them; so do a deadline,
//!   a low pool and the end of the run.
//! - Held ahead and confirmed: packets were lost. Held behind and confirmed: a *discontinuity* (the
//!   sender restarted, or more than half the number space was lost); the batches that the stream
//!   had reached close and the position is read forward.
//! - A run behind is confirmed only if more than half of it is *not* explained by empty slots at
//!   most `step` behind. Without this, one duplicate in a shuffled stream starts a run that the
//!   stream's own stragglers complete.
//! - Refuted: ahead is `wild`; behind is placed where its slot is empty in an open window (more
//!   than `step` behind only if the stream went on as expected, or ended, and never before the
//!   point where the stream began), `duplicate` where the slot is covered, `late` otherwise.
//!
//! # The limit
//!
//! A number `x` behind may also be one `2^w − x` ahead. So a burst of up to `2^w − N` lost packets
//! is placed rightly if nothing else is missing where its numbers fall, and up to `2^w − step`
//! whatever else is missing as long as `N` packets follow; a straggler is told from a loss up to
//! `step` behind, and beyond that if fewer than `N` come in a row.
//!
//! # Bounds
//!
//! Work per call is bounded by the windows and the held packets, never by the size of a gap: many
//! batches missing in a row are one [`Gap`].
#![forbid(unsafe_code)]

mod action;
mod close;
mod describe;
mod held;

pub use action::{Action, Busy, DropCause, Gap, Place, ReassemblyCounters};

use crate::geometry::Geometry;
use crate::limits::{MAX_HELD, MAX_WINDOWS};
use crate::sequence::{Distance, Position};
use crate::time::Nanos;
use crate::window::{CloseCause, Closed, SlotMap, Window};

/// A run of positions `from..to` that is not lost although nothing covers it.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    const NONE: Self = Self { from: 0, to: 0 };

    /// What of it lies in `from..to`.
    fn clip(self, from: u64, to: u64) -> Self {
        let from = self.from.max(from);
        Self { from, to: self.to.min(to).max(from) }
    }

    const fn len(self) -> u64 {
        self.to - self.from
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Join,
    Discontinuity,
}

/// A packet that waits for a decision.
#[derive(Debug)]
struct Held<P> {
    wire: u32,
    packet: P,
}

/// What is left to do for the last call; see [`Reassembly::next_action`].
#[derive(Debug)]
enum Script {
    Idle,
    /// The held packets from `at` on are refuted; `trusted`: by a stream that went on as expected,
    /// or ended.
    Refute {
        at: usize,
        trusted: bool,
    },
    /// The held packets from `at` on are placed; the first of them, `wire`, stands at `anchor`.
    Confirm {
        at: usize,
        wire: u32,
        anchor: u64,
    },
}

/// What happens once the held packets are refuted.
#[derive(Debug)]
enum After<P> {
    Nothing,
    Settle { extended: u64, packet: P },
    Hold { wire: u32, packet: P },
    CloseUpTo { batch: u64, cause: CloseCause },
}

/// The state of one stream.
#[derive(Debug)]
pub struct Reassembly<P> {
    packets_per_image: u32,
    images_per_batch: u32,
    packets_per_batch: u32,
    batch_shift: u32,
    width: u32,
    step: u32,
    confirmations: usize,
    /// K: batches open at once.
    open: u64,
    timeout: Nanos,

    windows: [Window; MAX_WINDOWS],
    /// The oldest batch that has not closed.
    base: u64,
    position: Option<Position>,
    join: Option<u32>,

    held: [Option<Held<P>>; MAX_HELD],
    held_len: usize,
    script: Script,
    after: After<P>,
    /// A packet whose position is decided but whose window may have to wait for others to close.
    pending: Option<(u64, P)>,
    /// Batches below this one are to close.
    close_to: u64,
    close_cause: CloseCause,
    /// Something is left to do for the last call; if not, [`Reassembly::next_action`] need not
    /// look.
    due: bool,
    /// The window at `base` was reported closed and is cleared before anything else happens.
    closing: bool,
    closed: Closed,

    /// Where the stream began, or began again, inside a batch.
    edge: Span,
    edge_kind: Start,
    /// The gap of a discontinuity whose windows are still closing.
    cut: Option<Span>,
    /// Bit i: the batch `base − 1 − i` was closed by its deadline.
    deadline_history: u64,
    now: Nanos,
    counters: ReassemblyCounters,
}

impl<P> Reassembly<P> {
    /// A stream of `geometry`, with `windows` batches open at once (clamped to
    /// 1..=[`MAX_WINDOWS`]) and a deadline of `timeout` after a window's first packet
    /// ([`Nanos::ZERO`]: none).
    #[must_use]
    pub fn new(geometry: &Geometry, windows: u32, timeout: Nanos) -> Self {
        let packets_per_batch = geometry.packets_per_batch();
        Self {
            packets_per_image: geometry.packets_per_image(),
            images_per_batch: geometry.images_per_batch(),
            packets_per_batch,
            batch_shift: packets_per_batch.trailing_zeros(),
            width: geometry.seq_field().width_bits(),
            step: geometry.step(),
            confirmations: (geometry.confirmations() as usize).clamp(2, MAX_HELD),
            open: u64::from(windows).clamp(1, MAX_WINDOWS as u64),
            timeout,
            windows: [Window::EMPTY; MAX_WINDOWS],
            base: 0,
            position: None,
            join: None,
            held: [const { None }; MAX_HELD],
            held_len: 0,
            script: Script::Idle,
            after: After::Nothing,
            pending: None,
            close_to: 0,
            close_cause: CloseCause::Complete,
            due: false,
            closing: false,
            closed: Closed::NONE,
            edge: Span::NONE,
            edge_kind: Start::Join,
            cut: None,
            deadline_history: 0,
            now: Nanos::ZERO,
            counters: ReassemblyCounters::default(),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }

    /// Packets that wait for a decision (held, or about to be settled).
    #[must_use]
    pub fn held(&self) -> u64 {
        let after = matches!(self.after, After::Settle { .. } | After::Hold { .. });
        let waiting = self.held.iter().filter(|held| held.is_some()).count();
        waiting as u64 + u64::from(self.pending.is_some()) + u64::from(after)
    }

    /// The wire number of the first packet, once there was one.
    #[must_use]
    pub const fn join(&self) -> Option<u32> {
        self.join
    }

    /// One more than the highest position accepted; 0 before the first packet.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.position.map_or(0, |position| position.next())
    }

    /// The batch of the last [`Action::Close`]. Valid until the next call of
    /// [`Reassembly::next_action`], [`Reassembly::accept`], [`Reassembly::tick`] or
    /// [`Reassembly::finish`].
    #[must_use]
    pub const fn closed(&self) -> &Closed {
        &self.closed
    }

    /// The covered slots of window `window`, under the same validity as [`Reassembly::closed`].
    #[must_use]
    pub fn slots(&self, window: u8) -> SlotMap<'_> {
        self.windows
            .get(usize::from(window))
            .map_or(SlotMap::new(&[], self.packets_per_batch), |w| w.map(self.packets_per_batch))
    }

    /// Windows that hold at least one packet.
    #[must_use]
    pub fn open_windows(&self) -> usize {
        self.windows.iter().filter(|w| w.count() > 0).count()
    }

    /// When the earliest deadline of the open windows is due; `None` without a timeout or without
    /// an open window. May change with every call that takes `&mut self`.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.timeout == Nanos::ZERO {
            return None;
        }
        let open = self.windows.iter().filter(|w| w.count() > 0);
        open.map(|w| w.first_packet().plus(self.timeout)).min()
    }

    /// Places a packet of the common case, in as few branches as can be told beforehand: nothing is
    /// held or due, the number is at most a step from `next` on either side, and its slot is empty
    /// in an open window. Such a packet is plain, and [`Reassembly::accept`] would place it, too:
    /// this is the same decision without the packet passing through it. Actions may follow by
    /// [`Reassembly::next_action`].
    ///
    /// `None`, and nothing changed, in every other case.
    #[inline]
    pub fn place(&mut self, wire: u32, now: Nanos) -> Option<Place> {
        // Ahead and behind are one case, since in a shuffled stream nothing foretells which it is.
        let position = self.position.as_mut()?;
        let near = position.within_step(wire)?;
        let extended = if planted!(NoUnwrap) { u64::from(wire) } else { near };
        let batch = extended >> self.batch_shift;
        // A position before the first of all has wrapped around, and its batch is no open one.
        if self.due || self.held_len != 0 || batch.wrapping_sub(self.base) >= self.open {
            return None;
        }
        let index = window_index(batch);
        let slot = slot_of(extended, self.packets_per_batch);
        let window = self.windows.get_mut(index)?;
        if !window.cover(slot, now) {
            return None;
        }
        self.due = window.count() == self.packets_per_batch;
        position.accept(extended);
        self.counters.placed += 1;
        #[expect(clippy::cast_possible_truncation, reason = "below MAX_WINDOWS = 4")]
        let window = index as u8;
        Some(Place { window, slot })
    }

    /// Takes the next packet of the stream: its number on the wire, and the time.
    ///
    /// Answers with the first action; the caller takes the others by
    /// [`Reassembly::next_action`] until that returns `None`. `Ok(None)` means the packet is held.
    ///
    /// # Errors
    ///
    /// [`Busy`] with the packet when actions of an earlier call were not taken.
    pub fn accept(
        &mut self,
        packet: P,
        wire: u32,
        now: Nanos,
    ) -> Result<Option<Action<P>>, Busy<P>> {
        if let Some(Place { window, slot }) = self.place(wire, now) {
            return Ok(Some(Action::Place { window, slot, packet }));
        }
        if self.due {
            return Err(Busy(packet));
        }
        self.now = now;
        Ok(self.accept_rare(packet, wire))
    }

    /// Every packet that is not the common case; the first action that it brings.
    #[inline(never)]
    fn accept_rare(&mut self, packet: P, wire: u32) -> Option<Action<P>> {
        let Some(position) = &self.position else {
            return Some(self.begin(packet, wire));
        };
        if let Distance::Ahead(d) = position.locate(wire)
            && d <= position.step()
            && self.held_len == 0
        {
            let extended = position.next().wrapping_add(d);
            return self.settle(extended, packet).or_else(|| self.next_action());
        }
        self.due = true;
        self.accept_other(packet, wire);
        self.next_action()
    }

    /// The first packet of all: the receiver joins here.
    fn begin(&mut self, packet: P, wire: u32) -> Action<P> {
        let position = Position::new(wire, self.width, self.step);
        let first = position.next();
        self.position = Some(position);
        self.join = Some(wire);
        self.base = first >> self.batch_shift;
        self.close_to = self.base;
        self.edge = Span { from: 0, to: first };
        self.edge_kind = Start::Join;
        match self.settle(first, packet) {
            Some(action) => action,
            // Cannot be: the window of the first packet is the oldest and is empty.
            None => Action::Gap(Gap {
                first_batch: self.base,
                batches: 0,
                cause: CloseCause::Complete,
                missing: [(0, 0); 2],
            }),
        }
    }

    #[inline]
    fn window(&self, batch: u64) -> Option<&Window> {
        self.windows.get(window_index(batch))
    }

    /// The next action of the last [`accept`](Self::accept), [`tick`](Self::tick),
    /// [`relieve`](Self::relieve) or [`finish`](Self::finish); `None` when there is none left.
    #[inline]
    pub fn next_action(&mut self) -> Option<Action<P>> {
        // One compare in the common case.
        if self.due { self.next_due_action() } else { None }
    }

    /// Whether [`Reassembly::next_action`] is to be asked.
    #[must_use]
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.due
    }

    fn next_due_action(&mut self) -> Option<Action<P>> {
        loop {
            if self.closing {
                self.finish_close();
            }
            if self.close_is_due() {
                return Some(self.close_base());
            }
            if let Some((extended, packet)) = self.pending.take() {
                if let Some(action) = self.settle(extended, packet) {
                    return Some(action);
                }
                continue;
            }
            match self.script {
                Script::Idle => {
                    self.due = false;
                    return None;
                }
                Script::Refute { at, trusted } => {
                    if let Some(action) = self.refute(at, trusted) {
                        return Some(action);
                    }
                }
                Script::Confirm { at, wire, anchor } => {
                    if let Some(action) = self.confirm(at, wire, anchor) {
                        return Some(action);
                    }
                }
            }
        }
    }

    /// Puts the packet at position `extended` into its window; `None` when windows must close
    /// first (it is pending then).
    #[inline]
    fn settle(&mut self, extended: u64, packet: P) -> Option<Action<P>> {
        let extended = if planted!(LateIntoNext) { self.in_base(extended) } else { extended };
        let batch = extended >> self.batch_shift;
        if batch < self.base {
            self.accept_position(extended);
            return Some(self.drop_late(Some(batch), packet));
        }
        if batch >= self.base.saturating_add(self.open) {
            self.close_up_to(batch.saturating_sub(self.open - 1), CloseCause::Moved);
            self.pending = Some((extended, packet));
            self.due = true;
            return None;
        }
        let slot = slot_of(extended, self.packets_per_batch);
        let index = window_index(batch);
        let now = self.now;
        let covered = match self.windows.get_mut(index) {
            Some(w) => {
                let new = w.cover(slot, now);
                self.due |= w.count() == self.packets_per_batch;
                new
            }
            None => false,
        };
        self.accept_position(extended);
        if !covered && !planted!(DuplicateOverwrites) {
            self.counters.duplicate += 1;
            if planted!(CloseByCount) {
                self.count_twice(index);
            }
            return Some(Action::Drop { packet, cause: DropCause::Duplicate });
        }
        self.counters.placed += 1;
        #[expect(clippy::cast_possible_truncation, reason = "below MAX_WINDOWS = 4")]
        let window = index as u8;
        Some(Action::Place { window, slot, packet })
    }

    /// A planted bug: a position whose batch is closed becomes that of the same slot in the oldest
    /// open one.
    const fn in_base(&self, at: u64) -> u64 {
        if at >> self.batch_shift >= self.base {
            return at;
        }
        self.base << self.batch_shift | slot_of(at, self.packets_per_batch) as u64
    }

    /// A planted bug: the window counts a packet that it has already.
    fn count_twice(&mut self, index: usize) {
        if let Some(window) = self.windows.get_mut(index) {
            window.count_up();
            self.due |= window.count() == self.packets_per_batch;
        }
    }

    #[inline]
    fn accept_position(&mut self, extended: u64) {
        if let Some(position) = &mut self.position {
            position.accept(extended);
        }
    }

    /// `batch`: the one that the packet came too late for; `None` before the beginning of all.
    fn drop_late(&mut self, batch: Option<u64>, packet: P) -> Action<P> {
        self.counters.late += 1;
        if let Some(batch) = batch {
            let age = self.base.wrapping_sub(batch).wrapping_sub(1);
            self.counters.cut_by_timeout +=
                u64::from(age < 64 && self.deadline_history >> age & 1 == 1);
        }
        Action::Drop { packet, cause: DropCause::Late }
    }

    /// Takes back the last [`Action::Place`]: no buffer was to be had and the policy is to drop.
    /// The slot is empty again and the packet is not counted as placed; the caller counts it under
    /// a cause of its own.
    pub fn unplace(&mut self, window: u8, slot: u32) {
        if let Some(w) = self.windows.get_mut(usize::from(window))
            && w.uncover(slot)
        {
            self.counters.placed -= 1;
        }
    }
}

/// The slot of position `at` in its batch of `packets_per_batch` slots, a power of two.
#[inline]
const fn slot_of(at: u64, packets_per_batch: u32) -> u32 {
    // The mask leaves less than 2^17: packets_per_batch is at most 65,536.
    #[expect(clippy::cast_possible_truncation, reason = "masked to 16 bits")]
    let slot = (at & (packets_per_batch.wrapping_sub(1)) as u64) as u32;
    slot
}

/// The window of a batch: open batches are consecutive and at most [`MAX_WINDOWS`], so these never
/// collide.
#[inline]
const fn window_index(batch: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "masked to 2 bits")]
    let index = (batch & (MAX_WINDOWS as u64 - 1)) as usize;
    index
}

const _: () = assert!(MAX_WINDOWS.is_power_of_two());

/// A difference inside one batch, or a shift count where "very many" is enough.
const fn small(value: u64) -> u32 {
    if value > u32::MAX as u64 {
        u32::MAX
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        let value = value as u32;
        value
    }
}

#[cfg(test)]
mod tests;
