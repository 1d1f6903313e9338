//! What a reassembly answers between two packets, and in the middle of its actions.

use super::*;
use crate::counters::PartialBy;

#[test]
fn the_join_is_the_first_number_of_all() {
    let mut rig = Rig::new(mini(8), 2, Nanos::ZERO);
    assert_eq!(rig.reassembly.join(), None);
    for position in [37, 38, 39] {
        rig.send(position);
        assert_eq!(rig.reassembly.join(), Some(37));
    }
}

#[test]
fn a_deadline_is_that_of_the_oldest_open_window() {
    let mut rig = Rig::new(mini(8), 2, Nanos(100));
    assert_eq!(rig.reassembly.deadline(), None, "no window is open");
    rig.now = Nanos(7);
    rig.send(0);
    assert_eq!(rig.reassembly.deadline(), Some(Nanos(107)));
    rig.now = Nanos(9);
    (1..15).for_each(|position| rig.send(position));
    // The next batch opens later: nothing changes before the first has closed.
    rig.now = Nanos(50);
    rig.send(16);
    assert_eq!(rig.reassembly.deadline(), Some(Nanos(107)));
    rig.send(15);
    assert_eq!(rig.outcome.batches(), [0]);
    let closed = &rig.outcome.closed[0].0;
    assert_eq!((closed.first_packet, closed.last_packet), (Nanos(7), Nanos(50)));
    assert_eq!(rig.reassembly.deadline(), Some(Nanos(150)));
    let mut patient = Rig::new(mini(8), 2, Nanos::ZERO);
    patient.send(0);
    assert_eq!(patient.reassembly.deadline(), None, "no timeout");
}

#[test]
fn the_shortcut_takes_the_common_case_and_nothing_else() {
    let mut rig = Rig::new(mini(8), 2, Nanos::ZERO);
    assert_eq!(rig.reassembly.place(0, Nanos::ZERO), None, "the first packet of all");
    (0..16).for_each(|position| rig.send(position));
    let place = |rig: &mut Rig, wire| {
        let before = *rig.reassembly.counters();
        let placed = rig.reassembly.place(wire, Nanos::ZERO);
        if placed.is_none() {
            assert_eq!(*rig.reassembly.counters(), before, "nothing changes");
        }
        placed
    };
    // Batch 1 is in window 1; a duplicate of it is not plain, nor is one far ahead.
    assert_eq!(place(&mut rig, 17), Some(Place { window: 1, slot: 1 }));
    assert_eq!(place(&mut rig, 17), None);
    assert_eq!(place(&mut rig, 100), None);
    assert_eq!(place(&mut rig, 15), None, "its batch is closed");
    assert!(!rig.reassembly.is_due());
    for wire in (18..24).chain([16]).chain(24..32) {
        assert!(!rig.reassembly.is_due());
        let slot = wire % 16;
        assert_eq!(place(&mut rig, wire), Some(Place { window: 1, slot }));
    }
    assert!(rig.reassembly.is_due(), "the batch is complete");
    assert_eq!(place(&mut rig, 32), None, "while an action is due");
}

#[test]
fn the_balance_holds_between_any_two_actions() {
    let mut reassembly = Reassembly::new(&mini(8), 1, Nanos::ZERO);
    let mut accepted = 0;
    // Wild numbers that a plain packet of the next batch refutes: two drops, then the close of the
    // batch before it, then its place, and until then it waits.
    for wire in (0..10).chain([100, 60, 17, 101, 50, 18]) {
        accepted += 1;
        let mut action = reassembly.accept(wire, wire, Nanos::ZERO).expect("all actions taken");
        loop {
            let c = *reassembly.counters();
            assert_eq!(
                accepted,
                c.placed + c.duplicate + c.late + c.wild + reassembly.held(),
                "after {action:?} of {wire}"
            );
            action = reassembly.next_action();
            if action.is_none() {
                break;
            }
        }
    }
    assert_eq!((reassembly.counters().wild, reassembly.counters().placed), (4, 12));
}

#[test]
fn a_partial_batch_is_counted_under_what_closed_it() {
    let partial = |end: &dyn Fn(&mut Rig)| {
        let mut rig = Rig::new(mini(8), 1, Nanos(100));
        (0..10).for_each(|position| rig.send(position));
        end(&mut rig);
        rig.finish().counters.partial
    };
    let none = PartialBy::default();
    assert_eq!(partial(&|_| {}), PartialBy { shutdown: 1, ..none });
    let moved = partial(&|rig| (17..32).chain([16]).for_each(|position| rig.send(position)));
    assert_eq!(moved, PartialBy { moved: 1, ..none });
    let deadline = partial(&|rig| {
        rig.reassembly.tick(Nanos(99));
        rig.take(None);
        assert_eq!(rig.outcome.batches(), [0; 0]);
        rig.reassembly.tick(Nanos(100));
        rig.take(None);
    });
    assert_eq!(deadline, PartialBy { deadline: 1, ..none });
    let pool = partial(&|rig| {
        rig.reassembly.relieve(Nanos(1));
        rig.take(None);
        // Nothing is open: nothing closes.
        rig.reassembly.relieve(Nanos(2));
        rig.take(None);
    });
    assert_eq!(pool, PartialBy { pool: 1, ..none });
    let restart = partial(&|rig| (200..208).for_each(|position| rig.send(position)));
    assert_eq!((restart.discontinuity, restart.total()), (1, 2), "and the end of the run");
}
