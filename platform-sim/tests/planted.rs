//! The simulator can fail: every bug that is planted in the product is found, and without them
//! nothing is. One build with the feature `planted` holds all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tensorwire_core::planted::{Bug, plant};
use tensorwire_sim::simulation::{Plan, run};

/// Seeds within which each bug must be found.
const SEEDS: u64 = 2_000;

/// The first seed whose run is wrong, and how.
fn first_failure() -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| run(&Plan::draw(seed)))) {
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
    assert_eq!(first_failure(), None, "without a planted bug");
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        plant(*bug);
        match first_failure() {
            Some((seed, how)) => println!("{bug:?}: seed {seed}: {how}"),
            None => missed.push(*bug),
        }
    }
    plant(Bug::None);
    assert!(Bug::ALL.len() >= 15);
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
