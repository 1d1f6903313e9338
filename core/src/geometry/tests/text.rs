//! What the violations say. Each text has the rule, its numbers, and what would hold.

use super::{
    BitFieldError, DOCUMENTED, Declared, ElementType, GeometrySpec, MINI, POOLS, Pools, Violation,
    Violations, nearest_payloads,
};

fn texts(violations: &Violations) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn texts_of_a_spec() {
    let spec = GeometrySpec {
        packets_per_image: 100,
        images_per_batch: 33,
        payload_byte_offset: 20,
        seq_bit_offset: 150,
        ..DOCUMENTED
    };
    assert_eq!(
        texts(&spec.violations()),
        [
            "packets_per_image = 100 is not a power of two; use 64 or 128",
            "images_per_batch = 33 is not a power of two; use 32 or 64",
            "out_payload_len × packets_per_image = 1176 B × 100 = 117,600 B, but an image is \
             150,528 elements × 8 bit = 150,528 B = 128 × 1176 B + 0 B; nearest that divide it: \
             1176 B in 128 packets, 2352 B in 64 packets",
            "payload_byte_offset = 20 lies inside the Ethernet, IPv4 and UDP headers, which take \
             42 B",
            "seq_bit_offset + seq_bit_width = 150 + 12 = 162 is above 8 × payload_byte_offset = \
             8 × 20 = 160",
            "2^seq_bit_width mod packets_per_batch = 2^12 mod 3300 = 4096 mod 3300 = 796, must \
             be 0",
        ]
    );
    let spec = GeometrySpec { payload_bytes: 200, seq_bit_width: 3, ..MINI };
    assert_eq!(
        texts(&spec.violations()),
        [
            "out_payload_len × packets_per_image = 200 B × 4 = 800 B, but an image is 768 \
             elements × 8 bit = 768 B = 3 × 200 B + 168 B; nearest that divide it: 192 B in 4 \
             packets, 384 B in 2 packets",
            "2^seq_bit_width mod packets_per_batch = 2^3 mod 16 = 8 mod 16 = 8, must be 0; use a \
             width of 4 or more",
        ]
    );
    let spec = GeometrySpec { seq_bit_offset: u32::MAX, ..MINI };
    let said = spec.violations().to_string();
    assert!(said.contains("seq_bit_offset and seq_bit_width: a bit field of"), "{said}");
    let spec = GeometrySpec { channels: 0, seq_bit_width: 33, ..MINI };
    assert_eq!(
        spec.violations().to_string(),
        "channels must not be 0; seq_bit_width: a bit field of 33 bits, allowed 1 to 32"
    );
}

#[test]
fn texts_of_declared_numbers() {
    let declared = Declared {
        output_slot_stride: Some(1176),
        image_out_bytes: Some(1),
        rx_buf_size: Some(2048),
        output_buf_size: Some(9_633_000),
        tx_buf_size: Some(1024),
        packets_per_batch: Some(1024),
        opt_max: Some(16),
        images_per_inference: Some(24),
        enable_int8: None,
    };
    assert_eq!(
        texts(&DOCUMENTED.check(&declared)),
        [
            "output_slot_stride = 1176, expected 1176 elements × 2 B (fp16) = 2352",
            "image_out_bytes = 1, expected 150,528 elements × 2 B (fp16) = 301,056",
            "receive buf_size = 2048, expected 64 B + 1176 B = 1240",
            "output buf_size = 9,633,000, expected 4096 packets × 2352 B = 9,633,792",
            "transmit buf_size = 1024 does not hold a frame of 64 B + 1176 B = 1240 B",
            "packets_per_batch = 1024, expected 128 × 32 = 4096",
            "24 images per inference: must be a power of two that divides the 32 images of a batch",
            "one inference of 32 images is above opt_max = 16",
        ]
    );
}

