//! Models on the CPU, through `rten`.
//!
//! `rten` computes in fp32 whatever the model says: it upcasts fp16 weights when it loads them and
//! takes fp32 where the file asks for fp16. So fp16 images are widened into one buffer made at the
//! start; that is the one copy of the CPU path, and [`RtenEngine::widened_bytes`] counts it. Int8
//! and fp32 images are read where they lie.
//!
//! A model with an open batch is run image by image, as many at a time as there are threads. On
//! two threads that costs a tenth less CPU time than one run over 32 images (ResNet-50, measured
//! 123 against 137 ms an image), because the intermediate values of one image stay in the caches,
//! and it needs the memory of two images instead of 32. And it makes features independent of the
//! batch size by construction.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueView};

use crate::check::{IoPlan, ModelExpect};
pub use crate::open::{OpenError, plan};
use crate::stage::{BatchBytes, CpuStage, Engine, RunError};
use crate::types::ElemType;

/// CPU inference as the core's stage.
pub type OnnxInfer<B> = CpuStage<RtenEngine, B>;

/// Runs `engine` once on zeros. This finds what only shows at a run (an operator that does not
/// take what it is given), and lets the library make its threads before anything is pinned.
pub(crate) fn trial(engine: &mut impl Engine, path: &Path) -> Result<(), OpenError> {
    let plan = engine.plan();
    let classes = plan.logits.as_ref().map_or(0, |(_, classes)| *classes);
    let zeros = vec![0; plan.image_elements() * plan.input_type.bytes().unwrap_or(1)];
    let (mut features, mut logits) = (vec![0.0; plan.feature_dim], vec![0.0; classes]);
    engine
        .run(&zeros, 1, &mut features, &mut logits)
        .map_err(|source| OpenError::Trial { path: path.into(), source })
}

/// A model in `rten`.
#[derive(Debug)]
pub struct RtenEngine {
    shared: Shared,
    /// Images of one inference as fp32.
    wide: Vec<f32>,
    /// An incomplete int8 batch of a model with a fixed batch, padded.
    padded: Vec<i8>,
    widened_bytes: u64,
}

/// What the runs of one inference share.
#[derive(Debug)]
struct Shared {
    model: Model,
    plan: IoPlan,
    input: NodeId,
    outputs: Vec<NodeId>,
    threads: Arc<ThreadPool>,
}

impl RtenEngine {
    /// Loads the model `path`, checks it against `expect`, makes `threads` threads (0: one per
    /// core that this process may use), and runs it once on zeros. Call it before any thread is
    /// pinned: a pinned thread's mask is inherited by the threads it makes.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when the file cannot be read, does not fit the configuration, or cannot be
    /// run by `rten`.
    pub fn open(path: &Path, expect: &ModelExpect, threads: usize) -> Result<Self, OpenError> {
        let plan = plan(path, expect)?;
        let refused =
            |message: String| OpenError::Engine { path: path.into(), library: "rten", message };
        let model = load(path).map_err(refused)?;
        let node = |name: &str| {
            model.find_node(name).ok_or_else(|| refused(format!("no value called '{name}'")))
        };
        let input = node(&plan.input_name)?;
        let names = std::iter::once(&plan.output_name).chain(plan.logits.as_ref().map(|l| &l.0));
        let outputs = names.map(|name| node(name)).collect::<Result<_, _>>()?;
        let fp32_images = if plan.input_type == ElemType::Int8 { 0 } else { plan.max_images };
        let padded_images = if plan.fixed_batch && fp32_images == 0 { plan.max_images } else { 0 };
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let threads = Arc::new(ThreadPool::with_num_threads(threads));
        let elements = plan.image_elements();
        let mut engine = Self {
            shared: Shared { model, plan, input, outputs, threads },
            wide: vec![0.0; fp32_images * elements],
            padded: vec![0; padded_images * elements],
            widened_bytes: 0,
        };
        trial(&mut engine, path)?;
        engine.widened_bytes = 0;
        Ok(engine)
    }

