use proptest::prelude::any;
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::{
    Declared, Effect, ElementType, Geometry, GeometrySpec, Grouped, Overlap, PayloadSplit, Pools,
    Violation, Violations, nearest_payloads, queue_region_floor,
};
use crate::bits::BitFieldError;
use crate::header::{HEADERS_BYTES, MAX_FRAME_BYTES, Verify};

mod text;

impl GeometrySpec {
    /// The geometry of the field cases: small, and every rule holds.
    pub(crate) const MINI: Self = Self {
        height: 16,
        width: 16,
        packets_per_image: 4,
        images_per_batch: 4,
        payload_bytes: 192,
        seq_bit_width: 8,
        ..Self::DOCUMENTED
    };
}

const DOCUMENTED: GeometrySpec = GeometrySpec::DOCUMENTED;
const MINI: GeometrySpec = GeometrySpec::MINI;

fn geometry(spec: &GeometrySpec) -> Geometry {
    Geometry::new(spec).expect("a geometry")
}

/// The codes of all violations, in order.
fn codes(violations: &Violations) -> Vec<&'static str> {
    violations.iter().map(Violation::code).collect()
}

fn spec_codes(spec: &GeometrySpec) -> Vec<&'static str> {
    let violations = spec.violations();
    match Geometry::new(spec) {
        Ok(_) => assert!(violations.is_empty(), "{violations}"),
        Err(error) => assert_eq!(error, violations),
    }
    codes(&violations)
}

#[test]
fn the_documented_geometry() {
    let g = geometry(&DOCUMENTED);
    assert_eq!(g.elements_per_image(), 150_528);
    assert_eq!((g.packets_per_image(), g.payload_bytes()), (128, 1176));
    assert_eq!(g.slot_stride(), 2352);
    assert_eq!((g.packets_per_batch(), g.images_per_batch()), (4096, 32));
    assert_eq!((g.seq_field().offset_bits(), g.seq_field().width_bits()), (128, 12));
    assert_eq!((g.batch_bytes(), g.image_bytes()), (9_633_792, 301_056));
    assert_eq!((g.payload_offset(), g.frame_bytes()), (64, 1240));
    assert_eq!((g.sequence_space(), g.batches_in_sequence_space()), (4096, 1));
    assert_eq!((g.step(), g.confirmations(), g.largest_placed_burst()), (512, 8, 4088));
    assert!(g.sub_batches_aligned(1, 256), "301,056 = 1176 × 256");
    assert_eq!(
        g.to_string(),
        "32 images of 3×224×224, 128 packets of 1176 B int8 each, to fp16 (9,633,792 B), \
         sequence at bit 128, width 12"
    );

    let upstream = geometry(&GeometrySpec { seq_bit_width: 16, ..DOCUMENTED });
    assert_eq!(upstream.batches_in_sequence_space(), 16);
    assert_eq!((upstream.step(), upstream.largest_placed_burst()), (2048, 65_528));
}

#[test]
fn the_mini_geometry() {
    let g = geometry(&MINI);
    assert_eq!(g.elements_per_image(), 768);
    assert_eq!((g.frame_bytes(), g.slot_stride(), g.image_bytes()), (256, 384, 1536));
    assert_eq!((g.packets_per_batch(), g.batch_bytes()), (16, 6144));
    assert_eq!(g.batches_in_sequence_space(), 16);
    assert_eq!((g.step(), g.confirmations(), g.largest_placed_burst()), (8, 8, 248));
}

#[test]
fn r01_the_largest_burst_when_the_width_covers_one_batch() {
    let g = geometry(&GeometrySpec { seq_bit_width: 4, ..MINI });
    assert_eq!(g.batches_in_sequence_space(), 1);
    assert_eq!((g.step(), g.confirmations(), g.largest_placed_burst()), (2, 2, 14));
}

#[test]
fn r11_the_largest_burst_follows_the_width() {
    let burst =
        |seq_bit_width| geometry(&GeometrySpec { seq_bit_width, ..MINI }).largest_placed_burst();
    assert_eq!(burst(5), 28);
    assert_eq!(burst(6), 56);
    assert_eq!(burst(32), (1 << 32) - 8);
}

