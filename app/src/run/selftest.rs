//! The self-test: one known batch through check, reorder, inference and sink, against the features
//! that are expected of it.
//!
//! The batch is the one of made-up frames (`frames::Synthetic`): every byte follows from geometry
//! and place. The software NIC carries it; everything behind the NIC is what the run will use:
//! the same reorder, the same engine on the same GPU, the same sink. The expected features are a
//! feature file that [`make`] wrote, on a machine that was known to be right.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use tensorwire_configs::{Backend, Config, Region, RegionKind, RxPoll, Sender};
use tensorwire_core::flow::PortRange;
use tensorwire_core::header::HeaderSpec;

use super::args::RunArgs;
use super::clock::Clock;
use super::plan::{Plan, failure};
use super::signals::StopRequest;
use super::stages;
use crate::exit::{ExitCode, Failure};
use crate::service::Service;
use crate::sink::npy::{self, NpyArray};
use crate::talk::Talk;

/// How far a feature may be from the expected one, as a part of the largest of its image: fp16
/// inference on another GPU differs by some 10⁻³, a wrong slot, byte order or model by 10⁻¹ and
/// more.
pub const TOLERANCE: f32 = 0.01;

/// Runs the batch of `config` and compares its features with those of the file `golden`. A
/// configuration without inference has no features: that all images arrive is all that is tested.
///
/// # Errors
///
/// A [`Failure`]: 7 when the file cannot be read, 5 when the batch does not come through or its
/// features are others.
pub fn against(
    config: &Config,
    args: &RunArgs,
    golden: &Path,
    stop: &StopRequest,
) -> Result<(), Failure> {
    let talk = Talk::new(args.quiet).of(config);
    if config.settings.inference_backend == Backend::None {
        pass(config, args, None, stop)?;
        talk.say(format_args!("self-test: passed: all images of a batch, no inference"));
        return Ok(());
    }
    let unreadable = |error: &dyn std::fmt::Display| {
        failure(ExitCode::File, format!("self-test: {}: {error}", golden.display()))
    };
    let expected = npy::read(golden).map_err(|error| unreadable(&error))?;
    let file = Scratch::new();
    pass(config, args, Some(&file.0), stop)?;
    let found = npy::read(&file.0).map_err(|error| unreadable(&error))?;
    let worst = compare(&expected, &found)?;
    talk.say(format_args!(
        "self-test: passed: {} images of {} features, off by {worst:.1e} of the largest at most \
         (allowed {TOLERANCE:.0e})",
        found.rows, found.columns
    ));
    Ok(())
}

/// Writes the features of the batch of `config` to `golden`, for machines to be held against.
///
/// # Errors
///
/// As [`against`]; 2 for a configuration without inference.
pub fn make(
    config: &Config,
    args: &RunArgs,
    golden: &Path,
    stop: &StopRequest,
) -> Result<(), Failure> {
    if config.settings.inference_backend == Backend::None {
        let why = "self-test: without inference there are no features to expect";
        return Err(failure(ExitCode::Usage, why));
    }
    pass(config, args, Some(golden), stop)
}

/// One pass of the batch, its features to `features`.
fn pass(
    config: &Config,
    args: &RunArgs,
    features: Option<&Path>,
    stop: &StopRequest,
) -> Result<(), Failure> {
    let own = RunArgs {
        replay_once: true,
        features: features.map(Path::to_path_buf),
        no_rebuild: args.no_rebuild,
        // Before the pinning of the run: nothing is real time yet. And stdout is the run's.
        no_pin: true,
        json: true,
        quiet: true,
        ..RunArgs::default()
    };
    let plan = Plan::of(loopback(config)?, &own, Talk::new(true))?;
    let summary = stages::execute(&plan, &own, Clock::start(), (stop, &Service::unseen()))?;
    if summary.exit == ExitCode::Complete {
        return Ok(());
    }
    let exit = match summary.exit {
        ExitCode::Owed => ExitCode::Device,
        other => other,
    };
    Err(failure(exit, format!("self-test: failed: {}", summary.exit_reason)))
}

