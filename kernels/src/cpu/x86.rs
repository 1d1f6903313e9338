//! AVX2 with F16C, and AVX-512.
//!
//! The same shape twice: AVX2 writes *lanes* of 16 bytes, AVX-512 writes *lines* of 64 and leaves
//! what does not fill one to AVX2, which leaves what does not fill a lane to the portable code. The
//! loads are unaligned: payloads begin wherever the header ends.
//!
//! A slot is written past the caches as a whole or not at all: a line that gets stores of both
//! kinds costs more than ordinary ones. So the ends of a slot are non-temporal, too, down to
//! *words* of 8 bytes, and a slot that does not begin and end at a multiple of 8 gets ordinary
//! stores.
#![allow(unsafe_code)] // vector loads and stores, and calls of code that needs a CPU feature

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_castps_si128,
    _mm_cvtepi8_epi32, _mm_cvtepi32_ps, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_loadu_si128,
    _mm_packus_epi32, _mm_prefetch, _mm_sfence, _mm_storeu_si128, _mm_stream_si64,
    _mm256_castps_si256, _mm256_castsi256_si128, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_srli_epi32, _mm256_storeu_ps, _mm512_castps_si512, _mm512_castsi256_si512,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
    _mm512_cvtps_ph, _mm512_inserti64x4, _mm512_loadu_si512, _mm512_srli_epi32, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_stream_si512,
};

use super::portable;
use crate::{Conversion, Stores};

/// Any int8 is exact in fp16, so that the rounding mode never matters.
const EXACT: i32 = _MM_FROUND_TO_NEAREST_INT;

/// Bytes of the smallest non-temporal store in use.
const WORD: usize = 8;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A place for one 8 byte non-temporal store.
#[repr(C, align(8))]
struct Word([u8; WORD]);

/// A place for one 16 byte non-temporal store.
#[repr(C, align(16))]
struct Lane([u8; 16]);

/// A place for one 64 byte non-temporal store: a cache line.
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// This CPU has AVX2 and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    #[inline]
    pub(crate) fn convert(self, how: Conversion, stores: Stores, payload: &[u8], out: &mut [u8]) {
        // SAFETY: `self` exists, so `detect` has seen the features that the callee needs.
        unsafe { avx2(how, stores, payload, out) }
    }

    pub(crate) fn widen(self, fp16: &[u8], out: &mut [f32]) {
        // SAFETY: as in `convert`.
        unsafe { widen_avx2(fp16, out) }
    }
}

/// This CPU has AVX-512 F, and what [`Avx2`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let has = Avx2::detect().is_some() && is_x86_feature_detected!("avx512f");
        has.then_some(Self(()))
    }

    #[inline]
    pub(crate) fn convert(self, how: Conversion, stores: Stores, payload: &[u8], out: &mut [u8]) {
        // SAFETY: `self` exists, so `detect` has seen the features that the callee needs.
        unsafe { avx512(how, stores, payload, out) }
    }

    pub(crate) fn widen(self, fp16: &[u8], out: &mut [f32]) {
        // SAFETY: as in `convert`.
        unsafe { widen_avx512(fp16, out) }
    }
}

/// Orders the non-temporal stores of this thread before its later stores.
#[inline]
pub(crate) fn fence() {
    // SAFETY: `sfence` is part of SSE, and SSE of x86-64.
    unsafe { _mm_sfence() }
}

/// Asks for the line that `byte` is in.
#[inline]
pub(crate) fn prefetch(byte: &u8) {
    // SAFETY: the instruction is part of SSE, and SSE of x86-64; it reads nothing and cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(byte).cast()) }
}

// ---- AVX2: lanes of 16 bytes -------------------------------------------------------------------

#[target_feature(enable = "avx2,f16c")]
fn avx2(how: Conversion, stores: Stores, payload: &[u8], out: &mut [u8]) {
    match how {
        Conversion::Int8ToFp16 => lanes(how, stores, payload, out, |x: &[u8; 8]| {
            _mm256_cvtps_ph::<EXACT>(_mm256_cvtepi32_ps(extend8(x)))
        }),
        Conversion::Int8ToFp32 => lanes(how, stores, payload, out, |x: &[u8; 4]| {
            let wide = _mm_cvtepi8_epi32(_mm_cvtsi32_si128(i32::from_le_bytes(*x)));
            _mm_castps_si128(_mm_cvtepi32_ps(wide))
        }),
        Conversion::Int8ToBf16 => lanes(how, stores, payload, out, |x: &[u8; 8]| {
            let f32s = _mm256_castps_si256(_mm256_cvtepi32_ps(extend8(x)));
            let upper = _mm256_srli_epi32::<16>(f32s);
            _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper))
        }),
        Conversion::Copy => lanes(how, stores, payload, out, load16),
    }
}

