//! Geometry: how images are cut into packets, and packets gathered into batches.
//!
//! A [`GeometrySpec`] is what a configuration says. A [`Geometry`] is a spec that holds: only
//! [`Geometry::new`] makes one, everything derived is worked out there once, with checked
//! arithmetic, and nothing after it needs to check again. Every rule that does not hold is
//! reported, as a [`Violation`] of its own with its numbers; a spec is never refused for the first
//! fault alone.
//!
//! Three more sets of numbers are checked against a geometry: what a configuration states besides
//! although it follows from the geometry ([`Declared`]), how many buffers there are ([`Pools`]),
//! and what the sequence field lies on top of ([`Overlap`]).
#![forbid(unsafe_code)]

use core::fmt;

use crate::bits::BitField;

mod overlap;
mod rules;
mod text;
mod violation;

#[cfg(test)]
mod tests;

pub use overlap::{Effect, Overlap};
pub use rules::{Declared, Pools, nearest_payloads, queue_region_floor};
pub use violation::{Grouped, NearestPayloads, PayloadSplit, Violation, Violations};

/// Upper bound of the bytes of one batch, so that every offset inside a batch fits 32 bits, in
/// kernels too.
pub const MAX_BATCH_BYTES: u64 = u32::MAX as u64;

/// The type of one image element, in packets (input) or in the batch (output).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Signed, 4 bits, two to a byte. Input only.
    Int4,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// IEEE 754 binary16.
    Fp16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE 754 binary32.
    Fp32,
    /// IEEE 754 binary64.
    Fp64,
}

impl ElementType {
    /// All of them, in the order of the declaration.
    pub const ALL: [Self; 8] = [
        Self::Int4,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Fp16,
        Self::Bf16,
        Self::Fp32,
        Self::Fp64,
    ];

    /// Bits of one element.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Int4 => 4,
            Self::Int8 => 8,
            Self::Int16 | Self::Fp16 | Self::Bf16 => 16,
            Self::Int32 | Self::Fp32 => 32,
            Self::Fp64 => 64,
        }
    }

    /// Bytes that hold one element. Two `int4` share their byte, so a length in bytes is elements
    /// × [`ElementType::bits`] / 8 there.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// The name as configurations write it: `int8`, `fp16`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp32 => "fp32",
            Self::Fp64 => "fp64",
        }
    }

    /// The type of that [`ElementType::name`].
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a configuration says about its images and packets, before anything is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometrySpec {
    /// Colour planes of an image.
    pub channels: u32,
    /// Rows of a plane.
    pub height: u32,
    /// Elements of a row.
    pub width: u32,
    /// Packets that carry one image.
    pub packets_per_image: u32,
    /// Images of one batch.
    pub images_per_batch: u32,
    /// Bytes of a frame before its payload.
    pub payload_byte_offset: u32,
    /// Bytes of image data in one packet (`out_payload_len`).
    pub payload_bytes: u32,
    /// Number of the sequence field's most significant bit.
    pub seq_bit_offset: u32,
    /// Bits of the sequence field.
    pub seq_bit_width: u32,
    /// Element type in the packets.
    pub input: ElementType,
    /// Element type in the batch.
    pub output: ElementType,
}

impl GeometrySpec {
    /// The documented geometry: 3×224×224 int8 images in 128 packets of 1176 bytes, 32 images to
    /// a batch of fp16, a 12-bit sequence at bit 128.
    pub const DOCUMENTED: Self = Self {
        channels: 3,
        height: 224,
        width: 224,
        packets_per_image: 128,
        images_per_batch: 32,
        payload_byte_offset: 64,
        payload_bytes: 1176,
        seq_bit_offset: 128,
        seq_bit_width: 12,
        input: ElementType::Int8,
        output: ElementType::Fp16,
    };

    /// Every rule of a geometry that does not hold, in a fixed order.
    #[must_use]
    pub fn violations(&self) -> Violations {
        let mut violations = Violations::new();
        rules::check_spec(self, &mut violations);
        violations
    }

