//! Every kernel of this machine against a scalar model: values, lengths, alignments, and that
//! nothing beside the slot is touched.

use half::{bf16, f16};
use tensorwire_kernels::{
    Conversion, Isa, Kernel, ReorderError, Stores, prefetch, widen_f16, widen_f16_with,
};

/// What a byte of payload becomes, by definition.
fn model(how: Conversion, byte: u8) -> Vec<u8> {
    let value = f32::from(byte.cast_signed());
    match how {
        Conversion::Int8ToFp16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Conversion::Int8ToFp32 => value.to_le_bytes().to_vec(),
        Conversion::Int8ToBf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        Conversion::Copy => vec![byte],
        _ => panic!("no model for {how:?}"),
    }
}

/// The model over a payload.
fn expected(how: Conversion, payload: &[u8]) -> Vec<u8> {
    payload.iter().flat_map(|&byte| model(how, byte)).collect()
}

/// Every kernel that this CPU can run, with every kind of stores and of fence it has.
fn kernels(how: Conversion) -> Vec<Kernel> {
    let mut all = Vec::new();
    for kernel in Isa::ALL.into_iter().filter_map(|isa| Kernel::with_isa(how, isa)) {
        all.push(kernel.with_stores(Stores::Ordinary));
        if kernel.stores() == Stores::NonTemporal {
            all.push(kernel);
        }
    }
    all
}

/// Bytes that differ from their neighbours and from run to run of 256.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// What surrounds a slot, and fills it before the conversion.
const GUARD: u8 = 0xa5;
const MARGIN: usize = 64;

/// Memory in which a range can begin at any address modulo 64.
struct Arena(Vec<u8>);

impl Arena {
    fn new(room: usize) -> Self {
        Self(vec![GUARD; room + 4 * MARGIN])
    }

    /// Where the range begins whose address is `align` modulo 64, with a margin before it.
    fn start(&self, align: usize) -> usize {
        let base = self.0.as_ptr().align_offset(64);
        assert!(base < 64, "the address of a byte can always be aligned");
        base + MARGIN + align
    }
}

/// Runs `kernel` on `payload`, source and slot at the given addresses modulo 64.
fn check(kernel: &Kernel, payload: &[u8], want: &[u8], from: usize, to: usize, arena: &mut Arena) {
    let mut source = Arena::new(payload.len());
    let first = source.start(from);
    source.0[first..first + payload.len()].copy_from_slice(payload);
    let start = arena.start(to);
    let end = start + want.len();
    arena.0[start - MARGIN..end + MARGIN].fill(GUARD);

    kernel.convert(&source.0[first..first + payload.len()], &mut arena.0[start..end]);

    let what = || format!("{kernel:?}, {} bytes, from {from}, to {to}", payload.len());
    assert!(arena.0[start..end] == *want, "wrong bytes: {}", what());
    let untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == GUARD);
    assert!(untouched(&arena.0[start - MARGIN..start]), "wrote before the slot: {}", what());
    assert!(untouched(&arena.0[end..end + MARGIN]), "wrote behind the slot: {}", what());
}

#[test]
fn r14_every_int8_is_exact() {
    let payload: Vec<u8> = (-128..=127_i8).map(i8::cast_unsigned).collect();
    for how in Conversion::ALL {
        for kernel in kernels(how) {
            let mut out = vec![GUARD; 256 * how.output_width()];
            kernel.convert(&payload, &mut out);
            for (index, value) in (-128..=127_i16).enumerate() {
                let at = &out[index * how.output_width()..];
                let value = f32::from(value);
                let read = match how {
                    Conversion::Int8ToFp16 => f16::from_le_bytes([at[0], at[1]]).to_f32(),
                    Conversion::Int8ToBf16 => bf16::from_le_bytes([at[0], at[1]]).to_f32(),
                    Conversion::Int8ToFp32 => f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
                    _ => f32::from(at[0].cast_signed()),
                };
                assert_eq!(read.to_bits(), value.to_bits(), "{value} by {kernel:?}");
            }
        }
    }
}