/// Eight int8 as 32 bit integers.
#[inline]
#[target_feature(enable = "avx2")]
fn extend8(x: &[u8; 8]) -> __m256i {
    _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*x)))
}

#[inline]
fn load16(x: &[u8; 16]) -> __m128i {
    // SAFETY: `x` is 16 readable bytes; the instruction is part of SSE2, and SSE2 of x86-64.
    unsafe { _mm_loadu_si128(x.as_ptr().cast()) }
}

/// Writes `out`, one lane for every `IN` bytes of payload. `step` computes what `how` says, as does
/// the portable code for the elements that do not fill a lane.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn lanes<const IN: usize>(
    how: Conversion,
    stores: Stores,
    payload: &[u8],
    out: &mut [u8],
    step: impl Fn(&[u8; IN]) -> __m128i,
) {
    if stores == Stores::NonTemporal && is_words(out) {
        // SAFETY: a lane is 16 bytes, and any bytes are one.
        let (head, body, tail) = unsafe { out.align_to_mut::<Lane>() };
        let (first, middle, last) = split(how, payload, head.len(), size_of_val(body));
        words(how, first, head);
        for (lane, block) in body.iter_mut().zip(middle.as_chunks::<IN>().0) {
            stream16(lane, step(block));
        }
        words(how, last, tail);
        return;
    }
    let (body, tail) = out.as_chunks_mut::<16>();
    let (blocks, last) = payload.as_chunks::<IN>();
    for (lane, block) in body.iter_mut().zip(blocks) {
        // SAFETY: `lane` is 16 writable bytes.
        unsafe { _mm_storeu_si128(lane.as_mut_ptr().cast(), step(block)) }
    }
    portable::convert(how, last, tail);
}

/// Whether `out` can be written in words: whether it begins and ends at a multiple of 8. Then so
/// does every piece of it that the functions here split off, and no element lies across pieces.
#[inline]
fn is_words(out: &[u8]) -> bool {
    (out.as_ptr().addr() | out.len()).is_multiple_of(WORD)
}

/// The payload in three: of the first `head` bytes of output, of the next `body`, and the rest.
#[inline]
fn split(how: Conversion, payload: &[u8], head: usize, body: usize) -> (&[u8], &[u8], &[u8]) {
    let width = how.output_width();
    let (first, rest) = payload.split_at_checked(head / width).unwrap_or((payload, &[]));
    let (middle, last) = rest.split_at_checked(body / width).unwrap_or((rest, &[]));
    (first, middle, last)
}

/// Writes `out`, whole words on one or the other side of the lanes.
#[inline]
fn words(how: Conversion, payload: &[u8], out: &mut [u8]) {
    // SAFETY: a word is 8 bytes, and any bytes are one.
    let (_, body, _) = unsafe { out.align_to_mut::<Word>() };
    for (word, block) in body.iter_mut().zip(payload.chunks_exact(WORD / how.output_width())) {
        let mut value = [0; WORD];
        portable::convert(how, block, &mut value);
        // SAFETY: the word is 8 writable bytes, and the instruction is part of SSE2, and SSE2 of
        // x86-64. For the order of the store see `stream16`.
        unsafe { _mm_stream_si64(word.0.as_mut_ptr().cast(), i64::from_le_bytes(value)) }
    }
}

/// Stores a lane past the caches.
///
/// Written out because the intrinsic is the SSE2 encoding in any function (it is compiled with the
/// standard library, for the base of x86-64), and cores before Skylake pay for each change
/// between that and AVX code (Intel's optimisation manual: some 70 cycles).
#[inline]
#[target_feature(enable = "avx2")]
fn stream16(lane: &mut Lane, value: __m128i) {
    // SAFETY: the lane is 16 writable bytes, aligned to 16, and nothing else is written. The
    // callers of this file end with `fence`, or their caller has promised to (`defer_fence`).
    unsafe {
        asm!(
            "vmovntdq xmmword ptr [{lane}], {value}",
            lane = in(reg) lane.0.as_mut_ptr(),
            value = in(xmm_reg) value,
            options(nostack, preserves_flags),
        );
    }
}

