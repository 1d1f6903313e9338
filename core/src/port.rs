//! The traits at which the crates meet. Small on purpose: a method that would need an `if` on
//! policy belongs to the core, not to a driver.

use core::fmt;

use crate::burst::{Burst, Filling, InFlight, PacketDesc};
use crate::counters::{NicStats, TxStats};
use crate::limits::HEADER_BYTES;
use crate::pipeline::Anchor;
use crate::time::Nanos;
use crate::window::{ImageMask, SlotMap};

/// Packet memory as this CPU sees it.
pub trait PacketMemory {
    /// The bytes of the frame that this CPU can read: the whole frame in host memory. In device
    /// memory all that lies in front of the payload, where the NIC splits frames there, or else at
    /// least the first [`crate::limits::HEADER_BYTES`]; the whole of a shorter frame.
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8];

    /// A hint that the bytes of `packet` will be read soon, a few packets from now. It may do
    /// nothing, as it does unless an implementation says otherwise, and it never waits.
    fn prefetch(&self, packet: &PacketDesc) {
        let _ = packet;
    }

    /// When the NIC received `packet`, by the clock that steps are told; `None` where it does not
    /// say, which is what this does unless an implementation says otherwise: the packet came with
    /// the poll that brought it then. Only times that are reported go by it, no decision does.
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        let _ = packet;
        None
    }
}

impl<T: PacketMemory + ?Sized> PacketMemory for &T {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        (**self).bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        (**self).prefetch(packet);
    }

    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        (**self).arrived(packet)
    }
}

/// One receive queue of a NIC.
pub trait RxQueue: PacketMemory {
    /// Moves up to `out.len()` received packets into the front of `out` and returns how many.
    ///
    /// The slots of `out` hold [`PacketDesc::EMPTY`] before the call; what a slot held otherwise
    /// would be lost. Never blocks.
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize;

    /// Gives packets back to the NIC and leaves [`PacketDesc::EMPTY`] in their place. Empty slots
    /// are skipped. Never fails: there is room for every buffer of the pool.
    fn release(&mut self, packets: &mut [PacketDesc]);

    /// How many packet buffers are not with the application: what the NIC can still receive into,
    /// its descriptor ring included.
    fn free_buffers(&self) -> usize;

    /// What the NIC itself counted since start.
    fn stats(&self) -> NicStats;

    /// Asked right after a burst that came back short, in a step at `now`: the time up to which
    /// everything that had reached the NIC has been handed over with it; `None` where that cannot
    /// be said. It is `now` for a queue that asks the NIC itself, which is what this does unless
    /// an implementation says otherwise.
    ///
    /// A deadline fires by this time: a batch is not cut while its packets wait where this queue
    /// does not look.
    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        Some(now)
    }
}

/// One transmit queue of a NIC.
pub trait TxQueue {
    /// How many frames [`TxQueue::send`] takes right now.
    fn room(&mut self) -> usize;

    /// Sends one frame of `len` bytes: `fill` writes all of it into the buffer it is handed, which
    /// is exactly that long and holds bytes of an earlier frame.
    ///
    /// # Errors
    ///
    /// [`SendError`] when nothing was sent; `fill` was not called then.
    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError>;

    /// Sends `frame`, which lies in memory already and stays as it is, but for what `patch` does to
    /// a copy of its front: the first [`HEADER_BYTES`] bytes, or all of a shorter frame. For a
    /// queue that moves the bytes to their place itself, which saves a copy; unless an
    /// implementation says otherwise it is the same as [`TxQueue::send`] with [`write_patched`].
    ///
    /// # Errors
    ///
    /// [`SendError`] when nothing was sent; `patch` was not called then.
    fn send_from(&mut self, frame: &[u8], patch: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.send(frame.len(), |out| write_patched(out, frame, patch))
    }

    /// Lets the queue push out what it has accepted but not sent. Called once per step.
    fn flush(&mut self);