#[test]
fn a_space_of_two_numbers_has_a_step_and_no_burst() {
    let spec = GeometrySpec {
        channels: 1,
        height: 1,
        width: 2,
        packets_per_image: 2,
        images_per_batch: 1,
        payload_bytes: 1,
        seq_bit_width: 1,
        ..DOCUMENTED
    };
    let g = geometry(&spec);
    assert_eq!((g.step(), g.confirmations(), g.largest_placed_burst()), (1, 2, 0));
}

#[test]
fn i04_widths_that_do_not_hold_whole_batches() {
    let codes = |seq_bit_width| spec_codes(&GeometrySpec { seq_bit_width, ..MINI });
    assert_eq!(codes(3), ["sequence-space"]);
    assert!(codes(4).is_empty(), "exactly one batch is the documented case");
    assert!(codes(5).is_empty());
    assert!(codes(32).is_empty());
    assert_eq!(codes(33), ["sequence-field"]);
    assert_eq!(codes(0), ["sequence-field"]);
    assert_eq!(codes(272), ["sequence-field"], "272 mod 256 = 16");
    assert_eq!(spec_codes(&GeometrySpec { payload_bytes: 191, ..MINI }), ["payload"]);
}

#[test]
fn c17_what_the_sequence_lies_on() {
    let overlaps = |seq_bit_offset, seq_bit_width| -> Vec<Overlap> {
        let spec = GeometrySpec { seq_bit_offset, seq_bit_width, ..MINI };
        geometry(&spec).overlaps().collect()
    };
    assert_eq!(overlaps(128, 12), [Overlap::TotalLength]);
    assert_eq!(overlaps(128, 16), [Overlap::TotalLength]);
    assert_eq!(overlaps(128, 17), [Overlap::TotalLength, Overlap::Id]);
    assert_eq!(overlaps(336, 16), [Overlap::Filler]);
    assert_eq!(overlaps(335, 16), [Overlap::UdpChecksum, Overlap::Filler]);
    assert_eq!(overlaps(112, 8), [Overlap::Ipv4Version]);
    assert_eq!(overlaps(184, 8), [Overlap::Protocol]);
    assert_eq!(overlaps(288, 16), [Overlap::UdpDstPort]);
    assert_eq!(overlaps(0, 4), [Overlap::EthDst]);
    assert_eq!(overlaps(100, 16), [Overlap::EtherType, Overlap::Ipv4Version]);
    let through = [Overlap::Ttl, Overlap::Protocol, Overlap::HeaderChecksum];
    assert_eq!(overlaps(176, 32), through);

    let spec = GeometrySpec { seq_bit_offset: 8 * 64 - 11, seq_bit_width: 12, ..MINI };
    assert_eq!(spec_codes(&spec), ["sequence-past-header"], "one bit past the header");
    let spec = GeometrySpec { seq_bit_offset: 8 * 64 - 12, ..spec };
    assert!(spec_codes(&spec).is_empty());
    let spec = GeometrySpec { seq_bit_offset: u32::MAX, ..spec };
    assert_eq!(spec_codes(&spec), ["sequence-past-header", "sequence-field"]);
}

#[test]
fn c17_what_comes_of_it() {
    let plain = |overlap: Overlap| overlap.effect(false, Verify::None);
    for overlap in [
        Overlap::EtherType,
        Overlap::Ipv4Version,
        Overlap::Fragment,
        Overlap::Protocol,
        Overlap::UdpSrcPort,
        Overlap::UdpDstPort,
    ] {
        assert_eq!(plain(overlap), Effect::Breaks, "{overlap}");
    }
    for overlap in [Overlap::TotalLength, Overlap::HeaderChecksum, Overlap::UdpChecksum] {
        assert_eq!(plain(overlap), Effect::Note, "{overlap}");
    }
    assert_eq!(plain(Overlap::Filler), Effect::Free);
    assert_eq!(Overlap::TotalLength.effect(true, Verify::None), Effect::Breaks);
    assert_eq!(Overlap::HeaderChecksum.effect(false, Verify::Ip), Effect::Breaks);
    assert_eq!(Overlap::UdpChecksum.effect(false, Verify::Ip), Effect::Note);
    assert_eq!(Overlap::UdpChecksum.effect(false, Verify::Udp), Effect::Breaks);
    assert_eq!(
        Overlap::TotalLength.to_string(),
        "the sequence field lies on the IPv4 total length: the frames cross a cable, but not a \
         router or anything else that trusts the length"
    );
}

