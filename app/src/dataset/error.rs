//! What can go wrong with a data set, and whose fault it is.

use std::fmt;
use std::path::{Path, PathBuf};

use tensorwire_core::geometry::Violations;

use super::capture::LoadError;
#[cfg(feature = "cli")]
use super::cifar10::CifarError;
#[cfg(feature = "cli")]
use super::images::FolderError;
use super::labels::LabelsError;
use super::pcap::PcapError;
#[cfg(feature = "cli")]
use super::prepare::PrepareError;
use crate::file::FileError;

/// Whose fault an error is; it decides the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// What was asked for cannot be asked for (exit code 2).
    Usage,
    /// The geometry is invalid, or the file is of another one (exit code 3).
    Config,
    /// A file cannot be read, parsed or written (exit code 7).
    File,
}

/// Any error of this module.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatasetError {
    /// A file cannot be opened, read or written.
    File(FileError),
    /// CIFAR-10 data cannot be used.
    #[cfg(feature = "cli")]
    Cifar(CifarError),
    /// A folder of images, or an image in it, cannot be used.
    #[cfg(feature = "cli")]
    Folder(FolderError),
    /// Labels or class names cannot be used.
    Labels(LabelsError),
    /// A file is no capture that can be used.
    Pcap {
        /// The file.
        path: PathBuf,
        /// Why.
        error: PcapError,
    },
    /// A capture was not loaded.
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        error: LoadError,
    },
    /// A capture was not prepared.
    #[cfg(feature = "cli")]
    Prepare(PrepareError),
    /// The geometry does not hold: every rule that is broken.
    Geometry(Box<Violations>),
    /// An image that the source does not have.
    OutOfRange {
        /// The image, from 0.
        index: u64,
        /// How many images there are.
        images: u64,
    },
}

impl DatasetError {
    /// `error` about the capture `path`.
    pub(crate) fn pcap(path: &Path, error: PcapError) -> Self {
        Self::Pcap { path: path.to_path_buf(), error }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            #[cfg(feature = "cli")]
            Self::Cifar(_) | Self::Folder(_) => ErrorClass::File,
            Self::File(_) | Self::Labels(_) | Self::Pcap { .. } => ErrorClass::File,
            Self::Load { error, .. } if error.is_config() => ErrorClass::Config,
            Self::Load { .. } => ErrorClass::File,
            #[cfg(feature = "cli")]
            Self::Prepare(error) if error.is_file() => ErrorClass::File,
            #[cfg(feature = "cli")]
            Self::Prepare(error) if !error.is_config() => ErrorClass::Usage,
            #[cfg(feature = "cli")]
            Self::Prepare(_) => ErrorClass::Config,
            Self::Geometry(_) => ErrorClass::Config,
            Self::OutOfRange { .. } => ErrorClass::Usage,
        }
    }
}

impl fmt::Display for DatasetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            #[cfg(feature = "cli")]
            Self::Cifar(error) => error.fmt(f),
            #[cfg(feature = "cli")]
            Self::Folder(error) => error.fmt(f),
            Self::Labels(error) => error.fmt(f),
            Self::Pcap { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Load { path, error } => write!(f, "{}: {error}", path.display()),
            #[cfg(feature = "cli")]
            Self::Prepare(error) => error.fmt(f),
            Self::Geometry(violations) => violations.fmt(f),
            Self::OutOfRange { index, images } => {
                write!(f, "there is no image {index} of {images}")
            }
        }
    }
}

impl std::error::Error for DatasetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The wrapped errors print themselves above: their sources come next.
        match self {
            Self::File(error) => error.source(),
            #[cfg(feature = "cli")]
            Self::Cifar(error) => error.source(),
            #[cfg(feature = "cli")]
            Self::Folder(error) => error.source(),
            Self::Labels(error) => error.source(),
            Self::Pcap { error, .. } => error.source(),
            Self::Load { error, .. } => error.source(),
            #[cfg(feature = "cli")]
            Self::Prepare(error) => error.source(),
            Self::Geometry(_) | Self::OutOfRange { .. } => None,
        }
    }
}

macro_rules! from {
    ($($error:ident => $variant:ident),* $(,)?) => {
        $(
            impl From<$error> for DatasetError {
                fn from(error: $error) -> Self {
                    Self::$variant(error)
                }
            }
        )*
    };
}

from! { FileError => File, LabelsError => Labels }
#[cfg(feature = "cli")]
from! { CifarError => Cifar, FolderError => Folder, PrepareError => Prepare }
