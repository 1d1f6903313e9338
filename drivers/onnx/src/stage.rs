//! A CPU engine as the core's inference stage.

use std::fmt;

use tensorwire_core::burst::{Burst, InFlight};
use tensorwire_core::port::{Event, Infer, Outputs, StageError, Ticket};

use crate::check::IoPlan;

/// Access to the memory of the batch buffers. The token is the right to read.
pub trait BatchBytes {
    /// The whole buffer that `burst` stands for, from image 0 on.
    fn bytes<'a>(&'a self, burst: &'a Burst<InFlight>) -> &'a [u8];
}

/// A library that runs a model on the CPU, and returns when it is done.
pub trait Engine {
    /// How the model is run.
    fn plan(&self) -> &IoPlan;

    /// Runs the model on `images` images, which lie in `input` one behind the other in the type of
    /// the plan, and writes a row per image to `features` and, where the model has a head, to
    /// `logits`. All three are exactly as long as that takes.
    ///
    /// # Errors
    ///
    /// [`RunError`]; the rows may hold anything then.
    fn run(
        &mut self,
        input: &[u8],
        images: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError>;
}

/// Why one inference failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// The library says so.
    Library(String),
    /// An output is not as long as it was in the model's header.
    OutputLength {
        /// Name of the output.
        name: String,
        /// Elements that came.
        given: usize,
        /// Elements that the header promised.
        expected: usize,
    },
    /// An output is not fp32.
    OutputType {
        /// Name of the output.
        name: String,
    },
    /// The images asked for do not lie in the batch buffer, or are more than one inference takes.
    Images {
        /// First image.
        first: u32,
        /// Number of images.
        images: u32,
        /// Images in the buffer.
        buffer: usize,
        /// Images that one inference takes.
        most: usize,
    },
    /// Two results wait already.
    Full,
    /// The batch waits for a device event, and this stage has no device.
    Event(Event),
}

impl RunError {
    const fn stage_error(&self) -> StageError {
        let (call, code, fatal) = match self {
            Self::Library(_) => ("run of the model", 1, false),
            Self::OutputLength { .. } | Self::OutputType { .. } => {
                ("outputs of the model", 2, true)
            }
            Self::Images { .. } => ("choice of the images", 3, true),
            Self::Full => ("submission of a third inference", 4, false),
            Self::Event(_) => ("wait for a device event", 5, true),
        };
        StageError { call, code, fatal }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(text) => f.write_str(text),
            Self::OutputLength { name, given, expected } => {
                write!(f, "output '{name}' has {given} values, its header promised {expected}")
            }
            Self::OutputType { name } => write!(f, "output '{name}' did not come as fp32"),
            Self::Images { first, images, buffer, most } => write!(
                f,
                "{images} images from image {first} of a buffer of {buffer}; one inference takes \
                 1 to {most}"
            ),
            Self::Full => f.write_str("two results wait to be taken"),
            Self::Event(Event(id)) => write!(f, "event {id}: this stage knows no device events"),
        }
    }
}

impl std::error::Error for RunError {}

/// One finished inference.
#[derive(Debug)]
struct Done {
    ticket: Ticket,
    images: usize,
    features: Vec<f32>,
    logits: Vec<f32>,
}

/// Runs inferences when they are submitted and keeps up to two results, as the core's consumer
/// takes them one submission later. Result rows live in two buffers made at the start.
#[derive(Debug)]
pub struct CpuStage<E, B> {
    engine: E,
    buffers: B,
    slots: [Done; 2],
    /// The slot of the oldest result.
    oldest: usize,
    pending: usize,
    last_error: Option<RunError>,
}

impl<E: Engine, B: BatchBytes> CpuStage<E, B> {
    /// A stage of `engine` over the batch memory `buffers`.
    #[must_use]
    pub fn new(engine: E, buffers: B) -> Self {
        let plan = engine.plan();
        let classes = plan.logits.as_ref().map_or(0, |(_, classes)| *classes);
        let slot = || Done {
            ticket: Ticket(0),
            images: 0,
            features: vec![0.0; plan.max_images * plan.feature_dim],
            logits: vec![0.0; plan.max_images * classes],
        };
        let slots = [slot(), slot()];
        Self { engine, buffers, slots, oldest: 0, pending: 0, last_error: None }
    }

    /// The engine.
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// What went wrong in the last submission that failed: the text behind the number that the
    /// core's [`StageError`] carries.
    pub const fn last_error(&self) -> Option<&RunError> {
        self.last_error.as_ref()
    }

    fn run(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), RunError> {
        if self.pending == self.slots.len() {
            return Err(RunError::Full);
        }
        // A CPU reorder is done when it says so; nothing else could be waited for here.
        if ready != Event::DONE {
            return Err(RunError::Event(ready));
        }
        let plan = self.engine.plan();
        let classes = plan.logits.as_ref().map_or(0, |(_, classes)| *classes);
        let (feature_dim, most) = (plan.feature_dim, plan.max_images);
        let image_bytes = plan.image_elements() * plan.input_type.bytes().unwrap_or(1);
        let buffer = self.buffers.bytes(input);
        let count = images as usize;
        let bytes = (1..=most).contains(&count).then(|| {
            let start = (first as usize).checked_mul(image_bytes)?;
            buffer.get(start..start.checked_add(count * image_bytes)?)
        });
        let Some(bytes) = bytes.flatten() else {
            let buffer = buffer.len() / image_bytes.max(1);
            return Err(RunError::Images { first, images, buffer, most });
        };
        let slot = &mut self.slots[(self.oldest + self.pending) % 2];
        let features = &mut slot.features[..count * feature_dim];
        let logits = &mut slot.logits[..count * classes];
        self.engine.run(bytes, count, features, logits)?;
        slot.ticket = ticket;
        slot.images = count;
        self.pending += 1;
        Ok(())
    }

    fn take_oldest<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending == 0 {
            return None;
        }
        let plan = self.engine.plan();
        let (feature_dim, max_images) = (plan.feature_dim, plan.max_images.max(1));
        let done = &self.slots[self.oldest];
        let classes = done.logits.len() / max_images;
        let outputs = Outputs {
            features: &done.features[..done.images * feature_dim],
            feature_dim,
            logits: &done.logits[..done.images * classes],
            classes,
        };
        let taken = take(done.ticket, outputs);
        self.oldest = (self.oldest + 1) % 2;
        self.pending -= 1;
        Some(Ok(taken))
    }
}

impl<E: Engine, B: BatchBytes> Infer for CpuStage<E, B> {
    fn done_on_submit(&self) -> bool {
        true
    }

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        self.run(ticket, input, first, images, ready).map_err(|error| {
            let stage_error = error.stage_error();
            self.last_error = Some(error);
            stage_error
        })
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending < 2 { None } else { self.take_oldest(take) }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.take_oldest(take)
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.take_oldest(take)
    }
}

#[cfg(test)]
mod tests;
