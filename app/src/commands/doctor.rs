//! `doctor`: prints what [`crate::doctor`] found, a line each.

use super::{print, validate};
use crate::cli::DoctorArgs;
use crate::doctor::{Finding, Machine, State, examine};
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;

/// Looks at the machine.
///
/// # Errors
///
/// A [`Failure`]: 3 or 7 when the configuration is wrong or cannot be read, 7 when `--root` is no
/// folder or stdout cannot be written.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let config = args.config.as_deref().map(validate::valid).transpose()?;
    let machine = match &args.root {
        Some(root) if !root.is_dir() => {
            let reason = format!("--root {}: there is no such folder", root.display());
            return Err(failure(ExitCode::File, reason));
        }
        Some(root) => Machine::at(root),
        None => Machine::default(),
    };
    let findings = examine(&machine, config.as_ref());
    print(&if args.json { json(&findings)? } else { text(&findings, config.is_some()) })?;
    let problem = findings.iter().any(|finding| finding.state == State::Problem);
    Ok(if problem { ExitCode::Device } else { ExitCode::Complete })
}

fn json(findings: &[Finding]) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(findings);
    text.map(|text| text + "\n").map_err(|error| failure(ExitCode::Internal, error.to_string()))
}

fn text(findings: &[Finding], configured: bool) -> String {
    let mut text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let of = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (problems, notes) = (of(State::Problem), of(State::Note));
    text += &if configured {
        format!("problems: {problems}, notes: {notes}, for this configuration\n")
    } else {
        format!("notes: {notes}; with a configuration also what it needs and does not find\n")
    };
    text
}
