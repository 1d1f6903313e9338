//! Reorder and convert kernels: the payload of a packet into its slot of the batch, in one pass.
//!
//! # Contract
//!
//! A kernel converts *one* payload into *one* slot; which slot that is was decided elsewhere (the
//! window of `tensorwire-core`), so the reorder is the address that the caller passes, and the
//! bytes of a batch do not depend on the order in which its packets came. A kernel knows shapes,
//! not packets: no header, no sequence number, no port. It never allocates or blocks, and panics
//! only with debug assertions, if lengths do not fit.
//!
//! Shape: payload `[n]`, one byte per element; slot `[n]` of the output type, tightly packed,
//! little-endian. With the documented geometry n = 1176, a slot of fp16 is 2352 bytes = 147 × 16,
//! and 4096 slots are one batch `[32, 3, 224, 224]` of 9,633,792 bytes.
//!
//! [`Conversion`] says what happens to an element. All of them are exact: an int8 is a pixel − 128,
//! so −128..=127, and fp16 (11 significant bits), bf16 (8) and f32 (24) hold every such value.
//! Therefore no rounding mode matters, and all instruction sets give the same bytes. The tests hold
//! them against a scalar model: every length, every alignment of source and of slot.
//!
//! # Instruction sets and stores
//!
//! [`Kernel::new`] looks at the CPU once and keeps what it found. [`Isa::Portable`] has no
//! `unsafe` in it and runs anywhere. A batch is larger than the caches and is read next by another
//! device or core, so on x86-64 the slots are written with non-temporal stores
//! ([`Stores::NonTemporal`]): they do not read the line first and do not displace the payloads that
//! the NIC has just written. This decides more than the instruction set does; figures with machine
//! and command are in `BENCH.md`.
//!
//! Non-temporal stores go out in 16 byte pieces (AVX2), or in lines of 64 bytes with smaller pieces
//! on both sides (AVX-512): of the documented slots, 16-byte aligned, three in four do not begin a
//! line. The pieces at the sides are non-temporal, too, down to 8 bytes; with ordinary stores there
//! a batch takes two thirds longer. A slot that does not begin and end at a multiple of 8 bytes is
//! written with ordinary stores alone.
//!
//! # Order of memory
//!
//! Non-temporal stores are outside the order that x86 otherwise keeps, also outside release and
//! acquire. [`Kernel::convert`] therefore ends with a store fence, and is safe by itself. Who
//! writes many slots before a batch is handed on can do with one fence, which takes a third or more
//! off the batch: [`Kernel::reorder`] does so where the batch can be borrowed as a whole, and
//! [`Kernel::defer_fence`] is the promise to call [`Kernel::fence`] where it cannot.

mod cpu;

use core::fmt;

use cpu::Backend;

/// What becomes of each element of a payload. Every conversion is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Conversion {
    /// int8 to IEEE 754 binary16, 2 bytes. The documented one.
    Int8ToFp16,
    /// int8 to IEEE 754 binary32, 4 bytes.
    Int8ToFp32,
    /// int8 to bfloat16 (the upper half of a binary32), 2 bytes.
    Int8ToBf16,
    /// The bytes as they are: input and output type are the same, whatever it is.
    Copy,
}

impl Conversion {
    /// Every conversion there is.
    pub const ALL: [Self; 4] = [Self::Int8ToFp16, Self::Int8ToFp32, Self::Int8ToBf16, Self::Copy];

    /// Bytes of output per byte of payload: length of a slot = length of a payload × this.
    #[must_use]
    #[inline]
    pub const fn output_width(self) -> usize {
        match self {
            Self::Int8ToFp32 => 4,
            Self::Int8ToFp16 | Self::Int8ToBf16 => 2,
            Self::Copy => 1,
        }
    }
}

/// Instruction set of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Whatever the compiler makes of plain Rust for the target.
    Portable,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, besides AVX2 and F16C.
    Avx512,
    /// aarch64 Advanced SIMD; with its half precision arithmetic (`FEAT_FP16`) where there is any.
    Neon,
}

impl Isa {
    /// Every instruction set there is, the simplest first.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Neon];

    /// The best one that this CPU has.
    #[must_use]
    pub fn best() -> Self {
        Backend::best().isa()
    }

