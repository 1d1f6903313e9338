//! Violations as text: the rule with its numbers put in, and what would hold.
//!
//! Lower case, no full stop: a report puts file, line and key path in front.

use core::fmt;

use super::{Grouped as G, Violation};
use crate::bits::BitFieldError;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        counts(self, f)
    }
}

/// The powers of two on both sides of a number that is none.
struct PowersAround(u32);

impl fmt::Display for PowersAround {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = self.0.checked_ilog2().map_or(1, |log| 1u64 << log);
        write!(f, "{} or {}", G(below), G(below * 2))
    }
}

fn counts(violation: &Violation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use Violation as V;
    match *violation {
        V::Zero { key } => write!(f, "{key} must not be 0"),
        V::PacketsPerImage { given } => {
            let near = PowersAround(given);
            write!(f, "packets_per_image = {given} is not a power of two; use {near}")
        }
        V::ImagesPerBatch { given } => {
            let near = PowersAround(given);
            write!(f, "images_per_batch = {given} is not a power of two; use {near}")
        }
        V::ImagesPerBatchLimit { given, max } => {
            write!(f, "images_per_batch = {given} is above the limit of {max}")
        }
        V::PacketsPerBatchLimit { packets_per_image, images_per_batch, product, max } => write!(
            f,
            "packets_per_image × images_per_batch = {packets_per_image} × {images_per_batch} = {} \
             packets is above the limit of {}",
            G(product),
            G(max.into())
        ),
        _ => payload(violation, f),
    }
}

fn payload(violation: &Violation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use Violation as V;
    match *violation {
        V::ImageTooLarge { channels, height, width } => {
            write!(f, "{channels} × {height} × {width} elements are too many for one image")
        }
        V::FractionalImage { elements, input } => write!(
            f,
            "an image of {} elements × {} bit ({input}) is not a whole number of bytes",
            G(elements),
            input.bits()
        ),
        V::FractionalPayload { payload_bytes, input } => write!(
            f,
            "out_payload_len = {payload_bytes} B is not a whole number of {input} elements of {} B",
            input.bytes()
        ),
        V::OutputType { output } => {
            write!(f, "output type {output} has elements of less than a byte")
        }
        V::Payload { payload_bytes, packets_per_image, image_bytes, .. } => {
            let sum = u64::from(payload_bytes) * u64::from(packets_per_image);
            write!(
                f,
                "out_payload_len × packets_per_image = {payload_bytes} B × {packets_per_image} = \
                 {} B, but an image is ",
                G(sum)
            )?;
            image_and_rest(violation, payload_bytes, image_bytes, f)
        }
        V::BatchLimit { packets_per_batch, slot_stride, max } => write!(
            f,
            "a batch of {} packets × {} B is above the limit of {} B",
            G(packets_per_batch),
            G(slot_stride),
            G(max)
        ),
        _ => frame(violation, f),
    }
}

/// The second half of [`Violation::Payload`]: the image, how often the payload goes into it, and
/// what would.
fn image_and_rest(
    violation: &Violation,
    payload_bytes: u32,
    image_bytes: u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let Violation::Payload { elements, input, nearest, .. } = *violation else { return Ok(()) };
    write!(f, "{} elements × {} bit = {} B", G(elements), input.bits(), G(image_bytes))?;
    let payload = u64::from(payload_bytes);
    if let (Some(times), Some(rest)) =
        (image_bytes.checked_div(payload), image_bytes.checked_rem(payload))
    {
        write!(f, " = {} × {payload} B + {} B", G(times), G(rest))?;
    }
    write!(f, "; {nearest}")
}

fn frame(violation: &Violation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use Violation as V;
    match *violation {
        V::PayloadOffset { given, min } => write!(
            f,
            "payload_byte_offset = {given} lies inside the Ethernet, IPv4 and UDP headers, which \
             take {min} B"
        ),
        V::FrameLimit { payload_byte_offset, payload_bytes, frame, max } => write!(
            f,
            "a frame of {payload_byte_offset} B + {payload_bytes} B = {} B is above the {} B of \
             the longest IPv4 datagram",
            G(frame),
            G(max.into())
        ),
        V::SequenceField(error @ BitFieldError::Width { .. }) => {
            write!(f, "seq_bit_width: {error}")
        }
        V::SequenceField(error) => write!(f, "seq_bit_offset and seq_bit_width: {error}"),
        V::SequencePastHeader { seq_bit_offset, seq_bit_width, payload_byte_offset } => write!(
            f,
            "seq_bit_offset + seq_bit_width = {seq_bit_offset} + {seq_bit_width} = {} is above 8 × \
             payload_byte_offset = 8 × {payload_byte_offset} = {}",
            u64::from(seq_bit_offset) + u64::from(seq_bit_width),
            8 * u64::from(payload_byte_offset)
        ),
        V::SequenceSpace { seq_bit_width, packets_per_batch } => {
            let space = 1u64.checked_shl(seq_bit_width).unwrap_or(u64::MAX);
            let rest = space.checked_rem(packets_per_batch).unwrap_or(0);
            write!(
                f,
                "2^seq_bit_width mod packets_per_batch = 2^{seq_bit_width} mod {0} = {1} mod {0} = \
                 {2}, must be 0",
                G(packets_per_batch),
                G(space),
                G(rest)
            )?;
            if packets_per_batch.is_power_of_two() {
                write!(f, "; use a width of {} or more", packets_per_batch.ilog2())?;
            }
            Ok(())
        }
        _ => declared(violation, f),
    }
}

