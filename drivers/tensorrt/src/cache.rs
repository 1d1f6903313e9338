//! An engine, from where it lies or newly built.
//!
//! The model is held against the configuration before anything else. Then, in this order: a plan at
//! `engine_path` itself, as `trtexec` leaves one, if it fits; the engine that we built for exactly
//! this model, precision, profile, library and GPU; a build. What another version or GPU built
//! keeps its own file, so machines that share a folder do not undo each other's work.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tensorwire_onnx::{
    HeaderError, IoMismatch, IoPlan, ModelExpect, Profile, check_io, read_header_bytes,
};

use crate::entry::{self, EntryError};
use crate::key::{EngineKey, GpuIdentity, Parts};
use crate::planted::planted;
use crate::runtime::{
    BuildRequest, BuildStep, Engine, EngineTensor, Precision, Ranges, Runtime, RuntimeError,
    as_model,
};

/// Whether an engine may be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// Where none fits, one is built.
    Allowed,
    /// Where none fits, that is an error (`--no-rebuild`).
    Refused,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct EngineRequest<'a> {
    /// The model (`onnx_path`). Without one only a plan at `engine_path` can serve.
    pub onnx: Option<&'a Path>,
    /// Where engines lie (`engine_path`); beside the model where not given.
    pub engine: Option<&'a Path>,
    /// What the configuration expects of the model.
    pub expect: &'a ModelExpect,
    /// What to compute in.
    pub precision: Precision,
    /// Most scratch memory of a layer, in bytes.
    pub workspace_bytes: Option<u64>,
    /// Whether layers keep their names and tactics.
    pub detailed: bool,
    /// Compute capabilities to build for; empty for `gpu`.
    pub targets: &'a [u32],
    /// The GPU and its driver.
    pub gpu: &'a GpuIdentity,
    /// Whether a build is allowed.
    pub rebuild: Rebuild,
}

/// What is told while an engine is made ready.
pub struct Listener<'a> {
    /// Takes one line for the user, as it happens.
    pub say: &'a mut dyn FnMut(&str),
    /// Takes the steps of a build; `false` stops it.
    pub progress: &'a mut dyn FnMut(BuildStep<'_>) -> bool,
}

impl fmt::Debug for Listener<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// Where an engine came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The plan at `engine_path` itself. Names, types and profile fit; which model and precision it
    /// was built from is not known.
    Plain(PathBuf),
    /// Built earlier, for exactly this.
    Kept(PathBuf),
    /// Built now; the file it is kept in, unless that could not be written.
    Built(Option<PathBuf>),
}

/// An engine that fits the configuration.
#[derive(Debug)]
pub struct Ready<E> {
    /// The engine.
    pub engine: E,
    /// Names, types and sizes, as the engine has them.
    pub plan: IoPlan,
    /// The batch sizes that it takes.
    pub profile: Profile,
    /// Where it came from.
    pub source: Source,
}

/// Why there is no engine.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// Neither a model nor an engine is named.
    Nothing,
    /// The model cannot be read.
    Model(PathBuf, io::Error),
    /// The model is none.
    Header(HeaderError),
    /// Model and configuration do not agree. Nothing was built.
    Mismatch(PathBuf, Box<IoMismatch>),
    /// No engine fits, and a build is not allowed or not possible; each reason is a line.
    NoEngine {
        /// What was looked at, and what is wrong with it.
        reasons: Vec<String>,
        /// Why none was built.
        why: &'static str,
    },
    /// The build failed, or was stopped.
    Build(RuntimeError),
    /// What was built does not fit: the parser or the library changed names or types.
    BuiltOther(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("neither onnx_path nor engine_path is given"),
            Self::Model(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Header(error) => write!(f, "{error}"),
            Self::Mismatch(path, mismatch) => write!(f, "{}: {mismatch}", path.display()),
            Self::NoEngine { reasons, why } => {
                write!(f, "no engine fits, and none is built: {why}")?;
                reasons.iter().try_for_each(|reason| write!(f, "\n  {reason}"))
            }
            Self::Build(error) => write!(f, "the engine could not be built: {error}"),
            Self::BuiltOther(why) => write!(f, "the engine that was built does not fit: {why}"),
        }
    }
}

impl std::error::Error for EngineError {}

/// A model whose header fits the configuration.
struct Model {
    bytes: Vec<u8>,
    fixed_batch: bool,
}

fn read_model(path: &Path, expect: &ModelExpect) -> Result<Model, EngineError> {
    let bytes = fs::read(path).map_err(|error| EngineError::Model(path.into(), error))?;
    let header = read_header_bytes(&bytes).map_err(|mut error| {
        error.path = Some(path.into());
        EngineError::Header(error)
    })?;
    let plan = check_io(&header, expect)
        .map_err(|mismatch| EngineError::Mismatch(path.into(), Box::new(mismatch)))?;
    Ok(Model { bytes, fixed_batch: plan.fixed_batch })
}

