//! What the program says on stderr. Each line is one write; stdout is data only.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where talk goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Talk {
    quiet: bool,
}

impl Talk {
    /// Talk to stderr; nothing but errors if `quiet`.
    #[must_use]
    pub const fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Whether only errors are said.
    #[must_use]
    pub const fn quiet(self) -> bool {
        self.quiet
    }

    /// Says one line, unless quiet.
    pub fn say(self, line: fmt::Arguments<'_>) {
        if !self.quiet {
            write_line(line);
        }
    }

    /// Says one line, always.
    pub fn error(self, line: fmt::Arguments<'_>) {
        write_line(line);
    }

    /// A writer of its own for whole lines; `None` if quiet.
    #[must_use]
    pub fn writer(self) -> Option<Box<dyn Write + Send>> {
        (!self.quiet).then(|| Box::new(io::stderr()) as Box<dyn Write + Send>)
    }

    /// A progress bar over `total` of `unit`; hidden where stderr is no terminal, or if quiet.
    #[must_use]
    pub fn progress(self, total: u64, what: &'static str, unit: &'static str) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let template = format!("{what} [{{bar:30}}] {{pos}}/{{len}} {unit} {{eta}}");
        let style = ProgressStyle::with_template(&template)
            .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
        ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style)
    }
}

/// One line, one write. A stderr that cannot be written to leaves nobody to tell.
fn write_line(line: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all((plain(&line) + "\n").as_bytes());
}

/// `text` with U+FFFD for control characters, line ends apart: it may quote a file, and a file must
/// not make the terminal obey it.
pub(crate) fn plain(text: &dyn fmt::Display) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.to_string().chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_file_cannot_command_the_terminal() {
        let quoted = "a.labels:1: \"\x1b[2J\r\" é\n  2";
        assert_eq!(plain(&quoted), "a.labels:1: \"\u{fffd}[2J\u{fffd}\" é\n  2");
    }
}
