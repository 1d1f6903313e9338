//! A file that is there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, IntoInnerError};
use std::path::{Path, PathBuf};

/// A file that is being written under a temporary name in the folder of its target. It takes the
/// target's name when it is published; if that does not happen it is removed, and what was at the
/// target stays.
#[derive(Debug)]
pub(super) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    published: bool,
}

impl Staged {
    /// Starts a file for `target`. Its folder is made if it is not there.
    pub(super) fn create(target: &Path) -> io::Result<(Self, BufWriter<File>)> {
        let name =
            target.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // A rename would put a file in the place of a folder's, a pipe's or a device's name.
        if fs::metadata(target).is_ok_and(|about| !about.is_file()) {
            let what = "there is something that is not a regular file";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            fs::create_dir_all(folder).map_err(|error| match error.kind() {
                // What exists is something else than a folder, and that is the news.
                io::ErrorKind::AlreadyExists => io::Error::from(io::ErrorKind::NotADirectory),
                _ => error,
            })?;
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let temporary = folder.unwrap_or(Path::new(".")).join(hidden);
        let file = File::create(&temporary)?;
        let staged = Self { temporary, target: target.into(), published: false };
        Ok((staged, BufWriter::new(file)))
    }

    /// Where the file is for now.
    pub(super) fn path(&self) -> &Path {
        &self.temporary
    }

    /// Makes sure that all that was written is on the disk.
    pub(super) fn finish(writer: BufWriter<File>) -> io::Result<()> {
        writer.into_inner().map_err(IntoInnerError::into_error)?.sync_all()
    }

    /// Gives the file its name.
    pub(super) fn publish(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // The error that led here is the one to report.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
