//! What the images of each class have in common: mean features, predictions, the confusion table.

use serde::Serialize;

use super::config::SinkError;

/// Most memory that the sums of the classes may take.
const MAX_TABLE_BYTES: usize = 1 << 30;

/// The name of a class, as a line of text can show it: a control character becomes U+FFFD.
fn shown(names: &[String], class: u16) -> String {
    names.get(usize::from(class)).map_or_else(
        || "unknown".to_owned(),
        |name| name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
    )
}

/// Sums over the images of each class that occurs among the labels.
#[derive(Debug)]
pub(super) struct ClassTable {
    /// The classes that occur, ascending, with their names. The place is the class's slot.
    classes: Vec<(u16, String)>,
    /// Label `i` as a slot.
    slots: Vec<usize>,
    feature_dim: usize,
    /// Shape: `[slots, feature_dim]`.
    sums: Vec<f64>,
    /// Images in `sums`, by slot.
    images: Vec<u64>,
    predictable: usize,
    /// Shape: `[slots, predictable]`: images of the class by the class predicted for them.
    confusion: Vec<u64>,
}

/// What is known about one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// The number of the class.
    pub class: u16,
    /// Its name, or `unknown`.
    pub name: String,
    /// Images of the class in the mean.
    pub images: u64,
    /// The first `top_k` dimensions of the mean feature vector.
    pub mean: Vec<f64>,
    /// L2 norm of the whole mean feature vector.
    pub norm: f64,
}

/// How the images of one class were predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfusionRow {
    /// The number of the class that the labels name.
    pub class: u16,
    /// Its name, or `unknown`.
    pub name: String,
    /// Entry `p`: images of this class that were predicted as class `p`.
    pub predicted: Vec<u64>,
}

impl ClassTable {
    /// A table for the classes that occur in `labels`, label `i` being that of image `i` of a pass,
    /// and name `c` that of class `c`; `keep_means` says whether features are
    /// summed up, `predictable` how many classes the model tells apart (0 without a head).
    pub(super) fn new(
        labels: &[u16],
        names: &[String],
        feature_dim: usize,
        keep_means: bool,
        predictable: usize,
    ) -> Result<Self, SinkError> {
        let mut ids = labels.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let feature_dim = if keep_means { feature_dim } else { 0 };
        let bytes = (feature_dim + predictable).checked_mul(8 * ids.len());
        if bytes.is_none_or(|bytes| bytes > MAX_TABLE_BYTES) {
            return Err(SinkError::Classes {
                classes: ids.len(),
                values: feature_dim + predictable,
                max_bytes: MAX_TABLE_BYTES,
            });
        }
        // Every label is among the ids, so the search finds it.
        let slots = labels.iter().map(|class| ids.partition_point(|id| id < class));
        Ok(Self {
            slots: slots.collect(),
            feature_dim,
            sums: vec![0.0; ids.len() * feature_dim],
            images: vec![0; ids.len()],
            predictable,
            confusion: vec![0; ids.len() * predictable],
            classes: ids.into_iter().map(|class| (class, shown(names, class))).collect(),
        })
    }

    /// Labels there are.
    pub(super) fn labels(&self) -> usize {
        self.slots.len()
    }

    /// The slot of image `index` of the stream, where a pass has `pass` images.
    pub(super) fn slot(&self, index: u64, pass: Option<u64>) -> Option<usize> {
        // A pass of no images cannot deliver one; `checked_rem` saves the division all the same.
        let in_pass = pass.map_or(Some(index), |images| index.checked_rem(images))?;
        self.slots.get(usize::try_from(in_pass).ok()?).copied()
    }

    /// The number and the name of the class in a slot.
    pub(super) fn class(&self, slot: usize) -> Option<(u16, &str)> {
        self.classes.get(slot).map(|(class, name)| (*class, name.as_str()))
    }

    /// The largest class among the labels.
    pub(super) fn largest(&self) -> Option<u16> {
        self.classes.last().map(|(class, _)| *class)
    }

    /// Adds the features of an image.
    pub(super) fn add(&mut self, slot: usize, features: &[f32]) {
        if self.feature_dim == 0 {
            return;
        }
        let sums = &mut self.sums[slot * self.feature_dim..(slot + 1) * self.feature_dim];
        sums.iter_mut().zip(features).for_each(|(sum, &value)| *sum += f64::from(value));
        self.images[slot] += 1;
    }

    /// Adds the prediction for an image.
    pub(super) fn predict(&mut self, slot: usize, predicted: u32) {
        let Ok(predicted) = usize::try_from(predicted) else { return };
        if predicted < self.predictable {
            self.confusion[slot * self.predictable + predicted] += 1;
        }
    }

    /// The classes of which an image was added.
    pub(super) fn means(&self, top_k: usize) -> Vec<ClassReport> {
        let mut reports = Vec::new();
        for (slot, (class, name)) in self.classes.iter().enumerate() {
            let images = self.images[slot];
            if images == 0 {
                continue;
            }
            let sums = &self.sums[slot * self.feature_dim..(slot + 1) * self.feature_dim];
            let mean = |sum: &f64| sum / images as f64;
            let norm = sums.iter().map(|sum| mean(sum) * mean(sum)).sum::<f64>().sqrt();
            let top = sums.iter().take(top_k).map(mean).collect();
            reports.push(ClassReport {
                class: *class,
                name: name.clone(),
                images,
                mean: top,
                norm,
            });
        }
        reports
    }

