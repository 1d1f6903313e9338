//! The folder of all bundles: which one runs, and how another takes its place.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contents::{self, About, PROGRAM, check, copy, same, sync};
use crate::error::BundleError;

/// The link to what runs.
pub(crate) const CURRENT: &str = "current";
/// The link to what comes back, while another is on trial.
pub(crate) const FALLBACK: &str = "fallback";
/// The link to what ran before.
pub(crate) const PREVIOUS: &str = "previous";
/// The marker of a trial; the number of starts follows.
pub(crate) const TRIAL: &str = "trial-";
/// Why a bundle was taken back.
pub(crate) const ROLLBACK: &str = "rollback";
const BUNDLES: &str = "bundles";
/// Begins the names of what is being written.
const PARTIAL: &str = ".new-";

/// The folder of all bundles.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    /// In a test: what happens at which step.
    #[cfg(test)]
    pub(crate) fault: crate::testkit::Fault,
}

impl Store {
    /// The one at `root`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when it cannot be made.
    pub fn open(root: &Path) -> Result<Self, BundleError> {
        let bundles = root.join(BUNDLES);
        fs::create_dir_all(&bundles).map_err(BundleError::io("make", &bundles))?;
        Ok(Self {
            root: root.to_owned(),
            #[cfg(test)]
            fault: crate::testkit::Fault::default(),
        })
    }

