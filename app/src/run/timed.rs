//! Stopwatches around the stages: each is a stage itself and passes everything on.

use tensorwire_core::burst::{Burst, Filling, InFlight, PacketDesc};
use tensorwire_core::port::{Event, Infer, Outputs, PacketMemory, Reorder, StageError, Ticket};
use tensorwire_core::window::SlotMap;

use super::clock::Clock;
use crate::sink::Latency;

/// A stage and the time that its work on each batch took.
#[derive(Debug)]
pub struct Timed<T> {
    inner: T,
    clock: Clock,
    latency: Latency,
    images: u64,
}

impl<T> Timed<T> {
    /// Puts a stopwatch around `inner`.
    pub fn new(inner: T, clock: Clock) -> Self {
        Self { inner, clock, latency: Latency::new(), images: 0 }
    }

    /// The stage.
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// What the stopwatch showed: one sample per submission.
    pub const fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Images of all submissions that succeeded.
    pub const fn images(&self) -> u64 {
        self.images
    }
}

impl<T: Reorder> Reorder for Timed<T> {
    #[inline]
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        self.inner.place(batch, slot, packet, memory);
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        let began = self.clock.now();
        let event = self.inner.start(batch, placed);
        self.latency.record(self.clock.now().since(began));
        event
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        self.inner.abandon(batch);
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        self.inner.poll_done(done)
    }
}

impl<T: Infer> Infer for Timed<T> {
    const DONE_ON_SUBMIT: bool = T::DONE_ON_SUBMIT;

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        let began = self.clock.now();
        self.inner.submit(ticket, input, first, images, ready)?;
        self.latency.record(self.clock.now().since(began));
        self.images += u64::from(images);
        Ok(())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.inner.take_previous(take)
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.inner.poll_idle(take)
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.inner.drain(take)
    }
}