#[test]
fn c27_the_rate_that_a_timeout_implies() {
    let g = geometry(&DOCUMENTED);
    // 4096 × 1240 B × 8 = 40,632,320 bit in 2 ms.
    assert_eq!(g.minimum_rate_bps(2_000), Some(20_316_160_000));
    assert_eq!(g.minimum_rate_bps(0), None, "0 disables the deadline");
    assert_eq!(g.minimum_rate_bps(u64::MAX), Some(1), "rounded up");
    let mini = geometry(&MINI);
    // One packet of 256 B per 200 µs are 10,240,000 bit/s: too slow for 2 ms.
    assert_eq!(mini.minimum_rate_bps(2_000), Some(16_384_000));
}

#[test]
fn i06_the_nearest_payloads_that_divide_an_image() {
    let nearest = |image_bytes, payload| {
        let nearest = nearest_payloads(image_bytes, payload, ElementType::Int8);
        let pair = |split: PayloadSplit| (split.payload_bytes, split.packets_per_image);
        (nearest.below.map(pair), nearest.above.map(pair))
    };
    assert_eq!(nearest(768, 200), (Some((192, 4)), Some((384, 2))));
    assert_eq!(nearest(768, 192), (Some((192, 4)), Some((384, 2))));
    assert_eq!(nearest(768, 1000), (Some((768, 1)), None));
    assert_eq!(nearest(768, 191), (Some((96, 8)), Some((192, 4))));
    // Height 17: 816 bytes = 16 × 51.
    assert_eq!(nearest(816, 192), (Some((102, 8)), Some((204, 4))));
    assert_eq!(nearest(7, 1), (None, Some((7, 1))));
    assert_eq!(nearest(u64::MAX, 1000), (None, None));
    assert_eq!(nearest(0, 1), (None, None), "no payload is none");
    // The largest payload that a frame holds, and one byte more.
    let largest = MAX_FRAME_BYTES - HEADERS_BYTES;
    assert_eq!(nearest(largest.into(), 1), (None, Some((largest, 1))));
    assert_eq!(nearest(u64::from(largest) + 1, 65_508), (Some((32_754, 2)), None));
    // An int16 element is not split: 6 bytes are three of them, not two halves of three bytes.
    let int16 = nearest_payloads(6, 3, ElementType::Int16);
    assert_eq!((int16.below, int16.above.map(|split| split.payload_bytes)), (None, Some(6)));

    for spec in [
        GeometrySpec { payload_bytes: 200, ..MINI },
        GeometrySpec { payload_bytes: 1000, packets_per_image: 1, ..MINI },
        GeometrySpec { height: 17, ..MINI },
    ] {
        assert_eq!(spec_codes(&spec), ["payload"]);
    }
}

#[test]
fn every_fault_is_reported_at_once() {
    let spec = GeometrySpec {
        packets_per_image: 100,
        images_per_batch: 300,
        payload_byte_offset: 20,
        seq_bit_offset: 150,
        ..DOCUMENTED
    };
    let expected = [
        "packets-per-image",
        "images-per-batch",
        "images-per-batch-limit",
        "payload",
        "payload-offset",
        "sequence-past-header",
        "sequence-space",
    ];
    assert_eq!(spec_codes(&spec), expected);

    let zeros = GeometrySpec {
        channels: 0,
        height: 0,
        width: 0,
        packets_per_image: 0,
        images_per_batch: 0,
        payload_byte_offset: 0,
        payload_bytes: 0,
        seq_bit_offset: 0,
        seq_bit_width: 0,
        ..DOCUMENTED
    };
    let mut expected = vec!["zero"; 6];
    expected.extend(["payload-offset", "sequence-field"]);
    assert_eq!(spec_codes(&zeros), expected, "a zero is one fault, not five");
    for zero in [
        GeometrySpec { channels: 0, ..MINI },
        GeometrySpec { height: 0, ..MINI },
        GeometrySpec { width: 0, ..MINI },
        GeometrySpec { packets_per_image: 0, ..MINI },
        GeometrySpec { images_per_batch: 0, ..MINI },
        GeometrySpec { payload_bytes: 0, ..MINI },
    ] {
        assert_eq!(spec_codes(&zero), ["zero"], "{zero:?}");
    }
}

