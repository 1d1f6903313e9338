//! Every rule as data: a stable number, a severity, why it is there, what to do, and an example
//! that breaks it.
//!
//! `tensorwire explain` and `docs/rules.md` print this table; a test breaks each rule by its own
//! example.

mod table;

use std::fmt;

use crate::Mode;
use crate::diagnostic::Severity;

pub use table::{Code, RULES};

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Its name in this crate.
    pub code: Code,
    /// Its number, as it is printed: `TW0201`. Never used for anything else again.
    pub number: &'static str,
    /// How much breaking it weighs.
    pub severity: Severity,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// What would happen otherwise, in one line.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// A way to break it.
    pub example: Example,
}

/// A way to break a rule.
#[derive(Clone, Copy, Debug)]
pub enum Example {
    /// One of the shipped files with one change: the first `from` becomes `to`.
    Change {
        /// Name of the shipped file.
        file: &'static str,
        /// What stands there.
        from: &'static str,
        /// What breaks the rule.
        to: &'static str,
    },
    /// A whole file.
    Text(&'static str),
    /// A file that repeats this so many times.
    Repeat(&'static str, usize),
    /// A file that is no text.
    Bytes(&'static [u8]),
    /// A shipped file as it is, on a machine that has these cores.
    Cores(&'static str, &'static [u32]),
    /// A shipped file as it is, run in this mode.
    Mode(&'static str, Mode),
    /// A shipped file as it is.
    Shipped(&'static str),
}

impl Code {
    /// The rule of this code.
    #[must_use]
    pub fn rule(self) -> &'static Rule {
        // The macro that makes the two lists makes them in the same order; a test looks.
        RULES.get(self as usize).unwrap_or(&RULES[0])
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule().number)
    }
}

/// The rule of a printed number, in any case and with or without `TW`.
#[must_use]
pub fn find(number: &str) -> Option<&'static Rule> {
    let digits = number.trim();
    let digits = digits.strip_prefix("TW").or_else(|| digits.strip_prefix("tw")).unwrap_or(digits);
    RULES.iter().find(|rule| rule.number.strip_prefix("TW") == Some(digits))
}

/// What a rule is about, for people; `None` when there is no such rule.
///
/// ```
/// assert!(tensorwire_configs::explain("TW0201").is_some_and(|text| text.contains("batch_sise")));
/// assert!(tensorwire_configs::explain("TW9999").is_none());
/// ```
#[must_use]
pub fn explain(number: &str) -> Option<String> {
    let rule = find(number)?;
    let Rule { number, severity, title, why, fix, example, .. } = rule;
    Some(format!("{number} ({severity}): {title}\n\nwhy: {why}\nfix: {fix}\n\n{example}"))
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change { file, from, to } => {
                writeln!(f, "example: in configs/{file}")?;
                for (sign, text) in [('-', from), ('+', to)] {
                    for line in text.lines() {
                        writeln!(f, "  {sign} {}", line.replace('\t', "\\t"))?;
                    }
                }
                Ok(())
            }
            Self::Text(text) => {
                writeln!(f, "example: a file that holds")?;
                for line in text.lines() {
                    writeln!(f, "    {}", line.replace('\t', "\\t"))?;
                }
                Ok(())
            }
            Self::Repeat(text, times) => {
                writeln!(f, "example: a file that holds {text:?} {times} times")
            }
            Self::Bytes(bytes) => writeln!(f, "example: a file of the bytes {bytes:02x?}"),
            Self::Cores(file, cores) => {
                writeln!(f, "example: configs/{file} on a machine with cores {cores:?}")
            }
            Self::Mode(file, mode) => {
                writeln!(f, "example: configs/{file} run with `--mode {mode}`")
            }
            Self::Shipped(file) => writeln!(f, "example: configs/{file} as it is"),
        }
    }
}
