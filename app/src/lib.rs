//! The parts of the `tensorwire` program.
//!
//! `main.rs` parses the command line ([`cli`]) and calls a command ([`commands`], [`run`]).
//! [`dataset`] makes captures and reads them, [`model`] makes ONNX files, [`sink`] takes the
//! features, [`doctor`] looks at the machine, [`exit`] says how a run ends, [`mod@file`] makes
//! files that are there whole or not at all.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod commands;
pub mod dataset;
#[cfg(feature = "cli")]
pub mod doctor;
pub mod exit;
pub mod file;
#[cfg(feature = "cli")]
pub mod gpu;
pub mod metrics;
#[cfg(feature = "cli")]
pub mod model;
pub mod run;
pub mod service;
pub mod sink;
pub mod talk;
#[cfg(feature = "cli")]
pub mod trt;
