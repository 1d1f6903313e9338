//! The rules of a geometry, of what is declared besides, and of the pools.
//!
//! Each rule looks at what it needs and at nothing else, and is skipped where that cannot be
//! derived: so one wrong number is reported once, under its own rule, and hides no other.

use super::{
    ElementType, Geometry, GeometrySpec, MAX_BATCH_BYTES, NearestPayloads, PayloadSplit, Violation,
    Violations,
};
use crate::bits::BitField;
use crate::header::{HEADERS_BYTES, MAX_FRAME_BYTES};
use crate::limits::{
    MAX_BATCH_BUFFERS, MAX_IMAGES_PER_BATCH, MAX_PACKETS_PER_BATCH, MAX_QUEUE_DEPTH, MAX_WINDOWS,
};

/// Numbers that a configuration states although they follow from the geometry, or that must fit
/// it. `None`: not stated, nothing to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Bytes of one slot; must be payload elements × output element size.
    pub output_slot_stride: Option<u64>,
    /// Bytes of one image in the batch; must be elements × output element size.
    pub image_out_bytes: Option<u64>,
    /// `buf_size` of the region that packets are received into; must be payload offset + payload.
    pub rx_buf_size: Option<u64>,
    /// `buf_size` of the region that batches are built in; must be packets per batch × stride.
    pub output_buf_size: Option<u64>,
    /// `buf_size` of the region that packets are sent from; must hold a frame.
    pub tx_buf_size: Option<u64>,
    /// Must be packets per image × images per batch.
    pub packets_per_batch: Option<u64>,
    /// Largest batch that the inference engine takes; must hold the images of one inference.
    pub opt_max: Option<u64>,
    /// Images that one inference takes, where not the whole batch; must be a power of two that
    /// divides the batch. The window keeps its size.
    pub images_per_inference: Option<u64>,
    /// Whether the engine takes int8. An int8 output needs `Some(true)`; `None` is for a
    /// configuration without inference, an inference that does not say is `Some(false)`.
    pub enable_int8: Option<bool>,
}

/// Buffers, and what they must be enough for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools {
    /// Batches open at once (K).
    pub windows: u64,
    /// Jobs that the job ring holds.
    pub queue_depth: u64,
    /// Buffers of the region that batches are built in.
    pub output_bufs: u64,
    /// Buffers of the region that packets are received into.
    pub rx_bufs: u64,
    /// Descriptors of the receive ring.
    pub rx_ring: u64,
    /// `batch_size` of the receive queue.
    pub rx_batch: u64,
    /// Whether packets are kept until their batch closes (a device reorder reads them late). False
    /// where a packet goes back with its burst.
    pub retained: bool,
    /// Closed batches whose reorder may still read its packets, where `retained`.
    pub reorders_in_flight: u64,
}

impl Pools {
    /// What is missing to receive batches of `geometry`; empty when the pools are large enough.
    #[must_use]
    pub fn check(&self, geometry: &Geometry) -> Violations {
        geometry.spec().check_pools(self)
    }

    /// Output buffers that the pipeline can hold at once: open windows, one being handed over, the
    /// job ring, and two with the consumer: `K + 1 + queue_depth + 2`.
    #[must_use]
    pub const fn output_floor(&self) -> u64 {
        self.windows.saturating_add(1).saturating_add(self.queue_depth).saturating_add(2)
    }

    /// Receive buffers where packets are retained: `ring + batch + (K + reorders) × packets`.
    #[must_use]
    pub const fn retained_floor(&self, packets_per_batch: u64) -> u64 {
        self.windows
            .saturating_add(self.reorders_in_flight)
            .saturating_mul(packets_per_batch)
            .saturating_add(self.rx_ring)
            .saturating_add(self.rx_batch)
    }
}

/// Buffers that a region needs to feed a NIC queue of `ring` descriptors which is polled for
/// `batch` packets at a time: `max(1.5 × ring, ring + 2 × batch)`, rounded up. With fewer, traffic
/// stops after a fixed number of packets, without an error.
#[must_use]
pub const fn queue_region_floor(ring: u64, batch: u64) -> u64 {
    let by_ring = ring.saturating_add(ring.div_ceil(2));
    let by_batch = batch.saturating_mul(2).saturating_add(ring);
    if by_ring > by_batch { by_ring } else { by_batch }
}

