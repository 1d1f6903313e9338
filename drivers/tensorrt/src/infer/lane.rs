//! A context with its stream, and a set of rows with its event.
#![allow(unsafe_code)] // promises about device memory, passed on

use std::cell::Cell;
use std::ffi::CString;
use std::marker::PhantomData;

use tensorwire_core::port::{StageError, Ticket};

use super::{Place, Sizes};
use crate::gpu::Gpu;
use crate::planted::planted;
use crate::runtime::Context;

/// An execution context, which one thread may use at a time. It can move to another thread:
/// ```
/// fn moved<T: Send>() {}
/// moved::<tensorwire_tensorrt::infer::OneThread<u32>>();
/// ```
/// and cannot be shared between two, whatever the context is:
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<tensorwire_tensorrt::infer::OneThread<u32>>();
/// ```
#[derive(Debug)]
pub struct OneThread<C> {
    context: C,
    /// A cell is `Send` and not `Sync`, which is what a context of TensorRT is.
    not_sync: PhantomData<Cell<()>>,
}

impl<C> OneThread<C> {
    pub(super) const fn new(context: C) -> Self {
        Self { context, not_sync: PhantomData }
    }

    pub(super) const fn get(&self) -> &C {
        &self.context
    }
}

/// Names of the tensors, as TensorRT takes them.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) input: CString,
    pub(super) features: CString,
    pub(super) logits: Option<CString>,
}

/// One set of rows.
#[derive(Debug)]
pub(super) struct Slot<G: Gpu> {
    pub(super) ticket: Ticket,
    pub(super) images: usize,
    pub(super) features: G::Rows,
    pub(super) logits: Option<G::Rows>,
    pub(super) event: G::Event,
}

/// A context and its stream.
#[derive(Debug)]
pub(super) struct Lane<C, G: Gpu> {
    pub(super) context: OneThread<C>,
    pub(super) stream: G::Stream,
    /// Images of the shape that is set, 0 for none; to set it again costs TensorRT time.
    pub(super) shape: u32,
    /// The slot whose rows are set.
    pub(super) outputs: Option<usize>,
}

impl<C: Context, G: Gpu> Lane<C, G> {
    /// Enqueues an inference and the copy of its rows, call by call.
    ///
    /// # Safety
    ///
    /// `place` names `place.run` images that the GPU can read until this is done, and nobody looks
    /// at the rows of `slot`, which hold that many, until then.
    pub(super) unsafe fn launch(
        &mut self,
        gpu: &mut G,
        slot: &mut Slot<G>,
        names: &Names,
        sizes: &Sizes,
        place: &Place,
    ) -> Result<(), StageError> {
        let context = &mut self.context.context;
        if self.shape != place.run {
            // Unknown until the call has succeeded.
            self.shape = if planted!(ShapeKept) { place.run } else { 0 };
            let [channels, rows, columns] = sizes.image;
            context.set_shape(&names.input, &[i64::from(place.run), channels, rows, columns])?;
            self.shape = place.run;
        }
        context.set_address(&names.input, place.address)?;
        if self.outputs != Some(place.slot) {
            self.outputs = None;
            context.set_address(&names.features, gpu.device_address(&slot.features))?;
            if let (Some(name), Some(rows)) = (&names.logits, &slot.logits) {
                context.set_address(name, gpu.device_address(rows))?;
            }
            self.outputs = Some(place.slot);
        }
        // SAFETY: the caller vouches for input and rows; shape and addresses are those just set.
        unsafe { context.enqueue(gpu.raw(&self.stream))? };
        let run = place.run as usize;
        // SAFETY: the caller vouches that nobody looks at the rows.
        unsafe { gpu.copy_out(&self.stream, &mut slot.features, run * sizes.feature_dim)? };
        if let Some(rows) = &mut slot.logits {
            // SAFETY: as above.
            unsafe { gpu.copy_out(&self.stream, rows, run * sizes.classes)? };
        }
        Ok(())
    }
}
