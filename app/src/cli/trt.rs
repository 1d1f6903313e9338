//! `trt` and `gpu`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `trt`: the questions that users of TensorRT have.
#[derive(Debug, Subcommand)]
pub enum TrtCommand {
    /// Which TensorRT is here, and what this GPU does fast
    Version(TrtVersionArgs),
    /// What in a model costs time or accuracy under TensorRT; needs neither TensorRT nor a GPU
    Lint(TrtLintArgs),
    /// Build an engine from a model; with --target for a GPU that is not here
    Build(TrtBuildArgs),
    /// What an engine consists of: inputs, outputs, layers, tactics, memory
    Inspect(TrtInspectArgs),
    /// Time an engine layer by layer; several engines side by side
    Profile(TrtProfileArgs),
    /// Time an engine by batch size, and say where the GPU is full
    Sweep(TrtSweepArgs),
    /// Compare values inside a model, on the GPU and on the CPU
    Dump(TrtDumpArgs),
    /// Count the values inside a model on a capture, and write TensorRT's calibration table
    Calibrate(TrtCalibrateArgs),
}

/// `trt build`.
#[derive(Debug, Args)]
pub struct TrtBuildArgs {
    /// The ONNX model, with one input [batch, channels, rows, columns]
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The engine: a plain plan, as trtexec writes and reads it [default: MODEL with .engine]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What it computes in
    #[arg(long, value_name = "fp32|fp16|int8", default_value = "fp16")]
    pub precision: String,
    /// Ranges of int8 (`trt calibrate`), for a model without Q/DQ nodes; TensorRT 8 to 10
    #[arg(long, value_name = "TABLE")]
    pub calibration: Option<PathBuf>,
    /// Least, best and largest batch
    #[arg(long, value_name = "MIN,OPT,MAX", value_delimiter = ',', default_value = "1,32,256")]
    pub batch: Vec<u32>,
    /// Most scratch memory of a layer [default: the library's own limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub workspace: Option<u32>,
    /// Compute capability to build for, as 121 for 12.1; several with commas (TensorRT-RTX)
    #[arg(long, value_name = "CC", value_delimiter = ',')]
    pub target: Vec<u32>,
    /// Number of the GPU, by PCI address; without --target
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpu: u32,
    /// Keep names and tactics of layers for `trt inspect`
    #[arg(long)]
    pub detailed: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `trt inspect`.
#[derive(Debug, Args)]
pub struct TrtInspectArgs {
    /// An engine: one of ours, or a plain plan
    #[arg(value_name = "ENGINE")]
    pub engine: PathBuf,
    /// Number of the GPU, by PCI address
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpu: u32,
    /// One JSON object on stdout, with the layers as TensorRT describes them
    #[arg(long)]
    pub json: bool,
}

/// How something is timed.
#[derive(Clone, Copy, Debug, Args)]
pub struct MeasureArgs {
    /// Number of the GPU, by PCI address
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpu: u32,
    /// Inferences before the first that counts
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub warm_up: u32,
    /// Inferences that count
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Comma-separated values on stdout
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `trt profile`.
#[derive(Debug, Args)]
pub struct TrtProfileArgs {
    /// Engines: ours, or plain plans
    #[arg(required = true, value_name = "ENGINE")]
    pub engines: Vec<PathBuf>,
    /// Images of an inference
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: u32,
    /// Wait after each layer, so that one that fails is named; slower
    #[arg(long)]
    pub sync: bool,
    /// How it is timed
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// `trt sweep`.
#[derive(Debug, Args)]
pub struct TrtSweepArgs {
    /// The engine: one of ours, or a plain plan; with --dummy-ranges an ONNX model
    #[arg(value_name = "ENGINE")]
    pub engine: PathBuf,
    /// Build an int8 engine of a model without ranges, time it, drop it; TensorRT 8 to 10
    #[arg(long)]
    pub dummy_ranges: bool,
    /// Batch sizes
    #[arg(long, value_name = "N,N…", value_delimiter = ',')]
    #[arg(default_value = "1,2,4,8,16,32,64,128,256")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: Vec<u32>,
    /// Launch each inference as a CUDA graph
    #[arg(long)]
    pub graph: bool,
    /// Write a plot
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// How it is timed
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// `trt dump`.
#[derive(Debug, Args)]
pub struct TrtDumpArgs {
    /// The ONNX model, with one input [batch, 3, rows, columns]
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Values to look at, by the names of the operators that make them
    #[arg(long = "layer", required = true, value_name = "NAME", num_args = 1..)]
    pub layers: Vec<String>,
    /// Capture of the image
    #[arg(long, value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// What the engine computes in
    #[arg(long, value_name = "fp32|fp16|int8", default_value = "fp16")]
    pub precision: String,
    /// Number of the GPU, by PCI address
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpu: u32,
    /// Folder for NAME.gpu.npy and NAME.cpu.npy
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only what the CPU makes of it; needs neither TensorRT nor a GPU
    #[arg(long)]
    pub cpu_only: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `trt calibrate`.
#[derive(Debug, Args)]
pub struct TrtCalibrateArgs {
    /// The ONNX model, with one input [batch, 3, rows, columns]
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Capture of the images
    #[arg(long, value_name = "CAPTURE")]
    pub captures: PathBuf,
    /// At most so many images, spread over the capture
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub images: u32,
    /// How the largest magnitude of int8 is chosen
    #[arg(long, value_name = "least-error|entropy|min-max", default_value = "least-error")]
    pub method: String,
    /// Version of TensorRT that the table is for, as its library gives it (8600, 100300)
    #[arg(long, value_name = "N", default_value_t = 8600)]
    #[arg(value_parser = clap::value_parser!(u32).range(8600..110_000))]
    pub trt_version: u32,
    /// The table
    #[arg(long, value_name = "FILE", default_value = "calibration.cache")]
    pub output: PathBuf,
}

/// `trt version`.
#[derive(Debug, Args)]
pub struct TrtVersionArgs {
    /// Number of the GPU, by PCI address
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpu: u32,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `trt lint`.
#[derive(Debug, Args)]
pub struct TrtLintArgs {
    /// ONNX models
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 on a warning
    #[arg(long)]
    pub deny_warnings: bool,
}

/// `gpu`.
#[derive(Debug, Args)]
pub struct GpuArgs {
    /// Only the GPU of this number, as nvidia-smi counts
    #[arg(short, long, value_name = "N")]
    pub index: Option<u32>,
    /// Read again every MS milliseconds, until a signal
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub watch: Option<u64>,
    /// One row of comma-separated values for each reading
    #[arg(long)]
    pub csv: bool,
}