#[test]
fn limits_are_limits() {
    let at = GeometrySpec {
        channels: 1,
        height: 256,
        width: 1,
        packets_per_image: 256,
        images_per_batch: 256,
        payload_bytes: 1,
        seq_bit_width: 16,
        ..DOCUMENTED
    };
    assert!(spec_codes(&at).is_empty());
    assert_eq!(geometry(&at).packets_per_batch(), 65_536);
    let above = GeometrySpec { images_per_batch: 512, packets_per_image: 128, ..at };
    let above = GeometrySpec { height: 128, ..above };
    assert_eq!(spec_codes(&above), ["images-per-batch-limit"]);
    let above = GeometrySpec { packets_per_image: 512, height: 512, seq_bit_width: 17, ..at };
    assert_eq!(spec_codes(&above), ["packets-per-batch-limit"]);

    // The payload may begin right behind the headers, and not before.
    let behind = |payload_byte_offset| GeometrySpec {
        payload_byte_offset,
        seq_bit_offset: 320,
        seq_bit_width: 8,
        ..MINI
    };
    assert!(spec_codes(&behind(HEADERS_BYTES)).is_empty());
    assert_eq!(spec_codes(&behind(HEADERS_BYTES - 1)), ["payload-offset"]);

    // P17: a jumbo frame is no special case; the longest IPv4 datagram is the end.
    let one_packet = |payload_bytes| GeometrySpec {
        channels: 1,
        height: 1,
        width: payload_bytes,
        packets_per_image: 1,
        images_per_batch: 1,
        payload_bytes,
        ..DOCUMENTED
    };
    for payload_bytes in [8000, 8960, 65_549 - 64] {
        assert!(spec_codes(&one_packet(payload_bytes)).is_empty());
    }
    assert_eq!(spec_codes(&one_packet(65_549 - 63)), ["frame-limit"]);

    let batch = GeometrySpec {
        packets_per_image: 256,
        images_per_batch: 256,
        width: 256 * 8192,
        height: 1,
        channels: 1,
        payload_bytes: 8192,
        seq_bit_width: 16,
        output: ElementType::Fp64,
        ..DOCUMENTED
    };
    assert_eq!(spec_codes(&batch), ["batch-limit"], "2^16 × 2^16 B = 2^32 B");
    let int8 = GeometrySpec { output: ElementType::Int8, ..batch };
    assert_eq!(geometry(&int8).batch_bytes(), 1 << 29);
}

#[test]
fn numbers_beyond_all_measure_are_refused_and_do_not_wrap() {
    let spec = GeometrySpec {
        channels: u32::MAX,
        height: u32::MAX,
        width: u32::MAX,
        packets_per_image: u32::MAX,
        images_per_batch: u32::MAX,
        payload_byte_offset: u32::MAX,
        payload_bytes: u32::MAX,
        seq_bit_offset: u32::MAX,
        seq_bit_width: u32::MAX,
        input: ElementType::Fp64,
        output: ElementType::Int4,
    };
    let found = spec_codes(&spec);
    for code in ["image-too-large", "packets-per-batch-limit", "frame-limit", "sequence-field"] {
        assert!(found.contains(&code), "{found:?}");
    }
}

#[test]
fn elements_of_other_sizes() {
    let int4 = GeometrySpec { input: ElementType::Int4, payload_bytes: 96, ..MINI };
    let g = geometry(&int4);
    assert_eq!((g.slot_stride(), g.image_bytes(), g.frame_bytes()), (384, 1536, 160));
    let fp32 = GeometrySpec { input: ElementType::Int16, output: ElementType::Fp32, ..MINI };
    let g = geometry(&GeometrySpec { payload_bytes: 384, ..fp32 });
    assert_eq!((g.slot_stride(), g.image_bytes()), (768, 3072));

    let odd = GeometrySpec { channels: 1, height: 1, width: 3, ..int4 };
    assert_eq!(spec_codes(&odd), ["fractional-image"], "three int4 are 12 bits");
    let halves = GeometrySpec { channels: 1, height: 1, width: 1, ..fp32 };
    let halves = GeometrySpec { packets_per_image: 2, payload_bytes: 1, ..halves };
    assert_eq!(spec_codes(&halves), ["fractional-payload"], "half an int16 per packet");
    assert_eq!(spec_codes(&GeometrySpec { output: ElementType::Int4, ..MINI }), ["output-type"]);
    for element in ElementType::ALL {
        assert_eq!(ElementType::from_name(element.name()), Some(element));
        assert_eq!(element.bytes() * 8, element.bits().max(8));
    }
    assert_eq!(ElementType::from_name("FP16"), None);
}

