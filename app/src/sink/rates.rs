//! Rates that do not mislead.
//!
//! The *wall* rate runs from the start of the run to its end; a wait for the first packet is in it.
//! The *active* rate runs from the first delivered batch to the last. The first batch marks the
//! start of that window, so its own images, which were made before it, do not count: ten batches of
//! 32 over one second are 9 × 32 = 288 images/s. With one batch there is no window and no rate. A
//! rate that cannot be known is `None`, never 0, infinite or NaN.

use tensorwire_core::time::Nanos;

/// The window from the first to the last delivered batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateMeter {
    first: Option<Nanos>,
    last: Nanos,
    images: u64,
    first_images: u64,
}

impl RateMeter {
    /// Nothing delivered yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: None, last: Nanos::ZERO, images: 0, first_images: 0 }
    }

    /// Adds a delivery of `images` images at `now`. One without images does not count.
    pub fn delivered(&mut self, now: Nanos, images: u64) {
        if images == 0 {
            return;
        }
        if self.first.is_none() {
            self.first = Some(now);
            self.first_images = images;
        }
        self.last = now;
        self.images += images;
    }

    /// Images delivered in all.
    #[must_use]
    pub const fn images(&self) -> u64 {
        self.images
    }

    /// When the first images were delivered.
    #[must_use]
    pub const fn first(&self) -> Option<Nanos> {
        self.first
    }

    /// Length of the window and the images made in it; `None` unless it has a length.
    fn window(&self) -> Option<(Nanos, u64)> {
        let length = self.last.since(self.first?);
        (length > Nanos::ZERO).then(|| (length, self.images - self.first_images))
    }
}

/// What was received, and from when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxWindow {
    /// When the first packet was placed.
    pub first: Nanos,
    /// When the last packet was placed.
    pub last: Nanos,
    /// Payload bytes of all packets placed.
    pub payload_bytes: u64,
}

/// What the rates of a run are made from.
#[derive(Clone, Copy, Debug)]
pub struct RateInputs<'a> {
    /// When the run began: the receiver was ready.
    pub started: Nanos,
    /// When the last result was delivered or the run was given up.
    pub ended: Nanos,
    /// The deliveries.
    pub meter: &'a RateMeter,
    /// The reception; `None` when no packet was placed.
    pub rx: Option<RxWindow>,
    /// Time spent in inference alone, all batches added up.
    pub infer_total: Nanos,
    /// Images that went through inference in that time.
    pub inferred_images: u64,
}

/// The rates of a run. `None` is "cannot be known".
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Rates {
    /// Seconds from the start of the run to its end.
    pub wall_seconds: f64,
    /// Seconds from the start of the run to the first delivered batch.
    pub before_first_batch_seconds: Option<f64>,
    /// Seconds from the first delivered batch to the last.
    pub active_seconds: Option<f64>,
    /// Images delivered per second of the whole run.
    pub wall_images_per_s: Option<f64>,
    /// Images delivered after the first batch per second of the active window.
    pub active_images_per_s: Option<f64>,
    /// Payload bits placed per second from the first packet to the last, in 10⁹.
    pub rx_payload_gbps: Option<f64>,
    /// Images inferred per second of inference time.
    pub infer_only_images_per_s: Option<f64>,
}

/// `amount` per second over `span`; `None` for a span of no length.
fn per_second(amount: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO).then(|| amount as f64 / span.as_secs_f64())
}

