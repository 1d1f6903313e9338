//! What can be wrong with a geometry: one variant a rule, each with its numbers.

use core::fmt;

use super::ElementType;
use crate::bits::BitFieldError;

/// A number as people read it: digits in groups of three from 10,000 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        if n < 10_000 {
            return write!(f, "{n}");
        }
        // The largest power of 1000 that is not above `n`: the leading group has 1 to 3 digits.
        let mut unit = 1_000;
        while n / unit >= 1_000 {
            unit *= 1_000;
        }
        write!(f, "{}", n / unit)?;
        while unit >= 1_000 {
            unit /= 1_000;
            write!(f, ",{:03}", n / unit % 1_000)?;
        }
        Ok(())
    }
}

/// One way to cut an image into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadSplit {
    /// Bytes of image data in one packet.
    pub payload_bytes: u32,
    /// Packets of one image; a power of two.
    pub packets_per_image: u32,
}

/// The ways to cut an image that are nearest to one that does not work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearestPayloads {
    /// The largest payload that is not above the one given.
    pub below: Option<PayloadSplit>,
    /// The smallest payload above the one given.
    pub above: Option<PayloadSplit>,
}

impl fmt::Display for NearestPayloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut splits = [self.below, self.above].into_iter().flatten().peekable();
        if splits.peek().is_none() {
            return f.write_str("no payload size divides it");
        }
        f.write_str("nearest that divide it: ")?;
        for (i, split) in splits.enumerate() {
            let PayloadSplit { payload_bytes, packets_per_image } = split;
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{payload_bytes} B in {packets_per_image} packets")?;
        }
        Ok(())
    }
}

/// A rule that does not hold, with the numbers that show it. The keys in the texts are those of a
/// configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A count or size that must not be 0.
    Zero {
        /// Its key.
        key: &'static str,
    },
    /// `packets_per_image` is not a power of two.
    PacketsPerImage {
        /// What was given.
        given: u32,
    },
    /// `images_per_batch` is not a power of two.
    ImagesPerBatch {
        /// What was given.
        given: u32,
    },
    /// `images_per_batch` is above the limit.
    ImagesPerBatchLimit {
        /// What was given.
        given: u32,
        /// The limit.
        max: u32,
    },
    /// `packets_per_image × images_per_batch` is above the limit.
    PacketsPerBatchLimit {
        /// First factor.
        packets_per_image: u32,
        /// Second factor.
        images_per_batch: u32,
        /// What they make.
        product: u64,
        /// The limit.
        max: u32,
    },
    /// `channels × height × width` is beyond all measure.
    ImageTooLarge {
        /// Planes.
        channels: u32,
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// An image is not a whole number of bytes.
    FractionalImage {
        /// Elements of the image.
        elements: u64,
        /// Their type.
        input: ElementType,
    },
    /// A payload does not hold whole elements.
    FractionalPayload {
        /// Bytes of the payload.
        payload_bytes: u32,
        /// The type of its elements.
        input: ElementType,
    },
    /// The output type has elements of less than a byte.
    OutputType {
        /// What was given.
        output: ElementType,
    },
    /// `out_payload_len × packets_per_image` is not an image.
    Payload {
        /// Elements of an image.
        elements: u64,
        /// Their type.
        input: ElementType,
        /// Bytes of an image in packets.
        image_bytes: u64,
        /// Bytes of one payload.
        payload_bytes: u32,
        /// Packets of an image.
        packets_per_image: u32,
        /// What would work.
        nearest: NearestPayloads,
    },
    /// A batch is larger than [`super::MAX_BATCH_BYTES`].
    BatchLimit {
        /// Slots of the batch.
        packets_per_batch: u64,
        /// Bytes of a slot.
        slot_stride: u64,
        /// The limit, in bytes.
        max: u64,
    },
    /// The payload begins inside the Ethernet, IPv4 and UDP headers.
    PayloadOffset {
        /// What was given.
        given: u32,
        /// Bytes of the headers.
        min: u32,
    },
    /// A frame is longer than an IPv4 datagram can be.
    FrameLimit {
        /// Bytes before the payload.
        payload_byte_offset: u32,
        /// Bytes of the payload.
        payload_bytes: u32,
        /// Both.
        frame: u64,
        /// The limit, in bytes.
        max: u32,
    },
    /// The sequence field cannot be.
    SequenceField(BitFieldError),
    /// The sequence field reaches into the payload.
    SequencePastHeader {
        /// First bit.
        seq_bit_offset: u32,
        /// Bits.
        seq_bit_width: u32,
        /// Bytes before the payload.
        payload_byte_offset: u32,
    },
    /// The sequence numbers do not hold whole batches.
    SequenceSpace {
        /// Bits of the field.
        seq_bit_width: u32,
        /// Packets of a batch.
        packets_per_batch: u64,
    },
    /// `output_slot_stride` is not what a slot has.
    SlotStride {
        /// What was declared.
        given: u64,
        /// Elements of a payload.
        elements: u64,
        /// Their type in the batch.
        output: ElementType,
        /// The product.
        expected: u64,
    },
    /// `image_out_bytes` is not what an image has.
    ImageOutBytes {
        /// What was declared.
        given: u64,
        /// Elements of an image.
        elements: u64,
        /// Their type in the batch.
        output: ElementType,
        /// The product.
        expected: u64,
    },
    /// `buf_size` of the receive region is not a frame.
    RxBufSize {
        /// What was declared.
        given: u64,
        /// Bytes before the payload.
        payload_byte_offset: u32,
        /// Bytes of the payload.
        payload_bytes: u32,
        /// The sum.
        expected: u64,
    },
    /// `buf_size` of the output region is not a batch.
    OutputBufSize {
        /// What was declared.
        given: u64,
        /// Slots of a batch.
        packets_per_batch: u64,
        /// Bytes of a slot.
        slot_stride: u64,
        /// The product.
        expected: u64,
    },
    /// `buf_size` of the transmit region does not hold a frame.
    TxBufSize {
        /// What was declared.
        given: u64,
        /// Bytes before the payload.
        payload_byte_offset: u32,
        /// Bytes of the payload.
        payload_bytes: u32,
        /// The sum.
        frame: u64,
    },
    /// `packets_per_batch` is not what a batch has.
    PacketsPerBatch {
        /// What was declared.
        given: u64,
        /// First factor.
        packets_per_image: u32,
        /// Second factor.
        images_per_batch: u32,
        /// The product.
        expected: u64,
    },
    /// One inference has more images than the engine takes.
    OptMax {
        /// Images of one inference.
        images: u64,
        /// The engine's largest batch.
        opt_max: u64,
    },
    /// Sub-batches of this size do not fill the batch.
    SubBatch {
        /// What was given.
        given: u64,
        /// Images of a batch.
        images_per_batch: u64,
    },
    /// An int8 output, and an engine that does not take it.
    Int8Output,
    /// `window` is out of range.
    Windows {
        /// What was given.
        given: u64,
        /// The limit.
        max: usize,
    },
    /// `queue_depth` is out of range.
    QueueDepth {
        /// What was given.
        given: u64,
        /// The limit.
        max: usize,
    },
    /// Too few output buffers.
    OutputBuffers {
        /// What was given.
        given: u64,
        /// Open windows.
        windows: u64,
        /// Slots of the job ring.
        queue_depth: u64,
        /// The least that works.
        floor: u64,
    },
    /// More output buffers than a pool has.
    OutputBuffersLimit {
        /// What was given.
        given: u64,
        /// The limit.
        max: usize,
    },
    /// Too few buffers to feed a NIC queue.
    QueueBuffers {
        /// What was given.
        given: u64,
        /// Descriptors of the queue's ring.
        ring: u64,
        /// Packets of one poll.
        batch: u64,
        /// The least that works.
        floor: u64,
    },
    /// Too few receive buffers to keep packets until their batch closes.
    RetainedBuffers {
        /// What was given.
        given: u64,
        /// Descriptors of the queue's ring.
        ring: u64,
        /// Packets of one poll.
        batch: u64,
        /// Open windows.
        windows: u64,
        /// Closed batches whose packets are still read.
        reorders_in_flight: u64,
        /// Packets of a batch.
        packets_per_batch: u64,
        /// The least that works.
        floor: u64,
    },
}