#[test]
fn declared_numbers_that_fit() {
    let declared = Declared {
        output_slot_stride: Some(2352),
        image_out_bytes: Some(301_056),
        rx_buf_size: Some(1240),
        output_buf_size: Some(9_633_792),
        tx_buf_size: Some(2048),
        packets_per_batch: Some(4096),
        opt_max: Some(256),
        images_per_inference: Some(8),
        enable_int8: Some(false),
    };
    let g = geometry(&DOCUMENTED);
    assert!(g.check(&declared).is_empty());
    assert!(g.check(&Declared::default()).is_empty());
}

#[test]
fn declared_numbers_that_do_not_fit() {
    let declared = Declared {
        output_slot_stride: Some(1176),
        image_out_bytes: Some(301_055),
        rx_buf_size: Some(2048),
        output_buf_size: Some(9_633_793),
        tx_buf_size: Some(1239),
        packets_per_batch: Some(128),
        opt_max: Some(16),
        images_per_inference: None,
        enable_int8: Some(false),
    };
    let int8 = GeometrySpec { output: ElementType::Int8, ..DOCUMENTED };
    let expected = [
        "image-out-bytes",
        "rx-buf-size",
        "output-buf-size",
        "tx-buf-size",
        "packets-per-batch",
        "opt-max",
        "int8-output",
    ];
    assert_eq!(codes(&int8.check(&declared)), expected, "1176 is the int8 stride");
    assert_eq!(codes(&geometry(&int8).check(&declared)), expected);
    let expected = [&["slot-stride"], &expected[..6]].concat();
    assert_eq!(codes(&DOCUMENTED.check(&declared)), expected);
    // Also beside a spec that is no geometry, as far as it goes.
    let broken = GeometrySpec { seq_bit_width: 3, packets_per_image: 64, ..DOCUMENTED };
    assert_eq!(codes(&broken.check(&declared)), expected);
    let int8_on = Declared { enable_int8: Some(true), ..Declared::default() };
    assert!(int8.check(&int8_on).is_empty());
}

#[test]
fn p17_a_buffer_one_byte_short_of_a_frame() {
    let spec = GeometrySpec { payload_bytes: 8001, ..DOCUMENTED };
    let tx = |size| Declared { tx_buf_size: Some(size), ..Declared::default() };
    assert_eq!(codes(&spec.check(&tx(8064))), ["tx-buf-size"]);
    assert!(spec.check(&tx(8065)).is_empty());
}

#[test]
fn i01_e08_images_per_inference() {
    let check = |images, opt_max| {
        let declared = Declared { images_per_inference: images, opt_max, ..Declared::default() };
        codes(&MINI.check(&declared))
    };
    for images in [1, 2, 4] {
        assert!(check(Some(images), None).is_empty());
    }
    for images in [0, 3, 8, u64::MAX] {
        assert_eq!(check(Some(images), None), ["sub-batch"], "{images}");
    }
    assert_eq!(check(None, Some(3)), ["opt-max"]);
    assert_eq!(check(None, Some(0)), ["opt-max"]);
    assert!(check(None, Some(4)).is_empty());
    assert!(check(Some(2), Some(2)).is_empty(), "the engine sees sub-batches");
    assert_eq!(check(Some(3), Some(2)), ["sub-batch", "opt-max"]);
    // 1536 B per image: TensorRT's 256 are no problem here, 4096 would be.
    assert!(geometry(&MINI).sub_batches_aligned(1, 256));
    assert!(!geometry(&MINI).sub_batches_aligned(1, 4096));
    assert!(!geometry(&MINI).sub_batches_aligned(1, 0), "no panic");
}

const POOLS: Pools = Pools {
    windows: 2,
    queue_depth: 8,
    output_bufs: 16,
    rx_bufs: 51_200,
    rx_ring: 8192,
    rx_batch: 8192,
    retained: true,
    reorders_in_flight: 2,
};

