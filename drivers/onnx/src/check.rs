//! Model and configuration side by side, before anything is built or run.
//!
//! Tensors are found by name, never by position, and every disagreement is reported at once.

use std::fmt;

use crate::header::ModelIo;
use crate::types::{Dim, ElemType, Shape, TensorInfo};

/// What the configuration expects of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelExpect {
    /// Name of the input (`input_name`).
    pub input_name: String,
    /// Name of the output that carries the features (`output_name`).
    pub output_name: String,
    /// Name of the output that carries the class scores, where the model has one.
    pub logits_name: Option<String>,
    /// Channels of an image.
    pub channels: u32,
    /// Rows of an image.
    pub height: u32,
    /// Columns of an image.
    pub width: u32,
    /// Element type of the batch buffer, and so of the input.
    pub input_type: ElemType,
    /// Length of a feature vector (`feature_dim`).
    pub feature_dim: u32,
    /// Images of one inference: of a batch, or of a sub-batch where it is taken in parts.
    pub images_per_inference: u32,
    /// The batch sizes that the engine is built for.
    pub profile: Profile,
}

/// Batch sizes that an engine is built for (`opt_min`, `opt_avg`, `opt_max`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Fewest images of one inference.
    pub min: u32,
    /// Images the engine is tuned for.
    pub opt: u32,
    /// Most images of one inference.
    pub max: u32,
}

/// How to run a model that fits its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoPlan {
    /// Name of the input.
    pub input_name: String,
    /// Element type of the input.
    pub input_type: ElemType,
    /// Shape of one image: channels, rows, columns.
    pub image: [usize; 3],
    /// Name of the output with the features.
    pub output_name: String,
    /// Length of a feature vector.
    pub feature_dim: usize,
    /// Name and row length of the output with the class scores.
    pub logits: Option<(String, usize)>,
    /// Most images of one inference.
    pub max_images: usize,
    /// Fewest images of one inference: the fixed batch of the model, or the profile's least. A
    /// smaller one is padded with zero images, whose results are dropped.
    pub min_images: usize,
    /// Whether the model fixes its batch, at [`IoPlan::max_images`].
    pub fixed_batch: bool,
}

impl IoPlan {
    /// Elements of one image.
    #[must_use]
    pub const fn image_elements(&self) -> usize {
        self.image[0] * self.image[1] * self.image[2]
    }
}

/// One disagreement between model and configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The model has no input of the configured name.
    NoInput {
        /// `input_name`.
        config: String,
    },
    /// The model has no output of the configured name.
    NoOutput {
        /// `output_name`.
        config: String,
    },
    /// The model asks for an input that nobody feeds.
    UnfedInput {
        /// Name in the model.
        name: String,
    },
    /// The model makes an output that nobody takes.
    UntakenOutput {
        /// Name in the model.
        name: String,
    },
    /// Two tensors of one side carry the same name.
    Ambiguous {
        /// The name.
        name: String,
    },
    /// Element types differ.
    Type {
        /// Name of the tensor.
        name: String,
        /// Type in the model.
        model: ElemType,
        /// Type that the pipeline has or needs.
        config: ElemType,
    },
    /// Shapes differ.
    Shape {
        /// Name of the tensor.
        name: String,
        /// Dimensions in the model.
        model: Option<Vec<Dim>>,
        /// Dimensions that the configuration gives, `None` where any number will do.
        config: Vec<Option<u64>>,
    },
    /// The numbers of the profile are not `1 ≤ opt_min ≤ opt_avg ≤ opt_max`.
    ProfileOrder(Profile),
    /// An inference has fewer or more images than the profile allows.
    OutsideProfile {
        /// Images of one inference.
        images: u32,
        /// The profile.
        profile: Profile,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInput { config } => {
                write!(f, "input_name: config '{config}', the model has no input of this name")
            }
            Self::NoOutput { config } => {
                write!(f, "output_name: config '{config}', the model has no output of this name")
            }
            Self::UnfedInput { name } => {
                write!(f, "input '{name}': the model asks for it, nothing in the config feeds it")
            }
            Self::UntakenOutput { name } => {
                write!(f, "output '{name}': the model makes it, nothing in the config takes it")
            }
            Self::Ambiguous { name } => write!(f, "two tensors of the model are called '{name}'"),
            Self::Type { name, model, config } => {
                write!(f, "element type of '{name}': model {model}, config {config}")
            }
            Self::Shape { name, model, config } => write_shapes(f, name, model.as_deref(), config),
            Self::ProfileOrder(Profile { min, opt, max }) => write!(
                f,
                "opt_min {min}, opt_avg {opt}, opt_max {max}: must be 1 ≤ opt_min ≤ opt_avg ≤ \
                 opt_max"
            ),
            Self::OutsideProfile { images, profile: Profile { min, max, .. } } => write!(
                f,
                "images of one inference: {images}, must be from opt_min {min} to opt_max {max}"
            ),
        }
    }
}