/// Holds an engine against the configuration: names, types and shapes as those of a model, and that
/// a whole inference lies within its profile.
fn fits(tensors: &[EngineTensor], expect: &ModelExpect) -> Result<(IoPlan, Profile), String> {
    let plan = check_io(&as_model(tensors), expect).map_err(|mismatch| mismatch.to_string())?;
    let images = expect.images_per_inference;
    let fixed = Profile { min: images, opt: images, max: images };
    let input = tensors.iter().find(|tensor| tensor.is_input && tensor.name == plan.input_name);
    let profile = match input.and_then(|input| input.batch) {
        _ if plan.fixed_batch => fixed,
        Some(profile) => profile,
        None => return Err("its input has an open batch and no profile".into()),
    };
    if (images < profile.min || images > profile.max) && !planted!(ProfileUnchecked) {
        return Err(format!(
            "its profile takes {} to {} images, one inference has {images}",
            profile.min, profile.max
        ));
    }
    Ok((IoPlan { min_images: profile.min as usize, ..plan }, profile))
}

/// Loads a plan and holds it against the configuration.
fn load<R: Runtime>(
    runtime: &mut R,
    plan: &[u8],
    expect: &ModelExpect,
    source: Source,
) -> Result<Ready<R::Engine>, String> {
    let engine = runtime.load(plan).map_err(|error| error.to_string())?;
    let tensors = engine.tensors().map_err(|error| error.to_string())?;
    let (plan, profile) = fits(&tensors, expect)?;
    Ok(Ready { engine, plan, profile, source })
}

/// Finds or builds the engine that `request` describes.
///
/// # Errors
///
/// [`EngineError`]; all but a failed build come before anything is built.
pub fn prepare<R: Runtime>(
    runtime: &mut R,
    request: &EngineRequest<'_>,
    listener: &mut Listener<'_>,
) -> Result<Ready<R::Engine>, EngineError> {
    let model = request.onnx.map(|path| read_model(path, request.expect)).transpose()?;
    let beside = request.onnx.map(|path| path.with_extension("engine"));
    let path = request.engine.or(beside.as_deref()).ok_or(EngineError::Nothing)?;
    let key = model.as_ref().map(|model| key(runtime, request, model));
    let mut reasons = Vec::new();
    match plain(runtime, path, request, key.as_ref()) {
        Ok(Some(ready)) => {
            (listener.say)(&format!(
                "{}: used as it is; names, types and profile fit, which model and precision it was \
                 built from is not known",
                path.display()
            ));
            return Ok(ready);
        }
        Ok(None) => {}
        Err(why) => reasons.push(why),
    }
    let (Some(model), Some(key)) = (model, key) else {
        if reasons.is_empty() {
            reasons.push(format!("{}: there is no such file", path.display()));
        }
        return Err(EngineError::NoEngine { reasons, why: "no model is given (onnx_path)" });
    };
    let file = key.file(path);
    match kept(runtime, &file, request, &key) {
        Ok(ready) => return Ok(ready),
        Err(Some(why)) => reasons.push(why),
        Err(None) => reasons.extend(neighbours(path, &key)),
    }
    if request.rebuild == Rebuild::Refused && !planted!(RebuildAnyway) {
        if reasons.is_empty() {
            reasons.push(format!("{}: there is no such file", file.display()));
        }
        return Err(EngineError::NoEngine { reasons, why: "a rebuild is not allowed" });
    }
    for reason in &reasons {
        (listener.say)(reason);
    }
    build(runtime, request, listener, &model, &key, path)
}

fn key<R: Runtime>(runtime: &R, request: &EngineRequest<'_>, model: &Model) -> EngineKey {
    let versions = runtime.versions();
    EngineKey::new(&Parts {
        model: &model.bytes,
        precision: request.precision,
        profile: (!model.fixed_batch).then_some(request.expect.profile),
        workspace_bytes: request.workspace_bytes,
        detailed: request.detailed,
        targets: request.targets,
        flavor: versions.flavor,
        version: versions.library,
        gpu: request.gpu,
    })
}

