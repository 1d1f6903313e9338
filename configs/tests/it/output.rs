//! What people and programs get to see.

use tensorwire_configs::render::{Format, diagnostic, render, summary};
use tensorwire_configs::schema;

use crate::support::{check, file, the, with};

#[test]
fn a_typo_three_levels_down() {
    let text = with(file("resnet50_rx_spark_xhost.yaml"), "batch_size: 8192", "batch_sise: 8192");
    let checked = check(&text);
    insta::assert_snapshot!("typo", diagnostic(&checked.source, the(&checked, "TW0201")));
}

#[test]
fn five_faults_in_one_file() {
    let text = file("resnet50_rx_spark_xhost.yaml");
    let text = with(text, "kind: \"host_pinned\"", "kind: \"host_pined\"");
    let text = with(&text, "master_core: 8", "master_core: 08");
    let text = with(
        &text,
        "                id: 0\n              match",
        "                id: 1\n              match",
    );
    let text = with(&text, "images_per_batch: 32", "images_per_batch: 24");
    let text = with(&text, "top_k: 8", "top_k: 8\n  top_k: 16");
    let checked = check(&text);
    insta::assert_snapshot!("five_faults", render(&[&checked], Format::Text));
    assert!(summary(&checked).starts_with("test.yaml: 5 errors"), "{}", summary(&checked));
}

#[test]
fn a_wrong_buffer_size_shows_the_formula() {
    let text = with(file("resnet50_rx_spark_xhost.yaml"), "buf_size: 9633792", "buf_size: 9633793");
    let checked = check(&text);
    let found = the(&checked, "TW0507");
    assert!(found.message.contains("4096 packets × 2352 B = 9,633,792"), "{}", found.message);
    insta::assert_snapshot!("buffer_size", diagnostic(&checked.source, found));
}

#[test]
fn machine_formats() {
    let text = with(file("resnet50_sw_loopback.yaml"), "loopback: \"sw\"", "loopback: \"s,w%\"");
    let checked = check(&text);
    insta::assert_snapshot!("github", render(&[&checked], Format::Github));
    let json = render(&[&checked], Format::Json);
    insta::assert_snapshot!("json", json);
    for text in [json, render(&[&checked], Format::Sarif), schema()] {
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(value.is_object());
    }
    let sarif: serde_json::Value =
        serde_json::from_str(&render(&[&checked], Format::Sarif)).expect("JSON");
    let run = &sarif["runs"][0];
    assert_eq!(run["results"][0]["ruleId"], "TW0304");
    let rules = run["tool"]["driver"]["rules"].as_array().map(Vec::len);
    assert_eq!(rules, Some(tensorwire_configs::rules::RULES.len()));
}

#[test]
fn colour_only_when_asked_for_and_no_control_characters_from_the_file() {
    let checked = check("daqiri: \"\\e[31m\\x07\"\n\"k\\nk\": 1\n");
    let plain = render(&[&checked], Format::Text);
    assert!(!plain.contains('\x1b') && !plain.contains('\x07'), "{plain:?}");
    assert!(render(&[&checked], Format::Colour).contains("\x1b[1;31merror"));
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let long = format!("stats: {{{}, wrong: 1}}\n", vec!["top_k: 1"; 40].join(", "));
    let checked = check(&long);
    let shown = diagnostic(&checked.source, {
        let mut found = checked.diagnostics.iter();
        found.rfind(|found| found.message.contains("wrong")).expect("an unknown key")
    });
    let longest = shown.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(longest < 130, "{shown}");
    let marked = shown.lines().nth(3).expect("the line of the file");
    let marks = shown.lines().nth(4).expect("the marks");
    let at = marks.chars().position(|c| c == '^').expect("a mark");
    assert_eq!(marked.chars().skip(at).take(5).collect::<String>(), "wrong", "{shown}");
}