/// The payload sizes next to `payload_bytes` that cut an image of `image_bytes` bytes into a power
/// of two of packets without a rest and without splitting an element of `input`.
#[must_use]
pub fn nearest_payloads(
    image_bytes: u64,
    payload_bytes: u32,
    input: ElementType,
) -> NearestPayloads {
    let mut nearest = NearestPayloads::default();
    let mut packets_per_image = 1u32;
    while packets_per_image <= MAX_PACKETS_PER_BATCH {
        let rest = image_bytes % u64::from(packets_per_image);
        let candidate = u32::try_from(image_bytes / u64::from(packets_per_image)).ok();
        let fits = |bytes: u32| {
            rest == 0
                && bytes > 0
                && bytes <= MAX_FRAME_BYTES - HEADERS_BYTES
                && u64::from(bytes) * 8 % u64::from(input.bits()) == 0
        };
        if let Some(bytes) = candidate.filter(|bytes| fits(*bytes)) {
            let split = PayloadSplit { payload_bytes: bytes, packets_per_image };
            // Candidates come in descending order.
            if bytes > payload_bytes {
                nearest.above = Some(split);
            } else if nearest.below.is_none() {
                nearest.below = Some(split);
            }
        }
        packets_per_image *= 2;
    }
    nearest
}

/// What follows from a spec, as far as it does.
#[derive(Clone, Copy, Debug)]
struct Derived {
    /// `None` beyond 64 bits.
    elements: Option<u64>,
    /// Bytes of an image in packets; `None` where that is no whole number.
    image_in_bytes: Option<u64>,
    /// `None` where a payload does not hold whole elements.
    elements_per_packet: Option<u64>,
    slot_stride: Option<u64>,
    image_out_bytes: Option<u64>,
    packets_per_batch: u64,
    batch_bytes: Option<u64>,
    frame_bytes: u64,
}

impl Derived {
    fn of(spec: &GeometrySpec) -> Self {
        let in_bits = u64::from(spec.input.bits());
        let out_bytes = u64::from(spec.output.bytes());
        let elements = (u64::from(spec.channels) * u64::from(spec.height))
            .checked_mul(u64::from(spec.width))
            // Room for the products below, so that only the image itself can be too large.
            .filter(|elements| *elements <= u64::MAX / 64);
        let image_in_bits = elements.map(|elements| elements * in_bits);
        let payload_bits = u64::from(spec.payload_bytes) * 8;
        let elements_per_packet =
            payload_bits.is_multiple_of(in_bits).then_some(payload_bits / in_bits);
        let slot_stride = elements_per_packet.map(|elements| elements * out_bytes);
        let packets_per_batch =
            u64::from(spec.packets_per_image) * u64::from(spec.images_per_batch);
        Self {
            elements,
            image_in_bytes: image_in_bits.filter(|bits| bits % 8 == 0).map(|bits| bits / 8),
            elements_per_packet,
            slot_stride,
            image_out_bytes: elements.map(|elements| elements * out_bytes),
            packets_per_batch,
            batch_bytes: slot_stride.and_then(|stride| stride.checked_mul(packets_per_batch)),
            frame_bytes: u64::from(spec.payload_byte_offset) + u64::from(spec.payload_bytes),
        }
    }
}

/// Reports what does not hold. The geometry is meaningful only when nothing was reported.
pub(super) fn check_spec(spec: &GeometrySpec, violations: &mut Violations) -> Option<Geometry> {
    let derived = Derived::of(spec);
    check_zeros(spec, violations);
    check_counts(spec, &derived, violations);
    check_payload(spec, &derived, violations);
    check_frame(spec, &derived, violations);
    let seq_field = check_sequence(spec, &derived, violations);
    let bytes = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
    Some(Geometry {
        spec: *spec,
        seq_field: seq_field?,
        packets_per_batch: u32::try_from(derived.packets_per_batch).ok()?,
        elements_per_image: bytes(derived.elements)?,
        slot_stride: bytes(derived.slot_stride)?,
        image_bytes: bytes(derived.image_out_bytes)?,
        batch_bytes: bytes(derived.batch_bytes)?,
    })
}

fn check_zeros(spec: &GeometrySpec, violations: &mut Violations) {
    let keys = [
        ("channels", spec.channels),
        ("height", spec.height),
        ("width", spec.width),
        ("packets_per_image", spec.packets_per_image),
        ("images_per_batch", spec.images_per_batch),
        ("out_payload_len", spec.payload_bytes),
    ];
    for (key, value) in keys {
        violations.push_if(value == 0, Violation::Zero { key });
    }
}

