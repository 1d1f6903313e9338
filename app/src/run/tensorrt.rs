//! Inference by TensorRT: whether it can run here, the engine, and the stage over the batches of
//! the GPU.
//!
//! `inference_backend: tensorrt` demands it, and ends with exit 5 and one line where it cannot run.
//! `auto` takes it where the program has it, a GPU and the library are there; else the CPU infers.
//! From then on nothing falls back: a run that should be fast and is a thousand times slower is a
//! surprise that nobody wants.

use std::env;
use std::time::{Duration, Instant};

use tensorwire_configs::Receiver;
use tensorwire_core::burst::PoolId;
use tensorwire_cuda::Gpu;
use tensorwire_tensorrt::cuda::identity;
use tensorwire_tensorrt::{
    BuildStep, CudaGpu, EngineError, EngineRequest, GpuBatches, InferOptions, Libraries, Listener,
    Ready, Rebuild, Runtime, ShimContext, ShimEngine, ShimRuntime, Source, TrtInfer, prepare,
};

use super::backend::{Model, ModelShape};
use super::gpu::{self, GpuParts};
use super::plan::{Plan, failure};
use super::signals::StopRequest;
use crate::exit::{ExitCode, Failure};
use crate::talk::Talk;

/// The stage.
pub type Stage = TrtInfer<ShimContext, CudaGpu, GpuBatches>;

/// How often a build that goes on is told.
const STILL_BUILDING: Duration = Duration::from_secs(10);

/// TensorRT, and the GPU that it is to work on.
#[derive(Debug)]
pub struct TensorRt {
    /// The GPU.
    pub gpu: Gpu,
    runtime: ShimRuntime,
}

/// Opens the library that the environment names, or that belongs to this program. What it warns of
/// goes to who wants to know everything; what it fails by is told by the failure.
///
/// # Errors
///
/// Why there is none, in one line.
pub fn library(talk: Talk) -> Result<ShimRuntime, String> {
    const WARNING: i32 = 2;
    let log = Box::new(move |severity: i32, text: &str| {
        if severity <= WARNING {
            talk.detail(format_args!("TensorRT: {text}"));
        }
    });
    let named = |name: &str| env::var(name).ok();
    ShimRuntime::open(&Libraries::of_user(named), log).map_err(|error| error.to_string())
}

/// TensorRT for the model of `plan`; `None`: the CPU infers, or nobody.
///
/// # Errors
///
/// A [`Failure`] (exit 5) where it is demanded and cannot be had.
pub fn open(plan: &Plan, rx: &Receiver) -> Result<Option<TensorRt>, Failure> {
    let Some(model) = plan.model.as_ref().filter(|model| model.may_run_on_gpu()) else {
        return Ok(None);
    };
    let opened = library(plan.talk).and_then(|runtime| {
        let gpu = Gpu::open(&gpu::choice(plan, rx)).map_err(|error| error.to_string())?;
        Ok(TensorRt { gpu, runtime })
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(why) if model.demands_gpu() => Err(unavailable(&why, model.onnx().is_some())),
        Err(why) => {
            // A program that was built for it is probably meant to use it.
            plan.talk.say(format_args!("notice: the CPU infers: {why}"));
            Ok(None)
        }
    }
}

/// TensorRT is demanded, by name or because only an engine is named, and is not to be had.
#[must_use]
pub fn unavailable(why: &str, model_named: bool) -> Failure {
    let text = if model_named {
        format!("inference_backend `tensorrt`: {why}; `onnx` infers on the CPU")
    } else {
        format!(
            "inference.engine_path: an engine needs TensorRT: {why}; inference on the CPU needs \
             inference.onnx_path"
        )
    };
    failure(ExitCode::Device, text)
}

/// Why this program never has TensorRT; `None` if it was built for it.
#[must_use]
pub fn not_built() -> Option<String> {
    let missing = tensorwire_tensorrt::MISSING;
    (!tensorwire_tensorrt::BUILT).then(|| format!("this program has no TensorRT: {missing}"))
}

impl TensorRt {
    /// Finds or builds the engine of `model`, and puts the stage over the batches.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 7 for a model that cannot be read, 3 for one that does not fit, 5 when there
    /// is no engine or it cannot run, 4 when a signal stopped the build.
    pub fn load(
        mut self,
        model: &Model,
        parts: &GpuParts,
        job: &Job<'_>,
        stop: &StopRequest,
    ) -> Result<(Stage, ModelShape), Failure> {
        let device = |error: &dyn std::fmt::Display| failure(ExitCode::Device, error.to_string());
        let gpu = identity(&self.gpu).map_err(|error| device(&error))?;
        // TensorRT works on the GPU that is current to the thread.
        let _entered = self.gpu.enter().map_err(|error| device(&error))?;
        let request = EngineRequest {
            onnx: model.onnx(),
            engine: model.engine(),
            expect: model.expect(),
            precision: model.precision(),
            workspace_bytes: job.workspace_bytes,
            detailed: false,
            targets: &[],
            gpu: &gpu,
            rebuild: job.rebuild,
        };
        let ready = engine(&mut self.runtime, &request, job.talk, stop)?;
        let options = InferOptions {
            images_per_batch: job.images_per_batch,
            pool: job.pool,
            graphs: job.graphs,
            dual_context: job.dual_context,
        };
        let talk = *job.talk;
        let say = Box::new(move |note| talk.say(format_args!("notice: {note}")));
        let cuda = CudaGpu::new(self.gpu.clone(), parts.events());
        let memory = GpuBatches(parts.output().clone());
        let stage = TrtInfer::new(&ready.engine, &ready.plan, cuda, memory, &options, say)
            .map_err(|error| device(&error))?;
        talk.say(format_args!(
            "{}",
            described(&ready, &request, self.runtime.versions(), &self.gpu, stage.graphs())
        ));
        let classes = ready.plan.logits.as_ref().map_or(0, |(_, classes)| *classes);
        Ok((stage, ModelShape { feature_dim: ready.plan.feature_dim, classes }))
    }
}

/// What a run asks for besides the model.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Images of a batch buffer.
    pub images_per_batch: u32,
    /// The pool of the batch buffers.
    pub pool: PoolId,
    /// `enable_cuda_graph`.
    pub graphs: bool,
    /// `enable_dual_context`.
    pub dual_context: bool,
    /// `tensorwire.workspace_mib`, in bytes.
    pub workspace_bytes: Option<u64>,
    /// `--no-rebuild` or not.
    pub rebuild: Rebuild,
    /// Who is told.
    pub talk: &'a Talk,
}

