//! What a check has to say, and the list in which all of it is collected.

use std::fmt;

use crate::rules::Code;
use crate::source::{Position, Source, Span};

/// How much a diagnostic weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing to do.
    Note,
    /// Runs, but probably not as meant.
    Warning,
    /// Right, but `tensorwire` cannot run it: `validate` says so, `run` refuses.
    Unsupported,
    /// Wrong: nothing runs.
    Error,
}

impl Severity {
    /// The word that is printed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unsupported => "unsupported",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A second place that the message speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// Where.
    pub span: Span,
    /// The same as line and column.
    pub position: Position,
    /// What is there.
    pub label: String,
}

/// One finding: a rule, a place, and what was found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The rule; its number, severity and explanation come with it.
    pub code: Code,
    /// Full key path, as `daqiri.cfg.interfaces[0].rx.queues[0].batch_size`; empty when the whole
    /// file is meant.
    pub key: String,
    /// The bytes that are marked. Empty for the file as a whole.
    pub span: Span,
    /// Line and column of the first of them.
    pub position: Position,
    /// What is wrong, in one line, with the numbers put in.
    pub message: String,
    /// What would be right: a type, a range, a value with its formula.
    pub expected: Option<String>,
    /// What to do.
    pub help: Option<String>,
    /// Where two places disagree, the other one.
    pub second: Option<Second>,
}

impl Diagnostic {
    /// The severity of the rule.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.rule().severity
    }

    pub(crate) fn expected(&mut self, expected: impl Into<String>) -> &mut Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn second(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        let position = Position { line: 0, column: 0 };
        self.second = Some(Second { span, position, label: label.into() });
        self
    }
}

/// The findings about one source, while they are being made.
#[derive(Debug)]
pub(crate) struct Report<'s> {
    source: &'s Source,
    found: Vec<Diagnostic>,
}

impl<'s> Report<'s> {
    pub(crate) fn new(source: &'s Source) -> Self {
        Self { source, found: Vec::new() }
    }

    pub(crate) fn source(&self) -> &'s Source {
        self.source
    }

    /// Adds a finding; what it returns takes the optional parts.
    pub(crate) fn add(
        &mut self,
        code: Code,
        key: &str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        let at = self.found.len();
        self.found.push(Diagnostic {
            code,
            key: key.to_owned(),
            span,
            position: self.source.position(span.start),
            message: message.into(),
            expected: None,
            help: None,
            second: None,
        });
        &mut self.found[at]
    }

    /// Whether this rule was already reported for this key.
    pub(crate) fn has(&self, code: Code, key: &str) -> bool {
        self.found.iter().any(|found| found.code == code && found.key == key)
    }

    /// Whether anything so far is worse than a warning.
    pub(crate) fn stops_a_run(&self) -> bool {
        self.found.iter().any(|found| found.severity() >= Severity::Unsupported)
    }

    /// All findings, in file order; at one place the heavier first.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        for second in self.found.iter_mut().filter_map(|found| found.second.as_mut()) {
            second.position = self.source.position(second.span.start);
        }
        self.found.sort_by(|a, b| {
            (a.span.start, b.severity(), a.code).cmp(&(b.span.start, a.severity(), b.code))
        });
        self.found
    }
}
