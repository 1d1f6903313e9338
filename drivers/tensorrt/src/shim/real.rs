//! The shim's functions as a [`Runtime`].
#![allow(unsafe_code)] // calls of C functions; each block says why it may be made

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use tensorwire_core::port::StageError;
use tensorwire_onnx::{ElemType, Profile};
use tensorwire_tensorrt_sys::ffi;

use super::callbacks::{self, Layers, Watcher};
use super::{Libraries, LogSink};
use crate::gpu::RawStream;
use crate::runtime::{
    BuildRequest, BuildStep, Built, Context, Engine, EngineTensor, Flavor, Precision, Ranges,
    Runtime, RuntimeError, RuntimeFault, TableKind, Version, Versions, table_kind,
};

/// Room for a failure; made once where failures must not allocate.
struct Fault(Box<ffi::twt_error>);

impl Fault {
    fn new() -> Self {
        Self(Box::new(ffi::twt_error { code: ffi::TWT_OK, text: [0; ffi::TWT_ERROR_BYTES] }))
    }

    fn text(&self) -> &str {
        // SAFETY: the shim always ends the text with 0, and it was all zeros at first.
        let text = unsafe { CStr::from_ptr(self.0.text.as_ptr()) };
        text.to_str().unwrap_or("the library gave a text that is not UTF-8")
    }

    fn check(&self, code: i32) -> Result<(), RuntimeError> {
        let fault = match code {
            ffi::TWT_OK => return Ok(()),
            ffi::TWT_NO_LIBRARY | ffi::TWT_NO_SYMBOL => RuntimeFault::Unavailable,
            ffi::TWT_VERSION => RuntimeFault::Version,
            ffi::TWT_NO_BUILDER => RuntimeFault::NoBuilder,
            ffi::TWT_PARSE => RuntimeFault::Parse,
            ffi::TWT_CONFIG | ffi::TWT_UNSUPPORTED => RuntimeFault::Config,
            ffi::TWT_BUILD => RuntimeFault::Build,
            ffi::TWT_CANCELLED => RuntimeFault::Cancelled,
            ffi::TWT_LOAD => RuntimeFault::Load,
            other => RuntimeFault::Other(other),
        };
        Err(RuntimeError { fault, text: self.text().to_owned() })
    }
}

/// Bytes of the shim.
struct Bytes(ffi::twt_bytes);

impl Bytes {
    const fn none() -> Self {
        Self(ffi::twt_bytes { data: ptr::null_mut(), size: 0 })
    }

    fn take(&self) -> Option<Vec<u8>> {
        let data = ptr::NonNull::new(self.0.data.cast::<u8>())?;
        // SAFETY: the shim gave that many bytes, which are ours until `drop`.
        Some(unsafe { std::slice::from_raw_parts(data.as_ptr(), self.0.size) }.to_vec())
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: they come from the shim, or are null, which it ignores.
        unsafe { ffi::twt_bytes_free(&raw mut self.0) }
    }
}

/// The library, and what its messages go to.
struct Library {
    library: *mut ffi::twt_library,
    log: *mut LogSink,
}

// SAFETY: builders and runtimes are made anew at each call; what the handle itself has is the log,
// which the shim locks, and the parser's address, which only `build` writes, through `&mut`.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: engines and contexts keep an `Arc` of this, so none is left.
        unsafe { ffi::twt_close(self.library) };
        // SAFETY: made by `Box::into_raw` in `open`; the library, which had it, is closed.
        drop(unsafe { Box::from_raw(self.log) });
    }
}

/// TensorRT of this machine.
pub struct ShimRuntime {
    library: Arc<Library>,
    versions: Versions,
}

impl fmt::Debug for ShimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShimRuntime").field("versions", &self.versions).finish_non_exhaustive()
    }
}

impl ShimRuntime {
    /// Loads TensorRT, if it is the one that this program was built for.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`]: it is not here, is another library, or has another version.
    pub fn open(libraries: &Libraries, log: LogSink) -> Result<Self, RuntimeError> {
        let pointer = |name: &Option<CString>| name.as_ref().map_or(ptr::null(), |n| n.as_ptr());
        let log = Box::into_raw(Box::new(log));
        let mut library = ptr::null_mut();
        let mut versions = ffi::twt_versions::default();
        let mut fault = Fault::new();
        // SAFETY: all pointers are of locals that outlive the call, or null where that is allowed;
        // the log lives until the library is closed.
        let code = unsafe {
            ffi::twt_open(
                pointer(&libraries.tensorrt),
                pointer(&libraries.parser),
                Some(callbacks::log),
                log.cast(),
                &raw mut library,
                &raw mut versions,
                &raw mut *fault.0,
            )
        };
        // From here on it is closed (null is ignored) and the log freed, whatever comes.
        let library = Arc::new(Library { library, log });
        fault.check(code)?;
        let flavor = if versions.is_rtx == 0 { Flavor::TensorRt } else { Flavor::Rtx };
        let version = |n: i32| Version::from_number(u32::try_from(n).unwrap_or(0), flavor);
        let versions = Versions {
            flavor,
            header: version(versions.header),
            library: version(versions.library),
            reports_progress: versions.has_progress != 0,
            has_timing_cache: versions.has_timing_cache != 0,
            has_targets: versions.has_targets != 0,
            has_implicit_int8: versions.has_implicit_int8 != 0,
        };
        Ok(Self { library, versions })
    }
}