fn declared(violation: &Violation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use Violation as V;
    match *violation {
        V::SlotStride { given, elements, output, expected } => write!(
            f,
            "output_slot_stride = {}, expected {} elements × {} B ({output}) = {}",
            G(given),
            G(elements),
            output.bytes(),
            G(expected)
        ),
        V::ImageOutBytes { given, elements, output, expected } => write!(
            f,
            "image_out_bytes = {}, expected {} elements × {} B ({output}) = {}",
            G(given),
            G(elements),
            output.bytes(),
            G(expected)
        ),
        V::RxBufSize { given, payload_byte_offset, payload_bytes, expected } => write!(
            f,
            "receive buf_size = {}, expected {payload_byte_offset} B + {payload_bytes} B = {}",
            G(given),
            G(expected)
        ),
        V::OutputBufSize { given, packets_per_batch, slot_stride, expected } => write!(
            f,
            "output buf_size = {}, expected {packets_per_batch} packets × {slot_stride} B = {}",
            G(given),
            G(expected)
        ),
        V::TxBufSize { given, payload_byte_offset, payload_bytes, frame } => write!(
            f,
            "transmit buf_size = {} does not hold a frame of {payload_byte_offset} B + \
             {payload_bytes} B = {} B",
            G(given),
            G(frame)
        ),
        V::PacketsPerBatch { given, packets_per_image, images_per_batch, expected } => write!(
            f,
            "packets_per_batch = {}, expected {packets_per_image} × {images_per_batch} = {}",
            G(given),
            G(expected)
        ),
        _ => stages(violation, f),
    }
}

fn stages(violation: &Violation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use Violation as V;
    match *violation {
        V::OptMax { images, opt_max } => {
            write!(f, "one inference of {images} images is above opt_max = {opt_max}")
        }
        V::SubBatch { given, images_per_batch } => write!(
            f,
            "{given} images per inference: must be a power of two that divides the \
             {images_per_batch} images of a batch"
        ),
        V::Int8Output => f.write_str("output type int8 needs enable_int8: true"),
        V::Windows { given, max } => write!(f, "window = {given}, allowed 1 to {max}"),
        V::QueueDepth { given, max } => write!(f, "queue_depth = {given}, allowed 1 to {max}"),
        V::OutputBuffers { given, windows, queue_depth, floor } => write!(
            f,
            "output num_bufs = {given} is below window + 1 + queue_depth + 2 = {windows} + 1 + \
             {queue_depth} + 2 = {}",
            G(floor)
        ),
        V::OutputBuffersLimit { given, max } => {
            write!(f, "output num_bufs = {} is above the limit of {max}", G(given))
        }
        _ => buffers(violation, f),
    }
}

fn buffers(violation: &Violation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use Violation as V;
    let floor = match *violation {
        V::QueueBuffers { given, ring, batch, floor } => {
            write!(
                f,
                "num_bufs = {} is below max(1.5 × ring, ring + 2 × batch_size) = max(1.5 × \
                 {ring}, {ring} + 2 × {batch}) = {}",
                G(given),
                G(floor)
            )?;
            floor
        }
        V::RetainedBuffers {
            given,
            ring,
            batch,
            windows,
            reorders_in_flight,
            packets_per_batch,
            floor,
        } => {
            write!(
                f,
                "num_bufs = {} is below ring + batch_size + (window + reorders in flight) × \
                 packets_per_batch = {ring} + {batch} + ({windows} + {reorders_in_flight}) × \
                 {packets_per_batch} = {}",
                G(given),
                G(floor)
            )?;
            floor
        }
        // All variants are spelled out above; a test walks through them.
        _ => return f.write_str(violation.code()),
    };
    write!(f, ", where traffic stops without an error; use {}", G(good_count(floor)))
}

/// A round number of buffers that is not below the floor.
fn good_count(floor: u64) -> u64 {
    floor.checked_next_multiple_of(1_024).unwrap_or(floor)
}
