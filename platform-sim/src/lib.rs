//! Software NIC and CPU stages.

pub mod clock;
pub mod infer;
pub mod nic;
pub mod pool;
pub mod prng;
pub mod reorder;
pub mod simulation;
pub mod wire;

#[cfg(test)]
mod testkit;
