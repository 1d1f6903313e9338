//! Stands in for TensorRT and the GPU: records every call, and fails where a test says so.

pub(crate) mod gpu;
pub(crate) mod models;
pub(crate) mod runtime;
