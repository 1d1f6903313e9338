//! The parts of the `tensorwire` program.

pub mod dataset;
pub mod exit;
pub mod model;
pub mod sink;