fn check_counts(spec: &GeometrySpec, derived: &Derived, violations: &mut Violations) {
    let GeometrySpec { packets_per_image, images_per_batch, .. } = *spec;
    let power_of_two = |n: u32| n == 0 || n.is_power_of_two();
    violations.push_if(
        !power_of_two(packets_per_image),
        Violation::PacketsPerImage { given: packets_per_image },
    );
    violations.push_if(
        !power_of_two(images_per_batch),
        Violation::ImagesPerBatch { given: images_per_batch },
    );
    violations.push_if(
        images_per_batch > MAX_IMAGES_PER_BATCH,
        Violation::ImagesPerBatchLimit { given: images_per_batch, max: MAX_IMAGES_PER_BATCH },
    );
    violations.push_if(
        derived.packets_per_batch > u64::from(MAX_PACKETS_PER_BATCH),
        Violation::PacketsPerBatchLimit {
            packets_per_image,
            images_per_batch,
            product: derived.packets_per_batch,
            max: MAX_PACKETS_PER_BATCH,
        },
    );
}

fn check_payload(spec: &GeometrySpec, derived: &Derived, violations: &mut Violations) {
    let GeometrySpec { channels, height, width, payload_bytes, packets_per_image, .. } = *spec;
    let GeometrySpec { input, output, .. } = *spec;
    let Some(elements) = derived.elements else {
        return violations.push(Violation::ImageTooLarge { channels, height, width });
    };
    violations
        .push_if(derived.image_in_bytes.is_none(), Violation::FractionalImage { elements, input });
    violations.push_if(
        derived.elements_per_packet.is_none(),
        Violation::FractionalPayload { payload_bytes, input },
    );
    violations.push_if(output == ElementType::Int4, Violation::OutputType { output });
    if let Some(image_bytes) = derived.image_in_bytes
        && elements > 0
        && payload_bytes > 0
        && packets_per_image > 0
        && u64::from(payload_bytes) * u64::from(packets_per_image) != image_bytes
    {
        violations.push(Violation::Payload {
            elements,
            input,
            image_bytes,
            payload_bytes,
            packets_per_image,
            nearest: nearest_payloads(image_bytes, payload_bytes, input),
        });
    }
    if let Some(slot_stride) = derived.slot_stride
        && derived.batch_bytes.is_none_or(|bytes| bytes > MAX_BATCH_BYTES)
    {
        let packets_per_batch = derived.packets_per_batch;
        violations.push(Violation::BatchLimit {
            packets_per_batch,
            slot_stride,
            max: MAX_BATCH_BYTES,
        });
    }
}

fn check_frame(spec: &GeometrySpec, derived: &Derived, violations: &mut Violations) {
    let GeometrySpec { payload_byte_offset, payload_bytes, .. } = *spec;
    violations.push_if(
        payload_byte_offset < HEADERS_BYTES,
        Violation::PayloadOffset { given: payload_byte_offset, min: HEADERS_BYTES },
    );
    violations.push_if(
        derived.frame_bytes > u64::from(MAX_FRAME_BYTES),
        Violation::FrameLimit {
            payload_byte_offset,
            payload_bytes,
            frame: derived.frame_bytes,
            max: MAX_FRAME_BYTES,
        },
    );
}

fn check_sequence(
    spec: &GeometrySpec,
    derived: &Derived,
    violations: &mut Violations,
) -> Option<BitField> {
    let GeometrySpec { seq_bit_offset, seq_bit_width, payload_byte_offset, .. } = *spec;
    let end_bit = u64::from(seq_bit_offset) + u64::from(seq_bit_width);
    violations.push_if(
        end_bit > 8 * u64::from(payload_byte_offset),
        Violation::SequencePastHeader { seq_bit_offset, seq_bit_width, payload_byte_offset },
    );
    let field = match BitField::new(seq_bit_offset, seq_bit_width) {
        Ok(field) => field,
        Err(error) => {
            violations.push(Violation::SequenceField(error));
            return None;
        }
    };
    let packets_per_batch = derived.packets_per_batch;
    let whole_batches = (1u64 << field.width_bits()).checked_rem(packets_per_batch) == Some(0);
    violations.push_if(
        packets_per_batch > 0 && !whole_batches,
        Violation::SequenceSpace { seq_bit_width, packets_per_batch },
    );
    Some(field)
}

/// Calls `wrong` with the declared and the expected value where both are there and differ.
fn differs(
    declared: Option<u64>,
    expected: Option<u64>,
    violations: &mut Violations,
    wrong: impl FnOnce(u64, u64) -> Violation,
) {
    if let (Some(given), Some(expected)) = (declared, expected)
        && given != expected
    {
        violations.push(wrong(given, expected));
    }
}

