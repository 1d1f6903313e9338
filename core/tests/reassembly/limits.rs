//! The limits that DESIGN §4 states, each from both sides: the last value that works and the first
//! that does not.

use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::window::CloseCause;

use crate::driver::Pair;
use crate::stream::geometry;

/// 4 packets an image, 4 images a batch, 8 bits: a step is 8, and 8 packets confirm.
fn mini() -> Geometry {
    geometry((4, 4), 8)
}

/// A receiver of `geometry` that has taken these numbers.
fn after(geometry: &Geometry, windows: u32, wires: impl IntoIterator<Item = u32>) -> Pair {
    let mut pair = Pair::new(geometry, windows, 0);
    pair.send_all(wires);
    pair
}

fn documented() -> Geometry {
    Geometry::new(&GeometrySpec::DOCUMENTED).expect("the documented geometry")
}

#[test]
fn a_step_is_half_a_batch_or_an_eighth_of_the_space() {
    // (packets per batch, width) and min(packets / 2, 2^w / 8), at least 1.
    for (shape, width, step) in [
        ((4, 4), 4, 2),
        ((4, 4), 5, 4),
        ((4, 4), 6, 8),
        ((4, 4), 32, 8),
        ((16, 8), 9, 64),
        ((16, 8), 10, 64),
        ((16, 8), 8, 32),
        ((2, 2), 2, 1),
    ] {
        let ahead = |d: u32| after(&geometry(shape, width), 4, [0, 1 + d]).model.held();
        assert_eq!((ahead(step), ahead(step + 1)), (0, 1), "{shape:?} at {width} bits");
    }
    assert_eq!(documented().step(), 512);
}

#[test]
fn a_straggler_is_placed_at_once_up_to_a_step_behind() {
    // The stream stands at 40; 31 is 9 behind it, 32 is 8, both are empty.
    let stream = (0..40).filter(|n| ![31, 32].contains(n));
    let mut pair = after(&mini(), 2, stream);
    pair.send(32);
    assert_eq!(pair.model.held(), 0);
    pair.send(31);
    assert_eq!(pair.model.held(), 1);
    // It waits only for the stream to go on.
    pair.send(40);
    assert_eq!((pair.model.held(), pair.model.counters.placed), (0, 41));
}

#[test]
fn as_many_packets_confirm_as_the_width_says() {
    for (width, confirmations) in [(4, 2), (5, 4), (6, 8), (7, 8), (12, 8), (32, 8)] {
        let mut pair = after(&geometry((4, 4), width), 4, 0..4);
        for wire in 0..confirmations - 1 {
            // Further ahead than any step, and not yet half the space.
            pair.send(4 + 3 + wire + [0, 2, 6][usize::try_from(width - 4).unwrap().min(2)]);
        }
        assert_eq!((pair.model.held(), pair.model.next), (u64::from(confirmations) - 1, 4));
        let far = pair.model.next;
        pair.send(4 + 2 + confirmations + [0, 2, 6][usize::try_from(width - 4).unwrap().min(2)]);
        assert_eq!(pair.model.held(), 0, "{width} bits");
        assert!(pair.model.next > far + u64::from(confirmations), "{width} bits");
    }
}

#[test]
fn packets_confirm_each_other_within_a_step() {
    for (apart, held) in [(8, 2), (9, 1)] {
        let pair = after(&mini(), 2, [0, 100, 100 + apart]);
        assert_eq!(pair.model.held(), held, "{apart} apart");
        assert_eq!(pair.model.counters.wild, 2 - held);
        let pair = after(&mini(), 2, [0, 100, 100 - apart]);
        assert_eq!(pair.model.held(), held, "{apart} back");
    }
}

#[test]
fn half_the_number_space_is_behind() {
    // The stream stands at 1. 127 ahead is wild once the stream goes on, 128 ahead is 128 behind.
    let pair = after(&mini(), 2, [0, 128, 1]);
    assert_eq!((pair.model.counters.wild, pair.model.counters.late), (1, 0));
    let pair = after(&mini(), 2, [0, 129, 1]);
    assert_eq!((pair.model.counters.wild, pair.model.counters.late), (0, 1));
    // Eight in a row: a loss, or a discontinuity.
    let pair = after(&mini(), 2, (0..1).chain(128..136));
    assert_eq!((pair.model.counters.discontinuities, pair.model.next), (0, 136));
    let pair = after(&mini(), 2, (0..1).chain(129..137));
    assert_eq!((pair.model.counters.discontinuities, pair.model.next), (1, 137));
}

/// Sends `0..first`, then, after a loss, two number spaces more.
fn with_a_burst(geometry: &Geometry, first: u64, lost: u64) -> Pair {
    let space = geometry.sequence_space();
    let mut pair = Pair::new(geometry, 2, 0);
    for at in (0..first).chain(first + lost..first + lost + 2 * space) {
        pair.send(u32::try_from(at % space).expect("32 bits"));
    }
    pair.finish();
    pair
}

