use std::collections::BTreeSet;

use serde_json::Value;

use crate::sink::Mode;
use crate::sink::testing::{empty, full};

/// The path of every key, with `[]` for "each entry of a list".
fn paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if at.is_empty() { "" } else { "." };
                let path = format!("{at}{dot}{key}");
                into.insert(path.clone());
                paths(value, &path, into);
            }
        }
        Value::Array(list) => {
            for value in list {
                paths(value, &format!("{at}[]"), into);
            }
        }
        _ => {}
    }
}

/// The first cell of every row of the table of keys in `docs/summary.md`.
fn documented() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/summary.md");
    let text = std::fs::read_to_string(path).expect("the documentation is in the repository");
    let (_, keys) = text.split_once("\n## JSON keys\n").expect("the chapter on the keys");
    let rows = keys.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut found = BTreeSet::new();
    for row in rows {
        let (key, rest) = row.split_once("` |").expect("a cell with a key");
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        assert!(cells.len() >= 3 && !cells[0].is_empty() && !cells[1].is_empty(), "{key}");
        assert!(found.insert(key.to_owned()), "{key} twice");
    }
    found
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    let json: Value = serde_json::from_str(&full().to_json().expect("plain data")).expect("JSON");
    let mut found = BTreeSet::new();
    paths(&json, "", &mut found);
    let documented = documented();
    let undocumented: Vec<_> = found.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&found).collect();
    assert!(undocumented.is_empty(), "not in docs/summary.md: {undocumented:?}");
    assert!(gone.is_empty(), "only in docs/summary.md: {gone:?}");
}

#[test]
fn one_object_on_one_line_and_no_figure_that_is_none() {
    for summary in [empty(Mode::Rx), empty(Mode::Tx), full()] {
        let text = summary.to_json().expect("plain data");
        assert!(text.ends_with("}\n") && text.lines().count() == 1);
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert!(json.is_object());
    }
    let json: Value =
        serde_json::from_str(&empty(Mode::Rx).to_json().expect("plain data")).expect("JSON");
    for path in ["/infer_ms/mean", "/rate/active_images_per_s", "/accuracy", "/join", "/tx"] {
        assert_eq!(json.pointer(path), Some(&Value::Null), "{path}");
    }
    assert_eq!(json.pointer("/infer_ms/n"), Some(&Value::from(0)));
}

#[test]
fn the_keys_come_in_their_documented_order() {
    let text = full().to_json().expect("plain data");
    let at = |key: &str| text.find(&format!("\"{key}\":")).expect("the key is there");
    let order = ["schema", "mode", "exit_code", "images", "damaged_ranges", "batches", "packets"];
    assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
    assert!(text.contains("\"damaged_ranges\":[[7,7],[15,16]]"), "{text}");
    assert!(text.contains("\"predicted\":[0,null,1]"), "{text}");
    assert!(text.contains("\"mode\":\"both\""), "{text}");
}
