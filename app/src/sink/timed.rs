//! A sink with a watch: when images were delivered, and how long after their last packet.

use tensorwire_core::port::{Delivery, Outputs, Sink, SinkFault};
use tensorwire_core::time::Nanos;

use super::latency::Latency;
use super::rates::RateMeter;

/// Passes deliveries on to another sink and takes the time of each that it accepts. The clock is
/// the caller's, so a virtual one will do.
#[derive(Debug)]
pub struct TimedSink<S, C> {
    inner: S,
    clock: C,
    meter: RateMeter,
    last_packet_to_features: Latency,
}

impl<S: Sink, C: FnMut() -> Nanos> TimedSink<S, C> {
    /// A watch on `inner`. `clock` has the epoch of the times in the deliveries.
    pub fn new(inner: S, clock: C) -> Self {
        Self { inner, clock, meter: RateMeter::new(), last_packet_to_features: Latency::new() }
    }

    /// When images were delivered.
    #[must_use]
    pub const fn meter(&self) -> &RateMeter {
        &self.meter
    }

    /// By batch: the time from its last packet to the features of its last image.
    #[must_use]
    pub const fn last_packet_to_features(&self) -> &Latency {
        &self.last_packet_to_features
    }

    /// The sink behind the watch.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The sink behind the watch.
    pub const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: Sink, C: FnMut() -> Nanos> Sink for TimedSink<S, C> {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        self.inner.deliver(delivery, outputs)?;
        let now = (self.clock)();
        self.meter.delivered(now, u64::from(delivery.whole.count()));
        if delivery.last_of_batch {
            self.last_packet_to_features.record(now.since(delivery.last_packet));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tensorwire_core::pipeline::Anchor;
    use tensorwire_core::window::ImageMask;

    use super::*;

    /// Takes everything but what begins with image 99.
    struct Picky;

    impl Sink for Picky {
        fn deliver(&mut self, delivery: &Delivery, _: Outputs<'_>) -> Result<(), SinkFault> {
            if delivery.first_image == 99 { Err(SinkFault { fatal: false }) } else { Ok(()) }
        }
    }

    #[test]
    fn each_batch_is_one_sample_and_each_image_counts() {
        let mut now = 0;
        let mut sink = TimedSink::new(Picky, || {
            now += 100;
            Nanos(now)
        });
        // A batch in two parts, one that the sink refuses, and one in one part.
        for (first_image, images, last_packet, last_of_batch) in
            [(0, 3, 40, false), (4, 2, 40, true), (99, 4, 210, true), (8, 4, 250, true)]
        {
            let delivery = Delivery {
                batch: 0,
                first_image,
                images: 4,
                whole: ImageMask::first(images),
                last_packet: Nanos(last_packet),
                last_of_batch,
                anchor: Anchor { join: 0, discontinuities: 0 },
            };
            let outputs = Outputs { features: &[], feature_dim: 0, logits: &[], classes: 0 };
            let taken = sink.deliver(&delivery, outputs);
            assert_eq!(taken.is_err(), first_image == 99);
        }
        assert_eq!(sink.meter().images(), 9);
        assert_eq!(sink.meter().first(), Some(Nanos(100)));
        // The second part at 200 − 40, the last batch at 300 − 250.
        let latency = sink.last_packet_to_features();
        assert_eq!((latency.count(), latency.total()), (2, Nanos(160 + 50)));
    }
}
