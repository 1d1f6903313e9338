//! Feature files in NumPy's format, and back.
//!
//! Shape: `[images, feature_dim]`, f32 little-endian, C order; row `i` belongs to image `i` of one
//! pass over the data set. A row whose image was not delivered holds NaN. When the data set is sent
//! more than once, image `i` of every pass has row `i`, and the last pass that delivered it stays.
//!
//! The file is written under another name in the same directory, in its full size and filled with
//! NaN before the first batch: a disk that is too small is found before the run, not after it.
//! [`NpyWriter::finish`] gives it its name. A run that ends before leaves nothing behind.
//!
//! The format: [NEP 1](https://numpy.org/neps/nep-0001-npy-format.html).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::file::{FileError, NewFile};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Bytes before the data: magic, version, header length, and a header padded to a multiple of 64.
const HEADER_BYTES: usize = 10 + 118;
/// The longest header that the reader takes: such a file is not one of a plain array.
const MAX_HEADER_BYTES: usize = 4096;
/// Bytes of the pieces in which the file is filled.
const FILL_BYTES: usize = 1 << 16;

// The rows are written as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "the file format is little-endian");

/// Why a feature file cannot be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum NpyError {
    /// A file of no rows, of no columns, or of more than 2^63 bytes.
    Shape {
        /// Rows asked for.
        rows: u64,
        /// Columns asked for.
        columns: u64,
    },
    /// The file cannot be made, finished or put in its place.
    File(FileError),
    /// The disk, or the quota on it, is full.
    Full {
        /// The file.
        path: PathBuf,
        /// Bytes of the whole file.
        needed: u64,
        /// Bytes of it that are written, or for a later write the place it failed at.
        at: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A write failed for another reason.
    Write {
        /// The file.
        path: PathBuf,
        /// Bytes of the whole file.
        needed: u64,
        /// The place of the write in the file, in bytes.
        at: u64,
        /// What the system says.
        source: io::Error,
    },
}

impl fmt::Display for NpyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { rows, columns } => {
                write!(f, "a feature file of {rows} × {columns} values cannot be")
            }
            Self::File(error) => error.fmt(f),
            Self::Full { path, needed, at, source } => {
                let path = path.display();
                write!(f, "{path}: no room at byte {at} of the {needed} it needs: {source}")
            }
            Self::Write { path, needed, at, source } => {
                write!(f, "{}: write at byte {at} of {needed} failed: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for NpyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Shape { .. } => None,
            Self::File(error) => error.source(),
            Self::Full { source, .. } | Self::Write { source, .. } => Some(source),
        }
    }
}

impl From<FileError> for NpyError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// A feature file that is being written.
#[derive(Debug)]
pub struct NpyWriter {
    file: NewFile,
    rows: u64,
    columns: u64,
    bytes: u64,
}

/// The size of the whole file, where it can be.
fn file_bytes(rows: u64, columns: u64) -> Option<u64> {
    let data = rows.checked_mul(columns)?.checked_mul(4)?;
    let bytes = data.checked_add(HEADER_BYTES as u64)?;
    (data > 0 && i64::try_from(bytes).is_ok()).then_some(bytes)
}

/// The bytes before the data.
fn header(rows: u64, columns: u64) -> [u8; HEADER_BYTES] {
    let text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let mut bytes = [b' '; HEADER_BYTES];
    bytes[..6].copy_from_slice(MAGIC);
    // Version 1.0, and the 118 bytes of header that follow.
    bytes[6..10].copy_from_slice(&[1, 0, 118, 0]);
    // Two 64-bit numbers of at most 20 digits: 96 bytes at most, 117 fit.
    bytes[10..10 + text.len()].copy_from_slice(text.as_bytes());
    bytes[HEADER_BYTES - 1] = b'\n';
    bytes
}

impl NpyWriter {
    /// Makes the file for `rows` images of `columns` features, filled with NaN. Directories that
    /// are missing above it are made.
    ///
    /// # Errors
    ///
    /// [`NpyError`]; then no file is left behind, and one that had the name before is untouched.
    pub fn create(path: &Path, rows: u64, columns: usize) -> Result<Self, NpyError> {
        let columns = columns as u64;
        let bytes = file_bytes(rows, columns).ok_or(NpyError::Shape { rows, columns })?;
        let writer = Self { file: NewFile::create(path)?, rows, columns, bytes };
        writer.fill()?;
        Ok(writer)
    }

