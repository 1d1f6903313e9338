//! Every rule can be broken, by its own example, and is unique.

use std::collections::BTreeSet;

use tensorwire_configs::rules::{Example, RULES, find};
use tensorwire_configs::{Checked, Diagnostic, Options, check_bytes, check_str, explain};

use crate::support::{file, with};

fn broken(example: &Example) -> Vec<Diagnostic> {
    let plain = |text: &str| check_str("x.yaml", text, &Options::default());
    let checked: Checked = match example {
        Example::Change { file: name, from, to } => plain(&with(file(name), from, to)),
        Example::Text(text) => plain(text),
        Example::Repeat(text, times) => plain(&text.repeat(*times)),
        Example::Bytes(bytes) => check_bytes("x.yaml", bytes, &Options::default()),
        Example::Shipped(name) => plain(file(name)),
        Example::Cores(name, cores) => {
            let cores_available = Some(cores.to_vec());
            check_str("x.yaml", file(name), &Options { cores_available, ..Options::default() })
        }
        Example::Mode(name, mode) => {
            let refused = plain(file(name)).for_mode(Some(*mode));
            return refused.expect_err("the example asks for a mode that the file has not");
        }
    };
    checked.diagnostics
}

#[test]
fn every_rule_is_broken_by_its_example() {
    for rule in RULES {
        let found = broken(&rule.example);
        assert!(
            found.iter().any(|found| found.code == rule.code),
            "{} is not broken by its example, but these are: {:#?}",
            rule.number,
            found.iter().map(|found| (found.code, &found.message)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn numbers_are_unique_ascending_and_found_again() {
    let numbers: Vec<&str> = RULES.iter().map(|rule| rule.number).collect();
    let sorted: BTreeSet<&str> = numbers.iter().copied().collect();
    assert!(sorted.iter().eq(numbers.iter()), "numbers ascend without repeats: {numbers:?}");
    for rule in RULES {
        assert_eq!(rule.code.rule().number, rule.number);
        assert_eq!(find(rule.number).map(|found| found.code), Some(rule.code));
        assert_eq!(find(&rule.number[2..]).map(|found| found.code), Some(rule.code));
    }
    assert!(find("TW0000").is_none());
}

#[test]
fn explanations_are_whole_sentences_without_a_stop() {
    for rule in RULES {
        let text = explain(rule.number).expect("a rule");
        assert!(text.contains("why: ") && text.contains("fix: ") && text.contains("example: "));
        for part in [rule.title, rule.why, rule.fix] {
            assert!(!part.is_empty() && !part.ends_with('.'), "{}: {part}", rule.number);
        }
    }
}
