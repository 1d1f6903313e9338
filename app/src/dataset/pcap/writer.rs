//! Writing a capture: classic pcap, little-endian, microseconds, Ethernet.

use std::fmt;
use std::path::Path;

use super::{FILE_HEADER_BYTES, LINKTYPE_ETHERNET, MAGIC_MICROS, MAX_RECORD_BYTES};
use crate::file::{FileError, NewFile};

/// A capture being written. It appears under its name when it is finished, or not at all.
#[derive(Debug)]
pub struct CaptureWriter {
    file: NewFile,
    last_us: u64,
    frames: u64,
    bytes: u64,
}

/// Why a frame was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be written.
    File(FileError),
    /// The frame is longer than the snapshot length.
    Frame {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The time is before that of the frame before, or beyond the 32 bits of the format.
    Time {
        /// The time, in µs since 1970.
        micros: u64,
        /// That of the frame before.
        last: u64,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Frame { bytes } => {
                write!(f, "a frame of {bytes} bytes, allowed {MAX_RECORD_BYTES} in a capture")
            }
            Self::Time { micros, last } => write!(
                f,
                "time stamp {micros} µs after {last} µs; they must not go back, and end at 2^32 s"
            ),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::File(error) = self { Some(error) } else { None }
    }
}

impl From<FileError> for WriteError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl CaptureWriter {
    /// Begins the capture `path`, with a snapshot length that holds every frame.
    ///
    /// # Errors
    ///
    /// [`FileError`] when it cannot be written there.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let mut file = NewFile::create(path)?;
        let mut header = [0; FILE_HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC_MICROS.to_le_bytes());
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&MAX_RECORD_BYTES.to_le_bytes());
        header[20..].copy_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        file.append(&header)?;
        Ok(Self { file, last_us: 0, frames: 0, bytes: header.len() as u64 })
    }

    /// Appends a frame, captured `micros` µs after 1970.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when the frame is too long, time goes backwards, or the file cannot be
    /// written.
    pub fn write(&mut self, micros: u64, frame: &[u8]) -> Result<(), WriteError> {
        let length = u32::try_from(frame.len()).ok().filter(|&n| n <= MAX_RECORD_BYTES);
        let length = length.ok_or(WriteError::Frame { bytes: frame.len() })?;
        let time = WriteError::Time { micros, last: self.last_us };
        let Ok(seconds) = u32::try_from(micros / 1_000_000) else { return Err(time) };
        if micros < self.last_us {
            return Err(time);
        }
        let fraction = u32::try_from(micros % 1_000_000).unwrap_or(0);
        for word in [seconds, fraction, length, length] {
            self.file.append(&word.to_le_bytes())?;
        }
        self.file.append(frame)?;
        self.last_us = micros;
        self.frames += 1;
        self.bytes += 16 + u64::from(length);
        Ok(())
    }

    /// Frames written so far.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes of the file so far.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes out what is buffered: after it only the rename is left to fail.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the bytes cannot be written.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.file.sync()
    }

    /// Gives the capture its name, in place of a file of that name.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the bytes cannot be written or the file cannot be renamed.
    pub fn finish(self) -> Result<(), FileError> {
        self.file.publish()
    }
}
