//! Files: opened only where they are files, written only where they become whole.

use std::fmt;
use std::fs::{self, File, FileType};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use tensorwire_host::unfinished;

/// Why a file could not be used.
#[derive(Debug)]
pub struct FileError {
    /// What was tried: "read", "create", "write", "put in place", …
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

/// What a thing is that is no regular file; `None` for a file.
fn kind_of(file: FileType) -> Option<&'static str> {
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
/// rename is one step of the file system. What a killed process has left there of the same target
/// is taken away first ([`unfinished`]). Directories that are missing above it are made. Dropped
/// without [`NewFile::publish`], the file is removed, and so are these directories; what had the
/// name before is untouched. Of several that are written at once for one target each is whole, and
/// the one that is published last stays.
///
/// Bytes are appended ([`NewFile::append`], [`Write`]) or written to a place
/// ([`NewFile::write_all_at`]).
#[derive(Debug)]
pub struct NewFile {
    target: PathBuf,
    temporary: PathBuf,
    writer: BufWriter<File>,
    published: bool,
    /// Taken away after the file, for fields are dropped after their owner.
    made: NewDirs,
}

impl NewFile {
    /// Begins the file `target`.
    ///
    /// # Errors
    ///
    /// [`FileError`] when `target` is something else than a file, or when its directory cannot be
    /// made or written. Nothing is left behind then.
    pub fn create(target: &Path) -> Result<Self, FileError> {
        // A rename would put a file in the place of a pipe or a device, and fail on a directory
        // when all the work is done.
        if let Ok(about) = fs::metadata(target)
            && let Some(kind) = kind_of(about.file_type())
        {
            let problem = FileProblem::NotAFile(kind);
            return Err(FileError { doing: "create", path: target.to_path_buf(), problem });
        }
        let create = FileError::io("create", target);
        if target.file_name().is_none() {
            return Err(create(io::Error::new(io::ErrorKind::InvalidInput, "not a file name")));
        }
        let made = NewDirs::above(target)?;
        let (temporary, file) = unfinished::begin(target).map_err(create)?;
        let writer = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { target: target.to_path_buf(), temporary, writer, published: false, made })
    }

    /// Writes to an open file that is nowhere under a name.
    #[cfg(test)]
    pub(crate) fn over(file: File, target: &Path) -> Self {
        let writer = BufWriter::new(file);
        let (target, temporary) = (target.to_path_buf(), target.to_path_buf());
        Self { target, temporary, writer, published: true, made: NewDirs { made: Vec::new() } }
    }

    /// The name that the file will have.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where the file is for now. What is there is whole after [`NewFile::sync`] only.
    #[must_use]
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    ///
    /// [`FileError`] when they cannot be written, for example because the disk is full.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.writer.write_all(bytes).map_err(FileError::io("write", &self.target))
    }

    /// Writes `bytes` to place `at`, in bytes from the start. Bytes that are appended go on where
    /// the last of them ended.
    ///
    /// # Errors
    ///
    /// What the system says. Some of the bytes may have been written.
    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.writer.get_ref().write_all_at(bytes, at)
    }

    /// Brings all bytes onto the disk: after it only the rename is left to fail.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the bytes cannot be written.
    pub fn sync(&mut self) -> Result<(), FileError> {
        // Late write errors (network file systems, quotas) show at the sync or never.
        let synced = self.writer.flush().and_then(|()| self.writer.get_ref().sync_all());
        synced.map_err(FileError::io("write", &self.target))
    }

    /// Gives the file its name, in place of a file of that name.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the bytes cannot be written or the file cannot be renamed. Nothing is
    /// left behind then.
    pub fn publish(mut self) -> Result<(), FileError> {
        self.sync()?;
        fs::rename(&self.temporary, &self.target)
            .map_err(FileError::io("put in place", &self.target))?;
        self.published = true;
        self.made.keep();
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.published {
            // Nothing better can be done with a failure here: the error that led here is told.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Directories that were made for an output, taken away again if it does not come to be.
#[derive(Debug)]
struct NewDirs {
    made: Vec<PathBuf>,
}

impl NewDirs {
    /// Makes the directories that are missing above the file `path`.
    ///
    /// # Errors
    ///
    /// [`FileError`] when one of them cannot be made; those made before are taken away again.
    fn above(path: &Path) -> Result<Self, FileError> {
        let mut missing = Vec::new();
        let mut at = path.parent();
        while let Some(dir) = at.filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            missing.push(dir);
            at = dir.parent();
        }
        let mut dirs = Self { made: Vec::new() };
        for dir in missing.into_iter().rev() {
            match fs::create_dir(dir) {
                Ok(()) => dirs.made.push(dir.to_path_buf()),
                // Somebody else made it meanwhile, and it is not ours to take away.
                Err(_) if dir.is_dir() => {}
                Err(error) => {
                    // What exists is something else than a directory, and that is the news.
                    let error = match error.kind() {
                        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                        _ => error,
                    };
                    return Err(FileError::io("create the directory", dir)(error));
                }
            }
        }
        Ok(dirs)
    }

    /// The output exists: the directories stay.
    fn keep(&mut self) {
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
mod tests;
