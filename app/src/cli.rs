//! The command line: what is asked for, in types. Everything that can be refused without looking at
//! a file is refused here.

mod service;
mod trt;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tensorwire_configs::Backend;

use service::end_point;
pub use service::{METRICS_PORT, StatusArgs};
pub use trt::{
    GpuArgs, MeasureArgs, TrtBuildArgs, TrtCalibrateArgs, TrtCommand, TrtDumpArgs, TrtInspectArgs,
    TrtLintArgs, TrtProfileArgs, TrtSweepArgs, TrtVersionArgs,
};

/// Packets in, features out.
#[derive(Debug, Parser)]
#[command(name = "tensorwire", version, about, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole pipeline on this machine, without any input file
    Demo(DemoArgs),
    /// Make a capture of a data set: images in, packets out
    Prepare(PrepareArgs),
    /// Write an ONNX model from weights
    ExportModel(ExportArgs),
    /// Check configurations; nothing is opened
    Validate(ValidateArgs),
    /// Print what a configuration's geometry comes to
    Geometry(GeometryArgs),
    /// Explain a rule of the configuration by its code
    Explain(ExplainArgs),
    /// Print a JSON Schema of the configuration
    Schema,
    /// Look at this machine: what a run would want otherwise, and how to get it
    Doctor(DoctorArgs),
    /// Receive, reorder, infer
    Run(Box<RunArgs>),
    /// Ask a run that answers Prometheus how it is, on one screen
    Status(StatusArgs),
    /// Measure a stage on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run the pipeline in virtual time under seeded faults, and check every step
    Sim(SimArgs),
    /// Look at models and engines of TensorRT, build and measure them
    #[command(subcommand)]
    Trt(TrtCommand),
    /// What the GPUs of this machine are doing
    Gpu(GpuArgs),
}

/// `bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Reorder and convert, beside copies of the same bytes
    Reorder(BenchReorderArgs),
}

/// Where the packets of a measurement lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchSource {
    /// Memory of the GPU
    Device,
    /// Host memory that the GPU reads
    Pinned,
}

/// `bench reorder`.
#[derive(Debug, Args)]
pub struct BenchReorderArgs {
    /// Where packets lie [default: device with a GPU; without one the CPU is measured]
    #[arg(long, value_enum)]
    pub source: Option<BenchSource>,
    /// Types, as `int8:fp16`, several with commas
    #[arg(long, value_name = "IN:OUT", value_delimiter = ',', default_value = "int8:fp16")]
    pub types: Vec<String>,
    /// Number of the GPU, by PCI address
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpu: u32,
    /// Runs, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 41)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `sim`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("what")
        .required(true)
        .args(["seed", "seeds", "trace"])
        .multiple(true)
)]
pub struct SimArgs {
    /// Run one seed, and say everything about it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run the seeds from A to B − 1
    #[arg(long, value_name = "A..B", value_parser = range, conflicts_with = "seed")]
    pub seeds: Option<Range<u64>>,
    /// Threads of a sweep [default: one for each core]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub jobs: Option<u16>,
    /// The step at which faults stop, instead of the one that the seed draws
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(..=1_000_000_000)
    )]
    pub steps: Option<u64>,
    /// The faults of a file or a preset (none, wire, stalls, devices, everything), instead of those
    /// that the seed draws
    #[arg(long, value_name = "FILE|PRESET")]
    pub faults: Option<String>,
    /// Step through what `run --record-trace` wrote and compare every decision; with --seed, write
    /// down that run instead
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub trace: Option<PathBuf>,
    /// Look for a smaller run that fails in the same way, and print its faults as a file on stdout
    #[arg(long, conflicts_with_all = ["seeds", "trace"])]
    pub shrink: bool,
}

