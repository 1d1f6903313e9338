//! What the program says on stderr. Each line is one write; stdout is data only.

use std::fmt;
use std::fs::File;
#[cfg(feature = "cli")]
use std::io::IsTerminal;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

#[cfg(feature = "cli")]
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tensorwire_configs::{Config, LogLevel};

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Errors.
    Errors,
    /// Readiness, samples and the summary too.
    Results,
    /// Warnings and notices too.
    #[default]
    Notices,
    /// The notes of a configuration too.
    Details,
}

/// Where talk goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Talk {
    level: Level,
}

impl Talk {
    /// Talk to stderr; nothing but errors if `quiet`.
    #[must_use]
    pub const fn new(quiet: bool) -> Self {
        Self { level: if quiet { Level::Errors } else { Level::Notices } }
    }

    /// As much talk as `config` asks for (`log_level`, `debug`); what is quiet stays quiet.
    #[must_use]
    pub const fn of(self, config: &Config) -> Self {
        let level = match config.log_level {
            _ if self.quiet() => Level::Errors,
            _ if config.debug => Level::Details,
            LogLevel::Trace | LogLevel::Debug => Level::Details,
            LogLevel::Info | LogLevel::Warn => Level::Notices,
            LogLevel::Error | LogLevel::Critical | LogLevel::Off => Level::Results,
        };
        Self { level }
    }

    /// Whether only errors are said.
    #[must_use]
    pub const fn quiet(self) -> bool {
        matches!(self.level, Level::Errors)
    }

    /// Says one line that a user should know: a warning, a notice, what goes on.
    pub fn say(self, line: fmt::Arguments<'_>) {
        self.at(Level::Notices, line);
    }

    /// Says one line that belongs to the outcome, unless quiet.
    pub fn result(self, line: fmt::Arguments<'_>) {
        self.at(Level::Results, line);
    }

    /// Says one line for who wants to know everything.
    pub fn detail(self, line: fmt::Arguments<'_>) {
        self.at(Level::Details, line);
    }

    fn at(self, level: Level, line: fmt::Arguments<'_>) {
        if self.level >= level {
            let priority = match level {
                Level::Errors => Priority::Error,
                Level::Notices => Priority::Notice,
                Level::Results => Priority::Info,
                Level::Details => Priority::Debug,
            };
            write_line(priority, line);
        }
    }

    /// Says one line, always.
    pub fn error(self, line: fmt::Arguments<'_>) {
        write_line(Priority::Error, line);
    }

    /// A writer of its own for whole lines; `None` if quiet.
    #[must_use]
    pub fn writer(self) -> Option<Box<dyn Write + Send>> {
        (!self.quiet()).then(|| Box::new(io::stderr()) as Box<dyn Write + Send>)
    }

    /// A progress bar over `total` of `unit`; hidden where stderr is no terminal, and where notices
    /// are not said.
    #[must_use]
    #[cfg(feature = "cli")]
    pub fn progress(self, total: u64, what: &'static str, unit: &'static str) -> ProgressBar {
        if self.level < Level::Notices || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let template = format!("{what} [{{bar:30}}] {{pos}}/{{len}} {unit} {{eta}}");
        let style = ProgressStyle::with_template(&template)
            .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
        ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style)
    }
}

/// How much a line matters: the priorities of syslog (RFC 5424, table 2) that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// 3
    Error = 3,
    /// 5
    Notice = 5,
    /// 6
    Info = 6,
    /// 7
    Debug = 7,
}

/// Nothing where a progress bar would be: nobody looks at firmware.
#[cfg(not(feature = "cli"))]
#[derive(Clone, Copy, Debug)]
pub struct ProgressBar;

#[cfg(not(feature = "cli"))]
impl ProgressBar {
    /// Moves nothing.
    pub const fn set_position(self, _: u64) {}

    /// Clears nothing.
    pub const fn finish_and_clear(self) {}
}

#[cfg(not(feature = "cli"))]
impl Talk {
    /// No bar.
    #[must_use]
    pub const fn progress(self, _: u64, _: &'static str, _: &'static str) -> ProgressBar {
        ProgressBar
    }
}

/// One line, one write. A stderr that cannot be written to leaves nobody to tell.
pub(crate) fn write_line(priority: Priority, line: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(prefixed(priority, &plain(&line), journal()).as_bytes());
}

/// The text as it is written: to the journal each line says how much it matters, as `sd-daemon(3)`
/// has it. That needs no second connection and no library, and stays readable where the journal
/// is not; what a line says in numbers, it says as `name=value`.
fn prefixed(priority: Priority, text: &str, journal: bool) -> String {
    if !journal {
        return format!("{text}\n");
    }
    let level = priority as u8;
    text.lines().map(|line| format!("<{level}>{line}\n")).collect()
}

/// Whether stderr is the journal: `JOURNAL_STREAM` names the device and the inode of its socket.
fn journal() -> bool {
    static JOURNAL: OnceLock<bool> = OnceLock::new();
    *JOURNAL.get_or_init(|| {
        let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
        let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        let about = stderr.and_then(|stderr| stderr.metadata());
        about.is_ok_and(|about| stream == format!("{}:{}", about.dev(), about.ino()))
    })
}

/// `text` with U+FFFD for control characters, line ends apart: it may quote a file, and a file must
/// not make the terminal obey it.
pub(crate) fn plain(text: &dyn fmt::Display) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.to_string().chars().map(shown).collect()
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_file_cannot_command_the_terminal() {
        let quoted = "a.labels:1: \"\x1b[2J\r\" é\n  2";
        assert_eq!(plain(&quoted), "a.labels:1: \"\u{fffd}[2J\u{fffd}\" é\n  2");
    }

    #[test]
    fn the_journal_is_told_how_much_a_line_matters() {
        assert_eq!(prefixed(Priority::Error, "a\nb", true), "<3>a\n<3>b\n");
        assert_eq!(prefixed(Priority::Debug, "a", true), "<7>a\n");
        assert_eq!(prefixed(Priority::Notice, "a\nb", false), "a\nb\n");
    }

    fn level(log_level: &str, quiet: bool) -> Level {
        let shipped = tensorwire_configs::shipped("resnet50_sw_loopback.yaml").expect("shipped");
        let text = shipped.replace("log_level: \"info\"", &format!("log_level: {log_level}"));
        assert_eq!(text == shipped, log_level == "\"info\"", "nothing replaced");
        let checked = tensorwire_configs::check_str("x", &text, &Default::default());
        Talk::new(quiet).of(&checked.config.expect("valid")).level
    }

    #[test]
    fn the_level_of_the_log_decides_what_is_said() {
        for (word, expected) in [
            ("trace", Level::Details),
            ("debug", Level::Details),
            ("warn\n    debug: true", Level::Details),
            ("\"info\"", Level::Notices),
            ("warn", Level::Notices),
            ("error", Level::Results),
            ("critical", Level::Results),
            ("off", Level::Results),
        ] {
            assert_eq!(level(word, false), expected, "{word}");
            assert_eq!(level(word, true), Level::Errors, "quiet stays quiet: {word}");
        }
    }
}
