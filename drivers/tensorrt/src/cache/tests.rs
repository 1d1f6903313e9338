//! The cases of the engine cache, by their ids.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tensorwire_onnx::ElemType;

use super::*;
use crate::fake::models::{expect, model, model_of, tensor};
use crate::fake::runtime::{Call, FakeEngine, FakeRuntime};
use crate::runtime::RuntimeFault;

/// A folder with a model, and what is asked of it.
struct Place {
    folder: TempDir,
    expect: ModelExpect,
    precision: Precision,
    rebuild: Rebuild,
    said: Vec<String>,
    steps: Vec<u32>,
    stop: bool,
    with_model: bool,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: TempDir::new().expect("a folder"),
            expect: expect(),
            precision: Precision::Fp16,
            rebuild: Rebuild::Allowed,
            said: Vec::new(),
            steps: Vec::new(),
            stop: false,
            with_model: true,
        };
        place.put("m.onnx", &model(-1, "a"));
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.file(name), bytes).expect("it is written");
    }

    /// The engines that were kept.
    fn engines(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder.path()).expect("a folder");
        let mut files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "engine"));
        files.sort();
        files
    }

    fn prepare(&mut self, runtime: &mut FakeRuntime) -> Result<Ready<FakeEngine>, EngineError> {
        let (onnx, engine) = (self.file("m.onnx"), self.file("m.engine"));
        let capability = runtime.capability;
        let gpu =
            GpuIdentity { name: format!("GPU {capability}"), capability, driver: "580".into() };
        let request = EngineRequest {
            onnx: self.with_model.then_some(&onnx),
            engine: Some(&engine),
            expect: &self.expect,
            precision: self.precision,
            workspace_bytes: None,
            detailed: false,
            targets: &[],
            gpu: &gpu,
            rebuild: self.rebuild,
        };
        let (said, steps, stop) = (&mut self.said, &mut self.steps, self.stop);
        let mut listener = Listener {
            say: &mut |line| said.push(line.to_owned()),
            progress: &mut |step| {
                steps.push(step.step);
                !stop
            },
        };
        prepare(runtime, &request, &mut listener)
    }

    #[track_caller]
    fn ready(&mut self, runtime: &mut FakeRuntime) -> Source {
        self.said.clear();
        self.prepare(runtime).expect("an engine").source
    }

    #[track_caller]
    fn refused(&mut self, runtime: &mut FakeRuntime) -> String {
        self.prepare(runtime).expect_err("no engine").to_string()
    }
}

fn runtime() -> FakeRuntime {
    FakeRuntime::new([10, 11, 0], 121)
}

fn is_built(source: &Source) -> bool {
    matches!(source, Source::Built(Some(_)))
}

#[test]
pub(crate) fn an_engine_is_built_once_and_kept_with_a_header_of_plain_text() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let Source::Built(Some(file)) = place.ready(&mut runtime) else { panic!("not built") };
    assert_eq!(place.steps, [0, 1, 2]);
    assert_eq!(place.said.len(), 1, "{:?}", place.said);
    assert_eq!(
        place.said[0],
        "building an fp16 engine with TensorRT 10.11.0, which takes some minutes"
    );
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(name.starts_with("m.") && name.len() == "m.12345678.engine".len(), "{name}");
    let bytes = fs::read(&file).expect("it was kept");
    let text = String::from_utf8_lossy(&bytes[..400]).into_owned();
    for line in [
        "tensorwire engine 1",
        "library TensorRT",
        "version 10.11.0",
        "gpu GPU 121",
        "capability 121",
        "driver 580",
        "precision fp16",
        "profile 1 4 8",
    ] {
        assert!(text.lines().any(|l| l == line), "no '{line}' in {text}");
    }
    assert_eq!(place.ready(&mut runtime), Source::Kept(file));
    assert!(place.said.is_empty());
    assert_eq!(runtime.builds(), 1);
}

