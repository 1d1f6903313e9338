//! Each key of each shipped file broken once, in each way (C25).

use tensorwire_configs::{Checked, SHIPPED, Severity, Verdict};

use crate::mutants::{lines, replaced};
use crate::support::{check, errors};

/// What holds for every mutant: the run refuses exactly what the validator refuses, all findings
/// have a place, and the file's own lines are those that are named.
fn consistent(checked: &Checked, what: &str) {
    let refused = checked.for_mode(None).is_err();
    assert_eq!(refused, checked.verdict() >= Verdict::Unsupported, "{what}");
    let lines = checked.source.text().lines().count() + 1;
    for found in &checked.diagnostics {
        assert!((1..=lines).contains(&found.position.line), "{what}: {found:?}");
        assert!(!found.message.is_empty() && !found.message.contains('\n'), "{what}");
    }
}

#[test]
fn a_misspelt_key_is_one_error_with_the_right_word() {
    let mut tried = 0;
    for (name, text) in SHIPPED {
        for line in lines(text) {
            let wrong = format!("{}x{}", &line.key[..1], &line.key[1..]);
            let mutant = replaced(text, &line, &line.text.replacen(line.key, &wrong, 1));
            let checked = check(&mutant);
            let what = format!("{name}: {wrong}");
            consistent(&checked, &what);
            let unknown =
                checked.diagnostics.iter().find(|found| found.code.to_string() == "TW0201");
            let unknown = unknown.unwrap_or_else(|| panic!("{what}: {:#?}", checked.diagnostics));
            assert!(unknown.key.ends_with(&wrong), "{what}: {unknown:?}");
            // Words of two letters are near to nothing; all others are proposed, and what they hold
            // counts, so that the misspelling is the only error.
            let proposed = unknown.help.as_deref().is_some_and(|help| help.contains(line.key));
            assert!(proposed || line.key.len() <= 3, "{what}: {unknown:?}");
            if proposed {
                assert_eq!(errors(&checked), ["TW0201"], "{what}: {:#?}", checked.diagnostics);
            }
            tried += 1;
        }
    }
    assert!(tried > 400, "{tried} keys");
}

#[test]
fn a_key_that_stands_twice_is_an_error_at_the_second() {
    for (name, text) in SHIPPED {
        for line in lines(text).iter().filter(|line| !line.value.is_empty()) {
            let again = line.text.replace('-', " ");
            let mutant = replaced(text, line, &format!("{}{again}", line.text));
            let checked = check(&mutant);
            let what = format!("{name}: {} twice", line.key);
            consistent(&checked, &what);
            assert_eq!(errors(&checked), ["TW0202"], "{what}: {:#?}", checked.diagnostics);
        }
    }
}

#[test]
fn a_wrong_type_is_an_error_at_the_key() {
    for (name, text) in SHIPPED {
        for line in lines(text).iter().filter(|line| !line.value.is_empty()) {
            let by = if line.value.starts_with('[') { "{a: 1}" } else { "[[1]]" };
            let mutant = replaced(text, line, &format!("{}{}: {by}\n", line.lead, line.key));
            let checked = check(&mutant);
            let what = format!("{name}: {}: {by}", line.key);
            consistent(&checked, &what);
            let wrong =
                checked.diagnostics.iter().filter(|found| found.code.to_string() == "TW0301");
            assert_eq!(wrong.count(), 1, "{what}: {:#?}", checked.diagnostics);
        }
    }
}

#[test]
fn a_number_out_of_range_is_an_error_at_the_key() {
    for (name, text) in SHIPPED {
        for line in lines(text).iter().filter(|line| line.value.parse::<u64>().is_ok()) {
            for by in ["-1", "99999999999999999999"] {
                let mutant = replaced(text, line, &format!("{}{}: {by}\n", line.lead, line.key));
                let checked = check(&mutant);
                let what = format!("{name}: {}: {by}", line.key);
                consistent(&checked, &what);
                assert_eq!(errors(&checked), ["TW0303"], "{what}: {:#?}", checked.diagnostics);
            }
        }
    }
}

#[test]
fn a_wrong_word_is_an_error_and_a_wrong_name_too() {
    // Keys that hold free text: whatever stands there is right.
    let free = ["name", "reorder_name", "onnx_path", "engine_path", "input_name", "output_name"];
    for (name, text) in SHIPPED {
        for line in lines(text).iter().filter(|line| !line.value.is_empty()) {
            let paths = line.key.ends_with("_path") || free.contains(&line.key);
            let mutant = replaced(text, line, &format!("{}{}: zebra:x\n", line.lead, line.key));
            let checked = check(&mutant);
            let what = format!("{name}: {}: zebra:x", line.key);
            consistent(&checked, &what);
            // A renamed region or interface is missed by those that refer to it.
            let referred = line.key == "name" && checked.verdict() == Verdict::Invalid;
            let valid = checked.verdict() < Verdict::Invalid;
            assert_eq!(valid, paths && !referred, "{what}: {:#?}", checked.diagnostics);
        }
    }
}

#[test]
fn a_deleted_key_is_an_error_or_its_default() {
    for (name, text) in SHIPPED {
        for line in lines(text).iter().filter(|line| !line.value.is_empty()) {
            if line.lead.contains('-') {
                continue;
            }
            let checked = check(&replaced(text, line, ""));
            let what = format!("{name}: no {}", line.key);
            consistent(&checked, &what);
            for found in &checked.diagnostics {
                let error = found.severity() == Severity::Error;
                let number = found.code.to_string();
                // Missing, or a default that does not fit the rest of the file.
                let right = [
                    "TW0203", "TW0403", "TW0411", "TW0409", "TW0410", "TW0301", "TW0303", "TW0521",
                    "TW0809",
                ];
                assert!(!error || right.contains(&&*number), "{what}: {found:?}");
            }
        }
    }
}
