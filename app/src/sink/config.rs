//! What a sink is made of: its settings, where it writes, and what can go wrong.

use std::fmt;
use std::io::{self, Write};

use super::anchoring::Anchoring;
use super::npy::{NpyError, NpyWriter};
use crate::dataset::Labels;

/// What the sink is to do.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// Features of one image.
    pub feature_dim: usize,
    /// Classes that the model tells apart, 0 for a model without a head.
    pub classes: usize,
    /// Images of the largest submission.
    pub max_images: usize,
    /// `stats.enabled`: samples, class means and PCA. Predictions are not statistics.
    pub stats_enabled: bool,
    /// `stats.top_k`: how many dimensions are shown of a vector.
    pub top_k: usize,
    /// `inference.pca_every_n_batches`; 0 is off.
    pub pca_every_n_batches: u64,
    /// The labels of the data set; `None` where none are expected (synthetic frames).
    pub labels: Option<Labels>,
    /// That images have no label was said before, when their capture was loaded.
    pub unlabelled_told: bool,
    /// Name `c` is that of class `c`; a class without one is called `unknown`.
    pub class_names: Vec<String>,
    /// How the place of an image in the data set becomes certain; `None`: it is, whatever comes
    /// ([`FeatureSink::doubt`](super::FeatureSink::doubt) can still say otherwise).
    pub anchoring: Option<Anchoring>,
    /// Images of one pass over the data set: the label of an image is that of its index modulo
    /// this. `None` where nothing repeats.
    pub pass_images: Option<u64>,
}

/// Where the sink writes. Each line, or block of lines, is one call of `write_all`.
#[derive(Default)]
pub struct SinkOutputs {
    /// The PCA lines (stdout). `None`: no PCA is made.
    pub data: Option<Box<dyn Write + Send>>,
    /// Samples and warnings (stderr). `None`: quiet.
    pub talk: Option<Box<dyn Write + Send>>,
    /// The feature file.
    pub features: Option<NpyWriter>,
    /// The file of the logits.
    pub logits: Option<NpyWriter>,
}

impl fmt::Debug for SinkOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkOutputs")
            .field("data", &self.data.is_some())
            .field("talk", &self.talk.is_some())
            .field("features", &self.features)
            .field("logits", &self.logits)
            .finish()
    }
}

/// Why the sink did not take a batch, or cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum SinkError {
    /// A batch of another shape than the sink was made for. Nothing of it was taken.
    Shape {
        /// What does not fit.
        what: &'static str,
        /// The number that came.
        given: usize,
        /// The number that was expected (for `images`: the most).
        expected: usize,
    },
    /// The sums of all classes would take too much memory.
    Classes {
        /// Classes that occur among the labels.
        classes: usize,
        /// Values that are kept for each, of 8 bytes.
        values: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The feature file cannot be written.
    File(NpyError),
    /// The lines on stdout cannot be written.
    Data(io::Error),
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { what, given, expected } => {
                write!(f, "a batch with {given} {what}, expected {expected}")
            }
            Self::Classes { classes, values, max_bytes } => {
                write!(f, "{classes} classes × {values} values × 8 B are more than {max_bytes} B")
            }
            Self::File(error) => write!(f, "features: {error}"),
            Self::Data(error) => write!(f, "stdout cannot be written: {error}"),
        }
    }
}

impl std::error::Error for SinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::Data(error) => Some(error),
            Self::Shape { .. } | Self::Classes { .. } => None,
        }
    }
}

impl From<NpyError> for SinkError {
    fn from(error: NpyError) -> Self {
        Self::File(error)
    }
}
