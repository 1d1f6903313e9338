//! What the model (`core/tests/reassembly`) found, each as a short stream that shows it.

use super::*;
use crate::counters::SlotCounters;

const TIMEOUT: Nanos = Nanos::from_micros(20);

fn send_all(rig: &mut Rig, positions: impl IntoIterator<Item = u64>) {
    positions.into_iter().for_each(|position| rig.send(position));
}

/// The stream has not shown by then that it goes on where it was, so a packet more than a step
/// behind is not believed. It was, and completed an image of the sender's first life.
#[test]
fn a_deadline_or_a_low_pool_does_not_fill_a_hole_with_foreign_packets() {
    for pool in [false, true] {
        // Packet 3 is lost; then the sender starts again, and 7 packets of it come: too few to
        // tell. Its packets are 256 above the old ones, the same on the wire.
        let mut rig = Rig::new(mini(8), 2, TIMEOUT);
        send_all(&mut rig, (0..14).filter(|&n| n != 3).chain(256..263));
        assert_eq!(rig.reassembly.held(), 7);
        rig.now = TIMEOUT;
        if pool {
            rig.reassembly.relieve(rig.now);
        } else {
            rig.reassembly.tick(rig.now);
        }
        rig.take(None);
        let outcome = rig.finish();
        assert_eq!(outcome.whole(4), [1, 2]);
        assert_eq!((outcome.counters.late, outcome.counters.duplicate), (1, 6));
    }
}

/// A packet from before the first of all is late for no batch. It was counted as cut by the
/// deadline of batch 0.
#[test]
fn a_packet_before_the_beginning_is_late_but_not_cut_by_the_timeout() {
    let mut rig = Rig::new(mini(8), 2, TIMEOUT);
    rig.send(2);
    rig.now = TIMEOUT;
    rig.reassembly.tick(rig.now);
    rig.take(None);
    // 19 before the stream, which stands at 3.
    rig.send(240);
    let outcome = rig.finish();
    assert_eq!((outcome.counters.late, outcome.counters.cut_by_timeout), (1, 0));
}

/// A deadline passes over the empty batches before the one that is due. Only the last of them was
/// remembered.
#[test]
fn packets_late_for_an_empty_batch_that_a_deadline_closed_are_cut_by_it() {
    let mut rig = Rig::new(mini(8), 4, TIMEOUT);
    send_all(&mut rig, (0..16).chain(48..58));
    rig.now = TIMEOUT;
    rig.reassembly.tick(rig.now);
    rig.take(None);
    assert_eq!(rig.outcome.gaps[0].missing[0], (4, 8));
    // Batches 1 and 2 were empty, 3 was not.
    send_all(&mut rig, [20, 40, 58]);
    let outcome = rig.finish();
    assert_eq!((outcome.counters.late, outcome.counters.cut_by_timeout), (3, 3));
}

/// The first packets of a batch were dropped for want of a buffer, and the sender starts again
/// inside that batch. What lies before the join was counted as lost from then on.
#[test]
fn a_restart_inside_a_batch_without_a_buffer_keeps_what_lies_before_the_join() {
    let mut reassembly = Reassembly::new(&mini(4), 1, Nanos::ZERO);
    // Joins at 2; 12 is 8 behind 4, half of the number space, and 13 confirms it.
    for wire in [2, 3, 12, 13] {
        let mut action = reassembly.accept(wire, wire, Nanos::ZERO).unwrap();
        while let Some(current) = action {
            if let Action::Place { window, slot, .. } = current {
                reassembly.unplace(window, slot);
            }
            action = reassembly.next_action();
        }
    }
    reassembly.finish(Nanos::ZERO);
    while reassembly.next_action().is_some() {}
    // 2 and 3 were taken back; the batch had been reached, so 12 and 13 are late for it.
    let SlotCounters { before_join, skipped, missing, .. } = reassembly.counters().slots;
    assert_eq!((before_join, skipped, missing), (2, 8, 6));
    assert_eq!((reassembly.counters().late, reassembly.counters().discontinuities), (2, 1));
}