/// `A..B`, B above A.
fn range(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.filter(|range: &Range<u64>| !range.is_empty())
        .ok_or_else(|| "expected A..B with B above A, as in 0..5000".to_owned())
}

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Images to make and send
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(1..=100_000)
    )]
    pub images: u64,
    /// Where everything is put
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub out: PathBuf,
    /// Print the summary as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `prepare`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("source").required(true).args(["cifar10", "images", "synthetic"])
)]
pub struct PrepareArgs {
    /// CIFAR-10 in its binary format: a file, or the folder of the data set
    #[arg(long, value_name = "FILE|DIR")]
    pub cifar10: Option<PathBuf>,
    /// A folder of PNG, JPEG or PPM images; sub-folders are classes
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Ten classes of made-up images
    #[arg(long, value_name = "SEED")]
    pub synthetic: Option<u64>,
    /// Images to take [default: 256, or all if there are fewer]
    #[arg(long, value_name = "N")]
    pub num_images: Option<u64>,
    /// The capture; labels go to OUT.labels, class names to OUT.classes
    #[arg(long, value_name = "FILE", default_value = "data/cifar10_resnet.pcap")]
    pub out: PathBuf,
    /// Take the geometry and the addresses from this configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Images of one batch [default: 32]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub images_per_batch: Option<u32>,
    /// Payload bytes of one packet [default: 1176]
    #[arg(long, value_name = "BYTES", conflicts_with = "config")]
    pub out_payload_len: Option<u32>,
    /// Bytes before the payload [default: 64]
    #[arg(long, value_name = "BYTES", conflicts_with = "config")]
    pub header_size: Option<u32>,
    /// Byte at which the payload begins [default: the header size]
    #[arg(long, value_name = "BYTES", conflicts_with = "config")]
    pub payload_byte_offset: Option<u32>,
    /// Packets of one image [default: 128]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub packets_per_image: Option<u32>,
    /// First bit of the sequence number, from the start of the frame [default: 128]
    #[arg(long, value_name = "BIT", conflicts_with = "config")]
    pub seq_bit_offset: Option<u32>,
    /// Bits of the sequence number [default: 12]
    #[arg(long, value_name = "BITS", conflicts_with = "config")]
    pub seq_bit_width: Option<u32>,
    /// UDP port, source and destination [default: 4096]
    #[arg(long, value_name = "PORT")]
    pub udp_port: Option<u16>,
    /// Source MAC address
    #[arg(long, value_name = "MAC")]
    pub eth_src: Option<String>,
    /// Destination MAC address
    #[arg(long, value_name = "MAC")]
    pub eth_dst: Option<String>,
    /// Source IPv4 address [default: 1.1.1.1]
    #[arg(long, value_name = "IP")]
    pub ip_src: Option<std::net::Ipv4Addr>,
    /// Destination IPv4 address [default: 2.2.2.2]
    #[arg(long, value_name = "IP")]
    pub ip_dst: Option<std::net::Ipv4Addr>,
}

/// `export-model`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The network
    #[arg(long, value_name = "resnet18|34|50|101|152", default_value = "resnet50")]
    pub arch: String,
    /// Weights: FILE.safetensors, FILE.pth, or seed:N
    #[arg(long, value_name = "FILE|seed:N")]
    pub weights: String,
    /// Element type of the input
    #[arg(long, value_name = "fp16|int8|fp32", default_value = "fp16")]
    pub input_dtype: String,
    /// Element type of the weights; qdq = int8 with quantize nodes, which needs --calibrate
    #[arg(long, value_name = "fp32|fp16|qdq", default_value = "fp32")]
    pub precision: String,
    /// Capture of the images that int8 is calibrated on
    #[arg(long, value_name = "CAPTURE")]
    pub calibrate: Option<PathBuf>,
    /// At most so many images of it, spread over the capture
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub calibration_images: u32,
    /// How the largest magnitude of int8 is chosen
    #[arg(long, value_name = "least-error|min-max", default_value = "least-error")]
    pub calibration_method: String,
    /// Outputs
    #[arg(long, value_name = "features|logits|both", default_value = "features")]
    pub head: String,
    /// Element type in which the pixels are normalised
    #[arg(long, value_name = "fp32|fp16", default_value = "fp32")]
    pub front: String,
    /// The model
    #[arg(long, value_name = "FILE", default_value = "models/resnet50_features.onnx")]
    pub output: PathBuf,
    /// Load the model again and compare two images with a plain forward pass
    #[arg(long)]
    pub check: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A configuration, for what it needs; - is standard input
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Folder of another machine's /proc, /sys and /dev, to be looked at instead of this one's
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// A JSON array on stdout
    #[arg(long)]
    pub json: bool,
}