    /// No frame will follow. What is still held back (a delay line) goes out with the flushes that
    /// follow; true once everything accepted is on the wire.
    fn finish(&mut self) -> bool;

    /// What the queue counted since start.
    fn stats(&self) -> TxStats;
}

/// Writes `frame` into `out`, which is as long, and then has `patch` change the front of it, as
/// [`TxQueue::send_from`] says. Where `out` has another length nothing is written.
#[inline]
pub fn write_patched(out: &mut [u8], frame: &[u8], patch: impl FnOnce(&mut [u8])) {
    if out.len() != frame.len() {
        return;
    }
    out.copy_from_slice(frame);
    let front = out.len().min(HEADER_BYTES);
    if let Some(front) = out.get_mut(..front) {
        patch(front);
    }
}

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The queue is full, or the receiver takes no more: try again later.
    Full,
    /// The frame is longer than a buffer of the queue.
    TooLong {
        /// Bytes of the frame.
        len: usize,
        /// Bytes of a buffer.
        room: usize,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the transmit queue is full"),
            Self::TooLong { len, room } => {
                write!(f, "a frame of {len} bytes does not fit a transmit buffer of {room} bytes")
            }
        }
    }
}

impl core::error::Error for SendError {}

/// A completion that the consumer's device waits for before it reads a batch. The number is the
/// driver's own; [`Event::DONE`] is one that has always happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u64);

impl Event {
    /// Already complete: a CPU stage that finished before it returned.
    pub const DONE: Self = Self(0);
}

/// The reorder stage: payloads into the batch buffer, converted on the way.
pub trait Reorder {
    /// Puts the payload of `packet` into `slot` of the batch.
    ///
    /// A stage that has read the payload when it returns leaves the token where it is, and the
    /// core releases the packet with its burst. A stage that reads it later (a GPU) *takes* the
    /// token and hands it back through [`Reorder::poll_done`].
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    );

    /// The batch is complete: zeroes the slots that `placed` does not name and submits whatever
    /// is left to do. After this nothing of an earlier batch is in the buffer.
    ///
    /// # Errors
    ///
    /// [`StageError`] when the batch could not be submitted; nothing writes to the buffer then.
    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError>;

    /// The batch is given up: nothing may write to its buffer once this returns.
    fn abandon(&mut self, batch: &mut Burst<Filling>);

    /// Moves the packets of finished (or abandoned) batches into the front of `done` and returns
    /// how many; called until it returns fewer than there is room for. Never blocks.
    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize;
}

/// A failure of a device stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageError {
    /// The call that failed, as its library names it.
    pub call: &'static str,
    /// The library's own code.
    pub code: i32,
    /// Whether the stage can go on with the next batch.
    pub fatal: bool,
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed (code {})", self.call, self.code)
    }
}

impl core::error::Error for StageError {}

/// Which inference a result belongs to: a number that the core gives and gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The result of one inference: rows of `f32`, one per image of the submission, in its order.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// Shape: `[images, feature_dim]`, row-major.
    pub features: &'a [f32],
    /// Length of a row of `features`.
    pub feature_dim: usize,
    /// Shape: `[images, classes]`, row-major; empty for a model without a head.
    pub logits: &'a [f32],
    /// Length of a row of `logits`, 0 for a model without a head.
    pub classes: usize,
}

/// The inference stage. At most two submissions are pending at a time, and results come in the
/// order of submission.
///
/// A stage that reports the result of a submission, or its failure, states by it that no device
/// reads the input of that submission any more: the consumer frees the buffer on the strength of
/// it. A stage whose device reads the buffer through `unsafe` code must uphold this there.
pub trait Infer {
    /// Whether a result is complete when [`Infer::submit`] returns (a CPU stage). The consumer
    /// then delivers it at once; otherwise one submission later, so that a device never waits for
    /// the sink.
    fn done_on_submit(&self) -> bool {
        false
    }