    /// What `declared` states and this spec does not bear out. Answers for a spec that is no
    /// geometry too, as far as the numbers that it needs can be derived: so one report can name
    /// the faults of both.
    #[must_use]
    pub fn check(&self, declared: &Declared) -> Violations {
        let mut violations = Violations::new();
        rules::check_declared(self, declared, &mut violations);
        violations
    }

    /// What `pools` lacks to receive batches of this spec; answers for a spec that is no geometry
    /// too.
    #[must_use]
    pub fn check_pools(&self, pools: &Pools) -> Violations {
        let mut violations = Violations::new();
        rules::check_pools(self, pools, &mut violations);
        violations
    }
}

/// A geometry that holds, with everything that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    spec: GeometrySpec,
    seq_field: BitField,
    packets_per_batch: u32,
    elements_per_image: usize,
    slot_stride: usize,
    image_bytes: usize,
    batch_bytes: usize,
}

impl Geometry {
    /// Checks `spec` and derives the rest.
    ///
    /// # Errors
    ///
    /// All rules that do not hold, never an empty list.
    #[expect(clippy::result_large_err, reason = "all violations at once, and core has no heap")]
    pub fn new(spec: &GeometrySpec) -> Result<Self, Violations> {
        let mut violations = Violations::new();
        match rules::check_spec(spec, &mut violations) {
            Some(geometry) if violations.is_empty() => Ok(geometry),
            _ => Err(violations),
        }
    }

    /// What `declared` states and this geometry does not bear out; empty when all of it fits.
    #[must_use]
    pub fn check(&self, declared: &Declared) -> Violations {
        self.spec.check(declared)
    }

    /// What the geometry was made from.
    #[must_use]
    #[inline]
    pub const fn spec(&self) -> &GeometrySpec {
        &self.spec
    }

    /// Elements of one image: channels × height × width.
    #[must_use]
    #[inline]
    pub const fn elements_per_image(&self) -> usize {
        self.elements_per_image
    }

    /// Packets that carry one image; a power of two.
    #[must_use]
    #[inline]
    pub const fn packets_per_image(&self) -> u32 {
        self.spec.packets_per_image
    }

    /// Images of one batch; a power of two, at most [`crate::limits::MAX_IMAGES_PER_BATCH`].
    #[must_use]
    #[inline]
    pub const fn images_per_batch(&self) -> u32 {
        self.spec.images_per_batch
    }

    /// Packets (and slots) of one batch; a power of two, at most
    /// [`crate::limits::MAX_PACKETS_PER_BATCH`].
    #[must_use]
    #[inline]
    pub const fn packets_per_batch(&self) -> u32 {
        self.packets_per_batch
    }

    /// Bytes of image data in one packet, in the input type.
    #[must_use]
    #[inline]
    pub const fn payload_bytes(&self) -> usize {
        self.spec.payload_bytes as usize
    }

    /// Bytes of a frame before its payload.
    #[must_use]
    #[inline]
    pub const fn payload_offset(&self) -> usize {
        self.spec.payload_byte_offset as usize
    }

    /// Bytes of one frame: payload offset + payload.
    #[must_use]
    #[inline]
    pub const fn frame_bytes(&self) -> usize {
        self.payload_offset() + self.payload_bytes()
    }

    /// Bytes of one slot of the batch: one payload in the output type.
    #[must_use]
    #[inline]
    pub const fn slot_stride(&self) -> usize {
        self.slot_stride
    }

    /// Bytes of one image in the output type.
    #[must_use]
    #[inline]
    pub const fn image_bytes(&self) -> usize {
        self.image_bytes
    }

    /// Bytes of one batch in the output type: packets per batch × slot stride, and also images
    /// per batch × image bytes. At most [`MAX_BATCH_BYTES`].
    ///
    /// Shape: `[images_per_batch, channels, height, width]`, row-major, without gaps.
    #[must_use]
    #[inline]
    pub const fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Where the sequence number lies in a frame; in front of the payload.
    #[must_use]
    #[inline]
    pub const fn seq_field(&self) -> BitField {
        self.seq_field
    }

