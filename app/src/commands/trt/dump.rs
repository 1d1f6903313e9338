//! `trt dump`.

use std::fs;
use std::path::Path;

use half::f16;
use tensorwire_onnx::expose::{expose, output_of};
use tensorwire_onnx::{ElemType, ModelGraph, Probe, Profile};
use tensorwire_tensorrt::measure::outputs;
use tensorwire_tensorrt::{BuildRequest, CudaGpu, Ranges, Runtime};

use super::build::precision;
use super::calibrate::input;
use super::engine::{device, gpu, library};
use super::{print, print_json, say};
use crate::cli::TrtDumpArgs;
use crate::exit::{ExitCode, Failure};
use crate::model::samples;
use crate::run::plan::failure;
use crate::sink::NpyWriter;
use crate::talk::plain;
use crate::trt::compare::{compare, table};

/// The values of a layer, on one image.
type Values = Vec<(String, Vec<f32>)>;

pub(super) fn dump(args: &TrtDumpArgs) -> Result<ExitCode, Failure> {
    let precision = precision(&args.precision)?;
    let file = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("{}: {error}", args.model.display()))
    };
    let bytes = fs::read(&args.model).map_err(|error| file(&error))?;
    let graph = ModelGraph::read(&bytes).map_err(|error| file(&error))?;
    let (name, [rows, columns]) = input(&graph).map_err(|why| file(&why))?;
    let values = values(&graph, &args.layers).map_err(|why| failure(ExitCode::Usage, why))?;
    let image = samples::images(&args.capture, [rows, columns], 1)
        .map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let pixels = image.first().map(Vec::as_slice).unwrap_or_default();
    let elem_type = graph.io.inputs.first().map_or(ElemType::Other(0), |input| input.elem_type);
    let encoded = encode(pixels, elem_type).map_err(|why| file(&why))?;
    // Before the CPU is asked: a GPU that is not there is told at once.
    let here = if args.cpu_only { None } else { Some((library()?, gpu(args.gpu)?)) };
    let right = on_cpu(bytes.clone(), &name, [3, rows, columns], pixels, &values)?;
    keep(args.out.as_deref(), "cpu", &right)?;
    let Some((mut runtime, gpu)) = here else {
        for (name, values) in &right {
            let largest = values.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
            say(&format_args!("{name}: {} values, at most {largest:.4}", values.len()));
        }
        return Ok(ExitCode::Complete);
    };
    let _entered = gpu.enter().map_err(device)?;
    let one = Profile { min: 1, opt: 1, max: 1 };
    let request = BuildRequest {
        model: &expose(&bytes, &values),
        input: &name,
        image: [3, rows, columns],
        profile: Some(one),
        precision,
        ranges: Ranges::Model,
        workspace_bytes: None,
        detailed: false,
        targets: &[],
        timing_cache: None,
    };
    let built = runtime.build(&request, &mut |_| true).map_err(device)?;
    let engine = runtime.load(&built.plan).map_err(device)?;
    let found = outputs(&engine, CudaGpu::new(gpu.clone(), None), &encoded).map_err(device)?;
    let mut compared = Vec::new();
    for (value, right) in &right {
        let output = output_of(value);
        let given = found.iter().find(|(name, _)| *name == output);
        let (_, given) = given.ok_or_else(|| device(format!("the engine has no '{output}'")))?;
        keep(args.out.as_deref(), "gpu", &vec![(value.clone(), given.clone())])?;
        let comparison = compare(value, given, right);
        compared.push(comparison.ok_or_else(|| {
            let (given, right) = (given.len(), right.len());
            device(format!("{value}: {given} values on the GPU, {right} on the CPU"))
        })?);
    }
    if args.json {
        print_json(&compared)?;
    } else {
        print(&plain(&table(&compared)))?;
    }
    Ok(ExitCode::Complete)
}

/// The values that the named operators make; each must be there.
fn values(graph: &ModelGraph<'_>, layers: &[String]) -> Result<Vec<String>, String> {
    let value = |layer: &String| {
        let node = graph.nodes.iter().find(|node| node.label() == layer);
        let made = node.or_else(|| graph.maker(layer)).and_then(|node| node.outputs.first());
        made.cloned().ok_or_else(|| format!("--layer: the model has no operator '{layer}'"))
    };
    layers.iter().map(value).collect()
}

/// An image as the model takes it.
fn encode(pixels: &[i8], elem_type: ElemType) -> Result<Vec<u8>, String> {
    let pixels = pixels.iter().copied();
    Ok(match elem_type {
        ElemType::Int8 => pixels.map(i8::cast_unsigned).collect(),
        ElemType::Fp16 => pixels.flat_map(|x| f16::from_f32(f32::from(x)).to_ne_bytes()).collect(),
        ElemType::Fp32 => pixels.flat_map(|x| f32::from(x).to_ne_bytes()).collect(),
        other => return Err(format!("an input of {other}: fp16, fp32 and int8 can be fed")),
    })
}

fn on_cpu(
    model: Vec<u8>,
    input: &str,
    image: [usize; 3],
    pixels: &[i8],
    names: &[String],
) -> Result<Values, Failure> {
    let probe = Probe::read(model, input, image, names).map_err(device)?;
    let wide: Vec<f32> = pixels.iter().copied().map(f32::from).collect();
    let mut values: Values = names.iter().map(|name| (name.clone(), Vec::new())).collect();
    probe.run(&wide, |at, data| values[at].1 = data.to_vec()).map_err(device)?;
    Ok(values)
}

/// Writes values to `NAME.SIDE.npy`, one row each.
fn keep(folder: Option<&Path>, side: &str, values: &Values) -> Result<(), Failure> {
    let Some(folder) = folder else { return Ok(()) };
    for (name, values) in values {
        // Names come from a file, and must not lead out of the folder.
        let name = name.replace(['/', '\\', '\0'], "_");
        let path = folder.join(format!("{name}.{side}.npy"));
        let failed = |error: &dyn std::fmt::Display| {
            failure(ExitCode::File, format!("{}: {error}", path.display()))
        };
        let writer = NpyWriter::create(&path, 1, values.len()).map_err(|error| failed(&error))?;
        writer.write_rows(0, values).map_err(|error| failed(&error))?;
        writer.finish().map_err(|error| failed(&error))?;
    }
    Ok(())
}
