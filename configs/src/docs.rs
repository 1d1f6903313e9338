//! The parts of the documentation that come from the tables. Tests keep `docs/rules.md` and the
//! field list of `docs/config.md` equal to what these functions return.

use std::fmt::Write as _;

use crate::decode::expected;
use crate::rules::{RULES, Rule};
use crate::table::{Field, Kind, Presence, Preset, ROOT, Section, Support};

/// Head lines of the groups of rules, by the first two digits.
const GROUPS: &[(&str, &str)] = &[
    ("TW01", "The file"),
    ("TW02", "Keys"),
    ("TW03", "Values"),
    ("TW04", "Names, flows and stages"),
    ("TW05", "Geometry"),
    ("TW06", "Buffers"),
    ("TW07", "Cores"),
    ("TW08", "Roles and flows of frames"),
    ("TW09", "What a right file does to a stream"),
];

/// `docs/rules.md`.
#[must_use]
pub fn rules_markdown() -> String {
    let mut out = String::from(
        "# Rules of a configuration\n\n\
         Every check of `tensorwire validate` and `tensorwire run`, which are the same ones. \
         `tensorwire explain TW0201`\nprints an entry. Errors stop a run (exit code 3), \
         `unsupported` stops `run` (exit code 5) and not `validate`,\nwarnings stop \
         `validate --deny-warnings` (exit code 1), notes stop nothing.\n\n\
         This page is made from the table of rules in `configs/src/rules/table.rs`; a test keeps \
         it current\n(`TENSORWIRE_BLESS=1 cargo test -p tensorwire-configs docs` writes it).\n",
    );
    for (prefix, title) in GROUPS {
        let _ = writeln!(out, "\n## {title}");
        for rule in RULES.iter().filter(|rule| rule.number.starts_with(prefix)) {
            rule_markdown(&mut out, rule);
        }
    }
    out
}

fn rule_markdown(out: &mut String, rule: &Rule) {
    let Rule { number, severity, title, why, fix, example, .. } = rule;
    let _ = writeln!(out, "\n### {number} ({severity}): {title}\n");
    let _ = writeln!(out, "Why: {why}.\\\nFix: {fix}.\n\n```text\n{example}```");
}

/// The field list of `docs/config.md`: one table per map of the file.
#[must_use]
pub fn fields_markdown() -> String {
    let mut out = String::new();
    let mut done: Vec<&'static str> = Vec::new();
    section_markdown(&ROOT, &mut done, &mut out);
    out
}

fn section_markdown(section: &'static Section, done: &mut Vec<&'static str>, out: &mut String) {
    if done.contains(&section.name) {
        return;
    }
    done.push(section.name);
    let _ = writeln!(out, "\n### `{}`\n\n{}\n", section.name, capital(section.doc));
    let _ = writeln!(out, "| key | value | default | meaning |\n|---|---|---|---|");
    for field in section.fields {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            field.key,
            value(field),
            preset(field),
            meaning(field)
        );
    }
    for field in section.fields {
        if let Some(inner) = inner(&field.kind) {
            section_markdown(inner, done, out);
        }
    }
}

fn inner(kind: &'static Kind) -> Option<&'static Section> {
    match kind {
        Kind::Map(section) | Kind::MapOrList(section) => Some(section),
        Kind::List(of) => inner(of),
        _ => None,
    }
}

fn value(field: &Field) -> String {
    let value = match &field.kind {
        Kind::Integer { min, max } if min == max => format!("{min}"),
        Kind::Integer { min, max } => format!("{min} to {max}"),
        Kind::Map(section) => format!("map `{}`", section.name),
        Kind::MapOrList(section) => format!("map `{}`, or a list of them", section.name),
        Kind::List(of) => match of {
            Kind::Map(section) => format!("list of `{}`", section.name),
            Kind::Integer { .. } => "list of integers".to_owned(),
            Kind::Words(_) => format!("list of {}", expected(of)),
            _ => "list of names".to_owned(),
        },
        Kind::Foreign => "not read".to_owned(),
        kind => expected(kind),
    };
    if field.unit.is_empty() { value } else { format!("{value} ({})", field.unit) }
}

fn preset(field: &Field) -> String {
    match field.presence {
        Presence::Required => "required".to_owned(),
        Presence::Optional => "–".to_owned(),
        Presence::Default(Preset::Integer(value)) => value.to_string(),
        Presence::Default(Preset::Boolean(value)) => value.to_string(),
        Presence::Default(Preset::Word("")) => "`\"\"`".to_owned(),
        Presence::Default(Preset::Word(text) | Preset::Text(text)) => format!("`{text}`"),
    }
}

fn meaning(field: &Field) -> String {
    match field.support {
        Support::Runs => field.doc.to_owned(),
        Support::Ignored(why) => format!("{} *(no effect: {why})*", field.doc),
        Support::Unsupported(why) => format!("{} *(unsupported: {why})*", field.doc),
    }
}

/// The first letter large, a full stop at the end.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
