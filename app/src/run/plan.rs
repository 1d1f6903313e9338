//! From the configuration and the command line to what exactly is going to happen. Nothing is
//! started here; everything that can be refused is refused here, with its exit code.

use std::path::{Path, PathBuf};

use tensorwire_configs::{Address, Backend, Config, Mode, Options, RxPoll, Severity};
use tensorwire_core::flow::{FlowMatch, FlowTable};

use super::frames::{Frames, Synthetic};
use super::pin;
use crate::cli::{ModeArg, RunArgs};
use crate::dataset::{self, DatasetError, ErrorClass, Labels, LabelsFrom, LoadOptions};
use crate::exit::{ExitCode, Failure, Owed};
use crate::model::Arch;
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

/// What is going to happen.
#[derive(Debug)]
pub struct Plan {
    /// The configuration, with the overrides of the command line.
    pub config: Config,
    /// Which sides run.
    pub mode: Mode,
    /// What is sent; `None` for a receiver.
    pub frames: Option<Frames>,
    /// How often.
    pub passes: Passes,
    /// Packets of one pass, losses included: what the numbers of the next pass are above it.
    pub pass_packets: u64,
    /// Images of one pass, where that is known.
    pub pass_images: Option<u64>,
    /// Class of each image of the pass.
    pub labels: Option<Labels>,
    /// Names of the classes.
    pub class_names: Vec<String>,
    /// What the run has to bring.
    pub owed: Owed,
    /// Whether indices can be trusted.
    pub anchoring: Anchoring,
    /// Who infers.
    pub backend: Backend,
    /// The feature file.
    pub features: Option<PathBuf>,
    /// Whether poller and producer are one thread.
    pub fused: bool,
}

/// A failure of the given class.
pub fn failure(exit: ExitCode, reason: impl Into<String>) -> Failure {
    Failure { exit, reason: reason.into() }
}

/// Reads and checks the configuration, and says what it found.
///
/// # Errors
///
/// A [`Failure`]: 7 when the file cannot be read, 3 when it is wrong, 5 when it asks for something
/// that this build cannot do.
pub fn load_config(
    path: &Path,
    options: &Options,
    mode: Option<Mode>,
    talk: Talk,
) -> Result<(Mode, Config), Failure> {
    let checked = tensorwire_configs::check_file(path, options)
        .map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let result = checked.for_mode(mode);
    let findings = match &result {
        Ok(_) => &checked.diagnostics,
        Err(findings) => findings,
    };
    for finding in findings {
        let text = tensorwire_configs::render::diagnostic(&checked.source, finding);
        match finding.severity() {
            Severity::Error | Severity::Unsupported => {
                talk.error(format_args!("{}", text.trim_end()))
            }
            Severity::Warning => talk.say(format_args!("{}", text.trim_end())),
            Severity::Note => {}
        }
    }
    result.map_err(|findings| {
        let errors = findings.iter().filter(|f| f.severity() == Severity::Error).count();
        if errors > 0 {
            let s = if errors == 1 { "" } else { "s" };
            failure(ExitCode::Config, format!("{}: {errors} error{s}", path.display()))
        } else {
            failure(ExitCode::Device, format!("{}: not supported by this build", path.display()))
        }
    })
}

impl Plan {
    /// Images of one inference.
    #[must_use]
    pub fn images_per_inference(&self) -> u32 {
        let batch = self.config.geometry.images_per_batch();
        self.config.inference.as_ref().map_or(batch, |i| i.images_per_inference)
    }

    /// Decides what `run` with `args` does.
    ///
    /// # Errors
    ///
    /// A [`Failure`] with its exit code.
    pub fn new(args: &RunArgs, talk: Talk) -> Result<Self, Failure> {
        let options = Options {
            cores_available: if args.no_pin { None } else { Some(pin::available()?) },
            eth_dst: eth_dst(args)?,
            images_per_inference: args.images_per_batch,
        };
        let mode = args.mode.map(|mode| match mode {
            ModeArg::Rx => Mode::Rx,
            ModeArg::Tx => Mode::Tx,
            ModeArg::Both => Mode::Both,
        });
        let (mode, mut config) = load_config(&args.config, &options, mode, talk)?;
        refuse_devices(&config, mode)?;
        if let Some(name) = &args.model {
            apply_model(&mut config, name)?;
        }
        let backend = backend(args, &config)?;
        let passes = passes(args);
        let capture = capture_path(args, &config);
        let (frames, labels, class_names) = frames(args, &config, mode, capture.as_deref(), talk)?;
        let pass_images = match &frames {
            Some(Frames::Capture(capture)) => Some(capture.images()),
            _ => args.expected_images.or_else(|| labels.as_ref().map(|labels| labels.len() as u64)),
        };
        let looping = passes != Passes::Once || matches!(frames, Some(Frames::Synthetic(_)));
        let owed = owed(args, mode, looping, frames.as_ref(), pass_images);
        let pass_packets = frames.as_ref().map_or(0, Frames::pass_packets);
        let anchored_to = labels.as_ref().and(pass_images);
        let passes = if looping && passes == Passes::Once { Passes::Loop } else { passes };
        let fused = match config.settings.rx_poll {
            RxPoll::Fused | RxPoll::Auto => true,
            RxPoll::Split => false,
        };
        Ok(Self {
            anchoring: Anchoring::new(&config.geometry, anchored_to, !looping),
            features: args
                .features
                .clone()
                .or_else(|| config.settings.features.clone().map(Into::into)),
            config,
            mode,
            frames,
            passes,
            pass_packets,
            pass_images,
            labels,
            class_names,
            owed,
            backend,
            fused,
        })
    }
}

