//! The labels of a capture: `CAPTURE.labels`, one class number a line, line `i` for image `i` of
//! the sequence; and `CAPTURE.classes`, one class name a line, line `c` for class `c`.
//!
//! A label that is left out would shift all labels behind it, so nothing is skipped: a line is a
//! decimal number from 0 to 65535 and nothing else. LF and CRLF, a byte order mark at the start,
//! spaces around a number, and empty lines at the end of the file are fine.

use crate::file::{self, FileError};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest class number.
pub const MAX_CLASS: u16 = u16::MAX;
/// The largest file of labels or class names that is read: some 20 million labels.
const MAX_FILE_BYTES: u64 = 128 << 20;
/// How much of a bad line an error shows.
const SHOWN: usize = 40;

/// Class numbers of images, in sequence order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    classes: Vec<u16>,
}

impl Labels {
    /// The class of image `index`; `None` beyond the last label.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<u16> {
        usize::try_from(index).ok().and_then(|index| self.classes.get(index)).copied()
    }

    /// How many images have a label.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether no image has one.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[u16] {
        &self.classes
    }

    /// The number of classes that the labels speak of: the largest one + 1.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.iter().max().map_or(0, |&class| usize::from(class) + 1)
    }
}

impl From<Vec<u16>> for Labels {
    fn from(classes: Vec<u16>) -> Self {
        Self { classes }
    }
}

/// Why a file of labels or class names could not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabelsError {
    /// It could not be opened or read.
    File(FileError),
    /// It is too large.
    Large {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A line is no label.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        fault: LineFault,
        /// The line, shortened.
        text: String,
    },
}

/// What is wrong with a line of a label file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineFault {
    /// Empty, with labels behind it.
    Empty,
    /// More than one number.
    Several,
    /// Not a decimal number without sign and fraction.
    NotANumber,
    /// Above [`MAX_CLASS`].
    Range,
    /// No class of that number in the file of class names.
    Unnamed {
        /// How many classes have a name.
        classes: usize,
    },
    /// A class name that is not UTF-8.
    NotText,
}

impl fmt::Display for LabelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Large { path, bytes } => {
                write!(f, "{}: {bytes} bytes, allowed {MAX_FILE_BYTES}", path.display())
            }
            Self::Line { path, line, fault, text } => {
                write!(f, "{}:{line}: ", path.display())?;
                match fault {
                    LineFault::Empty => f.write_str("an empty line between labels"),
                    LineFault::Several => write!(f, "\"{text}\" is not one label"),
                    LineFault::NotANumber => {
                        write!(f, "\"{text}\" is no class number (0 to {MAX_CLASS})")
                    }
                    LineFault::Range => write!(f, "class {text}, allowed 0 to {MAX_CLASS}"),
                    LineFault::Unnamed { classes } => {
                        write!(f, "class {text}, but only {classes} classes have a name")
                    }
                    LineFault::NotText => f.write_str("the class name is not UTF-8"),
                }
            }
        }
    }
}

impl std::error::Error for LabelsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::File(error) = self { Some(error) } else { None }
    }
}

impl From<FileError> for LabelsError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Reads a whole file of moderate size, without a byte order mark.
fn read(path: &Path) -> Result<Vec<u8>, LabelsError> {
    let (file, bytes) = file::open(path)?;
    if bytes > MAX_FILE_BYTES {
        return Err(LabelsError::Large { path: path.to_path_buf(), bytes });
    }
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut content).map_err(FileError::io("read", path))?;
    if content.starts_with(&[0xef, 0xbb, 0xbf]) {
        content.drain(..3);
    }
    Ok(content)
}

/// The lines, trimmed, without the empty ones at the end.
fn lines(content: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> =
        content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// One label.
fn parse(line: &[u8]) -> Result<u16, LineFault> {
    if line.is_empty() {
        return Err(LineFault::Empty);
    }
    if line.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b';')) {
        return Err(LineFault::Several);
    }
    if !line.iter().all(u8::is_ascii_digit) {
        return Err(LineFault::NotANumber);
    }
    // Digits only: what does not parse is too large.
    let digits = std::str::from_utf8(line).map_err(|_| LineFault::NotANumber)?;
    digits.parse().map_err(|_| LineFault::Range)
}

