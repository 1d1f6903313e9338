//! Static builds: a file is checked while the program is built, and is constants afterwards.
//!
//! For firmware-like deployments that parse nothing at run time. In a build script:
//!
//! ```no_run
//! use std::path::{Path, PathBuf};
//!
//! let yaml = Path::new("configs/resnet50_rx_spark_xhost.yaml");
//! let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("config.rs");
//! println!("cargo::rerun-if-changed={}", yaml.display());
//! if let Err(error) = tensorwire_configs::statics::build(yaml, &out) {
//!     eprintln!("{error}");
//!     std::process::exit(1);
//! }
//! ```
//!
//! and in the program `mod config { include!(concat!(env!("OUT_DIR"), "/config.rs")); }`, with
//! `#[allow(dead_code)]` on the module where some of them are not used. The constants are of
//! core's types and need neither `std` nor an allocator.

use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;

use tensorwire_core::flow::{FlowMatch, PortRange};

use crate::model::{Backpressure, Config, Missing, Receiver, Sender};
use crate::render::{Format, render, summary};
use crate::{Options, ReadError, check_file};

/// Why no constants were written.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The file cannot be read.
    Read(ReadError),
    /// The file cannot run.
    Refused {
        /// Its findings, as `validate` prints them.
        findings: String,
    },
    /// The constants cannot be written.
    Write {
        /// The path as it was given.
        path: String,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Refused { findings } => f.write_str(findings),
            Self::Write { path, error } => write!(f, "{path}: cannot be written: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            Self::Refused { .. } => None,
            Self::Write { error, .. } => Some(error),
        }
    }
}

/// Checks `yaml` and writes its constants to `out`.
///
/// # Errors
///
/// [`BuildError`]; nothing is written when the file cannot run.
pub fn build(yaml: &Path, out: &Path) -> Result<(), BuildError> {
    let checked = check_file(yaml, &Options::default()).map_err(BuildError::Read)?;
    let Some(config) = &checked.config else {
        let findings = render(&[&checked], Format::Text) + &summary(&checked);
        return Err(BuildError::Refused { findings });
    };
    std::fs::write(out, constants(config))
        .map_err(|error| BuildError::Write { path: out.display().to_string(), error })
}

/// The constants of a configuration, as the text of a module.
#[must_use]
pub fn constants(config: &Config) -> String {
    let mut out = String::new();
    let spec = config.geometry.spec();
    constant(
        &mut out,
        "Images, packets and batches; `Geometry::new` takes it.",
        "GEOMETRY: tensorwire_core::geometry::GeometrySpec",
        &format!(
            "tensorwire_core::geometry::GeometrySpec {{\n    channels: {},\n    height: {},\n    \
             width: {},\n    packets_per_image: {},\n    images_per_batch: {},\n    \
             payload_byte_offset: {},\n    payload_bytes: {},\n    seq_bit_offset: {},\n    \
             seq_bit_width: {},\n    input: tensorwire_core::geometry::ElementType::{:?},\n    \
             output: tensorwire_core::geometry::ElementType::{:?},\n}}",
            spec.channels,
            spec.height,
            spec.width,
            spec.packets_per_image,
            spec.images_per_batch,
            spec.payload_byte_offset,
            spec.payload_bytes,
            spec.seq_bit_offset,
            spec.seq_bit_width,
            spec.input,
            spec.output,
        ),
    );
    if let Some(rx) = &config.rx {
        receiver(&mut out, config, rx);
    }
    if let Some(tx) = &config.tx {
        sender(&mut out, tx);
    }
    out
}

fn constant(out: &mut String, doc: &str, name: &str, value: &str) {
    let first = value.lines().next().unwrap_or_default();
    // "pub(crate) const ", " = " and ";" are 21 characters.
    let space = if name.len() + first.len() + 21 <= 100 { " " } else { "\n    " };
    let _ = writeln!(out, "/// {doc}\npub(crate) const {name} ={space}{value};");
}