/// `--eth-dst`, or the environment's `ETH_DST_ADDR`.
fn eth_dst(args: &RunArgs) -> Result<Option<[u8; 6]>, Failure> {
    let (name, text) = match (&args.eth_dst, std::env::var("ETH_DST_ADDR")) {
        (Some(text), _) => ("--eth-dst", text.clone()),
        (None, Ok(text)) if !text.is_empty() => ("ETH_DST_ADDR", text),
        _ => return Ok(None),
    };
    match tensorwire_configs::mac(&text) {
        Some(address) => Ok(Some(address)),
        None => Err(failure(
            ExitCode::Usage,
            format!(
                "{name}: `{text}` is no MAC address, expected six bytes in hex, as in 48:b0:2d:00:00:01"
            ),
        )),
    }
}

/// What needs a device library that this build does not have.
fn refuse_devices(config: &Config, mode: Mode) -> Result<(), Failure> {
    let rx = config.rx.as_ref().map(|rx| (&rx.interface, &rx.address));
    let tx = config.tx.as_ref().map(|tx| (&tx.interface, &tx.address));
    for (name, address) in [rx, tx].into_iter().flatten() {
        if !config.software_loopback || *address != Address::Loopback {
            return Err(failure(
                ExitCode::Device,
                format!(
                    "interface `{name}` at {address} needs DPDK, and this build has no DPDK; with \
                     `loopback: \"sw\"` and `address: loopback` the software NIC runs anywhere"
                ),
            ));
        }
    }
    if mode != Mode::Both {
        return Err(failure(
            ExitCode::Device,
            format!(
                "mode `{mode}`: the software NIC joins sender and receiver of one process, so both have to run"
            ),
        ));
    }
    Ok(())
}

/// `--model`: another network of the same family.
fn apply_model(config: &mut Config, name: &str) -> Result<(), Failure> {
    let arch: Arch =
        name.parse().map_err(|error| failure(ExitCode::Usage, format!("--model: {error}")))?;
    let Some(inference) = &mut config.inference else {
        return Err(failure(
            ExitCode::Usage,
            "--model: the configuration has no `inference:` block",
        ));
    };
    inference.feature_dim = u32::try_from(arch.feature_dim()).unwrap_or(u32::MAX);
    for path in [&mut inference.onnx_path, &mut inference.engine_path].into_iter().flatten() {
        *path = rename(path, arch.name()).ok_or_else(|| {
            failure(
                ExitCode::Usage,
                format!("--model {name}: the file name of `{path}` names no network to replace"),
            )
        })?;
    }
    Ok(())
}

/// The path with the network in its file name replaced by `name`.
fn rename(path: &str, name: &str) -> Option<String> {
    let file = path.rfind('/').map_or(0, |slash| slash + 1);
    let start = file + path.get(file..)?.find("resnet")?;
    let digits = path.get(start + "resnet".len()..)?;
    let end = path.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some(format!("{}{name}{}", path.get(..start)?, path.get(end..)?))
}

fn backend(args: &RunArgs, config: &Config) -> Result<Backend, Failure> {
    let backend = match args.backend.as_deref() {
        None => config.settings.inference_backend,
        Some("auto") => Backend::Auto,
        Some("tensorrt") => Backend::TensorRt,
        Some("onnx") => Backend::Onnx,
        Some("none") => Backend::None,
        Some(other) => {
            return Err(failure(
                ExitCode::Usage,
                format!("--backend: `{other}` is none of auto, tensorrt, onnx, none"),
            ));
        }
    };
    if backend == Backend::TensorRt {
        return Err(failure(
            ExitCode::Device,
            "inference_backend `tensorrt` is not in this build; `onnx` infers on the CPU",
        ));
    }
    Ok(backend)
}

const fn passes(args: &RunArgs) -> Passes {
    if args.loop_verbatim {
        Passes::Verbatim
    } else if args.r#loop {
        Passes::Loop
    } else {
        Passes::Once
    }
}

