//! Inference stages without a model: one that hashes images, and one that does nothing.
//!
//! [`HashInfer`] makes the CRC-32 of each image its feature vector, so a test knows for every image
//! that came out whether each of its bytes was right. [`NullInfer`] is `inference_backend: none`:
//! it measures the road there. Both compute in `submit` and keep up to two results, as a device
//! with two batches in flight does, and both can be told to fail ([`FailPlan`]).

use tensorwire_core::burst::{Burst, InFlight};
use tensorwire_core::port::{Event, Infer, Outputs, StageError, Ticket};

use crate::pool::BatchMemory;

/// Codes of the errors of these stages.
pub mod code {
    /// The [`FailPlan`](super::FailPlan) said so.
    pub const PLANNED: i32 = 1;
    /// The batch is of another pool, or the images are not in it.
    pub const NO_INPUT: i32 = 2;
    /// Two submissions are pending already.
    pub const BUSY: i32 = 3;
    /// More images than the stage was made for.
    pub const TOO_MANY: i32 = 4;
    /// A wait for a result that never comes.
    pub const HUNG: i32 = 5;
}

/// Submissions that may be pending at a time, by the contract of [`Infer`].
const DEPTH: usize = 2;

/// Length of a feature row of [`HashInfer`].
pub const CRC_FEATURES: usize = 2;

/// What goes wrong with one inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It is not enqueued.
    Submit {
        /// Whether the stage says that it cannot go on.
        fatal: bool,
    },
    /// It is enqueued and fails on the device.
    Device {
        /// Whether the stage says that it cannot go on.
        fatal: bool,
    },
    /// Its result is there only after this many polls. A call that waits for it does not poll.
    Slow {
        /// Polls that find nothing.
        polls: u32,
    },
    /// Its result never comes: polls find nothing, and a call that waits gives up with the code
    /// [`code::HUNG`], as a driver with a watchdog does.
    Hang,
    /// Its result has one row too few.
    WrongShape,
}

/// Which inferences go wrong, and how. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailPlan {
    /// Ascending by ticket, one entry for each.
    entries: Vec<(Ticket, Failure)>,
}

impl FailPlan {
    /// Everything works.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds a failure of the submission that comes with `ticket`, in place of an earlier one.
    #[must_use]
    pub fn with(mut self, ticket: Ticket, failure: Failure) -> Self {
        match self.entries.binary_search_by_key(&ticket, |entry| entry.0) {
            Ok(at) => self.entries[at].1 = failure,
            Err(at) => self.entries.insert(at, (ticket, failure)),
        }
        self
    }

    /// What goes wrong with `ticket`.
    #[must_use]
    pub fn of(&self, ticket: Ticket) -> Option<Failure> {
        let at = self.entries.binary_search_by_key(&ticket, |entry| entry.0).ok()?;
        Some(self.entries[at].1)
    }
}

/// One result, pending or free to be used again.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    images: usize,
    /// Shape: `[images, feature_dim]`.
    features: Vec<f32>,
    failure: Option<Failure>,
}

/// Up to two pending results, oldest first.
#[derive(Debug)]
struct Results {
    slots: [Pending; DEPTH],
    oldest: usize,
    pending: usize,
    feature_dim: usize,
    max_images: usize,
    plan: FailPlan,
}

impl Results {
    fn new(max_images: usize, feature_dim: usize, plan: FailPlan) -> Self {
        let slot = || Pending {
            ticket: Ticket(0),
            images: 0,
            features: vec![0.0; max_images * feature_dim],
            failure: None,
        };
        let slots = [slot(), slot()];
        Self { slots, oldest: 0, pending: 0, feature_dim, max_images, plan }
    }

    /// The slot for a new submission, which becomes pending.
    fn admit(&mut self, ticket: Ticket, images: u32) -> Result<&mut Pending, StageError> {
        let error = |code, fatal| StageError { call: "submit", code, fatal };
        let images = images as usize;
        if images > self.max_images {
            return Err(error(code::TOO_MANY, true));
        }
        if self.pending == DEPTH {
            return Err(error(code::BUSY, false));
        }
        let failure = self.plan.of(ticket);
        if let Some(Failure::Submit { fatal }) = failure {
            return Err(error(code::PLANNED, fatal));
        }
        let slot = &mut self.slots[(self.oldest + self.pending) % DEPTH];
        self.pending += 1;
        (slot.ticket, slot.images, slot.failure) = (ticket, images, failure);
        Ok(slot)
    }

