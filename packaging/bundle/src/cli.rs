//! The command line of `tensorwire-bundle`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Versioned bundles of tensorwire: installed whole, switched at once, rolled back by themselves.
#[derive(Debug, Parser)]
#[command(name = "tensorwire-bundle", version)]
pub struct Cli {
    /// Where the bundles are
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tensorwire", global = true)]
    pub root: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub command: What,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Make a bundle of a folder with a program `tensorwire` in it
    Make(MakeArgs),
    /// See whether a bundle is whole
    Check {
        /// Its folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Install a bundle, let it test itself, and switch to it; on trial if another ran before
    Install {
        /// Its folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Before the program is started: count the start of a bundle on trial, or take it back
    Begin,
    /// Become the program of the current bundle
    Exec,
    /// Note how the program has ended, as the service manager says ($SERVICE_RESULT, …)
    NoteExit,
    /// Confirm the bundle on trial once CMD has answered 0 or 1 all the time
    Confirm(ConfirmArgs),
    /// Go back to the bundle before
    Rollback {
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "by hand")]
        reason: String,
        /// Only if a bundle is on trial
        #[arg(long)]
        trial: bool,
    },
    /// Say what runs, and why the last bundle was taken back
    Status {
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Take away the bundles that nothing leads to
    Prune,
}

/// `make`.
#[derive(Debug, Args)]
pub struct MakeArgs {
    /// The folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Name of the bundle, usually a version
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// What the program is told to run, in words apart
    #[arg(long, value_name = "WORDS", default_value = "run config.yaml --metrics 9474")]
    pub run: String,
    /// What it is told to test itself, in words apart
    #[arg(long, value_name = "WORDS", default_value = "run config.yaml --dry-run")]
    pub selftest: String,
}

/// `confirm`.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// For how long, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub after: u64,
    /// What is asked
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}
