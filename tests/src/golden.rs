//! The reference: logits and features that another implementation computed from the same weights
//! and images.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Largest difference of a logit on the CPU. Relative differences mean nothing near 0.
pub const LOGIT: f32 = 0.02;
/// The same of an engine that computes in fp16.
pub const LOGIT_FP16: f32 = 0.1;
/// Images of the data file, and those of them that the reference has right.
pub const IMAGES: (usize, usize) = (1000, 943);
/// Largest relative difference of a feature vector, in L2.
const FEATURES: f32 = 0.01;
/// Where the best class leads by less, the classes may change places.
const MARGIN: f32 = 0.1;

/// What is known about one of the first images.
#[derive(Clone, Debug)]
struct Image {
    first_features: Vec<f32>,
    norm: f32,
}

/// The reference of the shared data.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Of each image.
    logits: Vec<Vec<f32>>,
    images: Vec<Image>,
}

impl Golden {
    /// Reads it from the shared folder.
    ///
    /// # Panics
    ///
    /// If it is not what is expected there.
    #[must_use]
    pub fn read(shared: &Path) -> Self {
        let text = fs::read_to_string(shared.join("models/golden.json")).expect("golden.json");
        let value: Value = serde_json::from_str(&text).expect("golden.json is JSON");
        let image = |image: &Value| Image {
            first_features: numbers(&image["feat8"]),
            norm: number(&image["feat_l2"]),
        };
        Self {
            logits: list(&value["logits1000"]).iter().map(numbers).collect(),
            images: list(&value["golden"]).iter().map(image).collect(),
        }
    }

    /// How many images features are known of.
    #[must_use]
    pub const fn with_features(&self) -> usize {
        self.images.len()
    }

    /// The class of image `index`, unless the reference itself is in doubt between two.
    #[must_use]
    pub fn class(&self, index: usize) -> Option<usize> {
        let mut order: Vec<usize> = (0..self.logits[index].len()).collect();
        order.sort_by(|&a, &b| self.logits[index][b].total_cmp(&self.logits[index][a]));
        let lead = self.logits[index][order[0]] - self.logits[index][order[1]];
        (lead >= MARGIN).then_some(order[0])
    }

    /// The largest difference of a logit of image `index`.
    #[must_use]
    pub fn logit_difference(&self, index: usize, logits: &[f32]) -> f32 {
        let expected = &self.logits[index];
        assert_eq!(logits.len(), expected.len(), "classes");
        logits.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, worst)
    }

    /// Compares the features of one of the first images.
    ///
    /// # Panics
    ///
    /// If they are not those of the reference.
    #[track_caller]
    pub fn check_features(&self, index: usize, features: &[f32]) {
        let image = &self.images[index];
        let l2 = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
        let pairs = features.iter().zip(&image.first_features);
        let apart = l2(&mut pairs.map(|(a, b)| a - b));
        let all = l2(&mut image.first_features.iter().copied());
        assert!(apart <= FEATURES * all, "image {index}: the first features differ by {apart}");
        let norm = l2(&mut features.iter().copied());
        let apart = (norm - image.norm).abs();
        assert!(apart <= FEATURES * image.norm, "image {index}: |features| differs by {apart}");
    }
}

/// The class of each image of the data file, in its order.
///
/// # Panics
///
/// If the file is not there.
#[must_use]
pub fn labels(shared: &Path) -> Vec<usize> {
    let source = fs::read(shared.join("data/cifar10_test_1000.bin")).expect("the images");
    source.chunks_exact(3073).map(|record| usize::from(record[0])).collect()
}

/// The larger of two differences; a NaN is the largest.
fn worst(a: f32, b: f32) -> f32 {
    if b.is_nan() || b > a { b } else { a }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the reference was computed in fp32")]
    let number = value.as_f64().expect("a number") as f32;
    number
}

fn numbers(value: &Value) -> Vec<f32> {
    list(value).iter().map(number).collect()
}