/// The engine, from where it lies or newly built; a signal stops the build where the version of
/// TensorRT can be stopped.
fn engine(
    runtime: &mut ShimRuntime,
    request: &EngineRequest<'_>,
    talk: &Talk,
    stop: &StopRequest,
) -> Result<Ready<ShimEngine>, Failure> {
    let mut told = Instant::now();
    let began = told;
    let mut say = |line: &str| talk.say(format_args!("{line}"));
    let mut progress = |step: BuildStep<'_>| {
        if told.elapsed() >= STILL_BUILDING {
            told = Instant::now();
            talk.say(format_args!("{}", still_building(&step, began.elapsed())));
        }
        !stop.requested()
    };
    let mut listener = Listener { say: &mut say, progress: &mut progress };
    prepare(runtime, request, &mut listener).map_err(|error| {
        // What a stopped build says of itself is not what the user wants to know.
        stop.check().err().unwrap_or_else(|| of_engine(&error))
    })
}

/// A line while a build goes on.
#[must_use]
pub fn still_building(step: &BuildStep<'_>, since: Duration) -> String {
    let of = if step.steps > 0 { format!(" of {}", step.steps) } else { String::new() };
    format!("still building after {} s: {} {}{of}", since.as_secs(), step.phase, step.step)
}

/// The exit code of a start without an engine.
#[must_use]
pub fn of_engine(error: &EngineError) -> Failure {
    let exit = match error {
        EngineError::Model(..) | EngineError::Header(_) => ExitCode::File,
        EngineError::Mismatch(..) | EngineError::Nothing => ExitCode::Config,
        _ => ExitCode::Device,
    };
    let hint = match error {
        EngineError::Model(..) | EngineError::Header(_) => "; `tensorwire export-model` writes one",
        _ => "",
    };
    failure(exit, format!("{error}{hint}"))
}

/// What infers, in one line.
fn described(
    ready: &Ready<ShimEngine>,
    request: &EngineRequest<'_>,
    versions: tensorwire_tensorrt::Versions,
    gpu: &Gpu,
    graphs: usize,
) -> String {
    let from = match &ready.source {
        Source::Plain(path) | Source::Kept(path) => format!("engine {}", path.display()),
        Source::Built(Some(path)) => format!("engine {}, newly built", path.display()),
        Source::Built(None) => "an engine that could not be kept".to_owned(),
    };
    let classes = ready.plan.logits.as_ref().map_or(0, |(_, classes)| *classes);
    let classes = if classes > 0 { format!(", {classes} classes") } else { String::new() };
    let graphs = if graphs > 0 { format!(", {graphs} CUDA graphs") } else { String::new() };
    format!(
        "{from}: {} features{classes}, {} by {} {} on {}{graphs}",
        ready.plan.feature_dim,
        request.precision,
        versions.flavor,
        versions.library,
        gpu.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e11_the_refusal_is_one_line_that_names_the_way_out() {
        let refused = unavailable("libnvinfer.so.10 cannot be loaded", true);
        assert_eq!(refused.exit, ExitCode::Device);
        assert_eq!(
            refused.reason,
            "inference_backend `tensorrt`: libnvinfer.so.10 cannot be loaded; `onnx` infers on \
             the CPU"
        );
        let engine_only = unavailable("there is no GPU", false);
        assert!(engine_only.reason.ends_with("inference on the CPU needs inference.onnx_path"));
    }

    #[test]
    fn a_build_says_how_far_it_is() {
        let step = BuildStep { phase: "tactics", step: 3, steps: 54 };
        let line = still_building(&step, Duration::from_millis(12_900));
        assert_eq!(line, "still building after 12 s: tactics 3 of 54");
        let open = BuildStep { steps: 0, ..step };
        assert_eq!(still_building(&open, Duration::ZERO), "still building after 0 s: tactics 3");
    }

    #[test]
    fn each_way_to_have_no_engine_has_its_exit_code() {
        let exit = |error| of_engine(&error).exit;
        assert_eq!(exit(EngineError::Nothing), ExitCode::Config);
        let io = std::io::Error::other("gone");
        assert_eq!(exit(EngineError::Model("m.onnx".into(), io)), ExitCode::File);
        let none = EngineError::NoEngine { reasons: vec![], why: "a rebuild is not allowed" };
        assert_eq!(exit(none), ExitCode::Device);
    }
}
