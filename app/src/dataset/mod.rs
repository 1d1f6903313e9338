//! Data sets: images in, captures out, captures back in.

mod cifar10;
mod decode;
mod error;
mod file;
mod image;
mod images;
mod labels;
pub mod pcap;
mod resize;
mod synthetic;
#[cfg(test)]
mod testkit;

pub use cifar10::CifarError;
pub use decode::DecodeError;
pub use error::{DatasetError, ErrorClass};
pub use file::{FileError, FileProblem};
pub use image::RgbImage;
pub use images::FolderError;
pub use labels::{Labels, LabelsError, LineFault, MAX_CLASS, read_classes, read_labels};
pub use resize::Resizer;
pub use synthetic::SyntheticSize;