    /// Bytes written in widening fp16 images to fp32 since the start.
    #[must_use]
    pub const fn widened_bytes(&self) -> u64 {
        self.widened_bytes
    }

    /// Runs a model of a fixed batch on `images` images and zeros behind them.
    fn run_fixed(
        &mut self,
        input: &[u8],
        images: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError> {
        let Shared { plan, .. } = &self.shared;
        let elements = images * plan.image_elements();
        let view = if plan.input_type == ElemType::Int8 {
            let (given, rest) = self.padded.split_at_mut(elements);
            given.copy_from_slice(bytemuck::cast_slice(input));
            rest.fill(0);
            Images::Int8(&self.padded)
        } else {
            let (given, rest) = self.wide.split_at_mut(elements);
            widen(plan.input_type, input, given);
            rest.fill(0.0);
            Images::Fp32(&self.wide)
        };
        let shared = &self.shared;
        shared.threads.run(|| shared.run(view, plan.max_images, features, logits))
    }

    /// Runs a model of an open batch, image by image.
    fn run_each(
        &mut self,
        input: &[u8],
        images: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError> {
        let shared = &self.shared;
        let wide = &mut self.wide[..];
        let job = Job { images, input, wide, features, logits };
        shared.threads.run(|| shared.run_job(job))
    }
}

/// Images that follow one another, with room for their results.
struct Job<'a> {
    images: usize,
    input: &'a [u8],
    /// Room to widen them in; empty where nothing is widened.
    wide: &'a mut [f32],
    features: &'a mut [f32],
    logits: &'a mut [f32],
}

impl<'a> Job<'a> {
    /// The first half of the images, and the rest.
    fn split(self, plan: &IoPlan) -> (Self, Self) {
        let (images, rest) = (self.images / 2, self.images - self.images / 2);
        let classes = self.logits.len() / self.images;
        let widened = if self.wide.is_empty() { 0 } else { plan.image_elements() };
        let input = self.input.split_at(self.input.len() / self.images * images);
        let wide = self.wide.split_at_mut(widened * images);
        let features = self.features.split_at_mut(plan.feature_dim * images);
        let logits = self.logits.split_at_mut(classes * images);
        let job = |images, input, wide, features, logits| -> Job<'a> {
            Job { images, input, wide, features, logits }
        };
        (
            job(images, input.0, wide.0, features.0, logits.0),
            job(rest, input.1, wide.1, features.1, logits.1),
        )
    }
}

impl Engine for RtenEngine {
    fn plan(&self) -> &IoPlan {
        &self.shared.plan
    }

