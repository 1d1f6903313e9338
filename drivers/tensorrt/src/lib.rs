//! TensorRT engines: from an ONNX model to a plan that is kept, and from batches to features.
//!
//! [`runtime`] is what we need of TensorRT, as traits; [`shim`] does it with the library of this
//! machine, and the tests do it with a stand-in that records every call. On top of that stand
//! [`cache`], which finds, checks, builds and keeps an engine, and [`infer`], the core's inference
//! stage. What the stage needs of a GPU besides (streams, events, graphs, memory) is the trait of
//! [`gpu`], which [`cuda`] does over `tensorwire-cuda`.

pub mod cache;
pub mod cuda;
pub mod entry;
#[cfg(test)]
mod fake;
pub mod gpu;
pub mod infer;
pub mod key;
pub mod measure;
mod planted;
pub mod runtime;
pub mod shim;

pub use tensorwire_tensorrt_sys::{BUILT, MISSING};

pub use cache::{EngineError, EngineRequest, Listener, Ready, Rebuild, Source, prepare};
pub use cuda::{CudaGpu, GpuBatches};
pub use gpu::{BatchMemory, Gpu, RawStream};
pub use infer::{InferOptions, StartError, TrtInfer};
pub use key::{EngineKey, GpuIdentity};
pub use runtime::{
    BuildRequest, BuildStep, Built, Context, Engine, EngineTensor, Flavor, Precision, Ranges,
    Runtime, RuntimeError, RuntimeFault, Version, Versions,
};
pub use shim::{Libraries, LogSink, ShimContext, ShimEngine, ShimRuntime};