impl Rates {
    /// The rates of a run.
    #[must_use]
    pub fn new(inputs: &RateInputs<'_>) -> Self {
        let wall = inputs.ended.since(inputs.started);
        let window = inputs.meter.window();
        let infer_only = per_second(inputs.inferred_images, inputs.infer_total);
        Self {
            wall_seconds: wall.as_secs_f64(),
            before_first_batch_seconds: inputs
                .meter
                .first()
                .map(|first| first.since(inputs.started).as_secs_f64()),
            active_seconds: window.map(|(length, _)| length.as_secs_f64()),
            wall_images_per_s: per_second(inputs.meter.images(), wall),
            active_images_per_s: window.and_then(|(length, images)| per_second(images, length)),
            rx_payload_gbps: inputs.rx.and_then(|rx| {
                per_second(rx.payload_bytes, rx.last.since(rx.first)).map(|bytes| bytes * 8.0 / 1e9)
            }),
            infer_only_images_per_s: infer_only.filter(|_| inputs.inferred_images > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(meter: &RateMeter, ended_ms: u64) -> Rates {
        Rates::new(&RateInputs {
            started: Nanos::ZERO,
            ended: Nanos::from_millis(ended_ms),
            meter,
            rx: None,
            infer_total: Nanos::ZERO,
            inferred_images: 0,
        })
    }

    #[test]
    fn s05_a_wait_does_not_lower_the_active_rate() {
        // 7 s of nothing, then ten batches of 32 over one second: at 7.0, 7.111…, …, 8.0 s.
        let mut meter = RateMeter::new();
        for i in 0..10 {
            meter.delivered(Nanos(7_000_000_000 + i * 1_000_000_000 / 9), 32);
        }
        let rates = rates(&meter, 8_000);
        assert_eq!(rates.wall_images_per_s, Some(40.0));
        assert_eq!(rates.active_seconds, Some(1.0));
        assert_eq!(rates.active_images_per_s, Some(288.0));
        assert_eq!(rates.before_first_batch_seconds, Some(7.0));
    }

    #[test]
    fn s05_one_batch_has_no_active_rate() {
        let mut meter = RateMeter::new();
        meter.delivered(Nanos::from_secs(2), 32);
        let rates = rates(&meter, 4_000);
        assert_eq!(rates.wall_images_per_s, Some(8.0));
        assert_eq!(rates.active_images_per_s, None);
        assert_eq!(rates.active_seconds, None);
    }

    #[test]
    fn s05_no_image_and_no_time_divide_nothing_by_nothing() {
        let none = rates(&RateMeter::new(), 0);
        assert_eq!(none, Rates::default());
        let waited = rates(&RateMeter::new(), 5_000);
        assert_eq!(waited.wall_images_per_s, Some(0.0));
        assert_eq!(waited.active_images_per_s, None);
        // Two batches in the same instant: a window without length.
        let mut meter = RateMeter::new();
        meter.delivered(Nanos::ZERO, 1);
        meter.delivered(Nanos::ZERO, 1);
        assert_eq!(rates(&meter, 1_000).active_images_per_s, None);
    }

    #[test]
    fn a_window_that_starts_at_time_zero_is_a_window() {
        let mut meter = RateMeter::new();
        meter.delivered(Nanos::ZERO, 4);
        meter.delivered(Nanos::from_millis(250), 0); // all images of this one were damaged
        meter.delivered(Nanos::from_millis(500), 2);
        let rates = rates(&meter, 500);
        assert_eq!(rates.active_images_per_s, Some(4.0));
        assert_eq!(rates.wall_images_per_s, Some(12.0));
        assert_eq!(rates.before_first_batch_seconds, Some(0.0));
    }

    #[test]
    fn network_and_inference_have_rates_of_their_own() {
        let mut meter = RateMeter::new();
        meter.delivered(Nanos::from_secs(1), 32);
        let rates = Rates::new(&RateInputs {
            started: Nanos::ZERO,
            ended: Nanos::from_secs(1),
            meter: &meter,
            // 38,535,168 B in 10 ms: 8 batches' worth of int8 payload.
            rx: Some(RxWindow {
                first: Nanos::from_millis(5),
                last: Nanos::from_millis(15),
                payload_bytes: 32_768 * 1_176,
            }),
            infer_total: Nanos::from_millis(500),
            inferred_images: 32,
        });
        assert_eq!(rates.infer_only_images_per_s, Some(64.0));
        let gbps = rates.rx_payload_gbps.expect("two packets or more");
        assert!((gbps - 30.828_134_4).abs() < 1e-9, "{gbps}");
    }
}
