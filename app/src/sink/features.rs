//! The sink itself: what becomes of the features of each delivered batch.

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use tensorwire_core::port::{Delivery, Outputs, Sink, SinkFault};
use tensorwire_core::window::ImageMask;

use super::anchoring::Uncertain;
use super::classes::{ClassReport, ClassTable, ConfusionRow, argmax};
use super::config::{SinkConfig, SinkError, SinkOutputs};
use super::lines::Lines;
use super::npy::NpyWriter;
use super::pca::Pca;

/// Most images whose predicted class is kept.
pub const MAX_PREDICTED: u64 = 100_000;
/// Feature vectors that are shown.
const SAMPLES: u32 = 2;
/// "No prediction" in the list of predictions.
const NONE: u32 = u32::MAX;
/// Room for one PCA line. The longest usual one is well below; a longer one still fits, it costs
/// an allocation.
const PCA_LINE_BYTES: usize = 128;
/// Room for one sample: a line of talk.
const SAMPLE_BYTES: usize = 512;

/// What the sink found out. Part of the summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SinkReport {
    /// Submissions of which at least one image was taken.
    pub batches: u64,
    /// Images taken.
    pub images: u64,
    /// The indices of the images taken lie in `[first, end)`; `None` without one.
    pub span: Option<(u64, u64)>,
    /// Images taken that have no label.
    pub unlabelled: u64,
    /// Images taken whose features or logits hold a value that is not finite. They are in no mean,
    /// PCA or prediction.
    pub not_finite: u64,
    /// Dimensions shown of a mean.
    pub top_k: usize,
    /// Why the statistics by class are withheld.
    pub withheld: Option<String>,
    /// Mean features by class.
    pub classes: Vec<ClassReport>,
    /// How each class was predicted.
    pub confusion: Vec<ConfusionRow>,
    /// Images with a label and a prediction.
    pub scored: u64,
    /// Those of them whose prediction is their label.
    pub correct: u64,
    /// Entry `i`: the class predicted for image `i` of the pass, by the last pass.
    pub predicted: Option<Vec<Option<u32>>>,
    /// Whether images from [`MAX_PREDICTED`] on were left out of `predicted`.
    pub predicted_truncated: bool,
}

/// The rows of one submission.
struct Rows<'a> {
    first_image: u64,
    whole: ImageMask,
    rows: usize,
    outputs: Outputs<'a>,
}

impl<'a> Rows<'a> {
    fn is_whole(&self, row: usize) -> bool {
        u32::try_from(row).is_ok_and(|row| self.whole.contains(row))
    }

    /// The rows of whole images.
    fn whole(&self) -> impl Iterator<Item = usize> {
        (0..self.rows).filter(|&row| self.is_whole(row))
    }

    /// Index in the stream of the image of a row.
    fn index(&self, row: usize) -> u64 {
        self.first_image.saturating_add(row as u64)
    }

    fn features(&self, rows: Range<usize>) -> &'a [f32] {
        let dim = self.outputs.feature_dim;
        &self.outputs.features[rows.start * dim..rows.end * dim]
    }

    fn logits(&self, rows: Range<usize>) -> &'a [f32] {
        let classes = self.outputs.classes;
        &self.outputs.logits[rows.start * classes..rows.end * classes]
    }
}

/// Takes the results of submissions: the [`Sink`] at the end of the pipeline. After it is made it
/// allocates nothing.
#[derive(Debug)]
pub struct FeatureSink {
    config: SinkConfig,
    outputs: SinkOutputs,
    /// Why no image has a certain place in the data set, from then on.
    doubt: Option<Uncertain>,
    table: Option<ClassTable>,
    pca: Option<Pca>,
    /// Rows at hand that go into the PCA: (row of the submission, class or −1).
    pca_rows: Vec<(usize, i64)>,
    lines: Lines,
    samples: u32,
    warned: bool,
    data_error: Option<io::Error>,
    batches: u64,
    images: u64,
    /// The images taken lie in `[first, end)`.
    span: Option<(u64, u64)>,
    unlabelled: u64,
    not_finite: u64,
    fault: Option<SinkError>,
    /// By image of the pass; [`NONE`] where there is no prediction.
    predicted: Vec<u32>,
    predicted_end: usize,
    predicted_truncated: bool,
}