#[test]
fn the_documented_pools() {
    let g = geometry(&DOCUMENTED);
    assert!(POOLS.check(&g).is_empty());
    assert_eq!(POOLS.output_floor(), 13);
    assert_eq!(POOLS.retained_floor(4096), 32_768);
    assert!(Pools { output_bufs: 13, rx_bufs: 32_768, ..POOLS }.check(&g).is_empty());
    assert_eq!(codes(&Pools { output_bufs: 12, ..POOLS }.check(&g)), ["output-buffers"]);
    assert_eq!(codes(&Pools { rx_bufs: 32_767, ..POOLS }.check(&g)), ["retained-buffers"]);
    let returned = Pools { retained: false, ..POOLS };
    assert!(Pools { rx_bufs: 24_576, ..returned }.check(&g).is_empty());
    assert_eq!(codes(&Pools { rx_bufs: 24_575, ..returned }.check(&g)), ["queue-buffers"]);
}

#[test]
fn violations_are_added_up_in_order() {
    let mut all = GeometrySpec { payload_bytes: 200, ..MINI }.violations();
    all.extend(&GeometrySpec { packets_per_image: 3, ..MINI }.violations());
    assert_eq!(codes(&all), ["payload", "packets-per-image", "payload", "sequence-space"]);
}

#[test]
fn digits_are_grouped_from_ten_thousand_on() {
    let shown = [0, 9_999, 10_000, 999_999, 1_000_000].map(|n| Grouped(n).to_string());
    assert_eq!(shown, ["0", "9999", "10,000", "999,999", "1,000,000"]);
}

#[test]
fn pools_out_of_range() {
    let check = |pools: Pools| codes(&DOCUMENTED.check_pools(&pools));
    for windows in [0, 5] {
        assert_eq!(check(Pools { windows, ..POOLS }), ["window"]);
    }
    for queue_depth in [0, 65] {
        let pools = Pools { queue_depth, output_bufs: 100, ..POOLS };
        assert_eq!(check(pools), ["queue-depth"]);
    }
    assert!(check(Pools { output_bufs: 256, ..POOLS }).is_empty());
    assert_eq!(check(Pools { output_bufs: 257, ..POOLS }), ["output-buffers-limit"]);
    assert_eq!(check(Pools { output_bufs: 0, ..POOLS }), ["output-buffers"], "none is one fault");
    let all = u64::MAX;
    let huge = Pools { windows: all, queue_depth: all, rx_ring: all, rx_batch: all, ..POOLS };
    let expected = ["window", "queue-depth", "output-buffers", "queue-buffers", "retained-buffers"];
    assert_eq!(check(huge), expected, "no wrap");
}

#[test]
fn c13_buffer_counts_that_deadlock_later() {
    let cases = [(8192, 1024), (12_287, 1024), (12_288, 1024), (24_576, 10_240), (28_672, 10_240)];
    let verdicts = cases.map(|(rx_bufs, rx_batch)| {
        let pools = Pools { rx_bufs, rx_batch, retained: false, ..POOLS };
        DOCUMENTED.check_pools(&pools).is_empty()
    });
    assert_eq!(verdicts, [false, false, true, false, true]);
    assert_eq!(queue_region_floor(8192, 1024), 12_288);
    assert_eq!(queue_region_floor(8192, 10_240), 28_672);
    assert_eq!(queue_region_floor(3, 0), 5, "1.5 × 3 is rounded up");
}

/// The rules once more, by counting instead of arithmetic. Slow, and for small numbers only.
fn naive_is_geometry(spec: &GeometrySpec) -> bool {
    let power_of_two = |n: u32| (0..31).any(|k| n == 1 << k);
    let mut elements = 0u64;
    for _ in 0..spec.channels {
        for _ in 0..spec.height {
            elements += u64::from(spec.width);
        }
    }
    let mut image_bytes = 0;
    for _ in 0..spec.packets_per_image {
        image_bytes += u64::from(spec.payload_bytes);
    }
    // Number the packets of many batches: the wire number must say the slot.
    let packets_per_batch = u64::from(spec.packets_per_image * spec.images_per_batch);
    let space = 2u64.pow(spec.seq_bit_width);
    let slots_agree = (0..4 * packets_per_batch.max(space))
        .all(|n| packets_per_batch > 0 && n % space % packets_per_batch == n % packets_per_batch);
    elements > 0
        && power_of_two(spec.packets_per_image)
        && power_of_two(spec.images_per_batch)
        && image_bytes == elements
        && (1..=32).contains(&spec.seq_bit_width)
        && slots_agree
        && (spec.seq_bit_offset..spec.seq_bit_offset + spec.seq_bit_width)
            .all(|bit| bit / 8 < spec.payload_byte_offset)
}

