//! Where the features of a run go.

use std::io::{self, Write};

use super::backend::{Model, ModelShape};
use super::frames::Frames;
use super::plan::{Plan, failure};
use crate::exit::{ExitCode, Failure};
use crate::sink::{FeatureSink, NpyWriter, SinkConfig, SinkError, SinkOutputs};

/// The feature file, in its full size.
///
/// # Errors
///
/// A [`Failure`] (exit 7) when it cannot be made.
pub fn features(plan: &Plan) -> Result<Option<NpyWriter>, Failure> {
    let Some(file) = &plan.features else { return Ok(None) };
    NpyWriter::create(&file.path, file.rows, shape(plan).feature_dim)
        .map(Some)
        .map_err(|error| failure(ExitCode::File, format!("features: {error}")))
}

/// The sink of `plan` for rows of `shape`; with `json` stdout is kept for the summary.
///
/// # Errors
///
/// A [`Failure`] when the labels have more classes than there is memory for their means (exit 7).
pub fn sink(
    plan: &Plan,
    shape: ModelShape,
    json: bool,
    file: Option<NpyWriter>,
) -> Result<FeatureSink, Failure> {
    let config = &plan.config;
    let sink = SinkConfig {
        feature_dim: shape.feature_dim,
        classes: shape.classes,
        max_images: plan.images_per_inference() as usize,
        stats_enabled: config.stats.enabled && shape.feature_dim > 0,
        top_k: config.stats.top_k as usize,
        pca_every_n_batches: config.inference.as_ref().map_or(0, |i| i.pca_every_n_batches),
        labels: plan.labels.clone(),
        unlabelled_told: matches!(
            &plan.frames,
            Some(Frames::Capture(capture)) if capture.report().unlabelled > 0
        ),
        class_names: plan.class_names.clone(),
        anchoring: Some(plan.anchoring),
        pass_images: plan.pass_images,
    };
    let data: Option<Box<dyn Write + Send>> =
        if json { None } else { Some(Box::new(io::stdout())) };
    let outputs = SinkOutputs { data, talk: plan.talk.writer(), file };
    FeatureSink::new(sink, outputs).map_err(|error| {
        let exit = match error {
            SinkError::Shape { .. } => ExitCode::Internal,
            // Of the label file, or of an output.
            _ => ExitCode::File,
        };
        failure(exit, error.to_string())
    })
}

fn shape(plan: &Plan) -> ModelShape {
    plan.model.as_ref().map_or(ModelShape::NONE, Model::shape)
}