#[test]
pub(crate) fn e01_an_engine_of_another_tensorrt_is_seen_before_it_is_loaded() {
    let mut place = Place::new();
    place.ready(&mut FakeRuntime::new([10, 3, 0], 121));
    let old = place.engines();
    let mut newer = runtime();
    place.rebuild = Rebuild::Refused;
    let text = place.refused(&mut newer);
    assert!(text.contains("a rebuild is not allowed"), "{text}");
    assert!(text.contains("version 10.3.0, not 10.11.0"), "{text}");
    assert_eq!(newer.loads(), 0, "nothing is loaded to find that out");

    place.rebuild = Rebuild::Allowed;
    assert!(is_built(&place.ready(&mut newer)));
    let why: Vec<&String> = place.said.iter().filter(|l| l.contains("10.3.0")).collect();
    assert_eq!(why.len(), 1, "one line says why: {:?}", place.said);
    assert!(why[0].contains("kept, and not used: built for version 10.3.0, not 10.11.0"));
    assert_eq!(newer.loads(), 1, "the new one alone");
    // The old one serves its own version still.
    assert!(old[0].exists());
    let mut older = FakeRuntime::new([10, 3, 0], 121);
    assert_eq!(place.ready(&mut older), Source::Kept(old[0].clone()));
}

#[test]
pub(crate) fn e02_the_content_of_the_model_counts_not_its_name_or_age() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    place.ready(&mut runtime);
    place.put("m.onnx", &model(-1, "b"));
    assert!(is_built(&place.ready(&mut runtime)), "other bytes under the same name");
    assert!(place.said[0].contains("another model"), "{:?}", place.said);

    place.put("m.onnx", &model(-1, "a"));
    assert!(matches!(place.ready(&mut runtime), Source::Kept(_)), "a new date is no reason");

    let moved = Place::new();
    for file in place.engines() {
        fs::copy(&file, moved.file(file.file_name().and_then(|n| n.to_str()).expect("a name")))
            .expect("it is copied");
    }
    let mut moved = moved;
    assert!(matches!(moved.ready(&mut runtime), Source::Kept(_)), "a new folder is no reason");
    assert_eq!(runtime.builds(), 2);
}

#[test]
pub(crate) fn e03_two_gpus_share_a_folder_without_undoing_each_others_work() {
    let mut place = Place::new();
    let (mut spark, mut hopper) = (runtime(), FakeRuntime::new([10, 11, 0], 90));
    place.ready(&mut spark);
    assert!(is_built(&place.ready(&mut hopper)));
    assert!(place.said[0].contains("capability 121, not 90"), "{:?}", place.said);
    assert_eq!(hopper.loads(), 1, "the other one's engine is not tried");
    for _ in 0..3 {
        assert!(matches!(place.ready(&mut spark), Source::Kept(_)));
        assert!(matches!(place.ready(&mut hopper), Source::Kept(_)));
    }
    assert_eq!((spark.builds(), hopper.builds()), (1, 1));
    assert_eq!(place.engines().len(), 2);
}

#[test]
pub(crate) fn e06_a_fixed_batch_that_is_not_ours_is_refused_before_any_build() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    for (bytes, shapes) in [
        (model(1, ""), "model [1,3,16,16], config [4,3,16,16]"),
        (
            model_of(
                vec![tensor("input", ElemType::Fp16, &[-1, 3, 224, 224])],
                vec![tensor("features", ElemType::Fp32, &[-1, 8])],
                "",
            ),
            "model [-1,3,224,224], config [4,3,16,16]",
        ),
    ] {
        place.put("m.onnx", &bytes);
        let text = place.refused(&mut runtime);
        assert!(text.contains(shapes) && text.contains("m.onnx"), "{text}");
    }
    assert!(runtime.calls.is_empty());

    place.put("m.onnx", &model(4, ""));
    let ready = place.prepare(&mut runtime).expect("a fixed batch of ours");
    assert_eq!((ready.plan.min_images, ready.plan.max_images), (4, 4));
    place.put("m.onnx", &model(-1, ""));
    let ready = place.prepare(&mut runtime).expect("an open batch");
    assert_eq!((ready.plan.min_images, ready.plan.max_images), (1, 4));
}

