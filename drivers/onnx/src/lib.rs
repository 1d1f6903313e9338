//! ONNX files and CPU inference.
//!
//! Four things that need no library: [`mod@write`] makes ONNX files, [`header`] reads what a file
//! takes and gives without loading its weights, [`check`] holds that against the configuration,
//! [`graph`] reads operators and constants.
//! And one that does: `cpu` (a feature, on by default) runs a model on the CPU, and [`stage`] puts
//! it behind [`tensorwire_core::port::Infer`], the trait that a GPU engine implements too. The
//! cargo feature `onnxruntime` adds a second engine, through the library of that name.

pub mod check;
#[cfg(feature = "cpu")]
pub mod cpu;
pub mod expose;
pub mod graph;
pub mod header;
#[cfg(feature = "onnxruntime")]
pub mod onnxruntime;
pub mod open;
#[cfg(feature = "cpu")]
pub mod probe;
pub mod stage;
pub mod types;
mod wire;
pub mod write;

pub use check::{IoMismatch, IoPlan, Mismatch, ModelExpect, Profile, check_io};
#[cfg(feature = "cpu")]
pub use cpu::{OnnxInfer, RtenEngine};
pub use graph::{Constant, GraphNode, ModelGraph};
pub use header::{HeaderError, HeaderErrorKind, ModelIo, read_header, read_header_bytes};
#[cfg(feature = "onnxruntime")]
pub use onnxruntime::{OrtEngine, OrtInfer};
pub use open::OpenError;
#[cfg(feature = "cpu")]
pub use probe::Probe;
pub use stage::{BatchBytes, CpuStage, Engine, RunError};
pub use types::{Dim, ElemType, TensorInfo};
