//! The commands around a run that goes on as a service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::commands::status::bundle::BUNDLES;
use crate::metrics::{END_POINT, end_point};
use crate::run::args::seconds;

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where the run answers: what its --metrics says
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = end_point)]
    #[arg(default_value_t = END_POINT)]
    pub address: SocketAddr,
    /// It is asked twice, so far apart: what is lost now is what grew meanwhile
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Where the bundles are; which one runs and why the last was taken back is told too
    #[arg(long, value_name = "DIR", default_value = BUNDLES)]
    pub bundles: PathBuf,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}