    /// Whether this CPU has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        Backend::new(self).is_some()
    }

    /// The name as it is printed and parsed: lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a kernel writes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Through the caches: right where the same core reads the slot again at once.
    Ordinary,
    /// Past the caches. x86-64 only.
    NonTemporal,
}

/// When the stores of a kernel are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fence {
    /// At the end of each call.
    EachCall,
    /// By the caller.
    Deferred,
}

/// One conversion on one instruction set, chosen once.
///
/// Two words, `Copy`: each thread may have its own.
///
/// ```
/// use tensorwire_kernels::{Conversion, Kernel};
///
/// let kernel = Kernel::new(Conversion::Int8ToFp16);
/// let mut slot = [0; 6];
/// kernel.convert(&[0x80, 0x00, 0x01], &mut slot); // −128, 0, 1
/// assert_eq!(slot, [0x00, 0xd8, 0x00, 0x00, 0x00, 0x3c]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    conversion: Conversion,
    backend: Backend,
    stores: Stores,
    fence: Fence,
}

impl Kernel {
    /// The fastest kernel for this CPU.
    #[must_use]
    pub fn new(conversion: Conversion) -> Self {
        Self::over(conversion, Backend::best())
    }

    /// The kernel for one instruction set, `None` where this CPU does not have it.
    #[must_use]
    pub fn with_isa(conversion: Conversion, isa: Isa) -> Option<Self> {
        Backend::new(isa).map(|backend| Self::over(conversion, backend))
    }

    fn over(conversion: Conversion, backend: Backend) -> Self {
        Self { conversion, backend, stores: backend.best_stores(), fence: Fence::EachCall }
    }

    /// The same kernel with the stores that were asked for, or with ordinary ones where the
    /// instruction set has no others: see [`Kernel::stores`].
    #[must_use]
    pub fn with_stores(self, stores: Stores) -> Self {
        let stores = match stores {
            Stores::NonTemporal => self.backend.best_stores(),
            Stores::Ordinary => Stores::Ordinary,
        };
        Self { stores, ..self }
    }

    /// The same kernel without the store fence at the end of [`Kernel::convert`]: the caller orders
    /// the stores of many calls with one [`Kernel::fence`].
    ///
    /// # Safety
    ///
    /// For every slot that this kernel, or a copy of it, writes: before anything but this kernel on
    /// this thread accesses the slot, and before the thread passes on the right to access it by
    /// whatever means (a lock, a channel, a store with `Release`, the start of a device's work),
    /// the thread that wrote it calls [`Kernel::fence`].
    #[must_use]
    #[expect(unsafe_code, reason = "a promise that only the owner of the batch memory can make")]
    pub const unsafe fn defer_fence(self) -> Self {
        Self { fence: Fence::Deferred, ..self }
    }

    /// What the kernel does to an element.
    #[must_use]
    pub const fn conversion(&self) -> Conversion {
        self.conversion
    }

