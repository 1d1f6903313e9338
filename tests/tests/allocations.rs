//! No heap allocation in the steady state of our loops.
//!
//! The machines and the stages are those of `run`, in one thread, because the counter counts for
//! one thread. Inference is off (it is not ours): images are hashed instead, or nothing at all.

use std::io;

use allocation_counter::{AllocationInfo, measure};
use tensorwire::dataset::{
    Capture, DEFAULT_HEADER, LoadOptions, PrepareOptions, Source, SyntheticSize, load_capture,
    prepare,
};
use tensorwire::run::clock::Clock;
use tensorwire::run::progress::Progress;
use tensorwire::sink::{Anchoring, FeatureSink, NpyWriter, SinkConfig, SinkOutputs, TimedSink};
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::port::{Delivery, Infer, Outputs, RxQueue, Sink, SinkFault};
use tensorwire_core::sync::Published;
use tensorwire_core::time::Nanos;
use tensorwire_sim::infer::{CRC_FEATURES, FailPlan, HashInfer, NullInfer};
use tensorwire_sim::wire::WireFaults;
use tensorwire_tests::Workplace;
use tensorwire_tests::solo::{Room, Sending, Solo};

const WARM_UP: u64 = 200;
const BATCHES: u64 = 1_000;

/// 16 packets of 4 images in a batch, a number space of 16 batches.
fn geometry() -> Geometry {
    Geometry::new(&GeometrySpec {
        height: 16,
        width: 16,
        packets_per_image: 4,
        images_per_batch: 4,
        payload_bytes: 192,
        seq_bit_width: 8,
        ..GeometrySpec::DOCUMENTED
    })
    .expect("a valid geometry")
}

/// 64 images with labels.
fn capture(place: &Workplace, geometry: &Geometry) -> Capture {
    let out = place.file("c.pcap");
    let options = PrepareOptions {
        source: Source::Synthetic { seed: 1, size: SyntheticSize::default() },
        num_images: Some(64),
        geometry: *geometry,
        header: DEFAULT_HEADER,
        interval_us: 1,
        out: out.clone(),
    };
    prepare(&options, &mut |_, _| {}).expect("a capture");
    let mut flows = FlowTable::new();
    flows.push(&FlowMatch::any(0)).expect("room for one flow");
    load_capture(&out, geometry, &LoadOptions::new(flows)).expect("a capture")
}

/// The sink of `run` with everything on: classes, PCA of every batch, a feature file.
fn sink(
    place: &Workplace,
    geometry: &Geometry,
    capture: &Capture,
    feature_dim: usize,
) -> FeatureSink {
    let config = SinkConfig {
        feature_dim,
        classes: 0,
        max_images: geometry.images_per_batch() as usize,
        stats_enabled: feature_dim > 0,
        top_k: 8,
        pca_every_n_batches: 1,
        unlabelled_told: false,
        labels: capture.labels().cloned(),
        class_names: capture.classes().to_vec(),
        anchoring: Some(Anchoring::new(geometry, Some(capture.images()), false)),
        pass_images: Some(capture.images()),
    };
    let features = (feature_dim > 0).then(|| {
        NpyWriter::create(&place.file("f.npy"), capture.images(), feature_dim).expect("room")
    });
    let (data, talk) = (Some(Box::new(io::sink()) as _), Some(Box::new(io::sink()) as _));
    let outputs = SinkOutputs { data, talk, features, logits: None };
    FeatureSink::new(config, outputs).expect("a sink")
}

/// The sink as `run` wraps it.
fn watched<S: Sink>(sink: S, shown: &Published) -> impl Sink {
    let clock = Clock::start();
    Progress::new(
        TimedSink::new(sink, Box::new(move || clock.now()) as Box<dyn FnMut() -> Nanos>),
        shown,
    )
}