fn text_for_c(text: &str) -> Result<CString, RuntimeError> {
    CString::new(text).map_err(|_| RuntimeError {
        fault: RuntimeFault::Config,
        text: format!("a name with a zero byte: {text:?}"),
    })
}

/// The shape of a batch of `images` images, and its number of dimensions.
fn batch_shape(images: u32, image: [usize; 3]) -> [i64; ffi::TWT_MAX_DIMS] {
    let mut shape = [0; ffi::TWT_MAX_DIMS];
    shape[0] = i64::from(images);
    for (to, from) in shape[1..].iter_mut().zip(image) {
        *to = i64::try_from(from).unwrap_or(i64::MAX);
    }
    shape
}

/// The range that every value is given for timings.
const DUMMY_RANGE: f32 = 4.0;

/// Table, kind of table and range, as the shim takes them.
fn ranges<'a>(
    ranges: Ranges<'a>,
    versions: &Versions,
) -> Result<(&'a [u8], i32, f32), RuntimeError> {
    Ok(match ranges {
        Ranges::Model => (&[], ffi::TWT_TABLE_NONE, 0.0),
        Ranges::Dummy => (&[], ffi::TWT_TABLE_NONE, DUMMY_RANGE),
        Ranges::Table(table) => match table_kind(table, versions)? {
            TableKind::Entropy => (table, ffi::TWT_TABLE_ENTROPY, 0.0),
            TableKind::MinMax => (table, ffi::TWT_TABLE_MIN_MAX, 0.0),
        },
    })
}

impl Runtime for ShimRuntime {
    type Engine = ShimEngine;

    fn versions(&self) -> Versions {
        self.versions
    }

    fn build(
        &mut self,
        request: &BuildRequest<'_>,
        progress: &mut dyn FnMut(BuildStep<'_>) -> bool,
    ) -> Result<Built, RuntimeError> {
        let input = text_for_c(request.input)?;
        let targets: Vec<i32> =
            request.targets.iter().map(|&t| i32::try_from(t).unwrap_or(i32::MAX)).collect();
        let shape =
            |of: fn(Profile) -> u32| batch_shape(request.profile.map_or(0, of), request.image);
        let mut watcher = Watcher { progress, panic: None };
        let timings = request.timing_cache.unwrap_or_default();
        let (table, table_kind, dummy_range) = ranges(request.ranges, &self.versions)?;
        let build = ffi::twt_build {
            model: request.model.as_ptr().cast(),
            model_size: request.model.len(),
            workspace_bytes: request.workspace_bytes.unwrap_or(0),
            input: if request.profile.is_some() { input.as_ptr() } else { ptr::null() },
            min: shape(|profile| profile.min),
            opt: shape(|profile| profile.opt),
            max: shape(|profile| profile.max),
            dims: 4,
            precision: match request.precision {
                Precision::Fp32 => ffi::TWT_FP32,
                Precision::Fp16 => ffi::TWT_FP16,
                Precision::Int8 => ffi::TWT_INT8,
            },
            detailed: i32::from(request.detailed),
            optimization_level: -1,
            targets: targets.as_ptr(),
            nb_targets: targets.len(),
            timing_cache: if timings.is_empty() { ptr::null() } else { timings.as_ptr().cast() },
            timing_cache_size: timings.len(),
            progress: Some(callbacks::progress),
            progress_user: (&raw mut watcher).cast(),
            table: table.as_ptr().cast(),
            table_size: table.len(),
            table_kind,
            dummy_range,
        };
        let (mut plan, mut timing_cache) = (Bytes::none(), Bytes::none());
        let mut fault = Fault::new();
        // SAFETY: every pointer is of something above that outlives the call, and `&mut self` makes
        // this the only build.
        let code = unsafe {
            ffi::twt_build_plan(
                self.library.library,
                &raw const build,
                &raw mut plan.0,
                &raw mut timing_cache.0,
                &raw mut *fault.0,
            )
        };
        if let Some(panic) = watcher.panic {
            std::panic::resume_unwind(panic);
        }
        fault.check(code)?;
        Ok(Built { plan: plan.take().unwrap_or_default(), timing_cache: timing_cache.take() })
    }

    fn load(&mut self, plan: &[u8]) -> Result<ShimEngine, RuntimeError> {
        let mut engine = ptr::null_mut();
        let mut fault = Fault::new();
        // SAFETY: the plan is as long as it says, the other pointers are of locals.
        let code = unsafe {
            ffi::twt_load(
                self.library.library,
                plan.as_ptr().cast(),
                plan.len(),
                &raw mut engine,
                &raw mut *fault.0,
            )
        };
        fault.check(code)?;
        Ok(ShimEngine(Arc::new(OwnedEngine { engine, _library: Arc::clone(&self.library) })))
    }

    fn parser_version(&mut self) -> Result<Version, RuntimeError> {
        let mut version = 0;
        let mut fault = Fault::new();
        // SAFETY: the pointers are of locals, and `&mut self` makes this the only call that may
        // load the parser.
        let code = unsafe {
            ffi::twt_parser_version(self.library.library, &raw mut version, &raw mut *fault.0)
        };
        fault.check(code)?;
        // The parser counts by itself: 100 is 0.1.0.
        let number = u32::try_from(version).unwrap_or(0);
        let (major, minor) = (number / 10_000, number % 10_000 / 100);
        Ok(Version { major, minor, patch: number % 100 })
    }
}

struct OwnedEngine {
    engine: *mut ffi::twt_engine,
    /// Kept open as long as the engine lives.
    _library: Arc<Library>,
}

// SAFETY: TensorRT allows an engine to be used from several threads; what is called through it only
// reads, and makes contexts, which it locks.
unsafe impl Send for OwnedEngine {}
// SAFETY: as above.
unsafe impl Sync for OwnedEngine {}

impl Drop for OwnedEngine {
    fn drop(&mut self) {
        // SAFETY: contexts keep an `Arc` of this, so none is left, and the library is still open.
        unsafe { ffi::twt_engine_free(self.engine) };
    }
}

/// An engine of TensorRT.
pub struct ShimEngine(Arc<OwnedEngine>);

impl fmt::Debug for ShimEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShimEngine").field("device_memory", &self.device_memory()).finish()
    }
}