impl FeatureSink {
    /// A sink with room for everything it will need.
    ///
    /// # Errors
    ///
    /// [`SinkError::Classes`] when the labels name so many classes that their sums would not fit.
    pub fn new(config: SinkConfig, outputs: SinkOutputs) -> Result<Self, SinkError> {
        let (dim, classes) = (config.feature_dim, config.classes);
        let table = config.labels.as_ref().map(|labels| {
            let names = &config.class_names;
            ClassTable::new(labels.as_slice(), names, dim, config.stats_enabled, classes)
        });
        let table = table.transpose()?;
        let wants_pca =
            config.stats_enabled && config.pca_every_n_batches > 0 && config.feature_dim > 0;
        let pca = (wants_pca && outputs.data.is_some())
            .then(|| Pca::new(config.max_images, config.feature_dim));
        let predicted = if config.classes == 0 {
            0
        } else {
            config.pass_images.unwrap_or(MAX_PREDICTED).min(MAX_PREDICTED)
        };
        let room = if pca.is_some() { config.max_images * PCA_LINE_BYTES } else { 0 };
        let warned = config.unlabelled_told;
        let mut sink = Self {
            table,
            pca,
            pca_rows: Vec::with_capacity(config.max_images),
            lines: Lines::with_capacity(room.max(SAMPLE_BYTES)),
            predicted: vec![NONE; usize::try_from(predicted).unwrap_or(0)],
            config,
            outputs,
            doubt: None,
            samples: 0,
            warned,
            data_error: None,
            batches: 0,
            images: 0,
            span: None,
            unlabelled: 0,
            not_finite: 0,
            fault: None,
            predicted_end: 0,
            predicted_truncated: false,
        };
        sink.check_labels();
        Ok(sink)
    }

    /// One warning where labels and model cannot be of the same kind.
    fn check_labels(&mut self) {
        let Some(class) = self.table.as_ref().and_then(ClassTable::largest) else { return };
        let classes = self.config.classes;
        if classes > 0 && usize::from(class) >= classes {
            self.talk(format_args!(
                "warning: the labels name class {class}, the model tells {classes} classes apart: \
                 such images count as wrong"
            ));
        }
    }

    /// States that the place of images in the data set is not certain. From now on no image gets a
    /// class, and the statistics by class are withheld. The first reason stands.
    pub fn doubt(&mut self, why: Uncertain) {
        self.doubt.get_or_insert(why);
    }

