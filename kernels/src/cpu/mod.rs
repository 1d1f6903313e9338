//! The CPU's side of the kernels: one file per family of instruction sets, and the choice.

mod portable;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::{Conversion, Isa, Stores};

/// Bytes of a cache line, or of two halves of a longer one.
const LINE: usize = 64;

/// An instruction set that this CPU was seen to have: the tokens inside are made by detection only,
/// so that who holds one may run its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(aarch64::Neon),
}

impl Backend {
    /// The backend of `isa`, if this CPU has it.
    pub(crate) fn new(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Portable => Some(Self::Portable),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::Avx512::detect().map(Self::Avx512),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => aarch64::Neon::detect().map(Self::Neon),
            #[allow(unreachable_patterns, reason = "which of them are left depends on the target")]
            _ => None,
        }
    }

    /// The fastest backend of this CPU.
    pub(crate) fn best() -> Self {
        [Isa::Avx512, Isa::Avx2, Isa::Neon]
            .into_iter()
            .find_map(Self::new)
            .unwrap_or(Self::Portable)
    }

    pub(crate) const fn isa(self) -> Isa {
        match self {
            Self::Portable => Isa::Portable,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Isa::Avx512,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(_) => Isa::Neon,
        }
    }

    /// Non-temporal stores where there are any. (aarch64 has `STNP`, a hint that was not measured.)
    pub(crate) const fn best_stores(self) -> Stores {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) | Self::Avx512(_) => Stores::NonTemporal,
            _ => Stores::Ordinary,
        }
    }

    /// Converts `payload` into `out`, which holds exactly its elements.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only x86-64 has a choice of stores")
    )]
    #[inline]
    pub(crate) fn convert(self, how: Conversion, stores: Stores, payload: &[u8], out: &mut [u8]) {
        match self {
            Self::Portable => portable::convert(how, payload, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(cpu) => cpu.convert(how, stores, payload, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(cpu) => cpu.convert(how, stores, payload, out),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(cpu) => cpu.convert(how, payload, out),
        }
    }

    #[inline]
    pub(crate) fn fence(self) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) | Self::Avx512(_) => x86::fence(),
            _ => {}
        }
    }

    /// Widens `fp16` into `out`, which holds exactly its elements.
    pub(crate) fn widen(self, fp16: &[u8], out: &mut [f32]) {
        match self {
            Self::Portable => portable::widen(fp16, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(cpu) => cpu.widen(fp16, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(cpu) => cpu.widen(fp16, out),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(cpu) => cpu.widen(fp16, out),
        }
    }
}

/// Asks the caches for `bytes`, where the CPU has an instruction for it.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    use aarch64::prefetch as line;
    #[cfg(target_arch = "x86_64")]
    use x86::prefetch as line;
    #[cfg(not(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    )))]
    fn line(_byte: &u8) {}

    // The first byte of every 64, and the last one, which may be in a line of its own.
    bytes.iter().step_by(LINE).chain(bytes.last()).for_each(line);
}