fn receiver(out: &mut String, config: &Config, rx: &Receiver) {
    let flows: Vec<String> = rx.flows.iter().map(flow).collect();
    constant(
        out,
        "Flows of the receive queue, in order.",
        &format!("RX_FLOWS: [tensorwire_core::flow::FlowMatch; {}]", flows.len()),
        &format!("[\n    {},\n]", flows.join(",\n    ")),
    );
    constant(
        out,
        "Flows that are reordered; empty = all.",
        &format!("RX_REORDERED: [u32; {}]", rx.reordered_flows.len()),
        &format!("{:?}", rx.reordered_flows),
    );
    let pools = &rx.pools;
    constant(
        out,
        "Buffers and rings.",
        "RX_POOLS: tensorwire_core::geometry::Pools",
        &format!(
            "tensorwire_core::geometry::Pools {{\n    windows: {},\n    queue_depth: {},\n    \
             output_bufs: {},\n    rx_bufs: {},\n    rx_ring: {},\n    rx_batch: {},\n    \
             retained: {},\n    reorders_in_flight: {},\n}}",
            pools.windows,
            pools.queue_depth,
            pools.output_bufs,
            pools.rx_bufs,
            pools.rx_ring,
            pools.rx_batch,
            pools.retained,
            pools.reorders_in_flight,
        ),
    );
    constant(
        out,
        "Deadline of a batch; zero = none.",
        "RX_TIMEOUT: tensorwire_core::time::Nanos",
        &format!("tensorwire_core::time::Nanos({})", rx.timeout.0),
    );
    let settings = &config.settings;
    constant(
        out,
        "Checksums that are checked.",
        "RX_VERIFY: tensorwire_core::header::Verify",
        &format!("tensorwire_core::header::Verify::{:?}", settings.verify),
    );
    let flags = [
        ("A longer frame is placed.", "RX_ACCEPT_TRAILER", settings.accept_trailer),
        ("Partial batches are given up.", "RX_DROP_PARTIAL", settings.missing == Missing::Drop),
        (
            "A full job ring drops batches.",
            "RX_DROP_WHEN_FULL",
            settings.backpressure == Backpressure::Drop,
        ),
    ];
    for (doc, name, value) in flags {
        constant(out, doc, &format!("{name}: bool"), &value.to_string());
    }
    place(out, "RX", &rx.address.to_string(), rx.queue_id);
    cores(out, "RX_CORES", "poller and producer", [rx.poller_core, rx.producer_core]);
}

fn sender(out: &mut String, tx: &Sender) {
    let header = &tx.header;
    constant(
        out,
        "Addresses and ports of the frames.",
        "TX_HEADER: tensorwire_core::header::HeaderSpec",
        &format!(
            "tensorwire_core::header::HeaderSpec {{\n    eth_src: {:?},\n    eth_dst: {:?},\n    \
             ip_src: {:?},\n    ip_dst: {:?},\n    udp_src: {},\n    udp_dst: {},\n}}",
            header.eth_src,
            header.eth_dst,
            header.ip_src,
            header.ip_dst,
            header.udp_src,
            header.udp_dst,
        ),
    );
    constant(out, "Frames sent at once.", "TX_BATCH: u32", &tx.batch_size.to_string());
    constant(
        out,
        "Rate limit in Mb/s; 0 = none.",
        "TX_PACING_MBPS: u32",
        &tx.pacing_mbps.to_string(),
    );
    place(out, "TX", &tx.address.to_string(), tx.queue_id);
    cores(out, "TX_CORES", "queue and sender", [tx.queue_core, tx.worker_core]);
}

fn place(out: &mut String, side: &str, address: &str, queue: u32) {
    constant(
        out,
        "Address of the port.",
        &format!("{side}_ADDRESS: &str"),
        &format!("{address:?}"),
    );
    constant(out, "Number of the queue.", &format!("{side}_QUEUE: u32"), &queue.to_string());
}

fn cores(out: &mut String, name: &str, who: &str, cores: [Option<u32>; 2]) {
    constant(
        out,
        &format!("Cores of {who}."),
        &format!("{name}: [Option<u32>; 2]"),
        &format!("{cores:?}"),
    );
}

pub(crate) fn flow(flow: &FlowMatch) -> String {
    let FlowMatch { id, udp_src, udp_dst, ipv4_len } = flow;
    let (udp_src, udp_dst) = (ports(*udp_src), ports(*udp_dst));
    format!(
        "tensorwire_core::flow::FlowMatch {{\n        id: {id},\n        udp_src: {udp_src},\n\
         {0:8}udp_dst: {udp_dst},\n{0:8}ipv4_len: {ipv4_len:?},\n{0:4}}}",
        ""
    )
}

/// A range as an expression that is constant.
fn ports(range: Option<PortRange>) -> String {
    let Some(range) = range else { return "None".to_owned() };
    let (first, last) = (range.first(), range.last());
    if first == last {
        return format!("Some(tensorwire_core::flow::PortRange::single({first}))");
    }
    format!(
        "match tensorwire_core::flow::PortRange::new({first}, {last}) {{\n            \
         Ok(range) => Some(range),\n            Err(_) => None,\n        }}"
    )
}
