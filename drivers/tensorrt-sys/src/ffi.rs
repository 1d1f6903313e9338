//! The declarations of `shim/tensorwire_trt.h`; what they mean is written there.
#![allow(unsafe_code)] // declarations of C functions
#![allow(non_camel_case_types, reason = "names of the header")]
#![allow(missing_docs, reason = "the header says what each one is")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

pub const TWT_OK: i32 = 0;
pub const TWT_NO_LIBRARY: i32 = 1;
pub const TWT_NO_SYMBOL: i32 = 2;
pub const TWT_VERSION: i32 = 3;
pub const TWT_NO_BUILDER: i32 = 4;
pub const TWT_PARSE: i32 = 5;
pub const TWT_CONFIG: i32 = 6;
pub const TWT_BUILD: i32 = 7;
pub const TWT_CANCELLED: i32 = 8;
pub const TWT_LOAD: i32 = 9;
pub const TWT_CONTEXT: i32 = 10;
pub const TWT_SHAPE: i32 = 11;
pub const TWT_ADDRESS: i32 = 12;
pub const TWT_ENQUEUE: i32 = 13;
pub const TWT_INSPECT: i32 = 14;
pub const TWT_UNSUPPORTED: i32 = 15;
pub const TWT_ARGUMENT: i32 = 16;
pub const TWT_MEMORY: i32 = 17;
pub const TWT_EXCEPTION: i32 = 18;

pub const TWT_FP32: i32 = 0;
pub const TWT_FP16: i32 = 1;
pub const TWT_INT8: i32 = 2;

pub const TWT_TABLE_NONE: i32 = 0;
pub const TWT_TABLE_ENTROPY: i32 = 1;
pub const TWT_TABLE_MIN_MAX: i32 = 2;

pub const TWT_MAX_DIMS: usize = 8;
pub const TWT_ERROR_BYTES: usize = 1024;

macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque!(twt_library, twt_engine, twt_context);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct twt_error {
    pub code: i32,
    pub text: [c_char; TWT_ERROR_BYTES],
}

#[repr(C)]
#[derive(Debug)]
pub struct twt_bytes {
    pub data: *mut c_void,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct twt_versions {
    pub header: i32,
    pub library: i32,
    pub is_rtx: i32,
    pub has_progress: i32,
    pub has_timing_cache: i32,
    pub has_targets: i32,
    pub has_implicit_int8: i32,
}

pub type twt_log_fn = Option<unsafe extern "C" fn(*mut c_void, i32, *const c_char)>;
pub type twt_progress_fn =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, i32, i32) -> i32>;
pub type twt_layer_fn = Option<unsafe extern "C" fn(*mut c_void, *const c_char, f32)>;

#[repr(C)]
#[derive(Debug)]
pub struct twt_build {
    pub model: *const c_void,
    pub model_size: usize,
    pub workspace_bytes: u64,
    pub input: *const c_char,
    pub min: [i64; TWT_MAX_DIMS],
    pub opt: [i64; TWT_MAX_DIMS],
    pub max: [i64; TWT_MAX_DIMS],
    pub dims: i32,
    pub precision: i32,
    pub detailed: i32,
    pub optimization_level: i32,
    pub targets: *const i32,
    pub nb_targets: usize,
    pub timing_cache: *const c_void,
    pub timing_cache_size: usize,
    pub progress: twt_progress_fn,
    pub progress_user: *mut c_void,
    pub table: *const c_void,
    pub table_size: usize,
    pub table_kind: i32,
    pub dummy_range: f32,
}

#[repr(C)]
#[derive(Debug)]
pub struct twt_tensor {
    pub name: *const c_char,
    pub shape: [i64; TWT_MAX_DIMS],
    pub min: [i64; TWT_MAX_DIMS],
    pub opt: [i64; TWT_MAX_DIMS],
    pub max: [i64; TWT_MAX_DIMS],
    pub dims: i32,
    pub is_input: i32,
    pub r#type: i32,
    pub has_profile: i32,
}

// The same numbers stand in shim/engine.cpp, where the compiler of the header checks them.
const _: () = assert!(size_of::<twt_build>() == 312 && offset_of!(twt_build, targets) == 240);
const _: () = assert!(size_of::<twt_tensor>() == 280 && offset_of!(twt_tensor, dims) == 264);
const _: () = assert!(size_of::<twt_error>() == 1028 && size_of::<twt_versions>() == 28);

unsafe extern "C" {
    pub fn twt_header_version(out: *mut twt_versions);
    pub fn twt_default_library() -> *const c_char;
    pub fn twt_default_parser() -> *const c_char;
    pub fn twt_open(
        library: *const c_char,
        parser: *const c_char,
        log: twt_log_fn,
        user: *mut c_void,
        out: *mut *mut twt_library,
        versions: *mut twt_versions,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_close(library: *mut twt_library);
    pub fn twt_build_plan(
        library: *mut twt_library,
        build: *const twt_build,
        plan: *mut twt_bytes,
        timing_cache: *mut twt_bytes,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_bytes_free(bytes: *mut twt_bytes);
    pub fn twt_parser_version(
        library: *mut twt_library,
        version: *mut i32,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_load(
        library: *mut twt_library,
        plan: *const c_void,
        size: usize,
        out: *mut *mut twt_engine,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_engine_free(engine: *mut twt_engine);
    pub fn twt_engine_tensors(engine: *const twt_engine) -> i32;
    pub fn twt_engine_tensor(
        engine: *const twt_engine,
        index: i32,
        out: *mut twt_tensor,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_engine_device_memory(engine: *const twt_engine) -> i64;
    pub fn twt_engine_inspect(
        engine: *const twt_engine,
        json: *mut twt_bytes,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_context_new(
        engine: *mut twt_engine,
        out: *mut *mut twt_context,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_context_free(context: *mut twt_context);
    pub fn twt_context_shape(
        context: *mut twt_context,
        input: *const c_char,
        shape: *const i64,
        dims: i32,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_context_address(
        context: *mut twt_context,
        tensor: *const c_char,
        address: u64,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_context_enqueue(
        context: *mut twt_context,
        stream: *mut c_void,
        error: *mut twt_error,
    ) -> i32;
    pub fn twt_context_debug_sync(context: *mut twt_context, on: i32);
    pub fn twt_context_profiler(context: *mut twt_context, layer: twt_layer_fn, user: *mut c_void);
}

const _: () = assert!(size_of::<c_int>() == size_of::<i32>());
