use std::sync::{Arc, Mutex};

use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::pipeline::Anchor;

use super::*;
use crate::dataset::Labels;
use crate::sink::{Anchoring, npy};

/// A writer that the test can look into. Remembers each call, or fails.
#[derive(Clone, Default)]
struct Page {
    calls: Arc<Mutex<Vec<String>>>,
    fails: Option<io::ErrorKind>,
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(kind) = self.fails {
            self.calls.lock().expect("one thread").push(String::new());
            return Err(kind.into());
        }
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        self.calls.lock().expect("one thread").push(text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("one thread").clone()
    }

    fn failing(kind: io::ErrorKind) -> Self {
        Self { fails: Some(kind), ..Self::default() }
    }
}

fn config() -> SinkConfig {
    SinkConfig {
        feature_dim: 3,
        classes: 0,
        max_images: 4,
        stats_enabled: true,
        top_k: 2,
        pca_every_n_batches: 0,
        labels: None,
        unlabelled_told: false,
        anchoring: None,
        class_names: ["plane", "car", "bird"].map(str::to_owned).to_vec(),
        pass_images: None,
    }
}

fn labels(classes: &[u16]) -> Labels {
    Labels::from(classes.to_vec())
}

/// A sink, what it says, and what it prints.
fn sink(config: SinkConfig) -> (FeatureSink, Page, Page) {
    let (talk, data) = (Page::default(), Page::default());
    let outputs = SinkOutputs {
        data: Some(Box::new(data.clone())),
        talk: Some(Box::new(talk.clone())),
        ..SinkOutputs::default()
    };
    (FeatureSink::new(config, outputs).expect("small"), talk, data)
}

/// One submission of four images.
#[derive(Clone, Copy)]
struct Batch {
    first_image: u64,
    /// Bit `r`: row `r` is whole.
    mask: u32,
    images: u32,
    outputs: Outputs<'static>,
}

fn batch(first_image: u64, mask: u32, features: &'static [f32]) -> Batch {
    let outputs = Outputs { features, feature_dim: 3, logits: &[], classes: 0 };
    Batch { first_image, mask, images: 4, outputs }
}

/// The same with logits of `classes` classes.
fn predicted(
    first_image: u64,
    mask: u32,
    features: &'static [f32],
    logits: &'static [f32],
    classes: usize,
) -> Batch {
    let outputs = Outputs { features, feature_dim: 3, logits, classes };
    Batch { first_image, mask, images: 4, outputs }
}

impl Batch {
    fn delivery(&self) -> Delivery {
        let mut whole = ImageMask::EMPTY;
        (0..32).filter(|bit| self.mask >> bit & 1 == 1).for_each(|image| whole.insert(image));
        Delivery {
            batch: 0,
            first_image: self.first_image,
            images: self.images,
            whole,
            last_packet: tensorwire_core::time::Nanos::ZERO,
            last_of_batch: true,
            anchor: Anchor { join: 0, discontinuities: 0 },
        }
    }

    fn to(&self, sink: &mut FeatureSink) {
        sink.take(&self.delivery(), self.outputs).expect("it fits");
    }
}

/// Four images of three features.
const FOUR: &[f32] = &[0.1842, 0.0, 0.4521, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, -0.000_01, 9.0, 8.0];

#[test]
fn the_first_two_vectors_are_shown_with_their_class() {
    let (mut sink, talk, _) = sink(SinkConfig { labels: Some(labels(&[2, 1, 0, 9])), ..config() });
    batch(0, 0b1101, FOUR).to(&mut sink);
    assert_eq!(
        talk.calls(),
        [
            "  feature[image 0, class 2 (bird)] = [0.1842, 0.0000, ...] (dim=3)\n",
            "  feature[image 2, class 0 (plane)] = [5.0000, 6.0000, ...] (dim=3)\n",
        ]
    );
    let (mut all, talk, _) = self::sink(SinkConfig { top_k: 8, ..config() });
    batch(3, 0b1000, FOUR).to(&mut all);
    assert_eq!(
        talk.calls(),
        ["  feature[image 6, unlabelled] = [0.0000, 9.0000, 8.0000] (dim=3)\n"]
    );
}

