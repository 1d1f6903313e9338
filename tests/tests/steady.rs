//! The start of a receiver that is to be left alone: memory locked, threads real time; and what
//! its loops cost from then on.

use serde_json::Value;
use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Output, Workplace, report};

/// A small configuration with these settings, and frames that are made up.
fn place(settings: &str) -> Workplace {
    let place = Workplace::new();
    let yaml = Yaml::small(Small::MINI).synthetic().with("tensorwire", settings);
    place.write("c.yaml", yaml);
    place
}

/// A run of half a second without inference, which allocates and is not ours.
const RUN: &str = "run c.yaml --no-pin --backend none --seconds 0.5 --json";

/// `line` by a process without these capabilities: taken from who has them.
fn without(capabilities: &str, line: &str) -> String {
    format!(
        "if [ $(id -u) = 0 ]; then setpriv --bounding-set=-{capabilities} --inh-caps=-all \"$TW\" \
         {line}; else \"$TW\" {line}; fi"
    )
}

#[test]
fn locked_and_real_time_the_loops_neither_allocate_nor_fault() {
    let place = place("{lock_memory: true, realtime_priority: 10}");
    // A kernel that is short of memory in one piece moves pages, locked ones too
    // (vm.compact_unevictable_allowed), and whoever touches one meanwhile faults: once.
    let faults = |output: &Output| {
        let loops = output.json()["steady"].as_array().cloned().unwrap_or_default();
        loops.iter().any(|cost| cost["minor_faults"] != 0)
    };
    let run = || place.shell(&format!("\"$TW\" {RUN}"));
    let mut output = run();
    for _ in 0..2 {
        if output.code == Some(0) && faults(&output) {
            report(&format!("steady: once more, after faults: {}", output.json()["steady"]));
            output = run();
        }
    }
    if output.code == Some(5) && output.stderr.contains("CAP_") {
        return report("steady: skipped: no right to lock memory or to be real time here");
    }
    let summary = output.expect_code(0).json();
    let loops = summary["steady"].as_array().expect("a list");
    let names: Vec<_> = loops.iter().filter_map(|cost| cost["thread"].as_str()).collect();
    assert_eq!(names, ["tw-producer", "tw-consumer", "tw-sender"]);
    for cost in loops {
        assert!(cost["turns"].as_u64() > Some(100), "{cost}");
        for nothing in ["allocations", "minor_faults", "major_faults"] {
            assert_eq!(cost[nothing], Value::from(0), "{nothing}: {cost}");
        }
        assert!(cost["longest_turn_ms"].as_f64() > Some(0.0), "{cost}");
    }
}

#[test]
fn a_right_that_is_missing_is_named_with_how_to_give_it() {
    let memory = place("{lock_memory: true}");
    let line = format!("ulimit -l 64; {}", without("ipc_lock", RUN));
    let refused = memory.shell(&line).expect_code(5).stderr;
    assert!(refused.contains("tensorwire.lock_memory: memory is not locked: CAP_IPC_LOCK"));
    assert!(refused.contains("RLIMIT_MEMLOCK is 65536 bytes"), "{refused}");
    assert!(refused.contains("LimitMEMLOCK=infinity"), "{refused}");

    let time = place("{realtime_priority: 10}");
    let line = format!("ulimit -r 0; {}", without("sys_nice", RUN));
    let refused = time.shell(&line).expect_code(5).stderr;
    let text = "tensorwire.realtime_priority: thread `tw-";
    assert!(refused.contains(text), "{refused}");
    assert!(refused.contains("CAP_SYS_NICE is missing, and RLIMIT_RTPRIO is 0"), "{refused}");
    assert!(refused.contains("LimitRTPRIO=10"), "{refused}");
}

#[test]
fn a_thread_without_an_isolated_core_is_refused() {
    let place = place("{isolated_cores: true}");
    let refused = place.shell(&format!("\"$TW\" {RUN}")).expect_code(5).stderr;
    let text = "tensorwire.isolated_cores: thread `tw-producer` is pinned to no core";
    assert!(refused.contains(text), "{refused}");
}
