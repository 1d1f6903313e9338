//! Fields at any offset and width against a loop over bits.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire_core::bits::BitField;

#[derive(Arbitrary, Debug)]
struct Input {
    offset_bits: u32,
    /// Offsets near the frame are the interesting ones.
    near: bool,
    width_bits: u8,
    value: u32,
    frame: Vec<u8>,
}

fn bit(frame: &[u8], n: usize) -> u32 {
    u32::from(frame[n / 8] >> (7 - n % 8) & 1)
}

fuzz_target!(|input: Input| {
    let Input { mut offset_bits, near, width_bits, value, frame } = input;
    if near {
        offset_bits %= u32::try_from(frame.len() * 8 + 8).unwrap_or(u32::MAX);
    }
    let Ok(field) = BitField::new(offset_bits, width_bits.into()) else {
        let end = offset_bits.checked_add(width_bits.into());
        assert!(!(1..=32).contains(&width_bits) || end.is_none());
        return;
    };
    let (first, end) = (field.offset_bits() as usize, field.end_bits() as usize);
    let fits = end <= frame.len() * 8;
    let naive = fits.then(|| (first..end).fold(0, |sum, n| sum << 1 | bit(&frame, n)));
    assert_eq!(field.read(&frame), naive);

    let mut after = frame.clone();
    assert_eq!(field.write(&mut after, value), fits);
    for n in 0..frame.len() * 8 {
        let inside = fits && (first..end).contains(&n);
        let expected = if inside { value >> (end - 1 - n) & 1 } else { bit(&frame, n) };
        assert_eq!(bit(&after, n), expected);
    }
});
