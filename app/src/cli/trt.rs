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
