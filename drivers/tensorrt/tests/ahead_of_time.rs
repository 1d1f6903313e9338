//! The library itself, without a GPU: TensorRT-RTX parses a model of ours and builds an engine for
//! a GPU that is not here. `ci/tensorrt-compile.sh` fetches what this needs and says so by
//! variables; each test that cannot run prints why.

#![cfg_attr(
    not(has_tensorrt),
    allow(unreachable_code, unused_variables, reason = "no value of ShimRuntime exists then")
)]
#![allow(clippy::print_stderr, reason = "a test that cannot run says why")]

use std::fs;

use tensorwire_onnx::Profile;
use tensorwire_tensorrt::{
    BuildRequest, BuildStep, Built, Libraries, Precision, Ranges, Runtime, RuntimeError,
    RuntimeFault, ShimRuntime,
};

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn open() -> Result<ShimRuntime, RuntimeError> {
    ShimRuntime::open(&Libraries::of_user(variable), Box::new(|_, _| {}))
}

/// The runtime, if this machine is made for these tests; else the reason is printed.
fn prepared() -> Option<(ShimRuntime, Vec<u8>)> {
    let Some(model) = variable("TENSORWIRE_TEST_MODEL") else {
        eprintln!("skipped: TENSORWIRE_TEST_MODEL names no model (run ci/tensorrt-compile.sh)");
        return None;
    };
    // From here on a failure is one: the script said that all is there.
    let model = fs::read(&model).unwrap_or_else(|error| panic!("{model}: {error}"));
    let runtime = open().unwrap_or_else(|error| panic!("{error}"));
    if !runtime.versions().has_targets {
        eprintln!("skipped: this TensorRT builds only for a GPU that is here");
        return None;
    }
    Some((runtime, model))
}

fn build(
    runtime: &mut ShimRuntime,
    model: &[u8],
    target: u32,
    progress: &mut dyn FnMut(BuildStep<'_>) -> bool,
) -> Result<Built, RuntimeError> {
    runtime.build(
        &BuildRequest {
            model,
            input: "input",
            image: [3, 224, 224],
            profile: Some(Profile { min: 1, opt: 32, max: 256 }),
            precision: Precision::Fp16,
            ranges: Ranges::Model,
            // For batches of 256 TensorRT-RTX takes 1.12 GB; with less it finds no engine.
            workspace_bytes: None,
            detailed: false,
            targets: &[target],
            timing_cache: None,
        },
        progress,
    )
}

#[test]
fn our_model_is_parsed_and_built_for_spark() {
    let Some((mut runtime, model)) = prepared() else { return };
    let mut steps = 0;
    let built = build(&mut runtime, &model, 121, &mut |_| {
        steps += 1;
        true
    });
    let plan = built.unwrap_or_else(|error| panic!("{error}")).plan;
    eprintln!(
        "{} {}: a plan of {} bytes for compute capability 12.1, {steps} steps reported",
        runtime.versions().flavor,
        runtime.versions().library,
        plan.len()
    );
    // The weights alone of ResNet-50 are 23.5 million.
    assert!(plan.len() > 20_000_000, "{} bytes", plan.len());
    assert!(steps > 0);
    // Without a driver it cannot be loaded, and says so.
    if variable("TENSORWIRE_TEST_GPU").is_none() {
        let error = runtime.load(&plan).expect_err("there is no GPU");
        eprintln!("loaded without a GPU: {error}");
        assert!(matches!(error.fault, RuntimeFault::Load | RuntimeFault::NoBuilder), "{error:?}");
    }
}

/// What `trt dump` asks of the parser: values in the middle of the network as outputs.
#[test]
fn a_model_with_exposed_values_is_built() {
    let Some((mut runtime, model)) = prepared() else { return };
    let exposed = |name: &str| tensorwire_onnx::expose::expose(&model, &[name.to_owned()]);
    build(&mut runtime, &exposed("layer1.0.relu"), 121, &mut |_| true)
        .unwrap_or_else(|error| panic!("{error}"));
    let error = build(&mut runtime, &exposed("layer9.relu"), 121, &mut |_| true);
    let error = error.expect_err("there is no such value");
    assert_eq!(error.fault, RuntimeFault::Parse, "{error}");
}

#[test]
fn a_build_is_stopped_by_its_listener() {
    let Some((mut runtime, model)) = prepared() else { return };
    let error = build(&mut runtime, &model, 121, &mut |_| false).expect_err("it was stopped");
    assert_eq!(error.fault, RuntimeFault::Cancelled, "{error}");
}

#[test]
fn a_panic_of_the_listener_comes_back_to_its_caller() {
    let Some((mut runtime, model)) = prepared() else { return };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = build(&mut runtime, &model, 121, &mut |_| panic!("of the listener"));
    }));
    let panic = caught.expect_err("it comes back");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the listener"));
}

