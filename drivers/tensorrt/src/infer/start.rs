//! What is done once: rooms, contexts, streams, a first inference, graphs.
#![allow(unsafe_code)] // the first inference and the recordings; each block says why they may run

use std::ffi::CString;
use std::fmt;

use tensorwire_core::burst::PoolId;
use tensorwire_core::port::{StageError, Ticket};
use tensorwire_onnx::IoPlan;

use super::lane::{Lane, Names, OneThread, Slot};
use super::{Note, Place, Say, Sizes, TrtInfer};
use crate::gpu::{BatchMemory, Gpu};
use crate::runtime::{Context, Engine, RuntimeError};

/// Addresses that TensorRT is given are multiples of this.
const ALIGNMENT: u64 = 256;

/// How the stage is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferOptions {
    /// Images of a batch buffer.
    pub images_per_batch: u32,
    /// The pool that the buffers' tokens belong to.
    pub pool: PoolId,
    /// Record the launches of whole inferences (`enable_cuda_graph`).
    pub graphs: bool,
    /// Two contexts that take turns (`enable_dual_context`).
    pub dual_context: bool,
}

/// Why the stage does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An inference does not fit the batch buffers.
    Geometry(String),
    /// TensorRT gives no context.
    Context(RuntimeError),
    /// The GPU or TensorRT refuses a call, with what TensorRT says about it.
    Device(StageError, String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry(text) => f.write_str(text),
            Self::Context(error) => write!(f, "no execution context: {error}"),
            Self::Device(error, said) if said.is_empty() => write!(f, "{error}"),
            Self::Device(error, said) => write!(f, "{error}: {said}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<StageError> for StartError {
    fn from(error: StageError) -> Self {
        Self::Device(error, String::new())
    }
}

fn sizes<B: BatchMemory>(plan: &IoPlan, memory: &B, batch: u32) -> Result<Sizes, StartError> {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (full, least) = (number(plan.max_images), number(plan.min_images));
    let element = plan.input_type.bytes().unwrap_or(0);
    let image_bytes = (plan.image_elements() * element) as u64;
    let refuse = |text| Err(StartError::Geometry(text));
    if full == 0 || batch == 0 || !batch.is_multiple_of(full) || least > full {
        return refuse(format!(
            "batches of {batch} images are not whole inferences of {full} (at least {least})"
        ));
    }
    let needed = u64::from(batch) * image_bytes;
    if image_bytes == 0 || (memory.bytes() as u64) < needed {
        let given = memory.bytes();
        return refuse(format!("a batch buffer of {given} B, a batch takes {needed}"));
    }
    let step = u64::from(full) * image_bytes;
    if full != batch && !step.is_multiple_of(ALIGNMENT) {
        return refuse(format!(
            "an inference of {full} images takes {step} B, which is no multiple of {ALIGNMENT}: \
             the next one would begin at an address that TensorRT does not take; infer more at once"
        ));
    }
    for buffer in 0..memory.buffers() {
        let address = memory.address(buffer);
        if !address.is_some_and(|address| address != 0 && address.is_multiple_of(ALIGNMENT)) {
            return refuse(format!(
                "batch buffer {buffer} lies at {address:#x?}, which is no multiple of {ALIGNMENT}"
            ));
        }
    }
    Ok(Sizes {
        batch,
        full,
        least,
        image_bytes,
        image: plan.image.map(|n| i64::try_from(n).unwrap_or(i64::MAX)),
        feature_dim: plan.feature_dim,
        classes: plan.logits.as_ref().map_or(0, |(_, classes)| *classes),
    })
}

fn names(plan: &IoPlan) -> Result<Names, StartError> {
    let name = |name: &str| {
        CString::new(name)
            .map_err(|_| StartError::Geometry(format!("a tensor name with a zero byte: {name:?}")))
    };
    Ok(Names {
        input: name(&plan.input_name)?,
        features: name(&plan.output_name)?,
        logits: plan.logits.as_ref().map(|(logits, _)| name(logits)).transpose()?,
    })
}

fn slot<G: Gpu>(gpu: &mut G, sizes: &Sizes) -> Result<Slot<G>, StageError> {
    let full = sizes.full as usize;
    let logits = (sizes.classes > 0).then(|| gpu.rows(full * sizes.classes)).transpose()?;
    Ok(Slot {
        ticket: Ticket(0),
        images: 0,
        features: gpu.rows(full * sizes.feature_dim)?,
        logits,
        event: gpu.event()?,
    })
}

impl<C: Context, G: Gpu, B: BatchMemory> TrtInfer<C, G, B> {
    /// A stage that runs `engine` over the batch buffers `memory`. One inference is run by each
    /// context, so that nothing is loaded or tuned later; graphs are recorded, and each is launched
    /// once, so that it lies on the GPU when the first batch comes.
    ///
    /// # Errors
    ///
    /// [`StartError`]. That graphs cannot be recorded is none: it is said, and the stage runs
    /// without.
    pub fn new<E: Engine<Context = C>>(
        engine: &E,
        plan: &IoPlan,
        mut gpu: G,
        memory: B,
        options: &InferOptions,
        say: Say,
    ) -> Result<Self, StartError> {
        let sizes = sizes(plan, &memory, options.images_per_batch)?;
        let names = names(plan)?;
        let _entered = gpu.enter()?;
        let mut lanes = Vec::new();
        for _ in 0..if options.dual_context { 2 } else { 1 } {
            let context = OneThread::new(engine.context().map_err(StartError::Context)?);
            lanes.push(Lane { context, stream: gpu.stream()?, shape: 0, outputs: None });
        }
        let slots = [slot(&mut gpu, &sizes)?, slot(&mut gpu, &sizes)?];
        let mut stage = Self {
            graphs: Box::default(),
            lanes: lanes.into(),
            slots,
            memory,
            gpu,
            names,
            sizes,
            pool: options.pool,
            oldest: 0,
            pending: 0,
            say,
            other_size_said: false,
            failed_lane: 0,
        };
        stage.first_inferences()?;
        if options.graphs {
            match stage.record_graphs() {
                Ok(graphs) => stage.graphs = graphs.into(),
                Err(error) if error.fatal => return Err(stage.explained(error)),
                Err(error) => (stage.say)(Note::NoGraphs(error)),
            }
            stage.first_launches().map_err(|error| stage.explained(error))?;
        }
        Ok(stage)
    }

    fn explained(&self, error: StageError) -> StartError {
        StartError::Device(error, self.last_error().to_owned())
    }

    /// Runs each context once: kernels are loaded, and a recording needs a shape that has settled.
    fn first_inferences(&mut self) -> Result<(), StartError> {
        for lane in 0..self.lanes.len() {
            let Some(address) = self.memory.address(0) else {
                return Err(StartError::Geometry("there is no batch buffer".into()));
            };
            let place = Place { address, run: self.sizes.full, slot: lane, lane, graph: None };
            self.failed_lane = lane;
            // SAFETY: the stage is new: no token of the buffer is in flight, whatever bytes it
            // holds may be read, and nobody has rows. The wait below ends it.
            let result = unsafe { self.launch(&place) };
            let waited = self.gpu.synchronize(&self.lanes[lane].stream);
            result.and(waited).and_then(|()| self.rehearse(lane)).map_err(|e| self.explained(e))?;
        }
        Ok(())
    }

    /// Makes the calls by which a result is waited for, of which the first ones cost more: the
    /// bindings look a function up when it is first called.
    fn rehearse(&mut self, slot: usize) -> Result<(), StageError> {
        let (lane, event) = (slot % self.lanes.len(), &self.slots[slot].event);
        self.gpu.record(&self.lanes[lane].stream, event)?;
        self.gpu.wait(event)?;
        self.gpu.done(event).map(|_| ())
    }

    /// Launches each graph once.
    fn first_launches(&mut self) -> Result<(), StageError> {
        for graph in 0..self.graphs.len() {
            let slot = graph / (self.graphs.len() / self.slots.len());
            let lane = slot % self.lanes.len();
            self.failed_lane = lane;
            let (stream, graph) = (&self.lanes[lane].stream, &self.graphs[graph]);
            // SAFETY: the stage is new: no token of a buffer is in flight, whatever bytes it holds
            // may be read, and nobody has rows. The wait below ends it.
            let result = unsafe { self.gpu.launch(stream, graph) };
            result.and(self.gpu.synchronize(stream))?;
        }
        Ok(())
    }

    /// Launches what a place says, call by call.
    ///
    /// # Safety
    ///
    /// As [`Lane::launch`]; `place` names a lane, a slot and an address of this stage.
    unsafe fn launch(&mut self, place: &Place) -> Result<(), StageError> {
        let (lane, slot) = (&mut self.lanes[place.lane], &mut self.slots[place.slot]);
        // SAFETY: passed on.
        unsafe { lane.launch(&mut self.gpu, slot, &self.names, &self.sizes, place) }
    }

    /// Records every whole inference that there can be: set of rows × batch buffer × part of it, in
    /// the order of [`TrtInfer::graph_number`].
    fn record_graphs(&mut self) -> Result<Vec<G::Graph>, StageError> {
        let mut graphs = Vec::new();
        for slot in 0..self.slots.len() {
            for buffer in 0..self.memory.buffers() {
                let Some(base) = self.memory.address(buffer) else { continue };
                for part in 0..self.sizes.batch / self.sizes.full {
                    let first = u64::from(part) * u64::from(self.sizes.full);
                    let address = base + first * self.sizes.image_bytes;
                    let lane = slot % self.lanes.len();
                    let run = self.sizes.full;
                    graphs.push(self.record(&Place { address, run, slot, lane, graph: None })?);
                }
            }
        }
        Ok(graphs)
    }

    fn record(&mut self, place: &Place) -> Result<G::Graph, StageError> {
        self.failed_lane = place.lane;
        self.gpu.begin_capture(&self.lanes[place.lane].stream)?;
        // SAFETY: while the stream records, nothing runs.
        let recorded = unsafe { self.launch(place) };
        // Ended in any case, or the stream would go on recording.
        let graph = self.gpu.end_capture(&self.lanes[place.lane].stream);
        recorded?;
        graph
    }
}