    /// Writes the header, and NaN for every value.
    fn fill(&self) -> Result<(), NpyError> {
        self.write_at(&header(self.rows, self.columns), 0)?;
        let nan = f32::NAN.to_le_bytes();
        let piece: Vec<u8> = nan.iter().copied().cycle().take(FILL_BYTES).collect();
        let mut at = HEADER_BYTES as u64;
        while at < self.bytes {
            let left = usize::try_from(self.bytes - at).unwrap_or(usize::MAX);
            let part = &piece[..left.min(piece.len())];
            self.write_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the rows of the images from `first` on, given as whole rows; image `i` has row
    /// `i mod rows`.
    ///
    /// # Errors
    ///
    /// [`NpyError::Full`] and [`NpyError::Write`], with the place. Rows may have been written.
    pub fn write_rows(&self, first: u64, features: &[f32]) -> Result<(), NpyError> {
        let columns = usize::try_from(self.columns).unwrap_or(usize::MAX);
        let mut image = first;
        let mut rest = features;
        while !rest.is_empty() {
            let row = image % self.rows;
            let fit = usize::try_from(self.rows - row).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(fit.saturating_mul(columns)));
            let at = HEADER_BYTES as u64 + row * self.columns * 4;
            self.write_at(bytemuck::cast_slice(now), at)?;
            image += (now.len() / columns) as u64;
            rest = later;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), NpyError> {
        self.file.write_all_at(bytes, at).map_err(|source| {
            let (path, needed) = (self.file.target().to_owned(), self.bytes);
            match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => NpyError::Full { path, needed, at, source },
                _ => NpyError::Write { path, needed, at, source },
            }
        })
    }

    /// Rows of the file.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Puts the file in its place, complete and on the disk; gives its path.
    ///
    /// # Errors
    ///
    /// [`NpyError`] when the disk refuses bytes that it had taken, or the file its name. Then no
    /// file is left behind.
    pub fn finish(self) -> Result<PathBuf, NpyError> {
        let path = self.file.target().to_owned();
        self.file.publish()?;
        Ok(path)
    }
}

/// A table of features in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NpyArray {
    /// Images.
    pub rows: usize,
    /// Features of one image.
    pub columns: usize,
    /// Shape: `[rows, columns]`, row-major.
    pub values: Vec<f32>,
}

impl NpyArray {
    /// The features of image `row`; `None` beyond the last.
    #[must_use]
    pub fn row(&self, row: usize) -> Option<&[f32]> {
        if row >= self.rows {
            return None;
        }
        self.values.get(row * self.columns..(row + 1) * self.columns)
    }
}

/// Why a feature file cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum NpyReadError {
    /// The file cannot be opened or read.
    Io(io::Error),
    /// The file does not begin as a NumPy file of version 1 to 3 does.
    NotNpy,
    /// The header is not one of a plain array.
    Header {
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// The values are of another type, order or number of dimensions than features are.
    Unsupported {
        /// The header, as it stands in the file.
        header: String,
    },
    /// The file is shorter or longer than its header says.
    Size {
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
}

impl fmt::Display for NpyReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(source) => write!(f, "cannot be read: {source}"),
            Self::NotNpy => f.write_str("not a NumPy file (its first bytes are not \\x93NUMPY)"),
            Self::Header { wrong } => write!(f, "the NumPy header {wrong}"),
            Self::Unsupported { header } => write!(
                f,
                "features are two dimensions of '<f4' in C order, the file has {}",
                header.trim_end()
            ),
            Self::Size { expected, found } => {
                write!(f, "the file has {found} bytes, its header asks for {expected}")
            }
        }
    }
}

impl std::error::Error for NpyReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for NpyReadError {
    fn from(source: io::Error) -> Self {
        Self::Io(source)
    }
}

/// Reads a feature file: two dimensions of little-endian f32 in C order.
///
/// # Errors
///
/// [`NpyReadError`]. The size of the file is compared with its header before anything is
/// allocated for the values.
pub fn read(path: &Path) -> Result<NpyArray, NpyReadError> {
    let mut file = File::open(path)?;
    let mut start = [0_u8; 10];
    read_or(&mut file, &mut start, NpyReadError::NotNpy)?;
    if &start[..6] != MAGIC || !(1..=3).contains(&start[6]) {
        return Err(NpyReadError::NotNpy);
    }
    // Version 1 has two bytes of header length, the later ones four.
    let mut length = [start[8], start[9], 0, 0];
    let short = || NpyReadError::Header { wrong: "ends early" };
    if start[6] > 1 {
        read_or(&mut file, &mut length[2..], short())?;
    }
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_HEADER_BYTES {
        return Err(NpyReadError::Header { wrong: "is longer than 4096 bytes" });
    }
    let mut text = vec![0_u8; length];
    read_or(&mut file, &mut text, short())?;
    let text =
        String::from_utf8(text).map_err(|_| NpyReadError::Header { wrong: "is not text" })?;
    let Some((rows, columns)) = shape_of(&text) else {
        return Err(NpyReadError::Unsupported { header: text });
    };
    let before = length as u64 + if start[6] > 1 { 12 } else { 10 };
    let found = file.metadata()?.len();
    let data = rows.checked_mul(columns).and_then(|values| values.checked_mul(4));
    let expected = data.and_then(|data| data.checked_add(before)).unwrap_or(u64::MAX);
    let sizes = (usize::try_from(rows), usize::try_from(columns));
    let (true, (Ok(rows), Ok(columns))) = (expected == found, sizes) else {
        return Err(NpyReadError::Size { expected, found });
    };
    let mut values = vec![0.0_f32; rows * columns];
    file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    Ok(NpyArray { rows, columns, values })
}

fn read_or(file: &mut File, bytes: &mut [u8], short: NpyReadError) -> Result<(), NpyReadError> {
    file.read_exact(bytes).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => short,
        _ => NpyReadError::Io(source),
    })
}

/// Rows and columns, where the header is one of features. The header is a Python dictionary; its
/// keys may come in any order.
fn shape_of(header: &str) -> Option<(u64, u64)> {
    let value = |key: &str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        let at = quoted.iter().find_map(|key| Some(header.find(key)? + key.len()))?;
        Some(header[at..].trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = value("descr")?;
    let plain = descr.starts_with("'<f4'") || descr.starts_with("\"<f4\"");
    if !plain || !value("fortran_order")?.starts_with("False") {
        return None;
    }
    let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
    let (rows, columns) = shape.split_once(',')?;
    let columns = columns.trim().trim_end_matches(',');
    Some((rows.trim().parse().ok()?, columns.trim().parse().ok()?))
}

#[cfg(test)]
mod tests;