impl Violation {
    /// A stable name of the rule, for machine-readable reports.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Zero { .. } => "zero",
            Self::PacketsPerImage { .. } => "packets-per-image",
            Self::ImagesPerBatch { .. } => "images-per-batch",
            Self::ImagesPerBatchLimit { .. } => "images-per-batch-limit",
            Self::PacketsPerBatchLimit { .. } => "packets-per-batch-limit",
            Self::ImageTooLarge { .. } => "image-too-large",
            Self::FractionalImage { .. } => "fractional-image",
            Self::FractionalPayload { .. } => "fractional-payload",
            Self::OutputType { .. } => "output-type",
            Self::Payload { .. } => "payload",
            Self::BatchLimit { .. } => "batch-limit",
            Self::PayloadOffset { .. } => "payload-offset",
            Self::FrameLimit { .. } => "frame-limit",
            Self::SequenceField(_) => "sequence-field",
            Self::SequencePastHeader { .. } => "sequence-past-header",
            Self::SequenceSpace { .. } => "sequence-space",
            Self::SlotStride { .. } => "slot-stride",
            Self::ImageOutBytes { .. } => "image-out-bytes",
            Self::RxBufSize { .. } => "rx-buf-size",
            Self::OutputBufSize { .. } => "output-buf-size",
            Self::TxBufSize { .. } => "tx-buf-size",
            Self::PacketsPerBatch { .. } => "packets-per-batch",
            Self::OptMax { .. } => "opt-max",
            Self::SubBatch { .. } => "sub-batch",
            Self::Int8Output => "int8-output",
            Self::Windows { .. } => "window",
            Self::QueueDepth { .. } => "queue-depth",
            Self::OutputBuffers { .. } => "output-buffers",
            Self::OutputBuffersLimit { .. } => "output-buffers-limit",
            Self::QueueBuffers { .. } => "queue-buffers",
            Self::RetainedBuffers { .. } => "retained-buffers",
        }
    }
}

/// One more than there are rules that one spec, its declared numbers and its pools can break at
/// once: no list of violations is ever cut.
const MAX_VIOLATIONS: usize = 40;

/// All rules that do not hold, in the order of the checks.
///
/// Prints one violation after the other, separated by `; `.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    list: heapless::Vec<Violation, MAX_VIOLATIONS>,
}

impl Violations {
    /// Nothing is wrong.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: heapless::Vec::new() }
    }

    /// Adds one.
    pub fn push(&mut self, violation: Violation) {
        // Each rule reports at most once (and the zeros once a key), and the list has room for all
        // of them; a test counts.
        let pushed = self.list.push(violation);
        debug_assert!(pushed.is_ok(), "more violations than rules");
    }

    /// Adds `violation` where `broken`.
    pub(super) fn push_if(&mut self, broken: bool, violation: Violation) {
        if broken {
            self.push(violation);
        }
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: &Self) {
        for violation in others {
            self.push(*violation);
        }
    }

    /// Whether every rule holds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many rules do not hold.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The violations, in the order of the checks.
    pub fn iter(&self) -> core::slice::Iter<'_, Violation> {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = core::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Violations {}
