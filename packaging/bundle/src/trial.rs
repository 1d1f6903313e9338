//! A bundle on trial: its starts are counted; it is confirmed, or taken back.

use std::fmt::Write;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use crate::contents::About;
use crate::error::BundleError;
use crate::store::{CURRENT, FALLBACK, PREVIOUS, ROLLBACK, Store, TRIAL};

/// How often a bundle on trial may be started before it is taken back.
pub const STARTS: u32 = 3;

/// What was decided at a start.
#[derive(Debug)]
pub struct Start {
    /// The folder of the bundle to run.
    pub folder: PathBuf,
    /// What it is.
    pub about: About,
    /// What there is to say.
    pub notice: Option<String>,
}

/// How things stand.
#[derive(Debug, serde::Serialize)]
pub struct Status {
    /// What runs.
    pub current: Option<String>,
    /// What ran before, or comes back if the trial fails.
    pub previous: Option<String>,
    /// Starts of the bundle on trial; `None` where none is.
    pub trial_starts: Option<u32>,
    /// Why the last bundle was taken back.
    pub rollback: Option<String>,
}

impl Store {
    /// Before the program is started: counts the start of a bundle on trial, or takes it back if it
    /// had its starts. Then says what to run.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when there is nothing to run.
    pub fn start(&self) -> Result<Start, BundleError> {
        self.recover()?;
        let mut notice = None;
        if let Some((starts, marker)) = self.marker()? {
            if starts >= STARTS {
                let why = format!("it was started {starts} times and was not confirmed");
                notice = Some(self.roll_back(&why)?);
            } else {
                self.rename(&marker, &format!("{TRIAL}{}", starts + 1))?;
                notice = Some(format!("on trial: start {} of {STARTS}", starts + 1));
            }
        }
        let (folder, about) = self.running()?;
        Ok(Start { folder, about, notice })
    }

    /// How the bundle on trial has ended so far: the lines below its name.
    fn endings(&self, marker: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(marker)).unwrap_or_default();
        text.lines().skip(1).map(str::to_owned).collect()
    }

    /// Notes how the program has ended, for the case that it is taken back. Without a trial there
    /// is nothing to note: the journal has it.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when it cannot be written.
    pub fn note(&self, ending: &str) -> Result<(), BundleError> {
        // Before its first start it is the bundle before that has ended.
        let Some((1.., marker)) = self.marker()? else { return Ok(()) };
        let path = self.path(&marker);
        let line = ending.replace('\n', " ") + "\n";
        let file = OpenOptions::new().append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(BundleError::io("write", &path))
    }

    /// The bundle on trial is well: it stays. The one before is kept to go back to.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when it cannot be said.
    pub fn confirm(&self) -> Result<Option<String>, BundleError> {
        self.recover()?;
        let Some((_, marker)) = self.marker()? else { return Ok(None) };
        // Before the marker goes: without it the link is one that was left over.
        if let Some(old) = self.linked(FALLBACK)? {
            self.link(PREVIOUS, &old)?;
        }
        self.remove(&marker)?;
        self.remove(FALLBACK)?;
        self.current()
    }

    /// Takes the bundle on trial back, and no other: the manager does not start it any more.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when none is on trial: what runs is confirmed, and stays.
    pub fn give_up(&self, why: &str) -> Result<String, BundleError> {
        self.recover()?;
        let none = || BundleError::State("no bundle is on trial".to_owned());
        self.marker()?.ok_or_else(none)?;
        self.roll_back(why)
    }

    /// Takes the current bundle back, on trial or not, and keeps `why` and how it has ended.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when there is nothing to go back to.
    pub fn roll_back(&self, why: &str) -> Result<String, BundleError> {
        // What an interrupted switch has left is no trial.
        self.recover()?;
        let trial = self.marker()?;
        let link = if trial.is_some() { FALLBACK } else { PREVIOUS };
        let none = || BundleError::State("there is no bundle to go back to".to_owned());
        let old = self.linked(link)?.ok_or_else(none)?;
        let new = self.current()?.unwrap_or_default();
        let mut text = format!("{new} was taken back for {old}: {why}");
        for ending in trial.iter().flat_map(|(_, marker)| self.endings(marker)) {
            // A string takes whatever is written to it.
            let _ = write!(text, "; {ending}");
        }
        // The reason is worth less than the switch: on a full disk there is no room for it, and
        // the switch needs none.
        let kept = self.write(ROLLBACK, &format!("{text}\n"));
        self.rename(link, CURRENT)?;
        if let Some((_, marker)) = trial {
            self.remove(&marker)?;
        }
        Ok(match kept {
            Ok(()) => text,
            Err(error) => format!("{text} (not kept: {error})"),
        })
    }

    /// How things stand.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when it cannot be read.
    pub fn status(&self) -> Result<Status, BundleError> {
        let trial_starts = self.marker()?.map(|(starts, _)| starts);
        let link = if trial_starts.is_some() { FALLBACK } else { PREVIOUS };
        let rollback = fs::read_to_string(self.path(ROLLBACK)).ok();
        Ok(Status {
            current: self.current()?,
            previous: self.linked(link)?,
            trial_starts,
            rollback: rollback.map(|text| text.trim_end().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests;