fn write_shapes(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    model: Option<&[Dim]>,
    config: &[Option<u64>],
) -> fmt::Result {
    let wanted: Vec<Dim> = config.iter().map(|d| d.map_or(Dim::Open, Dim::Fixed)).collect();
    let (model_shape, config_shape) = (Shape(model), Shape(Some(&wanted)));
    write!(f, "shape of '{name}': model {model_shape}, config {config_shape}")?;
    // The most frequent cause deserves its cure: everything fits but a fixed batch.
    if let (Some([Dim::Fixed(batch), rest @ ..]), [Some(images), inner @ ..]) = (model, config)
        && batch != images
        && fits(rest, inner)
    {
        write!(
            f,
            " (the model fixes a batch of {batch}: export it with an open batch, or take \
             {batch} images per inference)"
        )?;
    }
    Ok(())
}

/// Every disagreement between a model and its configuration, and the tensors of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoMismatch {
    /// What does not agree; never empty.
    pub mismatches: Vec<Mismatch>,
    /// The tensors of the model.
    pub model: ModelIo,
}

impl fmt::Display for IoMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("model and config do not agree:")?;
        for mismatch in &self.mismatches {
            write!(f, "\n  {mismatch}")?;
        }
        f.write_str("\n  tensors of the model:")?;
        for input in &self.model.inputs {
            write!(f, "\n    input {input}")?;
        }
        for output in &self.model.outputs {
            write!(f, "\n    output {output}")?;
        }
        if self.model.inputs.is_empty() && self.model.outputs.is_empty() {
            f.write_str(" none")?;
        }
        Ok(())
    }
}

impl std::error::Error for IoMismatch {}

/// Checks names, shapes and types of a model against the configuration.
///
/// An open dimension of the input (a negative number or a symbol) takes any value; the width of an
/// output must be stated, because buffers are made from it. A fixed batch is accepted when it
/// equals the images of one inference.
///
/// # Errors
///
/// [`IoMismatch`] with everything that does not agree.
pub fn check_io(model: &ModelIo, expect: &ModelExpect) -> Result<IoPlan, IoMismatch> {
    let mut bad = Vec::new();
    check_profile(expect, &mut bad);
    check_names(model, expect, &mut bad);
    let images = u64::from(expect.images_per_inference);
    let mut fixed_batch = false;
    if let Some(input) = find(&model.inputs, &expect.input_name) {
        let image = [expect.channels, expect.height, expect.width].map(|n| Some(u64::from(n)));
        let config = [&[Some(images)], &image[..]].concat();
        check_type(input, expect.input_type, &mut bad);
        check_shape(input, &config, &mut bad);
        fixed_batch = has_fixed_batch(input);
    }
    if let Some(output) = find(&model.outputs, &expect.output_name) {
        check_type(output, ElemType::Fp32, &mut bad);
        check_rows(output, images, Some(u64::from(expect.feature_dim)), &mut bad);
    }
    let logits = expect.logits_name.as_ref().and_then(|name| find(&model.outputs, name));
    let mut classes = None;
    if let Some(output) = logits {
        check_type(output, ElemType::Fp32, &mut bad);
        classes = check_rows(output, images, None, &mut bad);
    }
    if !bad.is_empty() {
        return Err(IoMismatch { mismatches: bad, model: model.clone() });
    }
    let min = if fixed_batch { expect.images_per_inference } else { expect.profile.min };
    Ok(IoPlan {
        input_name: expect.input_name.clone(),
        input_type: expect.input_type,
        image: [expect.channels, expect.height, expect.width].map(|n| n as usize),
        output_name: expect.output_name.clone(),
        feature_dim: expect.feature_dim as usize,
        logits: logits.map(|l| l.name.clone()).zip(classes),
        max_images: expect.images_per_inference as usize,
        min_images: min as usize,
        fixed_batch,
    })
}

