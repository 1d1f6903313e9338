//! Who infers.

use std::path::{Path, PathBuf};

use tensorwire_configs::{self as configs, Config, Inference};
use tensorwire_core::burst::{Burst, InFlight};
use tensorwire_core::geometry::ElementType;
use tensorwire_core::port::{Event, Infer, Outputs, StageError, Ticket};
use tensorwire_onnx::{
    BatchBytes, CpuStage, ElemType, ModelExpect, OpenError, Profile, check_io, open, read_header,
};
use tensorwire_sim::infer::NullInfer;
use tensorwire_sim::pool::BatchMemory;
use tensorwire_tensorrt::Precision;

use super::plan::failure;
use super::tensorrt;
use crate::exit::{ExitCode, Failure};
use crate::talk::Talk;

/// The name under which a model gives class scores (`export-model --head logits|both`).
const LOGITS: &str = "logits";

/// The batch buffers as the CPU inference reads them.
#[derive(Debug)]
pub struct Buffers<'m>(&'m BatchMemory);

impl BatchBytes for Buffers<'_> {
    fn bytes<'a>(&'a self, burst: &'a Burst<InFlight>) -> &'a [u8] {
        // A token of another pool has no bytes here; the stage then says so by its length.
        self.0.bytes(burst).unwrap_or_default()
    }
}

/// What runs a model on the CPU.
#[cfg(feature = "cpu")]
pub type CpuEngine = tensorwire_onnx::RtenEngine;

/// What runs a model on the CPU: nothing in this program, which is built for a GPU.
#[cfg(not(feature = "cpu"))]
#[derive(Debug)]
pub enum CpuEngine {}

#[cfg(not(feature = "cpu"))]
impl tensorwire_onnx::Engine for CpuEngine {
    fn plan(&self) -> &tensorwire_onnx::IoPlan {
        match *self {}
    }

    fn run(
        &mut self,
        _: &[u8],
        _: usize,
        _: &mut [f32],
        _: &mut [f32],
    ) -> Result<(), tensorwire_onnx::RunError> {
        match *self {}
    }
}

#[cfg(feature = "cpu")]
fn cpu_engine(model: &Model, threads: usize) -> Result<CpuEngine, Failure> {
    let opened = CpuEngine::open(model.path(), &model.expect, threads);
    opened.map_err(|error| of_open(&error))
}

#[cfg(not(feature = "cpu"))]
fn cpu_engine(model: &Model, _: usize) -> Result<CpuEngine, Failure> {
    let path = model.path().display();
    Err(failure(ExitCode::Device, format!("{path}: this program does not infer on the CPU")))
}

/// What the rows of a backend look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Features of an image; 0 without inference.
    pub feature_dim: usize,
    /// Classes; 0 for a model without a head.
    pub classes: usize,
}

/// An inference stage.
#[derive(Debug)]
pub enum Backend<'m> {
    /// The model on the CPU.
    Onnx(Box<CpuStage<CpuEngine, Buffers<'m>>>, ModelShape),
    /// An engine on the GPU.
    TensorRt(Box<tensorrt::Stage>, ModelShape),
    /// No inference: batches are received and given back.
    None(NullInfer),
}

impl ModelShape {
    /// Without inference.
    pub const NONE: Self = Self { feature_dim: 0, classes: 0 };
}

/// A model whose file was held against the configuration; it is not loaded yet.
#[derive(Clone, Debug)]
pub struct Model {
    onnx: Option<PathBuf>,
    engine: Option<PathBuf>,
    backend: configs::Backend,
    precision: Precision,
    expect: ModelExpect,
    shape: ModelShape,
}

impl Model {
    /// Its file: the model, or the engine where only that is named.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.onnx.as_deref().or(self.engine.as_deref()).unwrap_or(Path::new(""))
    }

    /// `onnx_path`.
    #[must_use]
    pub fn onnx(&self) -> Option<&Path> {
        self.onnx.as_deref()
    }

    /// `engine_path`.
    #[must_use]
    pub fn engine(&self) -> Option<&Path> {
        self.engine.as_deref()
    }

    /// What the configuration expects of it.
    #[must_use]
    pub const fn expect(&self) -> &ModelExpect {
        &self.expect
    }

    /// What an engine computes in.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }

    /// Whether TensorRT runs it, if it can.
    #[must_use]
    pub fn may_run_on_gpu(&self) -> bool {
        tensorwire_tensorrt::BUILT && self.backend != configs::Backend::Onnx
    }

    /// Whether nothing else can run it, or may.
    #[must_use]
    pub fn demands_gpu(&self) -> bool {
        self.backend == configs::Backend::TensorRt || self.onnx.is_none()
    }

    /// The model that `config` asks for; `None` without inference.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 7 when the model cannot be read, 3 when it does not fit the configuration, 5
    /// when it cannot be run here.
    pub fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let backend = config.settings.inference_backend;
        if backend == configs::Backend::None {
            return Ok(None);
        }
        // Only a sender has no such block: a receiver would have been refused.
        let Some(inference) = &config.inference else { return Ok(None) };
        let onnx = inference.onnx_path.as_deref().map(PathBuf::from);
        let engine = inference.engine_path.as_deref().map(PathBuf::from);
        let mut model = Self {
            onnx,
            engine,
            backend,
            precision: precision(inference),
            expect: expectation(config, inference, true),
            shape: ModelShape { feature_dim: inference.feature_dim as usize, classes: 0 },
        };
        if let Some(why) = tensorrt::not_built().filter(|_| model.demands_gpu()) {
            return Err(tensorrt::unavailable(&why, model.onnx.is_some()));
        }
        let Some(path) = &model.onnx else { return Ok(Some(model)) };
        let header = read_header(path).map_err(|error| of_open(&OpenError::Header(error)))?;
        let logits = header.outputs.iter().any(|output| output.name == LOGITS);
        model.expect = expectation(config, inference, logits);
        let io = if model.may_run_on_gpu() {
            let mismatch = |source| OpenError::Mismatch { path: path.clone(), source };
            check_io(&header, &model.expect).map_err(|error| of_open(&mismatch(Box::new(error))))?
        } else {
            open::plan(path, &model.expect).map_err(|error| of_open(&error))?
        };
        let classes = io.logits.as_ref().map_or(0, |(_, classes)| *classes);
        model.shape = ModelShape { feature_dim: io.feature_dim, classes };
        Ok(Some(model))
    }

    /// What the rows of its outputs look like, as far as its file says: an engine alone says only
    /// when it is loaded whether it has classes.
    #[must_use]
    pub const fn shape(&self) -> ModelShape {
        self.shape
    }
}