    /// Takes the whole images of one submission.
    ///
    /// A closed stdout ends the PCA lines and is no error; one that fails in another way ends them
    /// too, and [`FeatureSink::finish`] says so: the images themselves were taken.
    ///
    /// # Errors
    ///
    /// [`SinkError::Shape`] and [`SinkError::File`]; then no image of the submission is in the
    /// statistics, and its images count as `dropped.sink_failed`.
    pub fn take(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkError> {
        let rows = usize::try_from(delivery.images).unwrap_or(usize::MAX);
        self.check(rows, &outputs)?;
        let rows = Rows { first_image: delivery.first_image, whole: delivery.whole, rows, outputs };
        self.store(&rows)?;
        let anchoring = self.config.anchoring;
        if let Some(why) = anchoring.and_then(|anchoring| anchoring.doubt(delivery.anchor)) {
            self.doubt(why);
        }
        let before = self.images;
        self.pca_rows.clear();
        for row in rows.whole() {
            self.take_image(&rows, row);
        }
        if self.images > before {
            self.batches += 1;
            if self.pca.is_some() && self.batches.is_multiple_of(self.config.pca_every_n_batches) {
                self.print_pca(&rows);
            }
        }
        Ok(())
    }

    /// Whether the results have the shape the sink was made for.
    fn check(&self, rows: usize, outputs: &Outputs<'_>) -> Result<(), SinkError> {
        let same = |what, given, expected| {
            if given == expected { Ok(()) } else { Err(SinkError::Shape { what, given, expected }) }
        };
        same("features per image", outputs.feature_dim, self.config.feature_dim)?;
        same("classes", outputs.classes, self.config.classes)?;
        same("images", rows, rows.min(self.config.max_images))?;
        same("features", outputs.features.len(), rows * outputs.feature_dim)?;
        same("logits", outputs.logits.len(), rows * outputs.classes)
    }

    /// Writes the rows of whole images to the files, each run of neighbours by one call.
    fn store(&self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let (features, logits) = (&self.outputs.features, &self.outputs.logits);
        if features.is_none() && logits.is_none() {
            return Ok(());
        }
        let mut row = 0;
        while row < rows.rows {
            let end = (row..rows.rows).find(|&row| !rows.is_whole(row)).unwrap_or(rows.rows);
            if end > row {
                let first = rows.index(row);
                if let Some(file) = features {
                    file.write_rows(first, rows.features(row..end))?;
                }
                if let Some(file) = logits {
                    file.write_rows(first, rows.logits(row..end))?;
                }
            }
            row = end + 1;
        }
        Ok(())
    }

    /// Counts one image and adds it to what it belongs to.
    fn take_image(&mut self, rows: &Rows<'_>, row: usize) {
        let (index, features, logits) =
            (rows.index(row), rows.features(row..row + 1), rows.logits(row..row + 1));
        let slot = self.slot(index);
        self.images += 1;
        let (first, end) = self.span.unwrap_or((index, index));
        self.span = Some((first.min(index), end.max(index + 1)));
        if slot.is_none() {
            self.unlabelled += 1;
            self.warn_unlabelled(index);
        }
        if self.config.stats_enabled && self.samples < SAMPLES && !features.is_empty() {
            self.samples += 1;
            self.print_sample(index, slot, features);
        }
        let prediction = argmax(logits);
        let finite = features.iter().all(|value| value.is_finite());
        if !finite || (prediction.is_none() && !logits.is_empty()) {
            self.not_finite += 1;
            return;
        }
        if let Some(class) = prediction {
            self.keep_prediction(index, class);
        }
        if let (Some(slot), Some(table)) = (slot, &mut self.table) {
            table.add(slot, features);
            if let Some(class) = prediction {
                table.predict(slot, class);
            }
        }
        if self.pca.is_some() {
            let class = slot.and_then(|slot| self.table.as_ref()?.class(slot));
            self.pca_rows.push((row, class.map_or(-1, |(class, _)| i64::from(class))));
        }
    }

    /// The class table's slot for an image, where a class can be told.
    fn slot(&self, index: u64) -> Option<usize> {
        self.table.as_ref().filter(|_| self.doubt.is_none())?.slot(index, self.config.pass_images)
    }

    fn keep_prediction(&mut self, index: u64, class: u32) {
        let in_pass =
            self.config.pass_images.map_or(Some(index), |images| index.checked_rem(images));
        let place = in_pass.and_then(|index| usize::try_from(index).ok());
        match place.and_then(|place| Some((place, self.predicted.get_mut(place)?))) {
            Some((place, entry)) => {
                *entry = class;
                self.predicted_end = self.predicted_end.max(place + 1);
            }
            None => self.predicted_truncated = true,
        }
    }

    /// Says once that images without a label are about.
    fn warn_unlabelled(&mut self, index: u64) {
        let Some(labels) =
            self.table.as_ref().filter(|_| self.doubt.is_none()).map(ClassTable::labels)
        else {
            return; // none expected, or none to be trusted
        };
        if std::mem::replace(&mut self.warned, true) {
            return;
        }
        let pass = self.config.pass_images;
        let of = |f: &mut fmt::Formatter<'_>| match pass {
            Some(images) => write!(f, "{labels} labels for {images} images"),
            None => write!(f, "{labels} labels"),
        };
        self.talk(format_args!(
            "warning: image {index} has no label ({}): such images are counted as unlabelled and \
             left out of the class means",
            fmt::from_fn(of)
        ));
    }

    /// Shows the first dimensions of an image's features.
    fn print_sample(&mut self, index: u64, slot: Option<usize>, features: &[f32]) {
        if self.outputs.talk.is_none() {
            return;
        }
        self.lines.clear();
        self.lines.part(format_args!("  feature[image {index}, "));
        match slot.and_then(|slot| self.table.as_ref()?.class(slot)) {
            Some((class, name)) => self.lines.part(format_args!("class {class} ({name})")),
            None => self.lines.part(format_args!("unlabelled")),
        }
        self.lines.part(format_args!("] = ["));
        let shown = features.len().min(self.config.top_k);
        write_values(&mut self.lines, features[..shown].iter().map(|&v| f64::from(v)));
        let more = match shown {
            0 => "...",
            n if n < features.len() => ", ...",
            _ => "",
        };
        self.lines.line(format_args!("{more}] (dim={})", features.len()));
        say(&mut self.outputs.talk, &self.lines);
    }

