//! Lets others see how many images were delivered: whoever draws a bar, and a record of a crash.

use tensorwire_core::port::{Delivery, Outputs, Sink, SinkFault};
use tensorwire_core::sync::Published;

use super::noted;

/// A sink that shows what it took.
#[derive(Debug)]
pub struct Progress<'a, S> {
    inner: S,
    images: u64,
    batches: u64,
    shown: &'a Published,
}

impl<'a, S> Progress<'a, S> {
    /// Shows in `shown` what `inner` took.
    pub const fn new(inner: S, shown: &'a Published) -> Self {
        Self { inner, images: 0, batches: 0, shown }
    }

    /// The sink.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The sink.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Sink> Sink for Progress<'_, S> {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        self.inner.deliver(delivery, outputs)?;
        self.batches += 1;
        self.images += u64::from(delivery.whole.count());
        self.shown.set(self.images);
        noted::delivered(self.images, self.batches);
        Ok(())
    }
}
