use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert, prop_assert_eq, prop_assume, proptest};

use super::{BitField, BitFieldError};

fn field(offset_bits: u32, width_bits: u32) -> BitField {
    BitField::new(offset_bits, width_bits).expect("a field that the test chose")
}

/// Bit `n` of `bytes`, as protocol drawings number them.
fn bit(bytes: &[u8], n: usize) -> u32 {
    u32::from(bytes[n / 8] >> (7 - n % 8) & 1)
}

/// The oracle: one bit after the other.
fn read_bit_by_bit(bytes: &[u8], offset: usize, width: usize) -> u32 {
    (offset..offset + width).fold(0, |value, n| value << 1 | bit(bytes, n))
}

/// Offset and width of any field that ends within `bytes` bytes.
fn any_field(bytes: u32) -> impl Strategy<Value = (u32, u32)> {
    (1..=32u32).prop_flat_map(move |width| (0..=bytes * 8 - width, proptest::strategy::Just(width)))
}

proptest! {
    #[test]
    fn read_is_what_a_bit_loop_reads(
        bytes in prop::collection::vec(any::<u8>(), 24),
        (offset, width) in any_field(24),
        len in 0..=24usize,
    ) {
        let bytes = &bytes[..len];
        let ends_at = (offset + width) as usize;
        let expected = (ends_at <= len * 8)
            .then(|| read_bit_by_bit(bytes, offset as usize, width as usize));
        prop_assert_eq!(field(offset, width).read(bytes), expected);
    }

    #[test]
    fn write_changes_the_field_and_nothing_else(
        before in prop::collection::vec(any::<u8>(), 24),
        (offset, width) in any_field(24),
        value in any::<u32>(),
        len in 1..=24usize,
    ) {
        let field = field(offset, width);
        let mut after = before.clone();
        let written = field.write(&mut after[..len], value);
        let inside = offset as usize..(offset + width) as usize;
        prop_assert_eq!(written, inside.end <= len * 8);
        if written {
            prop_assert_eq!(field.read(&after[..len]), Some(value & field.max()));
        }
        for n in 0..before.len() * 8 {
            let expected = if written && inside.contains(&n) {
                value >> (inside.end - 1 - n) & 1
            } else {
                bit(&before, n)
            };
            prop_assert_eq!(bit(&after, n), expected, "bit {}", n);
        }
    }

    #[test]
    fn the_span_is_at_most_five_bytes(offset in any::<u32>(), width in 1..=32u32) {
        prop_assume!(offset.checked_add(width).is_some());
        let field = field(offset, width);
        let bytes = field.end_byte() - field.first_byte();
        prop_assert!((1..=5).contains(&bytes));
        prop_assert!(field.first_byte() as u64 * 8 <= u64::from(offset));
        prop_assert!(field.end_byte() as u64 * 8 >= u64::from(field.end_bits()));
    }
}

#[test]
fn every_offset_and_width_of_a_short_frame() {
    let mut frame = [0u8; 9];
    for (i, byte) in frame.iter_mut().enumerate() {
        *byte = u8::try_from(i * 37 % 251).expect("below 251");
    }
    for width in 1..=32 {
        for offset in 0..=72 - width {
            let field = field(offset, width);
            let expected = read_bit_by_bit(&frame, offset as usize, width as usize);
            assert_eq!(field.read(&frame), Some(expected), "{field}");
            let mut copy = [0xa5; 9];
            assert!(field.write(&mut copy, expected), "{field}");
            assert_eq!(field.read(&copy), Some(expected), "{field}");
        }
    }
}

#[test]
fn the_documented_field_is_the_upper_three_quarters_of_bytes_16_and_17() {
    let mut frame = [0u8; 64];
    frame[17] = 0x0a;
    assert!(field(128, 12).write(&mut frame, 0x123));
    assert_eq!(frame[16..18], [0x12, 0x3a]);
    let documented = field(128, 12);
    assert_eq!((documented.offset_bits(), documented.width_bits()), (128, 12));
    assert_eq!((documented.end_bits(), documented.end_byte(), documented.max()), (140, 18, 0xfff));
    assert_eq!(documented.to_string(), "bit 128, width 12");
    // 12-bit data read as 16 bits: the low bits of what lay there before show through.
    assert_eq!(field(128, 16).read(&frame), Some(0x123a));
}

#[test]
fn a_running_number_wraps_at_the_width() {
    let mut frame = [0u8; 4];
    let field = field(4, 8);
    assert!(field.write(&mut frame, 256 + 7));
    assert_eq!(field.read(&frame), Some(7));
    assert_eq!(frame, [0x00, 0x70, 0, 0]);
}

#[test]
fn a_frame_that_ends_inside_the_field_is_left_alone() {
    let mut frame = [0u8; 4];
    let field = field(28, 5);
    assert_eq!(field.read(&frame), None);
    assert!(!field.write(&mut frame, u32::MAX));
    assert_eq!(frame, [0; 4]);
    assert_eq!(field.read(&[]), None);
    // A field far behind the frame.
    assert_eq!(BitField::new(u32::MAX - 32, 32).map(|field| field.read(&frame)), Ok(None));
}

#[test]
fn widths_and_offsets_that_cannot_be() {
    assert_eq!(BitField::new(0, 0), Err(BitFieldError::Width { given: 0 }));
    assert_eq!(BitField::new(0, 33), Err(BitFieldError::Width { given: 33 }));
    // 272 mod 256 = 16: a width must not pass through 8 bits on its way here.
    assert_eq!(BitField::new(0, 272), Err(BitFieldError::Width { given: 272 }));
    let error = BitFieldError::Offset { offset_bits: u32::MAX, width_bits: 1 };
    assert_eq!(BitField::new(u32::MAX, 1), Err(error));
    assert_eq!(
        BitFieldError::Width { given: 33 }.to_string(),
        "a bit field of 33 bits, allowed 1 to 32"
    );
}