/// The file at `engine_path` itself, if there is one that fits; an error says why it does not.
fn plain<R: Runtime>(
    runtime: &mut R,
    path: &Path,
    request: &EngineRequest<'_>,
    key: Option<&EngineKey>,
) -> Result<Option<Ready<R::Engine>>, String> {
    let said = |why: String| format!("{}: {why}", path.display());
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(said(format!("cannot be read: {error}"))),
    };
    let source = Source::Plain(path.into());
    let plan = match entry::parse(&bytes) {
        Err(EntryError::Foreign) => bytes,
        Err(error) => return Err(said(error.to_string())),
        // One of our files under another name: what it says of itself counts.
        Ok(entry) => match key.and_then(|key| key.difference(&entry.key)) {
            Some(_) if planted!(PlainTrusted) => entry.body,
            Some(difference) => return Err(said(format!("built for {difference}"))),
            None => entry.body,
        },
    };
    load(runtime, &plan, request.expect, source).map(Some).map_err(said)
}

/// The engine that we built for this key; the error says why it does not serve, or nothing if there
/// is none.
fn kept<R: Runtime>(
    runtime: &mut R,
    file: &Path,
    request: &EngineRequest<'_>,
    key: &EngineKey,
) -> Result<Ready<R::Engine>, Option<String>> {
    let said = |why: String| Some(format!("{}: {why}", file.display()));
    let entry = match entry::read(file) {
        Ok(entry) => entry,
        Err(EntryError::Read(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(None);
        }
        Err(error) => return Err(said(error.to_string())),
    };
    // The name is eight digits; what is written in the file decides.
    if let Some(difference) = key.difference(&entry.key) {
        return Err(said(format!("built for {difference}")));
    }
    load(runtime, &entry.body, request.expect, Source::Kept(file.into())).map_err(said)
}

/// Most files named in an explanation.
const MAX_NEIGHBOURS: usize = 4;

/// The engines beside `path` that were built for something else, and for what: the answer to "why
/// is it built again?". They are kept.
fn neighbours(path: &Path, key: &EngineKey) -> Vec<String> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let extension = path.extension();
    let of_stem = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.extension() == extension && name.starts_with(&format!("{stem}.")) && file != path
    };
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(of_stem)
        .collect();
    files.sort();
    let told = |file: &PathBuf| {
        let difference = key.difference(&entry::read_key(file)?)?;
        Some(format!("{}: kept, and not used: built for {difference}", file.display()))
    };
    files.iter().filter_map(told).take(MAX_NEIGHBOURS).collect()
}

fn build<R: Runtime>(
    runtime: &mut R,
    request: &EngineRequest<'_>,
    listener: &mut Listener<'_>,
    model: &Model,
    key: &EngineKey,
    path: &Path,
) -> Result<Ready<R::Engine>, EngineError> {
    let versions = runtime.versions();
    let timing_file = key.timing_file(path);
    let timings = read_timings(&timing_file, key, versions.has_timing_cache);
    let how_long = match (versions.reports_progress, &timings) {
        (_, Some(_)) => "with the times of an earlier build",
        (true, None) => "which takes some minutes",
        (false, None) => "which takes some minutes; this version reports no progress",
    };
    (listener.say)(&format!(
        "building an {} engine with {} {}, {how_long}",
        request.precision, versions.flavor, versions.library
    ));
    let built = runtime
        .build(
            &BuildRequest {
                model: &model.bytes,
                input: &request.expect.input_name,
                image: [request.expect.channels, request.expect.height, request.expect.width]
                    .map(|n| n as usize),
                profile: (!model.fixed_batch).then_some(request.expect.profile),
                precision: request.precision,
                ranges: Ranges::Model,
                workspace_bytes: request.workspace_bytes,
                detailed: request.detailed,
                targets: request.targets,
                timing_cache: timings.as_deref(),
            },
            listener.progress,
        )
        .map_err(EngineError::Build)?;
    // Loaded before it is kept: what does not load is not worth a file.
    let mut ready = load(runtime, &built.plan, request.expect, Source::Built(None))
        .map_err(EngineError::BuiltOther)?;
    let file = key.file(path);
    match entry::write(&file, key, &built.plan) {
        Ok(()) => ready.source = Source::Built(Some(file)),
        // The engine works all the same; the next start pays for it.
        Err(error) => {
            (listener.say)(&format!("{}: the engine could not be kept: {error}", file.display()))
        }
    }
    if let Some(times) = built.timing_cache
        && let Err(error) = entry::write(&timing_file, &key.machine(), &times)
    {
        let file = timing_file.display();
        (listener.say)(&format!("{file}: the measured times could not be kept: {error}"));
    }
    Ok(ready)
}

/// The times of earlier builds, if they are of this library and GPU. Without them a build is slower
/// and no different, so what is wrong with the file does not matter.
fn read_timings(file: &Path, key: &EngineKey, usable: bool) -> Option<Vec<u8>> {
    let entry = usable.then(|| entry::read(file).ok()).flatten()?;
    let ours = key.machine().difference(&entry.key).is_none() || planted!(StaleTimes);
    ours.then_some(entry.body)
}

#[cfg(test)]
pub(crate) mod tests;
