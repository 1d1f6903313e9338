//! Files: opened only where they are files, written only where they become whole.

use std::fmt;
use std::fs::{self, File, FileType};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Why a file could not be used.
#[derive(Debug)]
pub struct FileError {
    /// What was tried: "read", "write", "create", …
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What stood against it.
    pub problem: FileProblem,
}

/// What stood against the use of a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileProblem {
    /// The operating system refused.
    Io(io::Error),
    /// It exists and is something else than a regular file: "a directory", "a FIFO", …
    NotAFile(&'static str),
}

impl FileError {
    /// For `map_err`: the operating system refused to do `doing` with `path`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { doing, path: path.to_path_buf(), problem: FileProblem::Io(error) }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: ", self.doing, self.path.display())?;
        match &self.problem {
            FileProblem::Io(error) => error.fmt(f),
            FileProblem::NotAFile(what) => write!(f, "it is {what}, not a file"),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            FileProblem::Io(error) => Some(error),
            FileProblem::NotAFile(_) => None,
        }
    }
}

#[cfg(unix)]
fn kind_of(file: FileType) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    match file {
        t if t.is_file() => None,
        t if t.is_dir() => Some("a directory"),
        t if t.is_fifo() => Some("a FIFO"),
        t if t.is_socket() => Some("a socket"),
        t if t.is_char_device() => Some("a character device"),
        t if t.is_block_device() => Some("a block device"),
        _ => Some("something else"),
    }
}

#[cfg(not(unix))]
fn kind_of(file: FileType) -> Option<&'static str> {
    match file {
        t if t.is_file() => None,
        t if t.is_dir() => Some("a directory"),
        _ => Some("something else"),
    }
}

/// Opens a regular file and tells its length in bytes.
///
/// The kind is asked for before the open, because the open of a FIFO without a writer never
/// returns.
///
/// # Errors
///
/// [`FileError`] when it is not there, not readable, or not a regular file.
pub(crate) fn open(path: &Path) -> Result<(File, u64), FileError> {
    let about = fs::metadata(path).map_err(FileError::io("read", path))?;
    if let Some(kind) = kind_of(about.file_type()) {
        let problem = FileProblem::NotAFile(kind);
        return Err(FileError { doing: "read", path: path.to_path_buf(), problem });
    }
    let file = File::open(path).map_err(FileError::io("read", path))?;
    Ok((file, about.len()))
}

/// `path` with `suffix` behind its whole name: `a/b.pcap` and `.labels` are `a/b.pcap.labels`.
#[must_use]
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// A file that appears under its name when it is whole, or not at all.
///
/// It is written under a name of its own beside the target, in the same directory so that the
/// rename is one step of the file system. Dropped without [`NewFile::publish`], it is removed.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    /// `None` once it was published.
    writer: Option<BufWriter<File>>,
}

/// Creates a file of a name that nobody has. A process that was killed may have left one behind,
/// and in a container the next one has the same id.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let temporary = with_suffix(path, &format!(".{}-{number}.tmp", std::process::id()));
        match File::options().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                number += 1;
            }
            result => return Ok((temporary, result?)),
        }
    }
}

impl NewFile {
    /// Begins the file `path`.
    ///
    /// # Errors
    ///
    /// [`FileError`] when `path` is something else than a file, or when its directory cannot be
    /// written.
    pub(crate) fn create(path: &Path) -> Result<Self, FileError> {
        if let Ok(about) = fs::metadata(path)
            && let Some(kind) = kind_of(about.file_type())
        {
            let problem = FileProblem::NotAFile(kind);
            return Err(FileError { doing: "write", path: path.to_path_buf(), problem });
        }
        let (temporary, file) = create_beside(path).map_err(FileError::io("write", path))?;
        let writer = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { path: path.to_path_buf(), temporary, writer })
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    ///
    /// [`FileError`] when they cannot be written, for example because the disk is full.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let written = self.writer.as_mut().map_or(Ok(()), |writer| writer.write_all(bytes));
        written.map_err(FileError::io("write", &self.path))
    }

    /// Writes out what is buffered: after it only the rename is left to fail.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the bytes cannot be written.
    pub(crate) fn flush(&mut self) -> Result<(), FileError> {
        let flushed = self.writer.as_mut().map_or(Ok(()), |writer| {
            writer.flush()?;
            // Late write errors (network file systems, quotas) show here or never.
            writer.get_ref().sync_all()
        });
        flushed.map_err(FileError::io("write", &self.path))
    }

    /// Gives the file its name, in place of a file of that name.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the bytes cannot be written or the file cannot be renamed.
    pub(crate) fn publish(mut self) -> Result<(), FileError> {
        self.flush()?;
        fs::rename(&self.temporary, &self.path).map_err(FileError::io("write", &self.path))?;
        self.writer = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            // Nothing better can be done with a failure here: the error that led here is told.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Directories that were made for an output, taken away again if it does not come to be.
#[derive(Debug)]
pub(crate) struct NewDirs {
    made: Vec<PathBuf>,
}

impl NewDirs {
    /// Makes the directories that are missing above the file `path`.
    ///
    /// # Errors
    ///
    /// [`FileError`] when one of them cannot be made.
    pub(crate) fn above(path: &Path) -> Result<Self, FileError> {
        let mut missing = Vec::new();
        let mut at = path.parent();
        while let Some(dir) = at.filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            missing.push(dir.to_path_buf());
            at = dir.parent();
        }
        let mut dirs = Self { made: Vec::new() };
        for dir in missing.into_iter().rev() {
            fs::create_dir(&dir).map_err(FileError::io("create the directory", &dir))?;
            dirs.made.push(dir);
        }
        Ok(dirs)
    }

    /// The output exists: the directories stay.
    pub(crate) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for NewDirs {
    fn drop(&mut self) {
        for dir in self.made.iter().rev() {
            // Fails where something was put into it meanwhile, and then it should stay.
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("readable")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.bin");
        fs::write(&path, b"old").expect("writable");

        let mut given_up = NewFile::create(&path).expect("writable");
        given_up.write(b"half").expect("writable");
        drop(given_up);
        assert_eq!(names(dir.path()), ["a.bin"]);
        assert_eq!(fs::read(&path).expect("there"), b"old");

        let mut whole = NewFile::create(&path).expect("writable");
        whole.write(b"new").expect("writable");
        assert_eq!(fs::read(&path).expect("there"), b"old");
        whole.publish().expect("renamed");
        assert_eq!(names(dir.path()), ["a.bin"]);
        assert_eq!(fs::read(&path).expect("there"), b"new");
    }

    #[test]
    fn what_a_killed_process_left_is_not_in_the_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.bin");
        let killed = NewFile::create(&path).expect("writable");
        let mut next = NewFile::create(&path).expect("writable");
        next.write(b"new").expect("writable");
        next.publish().expect("renamed");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        drop(killed);
        assert_eq!(names(dir.path()), ["a.bin"]);
    }

    #[test]
    fn a_directory_in_the_way_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = NewFile::create(dir.path()).expect_err("a directory");
        assert!(error.to_string().ends_with("it is a directory, not a file"), "{error}");
        let error = open(dir.path()).expect_err("a directory");
        assert!(error.to_string().ends_with("it is a directory, not a file"), "{error}");
    }

    #[test]
    fn directories_are_made_and_taken_away_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x/y/a.bin");
        drop(NewDirs::above(&path).expect("made"));
        assert!(names(dir.path()).is_empty());
        let made = NewDirs::above(&path).expect("made");
        fs::write(&path, b"1").expect("writable");
        made.keep();
        assert_eq!(names(&dir.path().join("x/y")), ["a.bin"]);
    }
}