    /// The confusion table: the classes of which an image was predicted.
    pub(super) fn confusion(&self) -> Vec<ConfusionRow> {
        if self.predictable == 0 {
            return Vec::new();
        }
        let rows = self.classes.iter().zip(self.confusion.chunks_exact(self.predictable));
        rows.filter(|(_, counts)| counts.iter().any(|&n| n > 0))
            .map(|((class, name), counts)| ConfusionRow {
                class: *class,
                name: name.clone(),
                predicted: counts.to_vec(),
            })
            .collect()
    }

    /// Images with a label and a prediction, and those where the two agree.
    pub(super) fn scored(&self) -> (u64, u64) {
        let scored = self.confusion.iter().sum();
        let correct = self.classes.iter().enumerate().filter_map(|(slot, (class, _))| {
            let class = usize::from(*class);
            let known = class < self.predictable;
            known.then(|| self.confusion[slot * self.predictable + class])
        });
        (scored, correct.sum())
    }
}

/// The class with the largest logit, of equal ones the first. `None` when a logit is not finite
/// (or there is none): such a row is no prediction.
pub(super) fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (class, &logit) in (0..).zip(logits) {
        if !logit.is_finite() {
            return None;
        }
        if best.is_none_or(|(_, largest)| logit > largest) {
            best = Some((class, logit));
        }
    }
    best.map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(labels: &[u16], dim: usize, means: bool, predictable: usize) -> ClassTable {
        let names = ["plane", "car", "bi\trd"].map(str::to_owned);
        ClassTable::new(labels, &names, dim, means, predictable).expect("small")
    }

    #[test]
    fn means_and_norms_by_hand() {
        let mut table = table(&[2, 0, 2, 7], 3, true, 0);
        table.add(table.slot(0, None).expect("labelled"), &[1.0, 2.0, 6.0]);
        table.add(table.slot(2, None).expect("labelled"), &[3.0, 2.0, -2.0]);
        table.add(table.slot(3, None).expect("labelled"), &[0.0, 3.0, 4.0]);
        let norm = (4.0_f64 + 4.0 + 4.0).sqrt();
        let report = |class, name: &str, images, mean: [f64; 2], norm| ClassReport {
            class,
            name: name.to_owned(),
            images,
            mean: mean.to_vec(),
            norm,
        };
        assert_eq!(
            table.means(2),
            [
                report(2, "bi\u{fffd}rd", 2, [2.0, 2.0], norm),
                report(7, "unknown", 1, [0.0, 3.0], 5.0),
            ]
        );
    }

    #[test]
    fn the_label_of_an_image_is_that_of_its_place_in_the_pass() {
        let table = table(&[5, 1, 3], 1, true, 0);
        let class = |index, pass| Some(table.class(table.slot(index, pass)?)?.0);
        // Three labels, passes of four images: the fourth of each has none.
        assert_eq!(
            (0..9).map(|i| class(i, Some(4))).collect::<Vec<_>>(),
            [Some(5), Some(1), Some(3), None, Some(5), Some(1), Some(3), None, Some(5)]
        );
        // Without a pass nothing wraps around.
        assert_eq!(class(2, None), Some(3));
        assert_eq!(class(3, None), None);
        assert_eq!(class(u64::MAX, None), None);
        assert_eq!(class(0, Some(0)), None);
    }

    #[test]
    fn confusion_and_accuracy_by_hand() {
        // Class 9 is beyond the three that the model knows: always wrong.
        let mut table = table(&[1, 0, 9], 4, false, 3);
        for (image, predicted) in [(0, 1), (0, 1), (0, 2), (1, 0), (2, 2)] {
            table.predict(table.slot(image, None).expect("labelled"), predicted);
        }
        let rows = table.confusion();
        let found: Vec<_> = rows.iter().map(|row| (row.class, row.predicted.clone())).collect();
        assert_eq!(found, [(0, vec![1, 0, 0]), (1, vec![0, 2, 1]), (9, vec![0, 0, 1])]);
        assert_eq!(table.scored(), (5, 3));
        assert!(table.means(4).is_empty());
    }

    #[test]
    fn a_table_that_would_eat_the_memory_is_refused() {
        let labels: Vec<u16> = (0..=u16::MAX).collect();
        let error = ClassTable::new(&labels, &[], 2048, true, 10).expect_err("1 GB and more");
        assert!(matches!(error, SinkError::Classes { classes: 65_536, values: 2058, .. }));
        // Few classes with large numbers are no trouble.
        assert_eq!(table(&[u16::MAX, 3], 2048, true, 10).largest(), Some(u16::MAX));
    }

    #[test]
    fn argmax_takes_the_first_of_equals_and_nothing_from_nonsense() {
        assert_eq!(argmax(&[0.5, 2.0, 2.0, -1.0]), Some(1));
        assert_eq!(argmax(&[-3.0]), Some(0));
        assert_eq!(argmax(&[]), None);
        assert_eq!(argmax(&[1.0, f32::NAN, 3.0]), None);
        assert_eq!(argmax(&[1.0, f32::INFINITY]), None);
    }
}
