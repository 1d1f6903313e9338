//! From the configuration and the command line to what exactly is going to happen. Nothing is
//! started here; everything that can be refused is refused here, with its exit code, and what is
//! cheap to refuse before what takes time to look at.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use tensorwire_configs::{Config, Mode, RxPoll};
use tensorwire_core::geometry::ElementType;
use tensorwire_core::pipeline::transmitter::FrameSource;
use tensorwire_kernels::Conversion;
use tensorwire_sim::wire::{MAX_SHUFFLE, WireFaults};

use super::backend::Model;
use super::data::{DataSet, capture_path};
use super::frames::Frames;
#[cfg(feature = "cli")]
use super::load;
use super::nic::NicPlan;
use crate::dataset::Labels;
use crate::exit::{ExitCode, Failure, Owed};
use crate::run::args::RunArgs;
use crate::sink::Anchoring;
use crate::talk::Talk;

/// How often the frames are sent, and under which numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// Once.
    Once,
    /// Over and over, with one running sequence.
    Loop,
    /// Over and over, as they are.
    Verbatim,
}

/// A file of a row for each image that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFile {
    /// Its path.
    pub path: PathBuf,
    /// Rows: images of a pass.
    pub rows: u64,
}

impl RowFile {
    fn of((path, rows): (PathBuf, u64)) -> Self {
        Self { path, rows }
    }
}

/// What is going to happen.
#[derive(Debug)]
pub struct Plan {
    /// The configuration, with the overrides of the command line.
    pub config: Config,
    /// Which sides run.
    pub mode: Mode,
    /// What is said on the way.
    pub talk: Talk,
    /// Where the start is told, besides stderr.
    pub ready: Option<File>,
    /// What is sent; `None` for a receiver.
    pub frames: Option<Frames>,
    /// How often.
    pub passes: Passes,
    /// Packets of one pass, losses included: what the numbers of the next pass are above it.
    pub pass_packets: u64,
    /// Images of one pass, where that is known.
    pub pass_images: Option<u64>,
    /// Destination that is written into every frame; `None`: frames go where they say.
    pub eth_dst: Option<[u8; 6]>,
    /// Class of each image of the pass.
    pub labels: Option<Labels>,
    /// Names of the classes.
    pub class_names: Vec<String>,
    /// What the run has to bring.
    pub owed: Owed,
    /// Whether indices can be trusted.
    pub anchoring: Anchoring,
    /// The model that infers; `None`: batches are received and given back.
    pub model: Option<Model>,
    /// The feature file.
    pub features: Option<RowFile>,
    /// The file of the logits.
    pub logits: Option<RowFile>,
    /// How the CPU makes the batch of payloads; `None` where only a GPU does.
    pub conversion: Option<Conversion>,
    /// The NIC.
    pub nic: NicPlan,
    /// What its wire does to frames.
    pub faults: WireFaults,
    /// Whether poller and producer are one thread.
    pub fused: bool,
}

/// A failure of the given class.
pub fn failure(exit: ExitCode, reason: impl Into<String>) -> Failure {
    Failure { exit, reason: reason.into() }
}

impl Plan {
    /// Images of one inference.
    #[must_use]
    pub fn images_per_inference(&self) -> u32 {
        let batch = self.config.geometry.images_per_batch();
        self.config.inference.as_ref().map_or(batch, |i| i.images_per_inference)
    }