/// `validate`.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Configurations; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How the findings are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Exit with 1 on a warning
    #[arg(long)]
    pub deny_warnings: bool,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
}

/// `geometry`.
#[derive(Debug, Args)]
pub struct GeometryArgs {
    /// The configuration
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code of the rule, as in TW0123
    #[arg(value_name = "CODE")]
    pub code: String,
}

/// Which sides of the configuration run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// The receiver
    Rx,
    /// The sender
    Tx,
    /// Both
    Both,
}

/// Who infers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// TensorRT where there is one, the CPU otherwise
    Auto,
    /// TensorRT or nothing
    Tensorrt,
    /// The ONNX model on the CPU
    Onnx,
    /// Nobody: batches are received and given back
    None,
}

impl From<BackendArg> for Backend {
    fn from(backend: BackendArg) -> Self {
        match backend {
            BackendArg::Auto => Self::Auto,
            BackendArg::Tensorrt => Self::TensorRt,
            BackendArg::Onnx => Self::Onnx,
            BackendArg::None => Self::None,
        }
    }
}

/// What the software wire does when the receiver is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimTx {
    /// The sender waits
    Lossless,
    /// Frames are lost and counted
    Wire,
}

/// `run`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("passes").args(["replay_once", "loop", "loop_verbatim"]))]
pub struct RunArgs {
    /// The configuration
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Which sides run [default: those the configuration has]
    #[arg(long, value_enum, value_name = "SIDE")]
    pub mode: Option<ModeArg>,
    /// Send the data set once (the default where there is one)
    #[arg(long)]
    pub replay_once: bool,
    /// Send the data set over and over, with one running sequence
    #[arg(long)]
    pub r#loop: bool,
    /// Send the data set over and over, as it is in the file
    #[arg(long)]
    pub loop_verbatim: bool,
    /// The capture, instead of dataset.pcap_path; its labels are in FILE.labels, if at all
    #[arg(long, value_name = "FILE")]
    pub dataset: Option<PathBuf>,
    /// The labels, instead of dataset.labels_path and of those beside the capture
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Refuse to run with fewer labels than images
    #[arg(long)]
    pub strict_labels: bool,
    /// The largest capture that is loaded, file and memory [default: 8 GiB]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_capture_bytes: Option<u64>,
    /// Images that are owed: fewer is exit code 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub expected_images: Option<u64>,
    /// End after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Images of one inference; a power-of-two divisor of the batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub images_per_batch: Option<u32>,
    /// Another network than the configuration's: its model, engine and feature count
    #[arg(long, value_name = "resnet18…152")]
    pub model: Option<String>,
    /// Who infers, instead of tensorwire.inference_backend
    #[arg(long, value_enum, value_name = "BACKEND")]
    pub backend: Option<BackendArg>,
    /// Use only an engine of TensorRT that is there; where none fits, say why and end
    #[arg(long)]
    pub no_rebuild: bool,
    /// Write the features to this file; row i is image i, rows not delivered are NaN
    #[arg(long, value_name = "FILE.npy")]
    pub features: Option<PathBuf>,
    /// Check everything that a start checks, say what would run, start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not pin threads to cores
    #[arg(long)]
    pub no_pin: bool,
    /// Print the summary as one JSON object on stdout, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Say errors only, on stderr
    #[arg(long)]
    pub quiet: bool,
    /// Write a line to this file descriptor once the receiver is ready
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub ready_fd: Option<i32>,
    /// Answer Prometheus at this port of the loopback interface, or at ADDR:PORT [default: nowhere]
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = end_point)]
    pub metrics: Option<SocketAddr>,
    /// After a signal: how long what was received is still worked off; the rest is lost by name
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub drain: Duration,
    /// Destination MAC address of all frames; overrides ETH_DST_ADDR and the configuration
    #[arg(long, value_name = "MAC")]
    pub eth_dst: Option<String>,
    /// Use what is whole of a capture that was cut short
    #[arg(long)]
    pub keep_whole_frames: bool,
    /// What the software wire does when the receiver is behind [default: wire with --seconds,
    /// lossless otherwise]
    #[arg(long, value_enum, value_name = "HOW")]
    pub sim_tx: Option<SimTx>,
    /// Lose every N-th frame on the software wire
    #[arg(long, value_name = "1/N", value_parser = one_in)]
    pub sim_drop: Option<u64>,
    /// Move frames on the software wire by up to N positions
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub sim_shuffle: u32,
    /// Send every N-th frame twice on the software wire
    #[arg(long, value_name = "1/N", value_parser = one_in)]
    pub sim_dup: Option<u64>,
    /// Seed of the software wire's shuffle
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub sim_seed: u64,
    /// Write down what the receiver meets, step by step, for `sim --trace`
    #[arg(long, value_name = "FILE")]
    pub record_trace: Option<PathBuf>,
}