#[test]
pub(crate) fn e07_names_and_types_are_refused_before_any_build_with_the_models_own() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let input = |name, elem| tensor(name, elem, &[-1, 3, 16, 16]);
    let rows = |name, dim| tensor(name, ElemType::Fp32, &[-1, dim]);
    let half = ElemType::Fp16;
    for (inputs, outputs, says) in [
        (vec![input("data", half)], vec![rows("features", 8)], "no input of this name"),
        (vec![input("input", half)], vec![rows("output", 8)], "no output of this name"),
        (
            vec![input("input", half)],
            vec![rows("features", 8), rows("more", 8)],
            "nothing in the config takes it",
        ),
        (
            vec![input("input", ElemType::Fp32)],
            vec![rows("features", 8)],
            "element type of 'input': model fp32, config fp16",
        ),
        (vec![input("input", half)], vec![rows("features", 5)], "model [-1,5], config [4,8]"),
    ] {
        let listed: Vec<String> = inputs.iter().chain(&outputs).map(ToString::to_string).collect();
        let bytes = model_of(inputs, outputs, "");
        place.put("m.onnx", &bytes);
        let text = place.refused(&mut runtime);
        assert!(text.contains(says), "{text}");
        for tensor in &listed {
            assert!(text.contains(tensor), "the list lacks {tensor}: {text}");
        }
    }
    assert!(runtime.calls.is_empty());
}

#[test]
pub(crate) fn e07_a_plain_plan_of_another_model_is_refused_by_its_own_tensors() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let other = model_of(
        vec![tensor("data", ElemType::Fp16, &[-1, 3, 16, 16])],
        vec![tensor("features", ElemType::Fp32, &[-1, 8])],
        "",
    );
    let plan = runtime.plan(&other, Some(Profile { min: 1, opt: 4, max: 8 }));
    place.put("m.engine", &plan);
    place.with_model = false;
    let text = place.refused(&mut runtime);
    assert!(text.contains("input 'data' fp16 [-1,3,16,16]"), "{text}");
    assert!(text.contains("no model is given"), "{text}");
}

#[test]
pub(crate) fn e08_a_batch_outside_the_profile_is_refused_before_any_build() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let all = [(4, 4, 2), (4, 3, 8), (5, 6, 8), (0, 4, 8), (1, 4, 0)];
    for (min, opt, max) in all {
        place.expect.profile = Profile { min, opt, max };
        let text = place.refused(&mut runtime);
        assert!(text.contains("opt_min") && text.contains("opt_m"), "{min} {opt} {max}: {text}");
    }
    place.expect = expect();
    place.expect.images_per_inference = 16;
    let text = place.refused(&mut runtime);
    assert!(text.contains("16, must be from opt_min 1 to opt_max 8"), "{text}");
    assert!(runtime.calls.is_empty());
}

#[test]
pub(crate) fn e08_a_plain_plan_whose_profile_is_too_small_is_not_used() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let plan = runtime.plan(&model(-1, "a"), Some(Profile { min: 1, opt: 2, max: 2 }));
    place.put("m.engine", &plan);
    assert!(is_built(&place.ready(&mut runtime)));
    let why = &place.said[0];
    assert!(
        why.contains("m.engine: its profile takes 1 to 2 images, one inference has 4"),
        "{why}"
    );
}

