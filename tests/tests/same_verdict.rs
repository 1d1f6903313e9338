//! C25: what `validate` says of a file and what `run` says of it at a dry start is the same,
//! finding for finding, whichever key of a shipped file is broken.

use std::sync::Mutex;
use std::thread;

use tensorwire_configs::SHIPPED;
use tensorwire_tests::{Output, Workplace};

#[path = "../../configs/tests/it/mutants.rs"]
mod mutants;

use mutants::{Line, lines, replaced};

/// The ways in which a key is broken.
const WAYS: [&str; 6] =
    ["deleted", "wrong type", "out of range", "wrong word", "twice", "misspelt"];

/// The file with `line` broken in one way; `None` where that way has no meaning.
fn broken(text: &str, line: &Line<'_>, way: &str) -> Option<String> {
    let holds = !line.value.is_empty();
    let number = line.value.parse::<u64>().is_ok();
    let (lead, key) = (line.lead, line.key);
    let by = match way {
        "deleted" if holds && !lead.contains('-') => String::new(),
        "wrong type" if holds => format!("{lead}{key}: [[1]]\n"),
        "out of range" if number => format!("{lead}{key}: 99999999999999999999\n"),
        "wrong word" if holds => format!("{lead}{key}: zebra:x\n"),
        "twice" if holds => format!("{}{}", line.text, line.text.replace('-', " ")),
        "misspelt" => line.text.replacen(key, &format!("{}x{}", &key[..1], &key[1..]), 1),
        _ => return None,
    };
    Some(replaced(text, line, &by))
}

/// The messages of an output that make it end with 3 or 5, with their places.
fn findings(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        let line = line.strip_prefix("tensorwire: ").unwrap_or(line);
        if line.starts_with("error[TW") || line.starts_with("unsupported[TW") {
            found.push(line);
            found.extend(rest.peek().map(|place| place.trim_start()));
        }
    }
    found
}

/// Holds the two outputs of one file against each other; true when it was refused.
fn compare(what: &str, validated: &Output, started: &Output) -> bool {
    let said = format!("{what}\nvalidate: {validated:?}\nrun: {started:?}");
    assert_eq!(findings(&validated.stdout), findings(&started.stderr), "{said}");
    let unsupported = validated.stdout.contains("unsupported[TW");
    match validated.code {
        Some(3) => assert_eq!(started.code, Some(3), "{said}"),
        Some(0) if unsupported => assert_eq!(started.code, Some(5), "{said}"),
        // Right, but the capture or the model is not there, or the NIC is not in this build.
        Some(0) => assert!(matches!(started.code, Some(0 | 5 | 7)), "{said}"),
        _ => panic!("{said}"),
    }
    validated.code == Some(3)
}

#[test]
fn c25_validator_and_dry_start_agree_on_every_broken_key() {
    let mut mutants = Vec::new();
    for (name, text) in SHIPPED {
        for (at, line) in lines(text).iter().enumerate() {
            for (which, way) in WAYS.iter().enumerate() {
                // Every way for one file; for the others, which differ little, one way a key.
                let tried = *name == "resnet50_sw_loopback.yaml" || at % WAYS.len() == which;
                if let Some(mutant) = broken(text, line, way).filter(|_| tried) {
                    mutants.push((format!("{name}: {} {way}", line.key), mutant));
                }
            }
        }
    }
    let count = mutants.len();
    assert!(count > 500, "{count} mutants");
    let work = Mutex::new(mutants.into_iter());
    let refused = Mutex::new(0);
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let place = Workplace::new();
                loop {
                    let next = work.lock().expect("a lock").next();
                    let Some((what, mutant)) = next else { break };
                    place.write("c.yaml", mutant);
                    let validated = place.tensorwire(&["validate", "c.yaml"]);
                    let started = place.tensorwire(&["run", "c.yaml", "--dry-run", "--no-pin"]);
                    let wrong = compare(&what, &validated, &started);
                    *refused.lock().expect("a lock") += usize::from(wrong);
                }
            });
        }
    });
    let refused = refused.into_inner().expect("a lock");
    assert!(refused > count / 2, "{refused} of {count} refused");
    tensorwire_tests::report(&format!(
        "{count} broken files, {refused} of them refused, by both alike"
    ));
}

/// A dry start says what would run, and starts nothing.
#[test]
fn a_dry_start_of_a_good_file_says_what_would_run() {
    let place = Workplace::new();
    let text = SHIPPED.iter().find(|(name, _)| *name == "resnet50_sw_loopback.yaml");
    place.write("c.yaml", text.expect("a shipped file").1);
    let made = ["prepare", "--synthetic", "1", "--num-images", "32"];
    let _ = place.tensorwire(&made).expect_code(0);
    let before = place.files();
    let run =
        ["run", "c.yaml", "--dry-run", "--no-pin", "--backend", "none", "--features", "f.npy"];
    let refused = place.tensorwire(&run).expect_code(2);
    assert!(refused.stderr.contains("--features"), "{}", refused.stderr);
    let started = place.tensorwire(&run[..6]).expect_code(0);
    let said = "dry run: mode both, 4096 frames once, 32 images a pass, no inference";
    assert!(started.stderr.contains(said), "{}", started.stderr);
    assert_eq!(place.files(), before);
}
