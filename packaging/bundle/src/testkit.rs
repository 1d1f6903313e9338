//! Bundles whose program is a line of shell, and a store whose steps fail on cue.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::contents::{self, About};
use crate::store::Store;

/// What happens to the steps of a store.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    /// Steps that were begun.
    pub(crate) steps: Cell<u32>,
    /// From this step on nothing is done any more: the process was killed, or the power cut.
    pub(crate) killed_at: Cell<Option<u32>>,
    /// Nothing that grows finds room.
    pub(crate) full: Cell<bool>,
}

impl Fault {
    pub(crate) fn step(&self, grows: bool) -> io::Result<()> {
        let step = self.steps.replace(self.steps.get() + 1);
        if self.killed_at.get().is_some_and(|at| step >= at) {
            return Err(io::Error::other("killed"));
        }
        if grows && self.full.get() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

/// A folder with a store, and bundles beside it.
#[derive(Debug)]
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().join("state")
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.root()).expect("a store")
    }

    /// A bundle whose self-test is the line of shell `selftest`.
    pub(crate) fn bundle(&self, name: &str, selftest: &str) -> PathBuf {
        let folder = self.0.path().join(format!("bundle-{name}"));
        fs::create_dir_all(&folder).expect("a folder");
        let program = folder.join(contents::PROGRAM);
        fs::write(&program, format!("#!/bin/sh\n{selftest}\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        fs::write(folder.join("config.yaml"), format!("config of {name}")).expect("written");
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let about = About {
            name: name.to_owned(),
            run: words("run config.yaml"),
            selftest: words("selftest"),
        };
        contents::make(&folder, &about).expect("a bundle");
        folder
    }
}

/// Every name in the root, sorted.
pub(crate) fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).expect("readable");
    let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> =
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