#[test]
fn all_small_geometries_against_counting() {
    let mut good = 0;
    let mut all = 0;
    for n in 0..4 * 6 * 6 * 5 * 10 * 5u32 {
        let mut rest = n;
        let mut digit = |base: u32| {
            let digit = rest % base;
            rest /= base;
            digit
        };
        let spec = GeometrySpec {
            channels: 2,
            height: digit(4),
            width: digit(6),
            packets_per_image: digit(6),
            images_per_batch: digit(5),
            payload_bytes: digit(10),
            seq_bit_width: digit(5),
            seq_bit_offset: 348,
            payload_byte_offset: 44,
            ..DOCUMENTED
        };
        let result = Geometry::new(&spec);
        assert_eq!(result.is_ok(), naive_is_geometry(&spec), "{spec:?}: {result:?}");
        all += 1;
        let Ok(g) = result else { continue };
        good += 1;
        assert_eq!(g.batch_bytes(), g.packets_per_batch() as usize * g.slot_stride());
        assert_eq!(g.batch_bytes(), g.images_per_batch() as usize * g.image_bytes());
        assert_eq!(g.image_bytes(), g.elements_per_image() * 2);
    }
    assert_eq!(all, 36_000);
    assert!(good > 100, "{good} of {all} hold");
}

proptest! {
    #[test]
    fn any_numbers_have_a_verdict(
        counts in any::<[u32; 9]>(),
        shift in any::<[u8; 9]>(),
        input in 0..8usize,
        output in 0..8usize,
        others in any::<[Option<u64>; 8]>(),
        pools in any::<[u64; 7]>(),
    ) {
        // Small and huge numbers alike.
        let mut n = counts.iter().zip(shift).map(|(n, shift)| n >> (shift % 32));
        let mut next = || n.next().unwrap_or(0);
        let spec = GeometrySpec {
            channels: next(),
            height: next(),
            width: next(),
            packets_per_image: next(),
            images_per_batch: next(),
            payload_byte_offset: next(),
            payload_bytes: next(),
            seq_bit_offset: next(),
            seq_bit_width: next(),
            input: ElementType::ALL[input],
            output: ElementType::ALL[output],
        };
        let declared = Declared {
            output_slot_stride: others[0],
            image_out_bytes: others[1],
            rx_buf_size: others[2],
            output_buf_size: others[3],
            tx_buf_size: others[4],
            packets_per_batch: others[5],
            opt_max: others[6],
            images_per_inference: others[7],
            enable_int8: Some(false),
        };
        let pools = Pools {
            windows: pools[0],
            queue_depth: pools[1],
            output_bufs: pools[2],
            rx_bufs: pools[3],
            rx_ring: pools[4],
            rx_batch: pools[5],
            retained: true,
            reorders_in_flight: pools[6],
        };
        let mut all = spec.violations();
        prop_assert_eq!(Geometry::new(&spec).is_err(), !all.is_empty());
        all.extend(&spec.check(&declared));
        all.extend(&spec.check_pools(&pools));
        let found = codes(&all);
        let mut unique = found.clone();
        unique.retain(|code| *code != "zero");
        unique.sort_unstable();
        unique.dedup();
        let zeros = found.iter().filter(|code| **code == "zero").count();
        prop_assert_eq!(unique.len() + zeros, found.len());
        prop_assert!(!all.to_string().is_empty() || all.is_empty());
    }

    #[test]
    fn grouped_digits_are_the_digits(n in any::<u64>(), shift in 0..64u32) {
        let n = n >> shift;
        let text = Grouped(n).to_string();
        prop_assert_eq!(text.replace(',', ""), n.to_string());
        let groups: Vec<&str> = text.split(',').collect();
        prop_assert!(groups[1..].iter().all(|group| group.len() == 3));
        prop_assert!(groups.len() == 1 || groups[0].len() <= 3);
        prop_assert_eq!(groups.len() == 1, n < 10_000);
    }
}
