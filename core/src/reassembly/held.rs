//! Packets that do not fit what is expected: held until others confirm or refute them.
#![forbid(unsafe_code)]

use super::{Action, After, DropCause, Held, Reassembly, Script, Span, Start, slot_of};
use crate::sequence::Distance;
use crate::window::CloseCause;

impl<P> Reassembly<P> {
    /// Everything but the common case: plain behind, held, refuted, confirmed.
    pub(super) fn accept_other(&mut self, packet: P, wire: u32) {
        let Some(position) = self.position else { return };
        let agrees = self.last_held().is_some_and(|last| position.agree(wire, last));
        let plain = match position.locate(wire) {
            Distance::Ahead(d) if d <= position.step() => Some(position.next().wrapping_add(d)),
            Distance::Ahead(_) => None,
            Distance::Behind(d) if d > position.step() => None,
            Distance::Behind(d) => {
                position.next().checked_sub(d).filter(|&at| !agrees && self.fits(at, d))
            }
        };
        let trusted = plain.is_some_and(|at| at >= position.next());
        let refute = self.held_len > 0 && (plain.is_some() || !agrees);
        self.after = match plain {
            Some(extended) => After::Settle { extended, packet },
            None => After::Hold { wire, packet },
        };
        if refute {
            self.script = Script::Refute { at: 0, trusted };
        } else {
            self.run_after();
        }
    }

    fn last_held(&self) -> Option<u32> {
        let index = self.held_len.checked_sub(1)?;
        self.held.get(index)?.as_ref().map(|held| held.wire)
    }

    /// Whether a packet `behind` the stream, at position `at`, may be a straggler of it: its slot
    /// is empty in an open window, and is not one of those before the point where the stream began
    /// (unless by as little as a shuffle explains).
    fn fits(&self, at: u64, behind: u64) -> bool {
        let batch = at >> self.batch_shift;
        batch >= self.base
            && batch < self.base.saturating_add(self.open)
            && (behind <= u64::from(self.step) || at >= self.edge.to)
            && !self.covered(at)
    }

    /// Whether the slot of position `at` is covered in an open window.
    pub(super) fn covered(&self, at: u64) -> bool {
        let batch = at >> self.batch_shift;
        batch >= self.base
            && batch < self.base.saturating_add(self.open)
            && self.window(batch).is_some_and(|w| w.contains(slot_of(at, self.packets_per_batch)))
    }

    /// Carries out what was to follow the refutation of the held packets.
    fn run_after(&mut self) {
        match core::mem::replace(&mut self.after, After::Nothing) {
            After::Nothing => {}
            After::Settle { extended, packet } => self.pending = Some((extended, packet)),
            After::CloseUpTo { batch, cause } => self.close_up_to(batch, cause),
            After::Hold { wire, packet } => {
                if let Some(place) = self.held.get_mut(self.held_len) {
                    *place = Some(Held { wire, packet });
                    self.held_len += 1;
                }
                if self.held_len >= self.confirmations {
                    self.judge_run();
                }
            }
        }
    }

    /// `N` packets in a row agree with each other but not with the stream.
    fn judge_run(&mut self) {
        let Some(position) = self.position else { return };
        let Some(first) = self.held.first().and_then(Option::as_ref).map(|held| held.wire) else {
            return;
        };
        let anchor = position.next().wrapping_add(position.read_forward(first));
        if matches!(position.locate(first), Distance::Ahead(_)) {
            self.script = Script::Confirm { at: 0, wire: first, anchor };
            return;
        }
        let run = self.held.iter().flatten();
        let explained = run
            .filter(|held| match position.locate(held.wire) {
                Distance::Ahead(_) => false,
                Distance::Behind(d) => {
                    d <= position.step()
                        && position.next().checked_sub(d).is_some_and(|at| self.fits(at, d))
                }
            })
            .count();
        if explained * 2 >= self.held_len {
            self.script = Script::Refute { at: 0, trusted: false };
            return;
        }
        let run = self.held.iter().flatten();
        let start = run
            .filter_map(|held| position.near(held.wire, first, anchor))
            .min()
            .unwrap_or(anchor)
            .max(position.next());
        self.counters.discontinuities += 1;
        self.cut = Some(Span { from: position.next(), to: start });
        // A batch that was reached never opens again, even if the run continues inside it.
        let after = self.after_reached().max(start >> self.batch_shift);
        self.close_up_to(after, CloseCause::Discontinuity);
        self.script = Script::Confirm { at: 0, wire: first, anchor };
    }

    pub(super) fn refute_then(&mut self, after: After<P>, trusted: bool) {
        self.due = true;
        self.after = after;
        self.script = Script::Refute { at: 0, trusted };
    }

    /// Refutes the held packet `at`, then goes on to the next, then to what was to follow.
    pub(super) fn refute(&mut self, at: usize, trusted: bool) -> Option<Action<P>> {
        let Some(held) = self.held.get_mut(at).and_then(Option::take) else {
            self.held_len = 0;
            self.script = Script::Idle;
            self.run_after();
            return None;
        };
        self.script = Script::Refute { at: at + 1, trusted };
        let position = self.position?;
        match position.locate(held.wire) {
            Distance::Ahead(_) => {
                self.counters.wild += 1;
                Some(Action::Drop { packet: held.packet, cause: DropCause::Wild })
            }
            // A position before the beginning of all belongs to no window.
            Distance::Behind(d) => match position.next().checked_sub(d) {
                None => Some(self.drop_late(None, held.packet)),
                Some(at) if self.fits(at, d) && !trusted && d > position.step() => {
                    Some(self.drop_late(Some(at >> self.batch_shift), held.packet))
                }
                Some(at) if !self.fits(at, d) && !self.covered(at) => {
                    Some(self.drop_late(Some(at >> self.batch_shift), held.packet))
                }
                Some(at) => self.settle(at, held.packet),
            },
        }
    }

    /// Places the held packet `at` where the confirmed run says.
    pub(super) fn confirm(&mut self, at: usize, wire: u32, anchor: u64) -> Option<Action<P>> {
        if let Some(cut) = self.cut.take() {
            // The windows before the gap have closed; the stream begins again behind it.
            self.edge = cut;
            self.edge_kind = Start::Discontinuity;
        }
        let Some(held) = self.held.get_mut(at).and_then(Option::take) else {
            self.held_len = 0;
            self.script = Script::Idle;
            return None;
        };
        self.script = Script::Confirm { at: at + 1, wire, anchor };
        let position = self.position?;
        match position.near(held.wire, wire, anchor) {
            Some(extended) => self.settle(extended, held.packet),
            None => Some(self.drop_late(None, held.packet)),
        }
    }
}
