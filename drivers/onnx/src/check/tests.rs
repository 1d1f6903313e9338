//! Field cases E06, E07 and E08.

use super::*;

/// The small geometry of the cases: images of 3×16×16, four of them a batch.
fn expect() -> ModelExpect {
    ModelExpect {
        input_name: "input".into(),
        output_name: "features".into(),
        logits_name: Some("logits".into()),
        channels: 3,
        height: 16,
        width: 16,
        input_type: ElemType::Fp16,
        feature_dim: 2048,
        images_per_inference: 4,
        profile: Profile { min: 1, opt: 32, max: 256 },
    }
}

fn tensor(name: &str, elem_type: ElemType, dims: &[i64]) -> TensorInfo {
    let dims = dims.iter().map(|d| u64::try_from(*d).map_or(Dim::Open, Dim::Fixed)).collect();
    TensorInfo { name: name.into(), elem_type, dims: Some(dims) }
}

fn model(inputs: Vec<TensorInfo>, outputs: Vec<TensorInfo>) -> ModelIo {
    ModelIo { inputs, outputs, opset: Some(13), ir_version: 7, producer: "test".into() }
}

fn input(dims: &[i64]) -> Vec<TensorInfo> {
    vec![tensor("input", ElemType::Fp16, dims)]
}

fn features() -> Vec<TensorInfo> {
    vec![tensor("features", ElemType::Fp32, &[-1, 2048])]
}

fn refused(model: &ModelIo, expect: &ModelExpect) -> IoMismatch {
    let error = check_io(model, expect).expect_err("must be refused");
    assert!(!error.mismatches.is_empty());
    let text = error.to_string();
    for tensor in model.inputs.iter().chain(&model.outputs) {
        assert!(text.contains(&tensor.to_string()), "the list lacks {tensor}: {text}");
    }
    error
}

#[test]
fn e06_a_fixed_batch_must_be_the_configured_one() {
    let other_batch = model(input(&[1, 3, 16, 16]), features());
    let text = refused(&other_batch, &expect()).to_string();
    assert!(text.contains("model [1,3,16,16], config [4,3,16,16]"), "{text}");
    assert!(text.contains("fixes a batch of 1"), "{text}");

    let same = check_io(&model(input(&[4, 3, 16, 16]), features()), &expect()).expect("fits");
    assert_eq!((same.min_images, same.max_images), (4, 4), "partial batches are padded to 4");
    assert!(same.fixed_batch);

    let open = check_io(&model(input(&[-1, 3, 16, 16]), features()), &expect()).expect("fits");
    assert_eq!((open.min_images, open.max_images), (1, 4));
    assert!(!open.fixed_batch);

    let other_size = model(input(&[-1, 3, 224, 224]), features());
    let text = refused(&other_size, &expect()).to_string();
    assert!(text.contains("model [-1,3,224,224], config [4,3,16,16]"), "{text}");
    assert!(!text.contains("fixes a batch"), "{text}");
}

#[test]
fn e06_a_fixed_batch_of_the_output_alone_is_refused() {
    let outputs = vec![tensor("features", ElemType::Fp32, &[1, 2048])];
    let error = refused(&model(input(&[-1, 3, 16, 16]), outputs), &expect());
    assert!(error.to_string().contains("model [1,2048], config [4,2048]"), "{error}");
}

#[test]
fn e06_a_symbolic_batch_is_open() {
    let mut io = model(input(&[-1, 3, 16, 16]), features());
    for tensor in io.inputs.iter_mut().chain(&mut io.outputs) {
        if let Some(dims) = &mut tensor.dims {
            dims[0] = Dim::Symbol("batch".into());
        }
    }
    let plan = check_io(&io, &expect()).expect("fits");
    assert_eq!(plan.image_elements(), 768);
    assert_eq!(plan.logits, None);
}

#[test]
fn e07_names_are_never_guessed() {
    let io = model(
        vec![tensor("data", ElemType::Fp16, &[-1, 3, 16, 16])],
        vec![tensor("output", ElemType::Fp32, &[-1, 2048])],
    );
    let wanted = [
        Mismatch::NoInput { config: "input".into() },
        Mismatch::NoOutput { config: "features".into() },
        Mismatch::UnfedInput { name: "data".into() },
        Mismatch::UntakenOutput { name: "output".into() },
    ];
    assert_eq!(refused(&io, &expect()).mismatches, wanted);
}

#[test]
fn e07_a_second_output_must_be_named() {
    let mut outputs = features();
    outputs.push(tensor("aux", ElemType::Fp32, &[-1, 7]));
    let io = model(input(&[-1, 3, 16, 16]), outputs);
    let wanted = [Mismatch::UntakenOutput { name: "aux".into() }];
    assert_eq!(refused(&io, &expect()).mismatches, wanted);

    let plan = check_io(&io, &ModelExpect { logits_name: Some("aux".into()), ..expect() });
    assert_eq!(plan.expect("fits").logits, Some(("aux".into(), 7)));
}

#[test]
fn e07_types_and_widths_are_compared() {
    let io = model(
        vec![tensor("input", ElemType::Fp32, &[-1, 3, 16, 16])],
        vec![tensor("features", ElemType::Fp16, &[-1, 512])],
    );
    let error = refused(&io, &expect());
    let text = error.to_string();
    assert!(text.contains("element type of 'input': model fp32, config fp16"), "{text}");
    assert!(text.contains("element type of 'features': model fp16, config fp32"), "{text}");
    assert!(text.contains("shape of 'features': model [-1,512], config [4,2048]"), "{text}");
    assert_eq!(error.mismatches.len(), 3, "all at once: {text}");
}

#[test]
fn e07_an_output_without_a_stated_width_is_refused() {
    for dims in [None, Some(vec![Dim::Open, Dim::Open]), Some(vec![])] {
        let mut io = model(input(&[-1, 3, 16, 16]), features());
        io.outputs[0].dims = dims;
        refused(&io, &expect());
    }
    let pooled = vec![tensor("features", ElemType::Fp32, &[-1, 2048, 1, 1])];
    check_io(&model(input(&[-1, 3, 16, 16]), pooled), &expect()).expect("same bytes");
    let unpooled = vec![tensor("features", ElemType::Fp32, &[-1, 2048, 7, 7])];
    refused(&model(input(&[-1, 3, 16, 16]), unpooled), &expect());
}

#[test]
fn e07_two_tensors_of_one_name_are_refused() {
    let mut inputs = input(&[-1, 3, 16, 16]);
    inputs.extend(input(&[-1, 3, 16, 16]));
    let error = refused(&model(inputs, features()), &expect());
    assert_eq!(error.mismatches, [Mismatch::Ambiguous { name: "input".into() }]);
}

#[test]
fn e08_an_inference_must_lie_within_the_profile() {
    let io = model(input(&[-1, 3, 16, 16]), features());
    let with = |images: u32, min: u32, opt: u32, max: u32| ModelExpect {
        images_per_inference: images,
        profile: Profile { min, opt, max },
        ..expect()
    };
    for (images, min, opt, max) in
        [(32, 1, 16, 16), (1, 4, 8, 8), (8, 9, 8, 8), (8, 1, 9, 8), (8, 1, 8, 0), (0, 1, 8, 8)]
    {
        let error = check_io(&io, &with(images, min, opt, max));
        let error = error.expect_err("outside").to_string();
        assert!(error.contains(&format!("{max}")), "{error}");
    }
    let plan = check_io(&io, &with(8, 4, 8, 8)).expect("fits");
    assert_eq!(plan.min_images, 4, "a smaller part is padded to opt_min");
}
