//! Runs of the program over TensorRT on a machine with a GPU, held against the reference.
//!
//! `tests/gpu/trt.sh` makes the runs there, with the keys and flags that it prints, and starts this
//! program, built elsewhere: `TENSORWIRE_RUNS` names the folder with `fp16-256.json`,
//! `fp16-256.features.npy`, `fp16-256.logits.npy` and the same of 1000 images and of int8.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tensorwire::sink::npy::{self, NpyArray};
use tensorwire_tests::golden::{Golden, IMAGES, LOGIT_FP16, labels};
use tensorwire_tests::{report, shared};

/// What a run of `images` images left.
struct Run {
    name: String,
    summary: Value,
    features: NpyArray,
    logits: NpyArray,
    images: usize,
}

impl Run {
    fn read(folder: &Path, precision: &str, images: usize) -> Self {
        let name = format!("{precision}-{images}");
        let file = |end: &str| folder.join(format!("{name}.{end}"));
        let text = fs::read_to_string(file("json")).expect("the summary of the run");
        let summary = serde_json::from_str(&text).expect("JSON");
        let array = |end: &str| npy::read(&file(end)).expect("an array of the run");
        let (features, logits) = (array("features.npy"), array("logits.npy"));
        Self { name, summary, features, logits, images }
    }

    /// Every image came, from an engine of TensorRT.
    fn assert_complete(&self) {
        let Self { name, summary, .. } = self;
        // The last batch is filled up with images that the data file begins with.
        let sent = self.images.div_ceil(32) * 32;
        for (path, expected) in [
            ("/exit_code", 0),
            ("/images/delivered", sent),
            ("/packets/placed", sent * 128),
            ("/slots/missing", 0),
            ("/not_finite", 0),
            ("/discontinuities", 0),
        ] {
            let found = summary.pointer(path).and_then(Value::as_u64);
            assert_eq!(found, Some(expected as u64), "{name}: {path}");
        }
    }

    /// The class of an image: that of its largest logit, which is what the summary has too.
    fn class(&self, index: usize) -> usize {
        let logits = self.logits.row(index).expect("a row");
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let class = best.map(|(class, _)| class).expect("classes");
        assert_eq!(self.summary["predicted"][index], class, "{}: image {index}", self.name);
        class
    }

    fn correct(&self, labels: &[usize]) -> usize {
        (0..self.images).filter(|&index| self.class(index) == labels[index]).count()
    }
}

/// The runs, and the reference; without them says that and why this is skipped.
fn runs(test: &str) -> Option<(PathBuf, Golden, Vec<usize>)> {
    let Some(folder) = env::var_os("TENSORWIRE_RUNS") else {
        report(&format!("skipped: {test}: TENSORWIRE_RUNS names no runs on a GPU"));
        return None;
    };
    let shared = shared(test)?;
    Some((folder.into(), Golden::read(&shared), labels(&shared)))
}

#[test]
fn fp16_features_and_logits_are_those_of_the_reference() {
    let Some((folder, golden, _)) = runs("features on a GPU") else { return };
    let run = Run::read(&folder, "fp16", 256);
    run.assert_complete();
    let mut worst = 0.0_f32;
    for index in 0..run.images {
        let logits = run.logits.row(index).expect("a row");
        let difference = golden.logit_difference(index, logits);
        assert!(difference <= LOGIT_FP16, "image {index}: a logit differs by {difference}");
        worst = worst.max(difference);
        if let Some(class) = golden.class(index) {
            assert_eq!(run.class(index), class, "image {index}");
        }
    }
    for index in 0..golden.with_features() {
        golden.check_features(index, run.features.row(index).expect("a row"));
    }
    report(&format!("fp16: 256 of 256 images, largest difference of a logit {worst}"));
}

#[test]
fn as_many_images_are_right_as_in_the_reference() {
    let Some((folder, golden, labels)) = runs("accuracy on a GPU") else { return };
    let (images, right) = IMAGES;
    assert_eq!(labels.len(), images);
    for (precision, apart) in [("fp16", 2), ("int8", 10)] {
        let run = Run::read(&folder, precision, images);
        run.assert_complete();
        let correct = run.correct(&labels);
        let alike = (0..images).filter_map(|index| Some((index, golden.class(index)?)));
        let (mut same, mut sure) = (0, 0);
        for (index, class) in alike {
            sure += 1;
            same += usize::from(run.class(index) == class);
        }
        report(&format!(
            "{precision}: {correct} of {images} images right, the reference {right}; of the {sure} \
             that it is sure of {same} alike"
        ));
        assert!(correct.abs_diff(right) <= apart, "{precision}: {correct} of {images}");
    }
}
