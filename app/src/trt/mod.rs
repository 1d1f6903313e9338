//! Tools for TensorRT: each answers one question that its users have.

pub mod lint;
