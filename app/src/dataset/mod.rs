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
mod cifar10;
mod decode;
mod error;
mod frames;
mod image;
mod images;
mod labels;
mod numbering;
pub mod pcap;
mod prepare;
mod resize;
mod synthetic;
#[cfg(test)]
pub(crate) mod testkit;

pub use capture::{
    Capture, DEFAULT_MAX_BYTES, LabelsFrom, LoadError, LoadOptions, LoadReport, Skipped,
    load_capture,
};
pub use cifar10::CifarError;
pub use decode::DecodeError;
pub use error::{DatasetError, ErrorClass};
pub use image::RgbImage;
pub use images::FolderError;
pub use labels::{Labels, LabelsError, LineFault, MAX_CLASS, read_classes, read_labels};
pub use numbering::{Misfit, MisfitReason};
pub use prepare::{
    DEFAULT_HEADER, DEFAULT_IMAGES, GeometryFlags, PrepareError, PrepareOptions, PrepareReport,
    Source, prepare,
};
pub use resize::Resizer;
pub use synthetic::SyntheticSize;