#[test]
pub(crate) fn e10_another_precision_is_another_engine() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    for precision in [Precision::Fp16, Precision::Int8, Precision::Fp32] {
        place.precision = precision;
        assert!(is_built(&place.ready(&mut runtime)));
        assert!(matches!(place.ready(&mut runtime), Source::Kept(_)));
    }
    let built = |word: &str, timed| Call::Build(word.into(), timed);
    runtime.calls.retain(|call| matches!(call, Call::Build(..)));
    // Measured times serve all precisions.
    assert_eq!(runtime.calls, [built("fp16", false), built("int8", true), built("fp32", true)]);
    place.precision = Precision::Fp16;
    assert!(matches!(place.ready(&mut runtime), Source::Kept(_)), "and back");
}

#[test]
pub(crate) fn a_plain_plan_at_the_path_itself_is_used_and_said_to_be_unknown() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let plan = runtime.plan(&model(-1, "a"), Some(Profile { min: 2, opt: 4, max: 4 }));
    place.put("m.engine", &plan);
    let ready = place.prepare(&mut runtime).expect("it fits");
    assert_eq!(ready.source, Source::Plain(place.file("m.engine")));
    assert_eq!(ready.profile, Profile { min: 2, opt: 4, max: 4 });
    assert_eq!(ready.plan.min_images, 2, "smaller ones are padded");
    assert_eq!(place.said.len(), 1);
    assert!(place.said[0].contains("which model and precision it was built from is not known"));
    assert_eq!(runtime.builds(), 0);
    assert_eq!(fs::read(place.file("m.engine")).expect("it is there"), plan, "it is left alone");
}

#[test]
pub(crate) fn a_plain_plan_of_another_version_is_refused_by_name_and_one_is_built_beside_it() {
    let mut place = Place::new();
    let older = FakeRuntime::new([8, 6, 1], 121);
    place.put("m.engine", &older.plan(&model(-1, "a"), None));
    let mut runtime = runtime();
    assert!(is_built(&place.ready(&mut runtime)));
    assert!(
        place.said[0].contains("m.engine: the plan is refused: version tag"),
        "{:?}",
        place.said
    );
    assert!(place.file("m.engine").exists());
    place.put("m.engine", b"");
    assert!(matches!(place.ready(&mut runtime), Source::Kept(_)), "an empty file is no plan");
}

#[test]
pub(crate) fn one_of_our_files_under_the_plain_name_counts_by_what_it_says() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    place.ready(&mut runtime);
    fs::copy(&place.engines()[0], place.file("m.engine")).expect("it is copied");
    assert!(matches!(place.ready(&mut runtime), Source::Plain(_)));
    place.precision = Precision::Int8;
    assert!(is_built(&place.ready(&mut runtime)));
    assert!(place.said[0].contains("m.engine: built for precision fp16, not int8"));
}

#[test]
pub(crate) fn a_damaged_engine_is_built_again_and_the_damage_named() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    place.ready(&mut runtime);
    let file = place.engines().remove(0);
    let good = fs::read(&file).expect("it was kept");
    let last = good.len() - 1;
    let mut flipped = good.clone();
    flipped[last] ^= 1;
    for (bytes, says) in [
        (&flipped[..], "checksum"),
        (&good[..last], "its header says"),
        (&good[..60], "header is not complete"),
        (&good[..5], "does not begin"),
        (&[][..], "does not begin"),
    ] {
        fs::write(&file, bytes).expect("it is written");
        assert!(is_built(&place.ready(&mut runtime)), "{says}");
        assert!(place.said[0].contains(says), "{says}: {:?}", place.said);
        assert_eq!(fs::read(&file).expect("it is there"), good, "mended");
    }
}

#[test]
pub(crate) fn every_byte_of_an_engine_file_is_guarded() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    place.ready(&mut runtime);
    let good = fs::read(&place.engines()[0]).expect("it was kept");
    let whole = entry::parse(&good).expect("it is whole");
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x20;
        // Refused, or another key, which `difference` sees; never the same key with another plan.
        if let Ok(entry) = entry::parse(&bytes) {
            assert_ne!(entry.key, whole.key, "byte {at}");
            assert_eq!(entry.body, whole.body, "byte {at}");
        }
    }
}

