//! The command line: what is asked for, in types. Everything that can be refused without looking at
//! a file is refused here.

mod service;
mod trt;

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use crate::run::args::{BackendArg, ModeArg, RunArgs, SimTx};
pub use service::StatusArgs;
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
    /// One known batch through everything behind the NIC, against the features expected of it
    Selftest(SelftestArgs),
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
    #[arg(long, value_name = "least-error|entropy|min-max", default_value = "least-error")]
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

/// `selftest`.
#[derive(Debug, Args)]
pub struct SelftestArgs {
    /// The configuration
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// The features that are expected, or that --make writes
    #[arg(long, value_name = "FILE.npy", default_value = "golden.npy")]
    pub golden: PathBuf,
    /// Write the file instead: this machine is known to be right
    #[arg(long)]
    pub make: bool,
    /// Use only an engine of TensorRT that is there
    #[arg(long)]
    pub no_rebuild: bool,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
