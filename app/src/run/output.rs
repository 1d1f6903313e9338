//! Where the features and logits of a run go.

use std::io::{self, Write};

use super::backend::{Model, ModelShape};
use super::frames::Frames;
use super::plan::{Plan, RowFile, failure};
use crate::exit::{ExitCode, Failure};
use crate::sink::{FeatureSink, NpyWriter, SinkConfig, SinkError, SinkOutputs};

/// What the rows of images are written to.
#[derive(Debug)]
pub struct Files {
    features: Option<NpyWriter>,
    logits: Option<NpyWriter>,
}

/// The files, in their full size.
///
/// # Errors
///
/// A [`Failure`] (exit 7) when one cannot be made.
pub fn files(plan: &Plan) -> Result<Files, Failure> {
    let make = |name: &str, file: Option<&RowFile>, columns: usize| {
        let made = file.map(|file| NpyWriter::create(&file.path, file.rows, columns)).transpose();
        made.map_err(|error| failure(ExitCode::File, format!("{name}: {error}")))
    };
    let ModelShape { feature_dim, classes, .. } = shape(plan);
    Ok(Files {
        features: make("features", plan.features.as_ref(), feature_dim)?,
        logits: make("logits", plan.logits.as_ref(), classes)?,
    })
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
    files: Files,
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
    let Files { features, logits } = files;
    let outputs = SinkOutputs { data, talk: plan.talk.writer(), features, logits };
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
