//! The pipeline on a machine with nothing: a NIC in software, and the stages on the CPU.
//!
//! | module | what it is |
//! |---|---|
//! | [`nic`] | what is sent on one end is received on the other, through real rings and pools |
//! | [`wire`] | faults between a sender and any transmit queue: loss, copies, shuffling |
//! | [`reorder`] | payloads into their slots, converted: at placement, or when the batch closes |
//! | [`infer`] | inference without a model: a CRC of each image, or nothing; fails as planned |
//! | [`pool`] | the memory under all of it, reached through tokens; the only unsafe code here |
//! | [`simulation`] | the whole pipeline in one thread, decided by a seed, checked every step |
//! | [`trace`] | what a run on threads met, written down, and stepped through afterwards |
//! | [`clock`], [`prng`] | virtual time and seeded numbers |
//!
//! `nic`, `wire`, `reorder` and `infer` implement the traits of `tensorwire_core::port` and run in
//! the product as they run here: the software loopback is one thread on each end of a
//! [`nic::SwNic`]. Nothing here reads a clock, sleeps, or allocates once it is made (the simulation
//! apart, which keeps a list of what came out).

pub mod clock;
pub mod infer;
pub mod nic;
pub mod pool;
pub mod prng;
pub mod reorder;
pub mod simulation;
pub mod trace;
pub mod wire;

#[cfg(test)]
mod testkit;
