//! Stopwatches around the stages: each is a stage itself and passes everything on.

use std::collections::VecDeque;

use tensorwire_core::burst::{Burst, Filling, InFlight, PacketDesc};
use tensorwire_core::port::{Event, Infer, Outputs, PacketMemory, Reorder, StageError, Ticket};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;
use tensorwire_sim::reorder::CpuReorder;

use super::clock::Clock;
use crate::sink::Latency;

/// A reorder stage that may measure its batches itself: a GPU still works when `start` returns.
pub trait Measures: Reorder {
    /// Whether it does.
    fn measures(&self) -> bool {
        false
    }

    /// What it measured for the next batch that is done; `None` until another is.
    fn next_time(&mut self) -> Option<Nanos> {
        None
    }
}

impl Measures for CpuReorder<'_> {}

/// A stage and the time that its work on each batch took: by the clock around the call, or by what
/// a GPU says of its own.
#[derive(Debug)]
pub struct Timed<T> {
    inner: T,
    clock: Clock,
    latency: Latency,
    images: u64,
    /// When each inference began that a device has not finished.
    under_way: VecDeque<Nanos>,
    /// When the last of them came.
    last: Nanos,
}

/// Inferences that may be under way.
const UNDER_WAY: usize = 4;

impl<T> Timed<T> {
    /// Puts a stopwatch around `inner`.
    pub fn new(inner: T, clock: Clock) -> Self {
        let under_way = VecDeque::with_capacity(UNDER_WAY);
        Self { inner, clock, latency: Latency::new(), images: 0, under_way, last: Nanos(0) }
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

impl<T: Measures> Reorder for Timed<T> {
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
        if !self.inner.measures() {
            self.latency.record(self.clock.now().since(began));
        }
        event
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        self.inner.abandon(batch);
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        let count = self.inner.poll_done(done);
        while let Some(time) = self.inner.next_time() {
            self.latency.record(time);
        }
        count
    }
}

/// When a result came: before it is taken, which takes time of its own.
struct Came {
    clock: Clock,
    at: Option<Nanos>,
}

impl Came {
    fn now(&mut self) {
        self.at = Some(self.clock.now());
    }
}

impl<T: Infer> Timed<T> {
    /// Asks the stage for a result, and notes the inference that came, if one did. One that failed
    /// was not taken, and came when the stage said so.
    fn noted<R>(&mut self, ask: impl FnOnce(&mut T, &mut Came) -> Option<R>) -> Option<R> {
        let mut came = Came { clock: self.clock, at: None };
        let result = ask(&mut self.inner, &mut came)?;
        let at = came.at.unwrap_or_else(|| self.clock.now());
        note(&mut self.under_way, &mut self.latency, &mut self.last, at);
        Some(result)
    }
}

impl<T: Infer> Infer for Timed<T> {
    fn done_on_submit(&self) -> bool {
        self.inner.done_on_submit()
    }

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
        if self.inner.done_on_submit() {
            self.latency.record(self.clock.now().since(began));
        } else {
            self.under_way.push_back(began);
        }
        self.images += u64::from(images);
        Ok(())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.noted(|inner, came| {
            inner.take_previous(|ticket, outputs| {
                came.now();
                take(ticket, outputs)
            })
        })
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.noted(|inner, came| {
            inner.poll_idle(|ticket, outputs| {
                came.now();
                take(ticket, outputs)
            })
        })
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.noted(|inner, came| {
            inner.drain(|ticket, outputs| {
                came.now();
                take(ticket, outputs)
            })
        })
    }
}

/// Notes that the oldest inference under way has come at `came`. It took from its submission on, or
/// from the end of the one before, which the device did first.
fn note(under_way: &mut VecDeque<Nanos>, latency: &mut Latency, last: &mut Nanos, came: Nanos) {
    if let Some(began) = under_way.pop_front() {
        latency.record(came.since(began.max(*last)));
        *last = came;
    }
}

#[cfg(test)]
mod tests {
    use tensorwire_core::burst::BurstPool;

    use super::*;

    #[test]
    fn an_inference_under_way_takes_from_the_end_of_the_one_before() {
        let (mut latency, mut last) = (Latency::new(), Nanos(0));
        // The second is submitted while the first one runs: only its own time counts.
        let mut under_way: VecDeque<Nanos> = [Nanos(10), Nanos(20)].into();
        note(&mut under_way, &mut latency, &mut last, Nanos(50));
        assert_eq!(latency.total(), Nanos(40));
        note(&mut under_way, &mut latency, &mut last, Nanos(60));
        assert_eq!(latency.total(), Nanos(50));
        // A device that had a rest: from the submission on.
        under_way.push_back(Nanos(100));
        note(&mut under_way, &mut latency, &mut last, Nanos(103));
        assert_eq!(latency.total(), Nanos(53));
        note(&mut under_way, &mut latency, &mut last, Nanos(200));
        assert_eq!(latency.total(), Nanos(53), "nothing was under way");
    }

    /// A device that says how long it took, some time after `start`.
    struct Device(VecDeque<Nanos>);

    impl Reorder for Device {
        fn place<M: PacketMemory>(
            &mut self,
            _: &mut Burst<Filling>,
            _: u32,
            _: &mut PacketDesc,
            _: &M,
        ) {
        }

        fn start(&mut self, _: &mut Burst<Filling>, _: SlotMap<'_>) -> Result<Event, StageError> {
            Ok(Event(1))
        }

        fn abandon(&mut self, _: &mut Burst<Filling>) {}

        fn poll_done(&mut self, _: &mut [PacketDesc]) -> usize {
            0
        }
    }

    impl Measures for Device {
        fn measures(&self) -> bool {
            true
        }

        fn next_time(&mut self) -> Option<Nanos> {
            self.0.pop_front()
        }
    }

    #[test]
    fn what_a_device_measures_counts_and_not_the_time_of_the_call() {
        let device = Device([Nanos(64), Nanos(96)].into());
        let mut stage = Timed::new(device, Clock::start());
        let mut pool = BurstPool::new(1).expect("one");
        let mut batch = pool.take().expect("one").begin();
        stage.start(&mut batch, SlotMap::new(&[1], 1)).expect("started");
        assert_eq!(stage.latency().count(), 0, "it is not done");
        assert_eq!(stage.poll_done(&mut []), 0);
        assert_eq!(stage.latency().count(), 2);
        assert_eq!(stage.latency().percentile(50), Some(Nanos(64)));
        let _ = batch.abandon();
    }
}
