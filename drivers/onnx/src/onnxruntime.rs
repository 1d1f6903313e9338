//! Models on the CPU, through ONNX Runtime, for those who have its library.
//!
//! The library is found at run time: the path in `ORT_DYLIB_PATH`, or `libonnxruntime.so` (or what
//! it is called on the system) where libraries are looked for. Version 1.17 or later. It takes all
//! input types as they are, so nothing is widened here, and it runs a batch as a whole.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use half::f16;
use half::slice::HalfBitsSliceExt;
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use ort::value::TensorRef;

use crate::check::{IoPlan, ModelExpect};
use crate::cpu::{OpenError, copy_rows, plan, trial};
use crate::stage::{BatchBytes, CpuStage, Engine, RunError};
use crate::types::ElemType;

/// CPU inference through ONNX Runtime as the core's stage.
pub type OrtInfer<B> = CpuStage<OrtEngine, B>;

/// The library allows one environment per process.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// A model in ONNX Runtime.
#[derive(Debug)]
pub struct OrtEngine {
    session: Session,
    plan: IoPlan,
    /// A batch that is incomplete or lies at an odd address. Of `f32` for the alignment.
    staged: Vec<f32>,
}

impl OrtEngine {
    /// Loads the model `path`, checks it against `expect`, makes `threads` threads (0: the
    /// library's choice), and runs it once on zeros. Call it before any thread is pinned.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when the file cannot be read, does not fit the configuration, or cannot be
    /// run; also when the library is not on this machine.
    pub fn open(path: &Path, expect: &ModelExpect, threads: usize) -> Result<Self, OpenError> {
        let plan = plan(path, expect)?;
        let refused = |message: String| OpenError::Engine {
            path: path.into(),
            library: "ONNX Runtime",
            message,
        };
        let session = session(path, threads).map_err(refused)?;
        let bytes = plan.max_images * plan.image_elements() * plan.input_type.bytes().unwrap_or(1);
        let mut engine = Self { session, plan, staged: vec![0.0; bytes.div_ceil(4)] };
        trial(&mut engine, path)?;
        Ok(engine)
    }
}

fn environment() -> Result<Environment, String> {
    // A poisoned lock holds what it held before; there is nothing half done in it.
    let mut current = ENVIRONMENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(environment) = &*current {
        return Ok(environment.clone());
    }
    let library = std::env::var_os("ORT_DYLIB_PATH").map_or_else(
        || {
            let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
            PathBuf::from(format!("{prefix}onnxruntime{suffix}"))
        },
        PathBuf::from,
    );
    let builder = ort::init_from(library).map_err(|e| e.to_string())?;
    let built = builder.with_name("tensorwire").with_telemetry(false).build();
    let environment = built.map_err(|e| e.to_string())?;
    *current = Some(environment.clone());
    Ok(environment)
}

fn session(path: &Path, threads: usize) -> Result<Session, String> {
    let mut builder = Session::builder(&environment()?).map_err(|e| e.to_string())?;
    if threads > 0 {
        builder = builder.with_intra_threads(threads).map_err(|e| e.to_string())?;
    }
    builder.commit_from_file(path).map_err(|e| e.to_string())
}

impl Engine for OrtEngine {
    fn plan(&self) -> &IoPlan {
        &self.plan
    }

    fn run(
        &mut self,
        input: &[u8],
        images: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError> {
        let Self { session, plan, staged } = self;
        let batch = if plan.fixed_batch { plan.max_images } else { images };
        let width = plan.input_type.bytes().unwrap_or(1);
        let aligned = input.as_ptr().addr().is_multiple_of(width);
        let bytes = if batch == images && aligned {
            input
        } else {
            let staged: &mut [u8] = bytemuck::cast_slice_mut(staged);
            let staged = &mut staged[..batch * plan.image_elements() * width];
            staged[..input.len()].copy_from_slice(input);
            staged[input.len()..].fill(0);
            staged
        };
        let [channels, rows, columns] = plan.image;
        let shape = [batch, channels, rows, columns];
        let tensor: Result<SessionInputValue<'_>, ort::Error> = match plan.input_type {
            ElemType::Int8 => {
                TensorRef::from_array_view((shape, bytemuck::cast_slice::<u8, i8>(bytes)))
                    .map(Into::into)
            }
            ElemType::Fp32 => {
                TensorRef::from_array_view((shape, bytemuck::cast_slice::<u8, f32>(bytes)))
                    .map(Into::into)
            }
            _ => {
                let halves = bytemuck::cast_slice::<u8, u16>(bytes).reinterpret_cast::<f16>();
                TensorRef::from_array_view((shape, halves)).map(Into::into)
            }
        };
        let tensor = tensor.map_err(library)?;
        let outputs = session.run(vec![(plan.input_name.as_str(), tensor)]).map_err(library)?;
        let row = |name: &str, width: usize, out: &mut [f32]| {
            let value = outputs.get(name).ok_or_else(|| RunError::OutputType { name: name.into() });
            let (_, data) = value?.try_extract_tensor::<f32>().map_err(library)?;
            copy_rows(data, batch * width, name, out)
        };
        row(&plan.output_name, plan.feature_dim, features)?;
        plan.logits.as_ref().map_or(Ok(()), |(name, classes)| row(name, *classes, logits))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn library(error: ort::Error) -> RunError {
    RunError::Library(error.to_string())
}

impl<B: BatchBytes> OrtInfer<B> {
    /// Opens the model `path` (see [`OrtEngine::open`]) over the batch memory `buffers`.
    ///
    /// # Errors
    ///
    /// As [`OrtEngine::open`].
    pub fn open(
        path: &Path,
        expect: &ModelExpect,
        threads: usize,
        buffers: B,
    ) -> Result<Self, OpenError> {
        Ok(Self::new(OrtEngine::open(path, expect, threads)?, buffers))
    }
}
