//! Findings → what people and machines read.

use std::fmt::Write as _;

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{Position, Source, Span};
use crate::{Checked, ReadError, json};

/// How findings are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: each line of the file with the place marked.
    #[default]
    Text,
    /// The same for people, in colour.
    Colour,
    /// One JSON object per call; see `docs/config.md`.
    Json,
    /// SARIF 2.1.0, for code scanners.
    Sarif,
    /// Annotations of GitHub Actions.
    Github,
}

/// A file that was asked for: what its check found, or why it could not be read.
pub type Outcome<'f> = Result<&'f Checked, &'f ReadError>;

/// Writes the findings of all files, in order.
#[must_use]
pub fn render(files: &[&Checked], format: Format) -> String {
    let files: Vec<Outcome<'_>> = files.iter().map(|checked| Ok(*checked)).collect();
    render_all(&files, format)
}

/// [`render`] for files of which some could not be read: those keep their place in the order.
#[must_use]
pub fn render_all(files: &[Outcome<'_>], format: Format) -> String {
    match format {
        Format::Text => files.iter().map(|file| text(*file, false)).collect(),
        Format::Colour => files.iter().map(|file| text(*file, true)).collect(),
        Format::Json => json::report(files),
        Format::Sarif => json::sarif(files),
        Format::Github => files.iter().map(|file| github(*file)).collect(),
    }
}

/// One line that sums a file up: `configs/a.yaml: 2 errors, 1 note`.
#[must_use]
pub fn summary(checked: &Checked) -> String {
    let counts = [
        (Severity::Error, "error", "errors"),
        (Severity::Unsupported, "unsupported", "unsupported"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Note, "note", "notes"),
    ];
    let parts: Vec<String> = counts
        .iter()
        .filter_map(|(severity, one, many)| {
            let found = checked.diagnostics.iter();
            let count = found.filter(|found| found.severity() == *severity).count();
            (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { many }))
        })
        .collect();
    let parts = if parts.is_empty() { "ok".to_owned() } else { parts.join(", ") };
    format!("{}: {parts}", checked.source.name())
}

/// One finding as text, without colour.
#[must_use]
pub fn diagnostic(source: &Source, found: &Diagnostic) -> String {
    Painter { source, colour: false, out: String::new() }.finding(found)
}

fn text(file: Outcome<'_>, colour: bool) -> String {
    let checked = match file {
        Ok(checked) => checked,
        Err(error) => return format!("{}\n", one_line(&error.to_string())),
    };
    let findings = checked.diagnostics.iter().map(|found| {
        let painter = Painter { source: &checked.source, colour, out: String::new() };
        painter.finding(found) + "\n"
    });
    findings.collect()
}

/// ANSI colours by role.
#[derive(Clone, Copy)]
enum Ink {
    Severity(Severity),
    Bold,
    Frame,
}

struct Painter<'s> {
    source: &'s Source,
    colour: bool,
    out: String,
}

