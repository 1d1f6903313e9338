//! The commands of the program, `run` aside.

pub mod bench;
pub mod demo;
pub mod doctor;
pub mod export;
pub mod gpu;
pub mod prepare;
pub mod selftest;
pub mod sim;
pub mod status;
pub mod trt;
pub mod validate;

use std::fmt::Display;
use std::io::{self, Write};

use crate::exit::{ExitCode, Failure};
use crate::talk::{Priority, write_line};

/// Writes data to stdout. Whoever reads it may stop reading: that is no error.
///
/// # Errors
///
/// A [`Failure`] (exit 7) when stdout cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure {
            exit: ExitCode::File,
            reason: format!("stdout cannot be written: {error}"),
        }),
        _ => Ok(()),
    }
}

/// Says a line on stderr under the name of the program.
pub fn say(line: &dyn Display) {
    write_line(Priority::Error, format_args!("tensorwire: {line}"));
}

/// Says each line of a text.
pub fn say_all(text: &str) {
    for line in text.lines() {
        say(&line);
    }
}
