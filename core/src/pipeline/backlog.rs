//! Packets that were polled and not processed yet: a queue in lent memory.
#![forbid(unsafe_code)]

use crate::burst::PacketDesc;

/// A first-in first-out queue of packets over a slice that the shell lends.
///
/// In the steady state it empties with every step and starts again at the front, so that only the
/// first few cache lines of the slice are ever touched; it fills only while the producer is
/// blocked.
#[derive(Debug)]
pub(super) struct Backlog<'a> {
    slots: &'a mut [PacketDesc],
    head: usize,
    len: usize,
}

impl<'a> Backlog<'a> {
    pub(super) const fn new(slots: &'a mut [PacketDesc]) -> Self {
        Self { slots, head: 0, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets `fill` put packets into the free slots that follow in memory, at most `limit` of them;
    /// it returns how many it put there. Answers how many were asked for, and how many came.
    pub(super) fn fill(
        &mut self,
        limit: usize,
        fill: impl FnOnce(&mut [PacketDesc]) -> usize,
    ) -> (usize, usize) {
        if self.len == 0 {
            self.head = 0;
        }
        let capacity = self.slots.len();
        let mut tail = self.head + self.len;
        if tail >= capacity {
            tail -= capacity;
        }
        let room = (capacity - self.len).min(capacity - tail).min(limit);
        let Some(slots) = self.slots.get_mut(tail..tail + room) else { return (0, 0) };
        if slots.is_empty() {
            return (0, 0);
        }
        let came = fill(slots).min(room);
        self.len += came;
        (room, came)
    }

    /// A packet that will be popped after `count` others, if there is one; `None`, too, where the
    /// queue goes on at the front of the slice.
    #[inline]
    pub(super) fn behind(&self, count: usize) -> Option<&PacketDesc> {
        if count < self.len { self.slots.get(self.head + count) } else { None }
    }

    /// The oldest packet.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<PacketDesc> {
        if self.len == 0 {
            return None;
        }
        let packet = self.slots.get_mut(self.head)?.take();
        self.head += 1;
        if self.head == self.slots.len() {
            self.head = 0;
        }
        self.len -= 1;
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn packet(n: u64) -> PacketDesc {
        PacketDesc::fake(n, 0, 0)
    }

    #[test]
    fn keeps_order_over_the_edge_and_never_overfills() {
        let mut slots = [const { PacketDesc::EMPTY }; 7];
        let mut backlog = Backlog::new(&mut slots);
        let mut oracle = VecDeque::new();
        let (mut next, mut seed) = (0u64, 1u64);
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let n = usize::try_from(seed >> 61).unwrap();
            if seed >> 40 & 1 == 0 {
                let (asked, came) = backlog.fill(n, |out| {
                    for slot in out.iter_mut() {
                        assert!(slot.is_none());
                        *slot = packet(next);
                        oracle.push_back(next);
                        next += 1;
                    }
                    out.len()
                });
                assert_eq!(asked, came);
                assert!(asked <= n && backlog.len() <= 7);
            } else {
                for _ in 0..n {
                    // What lies beyond the edge of the slice is not looked at, all else is right.
                    let seen = backlog.behind(2).map(PacketDesc::handle);
                    assert!(seen == oracle.get(2).copied() || seen.is_none());
                    assert!(seen.is_some() || backlog.len() < 3 || backlog.head > 4);
                    assert_eq!(backlog.pop().map(|p| p.handle()), oracle.pop_front());
                }
            }
            assert_eq!(backlog.len(), oracle.len());
            assert_eq!(backlog.is_empty(), oracle.is_empty());
        }
        assert!(next > 1000);
    }
}
