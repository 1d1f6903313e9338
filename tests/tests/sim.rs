//! `tensorwire sim` as a person runs it.

use tensorwire_tests::Workplace;
use tensorwire_tests::yaml::{Small, Yaml};

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
    assert!(output.stderr.contains(", no faults"), "{}", output.stderr);
    for way in ["fused", "split"] {
        place.write("way.json", format!(r#"{{"rx_poll": "{way}"}}"#));
        let output =
            place.tensorwire(&["sim", "--seed", "1", "--faults", "way.json"]).expect_code(0);
        let first = format!("seed 1: {way}, no faults");
        assert!(output.stderr.contains(&first), "{}", output.stderr);
    }
    place.write("bad.json", r#"{"rx_poll": "both"}"#);
    let output = place.tensorwire(&["sim", "--seed", "1", "--faults", "bad.json"]).expect_code(7);
    assert!(output.stderr.contains("unknown variant `both`"), "{}", output.stderr);
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
fn a_second_signal_ends_the_run_it_comes_to() {
    let place = Workplace::new();
    let both = r#"{"faults": {"events": [{"fault": "signal", "at": 30, "arg": 0},
                                         {"fault": "second_signal", "at": 3, "arg": 1}]}}"#;
    place.write("both.json", both);
    let output = place.tensorwire(&["sim", "--seed", "1", "--faults", "both.json"]).expect_code(0);
    assert!(output.stderr.contains("steps 34, "), "{}", output.stderr);
    assert!(output.stderr.contains("interrupted 0, terminated 1"), "{}", output.stderr);
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

/// Records a run of made-up frames that are lost and shuffled on their way, and steps through it.
fn recorded(yaml: Yaml) {
    let place = Workplace::new();
    place.write("c.yaml", yaml);
    let prepare = ["prepare", "--synthetic", "5", "--num-images", "400", "--config", "c.yaml"];
    let _ = place.tensorwire(&prepare).expect_code(0);
    let run = "run c.yaml --no-pin --backend none --json --quiet --sim-drop 1/50 --sim-shuffle 6 \
               --record-trace t.trace";
    let args: Vec<&str> = run.split_whitespace().collect();
    let summary = place.tensorwire(&args).expect_code(4).json();
    let output = place.tensorwire(&["sim", "--trace", "t.trace"]).expect_code(0);
    let said = &output.stderr;
    let placed = summary.pointer("/packets/placed").expect("a counter");
    let missing = summary.pointer("/slots/missing").expect("a counter");
    assert!(said.contains("1568 frames") && said.contains("the same decisions"), "{said}");
    assert!(said.contains(&format!(" placed: {placed}, ")), "{said}\n{summary:#}");
    assert!(said.contains(&format!(" missing: {missing}, ")), "{said}\n{summary:#}");
    // Another packet came: another decision.
    let trace = std::fs::read_to_string(place.file("t.trace")).expect("the trace");
    let other = trace.replacen(" placed: ", " placed: 1", 1);
    assert_ne!(trace, other);
    place.write("other.trace", other);
    let output = place.tensorwire(&["sim", "--trace", "other.trace"]).expect_code(1);
    assert!(output.stderr.contains("another decision"), "{}", output.stderr);
    place.write("cut.trace", &trace[..trace.len() / 2]);
    let _ = place.tensorwire(&["sim", "--trace", "cut.trace"]).expect_code(7);
}

#[test]
fn a_run_on_threads_is_stepped_through_afterwards() {
    recorded(Yaml::small(Small::MINI));
}

#[test]
fn a_run_with_a_poller_of_its_own_is_stepped_through_afterwards() {
    recorded(Yaml::small(Small::MINI).with("tensorwire", "{ rx_poll: split }"));
}

#[test]
fn a_simulated_run_is_recorded_and_stepped_through() {
    let place = Workplace::new();
    // A seed whose packets are not kept until their batch closes.
    let _ = place.tensorwire(&["sim", "--seed", "3", "--trace", "t.trace"]).expect_code(0);
    let _ = place.tensorwire(&["sim", "--trace", "t.trace"]).expect_code(0);
}