/// `--seconds`: more than zero, fractions allowed, at most a year.
fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(value > 0.0 && value <= 31_536_000.0) {
        return Err("expected more than 0 and at most 31536000 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(value))
}

/// `1/N`, N at least 2 (1/1 would leave nothing to receive, or double everything).
fn one_in(text: &str) -> Result<u64, String> {
    let n = text.strip_prefix("1/").and_then(|n| n.parse::<u64>().ok());
    n.filter(|&n| n >= 2)
        .ok_or_else(|| "expected 1/N with N of at least 2, as in 1/1000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    fn refuse(args: &[&str]) -> String {
        let error = Cli::try_parse_from([&["tensorwire"], args].concat());
        let error = error.expect_err("a usage error");
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    }

    #[test]
    fn i02_flags_never_vanish() {
        assert!(refuse(&["run", "c.yaml", "--dataest", "x"]).contains("--dataset"));
        assert!(refuse(&["run", "c.yaml", "--mode"]).contains("--mode"));
        assert!(refuse(&["run", "c.yaml", "--seconds", "ten"]).contains("ten"));
        assert!(refuse(&["run", "c.yaml", "--seconds", "-5"]).contains("-5"));
        assert!(refuse(&["run", "c.yaml", "--seconds", "nan"]).contains("nan"));
        let huge = "99999999999999999999";
        assert!(refuse(&["run", "c.yaml", "--expected-images", huge]).contains(huge));
        assert!(refuse(&["run", "c.yaml", "--loop", "--replay-once"]).contains("--replay-once"));
        assert!(refuse(&["run"]).contains("CONFIG"));
        assert!(refuse(&["run", "c.yaml", "--sim-drop", "1000"]).contains("1/N"));
        assert!(refuse(&["prepare"]).contains("--cifar10"));
        assert!(refuse(&["demo", "--images", "0"]).contains('0'));
    }

    #[test]
    fn i01_an_override_is_a_number_of_images() {
        for bad in ["0", "-1", "abc", "1.5"] {
            assert!(refuse(&["run", "c.yaml", "--images-per-batch", bad]).contains(bad));
        }
    }

    #[test]
    fn i02_a_flag_may_stand_before_the_configuration() {
        let cli = Cli::try_parse_from(["tensorwire", "run", "--seconds", "1.5", "c.yaml"]);
        let Ok(Cli { command: Command::Run(args) }) = cli else { panic!("{cli:?}") };
        assert_eq!(args.seconds, Some(Duration::from_millis(1500)));
    }
}
