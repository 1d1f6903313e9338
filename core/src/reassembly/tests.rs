//! Streams of sequence numbers by name, and the reorder cases (R…) of the field.
//!
//! A stream is a list of true positions; the wire carries them modulo `2^width`. A packet is
//! represented by its true position, so that a test can see which packet ended up in which slot.

use std::collections::BTreeMap;

use super::*;
use crate::geometry::GeometrySpec;
use crate::window::ImageMask;

mod asked;
mod found;
mod queues;

/// 4 packets an image, 4 images a batch.
fn mini(width: u32) -> Geometry {
    Geometry::new(&GeometrySpec {
        channels: 3,
        height: 16,
        width: 16,
        packets_per_image: 4,
        images_per_batch: 4,
        payload_byte_offset: 64,
        payload_bytes: 192,
        seq_bit_offset: 128,
        seq_bit_width: width,
        ..GeometrySpec::DOCUMENTED
    })
    .expect("MINI is legal")
}

fn documented(width: u32) -> Geometry {
    Geometry::new(&GeometrySpec { seq_bit_width: width, ..GeometrySpec::DOCUMENTED })
        .expect("the documented geometry is legal")
}

/// What a stream came to.
#[derive(Debug, Default)]
struct Outcome {
    counters: ReassemblyCounters,
    /// Closed batches in order, with the packets of their slots.
    closed: Vec<(Closed, BTreeMap<u32, u64>)>,
    gaps: Vec<Gap>,
    /// Packets given back, by cause.
    dropped: Vec<(u64, DropCause)>,
    accepted: u64,
}

impl Outcome {
    fn batches(&self) -> Vec<u64> {
        self.closed.iter().map(|(closed, _)| closed.batch).collect()
    }

    /// Indices of the whole images.
    fn whole(&self, per_batch: u64) -> Vec<u64> {
        self.list(per_batch, |closed| closed.whole)
    }

    fn damaged(&self) -> Vec<u64> {
        self.list(4, |closed| closed.damaged)
    }

    fn missing(&self) -> Vec<u64> {
        let mut images = self.list(4, |closed| closed.missing);
        for gap in &self.gaps {
            for (first, count) in gap.missing {
                images.extend(first..first + count);
            }
        }
        images.sort_unstable();
        images
    }

    fn list(&self, per_batch: u64, pick: impl Fn(&Closed) -> ImageMask) -> Vec<u64> {
        let of = |closed: &Closed| {
            let first = closed.batch * per_batch;
            pick(closed).iter().map(|image| first + u64::from(image)).collect::<Vec<_>>()
        };
        self.closed.iter().flat_map(|(closed, _)| of(closed)).collect()
    }

    /// Whole images that hold packets of two different images of the sender.
    fn mixed(&self, geometry: &Geometry) -> usize {
        let size = geometry.packets_per_image();
        let mut mixed = 0;
        for (closed, slots) in &self.closed {
            for image in closed.whole.iter() {
                let mut sources: Vec<u64> = (image * size..(image + 1) * size)
                    .map(|slot| slots[&slot] / u64::from(size))
                    .collect();
                sources.dedup();
                mixed += usize::from(sources.len() != 1);
            }
        }
        mixed
    }

    /// Whole images whose index is not the sender's, modulo the number space.
    fn misplaced(&self, geometry: &Geometry) -> usize {
        let size = u64::from(geometry.packets_per_image());
        let space = (geometry.sequence_space() / size).max(1);
        let per_batch = u64::from(geometry.images_per_batch());
        let mut wrong = 0;
        for (closed, slots) in &self.closed {
            for image in closed.whole.iter() {
                let index = closed.batch * per_batch + u64::from(image);
                let sent = slots[&(image * geometry.packets_per_image())] / size;
                wrong += usize::from(index % space != sent % space);
            }
        }
        wrong
    }
}

/// A reassembly with everything that a producer would keep beside it, and the invariants.
struct Rig {
    geometry: Geometry,
    reassembly: Reassembly<u64>,
    slots: [BTreeMap<u32, u64>; MAX_WINDOWS],
    outcome: Outcome,
    now: Nanos,
}