/// One image of three planes that hold 1, 2 and 3, in 12 packets of 4 × 16 pixels each.
#[test]
fn r14_planes_keep_their_order_in_any_order_of_arrival() {
    const PAYLOAD: usize = 64;
    let image: Vec<u8> = [1, 2, 3].into_iter().flat_map(|plane| [plane; 4 * PAYLOAD]).collect();
    for how in Conversion::ALL {
        let stride = PAYLOAD * how.output_width();
        let want = expected(how, &image);
        for kernel in kernels(how) {
            for step in [1, 5, 7, 11] {
                let mut batch = vec![GUARD; want.len()];
                for slot in (0..12).map(|k| k * step % 12) {
                    let payload = &image[slot * PAYLOAD..][..PAYLOAD];
                    kernel.convert(payload, &mut batch[slot * stride..][..stride]);
                }
                assert!(batch == want, "{kernel:?}, arrival by steps of {step}");
            }
        }
    }
}

#[test]
fn a_batch_by_one_call_is_the_same_in_any_order_of_arrival() {
    const PAYLOAD: usize = 1176;
    const SLOTS: usize = 16;
    let image = noise(SLOTS * PAYLOAD);
    for how in Conversion::ALL {
        let stride = PAYLOAD * how.output_width();
        let want = expected(how, &image);
        for kernel in kernels(how) {
            for step in [1, 3, 7, 15] {
                let mut batch = vec![GUARD; want.len() + 1]; // a byte behind the last slot
                let arrival = (0_u32..).take(SLOTS).map(|k| k * step % 16);
                let placed =
                    arrival.map(|slot| (slot, &image[slot as usize * PAYLOAD..][..PAYLOAD]));
                assert_eq!(kernel.reorder(placed, &mut batch, stride), Ok(()));
                assert_eq!(batch.pop(), Some(GUARD));
                assert!(batch == want, "{kernel:?}, arrival by steps of {step}");
            }
        }
    }
}

#[test]
fn a_batch_stops_at_the_first_pair_that_does_not_fit() {
    let kernel = Kernel::new(Conversion::Int8ToFp16);
    let mut batch = [GUARD; 11]; // two slots of 4 bytes, and not quite a third
    let good = (1, &[1, 2][..]);
    for (bad, error) in [
        ((2, &[3, 4][..]), ReorderError::Slot { index: 1, slot: 2, bytes: 11, stride: 4 }),
        (
            (u32::MAX, &[3, 4][..]),
            ReorderError::Slot { index: 1, slot: u32::MAX, bytes: 11, stride: 4 },
        ),
        ((0, &[3][..]), ReorderError::Payload { index: 1, bytes: 1, stride: 4 }),
        ((0, &[3, 4, 5][..]), ReorderError::Payload { index: 1, bytes: 3, stride: 4 }),
    ] {
        batch.fill(GUARD);
        assert_eq!(kernel.reorder([good, bad, (0, &[5, 6][..])], &mut batch, 4), Err(error));
        let mut want = [GUARD; 11];
        want[4..8].copy_from_slice(&[0x00, 0x3c, 0x00, 0x40]);
        assert_eq!(batch, want, "{error}");
    }
    let text = ReorderError::Slot { index: 1, slot: 2, bytes: 11, stride: 4 }.to_string();
    assert_eq!(text, "payload 1 is for slot 2, beyond a batch of 11 bytes in slots of 4 bytes");
    let text = ReorderError::Payload { index: 1, bytes: 3, stride: 4 }.to_string();
    assert_eq!(text, "payload 1 of 3 bytes does not fill a slot of 4 bytes");
}