    /// What would run, in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        let frames = match (&self.frames, self.passes) {
            (None, _) => "nothing is sent".to_owned(),
            (Some(frames), Passes::Once) => format!("{} frames once", frames.frames()),
            (Some(frames), _) => format!("{} frames over and over", frames.frames()),
        };
        let images = self.pass_images.map_or_else(String::new, |n| format!(", {n} images a pass"));
        let model = self.model.as_ref().map_or_else(
            || "no inference".to_owned(),
            |model| {
                format!(
                    "{} images an inference by {}",
                    self.images_per_inference(),
                    model.path().display()
                )
            },
        );
        format!("mode {}, {frames}{images}, {model}", self.mode)
    }

    /// Decides what `run` with `args` does.
    ///
    /// # Errors
    ///
    /// A [`Failure`] with its exit code.
    #[cfg(feature = "cli")]
    pub fn new(args: &RunArgs, talk: Talk) -> Result<Self, Failure> {
        // Before anything of ours is opened that could have the number.
        let ready = ready_file(args)?;
        faults(args)?;
        let (config, eth_dst) = load::configured(args, talk)?;
        Self::planned(config, args, (ready, eth_dst), talk)
    }

    /// Decides what a run of `config` does; what `args` says of a configuration's file is left out.
    ///
    /// # Errors
    ///
    /// A [`Failure`] with its exit code.
    pub fn of(config: Config, args: &RunArgs, talk: Talk) -> Result<Self, Failure> {
        Self::planned(config, args, (ready_file(args)?, None), talk)
    }

    fn planned(
        config: Config,
        args: &RunArgs,
        (ready, eth_dst): (Option<File>, Option<[u8; 6]>),
        talk: Talk,
    ) -> Result<Self, Failure> {
        let mode = config.mode();
        let faults = faults(args)?;
        let nic = NicPlan::of(&config, mode, args)?;
        let talk = talk.of(&config);
        let conversion = conversion(&config)?;
        // A sender neither infers nor needs the model to be there.
        let model = if config.rx.is_some() { Model::of(&config)? } else { None };
        let capture = capture_path(args, &config);
        let passes = passes(args, capture.is_some());
        let once = passes == Passes::Once;
        let features = feature_file(args, &config, model.is_some(), talk)?;
        let logits = logits_file(args, model.as_ref())?;
        let file = match (&features, &logits) {
            (Some(_), _) => Some("the feature file"),
            (None, logits) => logits.as_ref().map(|_| "the file of the logits"),
        };
        if let Some(file) = file
            && capture.is_none()
            && !once
            && args.expected_images.is_none()
        {
            return Err(failure(
                ExitCode::Usage,
                format!(
                    "the number of rows of {file} is not known; name a data set or give \
                     --expected-images"
                ),
            ));
        }
        let data = DataSet::load(args, &config, mode, talk)?;
        notices(args, &config, &data, (once, eth_dst.is_some()), talk);
        let pass_images = match &data.frames {
            Some(Frames::Synthetic(_)) if !once => args.expected_images,
            _ => data.images(&config).or(args.expected_images),
        };
        let anchored_to = data.labels.as_ref().and(pass_images);
        Ok(Self {
            anchoring: Anchoring::new(&config.geometry, anchored_to, once),
            owed: owed(args, mode, once, data.frame_count(), pass_images),
            features: features.zip(pass_images).map(RowFile::of),
            logits: logits.zip(pass_images).map(RowFile::of),
            fused: fused(&config),
            pass_packets: data.frames.as_ref().map_or(0, Frames::pass_packets),
            frames: data.frames,
            labels: data.labels,
            class_names: data.class_names,
            config,
            mode,
            talk,
            ready,
            passes,
            pass_images,
            eth_dst,
            model,
            conversion,
            nic,
            faults,
        })
    }
}

