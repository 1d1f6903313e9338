//! How long engines take: by batch size, and by layer.
//!
//! Inferences are enqueued one behind the other with an event between them, as a pipeline runs
//! them; the time of one is that between its events. Input and outputs stay on the GPU meanwhile;
//! the copies that a program without a reorder on the GPU makes are timed apart.
#![allow(unsafe_code)] // inferences over memory that lives here; each block says why they may run

use std::ffi::CString;

use tensorwire_core::port::StageError;
use tensorwire_onnx::ElemType;

use crate::gpu::Gpu;
use crate::infer::StartError;
use crate::runtime::{Context, Engine, EngineTensor};

/// How a measurement is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasureOptions {
    /// Inferences before the first that counts.
    pub warm_up: u32,
    /// Inferences that count.
    pub runs: u32,
    /// Whether each is a recorded graph.
    pub graph: bool,
}

/// The times of one batch size, in ms, shortest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Images of an inference.
    pub images: u32,
    /// The times.
    pub times: Vec<f64>,
    /// Those of the copy of the inputs from pinned memory of the host.
    pub copies_in: Vec<f64>,
    /// Those of the copy of the outputs to it.
    pub copies_out: Vec<f64>,
}

/// The time below which `percent` of `sorted` are (nearest rank); NaN where there is none.
#[must_use]
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

impl Point {
    /// The time below which `percent` of all are (nearest rank).
    #[must_use]
    pub fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.times, percent)
    }

    /// Images in a second, over all runs.
    #[must_use]
    pub fn images_per_s(&self) -> f64 {
        let total: f64 = self.times.iter().sum();
        let images = f64::from(self.images);
        images * f64::from(u32::try_from(self.times.len()).unwrap_or(u32::MAX)) / total * 1_000.0
    }
}

/// The time of one layer, in ms, over all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTime {
    /// Its name, as TensorRT has it: those of the operators that it was made of.
    pub name: String,
    /// The mean.
    pub mean: f64,
}

impl LayerTime {
    /// Whether it only changes how values lie in memory.
    #[must_use]
    pub fn is_reformat(&self) -> bool {
        let lower = self.name.to_ascii_lowercase();
        lower.contains("reformat") || lower.contains("copynode")
    }

    /// Whether it holds a convolution, by the names of operators.
    #[must_use]
    pub fn is_convolution(&self) -> bool {
        let lower = self.name.to_ascii_lowercase();
        !self.is_reformat() && (lower.contains("conv") || lower.contains("downsample"))
    }
}

/// An engine with memory for its inputs and outputs.
struct Bed<C, G: Gpu> {
    context: C,
    stream: G::Stream,
    gpu: G,
    inputs: Vec<(CString, Vec<i64>)>,
    /// Kept as long as the context may write to it.
    rows: Vec<(EngineTensor, G::Rows)>,
}

fn geometry(text: String) -> StartError {
    StartError::Geometry(text)
}

/// Bytes of a tensor with `images` images.
fn bytes(tensor: &EngineTensor, images: u32) -> Result<usize, StartError> {
    let mut elements = 1_usize;
    for (at, &dim) in tensor.shape.iter().enumerate() {
        let dim = match usize::try_from(dim) {
            Ok(dim) => dim,
            Err(_) if at == 0 => images as usize,
            Err(_) => {
                let name = &tensor.name;
                return Err(geometry(format!("'{name}' has an open dimension beside the batch")));
            }
        };
        elements = elements.saturating_mul(dim);
    }
    let size = tensor.elem_type.bytes();
    let size = size.ok_or_else(|| geometry(format!("'{}' has no known type", tensor.name)))?;
    Ok(elements.saturating_mul(size))
}