/// The element type behind a number of `nvinfer1::DataType`.
fn element(number: i32) -> ElemType {
    match number {
        0 => ElemType::Fp32,
        1 => ElemType::Fp16,
        2 => ElemType::Int8,
        3 => ElemType::Int32,
        4 => ElemType::Other(9), // bool
        5 => ElemType::Uint8,
        7 => ElemType::Bf16,
        8 => ElemType::Int64,
        _ => ElemType::Other(0),
    }
}

fn tensor(from: &ffi::twt_tensor) -> EngineTensor {
    let dims = usize::try_from(from.dims).unwrap_or(0).min(ffi::TWT_MAX_DIMS);
    // SAFETY: the name is the engine's and ends with 0.
    let name = unsafe { CStr::from_ptr(from.name) }.to_string_lossy().into_owned();
    let batch = |shape: &[i64]| u32::try_from(shape[0]).unwrap_or(0);
    let profile = Profile { min: batch(&from.min), opt: batch(&from.opt), max: batch(&from.max) };
    EngineTensor {
        name,
        is_input: from.is_input != 0,
        elem_type: element(from.r#type),
        shape: from.shape[..dims].to_vec(),
        batch: (from.has_profile != 0).then_some(profile),
    }
}

impl Engine for ShimEngine {
    type Context = ShimContext;

    fn tensors(&self) -> Result<Vec<EngineTensor>, RuntimeError> {
        // SAFETY: the engine lives as long as `self`.
        let count = unsafe { ffi::twt_engine_tensors(self.0.engine) };
        let mut fault = Fault::new();
        let read = |index| {
            let mut raw = ffi::twt_tensor {
                name: ptr::null(),
                shape: [0; ffi::TWT_MAX_DIMS],
                min: [0; ffi::TWT_MAX_DIMS],
                opt: [0; ffi::TWT_MAX_DIMS],
                max: [0; ffi::TWT_MAX_DIMS],
                dims: 0,
                is_input: 0,
                r#type: 0,
                has_profile: 0,
            };
            // SAFETY: the engine lives as long as `self`, the other pointers are of locals.
            let code = unsafe {
                ffi::twt_engine_tensor(self.0.engine, index, &raw mut raw, &raw mut *fault.0)
            };
            fault.check(code).map(|()| tensor(&raw))
        };
        (0..count).map(read).collect()
    }

    fn context(&self) -> Result<ShimContext, RuntimeError> {
        let mut context = ptr::null_mut();
        let mut fault = Fault::new();
        // SAFETY: the engine lives as long as `self`, the other pointers are of locals.
        let code =
            unsafe { ffi::twt_context_new(self.0.engine, &raw mut context, &raw mut *fault.0) };
        fault.check(code)?;
        let engine = Arc::clone(&self.0);
        Ok(ShimContext { context, fault, _engine: engine, one_thread: PhantomData })
    }

    fn device_memory(&self) -> u64 {
        // SAFETY: the engine lives as long as `self`.
        u64::try_from(unsafe { ffi::twt_engine_device_memory(self.0.engine) }).unwrap_or(0)
    }

    fn inspect(&self) -> Result<String, RuntimeError> {
        let mut json = Bytes::none();
        let mut fault = Fault::new();
        // SAFETY: the engine lives as long as `self`, the other pointers are of locals.
        let code =
            unsafe { ffi::twt_engine_inspect(self.0.engine, &raw mut json.0, &raw mut *fault.0) };
        fault.check(code)?;
        Ok(String::from_utf8_lossy(&json.take().unwrap_or_default()).into_owned())
    }
}

/// A context of TensorRT. It may move to another thread, and never be used by two:
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<tensorwire_tensorrt::shim::ShimContext>();
/// ```
pub struct ShimContext {
    context: *mut ffi::twt_context,
    fault: Fault,
    _engine: Arc<OwnedEngine>,
    /// A pointer is not `Sync`, and this says that it is meant.
    one_thread: PhantomData<*mut c_void>,
}

// SAFETY: TensorRT binds a context to no thread; it only may not be used by two at a time, which
// `&mut` and the missing `Sync` rule out.
unsafe impl Send for ShimContext {}

impl fmt::Debug for ShimContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = self.one_thread;
        f.debug_struct("ShimContext").finish_non_exhaustive()
    }
}