#[test]
pub(crate) fn a_build_that_fails_or_is_stopped_leaves_nothing_behind() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let error = RuntimeError { fault: RuntimeFault::Build, text: "no engine came of it".into() };
    runtime.build_errors.push_back(error);
    let text = place.refused(&mut runtime);
    assert_eq!(text, "the engine could not be built: no engine came of it");
    place.stop = true;
    assert!(place.refused(&mut runtime).contains("stopped"));
    assert_eq!(fs::read_dir(place.folder.path()).expect("a folder").count(), 1, "the model alone");
    place.stop = false;
    assert!(is_built(&place.ready(&mut runtime)), "the next start builds");
}

#[test]
pub(crate) fn a_part_of_a_file_from_a_start_that_was_killed_does_no_harm() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    place.ready(&mut runtime);
    let file = place.engines().remove(0);
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let part = place.file(&format!("{name}.999999.tmp"));
    fs::rename(&file, &part).expect("it is renamed");
    assert!(is_built(&place.ready(&mut runtime)));
    assert!(!part.exists(), "the next one takes it away");
}

#[test]
pub(crate) fn an_engine_that_cannot_be_kept_runs_all_the_same() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    let source = place.ready(&mut runtime);
    let Source::Built(Some(file)) = source else { panic!("not built") };
    fs::remove_file(&file).expect("it is removed");
    // A folder in its place: it cannot be renamed over.
    fs::create_dir(&file).expect("a folder");
    fs::write(file.join("in the way"), b"").expect("it is written");
    assert_eq!(place.ready(&mut runtime), Source::Built(None));
    let last = place.said.last().expect("it is said");
    assert!(last.contains("could not be kept"), "{last}");
    let left = fs::read_dir(place.folder.path()).expect("a folder");
    let temporary = |name: &str| Path::new(name).extension().is_some_and(|e| e == "tmp");
    let names =
        left.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    assert!(!names.into_iter().any(|name| temporary(&name)), "a part was left behind");
}

#[test]
pub(crate) fn times_of_another_machine_are_not_used() {
    let mut place = Place::new();
    place.ready(&mut runtime());
    let mut other = FakeRuntime::new([10, 11, 0], 90);
    place.ready(&mut other);
    assert_eq!(other.calls[0], Call::Build("fp16".into(), false));
    // Nor where they lie under the name of ours: what is written in the file decides.
    let times = |place: &Place| {
        let files = fs::read_dir(place.folder.path()).expect("a folder");
        let mut files: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "timing"));
        files
    };
    let mut here = Place::new();
    here.ready(&mut runtime());
    let (ours, theirs) = (times(&here).remove(0), times(&place));
    let of_other = theirs.iter().find(|file| file.file_name() != ours.file_name());
    fs::copy(of_other.expect("two machines"), &ours).expect("it is copied");
    here.precision = Precision::Fp32;
    let mut again = runtime();
    here.ready(&mut again);
    assert_eq!(again.calls[0], Call::Build("fp32".into(), false));
    // The build put its own in their place.
    here.precision = Precision::Int8;
    here.ready(&mut again);
    assert!(again.calls.contains(&Call::Build("int8".into(), true)), "{:?}", again.calls);
}

#[test]
pub(crate) fn without_a_model_and_without_an_engine_it_is_said_what_is_missing() {
    let (mut place, mut runtime) = (Place::new(), runtime());
    place.with_model = false;
    let text = place.refused(&mut runtime);
    assert!(text.contains("m.engine: there is no such file"), "{text}");
    place.with_model = true;
    fs::remove_file(place.file("m.onnx")).expect("it is removed");
    assert!(place.refused(&mut runtime).contains("m.onnx"));
    place.put("m.onnx", b"PK");
    assert!(place.refused(&mut runtime).contains("not an ONNX model"));
    assert!(runtime.calls.is_empty());
}