#[test]
fn texts_of_pools() {
    let pools = Pools {
        windows: 5,
        queue_depth: 0,
        output_bufs: 7,
        rx_bufs: 20_000,
        rx_batch: 8000,
        ..POOLS
    };
    assert_eq!(
        texts(&DOCUMENTED.check_pools(&pools)),
        [
            "window = 5, allowed 1 to 4",
            "queue_depth = 0, allowed 1 to 64",
            "output num_bufs = 7 is below window + 1 + queue_depth + 2 = 5 + 1 + 0 + 2 = 8",
            "num_bufs = 20,000 is below max(1.5 × ring, ring + 2 × batch_size) = max(1.5 × 8192, \
             8192 + 2 × 8000) = 24,192, where traffic stops without an error; use 24,576",
            "num_bufs = 20,000 is below ring + batch_size + (window + reorders in flight) × \
             packets_per_batch = 8192 + 8000 + (5 + 2) × 4096 = 44,864, where traffic stops \
             without an error; use 45,056",
        ]
    );
}

/// One of each variant.
fn all() -> Vec<Violation> {
    let nearest = nearest_payloads(768, 200, ElementType::Int8);
    let (input, output) = (ElementType::Int4, ElementType::Fp16);
    let (packets_per_image, images_per_batch) = (4, 4);
    let (payload_byte_offset, payload_bytes) = (64, 192);
    let (seq_bit_offset, seq_bit_width) = (128, 12);
    let (given, expected, elements) = (1, 2, 3);
    vec![
        Violation::Zero { key: "width" },
        Violation::PacketsPerImage { given: 3 },
        Violation::ImagesPerBatch { given: u32::MAX },
        Violation::ImagesPerBatchLimit { given: 512, max: 256 },
        Violation::PacketsPerBatchLimit {
            packets_per_image,
            images_per_batch,
            product: 16,
            max: 8,
        },
        Violation::ImageTooLarge { channels: 1, height: 2, width: 3 },
        Violation::FractionalImage { elements, input },
        Violation::FractionalPayload { payload_bytes, input: ElementType::Int16 },
        Violation::OutputType { output: input },
        Violation::Payload {
            elements,
            input,
            image_bytes: 768,
            payload_bytes: 0,
            packets_per_image,
            nearest,
        },
        Violation::BatchLimit { packets_per_batch: 2, slot_stride: 3, max: 5 },
        Violation::PayloadOffset { given: 41, min: 42 },
        Violation::FrameLimit { payload_byte_offset, payload_bytes, frame: 256, max: 255 },
        Violation::SequenceField(BitFieldError::Width { given: 0 }),
        Violation::SequencePastHeader { seq_bit_offset, seq_bit_width, payload_byte_offset },
        Violation::SequenceSpace { seq_bit_width: 99, packets_per_batch: 0 },
        Violation::SlotStride { given, elements, output, expected },
        Violation::ImageOutBytes { given, elements, output, expected },
        Violation::RxBufSize { given, payload_byte_offset, payload_bytes, expected },
        Violation::OutputBufSize { given, packets_per_batch: 16, slot_stride: 384, expected },
        Violation::TxBufSize { given, payload_byte_offset, payload_bytes, frame: 256 },
        Violation::PacketsPerBatch { given, packets_per_image, images_per_batch, expected },
        Violation::OptMax { images: 32, opt_max: 16 },
        Violation::SubBatch { given, images_per_batch: 4 },
        Violation::Int8Output,
        Violation::Windows { given, max: 4 },
        Violation::QueueDepth { given, max: 64 },
        Violation::OutputBuffers { given, windows: 2, queue_depth: 8, floor: 13 },
        Violation::OutputBuffersLimit { given, max: 256 },
        Violation::QueueBuffers { given, ring: 8, batch: 8, floor: u64::MAX },
        Violation::RetainedBuffers {
            given,
            ring: 8,
            batch: 8,
            windows: 2,
            reorders_in_flight: 2,
            packets_per_batch: 16,
            floor: 80,
        },
    ]
}

#[test]
fn every_variant_has_a_text_and_a_code_of_its_own() {
    let all = all();
    for violation in &all {
        let text = violation.to_string();
        assert_ne!(text, violation.code(), "{violation:?} has no text");
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
    }
    let codes: std::collections::BTreeSet<&str> = all.iter().map(Violation::code).collect();
    assert_eq!(codes.len(), all.len());

    // All of them at once, and a zero for each of six keys, fit one list.
    let mut violations = Violations::new();
    for violation in &all {
        violations.push(*violation);
    }
    for _ in 1..6 {
        violations.push(Violation::Zero { key: "height" });
    }
    assert_eq!(violations.len(), all.len() + 5);
}