impl<C: Context, G: Gpu> Bed<C, G> {
    fn new<E: Engine<Context = C>>(engine: &E, mut gpu: G, most: u32) -> Result<Self, StartError> {
        let mut context = engine.context().map_err(StartError::Context)?;
        let stream = gpu.stream()?;
        let (mut inputs, mut rows) = (Vec::new(), Vec::new());
        for tensor in engine.tensors().map_err(StartError::Context)? {
            let name = CString::new(tensor.name.as_str())
                .map_err(|_| geometry(format!("a name with a zero byte: {:?}", tensor.name)))?;
            let room = gpu.rows(bytes(&tensor, most)?.div_ceil(size_of::<f32>()))?;
            context.set_address(&name, gpu.device_address(&room))?;
            if tensor.is_input {
                inputs.push((name, tensor.shape.clone()));
            }
            rows.push((tensor, room));
        }
        Ok(Self { context, stream, gpu, inputs, rows })
    }

    fn set_images(&mut self, images: u32) -> Result<(), StageError> {
        for (name, shape) in &self.inputs {
            let mut shape = shape.clone();
            if let Some(batch) = shape.first_mut() {
                *batch = i64::from(images);
            }
            self.context.set_shape(name, &shape)?;
        }
        Ok(())
    }

    /// The error with what TensorRT says about it.
    fn said(&self, error: StageError) -> StartError {
        StartError::Device(error, self.context.last_error().to_owned())
    }

    fn enqueue(&mut self) -> Result<(), StageError> {
        // SAFETY: every tensor has memory for the largest batch, which lives as long as the context
        // and which nobody else uses; what the input holds does not matter.
        unsafe { self.context.enqueue(self.gpu.raw(&self.stream)) }
    }

