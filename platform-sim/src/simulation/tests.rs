use std::num::NonZeroU64;

use tensorwire_core::pipeline::producer::EndReason;

use super::*;
use crate::nic::TxMode;
use crate::wire::WireFaults;

fn all(plan: &Plan) -> Vec<u64> {
    (0..plan.images * plan.passes).collect()
}

#[test]
fn a_quiet_run_delivers_everything() {
    for at_close in [None, Some(0), Some(3)] {
        let plan = Plan { at_close, rx_bufs: 256, passes: 3, ..Plan::quiet(1) };
        let outcome = run(&plan).expect("nothing goes wrong");
        assert_eq!(outcome.delivered, all(&plan));
        assert_eq!(outcome.producer.end, Some(EndReason::SenderDone));
        let packets = outcome.producer.packets;
        assert_eq!((packets.offered, packets.placed), (384, 384));
    }
}

#[test]
fn the_same_plan_is_the_same_run() {
    let of = |seed| run(&Plan::draw(seed)).expect("holds").trace;
    for seed in 0..20 {
        assert_eq!(of(seed), of(seed));
    }
    assert_ne!(of(1), of(2));
}

#[test]
fn a_lost_packet_costs_its_image_and_no_other() {
    let drop = NonZeroU64::new(50);
    let wire = WireFaults { drop, dup: NonZeroU64::new(7), shuffle: 3, seed: 5 };
    let plan = Plan { wire, images: 64, ..Plan::quiet(2) };
    let outcome = run(&plan).expect("holds");
    // Packets 50, 100, 150, 200 and 250, counted from 1, of 4 to an image.
    let hit = [12, 24, 37, 49, 62];
    assert!(outcome.delivered.iter().copied().eq((0..64).filter(|n| !hit.contains(n))));
    assert_eq!((outcome.wire.wire_dropped, outcome.wire.wire_duplicated), (5, 36));
}

#[test]
fn a_run_that_cannot_end_is_stuck() {
    let plan = Plan { max_steps: 20, ..Plan::quiet(1) };
    let failure = run(&plan).expect_err("20 steps are not enough");
    let Failure::Broken { violation, step, .. } = &failure else { panic!("{failure}") };
    assert!(violation.is_liveness() && *step == 20, "{failure}");
}

#[test]
fn a_plan_that_does_not_fit_is_refused_in_words() {
    let refused = [
        Plan { rx_ring: 0, ..Plan::quiet(1) },
        Plan { buffers: 0, ..Plan::quiet(1) },
        Plan { queue_depth: 1000, ..Plan::quiet(1) },
        Plan { wire: WireFaults { shuffle: u32::MAX, ..WireFaults::default() }, ..Plan::quiet(1) },
    ];
    for plan in refused {
        let failure = run(&plan).expect_err("cannot be carried out");
        assert!(matches!(&failure, Failure::Plan(why) if !why.is_empty()), "{failure}");
    }
}

#[test]
fn the_checks_can_fail() {
    // The same wire, but the checker is told of another: every claim it makes must then be wrong.
    let wire = WireFaults { drop: NonZeroU64::new(50), ..WireFaults::default() };
    let plan = Plan { wire, images: 64, ..Plan::quiet(2) };
    let lie = Plan { wire: WireFaults::default(), ..plan.clone() };
    let outcome = run(&plan).expect("holds");
    assert_ne!(outcome.delivered, all(&lie));
    let geometry = Geometry::new(&plan.geometry).expect("legal");
    let frames = Frames::new(&geometry, 4, Conversion::Int8ToFp16, &mut Prng::new(1));
    let certainty = Certainty::of(&plan, &geometry);
    assert!(certainty.exact && certainty.anchored);
    let mut ledger = Ledger::new(&frames, certainty, None);
    let row = crate::infer::features_of(frames.crc(1));
    ledger.check(0, &row);
    assert_eq!(ledger.wrong, Some(Violation::Content { image: 0, really: Some(1) }));
    ledger.check(0, &row);
    assert_eq!(ledger.disorder, Some(Violation::Order { image: 0, expected: 1 }));
}

/// The seeds that a test run sweeps; `TENSORWIRE_SIM_SEEDS=A..B` sweeps others.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("TENSORWIRE_SIM_SEEDS").ok();
    let parsed = given.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    parsed.unwrap_or(0..400)
}

#[test]
fn seeds_hold() {
    let (mut lossless, mut exact, mut steps) = (0, 0, 0);
    for seed in seeds() {
        let plan = Plan::draw(seed);
        let outcome = run(&plan).unwrap_or_else(|failure| panic!("{failure}\n{plan:#?}"));
        steps += outcome.steps;
        lossless += u64::from(plan.mode == TxMode::Lossless);
        let geometry = Geometry::new(&plan.geometry).expect("legal");
        exact += u64::from(Certainty::of(&plan, &geometry).exact);
    }
    // A sweep that never makes a strong claim proves little.
    assert!(exact > 0 && lossless > exact, "{exact} exact, {lossless} lossless, {steps} steps");
}
