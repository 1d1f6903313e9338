//! The sink allocates nothing per batch once it is warm.

use tensorwire::dataset::Labels;
use tensorwire::sink::{FeatureSink, NpyWriter, SinkConfig, SinkOutputs, TimedSink};
use tensorwire_core::pipeline::Anchor;
use tensorwire_core::port::{Delivery, Outputs, Sink};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::ImageMask;

const DIM: usize = 64;
const IMAGES: usize = 32;
const CLASSES: usize = 10;

/// Features that differ from batch to batch, so that each PCA is a new one.
fn fill(values: &mut [f32], batch: u64) {
    let mut state = batch;
    for value in values {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *value = f32::from(u16::try_from(state >> 48).unwrap_or(0)) / 65_536.0;
    }
}

#[test]
fn a_thousand_batches_allocate_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, columns| {
        Some(NpyWriter::create(&folder.path().join(name), 256, columns).expect("room"))
    };
    let config = SinkConfig {
        feature_dim: DIM,
        classes: CLASSES,
        max_images: IMAGES,
        stats_enabled: true,
        top_k: 8,
        pca_every_n_batches: 2,
        unlabelled_told: false,
        labels: Some(Labels::from((0..250).map(|i| i % 10).collect::<Vec<u16>>())),
        class_names: Vec::new(),
        anchoring: None,
        pass_images: Some(256),
    };
    let outputs = SinkOutputs {
        data: Some(Box::new(std::io::sink())),
        talk: Some(Box::new(std::io::sink())),
        features: file("f.npy", DIM),
        logits: file("l.npy", CLASSES),
    };
    let sink = FeatureSink::new(config, outputs).expect("small");
    let mut now = 0;
    let mut sink = TimedSink::new(sink, || {
        now += 1_000;
        Nanos(now)
    });
    let (mut features, logits) = ([0.0; IMAGES * DIM], [0.5; IMAGES * CLASSES]);
    let mut deliver = |batch: u64| {
        fill(&mut features, batch);
        // Every third batch has lost its first image.
        let mut whole = ImageMask::EMPTY;
        (u32::from(batch.is_multiple_of(3))..32).for_each(|image| whole.insert(image));
        let delivery = Delivery {
            batch,
            first_image: batch * IMAGES as u64,
            images: 32,
            whole,
            last_packet: Nanos::ZERO,
            last_of_batch: true,
            anchor: Anchor { join: 0, discontinuities: 0 },
        };
        let outputs =
            Outputs { features: &features, feature_dim: DIM, logits: &logits, classes: CLASSES };
        sink.deliver(&delivery, outputs).expect("it fits");
    };
    // The first batch shows samples and, at image 250, warns of images without a label.
    for batch in 0..8 {
        deliver(batch);
    }
    let info = allocation_counter::measure(|| {
        for batch in 8..1_008 {
            deliver(batch);
        }
    });
    assert_eq!(info.count_total, 0, "{info:?}");
    assert_eq!(sink.inner().report().images, 1_008 * 32 - 336);
    // The count would have seen one.
    let info = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(0_u64))));
    assert_eq!(info.count_total, 1, "{info:?}");
}
