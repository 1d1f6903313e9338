//! The policy of `tensorwire`: all of it, and no I/O.
//!
//! A sensor's images arrive as packets, a few hundred thousand a second. Each has a number; the
//! number says which slot of which batch it fills. A *batch* is `packets_per_batch` slots, which
//! are `images_per_batch` whole images; its buffer is handed to the inference when it closes.
//!
//! | module | the question it answers |
//! |---|---|
//! | [`geometry`] | which numbers follow from a configuration, and which cannot be |
//! | [`bits`], [`header`], [`flow`] | whether a frame is a packet of ours, and its number |
//! | [`sequence`], [`window`], [`reassembly`] | where a packet belongs; what was lost, late, wild |
//! | [`memory`] | what kinds of memory there are, and what a piece of it promises |
//! | [`burst`], [`ledger`] | who may touch a buffer, in types and, for tests, at run time |
//! | [`ring`], [`sync`] | how jobs and buffers cross between two threads |
//! | [`pipeline`] | producer, consumer, transmitter, poller: `step(now) -> Next` |
//! | [`port`] | the traits that a NIC, a reorder stage, an inference and a sink implement |
//! | [`counters`], [`time`], [`limits`] | what is counted, what time is, what nothing exceeds |
//!
//! The way of a packet: `RxQueue::rx_burst` → [`header::PacketCheck`] →
//! [`reassembly::Reassembly::accept`] → `Reorder::place` → (batch closes) → job ring →
//! `Infer::submit` → `Sink::deliver` → return ring.
//!
//! What is absent on purpose: allocation (there is no `extern crate alloc` here, so no feature can
//! bring it back), clocks, logging, blocking, and the name of any device library. Packets' bytes
//! and the time come in as arguments, decisions go out as values. Errors are "you broke the
//! contract" or "there is no room", never I/O. The workspace around this crate is drawn in
//! `docs/ARCHITECTURE.md`.
#![cfg_attr(not(any(test, loom)), no_std)]

/// Whether a planted bug is on; without the feature `planted` the constant `false`.
macro_rules! planted {
    ($bug:ident) => {{
        #[cfg(feature = "planted")]
        let planted = crate::planted::is(crate::planted::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let planted = false;
        planted
    }};
}

pub mod bits;
pub mod burst;
pub mod counters;
pub mod flow;
pub mod geometry;
pub mod header;
pub mod ledger;
pub mod memory;
pub mod outer;
pub mod pipeline;
#[cfg(feature = "planted")]
pub mod planted;
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
