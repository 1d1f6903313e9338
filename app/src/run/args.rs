//! The flags of `run`. They are plain data as well: firmware, which has no command line, runs with
//! their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tensorwire_configs::Backend;

#[cfg(feature = "cli")]
use crate::metrics::end_point;

/// Which sides of the configuration run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum ModeArg {
    /// The receiver
    Rx,
    /// The sender
    Tx,
    /// Both
    Both,
}

/// Who infers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum SimTx {
    /// The sender waits
    Lossless,
    /// Frames are lost and counted
    Wire,
}

/// `run`.
#[derive(Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(group = clap::ArgGroup::new("passes").args(["replay_once", "loop", "loop_verbatim"]))
)]
pub struct RunArgs {
    /// The configuration
    #[cfg_attr(feature = "cli", arg(value_name = "CONFIG"))]
    pub config: PathBuf,
    /// Which sides run [default: those the configuration has]
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "SIDE"))]
    pub mode: Option<ModeArg>,
    /// Send the data set once (the default where there is one)
    #[cfg_attr(feature = "cli", arg(long))]
    pub replay_once: bool,
    /// Send the data set over and over, with one running sequence
    #[cfg_attr(feature = "cli", arg(long))]
    pub r#loop: bool,
    /// Send the data set over and over, as it is in the file
    #[cfg_attr(feature = "cli", arg(long))]
    pub loop_verbatim: bool,
    /// The capture, instead of dataset.pcap_path; its labels are in FILE.labels, if at all
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub dataset: Option<PathBuf>,
    /// The labels, instead of dataset.labels_path and of those beside the capture
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub labels: Option<PathBuf>,
    /// Refuse to run with fewer labels than images
    #[cfg_attr(feature = "cli", arg(long))]
    pub strict_labels: bool,
    /// The largest capture that is loaded, file and memory [default: 8 GiB]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))
    )]
    pub max_capture_bytes: Option<u64>,
    /// Images that are owed: fewer is exit code 4
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))
    )]
    pub expected_images: Option<u64>,
    /// End after this many seconds
    #[cfg_attr(feature = "cli", arg(long, value_name = "S", value_parser = seconds))]
    pub seconds: Option<Duration>,
    /// Images of one inference; a power-of-two divisor of the batch
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))
    )]
    pub images_per_batch: Option<u32>,
    /// Another network than the configuration's: its model, engine and feature count
    #[cfg_attr(feature = "cli", arg(long, value_name = "resnet18…152"))]
    pub model: Option<String>,
    /// Who infers, instead of tensorwire.inference_backend
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "BACKEND"))]
    pub backend: Option<BackendArg>,
    /// Use only an engine of TensorRT that is there; where none fits, say why and end
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_rebuild: bool,
    /// Write the features to this file; row i is image i, rows not delivered are NaN
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE.npy"))]
    pub features: Option<PathBuf>,
    /// Write the logits to this file, of a model that has them, in the same way
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE.npy"))]
    pub logits: Option<PathBuf>,
    /// Check everything that a start checks, say what would run, start nothing
    #[cfg_attr(feature = "cli", arg(long))]
    pub dry_run: bool,
    /// Do not pin threads to cores
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_pin: bool,
    /// Print the summary as one JSON object on stdout, and nothing else
    #[cfg_attr(feature = "cli", arg(long))]
    pub json: bool,
    /// Say errors only, on stderr
    #[cfg_attr(feature = "cli", arg(long))]
    pub quiet: bool,
    /// Write a line to this file descriptor once the receiver is ready
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))
    )]
    pub ready_fd: Option<i32>,
    /// Answer Prometheus at this port of the loopback interface, or at ADDR:PORT [default: nowhere]
    #[cfg_attr(feature = "cli", arg(long, value_name = "[ADDR:]PORT", value_parser = end_point))]
    pub metrics: Option<SocketAddr>,
    /// After a signal: how long what was received is still worked off; the rest is lost by name
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "S", default_value = "10", value_parser = seconds)
    )]
    pub drain: Duration,
    /// Destination MAC address of all frames; overrides ETH_DST_ADDR and the configuration
    #[cfg_attr(feature = "cli", arg(long, value_name = "MAC"))]
    pub eth_dst: Option<String>,
    /// Use what is whole of a capture that was cut short
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_whole_frames: bool,
    /// What the software wire does when the receiver is behind [default: wire with --seconds,
    /// lossless otherwise]
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "HOW"))]
    pub sim_tx: Option<SimTx>,
    /// Lose every N-th frame on the software wire
    #[cfg_attr(feature = "cli", arg(long, value_name = "1/N", value_parser = one_in))]
    pub sim_drop: Option<u64>,
    /// Move frames on the software wire by up to N positions
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 0))]
    pub sim_shuffle: u32,
    /// Send every N-th frame twice on the software wire
    #[cfg_attr(feature = "cli", arg(long, value_name = "1/N", value_parser = one_in))]
    pub sim_dup: Option<u64>,
    /// Seed of the software wire's shuffle
    #[cfg_attr(feature = "cli", arg(long, value_name = "SEED", default_value_t = 0))]
    pub sim_seed: u64,
    /// Write down what the receiver meets, step by step, for `sim --trace`
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub record_trace: Option<PathBuf>,
}

/// `--seconds`: more than zero, fractions allowed, at most a year.
#[cfg(feature = "cli")]
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(value > 0.0 && value <= 31_536_000.0) {
        return Err("expected more than 0 and at most 31536000 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(value))
}

/// `1/N`, N at least 2 (1/1 would leave nothing to receive, or double everything).
#[cfg(feature = "cli")]
fn one_in(text: &str) -> Result<u64, String> {
    let n = text.strip_prefix("1/").and_then(|n| n.parse::<u64>().ok());
    n.filter(|&n| n >= 2)
        .ok_or_else(|| "expected 1/N with N of at least 2, as in 1/1000".to_owned())
}