/// Reads the labels in `path`. `classes` is the number of named classes, 0 where none is known.
///
/// An empty file is no error: it labels no image.
///
/// # Errors
///
/// [`LabelsError`], with the number of the first bad line.
pub fn read_labels(path: &Path, classes: usize) -> Result<Labels, LabelsError> {
    let content = read(path)?;
    let lines = lines(&content);
    let mut labels = Vec::with_capacity(lines.len());
    for (i, line) in lines.into_iter().enumerate() {
        let label = parse(line).and_then(|label| {
            let named = classes == 0 || usize::from(label) < classes;
            if named { Ok(label) } else { Err(LineFault::Unnamed { classes }) }
        });
        labels.push(label.map_err(|fault| LabelsError::Line {
            path: path.to_path_buf(),
            line: i + 1,
            fault,
            text: String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned(),
        })?);
    }
    Ok(Labels { classes: labels })
}

/// Reads the class names in `path`. Empty names are kept, except at the end.
///
/// # Errors
///
/// [`LabelsError`].
pub fn read_classes(path: &Path) -> Result<Vec<String>, LabelsError> {
    let content = read(path)?;
    let names = lines(&content).into_iter().enumerate().map(|(i, line)| {
        let name = std::str::from_utf8(line).map_err(|_| LabelsError::Line {
            path: path.to_path_buf(),
            line: i + 1,
            fault: LineFault::NotText,
            text: String::new(),
        })?;
        Ok(name.to_string())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(content: &[u8]) -> Result<Vec<u16>, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.labels");
        std::fs::write(&path, content).expect("writable");
        let labels = read_labels(&path, 0).map_err(|error| error.to_string())?;
        Ok(labels.as_slice().to_vec())
    }

    fn refusal(content: &[u8]) -> String {
        let message = labels_of(content).expect_err("refused");
        message.split_once("x.labels:").expect("path first").1.to_string()
    }

    #[test]
    fn s02_good_files() {
        for content in [
            "3\n65535\n0\n",
            "3\n65535\n0",
            "3\r\n65535\r\n0\r\n",
            "\u{feff}3\n65535\n0\n",
            "3\n 65535\t\n0\n\n\r\n",
        ] {
            assert_eq!(labels_of(content.as_bytes()), Ok(vec![3, 65535, 0]), "{content:?}");
        }
        assert_eq!(labels_of(b""), Ok(vec![]));
        assert_eq!(labels_of(b"\n\n"), Ok(vec![]));
    }

    #[test]
    fn s02_bad_lines_are_told_with_their_number() {
        assert_eq!(refusal(b"3\nx\n5"), "2: \"x\" is no class number (0 to 65535)");
        assert_eq!(refusal(b"3\n-1\n"), "2: \"-1\" is no class number (0 to 65535)");
        assert_eq!(refusal(b"2147483647\n"), "1: class 2147483647, allowed 0 to 65535");
        assert_eq!(refusal(b"2000000000"), "1: class 2000000000, allowed 0 to 65535");
        assert_eq!(
            refusal(b"99999999999999999999999"),
            "1: class 99999999999999999999999, allowed 0 to 65535"
        );
        assert_eq!(refusal(b"65536"), "1: class 65536, allowed 0 to 65535");
        assert_eq!(refusal(b"1\n1.5\n"), "2: \"1.5\" is no class number (0 to 65535)");
        assert_eq!(refusal(b"1\n2\n3 4\n"), "3: \"3 4\" is not one label");
        assert_eq!(refusal(b"1,2\n"), "1: \"1,2\" is not one label");
        assert_eq!(refusal(b"1\n\n2\n"), "2: an empty line between labels");
        assert_eq!(refusal(b"\r\n2\r\n"), "1: an empty line between labels");
        assert_eq!(refusal(b"+5\n"), "1: \"+5\" is no class number (0 to 65535)");
        assert!(refusal(b"1\n\xff\xfe\n").starts_with("2: "));
    }

    #[test]
    fn s02_a_label_without_a_name_is_refused_where_names_are_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.labels");
        std::fs::write(&path, "0\n9\n10\n").expect("writable");
        let error = read_labels(&path, 10).expect_err("10 is no class").to_string();
        assert!(
            error.ends_with("x.labels:3: class 10, but only 10 classes have a name"),
            "{error}"
        );
        assert_eq!(read_labels(&path, 11).expect("fine").classes(), 11);
    }

    #[test]
    fn class_names_keep_their_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.classes");
        std::fs::write(&path, "\u{feff}cat\r\nbig dog\r\n\r\n").expect("writable");
        assert_eq!(read_classes(&path).expect("read"), ["cat", "big dog"]);
        std::fs::write(&path, b"cat\n\xff\n").expect("writable");
        let error = read_classes(&path).expect_err("no text").to_string();
        assert!(error.ends_with("x.classes:2: the class name is not UTF-8"), "{error}");
    }

    #[test]
    fn labels_beyond_the_last_are_none() {
        let labels = Labels::from(vec![4, 2]);
        assert_eq!((labels.get(1), labels.get(2), labels.get(u64::MAX)), (Some(2), None, None));
    }
}