    fn times(&mut self, options: &MeasureOptions) -> Result<Vec<f64>, StageError> {
        // One by itself: a recording needs a shape that has settled.
        self.enqueue()?;
        self.gpu.synchronize(&self.stream)?;
        let graph = if options.graph {
            self.gpu.begin_capture(&self.stream)?;
            let recorded = self.enqueue();
            let graph = self.gpu.end_capture(&self.stream);
            recorded?;
            Some(graph?)
        } else {
            None
        };
        let mut events = Vec::new();
        for _ in 0..=options.runs {
            events.push(self.gpu.timed_event()?);
        }
        for run in 0..options.warm_up.saturating_add(options.runs) {
            if let Some(at) = run.checked_sub(options.warm_up) {
                self.gpu.record(&self.stream, &events[at as usize])?;
            }
            match &graph {
                // SAFETY: as for `enqueue`.
                Some(graph) => unsafe { self.gpu.launch(&self.stream, graph)? },
                None => self.enqueue()?,
            }
        }
        if let Some(last) = events.last() {
            self.gpu.record(&self.stream, last)?;
        }
        self.gpu.synchronize(&self.stream)?;
        let mut times = Vec::new();
        for pair in events.windows(2) {
            times.push(self.gpu.milliseconds(&pair[0], &pair[1])?);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

impl<C: Context, G: Gpu> Bed<C, G> {
    /// Times the copies of the inputs of `images` images to the GPU, and of the outputs from it.
    fn copies(&mut self, images: u32, runs: u32) -> Result<(Vec<f64>, Vec<f64>), StartError> {
        let mut events = Vec::new();
        for _ in 0..runs {
            let marks = [self.gpu.timed_event()?, self.gpu.timed_event()?, self.gpu.timed_event()?];
            self.gpu.record(&self.stream, &marks[0])?;
            self.copy(images, true)?;
            self.gpu.record(&self.stream, &marks[1])?;
            self.copy(images, false)?;
            self.gpu.record(&self.stream, &marks[2])?;
            events.push(marks);
        }
        self.gpu.synchronize(&self.stream)?;
        let (mut ins, mut outs) = (Vec::new(), Vec::new());
        for [start, between, end] in &events {
            ins.push(self.gpu.milliseconds(start, between)?);
            outs.push(self.gpu.milliseconds(between, end)?);
        }
        ins.sort_by(f64::total_cmp);
        outs.sort_by(f64::total_cmp);
        Ok((ins, outs))
    }

    /// Enqueues the copies of one side.
    fn copy(&mut self, images: u32, inputs: bool) -> Result<(), StartError> {
        for (tensor, rows) in self.rows.iter_mut().filter(|(t, _)| t.is_input == inputs) {
            let values = bytes(tensor, images)?.div_ceil(size_of::<f32>());
            if inputs {
                // SAFETY: the rows live as long as the bed; what uses them is before it on the
                // stream, and nobody has a slice of them.
                unsafe { self.gpu.copy_in(&self.stream, rows, values)? };
            } else {
                // SAFETY: as above.
                unsafe { self.gpu.copy_out(&self.stream, rows, values)? };
            }
        }
        Ok(())
    }
}

/// The largest batch that an engine takes; `None` where it takes any.
///
/// # Errors
///
/// [`StartError`] when the engine does not say.
pub fn largest_batch<E: Engine>(engine: &E) -> Result<Option<(u32, u32)>, StartError> {
    let tensors = engine.tensors().map_err(StartError::Context)?;
    let range = |tensor: &EngineTensor| match (tensor.batch, tensor.shape.first()) {
        (_, Some(&fixed)) if fixed > 0 => {
            let fixed = u32::try_from(fixed).unwrap_or(u32::MAX);
            Some((fixed, fixed))
        }
        (Some(profile), _) => Some((profile.min, profile.max)),
        _ => None,
    };
    Ok(tensors.iter().filter(|tensor| tensor.is_input).find_map(range))
}

/// Times `engine` at each batch size. `done` is told of each as it is there.
///
/// # Errors
///
/// [`StartError`] when a size is outside the profile, or a call fails.
pub fn sweep<E: Engine, G: Gpu>(
    engine: &E,
    gpu: G,
    batches: &[u32],
    options: &MeasureOptions,
    done: &mut dyn FnMut(&Point),
) -> Result<Vec<Point>, StartError> {
    if let Some((least, most)) = largest_batch(engine)?
        && let Some(wrong) = batches.iter().find(|images| !(least..=most).contains(images))
    {
        let text = format!("the engine takes {least} to {most} images, not {wrong}");
        return Err(geometry(text));
    }
    let _entered = gpu.enter()?;
    let mut bed = Bed::new(engine, gpu, batches.iter().copied().max().unwrap_or(1))?;
    let mut points = Vec::new();
    for &images in batches {
        bed.set_images(images)?;
        let times = bed.times(options)?;
        let (copies_in, copies_out) = bed.copies(images, options.runs)?;
        let point = Point { images, times, copies_in, copies_out };
        done(&point);
        points.push(point);
    }
    Ok(points)
}

/// Times the layers of `engine` at one batch size, slowest first. While layers are timed TensorRT
/// waits for each, so their sum is more than an inference takes. `sync`: it waits besides for each
/// layer of every inference, so that the error of one that fails is its own.
///
/// # Errors
///
/// [`StartError`] when a call fails, with what TensorRT says about it.
pub fn profile<E: Engine, G: Gpu>(
    engine: &E,
    gpu: G,
    images: u32,
    options: &MeasureOptions,
    sync: bool,
) -> Result<Vec<LayerTime>, StartError> {
    let _entered = gpu.enter()?;
    let mut bed = Bed::new(engine, gpu, images)?;
    bed.set_images(images)?;
    bed.context.debug_sync(sync);
    for _ in 0..options.warm_up.max(1) {
        bed.enqueue().map_err(|error| bed.said(error))?;
    }
    bed.gpu.synchronize(&bed.stream).map_err(|error| bed.said(error))?;
    let mut sums: Vec<(String, f64)> = Vec::new();
    for _ in 0..options.runs {
        let stream = bed.gpu.raw(&bed.stream);
        let mut layer = 0;
        // The layers of an engine come in the same order each time.
        let mut note = |name: &str, milliseconds: f32| {
            match sums.get_mut(layer).filter(|(known, _)| known == name) {
                Some((_, sum)) => *sum += f64::from(milliseconds),
                None => sums.push((name.to_owned(), f64::from(milliseconds))),
            }
            layer += 1;
        };
        // SAFETY: as for `Bed::enqueue`.
        let profiled = unsafe { bed.context.profile(stream, &mut note) };
        profiled.map_err(|error| bed.said(error))?;
        bed.gpu.synchronize(&bed.stream).map_err(|error| bed.said(error))?;
    }
    let runs = f64::from(options.runs.max(1));
    let mut layers: Vec<LayerTime> =
        sums.into_iter().map(|(name, sum)| LayerTime { name, mean: sum / runs }).collect();
    layers.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    Ok(layers)
}

/// What `engine` makes of `input`: the values of each output in fp32, one image.
///
/// # Errors
///
/// [`StartError`] when there is another number of inputs than one, or a call fails.
pub fn outputs<E: Engine, G: Gpu>(
    engine: &E,
    gpu: G,
    input: &[u8],
) -> Result<Vec<(String, Vec<f32>)>, StartError> {
    let _entered = gpu.enter()?;
    let mut bed = Bed::new(engine, gpu, 1)?;
    if bed.inputs.len() != 1 {
        return Err(geometry(format!("{} inputs; one can be fed", bed.inputs.len())));
    }
    bed.set_images(1)?;
    for (tensor, rows) in &mut bed.rows {
        let needed = bytes(tensor, 1)?;
        if tensor.is_input && needed != input.len() {
            return Err(geometry(format!("an image of {} B, {needed} are taken", input.len())));
        }
        if tensor.is_input {
            bed.gpu.fill(rows, input)?;
        }
    }
    bed.enqueue()?;
    let wanted = |tensor: &EngineTensor| !tensor.is_input && tensor.elem_type == ElemType::Fp32;
    for (tensor, rows) in bed.rows.iter_mut().filter(|(tensor, _)| wanted(tensor)) {
        let values = bytes(tensor, 1)? / size_of::<f32>();
        // SAFETY: nobody has a slice of the rows, which live as long as the bed.
        unsafe { bed.gpu.copy_out(&bed.stream, rows, values)? };
    }
    bed.gpu.synchronize(&bed.stream)?;
    let mut found = Vec::new();
    for (tensor, rows) in bed.rows.iter().filter(|(tensor, _)| wanted(tensor)) {
        // SAFETY: the stream has done all copies, and none follows.
        let host = unsafe { bed.gpu.host(rows) };
        let values = (bytes(tensor, 1)? / size_of::<f32>()).min(host.len());
        found.push((tensor.name.clone(), host[..values].to_vec()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use tensorwire_onnx::Profile;

    use super::*;
    use crate::fake::gpu::{FakeGpu, Kind, World};
    use crate::fake::models::model;
    use crate::fake::runtime::{FakeEngine, FakeRuntime};
    use crate::runtime::Runtime;

    const OPTIONS: MeasureOptions = MeasureOptions { warm_up: 3, runs: 10, graph: false };

    fn engine(world: &World) -> FakeEngine {
        let mut runtime = FakeRuntime::new([8, 6, 0], 90);
        runtime.world = world.clone();
        let plan = runtime.plan(&model(-1, ""), Some(Profile { min: 1, opt: 4, max: 8 }));
        runtime.load(&plan).expect("its own plan")
    }

    #[test]
    fn each_size_is_timed_without_its_warm_up() {
        for graph in [false, true] {
            let world = World::default();
            let options = MeasureOptions { graph, ..OPTIONS };
            let mut told = Vec::new();
            let gpu = FakeGpu(world.clone());
            let points =
                sweep(&engine(&world), gpu, &[1, 4, 8], &options, &mut |p| told.push(p.images));
            let points = points.expect("it runs");
            assert_eq!(told, [1, 4, 8]);
            for point in &points {
                // The stand-in takes 1 ms and an eighth for each image.
                let right = 1.0 + f64::from(point.images) / 8.0;
                assert_eq!(point.times, vec![right; 10], "{} images", point.images);
                assert_eq!(point.copies_in, [0.125; 10]);
                assert_eq!(point.copies_out, [0.0625; 10]);
                assert!(
                    (point.images_per_s() - f64::from(point.images) / right * 1e3).abs() < 1e-6
                );
            }
            let launched = world.count(Kind::Launch);
            assert_eq!(launched, if graph { 3 * 13 } else { 0 });
        }
    }

    #[test]
    fn a_size_outside_the_profile_is_refused_with_the_numbers() {
        let world = World::default();
        let gpu = FakeGpu(world.clone());
        let error = sweep(&engine(&world), gpu, &[4, 9], &OPTIONS, &mut |_| ());
        assert_eq!(error.expect_err("nine").to_string(), "the engine takes 1 to 8 images, not 9");
        assert_eq!(world.count(Kind::Context), 0, "before anything is made");
    }

    #[test]
    fn every_call_may_fail() {
        let kinds = [Kind::Context, Kind::Stream, Kind::Rows, Kind::SetAddress, Kind::SetShape];
        for kind in kinds.into_iter().chain([Kind::CopyIn, Kind::CopyOut]) {
            let world = World::default();
            world.fail(kind, 0, false);
            let gpu = FakeGpu(world.clone());
            sweep(&engine(&world), gpu, &[4], &OPTIONS, &mut |_| ()).expect_err("it fails");
            assert!(world.has_failed(), "{kind:?}");
        }
    }

    #[test]
    fn layers_are_summed_over_the_runs_and_sorted() {
        let world = World::default();
        let gpu = FakeGpu(world.clone());
        let layers = profile(&engine(&world), gpu, 4, &OPTIONS, false).expect("it runs");
        let names: Vec<&str> = layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(names, ["conv1 + relu", "fc", "Reformatting CopyNode for Input 0"]);
        assert_eq!(layers[0].mean, 0.5, "a mean, not a sum");
        assert!(layers[2].is_reformat() && !layers[2].is_convolution());
        assert!(layers[0].is_convolution() && !layers[1].is_convolution());
    }

    /// Where the library waits after each layer, what it says is about the layer that failed.
    #[test]
    fn a_layer_that_fails_is_named_where_each_is_waited_for() {
        for (sync, said) in [(true, "layer fc: what"), (false, "what the library says")] {
            let world = World::default();
            // Not in the warm-up: in the second run that is timed.
            world.fail(Kind::Enqueue, OPTIONS.warm_up + 1, false);
            let gpu = FakeGpu(world.clone());
            let error = profile(&engine(&world), gpu, 4, &OPTIONS, sync).expect_err("it fails");
            assert!(error.to_string().contains(&format!(": {said}")), "{error}");
        }
    }

    #[test]
    fn outputs_are_those_of_the_input_that_was_given() {
        let world = World::default();
        let image = [2.5_f32; 3 * 16 * 16 / 2].map(f32::to_ne_bytes);
        let found = outputs(&engine(&world), FakeGpu(world.clone()), image.as_flattened());
        assert_eq!(found.expect("it runs"), [("features".to_owned(), vec![2.5; 8])]);
        let short = outputs(&engine(&world), FakeGpu(world.clone()), &[0; 3]);
        assert_eq!(short.expect_err("three bytes").to_string(), "an image of 3 B, 1536 are taken");
        for kind in [Kind::Fill, Kind::Enqueue, Kind::CopyOut, Kind::Synchronize] {
            let world = World::default();
            world.fail(kind, 0, false);
            outputs(&engine(&world), FakeGpu(world.clone()), image.as_flattened())
                .expect_err("it fails");
            assert!(world.has_failed(), "{kind:?}");
        }
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times = (1..=10_u8).map(f64::from).collect();
        let (copies_in, copies_out) = (Vec::new(), Vec::new());
        let point = Point { images: 1, times, copies_in, copies_out };
        assert_eq!([50, 90, 95, 99].map(|p| point.percentile(p)), [5.0, 9.0, 10.0, 10.0]);
        assert!(percentile(&[], 50).is_nan());
    }
}