    /// Ends the oldest pending result, whatever it takes.
    fn wait<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending == 0 {
            return None;
        }
        let slot = &self.slots[self.oldest];
        self.oldest = (self.oldest + 1) % DEPTH;
        self.pending -= 1;
        let error = |code, fatal| Some(Err(StageError { call: "wait", code, fatal }));
        let rows = match slot.failure {
            Some(Failure::Device { fatal }) => return error(code::PLANNED, fatal),
            Some(Failure::Hang) => return error(code::HUNG, true),
            Some(Failure::WrongShape) => slot.images.saturating_sub(1),
            _ => slot.images,
        };
        let outputs = Outputs {
            features: &slot.features[..rows * self.feature_dim],
            feature_dim: self.feature_dim,
            logits: &[],
            classes: 0,
        };
        Some(Ok(take(slot.ticket, outputs)))
    }

    /// Ends the one before the newest, if there are two.
    fn wait_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending == DEPTH { self.wait(take) } else { None }
    }

    /// Ends the oldest pending result if it is there.
    fn poll<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match &mut self.slots[self.oldest].failure {
            _ if self.pending == 0 => None,
            Some(Failure::Hang) => None,
            Some(Failure::Slow { polls }) if *polls > 0 => {
                *polls -= 1;
                None
            }
            _ => self.wait(take),
        }
    }
}

/// The CRC-32 of each image as its features.
///
/// The CRC is the one of Ethernet (reflected polynomial `0xEDB88320`), over all bytes of the image
/// as it lies in the batch. Its upper and its lower 16 bits are one `f32` each, which hold them
/// exactly; [`crc_of`] puts them together again.
#[derive(Debug)]
pub struct HashInfer<'m> {
    memory: &'m BatchMemory,
    image_bytes: usize,
    results: Results,
}

impl<'m> HashInfer<'m> {
    /// A stage for images of `image_bytes` bytes in the batches of `memory`, at most `max_images`
    /// in one submission. `image_bytes` 0 counts as 1.
    #[must_use]
    pub fn new(
        memory: &'m BatchMemory,
        image_bytes: usize,
        max_images: usize,
        plan: FailPlan,
    ) -> Self {
        let results = Results::new(max_images, CRC_FEATURES, plan);
        Self { memory, image_bytes: image_bytes.max(1), results }
    }
}

/// The two features of a CRC.
#[must_use]
pub fn features_of(crc: u32) -> [f32; CRC_FEATURES] {
    let [a, b, c, d] = crc.to_be_bytes();
    [u16::from_be_bytes([a, b]).into(), u16::from_be_bytes([c, d]).into()]
}

/// The CRC of an image from its row of features; `None` if these are no features of
/// [`HashInfer`].
#[must_use]
pub fn crc_of(features: &[f32]) -> Option<u32> {
    let half = |value: f32| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked next")]
        let half = value as u16;
        // Only numbers that u16 has come back as themselves; bits, because 0.0 == -0.0.
        (f32::from(half).to_bits() == value.to_bits()).then_some(half)
    };
    let [high, low] = *features else { return None };
    Some(u32::from(half(high)?) << 16 | u32::from(half(low)?))
}

impl Infer for HashInfer<'_> {
    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        _ready: Event,
    ) -> Result<(), StageError> {
        let no_input = StageError { call: "submit", code: code::NO_INPUT, fatal: true };
        let batch = self.memory.bytes(input).ok_or(no_input)?;
        let start = (first as usize).saturating_mul(self.image_bytes);
        let end = start.saturating_add((images as usize).saturating_mul(self.image_bytes));
        let bytes = batch.get(start..end).ok_or(no_input)?;
        let pending = self.results.admit(ticket, images)?;
        let rows = pending.features.chunks_exact_mut(CRC_FEATURES);
        for (image, row) in bytes.chunks_exact(self.image_bytes).zip(rows) {
            row.copy_from_slice(&features_of(crc32fast::hash(image)));
        }
        Ok(())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.results.wait_previous(take)
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.results.poll(take)
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.results.wait(take)
    }
}

/// No inference: every submission is done at once, and its rows have no columns.
#[derive(Debug)]
pub struct NullInfer {
    results: Results,
}

impl NullInfer {
    /// A stage that takes any batch.
    #[must_use]
    pub fn new(plan: FailPlan) -> Self {
        Self { results: Results::new(usize::MAX, 0, plan) }
    }
}

impl Default for NullInfer {
    fn default() -> Self {
        Self::new(FailPlan::new())
    }
}

impl Infer for NullInfer {
    fn done_on_submit(&self) -> bool {
        true
    }

    fn submit(
        &mut self,
        ticket: Ticket,
        _input: &Burst<InFlight>,
        _first: u32,
        images: u32,
        _ready: Event,
    ) -> Result<(), StageError> {
        self.results.admit(ticket, images).map(|_| ())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.results.wait_previous(take)
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.results.poll(take)
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.results.wait(take)
    }
}

#[cfg(test)]
mod tests;
