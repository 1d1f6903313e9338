//! NVIDIA GPUs for `tensorwire`: memory that a GPU reaches, and the reorder stage on it.
//!
//! | module | what it does |
//! |---|---|
//! | [`error`] | a CUDA error with the call that gave it and what to do |
//! | [`device`] | the driver's library, which is looked for at run time; GPUs; contexts |
//! | [`memory`] | regions of a kind: pinned, device, managed |
//! | [`stream`] | streams and events |
//! | [`load`], [`cache`], [`nvrtc`] | where compiled kernels come from, and how they fall back |
//! | [`kernels`] | the module of kernels, and their launches |
//! | [`abi`] | what a kernel takes |
//! | [`reorder`], [`queue`] | the stage of the pipeline, over a stream or over a stand-in |
//! | `bulk`, `staging` | packets in pinned memory that are copied to the GPU ahead of the reorder |
//! | [`mod@bench`] | how long a reorder takes here, beside copies of the same bytes |
//! | [`gather`] | a receive queue whose packets only the GPU can read |
//!
//! One program runs with and without a GPU: nothing is linked, and [`Gpu::open`] says in one line
//! why there is none. Calls are made through `cudarc`'s bindings, so that an error keeps the name
//! of its call. Whatever needs a context enters it for the length of a call: the caller's thread
//! has its own context, or none, when the call returns.
//!
//! In the steady state (`place`, `start`, `poll_done`) nothing is allocated and nothing waits for
//! the device.

pub mod abi;
pub mod bench;
mod bulk;
pub mod cache;
pub mod device;
pub mod error;
pub mod gather;
pub mod kernels;
pub mod load;
pub mod memory;
pub mod nvrtc;
pub mod queue;
pub mod reorder;
mod staging;
pub mod stream;

pub use device::{Choice, Gpu, Unavailable};
pub use error::CudaError;
