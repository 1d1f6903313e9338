//! The policy of `tensorwire`: all of it, and no I/O.
//!
//! (The map of the workspace goes here.)
#![cfg_attr(not(any(test, loom)), no_std)]

pub mod bits;
pub mod burst;
pub mod counters;
pub mod flow;
pub mod geometry;
pub mod header;
pub mod ledger;
pub mod pipeline;
pub mod port;
pub mod reassembly;
pub mod ring;
pub mod sequence;
pub mod sync;
pub mod time;
pub mod window;

/// Upper bounds, fixed at compile time: nothing in this crate grows.
pub mod limits {
    /// Bytes at the start of a frame that a driver must make readable to the CPU, wherever the
    /// frame lives.
    pub const HEADER_BYTES: usize = 64;
    /// Slots of one batch: 256 images of 256 packets.
    pub const MAX_PACKETS_PER_BATCH: u32 = 65_536;
    /// Images of one batch; the width of an image mask.
    pub const MAX_IMAGES_PER_BATCH: u32 = 256;
    /// Batches open at once (`window`).
    pub const MAX_WINDOWS: usize = 4;
    /// Packets held until others confirm or refute them.
    pub const MAX_HELD: usize = 8;
    /// Output buffers of one pool.
    pub const MAX_BATCH_BUFFERS: usize = 256;
    /// Slots of the job ring: the largest `queue_depth`.
    pub const MAX_QUEUE_DEPTH: usize = 64;
    /// Ranges kept of damaged and of missing images.
    pub const MAX_RANGES: usize = 1_000;
    /// Slots of each ring between a poller and its producer: the most packet buffers of a NIC
    /// whose receive side is split.
    pub const MAX_SPLIT: usize = 65_536;
    /// Packets taken from the NIC in one step of the producer.
    pub const MAX_POLL: usize = 256;
}