#[test]
fn every_short_length_at_every_alignment_of_the_slot() {
    let bytes = noise(257);
    for how in Conversion::ALL {
        let mut arena = Arena::new(257 * how.output_width() + 64);
        let want = expected(how, &bytes);
        for kernel in kernels(how) {
            for len in 0..=257 {
                for to in 0..64 {
                    let want = &want[..len * how.output_width()];
                    check(&kernel, &bytes[..len], want, (len * 7 + to) % 64, to, &mut arena);
                }
            }
        }
    }
}

#[test]
fn every_alignment_of_source_and_slot_together() {
    let bytes = noise(1176);
    for how in Conversion::ALL {
        let mut arena = Arena::new(1176 * how.output_width() + 64);
        // The documented payload, and one that no vector divides.
        for len in [301, 1176] {
            let want = expected(how, &bytes[..len]);
            for kernel in kernels(how) {
                for (from, to) in (0..64).flat_map(|from| (0..64).map(move |to| (from, to))) {
                    // A short payload meets all pairs, the long one those on a grid.
                    if len == 301 || (from % 8 == 0 && to % 4 == 0) {
                        check(&kernel, &bytes[..len], &want, from, to, &mut arena);
                    }
                }
            }
        }
    }
}

#[test]
fn long_payloads() {
    let bytes = noise(9000);
    for how in Conversion::ALL {
        let mut arena = Arena::new(9000 * how.output_width() + 64);
        let want = expected(how, &bytes);
        for kernel in kernels(how) {
            for (turn, len) in (258..=9000).rev().step_by(97).enumerate() {
                let want = &want[..len * how.output_width()];
                check(&kernel, &bytes[..len], want, turn * 5 % 64, turn * 11 % 64, &mut arena);
            }
        }
    }
}

#[test]
fn the_best_kernel_is_one_that_this_cpu_has() {
    assert!(Isa::best().is_available() && Isa::Portable.is_available());
    for how in Conversion::ALL {
        let best = Kernel::new(how);
        assert_eq!(Some(best), Kernel::with_isa(how, Isa::best()));
        assert_eq!((best.isa(), best.conversion()), (Isa::best(), how));
        for isa in Isa::ALL {
            let kernel = Kernel::with_isa(how, isa);
            assert_eq!(kernel.map(|kernel| kernel.isa()), isa.is_available().then_some(isa));
        }
    }
    // On the machines this is made for, it is never the portable one.
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        assert!(matches!(Isa::best(), Isa::Avx2 | Isa::Avx512), "{}", Isa::best());
    }
    #[cfg(target_arch = "aarch64")]
    assert_eq!(Isa::best(), Isa::Neon);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the slot does not fit the payload")]
fn a_slot_of_another_length_is_a_bug_of_the_caller() {
    Kernel::new(Conversion::Int8ToFp16).convert(&[1, 2, 3], &mut [0; 4]);
}

#[test]
#[cfg(not(debug_assertions))]
fn a_slot_of_another_length_takes_what_both_have_room_for() {
    for kernel in kernels(Conversion::Int8ToFp16) {
        let mut out = [GUARD; 8];
        kernel.convert(&[1, 2], &mut out);
        assert_eq!(out, [0x00, 0x3c, 0x00, 0x40, GUARD, GUARD, GUARD, GUARD]);
        let mut out = [GUARD; 3];
        kernel.convert(&[1, 2], &mut out);
        assert_eq!(out, [0x00, 0x3c, GUARD]);
    }
}

/// Every instruction set of this machine that widens.
fn widening() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// f32 of fp16 bits, by definition: NaN keeps sign and payload and becomes quiet.
fn widened(bits: u16) -> u32 {
    let sign = u32::from(bits >> 15) << 31;
    let fraction = u32::from(bits & 0x3ff);
    match bits >> 10 & 0x1f {
        // Fraction × 2^-24.
        0 => sign | (f64::from(fraction) * 2.0_f64.powi(-24)).to_f32_exact(),
        0x1f if fraction == 0 => sign | 0x7f80_0000,
        0x1f => sign | 0x7fc0_0000 | fraction << 13,
        exponent => sign | (u32::from(exponent) + 127 - 15) << 23 | fraction << 13,
    }
}