fn capture_path(args: &RunArgs, config: &Config) -> Option<PathBuf> {
    args.dataset.clone().or_else(|| config.dataset.pcap_path.clone().map(PathBuf::from))
}

/// The frames to send, the labels of their images, the names of the classes.
type DataSet = (Option<Frames>, Option<Labels>, Vec<String>);

/// What is to be sent, and what is known about it.
fn frames(
    args: &RunArgs,
    config: &Config,
    mode: Mode,
    capture: Option<&Path>,
    talk: Talk,
) -> Result<DataSet, Failure> {
    let labels_path = config.dataset.labels_path.as_ref().map(PathBuf::from);
    if mode == Mode::Rx {
        let labels = labels_path.map(|path| labels_of(&path)).transpose()?;
        let (labels, names) = labels.unzip();
        return Ok((None, labels, names.unwrap_or_default()));
    }
    let Some(path) = capture else {
        let header =
            config.tx.as_ref().map(|tx| tx.header).ok_or_else(|| {
                failure(ExitCode::Internal, "a sender without headers was planned")
            })?;
        let frames = Synthetic::new(&config.geometry, &header)
            .map_err(|error| failure(ExitCode::Config, error.to_string()))?;
        return Ok((Some(Frames::Synthetic(frames)), None, Vec::new()));
    };
    let flows = config.rx.as_ref().map(|rx| rx.flow_table()).transpose();
    let flows = flows.map_err(|error| failure(ExitCode::Config, format!("rx.flows: {error}")))?;
    let flows = flows.unwrap_or_else(any_flow);
    let region = config.tx.as_ref().and_then(|tx| config.regions.get(tx.region));
    let options = LoadOptions {
        // The configuration's labels are those of its own capture.
        labels: match labels_path {
            Some(path) if args.dataset.is_none() => LabelsFrom::File(path),
            _ => LabelsFrom::Beside,
        },
        keep_whole_frames: args.keep_whole_frames,
        accept_trailer: config.settings.accept_trailer,
        max_frame_bytes: region.map(|region| region.buffer_bytes as usize),
        ..LoadOptions::new(flows)
    };
    let capture = dataset::load_capture(path, &config.geometry, &options)
        .map_err(|error| of_dataset(&error))?;
    for line in capture.report().notes() {
        talk.say(format_args!("{}: {line}", path.display()));
    }
    let (labels, names) = (capture.labels().cloned(), capture.classes().to_vec());
    Ok((Some(Frames::Capture(Box::new(capture))), labels, names))
}

/// For a sender without a receiver: every UDP frame of the capture is data.
fn any_flow() -> FlowTable {
    let mut flows = FlowTable::new();
    // An empty table has room for one flow.
    let _ = flows.push(&FlowMatch::any(0));
    flows
}

/// Labels without their capture: of a receiver.
fn labels_of(path: &Path) -> Result<(Labels, Vec<String>), Failure> {
    let of = |error: &dyn std::fmt::Display| failure(ExitCode::File, error.to_string());
    let labels = dataset::read_labels(path, usize::from(dataset::MAX_CLASS) + 1);
    let labels = labels.map_err(|error| of(&error))?;
    let beside = path.with_extension("classes");
    let names = if beside.exists() { dataset::read_classes(&beside) } else { Ok(Vec::new()) };
    Ok((labels, names.map_err(|error| of(&error))?))
}

/// The exit code of a data set that cannot be used.
#[must_use]
pub fn of_dataset(error: &DatasetError) -> Failure {
    let exit = match error.class() {
        ErrorClass::Usage => ExitCode::Usage,
        ErrorClass::Config => ExitCode::Config,
        ErrorClass::File => ExitCode::File,
    };
    failure(exit, error.to_string())
}

fn owed(
    args: &RunArgs,
    mode: Mode,
    looping: bool,
    frames: Option<&Frames>,
    pass_images: Option<u64>,
) -> Owed {
    use tensorwire_core::pipeline::transmitter::FrameSource;
    if mode == Mode::Tx {
        return match frames {
            Some(frames) if !looping => Owed::Frames(frames.frames()),
            _ => Owed::SomeFrame,
        };
    }
    match (args.expected_images, pass_images) {
        (Some(images), _) => Owed::Images(images),
        (None, Some(images)) if !looping && args.seconds.is_none() => Owed::Images(images),
        _ => Owed::SomeImage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_network_renames_the_file_only() {
        let renamed = rename("models/resnet50_features.fp16in.engine", "resnet101");
        assert_eq!(renamed.as_deref(), Some("models/resnet101_features.fp16in.engine"));
        let renamed = rename("resnet50/resnet50.onnx", "resnet18");
        assert_eq!(renamed.as_deref(), Some("resnet50/resnet18.onnx"));
        assert_eq!(rename("resnet50/features.onnx", "resnet18"), None);
    }
}
