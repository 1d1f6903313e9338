use tensorwire_core::pipeline::producer::EndReason;
use tensorwire_core::time::Nanos;

use super::faults::{Event, Fault, FaultPlan};
use super::*;
use crate::nic::TxMode;

fn all(plan: &Plan) -> Vec<u64> {
    (0..plan.sent_images()).collect()
}

#[test]
fn a_quiet_run_delivers_everything() {
    for (at_close, rx_poll) in [None, Some(0), Some(3)]
        .into_iter()
        .flat_map(|at_close| [(at_close, RxPoll::Fused), (at_close, RxPoll::Split)])
    {
        let plan = Plan { at_close, rx_poll, rx_bufs: 256, passes: 3, ..Plan::quiet(1) };
        let outcome = run(&plan).expect("nothing goes wrong");
        assert_eq!(outcome.delivered, all(&plan));
        assert_eq!(outcome.producer.end, Some(EndReason::SenderDone));
        let packets = outcome.producer.packets;
        assert_eq!((packets.offered, packets.placed), (384, 384));
        assert!(outcome.certain && outcome.ending == Ending::Complete);
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

fn with(events: &[(Fault, u64, u64)]) -> FaultPlan {
    FaultPlan::of(events.iter().map(|&(fault, at, arg)| Event { fault, at, arg }).collect())
}

#[test]
fn a_lost_packet_costs_its_image_and_no_other() {
    let faults = with(&[(Fault::Drop, 49, 0), (Fault::Drop, 99, 0), (Fault::Reorder, 120, 2)]);
    let plan = Plan { faults, images: 64, ..Plan::quiet(2) };
    let outcome = run(&plan).expect("holds");
    assert!(outcome.delivered.iter().copied().eq((0..64).filter(|n| ![12, 24].contains(n))));
    assert_eq!((outcome.wire.wire_dropped, outcome.events.len()), (2, 3));
    assert_eq!(outcome.ending, Ending::Owed);
}

#[test]
fn l01_what_comes_before_readiness_is_counted_apart_and_costs_its_images_only() {
    // The engine is ready 100 steps after the sender has begun.
    let faults = with(&[(Fault::EngineSlow, 0, 99)]);
    let plan = Plan { faults, images: 64, mode: TxMode::Wire, tx_ring: 2, ..Plan::quiet(3) };
    let outcome = run(&plan).expect("holds");
    let packets = outcome.producer.packets;
    assert!(packets.early > 0 && packets.placed > 0, "{packets:?}");
    assert_eq!(packets.early + packets.placed + outcome.producer.nic.missed, 256);
    assert!(outcome.certain && outcome.delivered.last() == Some(&63), "{:?}", outcome.delivered);
}

/// C27: a poller that stalls in the middle of a batch, or a producer, or both.
#[test]
fn c27_whoever_stalls_no_batch_is_cut_whose_packets_wait() {
    for rx_poll in [RxPoll::Fused, RxPoll::Split] {
        for (fault, at) in [(Fault::RingFull, 60), (Fault::SlowProducer, 60)] {
            let faults = with(&[(fault, at, 140), (fault, at + 200, 149)]);
            let timeout = Nanos::from_micros(100);
            let plan = Plan { faults, rx_poll, timeout, images: 128, tx_ring: 2, ..Plan::quiet(4) };
            let outcome = run(&plan).expect("holds");
            assert_eq!(outcome.events.len(), 2);
            assert_eq!(outcome.producer.reassembly.partial.deadline, 0, "{rx_poll} {fault}");
            assert_eq!(outcome.delivered, all(&plan));
        }
    }
}

/// Seed 438291: a deadline closed a batch that had to wait for the consumer, and in the same step
/// the packet pool was short.
#[test]
fn a_close_that_waits_is_not_overtaken_by_another_for_the_pool() {
    let geometry = tensorwire_core::geometry::GeometrySpec {
        packets_per_image: 2,
        images_per_batch: 8,
        payload_bytes: 384,
        seq_bit_offset: 128,
        seq_bit_width: 11,
        ..MINI
    };
    let quiet = Plan { geometry, images: 27, windows: 1, buffers: 12, ..Plan::quiet(438_291) };
    let plan = Plan {
        queue_depth: 2,
        rx_bufs: 20,
        rx_ring: 11,
        poll: 5,
        tx_ring: 48,
        verify: tensorwire_core::header::Verify::Ip,
        at_close: Some(4),
        done_on_submit: true,
        images_per_inference: 1,
        timeout: Nanos::from_micros(21),
        fault_steps: 1_552,
        weights: Weights { sender: 20, poller: 1, producer: 4, consumer: 3 },
        ..quiet
    };
    run(&plan).expect("holds");
}

/// The second signal ends the process: what had been delivered is all there is.
#[test]
fn a_second_signal_is_the_end() {
    for (arg, ending) in [(0, Ending::Interrupted), (1, Ending::Terminated)] {
        let faults = with(&[(Fault::Signal, 150, 0), (Fault::SecondSignal, 4, arg)]);
        let plan = Plan { faults, images: 64, tx_ring: 2, ..Plan::quiet(5) };
        let outcome = run(&plan).expect("holds");
        assert_eq!((outcome.ending, outcome.steps), (ending, 155));
        let few = outcome.delivered.len() as u64;
        assert!(few > 0 && few < 64 && outcome.delivered.iter().copied().eq(0..few));
        // One alone: the run drains.
        let plan = Plan { faults: with(&[(Fault::Signal, 150, arg)]), ..plan };
        let drained = run(&plan).expect("holds");
        assert_eq!(
            (drained.ending, drained.producer.end),
            (Ending::Owed, Some(EndReason::Stopped))
        );
        assert!(drained.delivered.starts_with(&outcome.delivered) && drained.steps > 155);
    }
}

/// Every step of every seed is measured; here are many batches of one run.
#[test]
fn a_long_run_takes_no_memory() {
    for rx_poll in [RxPoll::Fused, RxPoll::Split] {
        let faults = FaultPlan::preset("wire").expect("a preset");
        let plan = Plan { faults, rx_poll, passes: 160, fault_steps: 1 << 40, ..Plan::quiet(6) };
        let outcome = run(&plan).expect("holds");
        assert!(outcome.producer.pushed > 1_000, "{}", outcome.producer.pushed);
    }
}

#[test]
fn a_leak_is_seen() {
    let failure = meter::on::leaking(|| run(&Plan::quiet(1))).expect_err("each step allocates");
    let Failure::Broken { violation, step, .. } = &failure else { panic!("{failure}") };
    assert_eq!(
        (violation.to_string().as_str(), *step),
        ("memory taken in a step: 1, and it should be 0", 0)
    );
}

#[test]
fn a_run_that_cannot_end_is_stuck() {
    let plan = Plan { max_steps: Some(20), ..Plan::quiet(1) };
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
    ];
    for plan in refused {
        let failure = run(&plan).expect_err("cannot be carried out");
        assert!(matches!(&failure, Failure::Plan(why) if !why.is_empty()), "{failure}");
    }
}

/// The seeds that a test run sweeps; `TENSORWIRE_SIM_SEEDS=A..B` sweeps others.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("TENSORWIRE_SIM_SEEDS").ok();
    let parsed = given.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    parsed.unwrap_or(0..5_000)
}

/// A failure, and the little that it takes.
fn tell(seed: u64, failure: &Failure) -> String {
    match shrink(&Plan::draw(seed), 500) {
        Some(Shrunk { plan, failure: small, .. }) => {
            format!("{failure}\nshrunk: {small}\n{:?}\n{plan:?}", plan.faults.events)
        }
        None => failure.to_string(),
    }
}

#[test]
fn seeds_hold() {
    let (mut coverage, mut failed) = (Coverage::default(), Vec::new());
    for seed in seeds() {
        match run(&Plan::draw(seed)) {
            Ok(outcome) => coverage.add(&outcome),
            Err(failure) => failed.push((seed, failure)),
        }
    }
    let told: Vec<String> =
        failed.iter().take(5).map(|(seed, failure)| tell(*seed, failure)).collect();
    assert!(failed.is_empty(), "{} seeds fail:\n{}", failed.len(), told.join("\n"));
    // A sweep that never makes a strong claim, or in which something never happens, proves little.
    assert!(coverage.certain * 10 > coverage.runs, "{coverage}");
    assert!(coverage.split * 4 > coverage.runs, "{coverage}");
    assert!(coverage.faults.iter().chain(&coverage.endings).all(|count| *count > 0), "{coverage}");
}