#[test]
fn only_whole_images_count_and_each_under_its_own_label() {
    let (mut sink, _, _) =
        sink(SinkConfig { labels: Some(labels(&[0, 1, 0, 1])), pass_images: Some(4), ..config() });
    // The second image of each batch is damaged; the second batch is the second pass.
    batch(0, 0b1101, FOUR).to(&mut sink);
    batch(4, 0b1101, FOUR).to(&mut sink);
    // A part of a batch none of whose images is whole.
    batch(8, 0, FOUR).to(&mut sink);
    let report = sink.report();
    assert_eq!((report.batches, report.images, report.unlabelled), (2, 6, 0));
    let counts: Vec<_> = report.classes.iter().map(|c| (c.class, c.images)).collect();
    assert_eq!(counts, [(0, 4), (1, 2)]);
    let mean = &report.classes[0].mean;
    assert!((mean[0] - (f64::from(0.1842_f32) + 5.0) / 2.0).abs() < 1e-12, "{mean:?}");
    assert!((mean[1] - 3.0).abs() < 1e-12, "{mean:?}");
}

#[test]
fn s01_images_without_a_label_are_counted_apart_with_one_warning() {
    // Sixteen images, ten labels.
    let few = labels(&[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    let few = SinkConfig { labels: Some(few), pass_images: Some(16), ..config() };
    let (mut sink, talk, _) = self::sink(few.clone());
    for first in [0, 4, 8, 12] {
        batch(first, 0b1111, FOUR).to(&mut sink);
    }
    let (mut told, silent, _) = self::sink(SinkConfig { unlabelled_told: true, ..few });
    batch(8, 0b1111, FOUR).to(&mut told);
    assert_eq!(told.report().unlabelled, 2);
    let warns = |line: &String| line.starts_with("warning");
    assert_eq!(silent.calls().iter().filter(|line| warns(line)).count(), 0, "said before");
    let report = sink.report();
    assert_eq!((report.images, report.unlabelled), (16, 6));
    assert_eq!(report.classes.iter().map(|class| class.images).sum::<u64>(), 10);
    let warnings: Vec<_> =
        talk.calls().into_iter().filter(|line| line.starts_with("warning")).collect();
    assert_eq!(
        warnings,
        ["warning: image 10 has no label (10 labels for 16 images): such images are counted as \
          unlabelled and left out of the class means\n"]
    );
}

#[test]
fn s01_no_label_at_all_warns_once_where_labels_are_expected_only() {
    for (labels, warnings) in [(Some(labels(&[])), 1), (None, 0)] {
        let (mut sink, talk, _) = sink(SinkConfig { labels, stats_enabled: false, ..config() });
        batch(0, 0b1111, FOUR).to(&mut sink);
        batch(4, 0b1111, FOUR).to(&mut sink);
        assert_eq!(talk.calls().len(), warnings, "{:?}", talk.calls());
        let report = sink.report();
        assert_eq!((report.images, report.unlabelled, report.classes.len()), (8, 8, 0));
    }
}

#[test]
fn a_stream_without_an_anchor_has_no_classes() {
    let all = SinkConfig {
        labels: Some(labels(&[0, 1, 2, 0])),
        classes: 3,
        pca_every_n_batches: 1,
        pass_images: Some(4),
        ..config()
    };
    let (mut sink, talk, data) = sink(all);
    let logits: &'static [f32] = &[9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0];
    predicted(0, 0b1111, FOUR, logits, 3).to(&mut sink);
    assert!(!sink.report().classes.is_empty());
    // It turns out later that the place in the data set is not certain.
    sink.doubt(Uncertain::Discontinuity);
    sink.doubt(Uncertain::Join { wire: 7 });
    predicted(4, 0b1111, FOUR, logits, 3).to(&mut sink);
    let report = sink.report();
    let why = report.withheld.expect("a reason");
    assert!(why.starts_with("the stream took another position, so the place"), "{why}");
    assert!(report.classes.is_empty() && report.confusion.is_empty());
    assert_eq!((report.scored, report.images, report.unlabelled), (0, 8, 4));
    // What was predicted does not hang on a label.
    assert_eq!(report.predicted, Some(vec![Some(0); 4]));
    assert!(data.calls()[1].lines().all(|line| line.ends_with(" class=-1")), "{:?}", data.calls());
    assert!(talk.calls().iter().all(|line| !line.starts_with("warning")), "{:?}", talk.calls());
}

#[test]
fn the_anchor_of_a_delivery_is_judged_before_its_images_are_labelled() {
    let geometry = Geometry::new(&GeometrySpec::DOCUMENTED).expect("valid");
    let mut late = batch(40, 0b1111, FOUR).delivery();
    late.anchor.join = 600;
    for (pass, labelled) in [(32, true), (256, false)] {
        let (mut sink, _, _) = sink(SinkConfig {
            labels: Some(labels(&[0; 256])),
            anchoring: Some(Anchoring::new(&geometry, Some(pass), false)),
            ..config()
        });
        sink.take(&late, batch(40, 0b1111, FOUR).outputs).expect("it fits");
        let report = sink.report();
        assert_eq!(report.unlabelled, if labelled { 0 } else { 4 });
        assert_eq!(report.withheld.is_none(), labelled);
    }
}

#[test]
fn predictions_accuracy_and_confusion() {
    let all = SinkConfig {
        labels: Some(labels(&[0, 1, 2, 1])),
        classes: 3,
        pass_images: Some(6),
        ..config()
    };
    let (mut sink, _, _) = sink(all);
    let logits: &'static [f32] = &[0.9, 0.1, 0.0, 0.0, 0.0, 0.5, 0.0, 1.0, 2.0, 3.0, 1.0, 2.0];
    predicted(0, 0b1011, FOUR, logits, 3).to(&mut sink);
    let report = sink.report();
    // Image 2 was damaged; images 4 and 5 have not come.
    assert_eq!(report.predicted, Some(vec![Some(0), Some(2), None, Some(0), None, None]));
    assert_eq!((report.scored, report.correct), (3, 1));
    let rows: Vec<_> = report.confusion.iter().map(|row| (row.class, &row.predicted[..])).collect();
    assert_eq!(rows, [(0, &[1, 0, 0][..]), (1, &[1, 0, 1][..])]);
    // The second pass writes over the first.
    predicted(7, 0b0001, FOUR, logits, 3).to(&mut sink);
    assert_eq!(sink.report().predicted.expect("a head")[1], Some(0));
}

#[test]
fn predictions_beyond_the_limit_are_left_out_and_said_so() {
    let (mut sink, _, _) = sink(SinkConfig { classes: 1, ..config() });
    predicted(MAX_PREDICTED - 3, 0b0111, FOUR, &[0.0; 4], 1).to(&mut sink);
    assert!(!sink.report().predicted_truncated);
    predicted(MAX_PREDICTED - 1, 0b0111, FOUR, &[0.0; 4], 1).to(&mut sink);
    let report = sink.report();
    assert!(report.predicted_truncated);
    assert_eq!(report.predicted.map(|list| list.len() as u64), Some(MAX_PREDICTED));
}

#[test]
fn labels_beyond_the_models_classes_are_said_before_the_first_batch() {
    let (_, talk, _) = sink(SinkConfig { labels: Some(labels(&[0, 7])), classes: 7, ..config() });
    assert_eq!(talk.calls().len(), 1);
    assert!(talk.calls()[0].starts_with("warning: the labels name class 7, the model tells 7 "));
}

#[test]
fn values_that_are_not_finite_stay_out_of_every_statistic() {
    const BAD: &[f32] =
        &[1.0, f32::INFINITY, 0.0, 2.0, 3.0, 4.0, f32::NAN, 0.0, 0.0, 6.0, 3.0, 4.0];
    let all = SinkConfig {
        labels: Some(labels(&[0, 0, 0, 0])),
        classes: 2,
        pca_every_n_batches: 1,
        ..config()
    };
    let (mut sink, _, data) = sink(all);
    let logits: &'static [f32] = &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, f32::NAN];
    predicted(0, 0b1111, BAD, logits, 2).to(&mut sink);
    let report = sink.report();
    assert_eq!((report.images, report.not_finite, report.scored), (4, 3, 1));
    assert_eq!(report.classes[0].images, 1);
    assert_eq!(report.classes[0].mean, [2.0, 3.0]);
    assert_eq!(report.predicted, Some(vec![None, Some(0)]));
    assert_eq!(data.calls(), ["pc1=0.0000 pc2=0.0000 image=1 class=0\n"]);
}

#[test]
fn pca_lines_come_every_nth_batch_for_its_delivered_images_only() {
    let all = SinkConfig { labels: Some(labels(&[0, 1, 2])), pca_every_n_batches: 2, ..config() };
    let (mut sink, _, data) = sink(all);
    // Along (0, 1, 0), around a mean of 2: scores −2, 0, 2. Image 1 of each is damaged, far out.
    const LINE: &[f32] = &[1.0, 0.0, 5.0, 900.0, 900.0, 1.0, 1.0, 2.0, 5.0, 1.0, 4.0, 5.0];
    for first in 0..5 {
        batch(first, 0b1101, LINE).to(&mut sink);
    }
    let block = |first: u64, classes: [i64; 3]| {
        format!(
            "pc1=-2.0000 pc2=0.0000 image={} class={}\npc1=0.0000 pc2=0.0000 image={} class={}\n\
             pc1=2.0000 pc2=0.0000 image={} class={}\n",
            first,
            classes[0],
            first + 2,
            classes[1],
            first + 3,
            classes[2]
        )
    };
    // One write for each block: the second and the fourth batch.
    assert_eq!(data.calls(), [block(1, [1, -1, -1]), block(3, [-1, -1, -1])]);
}

#[test]
fn statistics_that_are_off_print_and_sum_nothing_but_predict() {
    let off = SinkConfig {
        stats_enabled: false,
        pca_every_n_batches: 1,
        labels: Some(labels(&[0, 1, 2, 0])),
        classes: 1,
        ..config()
    };
    let (mut sink, talk, data) = sink(off);
    predicted(0, 0b1111, FOUR, &[0.0; 4], 1).to(&mut sink);
    let report = sink.report();
    assert!(report.classes.is_empty());
    assert_eq!((report.images, report.scored, report.correct), (4, 4, 2));
    assert!(data.calls().is_empty());
    // The label of class 2 has no counterpart in a model of one class.
    assert_eq!(talk.calls().len(), 1);
}

#[test]
fn a_closed_stdout_ends_the_lines_and_nothing_else() {
    for (kind, fails) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
        let data = Page::failing(kind);
        let outputs = SinkOutputs {
            data: Some(Box::new(data.clone())),
            talk: Some(Box::new(Page::failing(io::ErrorKind::BrokenPipe))),
            ..SinkOutputs::default()
        };
        let with_pca = SinkConfig { pca_every_n_batches: 1, ..config() };
        let mut sink = FeatureSink::new(with_pca, outputs).expect("small");
        for first in [0, 4, 8] {
            batch(first, 0b1111, FOUR).to(&mut sink);
        }
        assert_eq!(data.calls().len(), 1, "tried once");
        assert_eq!(sink.report().images, 12);
        let finished = sink.finish();
        assert_eq!(matches!(finished, Err(SinkError::Data(_))), fails, "{finished:?}");
    }
}

#[test]
fn the_file_of_the_logits_holds_those_of_the_same_images() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("logits.npy");
    let logits = Some(NpyWriter::create(&path, 10, 3).expect("room"));
    let outputs = SinkOutputs { logits, ..SinkOutputs::default() };
    let config = SinkConfig { classes: 3, ..config() };
    let mut sink = FeatureSink::new(config, outputs).expect("small");
    const LOGITS: &[f32] = &[9.0, 0.0, 1.0, 9.0, 2.0, 0.0, 9.0, 0.0, 3.0, 9.0, 4.0, 0.0];
    predicted(3, 0b1011, FOUR, LOGITS, 3).to(&mut sink);
    assert_eq!(sink.finish().expect("room"), None, "there is no feature file");
    let array = npy::read(&path).expect("what was written");
    for (image, row) in [(3, 0), (4, 1), (6, 3)] {
        assert_eq!(array.row(image), Some(&LOGITS[row * 3..row * 3 + 3]), "image {image}");
    }
    for image in [0, 2, 5, 7, 9] {
        assert!(array.row(image).is_some_and(|row| row[0].is_nan()), "image {image}");
    }
}

