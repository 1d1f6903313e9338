//! JSON as this crate writes it: findings, SARIF, and the schema. Numbers are exact, keys keep
//! their order, and the output is the same for the same input.

use std::fmt::Write as _;

use crate::diagnostic::{Diagnostic, Severity};
use crate::render::Outcome;
use crate::rules::RULES;
use crate::source::Span;
use crate::{Checked, ReadError};

/// A JSON value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn number(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }

    pub(crate) fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Two spaces a level, and a line end at the end.
    pub(crate) fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    fn write(&self, out: &mut String, level: usize) {
        match self {
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Text(text) => quote(out, text),
            Self::List(items) if items.is_empty() => out.push_str("[]"),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    next(out, at, level + 1);
                    item.write(out, level + 1);
                }
                end(out, ']', level);
            }
            Self::Map(entries) if entries.is_empty() => out.push_str("{}"),
            Self::Map(entries) => {
                out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    next(out, at, level + 1);
                    quote(out, key);
                    out.push_str(": ");
                    value.write(out, level + 1);
                }
                end(out, '}', level);
            }
        }
    }
}

fn next(out: &mut String, at: usize, level: usize) {
    out.push_str(if at == 0 { "\n" } else { ",\n" });
    out.push_str(&"  ".repeat(level));
}

fn end(out: &mut String, bracket: char, level: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(level));
    out.push(bracket);
}

/// RFC 8259, section 7.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || c == '\u{7f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// All findings of all files.
pub(crate) fn report(files: &[Outcome<'_>]) -> String {
    let files = files.iter().map(|file| match file {
        Ok(checked) => {
            let findings = checked.diagnostics.iter().map(|found| finding(checked, found));
            Json::map([
                ("file", Json::text(checked.source.name())),
                ("verdict", Json::text(format!("{:?}", checked.verdict()).to_lowercase())),
                ("diagnostics", Json::List(findings.collect())),
            ])
        }
        Err(unread) => Json::map([
            ("file", Json::text(&*unread.path)),
            ("verdict", Json::text("unreadable")),
            ("error", Json::text(unread.error.to_string())),
            ("diagnostics", Json::List(Vec::new())),
        ]),
    });
    Json::map([("files", Json::List(files.collect()))]).pretty()
}

fn finding(checked: &Checked, found: &Diagnostic) -> Json {
    let mut entries = vec![
        ("code", Json::text(found.code.to_string())),
        ("severity", Json::text(found.severity().word())),
        ("key", Json::text(&*found.key)),
        ("line", Json::number(found.position.line)),
        ("column", Json::number(found.position.column)),
        ("length", Json::number(length(checked, found.span))),
        ("message", Json::text(&*found.message)),
    ];
    for (name, text) in [("expected", &found.expected), ("help", &found.help)] {
        entries.extend(text.as_ref().map(|text| (name, Json::text(&**text))));
    }
    entries.extend(found.second.as_ref().map(|second| {
        let place = Json::map([
            ("line", Json::number(second.position.line)),
            ("column", Json::number(second.position.column)),
            ("length", Json::number(length(checked, second.span))),
            ("label", Json::text(&*second.label)),
        ]);
        ("second", place)
    }));
    Json::map(entries)
}

/// Characters of a span.
fn length(checked: &Checked, span: Span) -> usize {
    checked.source.slice(span).chars().count()
}

/// SARIF 2.1.0: one run, with the whole table of rules.
pub(crate) fn sarif(files: &[Outcome<'_>]) -> String {
    let rules = RULES.iter().map(|rule| {
        Json::map([
            ("id", Json::text(rule.number)),
            ("shortDescription", Json::map([("text", Json::text(rule.title))])),
            ("fullDescription", Json::map([("text", Json::text(rule.why))])),
            ("help", Json::map([("text", Json::text(rule.fix))])),
            ("defaultConfiguration", Json::map([("level", Json::text(level(rule.severity)))])),
        ])
    });
    let checked = files.iter().flatten();
    let results = checked
        .flat_map(|checked| checked.diagnostics.iter().map(|found| sarif_result(checked, found)));
    let unread: Vec<Json> =
        files.iter().filter_map(|file| file.err()).map(sarif_notification).collect();
    let invocation = Json::map([
        ("executionSuccessful", Json::Bool(unread.is_empty())),
        ("toolExecutionNotifications", Json::List(unread)),
    ]);
    let driver = Json::map([
        ("name", Json::text("tensorwire")),
        ("version", Json::text(env!("CARGO_PKG_VERSION"))),
        ("rules", Json::List(rules.collect())),
    ]);
    let run = Json::map([
        ("tool", Json::map([("driver", driver)])),
        ("invocations", Json::List(vec![invocation])),
        ("columnKind", Json::text("unicodeCodePoints")),
        ("results", Json::List(results.collect())),
    ]);
    Json::map([
        ("$schema", Json::text("https://json.schemastore.org/sarif-2.1.0.json")),
        ("version", Json::text("2.1.0")),
        ("runs", Json::List(vec![run])),
    ])
    .pretty()
}

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Unsupported | Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// A file that could not be read is no result of the check but a failure of its run.
fn sarif_notification(unread: &ReadError) -> Json {
    let artifact = Json::map([("uri", Json::text(&*unread.path))]);
    let physical = Json::map([("artifactLocation", artifact)]);
    Json::map([
        ("level", Json::text("error")),
        ("message", Json::map([("text", Json::text(unread.to_string()))])),
        ("locations", Json::List(vec![Json::map([("physicalLocation", physical)])])),
    ])
}

fn sarif_result(checked: &Checked, found: &Diagnostic) -> Json {
    let mut message = found.message.clone();
    for (name, text) in [("expected", &found.expected), ("help", &found.help)] {
        if let Some(text) = text {
            let _ = write!(message, "; {name}: {text}");
        }
    }
    let mut entries = vec![
        ("ruleId", Json::text(found.code.to_string())),
        ("level", Json::text(level(found.severity()))),
        ("message", Json::map([("text", Json::text(message))])),
        ("locations", Json::List(vec![location(checked, found.span, None)])),
    ];
    entries.extend(found.second.as_ref().map(|second| {
        let place = location(checked, second.span, Some(&second.label));
        ("relatedLocations", Json::List(vec![place]))
    }));
    Json::map(entries)
}

fn location(checked: &Checked, span: Span, label: Option<&str>) -> Json {
    let (start, end) = (checked.source.position(span.start), checked.source.position(span.end));
    let region = Json::map([
        ("startLine", Json::number(start.line)),
        ("startColumn", Json::number(start.column)),
        ("endLine", Json::number(end.line)),
        ("endColumn", Json::number(end.column)),
    ]);
    let artifact = Json::map([("uri", Json::text(checked.source.name()))]);
    let physical = Json::map([("artifactLocation", artifact), ("region", region)]);
    let mut entries = vec![("physicalLocation", physical)];
    entries.extend(label.map(|label| ("message", Json::map([("text", Json::text(label))]))));
    Json::map(entries)
}
