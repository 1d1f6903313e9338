//! `trt lint`.

use std::fs;
use std::path::Path;

use serde::Serialize;
use tensorwire_onnx::ModelGraph;

use super::{print, print_json};
use crate::cli::TrtLintArgs;
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;
use crate::talk::plain;
use crate::trt::lint::{self, Finding, Level};

/// What was found in one model.
#[derive(Serialize)]
struct Report {
    model: String,
    findings: Vec<Finding>,
}

pub(super) fn lint(args: &TrtLintArgs) -> Result<ExitCode, Failure> {
    let reports = args.models.iter().map(|path| report(path)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        print_json(&reports)?;
    } else {
        for report in &reports {
            print(&text(report))?;
        }
    }
    let warned = reports.iter().flat_map(|r| &r.findings).any(|f| f.rule.level == Level::Warning);
    Ok(if warned && args.deny_warnings { ExitCode::Warnings } else { ExitCode::Complete })
}

fn report(path: &Path) -> Result<Report, Failure> {
    let named = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", path.display()))
    };
    // Asked first: a pipe may never end.
    let about = fs::metadata(path).map_err(|error| named(&error))?;
    if !about.is_file() {
        return Err(named(&"is not a regular file"));
    }
    let bytes = fs::read(path).map_err(|error| named(&error))?;
    let graph = ModelGraph::read(&bytes).map_err(|error| named(&error))?;
    Ok(Report { model: path.display().to_string(), findings: lint::lint(&graph) })
}

fn text(report: &Report) -> String {
    let count = |level| report.findings.iter().filter(|f| f.rule.level == level).count();
    let mut text = String::new();
    for finding in &report.findings {
        text += &format!("{finding}\n");
    }
    let (warnings, notes) = (count(Level::Warning), count(Level::Note));
    text += &format!("{}: {warnings} warnings, {notes} notes\n", report.model);
    // Names come from a file.
    plain(&text)
}