#[target_feature(enable = "avx2,f16c")]
fn widen_avx2(fp16: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<8>();
    let (blocks, last) = fp16.as_chunks::<16>();
    for (wide, block) in body.iter_mut().zip(blocks) {
        let value = _mm256_cvtph_ps(load16(block));
        // SAFETY: `wide` is eight writable f32.
        unsafe { _mm256_storeu_ps(wide.as_mut_ptr(), value) }
    }
    portable::widen(last, tail);
}

// ---- AVX-512: lines of 64 bytes ----------------------------------------------------------------

#[target_feature(enable = "avx512f,avx2,f16c")]
fn avx512(how: Conversion, stores: Stores, payload: &[u8], out: &mut [u8]) {
    match how {
        Conversion::Int8ToFp16 => lines(how, stores, payload, out, |x: &[u8; 32]| {
            join(x, |x| _mm512_cvtps_ph::<EXACT>(_mm512_cvtepi32_ps(extend16(x))))
        }),
        Conversion::Int8ToFp32 => lines(how, stores, payload, out, |x: &[u8; 16]| {
            _mm512_castps_si512(_mm512_cvtepi32_ps(extend16(x)))
        }),
        Conversion::Int8ToBf16 => lines(how, stores, payload, out, |x: &[u8; 32]| {
            join(x, |x| {
                let f32s = _mm512_castps_si512(_mm512_cvtepi32_ps(extend16(x)));
                _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(f32s))
            })
        }),
        Conversion::Copy => lines(how, stores, payload, out, |x: &[u8; 64]| {
            // SAFETY: `x` is 64 readable bytes.
            unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
        }),
    }
}

/// Sixteen int8 as 32 bit integers.
#[inline]
#[target_feature(enable = "avx512f")]
fn extend16(x: &[u8; 16]) -> __m512i {
    _mm512_cvtepi8_epi32(load16(x))
}

/// A line of the two halves that `half` makes of 16 payload bytes each.
#[inline]
#[target_feature(enable = "avx512f")]
fn join(x: &[u8; 32], half: impl Fn(&[u8; 16]) -> __m256i) -> __m512i {
    let (halves, _) = x.as_chunks::<16>();
    let low = _mm512_castsi256_si512(half(&halves[0]));
    _mm512_inserti64x4::<1>(low, half(&halves[1]))
}

/// Writes `out`, one line for every `IN` bytes of payload; the rest is left to [`avx2`].
#[inline]
#[target_feature(enable = "avx512f,avx2,f16c")]
fn lines<const IN: usize>(
    how: Conversion,
    stores: Stores,
    payload: &[u8],
    out: &mut [u8],
    step: impl Fn(&[u8; IN]) -> __m512i,
) {
    if stores == Stores::NonTemporal && is_words(out) {
        // SAFETY: a line is 64 bytes, and any bytes are one.
        let (head, body, tail) = unsafe { out.align_to_mut::<Line>() };
        let (first, middle, last) = split(how, payload, head.len(), size_of_val(body));
        avx2(how, stores, first, head);
        for (line, block) in body.iter_mut().zip(middle.as_chunks::<IN>().0) {
            stream64(line, step(block));
        }
        avx2(how, stores, last, tail);
        return;
    }
    let (body, tail) = out.as_chunks_mut::<LINE>();
    let (blocks, last) = payload.as_chunks::<IN>();
    for (line, block) in body.iter_mut().zip(blocks) {
        // SAFETY: `line` is 64 writable bytes.
        unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), step(block)) }
    }
    avx2(how, Stores::Ordinary, last, tail);
}

/// Stores a line past the caches.
#[inline]
#[target_feature(enable = "avx512f")]
fn stream64(line: &mut Line, value: __m512i) {
    // SAFETY: the line is 64 writable bytes, aligned to 64. The callers of this file end with
    // `fence`, or their caller has promised to (`defer_fence`).
    unsafe { _mm512_stream_si512(line.0.as_mut_ptr().cast(), value) }
}

#[target_feature(enable = "avx512f,avx2,f16c")]
fn widen_avx512(fp16: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<16>();
    let (blocks, last) = fp16.as_chunks::<32>();
    for (wide, block) in body.iter_mut().zip(blocks) {
        // SAFETY: `block` is 32 readable bytes.
        let narrow = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
        let value = _mm512_cvtph_ps(narrow);
        // SAFETY: `wide` is 16 writable f32.
        unsafe { _mm512_storeu_ps(wide.as_mut_ptr(), value) }
    }
    widen_avx2(last, tail);
}