    /// Enqueues the inference of `images` images from image `first` of the buffer on; the device
    /// waits for `ready` before it reads.
    ///
    /// # Errors
    ///
    /// [`StageError`] when nothing was enqueued. The stage has made sure that nothing reads
    /// `input` any more before it returns the error; an earlier submission stays pending.
    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError>;

    /// Waits for the submission *before* the newest one and passes its result to `take`. `None`
    /// when only the newest one (or none) is pending.
    ///
    /// # Errors
    ///
    /// [`StageError`] when that inference failed on the device; its ticket is done all the same,
    /// and nothing reads its input.
    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>>;

    /// Passes the oldest result to `take` if it is complete; never blocks.
    ///
    /// # Errors
    ///
    /// As [`Infer::take_previous`].
    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>>;

    /// Waits for the oldest pending result, whichever it is; `None` when nothing is pending.
    ///
    /// # Errors
    ///
    /// As [`Infer::take_previous`].
    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>>;
}

/// One submission whose result has come: which images it holds.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Number of the batch in the stream.
    pub batch: u64,
    /// Index in the stream of the image of the first row.
    pub first_image: u64,
    /// Number of rows.
    pub images: u32,
    /// The rows that are whole images, row 0 = image 0 of the mask. The other rows mean nothing.
    pub whole: ImageMask,
    /// When the last packet of the batch arrived.
    pub last_packet: Nanos,
    /// Whether this is the last submission of its batch.
    pub last_of_batch: bool,
    /// What the indices rest on.
    pub anchor: Anchor,
}

/// What becomes of the features.
pub trait Sink {
    /// Takes the rows of one submission.
    ///
    /// # Errors
    ///
    /// [`SinkFault`] when the rows could not be taken; they count as dropped. The sink keeps the
    /// details for itself.
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault>;
}

/// The sink could not take a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFault {
    /// Whether the run is to end: nothing that follows could be taken either.
    pub fatal: bool,
}

impl fmt::Display for SinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sink could not take a batch")
    }
}

impl core::error::Error for SinkFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_was_asked_for() {
        let long = SendError::TooLong { len: 9_000, room: 1_240 };
        assert_eq!(
            long.to_string(),
            "a frame of 9000 bytes does not fit a transmit buffer of 1240 bytes"
        );
        assert_eq!(SendError::Full.to_string(), "the transmit queue is full");
        let stage = StageError { call: "cuLaunchKernelEx", code: 700, fatal: true };
        assert_eq!(stage.to_string(), "cuLaunchKernelEx failed (code 700)");
        assert_eq!(SinkFault { fatal: false }.to_string(), "the sink could not take a batch");
    }

    #[test]
    fn only_the_front_of_a_frame_is_patched() {
        for (len, front) in [(0, 0), (1, 1), (63, 63), (64, 64), (65, 64), (300, 64)] {
            let (frame, mut out) = (std::vec![7; len], std::vec![9; len]);
            write_patched(&mut out, &frame, |bytes| {
                assert_eq!(bytes, std::vec![7; front]);
                bytes.fill(1);
            });
            assert!(out[..front].iter().all(|byte| *byte == 1), "{len}");
            assert!(out[front..].iter().all(|byte| *byte == 7), "{len}");
        }
        let mut out = [9; 3];
        write_patched(&mut out, &[7; 4], |_| panic!("nothing to patch"));
        assert_eq!(out, [9; 3]);
    }

    /// Counts the hints.
    struct Memory(core::cell::Cell<u32>);

    impl PacketMemory for Memory {
        fn bytes<'a>(&'a self, _: &'a PacketDesc) -> &'a [u8] {
            &[7]
        }

        fn prefetch(&self, _: &PacketDesc) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn borrowed_memory_is_the_memory() {
        fn hint<M: PacketMemory>(memory: M) -> u8 {
            memory.prefetch(&PacketDesc::EMPTY);
            memory.bytes(&PacketDesc::EMPTY)[0]
        }
        let memory = Memory(core::cell::Cell::new(0));
        assert_eq!(hint(&memory), 7);
        assert_eq!(memory.0.get(), 1);
    }
}
