//! `tensorwire sim` as a person runs it.

use tensorwire_tests::Workplace;

#[test]
fn one_seed_says_what_it_did_and_the_same_each_time() {
    let place = Workplace::new();
    let said = || {
        let output = place.tensorwire(&["sim", "--seed", "7"]).expect_code(0);
        assert!(output.stdout.is_empty(), "stdout is data only");
        output.stderr
    };
    let first = said();
    assert!(first.contains("seed 7: ") && first.contains("every invariant holds"), "{first}");
    assert_eq!(first, said());
}

#[test]
fn a_sweep_counts_what_it_saw() {
    let place = Workplace::new();
    let output = place.tensorwire(&["sim", "--seeds", "100..160", "--jobs", "2"]).expect_code(0);
    assert!(output.stderr.contains("60 seeds in "), "{}", output.stderr);
    assert!(output.stderr.contains("runs 60, of which certain"), "{}", output.stderr);
}

#[test]
fn faults_come_from_a_preset_or_a_file() {
    let place = Workplace::new();
    let output = place.tensorwire(&["sim", "--seed", "1", "--faults", "none"]).expect_code(0);
    assert!(output.stderr.contains("seed 1: no faults"), "{}", output.stderr);
    let event = r#"{"faults": {"events": [{"fault": "drop", "at": 5, "arg": 0}]}, "images": 8}"#;
    place.write("one.json", event);
    let output = place.tensorwire(&["sim", "--seed", "1", "--faults", "one.json"]).expect_code(0);
    assert!(output.stderr.contains("faults 1: drop 1"), "{}", output.stderr);
    place.write("bad.json", r#"{"fault": {}}"#);
    let output = place.tensorwire(&["sim", "--seed", "1", "--faults", "bad.json"]).expect_code(7);
    assert!(output.stderr.contains("bad.json: unknown field `fault`"), "{}", output.stderr);
    let output = place.tensorwire(&["sim", "--seed", "1", "--faults", "cable"]).expect_code(7);
    assert!(output.stderr.contains("cable: no preset (none, wire, "), "{}", output.stderr);
}

#[test]
fn what_does_not_fit_together_is_a_usage_error() {
    let place = Workplace::new();
    let wrong: [&[&str]; 6] = [
        &["sim"],
        &["sim", "--seed", "1", "--seeds", "0..5"],
        &["sim", "--seeds", "5..5"],
        &["sim", "--seeds", "0..5", "--shrink"],
        &["sim", "--seed", "1", "--jobs", "2"],
        &["sim", "--seed", "-1"],
    ];
    for args in wrong {
        let _ = place.tensorwire(args).expect_code(2);
    }
}