    /// Prints the scores of the rows at hand.
    fn print_pca(&mut self, rows: &Rows<'_>) {
        let Some(pca) = &mut self.pca else { return };
        let features = self.pca_rows.iter().map(|&(row, _)| rows.features(row..row + 1));
        let Some(scores) = pca.project(features) else {
            let batch = self.batches;
            self.talk(format_args!("warning: the PCA of batch {batch} did not converge"));
            return;
        };
        self.lines.clear();
        for (&(row, class), &[pc1, pc2]) in self.pca_rows.iter().zip(scores) {
            let image = rows.index(row);
            let (pc1, pc2) = (unsigned_zero(pc1), unsigned_zero(pc2));
            self.lines.line(format_args!("pc1={pc1:.4} pc2={pc2:.4} image={image} class={class}"));
        }
        let Some(data) = &mut self.outputs.data else { return };
        if let Err(error) = self.lines.write_to(data) {
            // Nobody listens, or nobody can: no further line is tried, and no PCA made.
            self.outputs.data = None;
            self.pca = None;
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.data_error = Some(error);
            }
        }
    }

    /// One line of talk.
    fn talk(&mut self, text: fmt::Arguments<'_>) {
        self.lines.clear();
        self.lines.line(text);
        say(&mut self.outputs.talk, &self.lines);
    }

    /// Finishes the files; gives the path of the feature file if there is one.
    ///
    /// # Errors
    ///
    /// [`SinkError::File`] when a file cannot be put in its place, [`SinkError::Data`] when a line
    /// on stdout could not be written during the run.
    pub fn finish(&mut self) -> Result<Option<PathBuf>, SinkError> {
        // Both are tried: the one that there is room for is not lost with the other.
        let features = self.outputs.features.take().map(NpyWriter::finish).transpose();
        let logits = self.outputs.logits.take().map(NpyWriter::finish).transpose();
        let path = features?;
        logits?;
        match self.data_error.take() {
            Some(error) => Err(SinkError::Data(error)),
            None => Ok(path),
        }
    }

    /// Why a delivery was not taken; the first reason of several.
    #[must_use]
    pub const fn fault(&self) -> Option<&SinkError> {
        self.fault.as_ref()
    }

    /// What was found out so far.
    #[must_use]
    pub fn report(&self) -> SinkReport {
        let mut report = SinkReport {
            batches: self.batches,
            images: self.images,
            span: self.span,
            unlabelled: self.unlabelled,
            not_finite: self.not_finite,
            top_k: self.config.top_k.min(self.config.feature_dim),
            predicted: (self.config.classes > 0).then(|| self.predictions()),
            predicted_truncated: self.predicted_truncated,
            ..SinkReport::default()
        };
        let Some(table) = &self.table else { return report };
        if let Some(why) = self.doubt {
            report.withheld = Some(why.to_string());
            return report;
        }
        report.classes = table.means(report.top_k);
        report.confusion = table.confusion();
        (report.scored, report.correct) = table.scored();
        report
    }

    fn predictions(&self) -> Vec<Option<u32>> {
        let end = match self.config.pass_images {
            Some(_) => self.predicted.len(),
            None => self.predicted_end,
        };
        self.predicted[..end].iter().map(|&class| (class != NONE).then_some(class)).collect()
    }
}

impl Sink for FeatureSink {
    /// As [`FeatureSink::take`]. A fault is fatal: what failed once, the shape of the results or
    /// the feature file, fails again. The first one is kept for [`FeatureSink::fault`].
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        self.take(delivery, outputs).map_err(|error| {
            self.fault.get_or_insert(error);
            SinkFault { fatal: true }
        })
    }
}

/// Hands lines to `talk`, where somebody listens. A stderr that fails is left alone: there is no
/// place left to say so.
fn say(talk: &mut Option<Box<dyn Write + Send>>, lines: &Lines) {
    if let Some(out) = talk
        && lines.write_to(out).is_err()
    {
        *talk = None;
    }
}

/// Adds numbers with four decimals, separated as in a list.
pub(super) fn write_values(lines: &mut Lines, values: impl IntoIterator<Item = f64>) {
    for (i, value) in values.into_iter().enumerate() {
        let separator = if i > 0 { ", " } else { "" };
        lines.part(format_args!("{separator}{:.4}", unsigned_zero(value)));
    }
}

/// The value, without the sign where four decimals round it to zero: `-0.0000` says nothing.
fn unsigned_zero(value: f64) -> f64 {
    if value.abs() < 0.000_05 { 0.0 } else { value }
}

#[cfg(test)]
mod tests;
