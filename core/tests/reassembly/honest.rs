//! Streams whose right outcome is known without a model: what was not lost is where it belongs,
//! and what was lost costs its own images and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;

use crate::driver::Pair;
use crate::stream::geometry;

/// Steps of 8, 8, 16 and 64.
fn shapes() -> impl Strategy<Value = ((u32, u32), u32)> {
    let of = |shape, width| Just((shape, width));
    prop_oneof![of((4, 4), 6), of((4, 4), 8), of((8, 4), 32), of((16, 8), 9), of((16, 8), 16)]
}

/// Sends these positions and returns the true position of each packet.
fn send(pair: &mut Pair, space: u64, stream: &[u64]) -> BTreeMap<u64, u64> {
    stream.iter().map(|&at| (pair.send(u32::try_from(at % space).expect("32 bits")), at)).collect()
}

/// Every whole image is made of its own packets, in order, under its own index (modulo what the
/// number space can tell).
fn nothing_is_mixed(
    pair: &Pair,
    sent: &BTreeMap<u64, u64>,
    per_image: u64,
    space: u64,
) -> Result<(), TestCaseError> {
    for (image, packets) in pair.whole() {
        let at: Vec<u64> = packets.iter().map(|packet| sent[packet]).collect();
        prop_assert!(at.windows(2).all(|pair| pair[0] + 1 == pair[1]), "image {image}: {at:?}");
        prop_assert_eq!(at[0] % space, image * per_image % space, "image {}", image);
    }
    Ok(())
}

proptest! {
    #![proptest_config(proptest::test_runner::Config {
        cases: 400, failure_persistence: None, ..Default::default()
    })]

    /// Losses of up to half a step, packets displaced by less than a quarter of one, a copy now and
    /// then: the images with a lost packet are damaged or missing, all others are whole.
    #[test]
    fn what_is_not_lost_is_whole(
        (shape, width) in shapes(),
        windows in 2..=4u32,
        bursts in vec((any::<bool>(), any::<u16>(), 1..=32u64), 5),
        displaced in vec(0..16u64, 64),
        copies in btree_set(1..8u64, 0..8),
    ) {
        let geometry = geometry(shape, width);
        let (step, batch) = (u64::from(geometry.step()), u64::from(geometry.packets_per_batch()));
        let per_image = u64::from(geometry.packets_per_image());
        let end = 12 * batch;
        let mut lost = BTreeSet::new();
        for (place, (any, start, length)) in (0..).zip(bursts) {
            // Each in two batches of its own; not the first packet of all, nor the last batches,
            // whose end nobody can miss.
            let start = 2 * batch * place + 1 + u64::from(start) % (2 * batch - step);
            lost.extend((start..start + 1 + length % (step / 2)).filter(|_| any));
        }
        let mut keyed: Vec<(u64, u64)> = (0..end)
            .filter(|at| !lost.contains(at))
            .zip(displaced.iter().cycle())
            .map(|(at, by)| (at + by % (step / 4), at))
            .collect();
        // The receiver joins at the true beginning, and the stream ends in order.
        keyed[0].0 = 0;
        keyed.sort_unstable();
        let mut stream: Vec<u64> = keyed.into_iter().map(|(_, at)| at).collect();
        for batch_of in copies {
            // One to a batch, so that no run of copies looks like a restart.
            let place = usize::try_from(batch_of * batch + batch / 2).unwrap();
            stream.insert(place, stream[place - 1]);
        }
        let mut pair = Pair::new(&geometry, windows, 0);
        let sent = send(&mut pair, geometry.sequence_space(), &stream);
        pair.finish();
        let c = pair.model.counters;
        nothing_is_mixed(&pair, &sent, per_image, geometry.sequence_space())?;
        prop_assert_eq!((c.wild, c.discontinuities, c.slots.skipped), (0, 0, 0), "{:?}", c);
        prop_assert_eq!(c.slots.missing, lost.len() as u64);
        let hurt: BTreeSet<u64> = lost.iter().map(|at| at / per_image).collect();
        let whole: Vec<u64> =
            (0..end / per_image).filter(|image| !hurt.contains(image)).collect();
        prop_assert_eq!(pair.whole().into_keys().collect::<Vec<_>>(), whole);
    }

    /// One burst of any length that can be told, in a stream in order: no image is mixed or under a
    /// wrong index, and the loss is told to the packet.
    #[test]
    fn a_burst_up_to_the_limit_is_told_to_the_packet(
        (shape, width) in (shapes(), 4..=11u32).prop_map(|((shape, _), width)| (shape, width)),
        windows in 1..=4u32,
        start in any::<u16>(),
        length in any::<u32>(),
    ) {
        let width = width.max((shape.0 * shape.1).trailing_zeros());
        let geometry = geometry(shape, width);
        let space = geometry.sequence_space();
        let batch = u64::from(geometry.packets_per_batch());
        // The windows behind the burst hold no other hole that it could fall on.
        let start = space + u64::from(start) % (2 * batch);
        let lost = 1 + u64::from(length) % geometry.largest_placed_burst();
        let stream: Vec<u64> = (0..start).chain(start + lost..start + lost + 3 * batch).collect();
        let mut pair = Pair::new(&geometry, windows, 0);
        let sent = send(&mut pair, space, &stream);
        pair.finish();
        nothing_is_mixed(&pair, &sent, u64::from(geometry.packets_per_image()), space)?;
        let c = pair.model.counters;
        prop_assert_eq!(c.slots.missing + c.slots.skipped, lost + c.late, "{:?}", c);
        prop_assert_eq!((c.wild, c.duplicate), (0, 0));
    }
}