pub(super) fn check_declared(
    spec: &GeometrySpec,
    declared: &Declared,
    violations: &mut Violations,
) {
    let derived = Derived::of(spec);
    let GeometrySpec { packets_per_image, images_per_batch, output, .. } = *spec;
    let GeometrySpec { payload_byte_offset, payload_bytes, .. } = *spec;
    differs(declared.output_slot_stride, derived.slot_stride, violations, |given, expected| {
        let elements = derived.elements_per_packet.unwrap_or(0);
        Violation::SlotStride { given, elements, output, expected }
    });
    differs(declared.image_out_bytes, derived.image_out_bytes, violations, |given, expected| {
        let elements = derived.elements.unwrap_or(0);
        Violation::ImageOutBytes { given, elements, output, expected }
    });
    differs(declared.rx_buf_size, Some(derived.frame_bytes), violations, |given, expected| {
        Violation::RxBufSize { given, payload_byte_offset, payload_bytes, expected }
    });
    differs(declared.output_buf_size, derived.batch_bytes, violations, |given, expected| {
        Violation::OutputBufSize {
            given,
            packets_per_batch: derived.packets_per_batch,
            slot_stride: derived.slot_stride.unwrap_or(0),
            expected,
        }
    });
    if let Some(given) = declared.tx_buf_size
        && given < derived.frame_bytes
    {
        let frame = derived.frame_bytes;
        violations.push(Violation::TxBufSize { given, payload_byte_offset, payload_bytes, frame });
    }
    differs(
        declared.packets_per_batch,
        Some(derived.packets_per_batch),
        violations,
        |given, expected| Violation::PacketsPerBatch {
            given,
            packets_per_image,
            images_per_batch,
            expected,
        },
    );
    check_inference(spec, declared, violations);
}

fn check_inference(spec: &GeometrySpec, declared: &Declared, violations: &mut Violations) {
    let images_per_batch = u64::from(spec.images_per_batch);
    let divides = |images: u64| images.is_power_of_two() && images_per_batch.is_multiple_of(images);
    if let Some(given) = declared.images_per_inference {
        violations.push_if(!divides(given), Violation::SubBatch { given, images_per_batch });
    }
    // What the engine is asked for: the sub-batch where there is a valid one.
    let images = declared.images_per_inference.filter(|n| divides(*n)).unwrap_or(images_per_batch);
    if let Some(opt_max) = declared.opt_max {
        violations.push_if(images > opt_max, Violation::OptMax { images, opt_max });
    }
    let int8 = spec.output == ElementType::Int8;
    violations.push_if(int8 && declared.enable_int8 == Some(false), Violation::Int8Output);
}

pub(super) fn check_pools(spec: &GeometrySpec, pools: &Pools, violations: &mut Violations) {
    let packets_per_batch = Derived::of(spec).packets_per_batch;
    let Pools { windows, queue_depth, output_bufs, rx_bufs, rx_ring, rx_batch, .. } = *pools;
    let within = |n: u64, max: usize| n >= 1 && usize::try_from(n).is_ok_and(|n| n <= max);
    violations.push_if(
        !within(windows, MAX_WINDOWS),
        Violation::Windows { given: windows, max: MAX_WINDOWS },
    );
    violations.push_if(
        !within(queue_depth, MAX_QUEUE_DEPTH),
        Violation::QueueDepth { given: queue_depth, max: MAX_QUEUE_DEPTH },
    );
    let floor = pools.output_floor();
    violations.push_if(
        output_bufs < floor,
        Violation::OutputBuffers { given: output_bufs, windows, queue_depth, floor },
    );
    violations.push_if(
        output_bufs > 0 && !within(output_bufs, MAX_BATCH_BUFFERS),
        Violation::OutputBuffersLimit { given: output_bufs, max: MAX_BATCH_BUFFERS },
    );
    check_queue_region(rx_bufs, rx_ring, rx_batch, violations);
    let floor = pools.retained_floor(packets_per_batch);
    violations.push_if(
        pools.retained && rx_bufs < floor,
        Violation::RetainedBuffers {
            given: rx_bufs,
            ring: rx_ring,
            batch: rx_batch,
            windows,
            reorders_in_flight: pools.reorders_in_flight,
            packets_per_batch,
            floor,
        },
    );
}

fn check_queue_region(given: u64, ring: u64, batch: u64, violations: &mut Violations) {
    let floor = queue_region_floor(ring, batch);
    violations.push_if(given < floor, Violation::QueueBuffers { given, ring, batch, floor });
}
