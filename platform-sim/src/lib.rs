//! Software NIC and CPU stages.

pub mod infer;
pub mod nic;
pub mod pool;
pub mod prng;
pub mod reorder;
pub mod wire;

#[cfg(test)]
mod testkit;
