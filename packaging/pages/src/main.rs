//! Writes manual pages and shell completions, from the same definition that parses the command
//! line: `tensorwire-pages DIR` fills DIR/man1, DIR/bash, DIR/zsh, DIR/fish.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: tensorwire-pages DIR")?;
    write(&out, tensorwire::cli::Cli::command())?;
    write(&out, tensorwire_bundle::cli::Cli::command())
}

fn write(out: &Path, mut command: Command) -> Result<(), Box<dyn Error>> {
    let man = out.join("man1");
    fs::create_dir_all(&man)?;
    let name = command.get_name().to_owned();
    for (shell, folder) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let folder = out.join(folder);
        fs::create_dir_all(&folder)?;
        clap_complete::generate_to(shell, &mut command, &name, folder)?;
    }
    clap_mangen::generate_to(command, man)?;
    Ok(())
}
