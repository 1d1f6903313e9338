//! A TensorRT that builds plans of text, and refuses them as the real one does.

use std::collections::VecDeque;

use tensorwire_onnx::{Profile, TensorInfo, read_header_bytes};

use super::gpu::{FakeContext, World};
use crate::runtime::{
    BuildRequest, BuildStep, Built, Engine, EngineTensor, Flavor, Runtime, RuntimeError,
    RuntimeFault, Version, Versions,
};

/// What a test looks at afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A build: its precision, and whether it was given times.
    Build(String, bool),
    /// A plan was loaded, or tried.
    Load,
}

/// TensorRT of the tests.
#[derive(Debug)]
pub(crate) struct FakeRuntime {
    pub(crate) versions: Versions,
    /// The GPU that is here: plans for another are refused.
    pub(crate) capability: u32,
    pub(crate) calls: Vec<Call>,
    /// Results of the next builds; when there are none they succeed.
    pub(crate) build_errors: VecDeque<RuntimeError>,
    /// Steps that a build reports.
    pub(crate) steps: u32,
    pub(crate) world: World,
}

impl FakeRuntime {
    pub(crate) fn new(version: [u32; 3], capability: u32) -> Self {
        let [major, minor, patch] = version;
        let version = Version { major, minor, patch };
        let versions = Versions {
            flavor: Flavor::TensorRt,
            header: version,
            library: version,
            reports_progress: true,
            has_timing_cache: true,
            has_targets: false,
            has_implicit_int8: true,
        };
        Self {
            versions,
            capability,
            calls: Vec::new(),
            build_errors: VecDeque::new(),
            steps: 3,
            world: World::default(),
        }
    }

    pub(crate) fn builds(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call, Call::Build(..))).count()
    }

    pub(crate) fn loads(&self) -> usize {
        self.calls.len() - self.builds()
    }

    /// A plan as this library makes it, without a call.
    pub(crate) fn plan(&self, model: &[u8], profile: Option<Profile>) -> Vec<u8> {
        let profile =
            profile.map_or("fixed".to_owned(), |p| format!("{} {} {}", p.min, p.opt, p.max));
        let version = self.versions.library;
        let mut plan = format!("plan|{version}|{}|{profile}|", self.capability).into_bytes();
        plan.extend_from_slice(model);
        plan
    }
}

fn refused(fault: RuntimeFault, text: &str) -> RuntimeError {
    RuntimeError { fault, text: text.into() }
}

impl Runtime for FakeRuntime {
    type Engine = FakeEngine;

    fn versions(&self) -> Versions {
        self.versions
    }

    fn build(
        &mut self,
        request: &BuildRequest<'_>,
        progress: &mut dyn FnMut(BuildStep<'_>) -> bool,
    ) -> Result<Built, RuntimeError> {
        let timed = request.timing_cache.is_some();
        self.calls.push(Call::Build(request.precision.to_string(), timed));
        for step in 0..self.steps {
            if !progress(BuildStep { phase: "tactics", step, steps: self.steps }) {
                return Err(refused(RuntimeFault::Cancelled, "the build was stopped"));
            }
        }
        if let Some(error) = self.build_errors.pop_front() {
            return Err(error);
        }
        let plan = self.plan(request.model, request.profile);
        Ok(Built { plan, timing_cache: Some(b"times".to_vec()) })
    }

    fn load(&mut self, plan: &[u8]) -> Result<FakeEngine, RuntimeError> {
        self.calls.push(Call::Load);
        let mut parts = plan.splitn(5, |&byte| byte == b'|');
        let mut text = || std::str::from_utf8(parts.next()?).ok();
        let head = (text(), text(), text(), text());
        let (Some("plan"), Some(version), Some(capability), Some(profile)) = head else {
            return Err(refused(
                RuntimeFault::Load,
                "the plan is refused: magic tag does not match",
            ));
        };
        let ours = self.versions.library.to_string();
        if version != ours || capability != self.capability.to_string() {
            return Err(refused(
                RuntimeFault::Load,
                "the plan is refused: version tag does not match",
            ));
        }
        let numbers: Vec<u32> = profile.split(' ').filter_map(|n| n.parse().ok()).collect();
        let profile = match numbers[..] {
            [min, opt, max] => Some(Profile { min, opt, max }),
            _ => None,
        };
        let model = read_header_bytes(parts.next().unwrap_or_default())
            .map_err(|error| refused(RuntimeFault::Load, &error.to_string()))?;
        let tensor = |info: &TensorInfo, is_input| EngineTensor {
            name: info.name.clone(),
            is_input,
            elem_type: info.elem_type,
            shape: info.dims.iter().flatten().map(super::gpu::open_or_fixed).collect(),
            batch: profile.filter(|_| is_input),
        };
        let inputs = model.inputs.iter().map(|info| tensor(info, true));
        let tensors = inputs.chain(model.outputs.iter().map(|info| tensor(info, false)));
        Ok(FakeEngine { tensors: tensors.collect(), world: self.world.clone() })
    }

    fn parser_version(&mut self) -> Result<Version, RuntimeError> {
        Ok(Version { major: 0, minor: 1, patch: 0 })
    }
}

/// An engine of the tests.
#[derive(Debug)]
pub(crate) struct FakeEngine {
    tensors: Vec<EngineTensor>,
    world: World,
}

impl Engine for FakeEngine {
    type Context = FakeContext;

    fn tensors(&self) -> Result<Vec<EngineTensor>, RuntimeError> {
        Ok(self.tensors.clone())
    }

    fn context(&self) -> Result<FakeContext, RuntimeError> {
        self.world.context()
    }

    fn device_memory(&self) -> u64 {
        1 << 20
    }

    fn inspect(&self) -> Result<String, RuntimeError> {
        Ok("{}".into())
    }
}
