//! aarch64 Advanced SIMD (NEON), with the half precision arithmetic (`FEAT_FP16`) if it is there.
//!
//! In 16 byte pieces, with ordinary stores at any alignment: NEON has no penalty for those, and the
//! non-temporal pair store of the architecture is only a hint.
#![allow(unsafe_code)] // vector stores, and calls of code that needs a CPU feature

use core::arch::aarch64::{
    int16x8_t, uint8x16_t, vcombine_f16, vcombine_u16, vcreate_s8, vcvt_f16_f32, vcvt_f32_f16,
    vcvt_high_f32_f16, vcvtq_f16_s16, vcvtq_f32_s32, vget_low_f16, vget_low_s16, vld1q_u8,
    vmovl_high_s16, vmovl_s8, vmovl_s16, vreinterpretq_f16_u8, vreinterpretq_u8_f16,
    vreinterpretq_u8_f32, vreinterpretq_u8_u16, vreinterpretq_u32_f32, vshrn_n_u32, vst1q_f32,
    vst1q_u8,
};
use core::arch::asm;
use std::arch::is_aarch64_feature_detected;

use super::portable;
use crate::Conversion;

/// Asks for the line that `byte` is in.
#[inline]
pub(crate) fn prefetch(byte: &u8) {
    // SAFETY: the instruction is part of the base of aarch64; it reads nothing and cannot fault.
    unsafe {
        asm!(
            "prfm pldl1keep, [{byte}]",
            byte = in(reg) core::ptr::from_ref(byte),
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// This CPU has Advanced SIMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neon {
    /// It has half precision arithmetic, too. Private, and set by `detect` only.
    fp16: bool,
}

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        is_aarch64_feature_detected!("neon")
            .then(|| Self { fp16: is_aarch64_feature_detected!("fp16") })
    }

    #[inline]
    pub(crate) fn convert(self, how: Conversion, payload: &[u8], out: &mut [u8]) {
        if self.fp16 && how == Conversion::Int8ToFp16 {
            // SAFETY: `detect` has seen both features.
            unsafe { fp16(payload, out) }
        } else {
            // SAFETY: `self` exists, so `detect` has seen the feature that the callee needs.
            unsafe { neon(how, payload, out) }
        }
    }

    pub(crate) fn widen(self, fp16: &[u8], out: &mut [f32]) {
        // SAFETY: as in `convert`.
        unsafe { widen(fp16, out) }
    }
}

/// int8 to fp16 by way of int16, which the half precision arithmetic converts directly.
#[target_feature(enable = "neon,fp16")]
fn fp16(payload: &[u8], out: &mut [u8]) {
    pieces(Conversion::Int8ToFp16, payload, out, |x: &[u8; 8]| {
        vreinterpretq_u8_f16(vcvtq_f16_s16(extend8(x)))
    });
}

#[target_feature(enable = "neon")]
fn neon(how: Conversion, payload: &[u8], out: &mut [u8]) {
    match how {
        Conversion::Int8ToFp16 => pieces(how, payload, out, |x: &[u8; 8]| {
            let x = extend8(x);
            let low = vcvt_f16_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))));
            let high = vcvt_f16_f32(vcvtq_f32_s32(vmovl_high_s16(x)));
            vreinterpretq_u8_f16(vcombine_f16(low, high))
        }),
        Conversion::Int8ToFp32 => pieces(how, payload, out, |x: &[u8; 4]| {
            let bytes = vcreate_s8(u64::from(u32::from_le_bytes(*x)));
            vreinterpretq_u8_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes)))))
        }),
        Conversion::Int8ToBf16 => pieces(how, payload, out, |x: &[u8; 8]| {
            let x = extend8(x);
            let low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
            let high = vcvtq_f32_s32(vmovl_high_s16(x));
            vreinterpretq_u8_u16(vcombine_u16(
                vshrn_n_u32::<16>(vreinterpretq_u32_f32(low)),
                vshrn_n_u32::<16>(vreinterpretq_u32_f32(high)),
            ))
        }),
        // The portable code is a call of `memcpy`, which knows the machine better.
        Conversion::Copy => portable::convert(how, payload, out),
    }
}

/// Eight int8 as 16 bit integers.
#[inline]
#[target_feature(enable = "neon")]
fn extend8(x: &[u8; 8]) -> int16x8_t {
    vmovl_s8(vcreate_s8(u64::from_le_bytes(*x)))
}

/// Writes `out`, one piece of 16 bytes for every `IN` bytes of payload. `step` computes what `how`
/// says, as does the portable code for the elements that do not fill a piece.
#[inline]
#[target_feature(enable = "neon")]
fn pieces<const IN: usize>(
    how: Conversion,
    payload: &[u8],
    out: &mut [u8],
    step: impl Fn(&[u8; IN]) -> uint8x16_t,
) {
    let (body, tail) = out.as_chunks_mut::<16>();
    let (blocks, last) = payload.as_chunks::<IN>();
    for (piece, block) in body.iter_mut().zip(blocks) {
        // SAFETY: `piece` is 16 writable bytes.
        unsafe { vst1q_u8(piece.as_mut_ptr(), step(block)) }
    }
    portable::convert(how, last, tail);
}

#[target_feature(enable = "neon")]
fn widen(fp16: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<8>();
    let (blocks, last) = fp16.as_chunks::<16>();
    for (wide, block) in body.iter_mut().zip(blocks) {
        // SAFETY: `block` is 16 readable bytes.
        let halves = vreinterpretq_f16_u8(unsafe { vld1q_u8(block.as_ptr()) });
        let (low, high) = (vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves));
        let (first, second) = wide.split_at_mut(4);
        // SAFETY: `first` is four writable f32.
        unsafe { vst1q_f32(first.as_mut_ptr(), low) }
        // SAFETY: `second` is four writable f32.
        unsafe { vst1q_f32(second.as_mut_ptr(), high) }
    }
    portable::widen(last, tail);
}
