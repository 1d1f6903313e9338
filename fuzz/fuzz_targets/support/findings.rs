//! What must hold for the answer about a configuration, whatever the configuration is.

use tensorwire_configs::render::{Format, render, summary};
use tensorwire_configs::{Checked, Mode, Severity, Verdict};

pub fn check(checked: &Checked) {
    let text = checked.source.text();
    assert_eq!(checked.config.is_some(), checked.verdict() <= Verdict::Warnings);
    let mut last = 0;
    for found in &checked.diagnostics {
        let places = [Some((found.span, found.position))]
            .into_iter()
            .chain([found.second.as_ref().map(|second| (second.span, second.position))]);
        for (span, position) in places.flatten() {
            assert!(text.get(span.start..span.end).is_some(), "{found:?}");
            assert_eq!(checked.source.position(span.start), position, "{found:?}");
        }
        assert!(found.span.start >= last, "findings are in file order");
        last = found.span.start;
        assert!(!found.message.is_empty());
    }
    rendered(checked);
    modes(checked);
}

fn rendered(checked: &Checked) {
    let all = [checked];
    let shown = render(&all, Format::Text);
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    assert!(render(&all, Format::Colour).len() >= shown.len());
    for format in [Format::Json, Format::Sarif] {
        let json = render(&all, format);
        let read: Result<serde_json::Value, _> = serde_json::from_str(&json);
        assert!(read.is_ok(), "{read:?}: {json}");
    }
    let annotations = render(&all, Format::Github);
    assert_eq!(annotations.lines().count(), checked.diagnostics.len());
    assert_eq!(annotations.matches("\n").count(), checked.diagnostics.len());
    assert!(!summary(checked).contains('\n'));
}

fn modes(checked: &Checked) {
    for mode in [None, Some(Mode::Rx), Some(Mode::Tx), Some(Mode::Both)] {
        match checked.for_mode(mode) {
            Ok((chosen, config)) => {
                assert!(mode.is_none_or(|mode| mode == chosen));
                assert_eq!(config.rx.is_some(), chosen != Mode::Tx);
                assert_eq!(config.tx.is_some(), chosen != Mode::Rx);
            }
            Err(found) => {
                assert!(found.iter().any(|found| found.severity() >= Severity::Unsupported));
                assert!(mode.is_some() || checked.config.is_none());
            }
        }
    }
}
