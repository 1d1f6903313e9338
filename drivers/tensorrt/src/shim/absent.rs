//! What stands in for TensorRT in a program that was built without its headers: nothing, with a
//! reason.
#![allow(unsafe_code)] // an `unsafe fn` of a trait, of a value that cannot exist

use std::ffi::CStr;

use tensorwire_core::port::StageError;
use tensorwire_tensorrt_sys::MISSING;

use super::{Libraries, LogSink};
use crate::gpu::RawStream;
use crate::runtime::{
    BuildRequest, BuildStep, Built, Context, Engine, EngineTensor, Runtime, RuntimeError,
    RuntimeFault, Version, Versions,
};

/// TensorRT, which is not here: no value of this type exists.
#[derive(Debug)]
pub enum ShimRuntime {}

/// An engine, of which none exists.
#[derive(Debug)]
pub enum ShimEngine {}

/// A context, of which none exists.
#[derive(Debug)]
pub enum ShimContext {}

impl ShimRuntime {
    /// Says why there is no TensorRT.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(_: &Libraries, _: LogSink) -> Result<Self, RuntimeError> {
        let text = format!("this program has no TensorRT: {MISSING}");
        Err(RuntimeError { fault: RuntimeFault::Unavailable, text })
    }
}

impl Runtime for ShimRuntime {
    type Engine = ShimEngine;

    fn versions(&self) -> Versions {
        match *self {}
    }

    fn build(
        &mut self,
        _: &BuildRequest<'_>,
        _: &mut dyn FnMut(BuildStep<'_>) -> bool,
    ) -> Result<Built, RuntimeError> {
        match *self {}
    }

    fn load(&mut self, _: &[u8]) -> Result<ShimEngine, RuntimeError> {
        match *self {}
    }

    fn parser_version(&mut self) -> Result<Version, RuntimeError> {
        match *self {}
    }
}

impl Engine for ShimEngine {
    type Context = ShimContext;

    fn tensors(&self) -> Result<Vec<EngineTensor>, RuntimeError> {
        match *self {}
    }

    fn context(&self) -> Result<ShimContext, RuntimeError> {
        match *self {}
    }

    fn device_memory(&self) -> u64 {
        match *self {}
    }

    fn inspect(&self) -> Result<String, RuntimeError> {
        match *self {}
    }
}

impl Context for ShimContext {
    fn set_shape(&mut self, _: &CStr, _: &[i64]) -> Result<(), StageError> {
        match *self {}
    }

    fn set_address(&mut self, _: &CStr, _: u64) -> Result<(), StageError> {
        match *self {}
    }

    unsafe fn enqueue(&mut self, _: RawStream) -> Result<(), StageError> {
        match *self {}
    }

    fn debug_sync(&mut self, _: bool) {
        match *self {}
    }

    unsafe fn profile(
        &mut self,
        _: RawStream,
        _: &mut dyn FnMut(&str, f32),
    ) -> Result<(), StageError> {
        match *self {}
    }

    fn last_error(&self) -> &str {
        match *self {}
    }
}