fn check_profile(expect: &ModelExpect, bad: &mut Vec<Mismatch>) {
    let profile @ Profile { min, opt, max } = expect.profile;
    let images = expect.images_per_inference;
    if min == 0 || min > opt || opt > max {
        bad.push(Mismatch::ProfileOrder(profile));
    }
    if images == 0 || images < min || images > max {
        bad.push(Mismatch::OutsideProfile { images, profile });
    }
}

fn check_names(model: &ModelIo, expect: &ModelExpect, bad: &mut Vec<Mismatch>) {
    if find(&model.inputs, &expect.input_name).is_none() {
        bad.push(Mismatch::NoInput { config: expect.input_name.clone() });
    }
    if find(&model.outputs, &expect.output_name).is_none() {
        bad.push(Mismatch::NoOutput { config: expect.output_name.clone() });
    }
    for input in &model.inputs {
        if input.name != expect.input_name {
            bad.push(Mismatch::UnfedInput { name: input.name.clone() });
        }
    }
    for output in &model.outputs {
        let taken = output.name == expect.output_name
            || expect.logits_name.as_ref().is_some_and(|name| *name == output.name);
        if !taken {
            bad.push(Mismatch::UntakenOutput { name: output.name.clone() });
        }
    }
    for side in [&model.inputs, &model.outputs] {
        for (i, tensor) in side.iter().enumerate() {
            if side[..i].iter().any(|earlier| earlier.name == tensor.name) {
                bad.push(Mismatch::Ambiguous { name: tensor.name.clone() });
            }
        }
    }
}

fn find<'a>(tensors: &'a [TensorInfo], name: &str) -> Option<&'a TensorInfo> {
    tensors.iter().find(|tensor| tensor.name == name)
}

fn has_fixed_batch(tensor: &TensorInfo) -> bool {
    matches!(tensor.dims.as_deref(), Some([Dim::Fixed(_), ..]))
}

fn check_type(tensor: &TensorInfo, config: ElemType, bad: &mut Vec<Mismatch>) {
    if tensor.elem_type != config {
        let (name, model) = (tensor.name.clone(), tensor.elem_type);
        bad.push(Mismatch::Type { name, model, config });
    }
}

fn fits(model: &[Dim], config: &[Option<u64>]) -> bool {
    model.len() == config.len()
        && model.iter().zip(config).all(|(m, c)| c.is_none_or(|value| m.allows(value)))
}

fn check_shape(tensor: &TensorInfo, config: &[Option<u64>], bad: &mut Vec<Mismatch>) {
    if !tensor.dims.as_deref().is_some_and(|dims| fits(dims, config)) {
        let (name, model) = (tensor.name.clone(), tensor.dims.clone());
        bad.push(Mismatch::Shape { name, model, config: config.to_vec() });
    }
}

/// Checks an output `[images, width]`, or `[images, width, 1, 1]`, which lies the same in memory,
/// and returns its width. An open width is refused: nobody could size a buffer for it.
fn check_rows(
    tensor: &TensorInfo,
    images: u64,
    width: Option<u64>,
    bad: &mut Vec<Mismatch>,
) -> Option<usize> {
    if let Some([batch, Dim::Fixed(model), ones @ ..]) = tensor.dims.as_deref()
        && batch.allows(images)
        && *model > 0
        && width.is_none_or(|width| width == *model)
        && ones.iter().all(|dim| *dim == Dim::Fixed(1))
        && let Ok(width) = usize::try_from(*model)
    {
        return Some(width);
    }
    let (name, model) = (tensor.name.clone(), tensor.dims.clone());
    bad.push(Mismatch::Shape { name, model, config: vec![Some(images), width] });
    None
}

#[cfg(test)]
mod tests;
