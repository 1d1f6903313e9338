//! Data sets: images in, captures out, captures back in.
//!
//! | job | module |
//! |---|---|
//! | where images come from | `cifar10`, `images` (with `decode`), `synthetic` |
//! | images to a capture with labels | [`prepare`](fn@prepare), with `resize` |
//! | the capture format | [`pcap`] |
//! | a capture to frames for a replay | [`load_capture`], with `numbering` and `frames` |
//! | labels and class names | [`read_labels`], [`read_classes`] |
//!
//! Nothing here knows of threads, queues or a command line. Every error is a [`DatasetError`], and
//! [`DatasetError::class`] tells whose fault it is.

mod capture;
#[cfg(feature = "cli")]
mod cifar10;
#[cfg(feature = "cli")]
mod decode;
mod error;
mod frames;
#[cfg(feature = "cli")]
mod image;
#[cfg(feature = "cli")]
mod images;
mod labels;
mod numbering;
pub mod pcap;
#[cfg(feature = "cli")]
mod prepare;
#[cfg(feature = "cli")]
mod resize;
#[cfg(feature = "cli")]
mod synthetic;
#[cfg(all(test, feature = "cli"))]
pub(crate) mod testkit;

pub use capture::{
    Capture, DEFAULT_MAX_BYTES, LabelsFrom, LoadError, LoadOptions, LoadReport, Skipped,
    load_capture,
};
#[cfg(feature = "cli")]
pub use cifar10::CifarError;
#[cfg(feature = "cli")]
pub use decode::DecodeError;
pub use error::{DatasetError, ErrorClass};
#[cfg(feature = "cli")]
pub use image::RgbImage;
#[cfg(feature = "cli")]
pub use images::FolderError;
pub use labels::{Labels, LabelsError, LineFault, MAX_CLASS, read_classes, read_labels};
pub use numbering::{Misfit, MisfitReason};
#[cfg(feature = "cli")]
pub use prepare::{
    DEFAULT_HEADER, DEFAULT_IMAGES, GeometryFlags, PrepareError, PrepareOptions, PrepareReport,
    Source, prepare,
};
#[cfg(feature = "cli")]
pub use resize::Resizer;
#[cfg(feature = "cli")]
pub use synthetic::SyntheticSize;
