//! What a simulated run consists of.

use std::fmt;

use serde::{Deserialize, Serialize};
use tensorwire_core::geometry::GeometrySpec;
use tensorwire_core::header::Verify;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy};
use tensorwire_core::time::Nanos;

use super::faults::FaultPlan;
use crate::nic::TxMode;

/// How often each machine is stepped, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The transmitter.
    pub sender: u32,
    /// The poller, where there is one.
    pub poller: u32,
    /// The producer.
    pub producer: u32,
    /// The consumer.
    pub consumer: u32,
}

/// Who polls the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RxPoll {
    /// The producer.
    Fused,
    /// A poller of its own, with a ring each way between it and the producer.
    Split,
}

impl fmt::Display for RxPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fused => "fused",
            Self::Split => "split",
        })
    }
}

/// Everything that decides a run. Two runs of the same plan are the same, step for step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides the pixels, the order of the steps, and which faults happen.
    pub seed: u64,
    /// Shape of the stream.
    pub geometry: GeometrySpec,
    /// Images of one pass.
    pub images: u64,
    /// Passes over them, numbered on.
    pub passes: u64,
    /// The run ends when that many images were handed over as were sent.
    pub complete: bool,
    /// Batches open at once.
    pub windows: u32,
    /// Batch buffers.
    pub buffers: usize,
    /// Jobs that wait for the consumer.
    pub queue_depth: usize,
    /// Packet buffers.
    pub rx_bufs: usize,
    /// Receive descriptors.
    pub rx_ring: usize,
    /// Who polls them.
    pub rx_poll: RxPoll,
    /// Packets per poll.
    pub poll: usize,
    /// Transmit descriptors: the most frames in one step of the sender.
    pub tx_ring: usize,
    /// What happens when the receiver cannot take a frame.
    pub mode: TxMode,
    /// Which checksums the receiver looks at.
    pub verify: Verify,
    /// `Some(lag)`: packets are kept until their batch closes, and for `lag` polls more.
    pub at_close: Option<u32>,
    /// Results of the inference are there when it is submitted, as on a CPU.
    pub done_on_submit: bool,
    /// Images of one inference.
    pub images_per_inference: u32,
    /// What happens to a batch with holes.
    pub missing: MissingPolicy,
    /// What happens when the consumer cannot keep up.
    pub backpressure: Backpressure,
    /// Deadline of a batch; zero: none.
    pub timeout: Nanos,
    /// How long to wait for the first packet.
    pub startup: Nanos,
    /// How long to wait after the last packet.
    pub quiesce: Nanos,
    /// Which faults happen.
    pub faults: FaultPlan,
    /// The step from which none happens any more. From there on the machines take turns.
    pub fault_steps: u64,
    /// Frames that overtake one that is reordered, at most.
    pub reorder: u64,
    /// How much later a delayed frame arrives, at most.
    pub delay: Nanos,
    /// How often each machine is stepped.
    pub weights: Weights,
    /// The longest time that passes between two steps.
    pub tick: Nanos,
    /// Steps after which the run counts as stuck, if that is before the bound for its plan.
    pub max_steps: Option<u64>,
}

/// 3×16×16 images of 4 packets, 4 images to a batch, an 8-bit sequence: 16 slots, 16 batches in the
/// number space.
pub const MINI: GeometrySpec = GeometrySpec {
    channels: 3,
    height: 16,
    width: 16,
    packets_per_image: 4,
    images_per_batch: 4,
    payload_bytes: 192,
    seq_bit_width: 8,
    ..GeometrySpec::DOCUMENTED
};

impl Weights {
    /// All of them equally often.
    pub const EVEN: Self = Self { sender: 1, poller: 1, producer: 1, consumer: 1 };
}

impl Plan {
    /// A run in which nothing goes wrong: 32 images of the small geometry.
    #[must_use]
    pub const fn quiet(seed: u64) -> Self {
        Self {
            seed,
            geometry: MINI,
            images: 32,
            passes: 1,
            complete: false,
            windows: 2,
            buffers: 13,
            queue_depth: 8,
            rx_bufs: 192,
            rx_ring: 64,
            rx_poll: RxPoll::Fused,
            poll: 32,
            tx_ring: 32,
            mode: TxMode::Lossless,
            verify: Verify::None,
            at_close: None,
            done_on_submit: false,
            images_per_inference: 4,
            missing: MissingPolicy::Passthrough,
            backpressure: Backpressure::Block,
            timeout: Nanos::ZERO,
            startup: Nanos::from_secs(180),
            quiesce: Nanos::from_secs(5),
            faults: FaultPlan::new(),
            fault_steps: 2_000,
            reorder: 5,
            delay: Nanos(20_000),
            weights: Weights::EVEN,
            tick: Nanos(2_000),
            max_steps: None,
        }
    }

    /// Images that are sent, unless the sender begins again.
    #[must_use]
    pub const fn sent_images(&self) -> u64 {
        self.images.saturating_mul(self.passes)
    }

    /// Descriptors on their way from a poller to the producer, at most: as `run` has it.
    #[must_use]
    pub const fn between(&self) -> usize {
        2 * self.rx_ring
    }

    /// Images that end the run.
    #[must_use]
    pub fn owed(&self) -> Option<u64> {
        self.complete.then(|| self.sent_images())
    }

    /// Steps within which a run must end once its faults have stopped and nothing is held up any
    /// more. The machines take turns then: in one turn of all of them the sender sends a frame if
    /// there is room, the poller passes one on, the producer processes one, the consumer ends an
    /// inference, or time jumps to when one of them can.
    #[must_use]
    pub const fn drain_steps(&self) -> u64 {
        let frames = self.sent_images() * self.geometry.packets_per_image as u64;
        // Frames that are copies or somebody else's come on top, at most as many again and 512.
        let turns = 4 * frames + 4 * self.sent_images() + 1_024 + 4 * self.rx_bufs as u64;
        match self.rx_poll {
            RxPoll::Fused => 3 * turns,
            RxPoll::Split => 4 * turns,
        }
    }
}