trait ToF32Exact {
    fn to_f32_exact(self) -> u32;
}

impl ToF32Exact for f64 {
    /// Bits of the f32 of the same value.
    fn to_f32_exact(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the value is asserted to be the same")]
        let narrow = self as f32;
        assert!(f64::from(narrow) == self, "{self} is no f32");
        narrow.to_bits()
    }
}

#[test]
fn every_fp16_widens_exactly() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for isa in widening() {
        let mut out = vec![0.0; 1 << 16];
        assert!(widen_f16_with(isa, &bytes, &mut out));
        for (bits, wide) in (0..=u16::MAX).zip(&out) {
            assert_eq!(wide.to_bits(), widened(bits), "{bits:#06x} by {isa}");
            let of_half = f16::from_bits(bits).to_f32();
            assert_eq!(wide.to_bits(), of_half.to_bits(), "{bits:#06x} by {isa}");
        }
    }
}

#[test]
fn any_length_and_alignment_widens() {
    let bytes = noise(2 * 300 + 64);
    let guard = f32::from_bits(0x5a5a_5a5a);
    for isa in widening() {
        for len in 0..=300 {
            for shift in [0, 1, 2, 7, 31] {
                let source = &bytes[shift..shift + 2 * len];
                let mut out = vec![guard; len + 32];
                let at = shift % 16;
                assert!(widen_f16_with(isa, source, &mut out[at..at + len]));
                let (before, rest) = out.split_at(at);
                let (wide, behind) = rest.split_at(len);
                for (pair, wide) in source.chunks_exact(2).zip(wide) {
                    let want = widened(u16::from_le_bytes([pair[0], pair[1]]));
                    assert_eq!(wide.to_bits(), want, "{isa}, {len} from {shift}");
                }
                let untouched = |f: &f32| f.to_bits() == guard.to_bits();
                assert!(
                    before.iter().all(untouched) && behind.iter().all(untouched),
                    "{isa}, {len}"
                );
            }
        }
    }
}

#[test]
fn a_prefetch_changes_nothing_whatever_it_is_asked_for() {
    let bytes: Vec<u8> = (0..=255).collect();
    for len in [0, 1, 63, 64, 65, 128, 256] {
        for start in 0..=(bytes.len() - len).min(64) {
            prefetch(&bytes[start..][..len]);
        }
    }
    assert!(bytes.iter().copied().eq(0..=255));
}

#[test]
fn lengths_that_do_not_fit_widen_the_common_part() {
    let one = f16::from_f32(1.0).to_le_bytes();
    for isa in widening() {
        for (elements, room) in [(40, 17), (17, 40), (1, 0), (0, 1)] {
            let mut source = one.repeat(elements);
            source.push(0xff); // half an element
            let mut out = vec![0.0; room];
            assert!(widen_f16_with(isa, &source, &mut out));
            let want = elements.min(room);
            let ones = out.iter().take_while(|&&f| f.to_bits() == 1.0_f32.to_bits()).count();
            assert_eq!(ones, want, "{isa}, {elements} into {room}");
            assert!(out[want..].iter().all(|f| f.to_bits() == 0), "{isa}, {elements} into {room}");
        }
    }
    let mut out = [0.0; 3];
    widen_f16(&one.repeat(3), &mut out);
    assert_eq!(out.map(f32::to_bits), [1.0_f32.to_bits(); 3]);
}

#[test]
fn an_instruction_set_of_another_cpu_is_refused() {
    let absent = Isa::ALL.into_iter().filter(|isa| !isa.is_available());
    let mut refused = 0;
    for isa in absent {
        let mut out = [2.0_f32];
        assert!(!widen_f16_with(isa, &[0, 0], &mut out) && out[0].to_bits() == 2.0_f32.to_bits());
        refused += 1;
    }
    assert!(refused > 0, "no CPU has both AVX2 and NEON");
}
