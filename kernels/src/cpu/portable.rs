//! Plain Rust: the path of every other CPU, the ends that the vector paths leave over, and the
//! definition of what they compute.
#![forbid(unsafe_code)]

use crate::Conversion;

/// The fp16 bits of every int8, by its byte. 512 bytes; a look-up was measured faster than the
/// arithmetic, which a compiler has to do in 32 bit lanes.
const FP16: [u16; 256] = fp16_table();

/// Converts the elements of `payload`; `out` holds as many.
pub(super) fn convert(how: Conversion, payload: &[u8], out: &mut [u8]) {
    match how {
        Conversion::Int8ToFp16 => map(payload, out, |x| FP16[usize::from(x)].to_le_bytes()),
        Conversion::Int8ToFp32 => map(payload, out, |x| f32::from(x.cast_signed()).to_le_bytes()),
        Conversion::Int8ToBf16 => map(payload, out, |x| {
            // bf16 is the upper half of f32, and the lower is zero: 8 bits hold any int8.
            let [_, _, low, high] = f32::from(x.cast_signed()).to_le_bytes();
            [low, high]
        }),
        Conversion::Copy => map(payload, out, |x| [x]),
    }
}

#[inline]
fn map<const WIDTH: usize>(payload: &[u8], out: &mut [u8], of: impl Fn(u8) -> [u8; WIDTH]) {
    for (element, &byte) in out.as_chunks_mut::<WIDTH>().0.iter_mut().zip(payload) {
        *element = of(byte);
    }
}

const fn fp16_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut exponent: u16 = 0;
    while exponent <= 7 {
        let mut magnitude = 1 << exponent;
        while magnitude < 2 << exponent && magnitude <= 128 {
            // 1.f × 2^exponent: the leading 1, added to the biased exponent − 1, carries into it.
            let bits = ((14 + exponent) << 10) + (magnitude << (10 - exponent));
            if magnitude < 128 {
                table[magnitude as usize] = bits;
            }
            table[256 - magnitude as usize] = 0x8000 | bits;
            magnitude += 1;
        }
        exponent += 1;
    }
    table
}

/// Widens the elements of `fp16`; `out` holds as many.
pub(super) fn widen(fp16: &[u8], out: &mut [f32]) {
    for (wide, &bytes) in out.iter_mut().zip(fp16.as_chunks::<2>().0) {
        *wide = widen_one(u16::from_le_bytes(bytes));
    }
}

/// f32 of the fp16 with these bits. Without branches, so that it vectorises, and without a
/// subnormal operand, so that it is right also where the CPU was told to flush those to zero.
#[inline]
fn widen_one(bits: u16) -> f32 {
    const MIN_NORMAL: u32 = 113 << 23; // 2^-14, the smallest normal fp16
    const INFINITY: u32 = 0x1f << 23; // the exponent field of an fp16 infinity, moved
    const QUIET: u32 = 1 << 22;
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let normal = magnitude + ((127 - 15) << 23);
    // f × 2^-24 = (2^-14 + f × 2^-24) − 2^-14, exact: both are multiples of 2^-24.
    let subnormal = f32::from_bits(magnitude + MIN_NORMAL) - f32::from_bits(MIN_NORMAL);
    let special = (magnitude + ((255 - 31) << 23)) | if magnitude > INFINITY { QUIET } else { 0 };
    let wide = match magnitude {
        ..0x0080_0000 => subnormal.to_bits(),
        INFINITY.. => special,
        _ => normal,
    };
    f32::from_bits(sign | wide)
}
