//! `trt lint`: what in a model costs time or accuracy under TensorRT, found in the file alone.
//!
//! Each rule has a code, a sentence on what was found, why it matters, and what to do. The rules
//! follow NVIDIA's best practices and questions that users of TensorRT ask again and again; none
//! needs TensorRT or a GPU.

mod layers;
mod quantized;

use std::fmt;

use serde::Serialize;
use tensorwire_onnx::ModelGraph;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know; nothing is wrong.
    Note,
    /// Costs time or accuracy.
    Warning,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
        })
    }
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its code.
    pub code: &'static str,
    /// How much it matters.
    pub level: Level,
    /// Why.
    pub why: &'static str,
    /// What to do.
    pub hint: &'static str,
}

/// Something that a rule found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
    /// What was found.
    pub what: String,
    /// The operators that it was found at; empty for the model as a whole.
    pub nodes: Vec<String>,
}

/// Nodes that a finding names in text; JSON has all.
const SHOWN: usize = 6;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { code, level, why, hint } = self.rule;
        write!(f, "{level}[{code}]: {}", self.what)?;
        if !self.nodes.is_empty() {
            let shown = self.nodes.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
            write!(f, "\n  at: {}", shown.join(", "))?;
            if self.nodes.len() > SHOWN {
                write!(f, " and {} more", self.nodes.len() - SHOWN)?;
            }
        }
        write!(f, "\n  why: {why}\n  do: {hint}")
    }
}

/// Every finding of every rule, warnings first.
#[must_use]
pub fn lint(graph: &ModelGraph<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    layers::check(graph, &mut findings);
    quantized::check(graph, &mut findings);
    findings.sort_by(|a, b| b.rule.level.cmp(&a.rule.level).then(a.rule.code.cmp(b.rule.code)));
    findings
}

/// A finding of `rule` at `nodes`, unless there is none.
fn at(rule: Rule, nodes: Vec<String>, what: impl FnOnce(usize) -> String) -> Option<Finding> {
    (!nodes.is_empty()).then(|| Finding { rule, what: what(nodes.len()), nodes })
}

/// `one` or `many`, by number.
fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