impl Painter<'_> {
    fn paint(&self, ink: Ink, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Severity(Severity::Error) => "1;31",
            Ink::Severity(Severity::Unsupported) => "1;35",
            Ink::Severity(Severity::Warning) => "1;33",
            Ink::Severity(Severity::Note) => "1;36",
            Ink::Bold => "1",
            Ink::Frame => "34",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    fn finding(mut self, found: &Diagnostic) -> String {
        let severity = found.severity();
        let tag = format!("{severity}[{}]", found.code);
        let tag = self.paint(Ink::Severity(severity), &tag);
        let message = self.paint(Ink::Bold, &one_line(&found.message));
        self.line(&format!("{tag}: {message}"));
        let width = self.gutter(found);
        let pad = " ".repeat(width);
        let arrow = self.paint(Ink::Frame, "-->");
        let place = self.place(found.position);
        let key = if found.key.is_empty() { String::new() } else { format!(" ({})", found.key) };
        self.line(&format!("{pad}{arrow} {place}{}", one_line(&key)));
        if found.span.start < self.source.text().len() {
            self.bar(width);
            let mut marks = vec![(found.span, found.position, '^', "")];
            if let Some(second) = &found.second {
                marks.push((second.span, second.position, '-', &*second.label));
            }
            marks.sort_by_key(|(_, position, ..)| position.line);
            let mut above = None;
            for (span, position, mark, label) in marks {
                if above.is_some_and(|above: usize| position.line > above + 1) {
                    let dots = self.paint(Ink::Frame, "...");
                    self.line(&dots);
                }
                self.marked(width, span, position, mark, label, severity);
                above = Some(position.line);
            }
            if found.expected.is_some() || found.help.is_some() {
                self.bar(width);
            }
        }
        let notes = [("expected", &found.expected), ("help", &found.help)];
        for (name, text) in notes {
            if let Some(text) = text {
                let equals = self.paint(Ink::Frame, "=");
                let name = self.paint(Ink::Bold, name);
                self.line(&format!("{pad} {equals} {name}: {}", one_line(text)));
            }
        }
        self.out
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn place(&self, position: Position) -> String {
        format!("{}:{}:{}", self.source.name(), position.line, position.column)
    }

    /// Width of the widest line number.
    fn gutter(&self, found: &Diagnostic) -> usize {
        let second = found.second.as_ref().map_or(0, |second| second.position.line);
        found.position.line.max(second).to_string().len()
    }

    fn bar(&mut self, width: usize) {
        let bar = self.paint(Ink::Frame, "|");
        self.line(&format!("{} {bar}", " ".repeat(width)));
    }

    /// A line of the file, and below it the span.
    fn marked(
        &mut self,
        width: usize,
        span: Span,
        position: Position,
        mark: char,
        label: &str,
        severity: Severity,
    ) {
        let Some((start, line)) = self.source.line(position.line) else { return };
        let bar = self.paint(Ink::Frame, "|");
        let number = self.paint(Ink::Frame, &format!("{:>width$}", position.line));
        let (line, before, inside) = window(line, start, span);
        self.line(&format!("{number} {bar} {line}"));
        let ink = if mark == '^' { Ink::Severity(severity) } else { Ink::Frame };
        let marks: String = std::iter::repeat_n(mark, inside.max(1)).collect();
        let marks = self.paint(ink, &marks);
        let pad = " ".repeat(width);
        self.line(&format!("{pad} {bar} {}{marks} {label}", " ".repeat(before)));
    }
}

/// The part of a line that is shown: all of it, or 100 characters around the span. With the
/// characters before the span and inside it.
fn window(line: &str, start: usize, span: Span) -> (String, usize, usize) {
    const WIDTH: usize = 100;
    const BEFORE: usize = 40;
    let at = |offset: usize| {
        let bytes = offset.saturating_sub(start).min(line.len());
        line.char_indices().take_while(|(at, _)| *at < bytes).count()
    };
    let (first, last) = (at(span.start), at(span.end));
    let skip = if first > WIDTH - 20 { first - BEFORE } else { 0 };
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = line.chars().skip(skip).take(WIDTH).map(clean).collect();
    if line.chars().nth(skip + WIDTH).is_some() {
        shown.push('…');
    }
    let lead = usize::from(skip > 0);
    if skip > 0 {
        shown.insert(0, '…');
    }
    let last = last.min(skip + WIDTH);
    (shown, first - skip + lead, last.saturating_sub(first))
}

/// Control characters would break the line, or the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Workflow commands of GitHub Actions: `::error file=…,line=…,col=…,title=…::message`.
fn github(file: Outcome<'_>) -> String {
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    let checked = match file {
        Ok(checked) => checked,
        Err(unread) => {
            let (path, error) = (property(&unread.path), data(&unread.error.to_string()));
            let _ = writeln!(out, "::error file={path}::cannot be read: {error}");
            return out;
        }
    };
    for found in &checked.diagnostics {
        let level = match found.severity() {
            Severity::Error => "error",
            Severity::Unsupported | Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        let Position { line, column } = found.position;
        let mut message = found.message.clone();
        for (name, text) in [("expected", &found.expected), ("help", &found.help)] {
            if let Some(text) = text {
                let _ = write!(message, "\n{name}: {text}");
            }
        }
        let _ = writeln!(
            out,
            "::{level} file={},line={line},col={column},title={}::{}",
            property(checked.source.name()),
            property(&format!("{} {}", found.code, found.key)),
            data(&message)
        );
    }
    out
}

/// The escapes that GitHub documents for the data of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}