impl<'m> Backend<'m> {
    /// Loads `model` on the CPU, and says what it is.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 7 when the model cannot be read, 5 when it cannot be run here.
    pub fn load(
        model: Option<&Model>,
        memory: &'m BatchMemory,
        talk: Talk,
    ) -> Result<Self, Failure> {
        let Some(model) = model else {
            return Ok(Self::None(NullInfer::default()));
        };
        let (path, shape) = (model.path(), model.shape);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let infer = CpuStage::new(cpu_engine(model, threads)?, Buffers(memory));
        talk.say(format_args!(
            "model {}: {} features{}, on the CPU with {threads} threads",
            path.display(),
            shape.feature_dim,
            if shape.classes > 0 { format!(", {} classes", shape.classes) } else { String::new() },
        ));
        Ok(Self::Onnx(Box::new(infer), shape))
    }

    /// What its rows look like.
    #[must_use]
    pub const fn shape(&self) -> ModelShape {
        match self {
            Self::Onnx(_, shape) | Self::TensorRt(_, shape) => *shape,
            Self::None(_) => ModelShape::NONE,
        }
    }

    /// Whether it reads batches on the GPU, behind the reorder's event.
    #[must_use]
    pub const fn on_gpu(&self) -> bool {
        matches!(self, Self::TensorRt(..))
    }

    /// The words behind the number of a [`StageError`], where there are any.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        match self {
            Self::Onnx(infer, _) => infer.last_error().map(ToString::to_string),
            Self::TensorRt(infer, _) => {
                Some(infer.last_error().to_owned()).filter(|said| !said.is_empty())
            }
            Self::None(_) => None,
        }
    }
}

/// `enable_int8` asks for more than `enable_fp16`.
const fn precision(inference: &Inference) -> Precision {
    match (inference.enable_int8, inference.enable_fp16) {
        (true, _) => Precision::Int8,
        (false, true) => Precision::Fp16,
        (false, false) => Precision::Fp32,
    }
}

fn expectation(config: &Config, inference: &Inference, logits: bool) -> ModelExpect {
    let [channels, height, width] = config.image_shape();
    ModelExpect {
        input_name: inference.input_name.clone(),
        output_name: inference.output_name.clone(),
        logits_name: logits.then(|| LOGITS.to_owned()),
        channels,
        height,
        width,
        input_type: element_type(config.output_type()),
        feature_dim: inference.feature_dim,
        images_per_inference: inference.images_per_inference,
        profile: Profile { min: inference.opt_min, opt: inference.opt_avg, max: inference.opt_max },
    }
}

const fn element_type(of: ElementType) -> ElemType {
    match of {
        ElementType::Int8 | ElementType::Int4 => ElemType::Int8,
        ElementType::Int16 => ElemType::Int16,
        ElementType::Int32 => ElemType::Int32,
        ElementType::Fp16 => ElemType::Fp16,
        ElementType::Bf16 => ElemType::Bf16,
        ElementType::Fp32 => ElemType::Fp32,
        ElementType::Fp64 => ElemType::Fp64,
    }
}

/// The exit code of a model that cannot be opened: a file that cannot be read is not a model that
/// does not fit.
fn of_open(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::Header(_) => ExitCode::File,
        OpenError::Mismatch { .. } => ExitCode::Config,
        _ => ExitCode::Device,
    };
    let hint = match error {
        OpenError::Header(_) => "; `tensorwire export-model` writes one",
        _ => "",
    };
    failure(exit, format!("{error}{hint}"))
}

impl Infer for Backend<'_> {
    fn done_on_submit(&self) -> bool {
        match self {
            Self::Onnx(infer, _) => infer.done_on_submit(),
            Self::TensorRt(infer, _) => infer.done_on_submit(),
            Self::None(infer) => infer.done_on_submit(),
        }
    }

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        match self {
            Self::Onnx(infer, _) => infer.submit(ticket, input, first, images, ready),
            Self::TensorRt(infer, _) => infer.submit(ticket, input, first, images, ready),
            Self::None(infer) => infer.submit(ticket, input, first, images, ready),
        }
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match self {
            Self::Onnx(infer, _) => infer.take_previous(take),
            Self::TensorRt(infer, _) => infer.take_previous(take),
            Self::None(infer) => infer.take_previous(take),
        }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match self {
            Self::Onnx(infer, _) => infer.poll_idle(take),
            Self::TensorRt(infer, _) => infer.poll_idle(take),
            Self::None(infer) => infer.poll_idle(take),
        }
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match self {
            Self::Onnx(infer, _) => infer.drain(take),
            Self::TensorRt(infer, _) => infer.drain(take),
            Self::None(infer) => infer.drain(take),
        }
    }
}
