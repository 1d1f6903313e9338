//! `validate`, `geometry`, `explain`, `schema`: what needs a configuration and nothing else.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use tensorwire_configs::render::{self, Format as Render, Outcome};
use tensorwire_configs::{Checked, Config, Options, ReadError, Severity, Verdict};

use super::print;
use crate::cli::{Format, GeometryArgs, ValidateArgs};
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;

/// Checks every file; each gets its verdict, in order, whatever the others are.
///
/// # Errors
///
/// A [`Failure`] (exit 7) when stdout cannot be written.
pub fn validate(args: &ValidateArgs) -> Result<ExitCode, Failure> {
    let results: Vec<_> = args.files.iter().map(|path| check(path)).collect();
    let files: Vec<Outcome<'_>> = results.iter().map(Result::as_ref).collect();
    let format = match args.format {
        Format::Text if io::stdout().is_terminal() => Render::Colour,
        Format::Text => Render::Text,
        Format::Json => Render::Json,
        Format::Sarif => Render::Sarif,
        Format::Github => Render::Github,
    };
    if args.format == Format::Text {
        for file in &files {
            print(&render::render_all(std::slice::from_ref(file), format))?;
            if let Ok(checked) = file {
                print(&format!("{}\n", render::summary(checked)))?;
            }
        }
    } else {
        print(&render::render_all(&files, format))?;
    }
    Ok(verdict(&results, args.deny_warnings))
}

/// The worst of all files: a file that is wrong (3), one that cannot be read (7), warnings (1).
fn verdict(results: &[Result<Checked, ReadError>], deny_warnings: bool) -> ExitCode {
    let verdicts = results.iter().filter_map(|result| result.as_ref().ok()).map(Checked::verdict);
    let invalid = verdicts.clone().any(|verdict| verdict == Verdict::Invalid);
    let warned = results.iter().flatten().any(|checked| {
        checked.diagnostics.iter().any(|found| found.severity() == Severity::Warning)
    });
    if invalid {
        ExitCode::Config
    } else if results.iter().any(Result::is_err) {
        ExitCode::File
    } else if deny_warnings && warned {
        ExitCode::Warnings
    } else {
        ExitCode::Complete
    }
}

fn check(path: &Path) -> Result<Checked, ReadError> {
    let options = Options::default();
    if path.as_os_str() != "-" {
        return tensorwire_configs::check_file(path, &options);
    }
    let mut bytes = Vec::new();
    match io::stdin().lock().read_to_end(&mut bytes) {
        Ok(_) => Ok(tensorwire_configs::check_bytes("<stdin>", &bytes, &options)),
        Err(error) => Err(ReadError { path: "<stdin>".to_owned(), error }),
    }
}

/// Prints what a configuration's geometry comes to.
///
/// # Errors
///
/// A [`Failure`]: 7 when the file cannot be read, 3 when it is wrong.
pub fn geometry(args: &GeometryArgs) -> Result<ExitCode, Failure> {
    print(&tensorwire_configs::geometry_report(&valid(&args.file)?))?;
    Ok(ExitCode::Complete)
}

/// The configuration of a file that has no error; what is wrong with another is said.
///
/// # Errors
///
/// A [`Failure`]: 7 when the file cannot be read, 3 when it is wrong, 5 when it asks for what no
/// build can do.
pub fn valid(path: &Path) -> Result<Config, Failure> {
    let mut checked = check(path).map_err(|error| failure(ExitCode::File, error.to_string()))?;
    if let Some(config) = checked.config.take() {
        return Ok(config);
    }
    let _ = io::stderr().write_all(render::render(&[&checked], Render::Text).as_bytes());
    let unsupported = checked.verdict() == Verdict::Unsupported;
    let exit = if unsupported { ExitCode::Device } else { ExitCode::Config };
    Err(failure(exit, render::summary(&checked)))
}

/// Prints what a rule is about.
///
/// # Errors
///
/// A [`Failure`] (exit 2) when there is no such rule.
pub fn explain(code: &str) -> Result<ExitCode, Failure> {
    let text = tensorwire_configs::explain(code).ok_or_else(|| {
        failure(ExitCode::Usage, format!("there is no rule `{code}`; docs/rules.md lists them all"))
    })?;
    print(&text)?;
    Ok(ExitCode::Complete)
}

/// Prints the JSON Schema of a configuration.
///
/// # Errors
///
/// A [`Failure`] (exit 7) when stdout cannot be written.
pub fn schema() -> Result<ExitCode, Failure> {
    print(&tensorwire_configs::schema())?;
    Ok(ExitCode::Complete)
}
