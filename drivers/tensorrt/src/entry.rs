//! The file of an engine that we built: a header in plain text, then the plan.
//!
//! ```text
//! tensorwire engine 1
//! library TensorRT
//! version 10.3.0
//! …
//! bytes 47612340
//! sha256 5f70bf18…
//!
//! <the plan>
//! ```
//!
//! `head -n 15 FILE` shows what an engine is for. The same form keeps measured times.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tensorwire_host::unfinished;

use crate::key::{EngineKey, hex};
use crate::planted::planted;

/// First line of every file of ours.
const MAGIC: &str = "tensorwire engine 1\n";
/// Most bytes of a header; one is about 400.
const MAX_HEADER: usize = 16 * 1024;

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The lines of the key.
    pub key: String,
    /// The plan, or the times.
    pub body: Vec<u8>,
}

/// Why a file is not an entry.
#[derive(Debug)]
#[non_exhaustive]
pub enum EntryError {
    /// It cannot be read.
    Read(io::Error),
    /// It does not begin as our files do: perhaps a plain plan.
    Foreign,
    /// Its header is not complete.
    Header,
    /// It is shorter or longer than its header says.
    Length {
        /// Bytes that the header promises.
        promised: usize,
        /// Bytes that came.
        given: usize,
    },
    /// Its bytes are not those that were written.
    Checksum,
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Foreign => f.write_str("does not begin as an engine file of tensorwire"),
            Self::Header => f.write_str("is damaged: its header is not complete"),
            Self::Length { promised, given } => {
                write!(f, "is damaged: it holds {given} bytes, its header says {promised}")
            }
            Self::Checksum => f.write_str("is damaged: its checksum is wrong"),
        }
    }
}

impl std::error::Error for EntryError {}

/// Splits the bytes of a file.
///
/// # Errors
///
/// [`EntryError`] when they are not an entry, whole and unharmed.
pub fn parse(bytes: &[u8]) -> Result<Entry, EntryError> {
    let rest = bytes.strip_prefix(MAGIC.as_bytes()).ok_or(EntryError::Foreign)?;
    let head = &rest[..rest.len().min(MAX_HEADER)];
    let end = head.windows(2).position(|two| two == b"\n\n").ok_or(EntryError::Header)?;
    let lines = std::str::from_utf8(&rest[..=end]).map_err(|_| EntryError::Header)?;
    let body = &rest[end + 2..];
    let (key, promised, sum) = header(lines).ok_or(EntryError::Header)?;
    if body.len() != promised {
        return Err(EntryError::Length { promised, given: body.len() });
    }
    if hex(&Sha256::digest(body)) != sum && !planted!(ChecksumUnread) {
        return Err(EntryError::Checksum);
    }
    Ok(Entry { key: key.to_owned(), body: body.to_vec() })
}

/// The lines of the key, the length and the checksum of the body.
fn header(lines: &str) -> Option<(&str, usize, &str)> {
    let at = lines.rfind("bytes ")?;
    let (key, rest) = lines.split_at(at);
    let (bytes, sum) = rest.strip_prefix("bytes ")?.split_once('\n')?;
    let sum = sum.strip_prefix("sha256 ")?.strip_suffix('\n')?;
    (key.is_empty() || key.ends_with('\n')).then_some((key, bytes.parse().ok()?, sum))
}

/// Reads a file.
///
/// # Errors
///
/// [`EntryError`] when it cannot be read or is not an entry, whole and unharmed.
pub fn read(path: &Path) -> Result<Entry, EntryError> {
    parse(&fs::read(path).map_err(EntryError::Read)?)
}

/// The lines of the key of a file, without its body: for a message about a file that is not used.
#[must_use]
pub fn read_key(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut head = Vec::new();
    let limit = (MAGIC.len() + MAX_HEADER) as u64;
    File::open(path).ok()?.take(limit).read_to_end(&mut head).ok()?;
    let rest = head.strip_prefix(MAGIC.as_bytes())?;
    let end = rest.windows(2).position(|two| two == b"\n\n")?;
    header(std::str::from_utf8(&rest[..=end]).ok()?).map(|(key, ..)| key.to_owned())
}

/// Writes a file: under another name first, then renamed, so that a reader finds the old file or
/// the new one and never a part.
///
/// # Errors
///
/// When it cannot be written; nothing is left behind then.
pub fn write(path: &Path, key: &EngineKey, body: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let (temporary, file) = unfinished::begin(path)?;
    let result = fill(file, key, body).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        // What could not be written may not be removable either; the first error counts.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn fill(mut file: File, key: &EngineKey, body: &[u8]) -> io::Result<()> {
    let sum = hex(&Sha256::digest(body));
    write!(file, "{MAGIC}{}bytes {}\nsha256 {sum}\n\n", key.lines(), body.len())?;
    let written = if planted!(BodyCut) { body.len() - 1 } else { body.len() };
    file.write_all(&body[..written])?;
    // Before the rename: after a power cut the new name must not stand for nothing.
    file.sync_all()
}