impl Drop for ShimContext {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more, and its engine lives.
        unsafe { ffi::twt_context_free(self.context) };
    }
}

/// The result of a call of the loop. A context that refuses a shape or an address goes on; what
/// happened when an inference could not be enqueued is not known, so neither is whether it can.
const fn stage(call: &'static str, code: i32) -> Result<(), StageError> {
    match code {
        ffi::TWT_OK => Ok(()),
        code => Err(StageError { call, code, fatal: false }),
    }
}

impl Context for ShimContext {
    fn set_shape(&mut self, input: &CStr, shape: &[i64]) -> Result<(), StageError> {
        let dims = i32::try_from(shape.len()).unwrap_or(i32::MAX);
        let (input, shape) = (input.as_ptr(), shape.as_ptr());
        let fault = &raw mut *self.fault.0;
        // SAFETY: name and shape outlive the call, and `&mut self` makes this thread the only one.
        let code = unsafe { ffi::twt_context_shape(self.context, input, shape, dims, fault) };
        stage("setInputShape", code)
    }

    fn set_address(&mut self, tensor: &CStr, address: u64) -> Result<(), StageError> {
        let fault = &raw mut *self.fault.0;
        // SAFETY: as in `set_shape`; the address is not followed here.
        let code =
            unsafe { ffi::twt_context_address(self.context, tensor.as_ptr(), address, fault) };
        stage("setTensorAddress", code)
    }

    unsafe fn enqueue(&mut self, stream: RawStream) -> Result<(), StageError> {
        let fault = &raw mut *self.fault.0;
        // SAFETY: `&mut self` makes this thread the only one; the caller vouches for the addresses.
        let code = unsafe { ffi::twt_context_enqueue(self.context, stream.0, fault) };
        stage("enqueueV3", code)
    }

    fn debug_sync(&mut self, on: bool) {
        // SAFETY: the context lives, and `&mut self` makes this thread the only one.
        unsafe { ffi::twt_context_debug_sync(self.context, i32::from(on)) }
    }

    unsafe fn profile(
        &mut self,
        stream: RawStream,
        layer: &mut dyn FnMut(&str, f32),
    ) -> Result<(), StageError> {
        let mut listener = Layers { layer, panic: None };
        // SAFETY: the listener outlives the inference: the profiler is taken away again below, and
        // with one in place the enqueue returns when all layers were reported.
        unsafe {
            ffi::twt_context_profiler(
                self.context,
                Some(callbacks::layer),
                (&raw mut listener).cast(),
            );
        }
        // SAFETY: passed on.
        let result = unsafe { self.enqueue(stream) };
        // SAFETY: the context lives.
        unsafe { ffi::twt_context_profiler(self.context, None, ptr::null_mut()) };
        if let Some(panic) = listener.panic {
            std::panic::resume_unwind(panic);
        }
        result
    }

    fn last_error(&self) -> &str {
        self.fault.text()
    }
}
