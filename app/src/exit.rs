//! How a run ends: the exit codes, and the rule that picks one.
//!
//! A script that runs `tensorwire` looks at the exit code first, so it says what the summary says:
//! 0 means that everything owed has arrived, and "nothing arrived" is never 0.

use std::fmt;

use crate::sink::Summary;

/// How the program ended. [`ExitCode::code`] is the number that the shell sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitCode {
    /// 0: all that was owed arrived (nothing owed: at least one image; a sender: all frames sent).
    Complete,
    /// 1: `validate --deny-warnings` found warnings.
    Warnings,
    /// 1: `sim` saw an invariant broken.
    Invariant,
    /// 1: `status` saw a run that goes on and loses something.
    Losing,
    /// 2: the command line is wrong.
    Usage,
    /// 3: the configuration is invalid.
    Config,
    /// 4: images (or, for a sender, frames) are owed.
    Owed,
    /// 5: a device, an engine or a feature is missing, failed, or is not supported here.
    Device,
    /// 6: a fault of our own.
    Internal,
    /// 7: a file cannot be read, parsed or written.
    File,
    /// 8: `sim` made no progress after its faults had stopped.
    NoProgress,
    /// 130: a second SIGINT.
    Interrupted,
    /// 143: a second SIGTERM.
    Terminated,
}

impl ExitCode {
    /// Every way to end, in the order of the codes.
    pub const ALL: [Self; 13] = [
        Self::Complete,
        Self::Warnings,
        Self::Invariant,
        Self::Losing,
        Self::Usage,
        Self::Config,
        Self::Owed,
        Self::Device,
        Self::Internal,
        Self::File,
        Self::NoProgress,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The number that the shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Warnings | Self::Invariant | Self::Losing => 1,
            Self::Usage => 2,
            Self::Config => 3,
            Self::Owed => 4,
            Self::Device => 5,
            Self::Internal => 6,
            Self::File => 7,
            Self::NoProgress => 8,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "complete",
            Self::Warnings => "warnings, and warnings are denied",
            Self::Invariant => "an invariant was broken",
            Self::Losing => "something is lost",
            Self::Usage => "wrong usage",
            Self::Config => "invalid configuration",
            Self::Owed => "images owed",
            Self::Device => "a device, engine or feature is missing, failed or unsupported here",
            Self::Internal => "internal fault",
            Self::File => "a file cannot be read, parsed or written",
            Self::NoProgress => "no progress",
            Self::Interrupted => "interrupted twice",
            Self::Terminated => "terminated twice",
        })
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(exit: ExitCode) -> Self {
        Self::from(exit.code())
    }
}

/// What a run has to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// This many images: `--expected-images`, or the images of a data set that is sent once.
    Images(u64),
    /// Nothing in particular (synthetic frames, `--loop`, `--seconds`), but something: one image.
    SomeImage,
    /// A sender: this many frames.
    Frames(u64),
    /// A sender that is bounded by time: one frame.
    SomeFrame,
}

/// Something that ended the run before its end, and the code that it deserves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the program ends for it.
    pub exit: ExitCode,
    /// What happened, as a person should read it: lower case, no full stop.
    pub reason: String,
}

/// How a run ends. In this order, the first that holds decides: a failure that was reported; an
/// accounting that does not balance (6); images that the inference (5) or the sink (7) could not
/// take; what is owed (4).
#[must_use]
pub fn decide(summary: &Summary, owed: Owed) -> ExitCode {
    if let Some(failure) = &summary.failure {
        return failure.exit;
    }
    if !summary.balanced {
        return ExitCode::Internal;
    }
    if summary.images.dropped.infer_failed > 0 {
        return ExitCode::Device;
    }
    if summary.images.dropped.sink_failed > 0 {
        return ExitCode::File;
    }
    let frames = summary.tx.map_or(0, |tx| tx.sent);
    let delivered = summary.images.delivered;
    let arrived = match owed {
        // "Nothing arrived" is never a success, not even where nothing was asked for.
        Owed::Images(images) => delivered >= images.max(1),
        Owed::SomeImage => delivered >= 1,
        Owed::Frames(all) => frames >= all.max(1),
        Owed::SomeFrame => frames >= 1,
    };
    if arrived { ExitCode::Complete } else { ExitCode::Owed }
}

/// The words for [`decide`]'s answer: what arrived of what, or what failed.
#[must_use]
pub fn reason(summary: &Summary, owed: Owed, exit: ExitCode) -> String {
    if let Some(failure) = &summary.failure {
        return failure.reason.clone();
    }
    let dropped = &summary.images.dropped;
    let frames = summary.tx.map_or(0, |tx| tx.sent);
    let words = match (exit, owed) {
        (ExitCode::Internal, _) => "the accounting does not balance".to_owned(),
        (ExitCode::Device, _) => format!("inference failed for {} images", dropped.infer_failed),
        (ExitCode::File, _) => format!("the sink could not take {} images", dropped.sink_failed),
        (_, Owed::Images(all)) => format!("{} of {all} images", summary.images.delivered),
        (_, Owed::SomeImage) => format!("{} images, none owed", summary.images.delivered),
        (_, Owed::Frames(all)) => format!("sent {frames} of {all} frames"),
        (_, Owed::SomeFrame) => format!("sent {frames} frames, none owed"),
    };
    match (&summary.ended_by, exit) {
        (Some(end), ExitCode::Owed) => format!("{words} ({end})"),
        _ => words,
    }
}

#[cfg(test)]
mod tests;
