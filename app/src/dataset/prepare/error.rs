//! Why a capture was not prepared.

use std::fmt;
use std::path::PathBuf;

use tensorwire_core::geometry::{ElementType, Overlap};
use tensorwire_core::header::BuildError;

use crate::dataset::pcap::WriteError;

/// Why a capture was not prepared, beyond what sources and files have to say.
#[derive(Debug)]
#[non_exhaustive]
pub enum PrepareError {
    /// No image was asked for.
    ZeroImages,
    /// More images than the source has.
    TooManyImages {
        /// Images that were asked for.
        asked: u64,
        /// Images that there are.
        available: u64,
    },
    /// The two names of the payload offset differ.
    HeaderSize {
        /// `--header-size`.
        header_size: u32,
        /// `--payload-byte-offset`.
        offset: u32,
    },
    /// Images are R, G and B.
    Channels {
        /// Channels of the geometry.
        channels: u32,
    },
    /// Pixels are written as int8.
    Input(ElementType),
    /// The sequence field lies where the receiver looks for something else.
    Overlap(Overlap),
    /// A frame cannot be built.
    Build(BuildError),
    /// A frame cannot be written.
    Write(PathBuf, WriteError),
    /// The time stamps would go beyond the 32 bits of seconds of a capture.
    Duration {
        /// Frames.
        frames: u64,
        /// µs from one to the next.
        interval_us: u32,
    },
}

impl PrepareError {
    /// Whether the geometry, not the command line or a file, is at fault.
    pub(crate) const fn is_config(&self) -> bool {
        matches!(self, Self::Channels { .. } | Self::Input(_) | Self::Overlap(_) | Self::Build(_))
    }

    /// Whether a file is at fault.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self, Self::Write(..))
    }
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroImages => f.write_str("0 images asked for, at least 1 is needed"),
            Self::TooManyImages { asked, available } => {
                write!(f, "{asked} images asked for, the source has {available}")
            }
            Self::HeaderSize { header_size, offset } => write!(
                f,
                "--header-size {header_size} and --payload-byte-offset {offset} are two names of \
                 one number; give one of them, or both the same"
            ),
            Self::Channels { channels } => {
                write!(f, "channels: {channels}, images have 3 (R, G, B)")
            }
            Self::Input(input) => write!(f, "input type {input}, images are written as int8"),
            Self::Overlap(overlap) => overlap.fmt(f),
            Self::Build(error) => error.fmt(f),
            Self::Write(_, WriteError::File(error)) => error.fmt(f),
            Self::Write(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Duration { frames, interval_us } => write!(
                f,
                "{frames} frames {interval_us} µs apart last longer than the 2^32 s of a capture"
            ),
        }
    }
}

impl std::error::Error for PrepareError {}