    fn run(
        &mut self,
        input: &[u8],
        images: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError> {
        if self.shared.plan.input_type == ElemType::Fp16 {
            self.widened_bytes += 2 * input.len() as u64;
        }
        if self.shared.plan.fixed_batch {
            self.run_fixed(input, images, features, logits)
        } else {
            self.run_each(input, images, features, logits)
        }
    }
}

/// Images in a type that `rten` takes.
#[derive(Clone, Copy)]
enum Images<'a> {
    Fp32(&'a [f32]),
    Int8(&'a [i8]),
}

impl Shared {
    /// Runs the images of `job` one by one, in parallel as far as threads are idle.
    fn run_job(&self, job: Job<'_>) -> Result<(), RunError> {
        if job.images > 1 {
            let (first, rest) = job.split(&self.plan);
            let (first, rest) = rayon::join(|| self.run_job(first), || self.run_job(rest));
            return first.and(rest);
        }
        let image = match self.plan.input_type {
            ElemType::Int8 => Images::Int8(bytemuck::cast_slice(job.input)),
            elem_type => Images::Fp32(as_fp32(elem_type, job.input, job.wide)),
        };
        self.run(image, 1, job.features, job.logits)
    }

    /// Runs the model on `batch` images and copies the first rows to the outputs.
    fn run(
        &self,
        images: Images<'_>,
        batch: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError> {
        let [channels, rows, columns] = self.plan.image;
        let shape = [batch, channels, rows, columns];
        let view = match images {
            Images::Fp32(values) => ValueView::from_shape(&shape, values).map_err(library),
            Images::Int8(values) => ValueView::from_shape(&shape, values).map_err(library),
        }?;
        let options = RunOptions::default().with_thread_pool(Some(self.threads.clone()));
        let results = self
            .model
            .run(vec![(self.input, ValueOrView::from(view))], &self.outputs, Some(options))
            .map_err(library)?;
        let mut results = results.into_iter();
        let classes = self.plan.logits.as_ref().map_or(0, |(_, classes)| *classes);
        let logits_name = self.plan.logits.as_ref().map_or("", |(name, _)| name);
        copy(results.next(), batch * self.plan.feature_dim, &self.plan.output_name, features)?;
        if classes > 0 {
            copy(results.next(), batch * classes, logits_name, logits)?;
        }
        Ok(())
    }
}

fn library(error: impl fmt::Display) -> RunError {
    RunError::Library(error.to_string())
}

/// Copies the first elements of the output `name`, which must have `expected` in all.
fn copy(
    value: Option<Value>,
    expected: usize,
    name: &str,
    out: &mut [f32],
) -> Result<(), RunError> {
    let tensor = value.and_then(Value::into_tensor::<f32>);
    let data = tensor.ok_or_else(|| RunError::OutputType { name: name.into() })?.into_data();
    copy_rows(&data, expected, name, out)
}

/// Copies the first elements of the output `name`, whose `data` must have `expected` in all.
pub(crate) fn copy_rows(
    data: &[f32],
    expected: usize,
    name: &str,
    out: &mut [f32],
) -> Result<(), RunError> {
    if data.len() != expected || data.len() < out.len() {
        let (name, given) = (name.into(), data.len());
        return Err(RunError::OutputLength { name, given, expected });
    }
    out.copy_from_slice(&data[..out.len()]);
    Ok(())
}

/// The image as fp32: where it lies if it is, else widened into `wide`.
fn as_fp32<'a>(elem_type: ElemType, image: &'a [u8], wide: &'a mut [f32]) -> &'a [f32] {
    if elem_type == ElemType::Fp32
        && let Ok(values) = bytemuck::try_cast_slice(image)
    {
        return values;
    }
    let wide = &mut wide[..image.len() / elem_type.bytes().unwrap_or(1)];
    widen(elem_type, image, wide);
    wide
}

/// Writes the fp16 or fp32 elements in `bytes` to `wide`, which has as many.
fn widen(elem_type: ElemType, bytes: &[u8], wide: &mut [f32]) {
    if elem_type == ElemType::Fp32 {
        bytemuck::cast_slice_mut(wide).copy_from_slice(bytes);
        return;
    }
    if let Ok(halves) = bytemuck::try_cast_slice::<u8, u16>(bytes) {
        halves.reinterpret_cast::<f16>().convert_to_f32_slice(wide);
    } else {
        // A buffer at an odd address. None of ours is.
        for (value, half) in wide.iter_mut().zip(bytes.as_chunks().0) {
            *value = f16::from_ne_bytes(*half).to_f32();
        }
    }
}

fn load(path: &Path) -> Result<Model, String> {
    let options = ModelOptions::with_all_ops();
    // By its own way rten also finds weights in files beside the model, but only if the name ends
    // in ".onnx".
    if path.extension().is_some_and(|ext| ext == "onnx") {
        options.load_file(path).map_err(|e| e.to_string())
    } else {
        let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
        options.load(bytes).map_err(|e| e.to_string())
    }
}

impl<B: BatchBytes> OnnxInfer<B> {
    /// Opens the model `path` (see [`RtenEngine::open`]) over the batch memory `buffers`.
    ///
    /// # Errors
    ///
    /// As [`RtenEngine::open`].
    pub fn open(
        path: &Path,
        expect: &ModelExpect,
        threads: usize,
        buffers: B,
    ) -> Result<Self, OpenError> {
        Ok(Self::new(RtenEngine::open(path, expect, threads)?, buffers))
    }
}

#[cfg(test)]
mod tests;