/// Bursts up to `2^w − N` are placed rightly, longer ones alias: their length is told too short by
/// a whole space, and their first packets seem to be copies.
#[test]
fn the_longest_burst_that_is_told_is_the_space_less_the_confirmations() {
    for (geometry, first) in [
        (geometry((4, 4), 4), 37),
        (geometry((4, 4), 5), 37),
        (geometry((4, 4), 6), 101),
        (mini(), 300),
        (geometry((16, 8), 10), 1_500),
        (documented(), 10_000),
    ] {
        let space = geometry.sequence_space();
        let limit = space - u64::from(geometry.confirmations());
        assert_eq!(limit, geometry.largest_placed_burst());
        let gone = |lost| {
            let c = with_a_burst(&geometry, first, lost).model.counters;
            let gone = i128::from(c.slots.missing + c.slots.skipped) - i128::from(c.late);
            (gone, c.discontinuities)
        };
        assert_eq!(gone(limit), (limit.into(), 1), "{space}");
        assert_eq!(gone(limit + 1).1, 0, "{space}");
        assert!(gone(limit + 1).0 < limit.into(), "{space}");
        assert_eq!(gone(space), (0, 0), "a whole space lost cannot be seen");
    }
    assert_eq!(documented().largest_placed_burst(), 4_088);
}

#[test]
fn so_many_batches_are_open_at_once() {
    // 0 counts as 1, anything above 4 as 4.
    for (windows, open) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4)] {
        // Every batch lacks one packet.
        let stream = |batches: u32| (0..batches * 16).filter(|n| n % 16 != 5);
        let pair = after(&mini(), windows, stream(open));
        assert_eq!(pair.closed.len(), 0, "{windows} windows");
        let mut pair = after(&mini(), windows, stream(open).chain([open * 16]));
        assert_eq!(pair.closed.len(), 1, "{windows} windows");
        assert_eq!(pair.closed[0].cause, CloseCause::Moved);
        pair.send(5);
        pair.send(open * 16 + 1);
        assert_eq!(pair.model.counters.late, 1);
    }
}

#[test]
fn a_window_closes_by_coverage_never_by_arrival_count() {
    let mut pair = after(&mini(), 2, (0..15).chain([14, 13, 12]));
    assert!(pair.closed.is_empty(), "18 packets of 16 slots, and one is empty");
    pair.send(15);
    assert_eq!(pair.closed[0].cause, CloseCause::Complete);
}

#[test]
fn a_deadline_is_due_when_its_time_has_passed_and_not_a_nanosecond_before() {
    let mut pair = Pair::new(&mini(), 2, 20_000);
    pair.now = 1_000;
    pair.send(0);
    pair.now = 5_000;
    pair.send(1);
    pair.now = 20_999;
    pair.tick();
    assert!(pair.closed.is_empty());
    pair.now = 21_000;
    pair.tick();
    assert_eq!(pair.closed[0].cause, CloseCause::Deadline);

    let mut pair = after(&mini(), 2, [0]);
    pair.now = u64::MAX;
    pair.tick();
    assert!(pair.closed.is_empty(), "0 disables it");
}

#[test]
fn sixty_four_batches_are_remembered_for_late_packets() {
    for (closed_since, cut) in [(63, 1), (64, 0)] {
        let mut pair = Pair::new(&geometry((4, 4), 16), 1, 20_000);
        pair.send_all(0..10);
        pair.now = 20_000;
        pair.tick();
        pair.send_all(10..16 + 16 * closed_since);
        let before = pair.model.counters.cut_by_timeout;
        assert_eq!(before, 6);
        pair.send(9);
        pair.finish();
        assert_eq!(pair.model.counters.cut_by_timeout - before, cut, "{closed_since} since");
    }
}

#[test]
fn a_run_behind_is_a_discontinuity_if_most_of_it_is_not_explained_by_holes() {
    // Four copies, then 44 to 47 in one run with them; `holes` of these are stragglers, the others
    // copies, too. Half a run of copies is not enough to call it a restart.
    for (holes, restarts) in [(4, 0), (3, 1)] {
        let empty = 48 - holes..48;
        let mut pair = after(&mini(), 4, (0..48).filter(|n| !empty.contains(n)).chain([48]));
        // The stream stands at 49: from 41 on it is at most 8 behind.
        for wire in [43, 42, 41, 43].into_iter().chain(44..48) {
            pair.send(wire);
        }
        assert_eq!(pair.model.counters.discontinuities, restarts, "{holes} holes");
        assert_eq!(pair.model.held(), 0);
    }
}
