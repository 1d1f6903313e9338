//! The simulator can fail: every bug that is planted in the product is found, and without them
//! nothing is. One build with the feature `planted` holds all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tensorwire_core::planted::{Bug, plant};
use tensorwire_sim::simulation::faults::Fault;
use tensorwire_sim::simulation::{Plan, RxPoll, run};

/// Seeds within which each bug must be found.
const SEEDS: u64 = 2_000;

/// Bugs that only a poller of its own can show, and those that only a second signal can: without
/// these they are not found.
const ALONE: [(Bug, fn(&mut Plan)); 6] = [
    (Bug::PollerForgets, fused),
    (Bug::DoneUnpolled, fused),
    (Bug::StatsUnshown, fused),
    (Bug::StallUnseen, fused),
    (Bug::ReturnsUncounted, fused),
    (Bug::SecondUnheeded, one_signal),
];

fn fused(plan: &mut Plan) {
    plan.rx_poll = RxPoll::Fused;
}

fn one_signal(plan: &mut Plan) {
    plan.faults.rates.remove(&Fault::SecondSignal);
}

/// The first seed whose run is wrong, and how; `change` makes another plan of what it draws.
fn first_failure(change: fn(&mut Plan)) -> Option<(u64, String)> {
    let carry_out = |seed| {
        let mut plan = Plan::draw(seed);
        change(&mut plan);
        run(&plan)
    };
    (0..SEEDS).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| carry_out(seed))) {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => Some((seed, failure.to_string())),
        Err(_) => Some((seed, "an assertion of the product".to_owned())),
    })
}

// One test: the switch is one for the whole process.
#[test]
#[expect(clippy::print_stdout, reason = "who asks for it (--nocapture) sees what found which bug")]
fn every_planted_bug_is_found_and_nothing_without() {
    plant(Bug::None);
    assert_eq!(first_failure(|_| ()), None, "without a planted bug");
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        plant(*bug);
        match first_failure(|_| ()) {
            Some((seed, how)) => println!("{bug:?}: seed {seed}: {how}"),
            None => missed.push(*bug),
        }
    }
    for (bug, without) in ALONE {
        plant(bug);
        assert_eq!(first_failure(without), None, "{bug:?} without what shows it");
    }
    plant(Bug::None);
    assert!(Bug::ALL.len() >= 15);
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
