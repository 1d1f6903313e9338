//! Tools for TensorRT: each answers one question that its users have.

pub mod compare;
pub mod layers;
pub mod lint;
pub mod plot;
pub mod table;