impl Rig {
    fn new(geometry: Geometry, windows: u32, timeout: Nanos) -> Self {
        Self {
            geometry,
            reassembly: Reassembly::new(&geometry, windows, timeout),
            slots: Default::default(),
            outcome: Outcome::default(),
            now: Nanos::ZERO,
        }
    }

    fn send(&mut self, position: u64) {
        let wire = u32::try_from(position % self.geometry.sequence_space()).unwrap();
        self.outcome.accepted += 1;
        let first = self.reassembly.accept(position, wire, self.now).expect("all actions taken");
        self.take(first);
    }

    fn take(&mut self, first: Option<Action<u64>>) {
        let mut action = first.or_else(|| self.reassembly.next_action());
        while let Some(current) = action {
            match current {
                Action::Place { window, slot, packet } => {
                    let old = self.slots[usize::from(window)].insert(slot, packet);
                    assert_eq!(old, None, "slot {slot} was filled twice");
                }
                Action::Drop { packet, cause } => self.outcome.dropped.push((packet, cause)),
                Action::Close { window } => self.close(window),
                Action::Gap(gap) => self.outcome.gaps.push(gap),
            }
            action = self.reassembly.next_action();
        }
        self.check();
    }

    fn close(&mut self, window: u8) {
        let closed = *self.reassembly.closed();
        let slots = std::mem::take(&mut self.slots[usize::from(window)]);
        let map = self.reassembly.slots(window);
        for slot in 0..map.slots() {
            assert_eq!(map.contains(slot), slots.contains_key(&slot));
        }
        assert_eq!(closed.placed as usize, slots.len());
        if let Some((last, _)) = self.outcome.closed.last() {
            assert!(last.batch < closed.batch, "batches leave in ascending order, each once");
        }
        self.outcome.closed.push((closed, slots));
    }

    /// The balance, after every step.
    fn check(&self) {
        let c = self.reassembly.counters();
        assert_eq!(
            self.outcome.accepted,
            c.placed + c.duplicate + c.late + c.wild + self.reassembly.held()
        );
        assert!(c.slots.balanced(u64::from(self.geometry.packets_per_batch())), "{c:?}");
        assert_eq!(self.outcome.dropped.len() as u64, c.duplicate + c.late + c.wild);
    }

    fn finish(mut self) -> Outcome {
        self.reassembly.finish(self.now);
        self.take(None);
        assert_eq!(self.reassembly.held(), 0);
        assert_eq!(self.reassembly.open_windows(), 0);
        self.outcome.counters = *self.reassembly.counters();
        let c = &self.outcome.counters;
        assert_eq!(c.slots.placed, c.placed, "every placed packet was in a batch that closed");
        self.outcome
    }
}

fn run(geometry: Geometry, stream: impl IntoIterator<Item = u64>) -> Outcome {
    let mut rig = Rig::new(geometry, 2, Nanos::ZERO);
    for position in stream {
        rig.send(position);
    }
    rig.finish()
}

/// The stream `0..end` without `lost`.
fn without(end: u64, lost: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    (0..end).filter(move |n| !lost.contains(n))
}

/// `0..end`, each displaced by less than `distance`, the same for the same seed.
fn shuffled(end: u64, distance: u64, mut seed: u64) -> Vec<u64> {
    let mut keyed: Vec<(u64, u64)> = (0..end)
        .map(|n| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (n + (seed >> 33) % distance, n)
        })
        .collect();
    keyed.sort();
    keyed.into_iter().map(|(_, n)| n).collect()
}