/// What was allocated while [`BATCHES`] batches passed, after the warm-up.
fn steady<Q: RxQueue, I: Infer, S: Sink>(mut solo: Solo<'_, Q, I, S, &Capture>) -> AllocationInfo {
    solo.until_batches(WARM_UP);
    let counted = measure(|| solo.until_batches(WARM_UP + BATCHES));
    let (report, consumer) = solo.report();
    assert!(consumer.delivered > 0 && report.packets.placed > 0, "{report:?}");
    assert!(report.packets.balanced());
    counted
}

#[track_caller]
fn assert_none(counted: &AllocationInfo) {
    assert_eq!(
        (counted.count_total, counted.bytes_total),
        (0, 0),
        "allocations in {BATCHES} batches"
    );
}

#[test]
fn nothing_is_allocated_where_batches_are_only_received() {
    let (place, geometry, shown) = (Workplace::new(), geometry(), Published::new());
    let capture = capture(&place, &geometry);
    let sink = watched(sink(&place, &geometry, &capture, 0), &shown);
    let mut room = Room::new(geometry);
    let solo = room.parts().fused(NullInfer::default(), sink, &capture, Sending::default());
    assert_none(&steady(solo));
}

#[test]
fn nothing_is_allocated_with_statistics_pca_and_a_feature_file() {
    let (place, geometry, shown) = (Workplace::new(), geometry(), Published::new());
    let capture = capture(&place, &geometry);
    let sink = watched(sink(&place, &geometry, &capture, CRC_FEATURES), &shown);
    let mut room = Room::new(geometry);
    let parts = room.parts();
    let infer = HashInfer::new(parts.memory, geometry.image_bytes(), 4, FailPlan::new());
    assert_none(&steady(parts.fused(infer, sink, &capture, Sending::default())));
}

#[test]
fn nothing_is_allocated_on_a_wire_that_loses_doubles_and_shuffles() {
    let (place, geometry, shown) = (Workplace::new(), geometry(), Published::new());
    let capture = capture(&place, &geometry);
    let sink = watched(sink(&place, &geometry, &capture, CRC_FEATURES), &shown);
    let mut room = Room::new(geometry);
    let parts = room.parts();
    let infer = HashInfer::new(parts.memory, geometry.image_bytes(), 4, FailPlan::new());
    let every = |n| std::num::NonZeroU64::new(n);
    let faults = WireFaults { drop: every(101), dup: every(37), shuffle: 4, seed: 7 };
    let sending = Sending { passes: None, faults };
    assert_none(&steady(parts.fused(infer, sink, &capture, sending)));
}

#[test]
fn nothing_is_allocated_with_a_poller_of_its_own() {
    let (place, geometry, shown) = (Workplace::new(), geometry(), Published::new());
    let capture = capture(&place, &geometry);
    let sink = watched(sink(&place, &geometry, &capture, CRC_FEATURES), &shown);
    let mut room = Room::new(geometry);
    let parts = room.parts();
    let infer = HashInfer::new(parts.memory, geometry.image_bytes(), 4, FailPlan::new());
    assert_none(&steady(parts.split(infer, sink, &capture, Sending::default())));
}

/// Allocates once in a hundred deliveries.
struct Wasteful<S>(S, u64);

impl<S: Sink> Sink for Wasteful<S> {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        self.1 += 1;
        if self.1.is_multiple_of(100) {
            drop(std::hint::black_box(vec![0_u8; 64]));
        }
        self.0.deliver(delivery, outputs)
    }
}

#[test]
fn an_allocation_would_be_seen() {
    let (place, geometry, shown) = (Workplace::new(), geometry(), Published::new());
    let capture = capture(&place, &geometry);
    let sink = watched(Wasteful(sink(&place, &geometry, &capture, 0), 0), &shown);
    let mut room = Room::new(geometry);
    let solo = room.parts().fused(NullInfer::default(), sink, &capture, Sending::default());
    let counted = steady(solo);
    assert_eq!(counted.count_total, BATCHES / 100);
    assert_eq!(counted.bytes_total, BATCHES / 100 * 64);
}
