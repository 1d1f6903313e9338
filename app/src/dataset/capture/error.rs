//! Why a capture was not loaded.

use std::fmt;

use super::Skipped;
use crate::dataset::numbering::Misfit;

/// Why a capture was not loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is larger than allowed.
    TooLarge {
        /// Its length in bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The frames need more memory than allowed, or than there is.
    Memory {
        /// Bytes that were needed when it ended.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A capture without a frame.
    NoRecords,
    /// A capture whose frames are all something else.
    NoData(Skipped),
    /// Frames were cut when they were captured.
    Sliced {
        /// Bytes that were kept.
        captured: usize,
        /// Bytes that the frame had.
        original: u32,
        /// The record, from 0.
        record: u64,
    },
    /// Most data frames have another length than the geometry's.
    Length {
        /// Length of a frame of the geometry in bytes.
        expected: usize,
        /// The length that most of the others have.
        found: u32,
        /// How many frames have another length.
        others: u64,
        /// How many data frames there are.
        frames: u64,
    },
    /// A frame does not fit into a transmit buffer.
    Buffer {
        /// The frame, from 0.
        frame: usize,
        /// Its length in bytes.
        bytes: usize,
        /// Bytes of a buffer.
        buffer: usize,
    },
    /// The numbers are not of this geometry.
    Numbering(Misfit),
    /// Fewer labels than images, and that was not allowed.
    FewLabels {
        /// Labels.
        labels: u64,
        /// Images.
        images: u64,
    },
}

impl LoadError {
    /// Whether the file is fine and of another geometry.
    pub(crate) const fn is_config(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Buffer { .. } | Self::Numbering(_))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => {
                write!(f, "{bytes} bytes, allowed {limit}: a replay is held in memory")
            }
            Self::Memory { bytes, limit } => {
                write!(f, "its frames need more than {bytes} bytes of memory, allowed {limit}")
            }
            Self::NoRecords => f.write_str("a capture without a frame"),
            Self::NoData(skipped) => write!(
                f,
                "none of its {} frames is of the configured flow: {skipped}",
                skipped.total()
            ),
            Self::Sliced { captured, original, record } => write!(
                f,
                "the capture was sliced at {captured} of {original} bytes (record {record}); \
                 cannot replay"
            ),
            Self::Length { expected, found, others, frames } => write!(
                f,
                "{others} of {frames} data frames are not {expected} bytes as the geometry has \
                 them, most of these {found}"
            ),
            Self::Buffer { frame, bytes, buffer } => {
                write!(f, "frame {frame} is {bytes} bytes, a transmit buffer has {buffer}")
            }
            Self::Numbering(misfit) => misfit.fmt(f),
            Self::FewLabels { labels, images } => {
                write!(f, "{labels} labels for {images} images; images without a label are refused")
            }
        }
    }
}

impl std::error::Error for LoadError {}