    /// The instruction set in use.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.backend.isa()
    }

    /// The stores in use.
    #[must_use]
    pub const fn stores(&self) -> Stores {
        self.stores
    }

    /// Converts one payload into its slot.
    ///
    /// Shape: `payload` `[n]` bytes, `out` `[n]` elements of the output type, little-endian, at any
    /// alignment; `out.len()` = `payload.len()` × [`Conversion::output_width`]. Lengths that do not
    /// fit each other are the caller's bug (a panic with debug assertions); without assertions as
    /// many elements are converted as both have room for, and the rest of `out` is left alone.
    #[inline]
    pub fn convert(&self, payload: &[u8], out: &mut [u8]) {
        let width = self.conversion.output_width();
        debug_assert_eq!(out.len(), payload.len() * width, "the slot does not fit the payload");
        let elements = payload.len().min(out.len() / width);
        if let (Some(payload), Some(out)) =
            (payload.get(..elements), out.get_mut(..elements * width))
        {
            self.backend.convert(self.conversion, self.stores, payload, out);
        }
        if self.fence == Fence::EachCall {
            self.fence();
        }
    }

    /// Orders the stores that this thread made through the kernel before all that follows. Needed
    /// once per batch, before it is handed on, by who called [`Kernel::defer_fence`]; otherwise,
    /// and with ordinary stores, there is nothing left to order.
    #[inline]
    pub fn fence(&self) {
        if self.stores == Stores::NonTemporal {
            self.backend.fence();
        }
    }

    /// Converts many payloads of one batch, each into its slot, with one fence at the end.
    ///
    /// Shape: `batch` is slots of `stride` bytes, one behind the other; `placed` gives, in any
    /// order, the number of a slot and its payload of `stride` / [`Conversion::output_width`]
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`ReorderError`] at the first pair that does not fit; those before it are in their slots.
    pub fn reorder<'p>(
        &self,
        placed: impl IntoIterator<Item = (u32, &'p [u8])>,
        batch: &mut [u8],
        stride: usize,
    ) -> Result<(), ReorderError> {
        // The guard fences when this function is left, also by a panic of the iterator, and until
        // then the batch is borrowed: nobody meets a slot before the fence.
        let kernel = FenceOnDrop(Self { fence: Fence::Deferred, ..*self });
        for (index, (slot, payload)) in placed.into_iter().enumerate() {
            if payload.len().checked_mul(self.conversion.output_width()) != Some(stride) {
                return Err(ReorderError::Payload { index, bytes: payload.len(), stride });
            }
            let start = (slot as usize).saturating_mul(stride);
            let Some(out) = batch.get_mut(start..start.saturating_add(stride)) else {
                return Err(ReorderError::Slot { index, slot, bytes: batch.len(), stride });
            };
            kernel.0.convert(payload, out);
        }
        Ok(())
    }
}

/// Asks the caches for bytes that will be read soon. It changes nothing but, perhaps, how long that
/// takes; worth it one or two packets ahead, where the caches cannot foresee what is next.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    cpu::prefetch(bytes);
}

/// Fences at the end of a scope, however it ends.
struct FenceOnDrop(Kernel);

impl Drop for FenceOnDrop {
    fn drop(&mut self) {
        self.0.fence();
    }
}

/// Why [`Kernel::reorder`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReorderError {
    /// A payload does not fill a slot.
    Payload {
        /// Which of the pairs, 0-based.
        index: usize,
        /// Bytes of the payload.
        bytes: usize,
        /// Bytes of a slot.
        stride: usize,
    },
    /// The batch has no such slot.
    Slot {
        /// Which of the pairs, 0-based.
        index: usize,
        /// The slot asked for.
        slot: u32,
        /// Bytes of the batch.
        bytes: usize,
        /// Bytes of a slot.
        stride: usize,
    },
}

impl fmt::Display for ReorderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload { index, bytes, stride } => {
                write!(f, "payload {index} of {bytes} bytes does not fill a slot of {stride} bytes")
            }
            Self::Slot { index, slot, bytes, stride } => write!(
                f,
                "payload {index} is for slot {slot}, beyond a batch of {bytes} bytes in slots of \
                 {stride} bytes"
            ),
        }
    }
}

impl core::error::Error for ReorderError {}

/// Widens fp16 to f32: the input of a CPU inference engine that takes only f32.
///
/// Shape: `fp16` `[2n]` bytes, little-endian, at any alignment; `out` `[n]`. Where the lengths do
/// not fit each other, as many elements are converted as both have room for. Exact for every one of
/// the 65,536 bit patterns: signed zeros, subnormals and infinities stay what they are; a NaN keeps
/// sign and payload and becomes quiet (IEEE 754-2019, 6.2.3).
///
/// Ordinary stores: the engine reads the buffer on this core, at once.
pub fn widen_f16(fp16: &[u8], out: &mut [f32]) {
    widen(Backend::best(), fp16, out);
}

/// [`widen_f16`] on one instruction set. False, and nothing is written, where this CPU does not
/// have it.
#[must_use]
pub fn widen_f16_with(isa: Isa, fp16: &[u8], out: &mut [f32]) -> bool {
    let backend = Backend::new(isa);
    if let Some(backend) = backend {
        widen(backend, fp16, out);
    }
    backend.is_some()
}

fn widen(backend: Backend, fp16: &[u8], out: &mut [f32]) {
    let elements = out.len().min(fp16.len() / 2);
    if let (Some(fp16), Some(out)) = (fp16.get(..2 * elements), out.get_mut(..elements)) {
        backend.widen(fp16, out);
    }
}
