//! The `tensorwire-bundle` program: small, and no part of what it updates.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use tensorwire_bundle::cli::{Cli, What};
use tensorwire_bundle::contents::{About, PROGRAM, check, make};
use tensorwire_bundle::error::BundleError;
use tensorwire_bundle::store::Store;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Says a line. A stderr that cannot be written to leaves nobody to tell.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "tensorwire-bundle: {line}");
}

/// Prints data. Whoever reads it may stop reading.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

fn run(cli: &Cli) -> Result<(), BundleError> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    match &cli.command {
        What::Make(args) => {
            let (run, selftest) = (words(&args.run), words(&args.selftest));
            return make(&args.folder, &About { name: args.name.clone(), run, selftest });
        }
        What::Check { folder } => return check(folder).map(|about| print(&about.name)),
        _ => {}
    }
    let store = Store::open(&cli.root)?;
    match &cli.command {
        What::Install { folder } => {
            let about = store.install(folder)?;
            print(&format!("{} is installed; restart the service to run it", about.name));
        }
        What::Begin => store.start()?.notice.iter().for_each(|notice| say(notice)),
        What::Exec => return exec(&store),
        What::NoteExit => {
            let of = |name| std::env::var(name).unwrap_or_default();
            let ending = ["SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"].map(of).join(" ");
            store.note(ending.trim())?;
        }
        What::Confirm(args) => {
            let after = Duration::from_secs(args.after);
            if let Some(name) = store.confirm_by(&args.command, after)? {
                say(&format!("{name} is confirmed"));
            }
        }
        What::Rollback { reason, trial: true } => print(&store.give_up(reason)?),
        What::Rollback { reason, trial: false } => print(&store.roll_back(reason)?),
        What::Status { json } => status(&store, *json)?,
        What::Prune => store.prune()?.iter().for_each(|name| print(name)),
        What::Make(_) | What::Check { .. } => {}
    }
    Ok(())
}

/// Becomes the program, so that the manager watches it and nothing in between.
fn exec(store: &Store) -> Result<(), BundleError> {
    let (folder, about) = store.running()?;
    let program = folder.join(PROGRAM);
    let error = Command::new(&program).args(&about.run).current_dir(&folder).exec();
    Err(BundleError::Io { doing: "run", path: program, error })
}

fn status(store: &Store, json: bool) -> Result<(), BundleError> {
    let status = store.status()?;
    if json {
        let text = serde_json::to_string_pretty(&status);
        print(&text.map_err(|error| BundleError::State(error.to_string()))?);
        return Ok(());
    }
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".to_owned());
    print(&format!("current   {}", name(&status.current)));
    print(&format!("previous  {}", name(&status.previous)));
    if let Some(starts) = status.trial_starts {
        print(&format!("on trial  started {starts} times"));
    }
    if let Some(why) = &status.rollback {
        print(&format!("rollback  {why}"));
    }
    Ok(())
}