#[test]
fn in_order_every_batch_is_complete() {
    let outcome = run(mini(8), 0..96);
    assert_eq!(outcome.batches(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(outcome.whole(4), (0..24).collect::<Vec<_>>());
    assert!(outcome.closed.iter().all(|(c, _)| c.cause == CloseCause::Complete));
    assert_eq!(outcome.counters.slots.missing, 0);
}

#[test]
fn r01_one_lost_packet_costs_one_image_at_one_batch_per_space() {
    // Width 4 is the documented 12 bits over 4096 packets in small; 14 = 2^4 − N is the limit.
    for (lost, damaged, missing) in [(1, vec![9], vec![]), (7, vec![9], vec![10])] {
        let outcome = run(mini(4), without(96, 37..37 + lost));
        assert_eq!(outcome.damaged(), damaged, "{lost} lost");
        assert_eq!(outcome.missing(), missing, "{lost} lost");
        assert_eq!(outcome.mixed(&mini(4)), 0);
        assert_eq!(outcome.misplaced(&mini(4)), 0);
        assert_eq!(outcome.counters.discontinuities, 0);
        assert_eq!(outcome.whole(4).len(), 24 - damaged.len() - missing.len());
        assert_eq!(outcome.counters.slots.missing, lost);
    }
    for lost in [9, 14] {
        let outcome = run(mini(4), without(96, 37..37 + lost));
        assert_eq!(outcome.counters.discontinuities, 1, "{lost} lost");
        assert_eq!(outcome.mixed(&mini(4)), 0);
        assert_eq!(outcome.misplaced(&mini(4)), 0);
        let later: Vec<u64> = outcome.whole(4).into_iter().filter(|&i| i >= 16).collect();
        assert_eq!(later, (16..24).collect::<Vec<_>>(), "batches behind the gap are intact");
        assert_eq!(outcome.counters.slots.skipped, lost);
    }
}

#[test]
fn r02_exactly_the_images_with_holes_are_marked() {
    for (lost, images) in
        [(vec![2], vec![0]), (vec![2, 9], vec![0, 2]), (vec![15], vec![3]), (vec![0], vec![0])]
    {
        let stream = (16..64).filter(|n| !lost.contains(&(n - 16)));
        let outcome = run(mini(8), (0..16).chain(stream));
        let images: Vec<u64> = images.iter().map(|i| i + 4).collect();
        assert_eq!(outcome.damaged(), images, "{lost:?}");
        assert!(outcome.missing().is_empty());
        assert_eq!(outcome.whole(4).len(), 16 - images.len());
    }
    let outcome = run(mini(8), without(64, 16..20));
    assert_eq!(outcome.missing(), [4]);
    assert!(outcome.damaged().is_empty());
}

#[test]
fn r04_joining_in_the_middle_is_not_loss() {
    for (start, before) in [(5, 5), (15, 15), (16, 0), (250, 10)] {
        let outcome = run(mini(8), start..start + 64);
        assert_eq!(outcome.counters.slots.before_join, before, "from {start}");
        assert_eq!(outcome.counters.slots.missing, 0);
        assert_eq!(outcome.closed[0].0.batch, start / 16);
        assert_eq!(outcome.batches()[1], start / 16 + 1);
        assert!(outcome.missing().is_empty());
        assert_eq!(outcome.misplaced(&mini(8)), 0);
        // Of the images that the join cut, one at most had a packet.
        assert!(outcome.damaged().len() <= 1);
    }
}

#[test]
fn r05_the_wrap_is_no_event() {
    let mut stream: Vec<u64> = (0..512).collect();
    stream.swap(255, 258);
    stream.swap(253, 256);
    let outcome = run(mini(8), stream);
    assert_eq!(outcome.whole(4).len(), 128);
    assert_eq!(outcome.batches(), (0..32).collect::<Vec<_>>());
    let near_the_end = (1u64 << 32) - 40;
    let outcome = run(mini(32), near_the_end..near_the_end + 80);
    assert_eq!(outcome.counters.slots.missing, 0);
    assert_eq!(outcome.counters.discontinuities, 0);
    assert_eq!(outcome.misplaced(&mini(32)), 0);
}

#[test]
fn r06_neighbours_swapped_over_a_batch_edge() {
    for distance in [1, 8] {
        let mut stream: Vec<u64> = (0..96).collect();
        let packet = stream.remove(15);
        stream.insert(15 + distance, packet);
        let outcome = run(mini(8), stream);
        assert_eq!(outcome.whole(4).len(), 24, "distance {distance}");
    }
    let mut stream: Vec<u64> = (0..96).collect();
    let packet = stream.remove(14);
    stream.insert(54, packet);
    let outcome = run(mini(8), stream);
    assert_eq!(outcome.damaged(), [3]);
    assert_eq!(outcome.counters.late, 1);
    assert_eq!(outcome.counters.partial.moved, 1);
}

#[test]
fn r10_a_whole_batch_vanishes() {
    let outcome = run(mini(8), without(80, 32..48));
    assert_eq!(outcome.batches(), [0, 1, 3, 4]);
    assert_eq!(outcome.missing(), [8, 9, 10, 11]);
    assert_eq!(outcome.counters.slots.missing, 16);
    assert_eq!(outcome.counters.slots.batches, 5);
    assert_eq!(outcome.misplaced(&mini(8)), 0);
}

#[test]
fn many_batches_missing_are_one_gap() {
    let outcome = run(mini(8), without(160, 32..112));
    // One event for what the stream jumped over, one for the batch that stayed open behind it.
    let gaps: Vec<_> = outcome.gaps.iter().map(|gap| (gap.first_batch, gap.batches)).collect();
    assert_eq!(gaps, [(2, 4), (6, 1)]);
    assert_eq!(outcome.missing(), (8..28).collect::<Vec<_>>());
}

#[test]
fn r11_a_full_period_lost_cannot_be_seen() {
    // The limit is printed by `validate`; here it is shown: nothing is reported, indices shift.
    let outcome = run(mini(5), without(128, 40..72));
    assert_eq!(outcome.counters.slots.missing, 0);
    assert_eq!(outcome.counters.discontinuities, 0);
}

#[test]
fn r15_the_older_batch_still_completes_first() {
    let outcome = run(mini(8), (0..10).chain(16..32).chain(10..16));
    assert_eq!(outcome.batches(), [0, 1]);
    assert_eq!(outcome.whole(4).len(), 8);
    let outcome = run(mini(8), (0..10).chain(16..32));
    assert_eq!(outcome.batches(), [0, 1]);
    assert_eq!(outcome.closed[0].0.cause, CloseCause::Shutdown);
    assert_eq!(outcome.damaged(), [2]);
    assert_eq!(outcome.missing(), [3]);
}

#[test]
fn the_end_of_the_run_cuts_an_image_and_expects_no_other() {
    let outcome = run(mini(8), 0..22);
    assert_eq!(outcome.whole(4), [0, 1, 2, 3, 4]);
    assert_eq!(outcome.list(4, |c| c.unfinished), [5]);
    assert!(outcome.missing().is_empty() && outcome.damaged().is_empty());
    assert_eq!(outcome.counters.slots.unfinished, 10);
}

#[test]
fn losses_up_to_the_printed_limit_are_placed_rightly_at_12_bits() {
    let geometry = documented(12);
    assert_eq!(geometry.largest_placed_burst(), 4088);
    for lost in [1, 7, 2047, 2048, 2500, 3583, 3584, 4080, 4088] {
        let outcome = run(geometry, without(8 * 4096, 10_000..10_000 + lost));
        assert_eq!(outcome.mixed(&geometry), 0, "{lost} lost");
        let late = outcome.counters.late;
        let gone = outcome.counters.slots.missing + outcome.counters.slots.skipped;
        assert_eq!(gone, lost + late, "{lost} lost");
        assert_eq!(outcome.misplaced(&geometry), 0, "{lost} lost");
    }
}

#[test]
fn random_bursts_below_the_limit_never_mix_images() {
    let geometry = documented(12);
    let mut seed = 3u64;
    let mut draw = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    for _ in 0..20 {
        let (start, length) = (5_000 + draw(15_000), 1 + draw(4_086));
        let singles: Vec<u64> = (0..30).map(|_| draw(8 * 4096)).collect();
        let stream = without(8 * 4096, start..start + length).filter(|n| !singles.contains(n));
        let outcome = run(geometry, stream);
        assert_eq!(outcome.mixed(&geometry), 0, "{length} lost from {start}");
    }
}

#[test]
fn a_shuffle_of_200_loses_nothing_at_12_and_16_bits() {
    for width in [12, 16] {
        let geometry = documented(width);
        let stream = shuffled(8 * 4096, 200, 1);
        let outcome = run(geometry, stream.clone());
        assert_eq!(outcome.whole(32).len(), 256);
        let dropped = stream.into_iter().enumerate().filter(|(i, _)| i % 1000 != 999);
        let kept: Vec<u64> = dropped.map(|(_, n)| n).collect();
        let outcome = run(geometry, kept);
        assert_eq!(outcome.counters.slots.missing, 32);
        assert_eq!(outcome.counters.late + outcome.counters.wild, 0);
        assert_eq!((outcome.mixed(&geometry), outcome.misplaced(&geometry)), (0, 0));
    }
}

#[test]
fn duplicates_in_a_shuffled_stream_cost_nothing() {
    // One duplicate starts a run that the stream's own stragglers agree with; they must neither
    // confirm it nor be lost when it is refuted.
    for width in [12, 16] {
        let geometry = documented(width);
        let mut stream = Vec::new();
        for (i, n) in shuffled(8 * 4096, 200, 7).into_iter().enumerate() {
            stream.push(n);
            if i % 500 == 250 {
                stream.push(n);
            }
        }
        let outcome = run(geometry, stream);
        assert_eq!(outcome.whole(32).len(), 256, "{:?}", outcome.counters);
        assert_eq!(outcome.counters.duplicate, 66);
        assert_eq!(outcome.counters.discontinuities, 0);
    }
}

#[test]
fn every_packet_twice() {
    let geometry = documented(12);
    let outcome = run(geometry, (0..8 * 4096).flat_map(|n| [n, n]));
    assert_eq!(outcome.whole(32).len(), 256);
    // The last packet of each batch completes it: its copy comes to a closed window.
    assert_eq!((outcome.counters.duplicate, outcome.counters.late), (8 * 4095, 8));
}

#[test]
fn a_verbatim_loop_at_16_bits_restarts_cleanly() {
    // 8 batches, numbered 0..32768, three times over: half the number space each.
    let geometry = documented(16);
    let stream = (0..3).flat_map(|_| 0..8 * 4096u64);
    let outcome = run(geometry, stream);
    assert_eq!(outcome.counters.discontinuities, 2);
    assert_eq!(outcome.mixed(&geometry), 0);
    assert_eq!(outcome.whole(32).len(), 3 * 256);
    assert_eq!(outcome.counters.slots.missing, 0);
}

#[test]
fn a_one_batch_repeat_at_16_bits_is_a_restart_each_time() {
    let geometry = documented(16);
    let outcome = run(geometry, (0..6).flat_map(|_| 0..4096u64));
    assert_eq!(outcome.counters.discontinuities, 5);
    assert_eq!(outcome.whole(32).len(), 6 * 32);
    assert_eq!(outcome.counters.slots.missing, 0);
    assert_eq!(outcome.counters.slots.skipped, 5 * 15 * 4096);
}

#[test]
fn a_restart_closes_what_was_open() {
    let geometry = documented(16);
    let outcome = run(geometry, (0..20_480 + 100u64).chain(0..8 * 4096));
    assert_eq!(outcome.counters.discontinuities, 1);
    assert_eq!(outcome.counters.partial.discontinuity, 1);
    assert_eq!(outcome.whole(32).len(), 5 * 32 + 256);
    assert_eq!(outcome.mixed(&geometry), 0);
}

#[test]
fn a_restart_over_a_hole_does_not_fill_it() {
    // Packet 3 of batch 0 was lost and the sender restarts while batch 0 is open: the new packet
    // 3 would fit the hole, and would mix two images.
    let geometry = mini(8);
    let old = (0..14).filter(|&n| n != 3);
    let mut rig = Rig::new(geometry, 2, Nanos::ZERO);
    for n in old {
        rig.send(n);
    }
    // The new sender's packets are told apart from the old one's by 256 (their wire is the same).
    for n in 256..256 + 32 {
        rig.send(n);
    }
    let outcome = rig.finish();
    assert_eq!(outcome.counters.discontinuities, 1);
    assert_eq!(outcome.mixed(&geometry), 0);
    assert!(!outcome.closed[0].1.contains_key(&3));
}

#[test]
fn a_duplicate_and_a_straggler_are_no_restart_at_two_confirmations() {
    // Width 4 has N = 2: the copy of 4 is held, and 3 agrees with it but fits its own slot.
    let outcome = run(mini(4), [0, 1, 2, 4, 4, 3].into_iter().chain(5..64));
    assert_eq!(outcome.counters.discontinuities, 0);
    assert_eq!(outcome.counters.duplicate, 1);
    assert_eq!(outcome.whole(4).len(), 16);
}

#[test]
fn a_burst_that_falls_on_an_older_hole_does_not_fill_it() {
    // 42 of 64 numbers lost: the stream goes on 22 behind where it was, and 16 slots there are
    // empty from a loss before. Read as stragglers the packets would complete foreign images.
    let geometry = mini(6);
    let stream = (0..10).chain(26..41).chain(83..160);
    let outcome = run(geometry, stream);
    assert_eq!((outcome.mixed(&geometry), outcome.misplaced(&geometry)), (0, 0));
    assert_eq!(outcome.counters.discontinuities, 1);
}

#[test]
fn a_straggler_beyond_a_step_is_placed_once_the_stream_goes_on() {
    // 20 of 16 + 16 open slots late: a step is 8. It waits for the next packet in order.
    let mut stream: Vec<u64> = (0..96).filter(|&n| n != 10).collect();
    stream.insert(30, 10);
    let outcome = run(mini(8), stream);
    assert_eq!(outcome.whole(4).len(), 24);
    assert_eq!(outcome.counters.late, 0);
}

#[test]
fn wild_numbers_are_refuted() {
    let geometry = documented(12);
    for wild in [vec![5000 + 1000], vec![5000 + 2047, 5000 + 4090]] {
        let mut stream: Vec<u64> = (0..8 * 4096).collect();
        for &w in &wild {
            stream.insert(5000, w % 4096 + (1 << 40));
        }
        let outcome = run(geometry, stream);
        assert_eq!(outcome.whole(32).len(), 256);
        let c = outcome.counters;
        assert_eq!(c.wild + c.duplicate + c.late, wild.len() as u64);
        assert_eq!(c.discontinuities, 0);
    }
}

#[test]
fn a_deadline_closes_the_oldest_and_late_packets_say_so() {
    let mut rig = Rig::new(mini(8), 2, Nanos::from_micros(20));
    for n in 0..10 {
        rig.send(n);
    }
    rig.now = Nanos::from_micros(19);
    rig.reassembly.tick(rig.now);
    rig.take(None);
    assert!(rig.outcome.closed.is_empty());
    assert_eq!(rig.reassembly.deadline(), Some(Nanos::from_micros(20)));
    rig.now = Nanos::from_micros(20);
    rig.reassembly.tick(rig.now);
    rig.take(None);
    assert_eq!(rig.outcome.batches(), [0]);
    for n in 10..32 {
        rig.send(n);
    }
    let outcome = rig.finish();
    assert_eq!(outcome.counters.cut_by_timeout, 6);
    assert_eq!(outcome.counters.late, 6);
    assert_eq!(outcome.counters.partial.deadline, 1);
    assert_eq!(outcome.whole(4), [0, 1, 4, 5, 6, 7]);
}

#[test]
fn the_deadline_of_a_later_window_closes_the_empty_one_before_it() {
    let mut rig = Rig::new(mini(8), 2, Nanos::from_micros(20));
    for n in (0..16).chain(34..44) {
        rig.send(n);
    }
    rig.now = Nanos::from_micros(25);
    rig.reassembly.tick(rig.now);
    rig.take(None);
    assert_eq!(rig.outcome.batches(), [0, 2]);
    assert_eq!(rig.outcome.gaps.len(), 1);
    assert_eq!(rig.outcome.gaps[0].cause, CloseCause::Deadline);
}

#[test]
fn a_low_pool_closes_the_oldest_only() {
    let mut rig = Rig::new(mini(8), 2, Nanos::ZERO);
    for n in (0..10).chain(16..20) {
        rig.send(n);
    }
    rig.reassembly.relieve(rig.now);
    rig.take(None);
    assert_eq!(rig.outcome.batches(), [0]);
    assert_eq!(rig.outcome.closed[0].0.cause, CloseCause::Pool);
    assert_eq!(rig.reassembly.open_windows(), 1);
}

#[test]
fn an_unplaced_packet_leaves_a_hole() {
    let mut reassembly = Reassembly::new(&mini(8), 2, Nanos::ZERO);
    let action = reassembly.accept(0u64, 0, Nanos::ZERO).unwrap();
    assert_eq!(action, Some(Action::Place { window: 0, slot: 0, packet: 0 }));
    reassembly.unplace(0, 0);
    assert_eq!(reassembly.open_windows(), 0);
    assert_eq!(reassembly.counters().placed, 0);
    let action = reassembly.accept(1u64, 1, Nanos::ZERO).unwrap();
    assert_eq!(action, Some(Action::Place { window: 0, slot: 1, packet: 1 }));
}

#[test]
fn a_packet_before_its_turn_is_handed_back() {
    let mut reassembly = Reassembly::new(&mini(8), 1, Nanos::ZERO);
    reassembly.accept(0u64, 0, Nanos::ZERO).unwrap();
    // With one window open, batch 1 has to wait for batch 0 to close.
    let action = reassembly.accept(1u64, 8, Nanos::ZERO).unwrap();
    assert!(matches!(action, Some(Action::Place { .. })), "{action:?}");
    let action = reassembly.accept(2u64, 16, Nanos::ZERO).unwrap();
    assert!(matches!(action, Some(Action::Close { .. })), "{action:?}");
    let busy = reassembly.accept(3u64, 17, Nanos::ZERO).expect_err("an action is due");
    assert_eq!(busy, Busy(3));
    assert_eq!(busy.to_string(), "actions of an earlier packet are still to be taken");
    assert!(matches!(reassembly.next_action(), Some(Action::Place { packet: 2, .. })));
    assert_eq!(reassembly.next_action(), None);
}

/// What there is to do for one packet, taken by the shortcut of [`Reassembly::place`] or by the
/// long way alone.
fn steps(r: &mut Reassembly<u64>, at: u64, wire: u32, now: Nanos, shortcut: bool) -> Vec<String> {
    let mut action = if shortcut {
        r.accept(at, wire, now).expect("all actions taken")
    } else {
        assert!(!r.due, "all actions taken");
        r.now = now;
        r.accept_rare(at, wire)
    };
    let mut steps = Vec::new();
    while let Some(current) = action.take().or_else(|| r.next_action()) {
        if let Action::Close { .. } = current {
            steps.push(format!("{:?}", r.closed()));
        }
        steps.push(format!("{current:?}"));
    }
    steps
}

#[test]
fn the_shortcut_decides_as_the_long_way_does() {
    // Any mixture of order, stragglers, duplicates, gaps and nonsense, with deadlines and slots
    // taken back in between.
    let mut seed = 7u64;
    let mut draw = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut shortcuts = 0;
    for round in 0..300u64 {
        let geometry = mini([4, 5, 6, 8, 12][usize::try_from(round % 5).unwrap()]);
        let windows = u32::try_from(1 + draw(4)).unwrap();
        let timeout = if draw(2) == 0 { Nanos::ZERO } else { Nanos::from_micros(40) };
        let mut short = Reassembly::new(&geometry, windows, timeout);
        let mut long = Reassembly::new(&geometry, windows, timeout);
        let mut at = draw(64);
        for time in 0..400 {
            let now = Nanos::from_micros(time);
            let position = match draw(40) {
                0 => draw(1 << 16),
                1..=4 => at.saturating_sub(draw(12)),
                5 => at + draw(40),
                6..=12 => (at + draw(4)).saturating_sub(2),
                _ => at,
            };
            at = if draw(30) == 0 { at + draw(6) } else { at + 1 };
            let wire = u32::try_from(position % geometry.sequence_space()).unwrap();
            shortcuts += u32::from(short.held_len == 0);
            assert_eq!(
                steps(&mut short, position, wire, now, true),
                steps(&mut long, position, wire, now, false),
                "round {round}, packet {time}, position {position}"
            );
            if draw(50) == 0 {
                for r in [&mut short, &mut long] {
                    r.tick(now);
                    while r.next_action().is_some() {}
                }
            }
            let taken_back = draw(16 * 20);
            if let (Ok(slot), 0..16) = (u32::try_from(taken_back), taken_back) {
                short.unplace(0, slot);
                long.unplace(0, slot);
            }
            let state = |r: &Reassembly<u64>| (*r.counters(), r.next(), r.held(), r.deadline());
            assert_eq!(state(&short), state(&long), "round {round}, packet {time}");
        }
    }
    assert!(shortcuts > 10_000, "the shortcut was hardly ever open: {shortcuts}");
}