#[test]
fn what_is_no_model_is_refused_by_the_parser() {
    let Some((mut runtime, model)) = prepared() else { return };
    for bytes in [&b"PK\x03\x04"[..], &[], &model[..model.len() / 2]] {
        let error = build(&mut runtime, bytes, 121, &mut |_| true).expect_err("no model");
        assert_eq!(error.fault, RuntimeFault::Parse, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

/// TensorRT-RTX takes int8 from the model alone, and says so rather than build something else.
#[test]
fn ranges_from_outside_are_refused_where_the_version_has_none() {
    let Some((mut runtime, model)) = prepared() else { return };
    assert!(!runtime.versions().has_implicit_int8);
    let version = runtime.parser_version().unwrap_or_else(|error| panic!("{error}"));
    eprintln!("ONNX parser {version}");
    let request = |ranges| BuildRequest {
        model: &model,
        input: "input",
        image: [3, 224, 224],
        profile: Some(Profile { min: 1, opt: 1, max: 1 }),
        precision: Precision::Int8,
        ranges,
        workspace_bytes: None,
        detailed: false,
        targets: &[121],
        timing_cache: None,
    };
    let library = runtime.versions().library;
    let number = library.major * 10_000 + library.minor * 100 + library.patch;
    let table = format!("TRT-{number}-EntropyCalibration2\ninput: 3c010a14\n");
    for ranges in [Ranges::Dummy, Ranges::Table(table.as_bytes())] {
        let error = runtime.build(&request(ranges), &mut |_| true).expect_err("unsupported");
        assert_eq!(error.fault, RuntimeFault::Config, "{error}");
        assert!(error.text.contains("Q/DQ nodes alone"), "{error}");
    }
    let error =
        runtime.build(&request(Ranges::Table(b"TRT-8600-MinMaxCalibration")), &mut |_| true);
    assert!(error.expect_err("another version").text.contains("calibration table is of"));
}

#[test]
fn a_gpu_that_it_cannot_build_for_is_refused() {
    let Some((mut runtime, model)) = prepared() else { return };
    let error = build(&mut runtime, &model, 90, &mut |_| true).expect_err("not one of RTX");
    assert_eq!(error.fault, RuntimeFault::Config, "{error}");
}

#[test]
fn bytes_that_are_no_plan_are_refused() {
    let Some((mut runtime, _)) = prepared() else { return };
    for bytes in [&b"no plan"[..], &[0; 4096]] {
        let error = runtime.load(bytes).expect_err("no plan");
        assert!(matches!(error.fault, RuntimeFault::Load | RuntimeFault::NoBuilder), "{error:?}");
    }
}

/// Run by the script with headers of another version than the library.
#[test]
fn headers_and_library_of_two_versions_are_refused_with_both() {
    let Some(both) = variable("TENSORWIRE_TEST_VERSIONS") else {
        eprintln!("skipped: TENSORWIRE_TEST_VERSIONS is not set (run ci/tensorrt-compile.sh)");
        return;
    };
    let error = open().expect_err("they do not belong together");
    assert_eq!(error.fault, RuntimeFault::Version, "{error}");
    for version in both.split(' ') {
        assert!(error.to_string().contains(version), "no {version} in: {error}");
    }
    eprintln!("refused: {error}");
}
