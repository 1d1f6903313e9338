//! Who infers.

use std::path::{Path, PathBuf};
use std::thread;

use tensorwire_configs::{self as configs, Config, Inference};
use tensorwire_core::burst::{Burst, InFlight};
use tensorwire_core::geometry::ElementType;
use tensorwire_core::port::{Event, Infer, Outputs, StageError, Ticket};
use tensorwire_onnx::{
    BatchBytes, ElemType, ModelExpect, OnnxInfer, OpenError, Profile, cpu, read_header,
};
use tensorwire_sim::infer::NullInfer;
use tensorwire_sim::pool::BatchMemory;

use super::plan::failure;
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

/// What the rows of a backend look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Features of an image; 0 without inference.
    pub feature_dim: usize,
    /// Classes; 0 for a model without a head.
    pub classes: usize,
}

/// An inference stage of this build.
#[derive(Debug)]
pub enum Backend<'m> {
    /// The model on the CPU.
    Onnx(Box<OnnxInfer<Buffers<'m>>>),
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
    path: PathBuf,
    expect: ModelExpect,
    shape: ModelShape,
}

impl Model {
    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model that `config` asks for; `None` without inference.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 7 when the model cannot be read, 3 when it does not fit the configuration, 5
    /// when it cannot be run here.
    pub fn of(config: &Config) -> Result<Option<Self>, Failure> {
        match config.settings.inference_backend {
            configs::Backend::None => return Ok(None),
            configs::Backend::TensorRt => {
                return Err(failure(
                    ExitCode::Device,
                    "inference_backend `tensorrt` is not in this build; `onnx` infers on the CPU",
                ));
            }
            configs::Backend::Auto | configs::Backend::Onnx => {}
        }
        // Only a sender has no such block: a receiver would have been refused.
        let Some(inference) = &config.inference else { return Ok(None) };
        let Some(path) = inference.onnx_path.as_deref().map(Path::new) else {
            return Err(failure(
                ExitCode::Device,
                "inference.engine_path: an engine needs TensorRT, which this build does not have; \
                 inference on the CPU needs inference.onnx_path",
            ));
        };
        let header = read_header(path).map_err(|error| of_open(&OpenError::Header(error)))?;
        let logits = header.outputs.iter().any(|output| output.name == LOGITS);
        let expect = expectation(config, inference, logits);
        let io = cpu::plan(path, &expect).map_err(|error| of_open(&error))?;
        let classes = io.logits.as_ref().map_or(0, |(_, classes)| *classes);
        let shape = ModelShape { feature_dim: io.feature_dim, classes };
        Ok(Some(Self { path: path.to_path_buf(), expect, shape }))
    }

    /// What the rows of its outputs look like.
    #[must_use]
    pub const fn shape(&self) -> ModelShape {
        self.shape
    }
}

impl<'m> Backend<'m> {
    /// Loads `model`, and says what it is.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 7 when the model cannot be read, 5 when it cannot be run here.
    pub fn load(
        model: Option<&Model>,
        memory: &'m BatchMemory,
        talk: Talk,
    ) -> Result<Self, Failure> {
        let Some(Model { path, expect, shape }) = model else {
            return Ok(Self::None(NullInfer::default()));
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let infer = OnnxInfer::open(path, expect, threads, Buffers(memory))
            .map_err(|error| of_open(&error))?;
        talk.say(format_args!(
            "model {}: {} features{}, on the CPU with {threads} threads",
            path.display(),
            shape.feature_dim,
            if shape.classes > 0 { format!(", {} classes", shape.classes) } else { String::new() },
        ));
        Ok(Self::Onnx(Box::new(infer)))
    }

    /// The words behind the number of a [`StageError`], where there are any.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        match self {
            Self::Onnx(infer) => infer.last_error().map(ToString::to_string),
            Self::None(_) => None,
        }
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
    // True of each of them.
    const DONE_ON_SUBMIT: bool = true;

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        match self {
            Self::Onnx(infer) => infer.submit(ticket, input, first, images, ready),
            Self::None(infer) => infer.submit(ticket, input, first, images, ready),
        }
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match self {
            Self::Onnx(infer) => infer.take_previous(take),
            Self::None(infer) => infer.take_previous(take),
        }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match self {
            Self::Onnx(infer) => infer.poll_idle(take),
            Self::None(infer) => infer.poll_idle(take),
        }
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match self {
            Self::Onnx(infer) => infer.drain(take),
            Self::None(infer) => infer.drain(take),
        }
    }
}
