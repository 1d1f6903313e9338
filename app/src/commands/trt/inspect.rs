//! `trt inspect`.

use serde::Serialize;
use serde_json::Value;
use tensorwire_onnx::Profile;
use tensorwire_tensorrt::{Engine, EngineTensor};

use super::engine::{device, open};
use super::{print, print_json};
use crate::cli::TrtInspectArgs;
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;
use crate::talk::plain;
use crate::trt::layers;

#[derive(Serialize)]
struct Report {
    engine: String,
    library: String,
    tensors: Vec<Tensor>,
    /// Scratch memory of a context, in bytes.
    context_bytes: u64,
    /// As TensorRT describes the engine.
    information: Value,
}

#[derive(Serialize)]
struct Tensor {
    name: String,
    is_input: bool,
    r#type: String,
    shape: Vec<i64>,
    /// Least, best and largest batch.
    profile: Option<[u32; 3]>,
}

pub(super) fn inspect(args: &TrtInspectArgs) -> Result<ExitCode, Failure> {
    let opened = open(&args.engine, args.gpu)?;
    let engine = &opened.engine;
    let text = engine.inspect().map_err(device)?;
    let information = layers::parse(&text).map_err(|error| {
        failure(ExitCode::Internal, format!("TensorRT's description is no JSON: {error}"))
    })?;
    let tensors = engine.tensors().map_err(device)?;
    let report = Report {
        engine: args.engine.display().to_string(),
        library: format!("{} {}", opened.versions.flavor, opened.versions.library),
        tensors: tensors.iter().map(tensor).collect(),
        context_bytes: engine.device_memory(),
        information,
    };
    if args.json {
        print_json(&report)?;
    } else {
        print(&plain(&shown(&report)))?;
    }
    Ok(ExitCode::Complete)
}

fn tensor(of: &EngineTensor) -> Tensor {
    Tensor {
        name: of.name.clone(),
        is_input: of.is_input,
        r#type: of.elem_type.to_string(),
        shape: of.shape.clone(),
        profile: of.batch.map(|Profile { min, opt, max }| [min, opt, max]),
    }
}

fn shown(report: &Report) -> String {
    let mut text = format!("{}: {}\n", report.engine, report.library);
    for tensor in &report.tensors {
        let side = if tensor.is_input { "input" } else { "output" };
        let profile = tensor.profile.map_or_else(String::new, |p| format!(", batch {p:?}"));
        let Tensor { name, r#type, shape, .. } = tensor;
        text += &format!("{side:<7} {name} {type} {shape:?}{profile}\n");
    }
    text += &format!("scratch {} MiB for each context\n", report.context_bytes >> 20);
    text + &layers::table(&layers::of(&report.information))
}