#[test]
fn the_file_holds_the_whole_images_of_every_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("features.npy");
    let features = Some(NpyWriter::create(&path, 10, 3).expect("room"));
    let outputs = SinkOutputs { features, ..SinkOutputs::default() };
    let mut sink = FeatureSink::new(config(), outputs).expect("small");
    batch(0, 0b1011, FOUR).to(&mut sink);
    batch(4, 0b0000, FOUR).to(&mut sink);
    batch(6, 0b1110, FOUR).to(&mut sink);
    assert_eq!(sink.finish().expect("room"), Some(path.clone()));
    assert_eq!(sink.finish().expect("done before"), None);
    let array = npy::read(&path).expect("what was written");
    for (image, row) in [(0, 0), (1, 1), (3, 3), (7, 1), (8, 2), (9, 3)] {
        assert_eq!(array.row(image), Some(&FOUR[row * 3..row * 3 + 3]), "image {image}");
    }
    for image in [2, 4, 5, 6] {
        assert!(array.row(image).is_some_and(|row| row[0].is_nan()), "image {image}");
    }
}

#[test]
fn a_batch_of_another_shape_is_refused_whole_and_the_first_fault_kept() {
    let (mut sink, _, _) = sink(config());
    let good = Outputs { features: FOUR, feature_dim: 3, logits: &[], classes: 0 };
    let bad = [
        (4, Outputs { feature_dim: 4, ..good }, "4 features per image, expected 3"),
        (4, Outputs { classes: 2, ..good }, "2 classes, expected 0"),
        (4, Outputs { features: &FOUR[..11], ..good }, "11 features, expected 12"),
        (3, good, "12 features, expected 9"),
        (4, Outputs { logits: &[0.0], ..good }, "1 logits, expected 0"),
        (5, Outputs { features: &[0.0; 15], ..good }, "5 images, expected 4"),
    ];
    for (images, outputs, words) in bad {
        let delivery = Batch { images, ..batch(0, 0b1111, FOUR) }.delivery();
        let error = sink.take(&delivery, outputs).expect_err(words);
        assert_eq!(error.to_string(), format!("a batch with {words}"));
        assert_eq!(sink.deliver(&delivery, outputs), Err(SinkFault { fatal: true }));
    }
    assert_eq!(sink.report().images, 0);
    let fault = sink.fault().map(ToString::to_string);
    assert_eq!(fault.as_deref(), Some("a batch with 4 features per image, expected 3"));
}

#[test]
fn a_stage_without_features_is_counted() {
    let off = SinkConfig { feature_dim: 0, pca_every_n_batches: 1, ..config() };
    let (mut sink, talk, data) = sink(off);
    let nothing = Outputs { features: &[], feature_dim: 0, logits: &[], classes: 0 };
    sink.take(&batch(5, 0b1011, FOUR).delivery(), nothing).expect("nothing to refuse");
    let report = sink.report();
    assert_eq!((report.images, report.batches, report.span), (3, 1, Some((5, 9))));
    assert!(talk.calls().is_empty() && data.calls().is_empty());
}
