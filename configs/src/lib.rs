//! Reads and checks the configurations of `tensorwire`: DAQIRI's YAML with its application blocks,
//! and one block of ours.
//!
//! A text goes through four steps, each of which reports all that it finds:
//!
//! 1. `tree`: YAML → a tree in which every value knows its place.
//! 2. `decode`: tree → values, driven by the [`table`] of fields: keys, types, ranges, defaults.
//! 3. `resolve`: values → a typed [`Config`]: names, sizes, geometry, roles, cores.
//! 4. [`render`]: findings → text, JSON, SARIF or GitHub annotations.
//!
//! `validate` and `run` call the same function, so they cannot disagree. Every finding is of a
//! [`rules`] entry with a stable number. Nothing here opens anything but the file itself, and no
//! input makes it panic.
//!
//! ```
//! let checked = tensorwire_configs::check_str("empty.yaml", "# nothing\n", &Default::default());
//! assert_eq!(checked.verdict(), tensorwire_configs::Verdict::Invalid);
//! assert_eq!(checked.diagnostics[0].code.to_string(), "TW0103");
//! ```
#![forbid(unsafe_code)]

mod address;
mod model;
pub mod platform;

#[cfg(feature = "yaml")]
mod check;
#[cfg(feature = "yaml")]
mod decode;
#[cfg(feature = "yaml")]
mod diagnostic;
#[cfg(feature = "yaml")]
pub mod docs;
#[cfg(feature = "yaml")]
pub mod embed;
#[cfg(feature = "yaml")]
mod fields;
#[cfg(feature = "yaml")]
mod json;
#[cfg(feature = "yaml")]
pub mod render;
#[cfg(feature = "yaml")]
mod report;
#[cfg(feature = "yaml")]
mod resolve;
#[cfg(feature = "yaml")]
pub mod rules;
#[cfg(feature = "yaml")]
mod scalar;
#[cfg(feature = "yaml")]
mod schema;
#[cfg(feature = "yaml")]
mod source;
#[cfg(feature = "yaml")]
pub mod statics;
#[cfg(feature = "yaml")]
pub mod table;
#[cfg(feature = "yaml")]
mod tree;

use std::fmt;

use tensorwire_core::geometry::{Geometry, GeometrySpec};

pub use address::mac;
#[cfg(feature = "yaml")]
pub use check::{
    Checked, Options, ReadError, SHIPPED, Verdict, check_bytes, check_file, check_str, shipped,
};
#[cfg(feature = "yaml")]
pub use diagnostic::{Diagnostic, Second, Severity};
pub use model::{
    Address, Backend, Backpressure, Config, Dataset, Inference, LogLevel, Missing, PciAddress,
    Receiver, Region, RegionKind, RxPoll, Sender, Settings, Stats,
};
#[cfg(feature = "yaml")]
pub use report::geometry_report;
#[cfg(feature = "yaml")]
pub use rules::explain;
#[cfg(feature = "yaml")]
pub use schema::schema;
#[cfg(feature = "yaml")]
pub use source::{Position, Source, Span};

/// Which ends of the pipeline run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The receiver.
    Rx,
    /// The sender.
    Tx,
    /// Both, in one process.
    Both,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Both => "both",
        })
    }
}

/// The geometry of a configuration that was checked while the program was built.
///
/// # Panics
///
/// For a geometry that breaks a rule: `include_config!` refuses to make such a program.
#[must_use]
pub fn proven_geometry(spec: &GeometrySpec) -> Geometry {
    Geometry::new(spec).expect("checked when the program was built")
}
