//! Any stream at all: both sides agree after every step, and every rule is reached.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};

use crate::stream::{KINDS, Plan, SHAPES, Step};

fn plans() -> impl Strategy<Value = Plan> {
    // Narrow numbers are where most of the rules meet.
    let width = prop_oneof![4..=10u32, 4..=32u32];
    let receiver = (0..SHAPES.len(), width, 1..=4u32, 0..2u64, 1..40u64, 0..300u64);
    let steps = vec((0..KINDS, any::<u16>(), any::<u16>()), 1..40);
    (receiver, steps).prop_map(|((shape, width, windows, timed, timeout, start), steps)| {
        let mut plan =
            Plan { shape, width, windows, timeout: timed * timeout, start, steps: Vec::new() };
        let geometry = plan.geometry();
        plan.steps = steps.into_iter().map(|(k, a, b)| Step::new(k, a, b, &geometry)).collect();
        plan
    })
}

/// What [`Model`](crate::model::Model) can reach; a rule that is not listed fails the test, too.
const RULES: [&str; 33] = [
    "a complete batch waits",
    "a restart inside a batch that was reached",
    "a run of stragglers",
    "cause: complete",
    "cause: deadline",
    "cause: discontinuity",
    "cause: moved",
    "cause: pool",
    "cause: shutdown",
    "confirmed: ahead",
    "confirmed: discontinuity",
    "cut by timeout",
    "gap of one batch",
    "gap of several batches",
    "gap with losses on both sides of an excuse",
    "held",
    "image: damaged",
    "image: excused",
    "image: missing",
    "image: unfinished",
    "late",
    "plain: ahead",
    "plain: behind",
    "plain: in order",
    "refuted: before the beginning",
    "refuted: duplicate",
    "refuted: far and not trusted",
    "refuted: late",
    "refuted: placed",
    "refuted: placed, far",
    "refuted: wild",
    "taken back",
    "the numbers wrap",
];

#[test]
fn any_stream_is_taken_as_the_model_takes_it() {
    let rules = RefCell::new(BTreeMap::new());
    let receivers = RefCell::new(BTreeSet::new());
    let config = Config { cases: 20_000, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&plans(), |plan| {
        receivers.borrow_mut().insert(("width", plan.geometry().seq_field().width_bits()));
        receivers.borrow_mut().insert(("open batches", plan.windows));
        for (rule, times) in plan.run().model.reached {
            *rules.borrow_mut().entry(rule).or_insert(0u64) += times;
        }
        Ok(())
    });
    if let Err(why) = run {
        panic!("{why}");
    }
    for (rule, times) in rules.borrow().iter() {
        eprintln!("{times:>9}  {rule}");
    }
    assert_eq!(rules.borrow().keys().copied().collect::<Vec<_>>(), RULES, "a rule not reached");
    for (rule, times) in rules.borrow().iter() {
        assert!(*times >= 10, "hardly ever reached: {rule}");
    }
    let all = (4..=32).map(|n| ("width", n)).chain((1..=4).map(|n| ("open batches", n)));
    assert_eq!(*receivers.borrow(), all.collect::<BTreeSet<_>>());
}