    /// A step that changes something is about to be made.
    /// `grows`: it needs room on the disk. Only a test makes it fail.
    fn step(&self, grows: bool) -> io::Result<()> {
        #[cfg(test)]
        self.fault.step(grows)?;
        #[cfg(not(test))]
        let _ = grows;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn bundle(&self, name: &str) -> PathBuf {
        self.root.join(BUNDLES).join(name)
    }

    /// The bundle that a link leads to: its name; `None` without the link.
    pub(crate) fn linked(&self, link: &str) -> Result<Option<String>, BundleError> {
        let path = self.path(link);
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BundleError::io("read", &path)(error)),
        };
        let name = target.strip_prefix(BUNDLES).ok().and_then(Path::to_str);
        let name = name.filter(|name| contents::is_name(name));
        let name = name.ok_or_else(|| BundleError::broken(&path, "it leads to no bundle"))?;
        Ok(Some(name.to_owned()))
    }

    /// The name of the bundle that runs.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when the link cannot be read.
    pub fn current(&self) -> Result<Option<String>, BundleError> {
        self.linked(CURRENT)
    }

    /// The folder of the bundle that runs, and what it is.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when there is none, or it does not say what it is.
    pub fn running(&self) -> Result<(PathBuf, About), BundleError> {
        let none = || BundleError::State("no bundle is installed".to_owned());
        let folder = self.bundle(&self.current()?.ok_or_else(none)?);
        let about = contents::about(&folder)?;
        Ok((folder, about))
    }

    /// Gives `to` the name `from` in the root, at once.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), BundleError> {
        let (from, to) = (self.path(from), self.path(to));
        self.step(false)
            .and_then(|()| fs::rename(&from, &to))
            .map_err(BundleError::io("rename", &from))?;
        sync(&self.root)
    }

    /// Makes the link `link` lead to the bundle `name`, at once.
    pub(crate) fn link(&self, link: &str, name: &str) -> Result<(), BundleError> {
        let new = format!("{PARTIAL}{link}");
        let path = self.path(&new);
        self.remove(&new)?;
        self.step(true)
            .and_then(|()| symlink(Path::new(BUNDLES).join(name), &path))
            .map_err(BundleError::io("make", &path))?;
        self.rename(&new, link)
    }

    /// Writes a small file, whole or not at all.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), BundleError> {
        let new = format!("{PARTIAL}{name}");
        let path = self.path(&new);
        self.step(true)
            .and_then(|()| fs::write(&path, text))
            .map_err(BundleError::io("write", &path))?;
        sync(&path)?;
        self.rename(&new, name)
    }

    /// Takes a file or a link away; none is fine.
    pub(crate) fn remove(&self, name: &str) -> Result<(), BundleError> {
        let path = self.path(name);
        match self.step(false).and_then(|()| fs::remove_file(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(BundleError::io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The marker of the trial that goes on: the number of starts, and the marker's name.
    pub(crate) fn marker(&self) -> Result<Option<(u32, String)>, BundleError> {
        let entries = fs::read_dir(&self.root).map_err(BundleError::io("read", &self.root))?;
        let mut found = None;
        for entry in entries {
            let entry = entry.map_err(BundleError::io("read", &self.root))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let starts = name.strip_prefix(TRIAL).and_then(|starts| starts.parse::<u32>().ok());
            found = found.max(starts.map(|starts| (starts, name)));
        }
        Ok(found)
    }

    /// Puts the bundle in `source` beside the others, sees that it is whole and tests itself, and
    /// switches to it on trial. The first bundle of all has nothing to fall back to: it is no
    /// trial.
    ///
    /// # Errors
    ///
    /// [`BundleError`]: what ran goes on to run.
    pub fn install(&self, source: &Path) -> Result<About, BundleError> {
        self.recover()?;
        if self.marker()?.is_some() {
            let text = "another bundle is on trial: wait until it is confirmed or taken back";
            return Err(BundleError::State(text.to_owned()));
        }
        let about = check(source)?;
        let (old, new) = (self.current()?, about.name.as_str());
        if old.as_deref() == Some(new) {
            return Err(BundleError::State(format!("{new} runs already")));
        }
        self.bring(source, new)?;
        if let Some(old) = &old {
            // From here on an interrupted switch is no switch: the trial is not that of `current`.
            self.link(FALLBACK, old)?;
            self.write(&format!("{TRIAL}0"), &format!("{new}\n"))?;
        }
        self.link(CURRENT, new)?;
        Ok(about)
    }

    /// Copies a bundle, and lets it test itself where it will run.
    fn bring(&self, source: &Path, name: &str) -> Result<(), BundleError> {
        let (partial, target) = (self.bundle(&format!("{PARTIAL}{name}")), self.bundle(name));
        if target.exists() {
            if same(source, &target) && check(&target).is_ok() {
                return selftest(&target);
            }
            let what = format!("another bundle has the name {name}; give it one of its own");
            return Err(BundleError::State(what));
        }
        let copied = self
            .step(true)
            .map_err(BundleError::io("write", &partial))
            .and_then(|()| copy(source, &partial))
            .and_then(|()| check(&partial))
            .and_then(|_| selftest(&partial))
            .and_then(|()| {
                self.step(false)
                    .and_then(|()| fs::rename(&partial, &target))
                    .map_err(BundleError::io("rename", &partial))
            })
            .and_then(|()| sync(&self.root.join(BUNDLES)));
        if copied.is_err() && self.step(false).is_ok() {
            // What is left is taken away the next time, if it cannot be now.
            let _ = fs::remove_dir_all(&partial);
        }
        copied
    }

    /// Takes away what an interrupted step has left, and a trial whose switch did not happen.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when something cannot be taken away.
    pub fn recover(&self) -> Result<(), BundleError> {
        let bundles = self.root.join(BUNDLES);
        for folder in [&self.root, &bundles] {
            for entry in fs::read_dir(folder).map_err(BundleError::io("read", folder))? {
                let path = entry.map_err(BundleError::io("read", folder))?.path();
                let partial = path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(PARTIAL));
                if partial {
                    let removed = self.step(false).and_then(|()| {
                        if path.is_dir() && !path.is_symlink() {
                            fs::remove_dir_all(&path)
                        } else {
                            fs::remove_file(&path)
                        }
                    });
                    removed.map_err(BundleError::io("remove", &path))?;
                }
            }
        }
        let Some((_, marker)) = self.marker()? else {
            // The link alone: the trial was not begun, or is over.
            return self.remove(FALLBACK);
        };
        let path = self.path(&marker);
        let text = fs::read_to_string(&path).map_err(BundleError::io("read", &path))?;
        let on_trial = text.lines().next();
        if self.current()?.as_deref() != on_trial {
            // First the marker: without it the link says nothing.
            self.remove(&marker)?;
            self.remove(FALLBACK)?;
        }
        Ok(())
    }

    /// Takes away all bundles but those that run, ran before, or are to come back. Their names.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when one cannot be taken away.
    pub fn prune(&self) -> Result<Vec<String>, BundleError> {
        self.recover()?;
        let kept = [CURRENT, FALLBACK, PREVIOUS].map(|link| self.linked(link));
        let kept = kept.into_iter().collect::<Result<Vec<_>, _>>()?;
        let bundles = self.root.join(BUNDLES);
        let mut gone = Vec::new();
        for entry in fs::read_dir(&bundles).map_err(BundleError::io("read", &bundles))? {
            let entry = entry.map_err(BundleError::io("read", &bundles))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !kept.iter().flatten().any(|kept| *kept == name) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(BundleError::io("remove", &path))?;
                gone.push(name);
            }
        }
        gone.sort();
        Ok(gone)
    }
}

/// Lets the bundle in `folder` test itself.
fn selftest(folder: &Path) -> Result<(), BundleError> {
    let about = contents::about(folder)?;
    let program = folder.join(PROGRAM);
    let status = Command::new(&program).args(&about.selftest).current_dir(folder).status();
    let status = status.map_err(BundleError::io("run", &program))?;
    if status.success() {
        Ok(())
    } else {
        Err(BundleError::SelfTest(format!("ended with {status}")))
    }
}