/// What is probably not meant.
fn notices(
    args: &RunArgs,
    config: &Config,
    data: &DataSet,
    (once, eth_dst_given): (bool, bool),
    talk: Talk,
) {
    let owed = args.expected_images.or(data.images(config)).filter(|_| once);
    if let Some((owed, sent)) =
        owed.zip(data.sent_images(config)).filter(|(owed, sent)| owed > sent)
    {
        talk.say(format_args!("notice: {owed} images are owed, and what is sent once has {sent}"));
    }
    let ports =
        |rx: &tensorwire_configs::Receiver| rx.socket.is_none() && !config.software_loopback;
    if config.rx.as_ref().is_some_and(|rx| rx.hardware_timestamps && !ports(rx)) {
        talk.say(format_args!(
            "notice: packets are timed by software: neither a socket nor the software NIC stamps \
             them (hardware_timestamps)"
        ));
    }
    if config.tx.as_ref().is_some_and(|tx| tx.socket.is_some()) {
        // The kernel finds the MAC addresses itself.
        if eth_dst_given {
            talk.say(format_args!("notice: --eth-dst and ETH_DST_ADDR have no effect on sockets"));
        }
        return;
    }
    if let Some(other) = data.other_destination(config).filter(|_| !eth_dst_given) {
        talk.say(format_args!(
            "notice: the frames of the capture go to {}, as they were captured, and not to \
             bench_tx.eth_dst_addr; --eth-dst sends them elsewhere",
            mac(other)
        ));
    }
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// The descriptor that the start is told to, which the process inherited. Opening it by its name in
/// /proc takes nothing over that is not ours. A pipe that nobody reads is refused, where the open
/// would wait for a reader.
fn ready_file(args: &RunArgs) -> Result<Option<File>, Failure> {
    let Some(fd) = args.ready_fd else { return Ok(None) };
    let path = format!("/proc/self/fd/{fd}");
    let opened = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let opened = opened.map_err(|error| {
        failure(ExitCode::Usage, format!("--ready-fd {fd}: cannot be written: {error}"))
    });
    opened.map(Some)
}

fn faults(args: &RunArgs) -> Result<WireFaults, Failure> {
    if args.sim_shuffle > MAX_SHUFFLE {
        return Err(failure(
            ExitCode::Usage,
            format!("--sim-shuffle {}: at most {MAX_SHUFFLE}", args.sim_shuffle),
        ));
    }
    Ok(WireFaults {
        drop: args.sim_drop.and_then(std::num::NonZeroU64::new),
        dup: args.sim_dup.and_then(std::num::NonZeroU64::new),
        shuffle: args.sim_shuffle,
        seed: args.sim_seed,
    })
}

/// The conversion of the geometry's types on the CPU. There may be none where a GPU is to reorder,
/// which converts all that a configuration can name; whether there is one shows when it is opened.
fn conversion(config: &Config) -> Result<Option<Conversion>, Failure> {
    let Some(rx) = &config.rx else { return Ok(None) };
    let spec = config.geometry.spec();
    let on_cpu = match (spec.input, spec.output) {
        (ElementType::Int8, ElementType::Fp16) => Some(Conversion::Int8ToFp16),
        (ElementType::Int8, ElementType::Bf16) => Some(Conversion::Int8ToBf16),
        (ElementType::Int8, ElementType::Fp32) => Some(Conversion::Int8ToFp32),
        // A copy leaves the order of bytes alone.
        (input, output) if input == output && (input.bits() <= 8 || !rx.network_order) => {
            Some(Conversion::Copy)
        }
        _ => None,
    };
    if on_cpu.is_none() && !rx.reorder_on_gpu {
        return Err(only_on_gpu(config, "reorder_type is `cpu`"));
    }
    Ok(on_cpu)
}

/// The types need a GPU, and there is none, for this reason.
pub(super) fn only_on_gpu(config: &Config, why: &str) -> Failure {
    let spec = config.geometry.spec();
    let order = if config.rx.as_ref().is_some_and(|rx| rx.network_order) {
        " in network order"
    } else {
        ""
    };
    let (input, output) = (spec.input, spec.output);
    failure(
        ExitCode::Device,
        format!(
            "{input}{order} to {output} is converted on a GPU alone: {why}; the CPU converts int8 \
             to fp16, bf16 and fp32"
        ),
    )
}

/// The feature file that is asked for, if there will be features.
fn feature_file(
    args: &RunArgs,
    config: &Config,
    infers: bool,
    talk: Talk,
) -> Result<Option<PathBuf>, Failure> {
    let configured = config.settings.features.as_ref().map(PathBuf::from);
    match (&args.features, configured) {
        (None, None) => Ok(None),
        (Some(path), _) if infers => Ok(Some(path.clone())),
        (None, Some(path)) if infers => Ok(Some(path)),
        (Some(_), _) => Err(failure(
            ExitCode::Usage,
            "--features: there are no features without inference (inference_backend `none`)",
        )),
        // The file alone cannot ask for that: it is refused when it is read (TW0810).
        (None, Some(_)) => {
            talk.say(format_args!(
                "notice: tensorwire.features is not written: --backend none gives no features"
            ));
            Ok(None)
        }
    }
}

/// The file of the logits that is asked for, if there will be logits.
fn logits_file(args: &RunArgs, model: Option<&Model>) -> Result<Option<PathBuf>, Failure> {
    let refused = |why: &str| Err(failure(ExitCode::Usage, format!("--logits: {why}")));
    match (&args.logits, model) {
        (None, _) => Ok(None),
        (Some(_), None) => {
            refused("there are no logits without inference (inference_backend `none`)")
        }
        (Some(_), Some(model)) if model.shape().classes == 0 => refused(
            "the model has no output of logits beside its features (`export-model --head both`), \
             or is an engine whose ONNX model is not there",
        ),
        (Some(path), Some(_)) => Ok(Some(path.clone())),
    }
}

/// One thread, where poller and producer share a core or nothing is gained by a second one.
fn fused(config: &Config) -> bool {
    match config.settings.rx_poll {
        RxPoll::Fused => true,
        RxPoll::Split => false,
        RxPoll::Auto => {
            let shared = |rx: &tensorwire_configs::Receiver| rx.poller_core == rx.producer_core;
            config.software_loopback || config.rx.as_ref().is_none_or(shared)
        }
    }
}

/// A data set is sent once and made-up frames over and over, unless the flags say otherwise.
const fn passes(args: &RunArgs, data_set: bool) -> Passes {
    match (args.loop_verbatim, args.r#loop, args.replay_once || data_set) {
        (true, _, _) => Passes::Verbatim,
        (false, false, true) => Passes::Once,
        (false, _, _) => Passes::Loop,
    }
}

fn owed(
    args: &RunArgs,
    mode: Mode,
    once: bool,
    frames: Option<u64>,
    pass_images: Option<u64>,
) -> Owed {
    if mode == Mode::Tx {
        return match frames {
            Some(frames) if once => Owed::Frames(frames),
            _ => Owed::SomeFrame,
        };
    }
    match (args.expected_images, pass_images) {
        (Some(images), _) => Owed::Images(images),
        (None, Some(images)) if once && args.seconds.is_none() => Owed::Images(images),
        _ => Owed::SomeImage,
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests;