    /// How many wire sequence numbers there are: `2^seq_bit_width`.
    #[must_use]
    #[inline]
    pub const fn sequence_space(&self) -> u64 {
        1 << self.spec.seq_bit_width // 1 to 32
    }

    /// Whole batches that the sequence numbers tell apart, at least 1. With 1, as documented, a
    /// batch is told from the next only by the order of arrival.
    #[must_use]
    pub const fn batches_in_sequence_space(&self) -> u64 {
        self.sequence_space() / self.packets_per_batch as u64
    }

    /// How far ahead of the stream a packet may be to be taken at its word:
    /// `min(packets_per_batch / 2, 2^w / 8)`, at least 1.
    #[must_use]
    pub const fn step(&self) -> u32 {
        let half_batch = self.packets_per_batch / 2;
        let eighth = self.sequence_space() / 8;
        // The lesser of the two is at most `half_batch`.
        let step = if eighth < half_batch as u64 { self.eighth_of_space() } else { half_batch };
        if step == 0 { 1 } else { step }
    }

    /// How many packets in a row must agree on a jump before it is believed: `clamp(2^w / 8, 2,
    /// 8)`.
    #[must_use]
    pub const fn confirmations(&self) -> u32 {
        match self.eighth_of_space() {
            0..2 => 2,
            n @ 2..=8 => n,
            _ => 8,
        }
    }

    /// `2^w / 8`, rounded down.
    const fn eighth_of_space(&self) -> u32 {
        // 2^29 at most.
        match self.spec.seq_bit_width {
            width @ 3.. => 1 << (width - 3),
            _ => 0,
        }
    }

    /// The longest run of lost packets after which the stream is still placed rightly:
    /// `2^w − confirmations`, 0 where the space is smaller than that. A longer one looks like a
    /// shorter one; only time or the sender's totals can tell.
    #[must_use]
    pub const fn largest_placed_burst(&self) -> u64 {
        self.sequence_space().saturating_sub(self.confirmations() as u64)
    }

    /// The line rate in bits per second, rounded up, below which a batch takes longer than
    /// `timeout_us` to arrive, so that every batch is cut: packets per batch × frame × 8 /
    /// timeout. `None` for 0, which disables the deadline.
    ///
    /// The documented 4096 × 1240 B in 2 ms need 20.3 Gb/s.
    #[must_use]
    pub fn minimum_rate_bps(&self, timeout_us: u64) -> Option<u64> {
        let bits = u128::from(self.packets_per_batch) * self.frame_bytes() as u128 * 8;
        let rate = (timeout_us > 0).then(|| (bits * 1_000_000).div_ceil(timeout_us.into()))?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// What the sequence field lies on top of, in the order of the frame; at least one.
    pub fn overlaps(&self) -> impl Iterator<Item = Overlap> + use<> {
        Overlap::of(self.seq_field)
    }

    /// Whether a sub-batch of `images` images begins at a multiple of `alignment` bytes, whichever
    /// it is: what TensorRT (256 bytes) asks of an input address.
    #[must_use]
    pub const fn sub_batches_aligned(&self, images: u32, alignment: usize) -> bool {
        match self.image_bytes.checked_mul(images as usize) {
            Some(bytes) => bytes.is_multiple_of(alignment),
            None => false,
        }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GeometrySpec { channels, height, width, .. } = self.spec;
        write!(
            f,
            "{} images of {channels}×{height}×{width}, {} packets of {} B {} each, to {} ({} B), \
             sequence at {}",
            self.images_per_batch(),
            self.packets_per_image(),
            self.payload_bytes(),
            self.spec.input,
            self.spec.output,
            Grouped(self.batch_bytes as u64),
            self.seq_field
        )
    }
}