/// The configuration with the software NIC in place of its own, and a sender in the same process.
fn loopback(config: &Config) -> Result<Config, Failure> {
    let mut config = config.clone();
    let Some(rx) = &mut config.rx else {
        return Err(failure(ExitCode::Usage, "self-test: the configuration has no receiver"));
    };
    rx.socket = None;
    // Headers in front of frames are taken off by the NIC that this one stands for.
    rx.outer.clear();
    let flow = rx.reordered().next();
    let port = |range: Option<PortRange>| range.map_or(4096, |range| range.first());
    let (udp_src, udp_dst) =
        flow.map_or((4096, 4096), |flow| (port(flow.udp_src), port(flow.udp_dst)));
    let tx = Sender {
        interface: rx.interface.clone(),
        address: tensorwire_configs::Address::Loopback,
        queue_id: 0,
        queue: "selftest".to_owned(),
        bench_path: "selftest".to_owned(),
        queue_core: None,
        worker_core: None,
        batch_size: 64,
        region: config.regions.len(),
        header: HeaderSpec {
            eth_src: [2, 0, 0, 0, 0, 1],
            eth_dst: [2, 0, 0, 0, 0, 2],
            ip_src: [192, 0, 2, 1],
            ip_dst: [192, 0, 2, 2],
            udp_src,
            udp_dst,
        },
        flows: Vec::new(),
        offload_eth_src: false,
        pacing_mbps: 0,
        socket: None,
    };
    // The software NIC writes by the processor: packets of a GPU's own memory lie where it reads.
    if let Some(region) = config.regions.get_mut(rx.region)
        && region.kind == RegionKind::Device
    {
        region.kind = RegionKind::HostPinned;
    }
    config.regions.push(Region {
        name: "selftest".to_owned(),
        kind: RegionKind::Host,
        affinity: 0,
        buffers: 64,
        buffer_bytes: u32::try_from(config.geometry.frame_bytes()).unwrap_or(u32::MAX),
    });
    config.tx = Some(tx);
    config.software_loopback = true;
    config.dataset = tensorwire_configs::Dataset::default();
    let settings = &mut config.settings;
    settings.features = None;
    settings.rx_poll = RxPoll::Fused;
    settings.tx_ring = settings.tx_ring.min(64);
    settings.lock_memory = false;
    settings.realtime_priority = None;
    settings.isolated_cores = false;
    settings.startup_wait_s = settings.startup_wait_s.min(30);
    settings.quiesce_wait_s = settings.quiesce_wait_s.min(5);
    Ok(config)
}

/// How far the features are apart at most, as a part of the largest expected one of their image.
fn compare(expected: &NpyArray, found: &NpyArray) -> Result<f32, Failure> {
    let fails = |text: String| failure(ExitCode::Device, format!("self-test: failed: {text}"));
    let shape = |of: &NpyArray| format!("{} images of {} features", of.rows, of.columns);
    if (expected.rows, expected.columns) != (found.rows, found.columns) {
        let (expected, found) = (shape(expected), shape(found));
        return Err(fails(format!("{found}, and {expected} are expected")));
    }
    let mut worst = 0.0f32;
    for image in 0..expected.rows {
        let rows = expected.row(image).zip(found.row(image));
        let (expected, found) = rows.ok_or_else(|| fails(format!("image {image} has no row")))?;
        let largest = expected.iter().fold(f32::MIN_POSITIVE, |most, value| most.max(value.abs()));
        for (feature, (expected, found)) in expected.iter().zip(found).enumerate() {
            let off = (expected - found).abs() / largest;
            // What is no number is not near anything.
            if off.is_nan() || off > TOLERANCE {
                return Err(fails(format!(
                    "image {image}, feature {feature}: {found} where {expected} is expected, off \
                     by {off:.1e} of the largest; allowed is {TOLERANCE:.0e}"
                )));
            }
            worst = worst.max(off);
        }
    }
    Ok(worst)
}

/// A file that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(env::temp_dir().join(format!("tensorwire-selftest-{}.npy", process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not have come to be.
        let _ = fs::remove_file(&self.0);
    }
}
