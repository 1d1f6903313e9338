//! Regions of memory that a GPU reaches.
//!
//! A region asks for memory once, at start, and is touched as a whole. What asks for more than is
//! free is refused with both numbers: a GPU that has to move managed pages in and out while a NIC
//! fills them stands still, and on some machines does not come back.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::fmt;
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;
use tensorwire_core::memory::{DeviceMemory, HostMemory, MemoryKind};

use crate::device::Gpu;
use crate::error::{CudaError, check};

/// Why a region could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionError {
    /// A region of no bytes.
    Empty,
    /// More than is free.
    Exhausted {
        /// What was asked for.
        kind: MemoryKind,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes that are free on the GPU.
        free: usize,
    },
    /// A pool is built in the region already.
    Lent,
    /// Memory that is not CUDA's to give.
    Kind(MemoryKind),
    /// A call failed.
    Cuda(CudaError),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a region has at least one byte"),
            Self::Exhausted { kind, bytes, free } => write!(
                f,
                "{bytes} bytes of {kind} memory are asked for, and the GPU has {free} bytes free; \
                 use fewer or smaller buffers"
            ),
            Self::Lent => f.write_str("a pool is built in the region already"),
            Self::Kind(kind) => write!(f, "memory of kind {kind} is not allocated by CUDA"),
            Self::Cuda(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RegionError {}

impl From<CudaError> for RegionError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

/// Whether a region may be asked for: device and managed memory only as far as it is free.
fn admit(kind: MemoryKind, bytes: usize, free: usize) -> Result<(), RegionError> {
    match kind {
        _ if bytes == 0 => Err(RegionError::Empty),
        MemoryKind::Host | MemoryKind::Huge => Err(RegionError::Kind(kind)),
        MemoryKind::Device | MemoryKind::Managed if bytes > free => {
            Err(RegionError::Exhausted { kind, bytes, free })
        }
        MemoryKind::HostPinned | MemoryKind::Device | MemoryKind::Managed => Ok(()),
    }
}

/// A region of memory that a GPU reaches. It is given back when the last of the clones goes.
#[derive(Clone, Debug)]
pub struct Region(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    gpu: Gpu,
    kind: MemoryKind,
    /// Null for device memory.
    host: *mut u8,
    device: u64,
    bytes: usize,
    /// A pool is built in it.
    lent: AtomicBool,
}

// SAFETY: plain memory; nothing about it is tied to a thread, and what is read and written in it is
// the business of whoever has a token for it.
unsafe impl Send for Owned {}

// SAFETY: as above: the value gives out addresses, not access.
unsafe impl Sync for Owned {}

impl Region {
    /// Allocates `bytes` bytes, all zero.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when the kind is not CUDA's, when more is asked for than is free, or when a
    /// call fails.
    pub fn new(gpu: &Gpu, kind: MemoryKind, bytes: usize) -> Result<Self, RegionError> {
        let (free, _) = gpu.memory()?;
        admit(kind, bytes, free)?;
        let _entered = gpu.enter()?;
        let (host, device) = match kind {
            MemoryKind::Device => (ptr::null_mut(), device_memory(bytes)?),
            MemoryKind::Managed => {
                let device = managed_memory(bytes)?;
                (ptr::with_exposed_provenance_mut(to_usize(device)), device)
            }
            _ => pinned_memory(bytes)?,
        };
        let region = Self(Arc::new(Owned {
            gpu: gpu.clone(),
            kind,
            host,
            device,
            bytes,
            lent: AtomicBool::new(false),
        }));
        region.clear()?;
        Ok(region)
    }

    /// Zeroes the whole of it.
    fn clear(&self) -> Result<(), CudaError> {
        if let Some(host) = self.host() {
            // SAFETY: the region is `bytes` long, and nobody else has it yet.
            unsafe { host.write_bytes(0, self.0.bytes) };
            return Ok(());
        }
        // SAFETY: the region is `bytes` long, the context is entered, and nobody has it yet.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(self.0.device, 0, self.0.bytes) })?;
        // SAFETY: no arguments. A memset of device memory may return before it is done.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.0.kind
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Its address as the GPU sees it.
    #[must_use]
    pub fn device_address(&self) -> u64 {
        self.0.device
    }

    /// Its address as the CPU sees it; `None` for device memory.
    #[must_use]
    pub fn host(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.0.host)
    }

    /// Copies bytes of the region to the host and waits until it is done. For tests and reports.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when the bytes are not all of this region, or a call fails.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), RegionError> {
        let from = self.part(offset, to.len())?;
        let _entered = self.0.gpu.enter()?;
        // SAFETY: the region holds `len` bytes from there on, and `to` is as long. A copy to
        // pageable memory returns when it is done.
        let result = unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len()) };
        Ok(check("cuMemcpyDtoH", result)?)
    }

    /// Copies bytes of the host into the region and waits until it is done. For tests and benches.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when the bytes are not all of this region, or a call fails.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), RegionError> {
        let to = self.part(offset, from.len())?;
        let _entered = self.0.gpu.enter()?;
        // SAFETY: the region holds `len` bytes from there on, and `from` is as long. It is read
        // before the call returns.
        let result = unsafe { sys::cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len()) };
        check("cuMemcpyHtoD", result)?;
        // SAFETY: no arguments. The last part of such a copy may still be on its way.
        Ok(check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })?)
    }

    /// The address of `len` bytes from byte `offset` on, if they are all of this region.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<u64, RegionError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.0.bytes);
        let outside = RegionError::Exhausted { kind: self.0.kind, bytes: len, free: self.0.bytes };
        end.map(|_| self.0.device + offset as u64).ok_or(outside)
    }
}

fn to_usize(address: u64) -> usize {
    usize::try_from(address).unwrap_or(0)
}

fn device_memory(bytes: usize) -> Result<u64, CudaError> {
    let mut address = 0;
    // SAFETY: the pointer is to a local that outlives the call, and a context is entered.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) })?;
    Ok(address)
}

fn managed_memory(bytes: usize) -> Result<u64, CudaError> {
    let mut address = 0;
    let flags = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
    // SAFETY: the pointer is to a local that outlives the call, and a context is entered.
    let result = unsafe { sys::cuMemAllocManaged(&raw mut address, bytes, flags) };
    check("cuMemAllocManaged", result)?;
    Ok(address)
}

/// Pinned memory, mapped for all contexts, and its address on the GPU.
fn pinned_memory(bytes: usize) -> Result<(*mut u8, u64), CudaError> {
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let mut host = ptr::null_mut();
    // SAFETY: the pointer is to a local that outlives the call, and a context is entered.
    check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut host, bytes, flags) })?;
    let mut device = 0;
    // SAFETY: the pointer is to a local that outlives the call; `host` was just allocated.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, host, 0) };
    if let Err(error) = check("cuMemHostGetDevicePointer", result) {
        // SAFETY: allocated above, and nobody has it. A second error would not help.
        let _ = unsafe { sys::cuMemFreeHost(host) };
        return Err(error);
    }
    Ok((host.cast(), device))
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // What could fail here leaves nothing to be done: the process keeps the memory.
        let _ = match self.kind {
            // SAFETY: allocated by the call that this one undoes, and this was the last owner.
            MemoryKind::HostPinned => unsafe { sys::cuMemFreeHost(self.host.cast()) },
            // SAFETY: as above.
            _ => unsafe { sys::cuMemFree_v2(self.device) },
        };
    }
}

/// A region that the CPU can read, for a pool to be built in. A clone of the region keeps the
/// memory too: whoever lets a GPU work on it has one.
#[derive(Debug)]
pub struct Lent {
    base: NonNull<u8>,
    region: Region,
}

impl Lent {
    /// Lends a region to a pool.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when the CPU cannot read it, or when it was lent before: two pools in one
    /// region would take each other's buffers.
    pub fn new(region: &Region) -> Result<Self, RegionError> {
        let base = region.host().ok_or(RegionError::Kind(region.kind()))?;
        // Relaxed: only the first may go on, nothing is published with it.
        if region.0.lent.swap(true, Ordering::Relaxed) {
            return Err(RegionError::Lent);
        }
        Ok(Self { base, region: region.clone() })
    }
}

// SAFETY: as for `Owned`.
unsafe impl Send for Lent {}

// SAFETY: as for `Owned`.
unsafe impl Sync for Lent {}

// SAFETY: the region was zeroed when it was made and lives as long as `self` has a clone of it.
// CUDA aligns allocations to a page. Who else works on it is a GPU, between a launch and its event.
unsafe impl HostMemory for Lent {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.region.bytes()
    }

    fn kind(&self) -> MemoryKind {
        self.region.kind()
    }
}

/// Bytes of a GPU's page, as NICs are told of its memory (64 KiB).
pub const GPU_PAGE: usize = 1 << 16;

/// A region of device memory, for the pool of a NIC that writes there by itself.
#[derive(Debug)]
pub struct LentDevice {
    base: NonZeroUsize,
    len: usize,
    /// Kept as long as it is lent.
    _region: Region,
}

impl LentDevice {
    /// Bytes of a region out of which so many can be lent: whole pages, which it need not begin
    /// with.
    #[must_use]
    pub const fn region_bytes(bytes: usize) -> usize {
        bytes.saturating_add(2 * GPU_PAGE)
    }

    /// Lends the whole pages of a region to a NIC.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when it is not of device memory or has no whole page, when it was lent
    /// before, and when the driver refuses.
    pub fn new(region: &Region) -> Result<Self, RegionError> {
        if region.kind() != MemoryKind::Device {
            return Err(RegionError::Kind(region.kind()));
        }
        let (base, len) = pages(region.device_address(), region.bytes());
        let base = NonZeroUsize::new(base).filter(|_| len > 0).ok_or(RegionError::Empty)?;
        // Relaxed: only the first may go on, nothing is published with it.
        if region.0.lent.swap(true, Ordering::Relaxed) {
            return Err(RegionError::Lent);
        }
        let lent = Self { base, len, _region: region.clone() };
        let _entered = region.0.gpu.enter()?;
        // Calls that copy from it or to it are done when they return: work in the background would
        // not be ordered with what the NIC does (CUDA's rule for memory that is given to others).
        let on: u32 = 1;
        let what = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        let value = (&raw const on).cast();
        // SAFETY: the value is of the type that the attribute has and outlives the call; the region
        // is alive.
        let result = unsafe { sys::cuPointerSetAttribute(value, what, region.device_address()) };
        check("cuPointerSetAttribute", result)?;
        Ok(lent)
    }
}

/// The whole pages between an address and the end of so many bytes: the first, and their bytes.
fn pages(address: u64, bytes: usize) -> (usize, usize) {
    let (first, end) = (to_usize(address), to_usize(address).saturating_add(bytes));
    let base = first.checked_next_multiple_of(GPU_PAGE).unwrap_or(end);
    (base, end.saturating_sub(base) / GPU_PAGE * GPU_PAGE)
}

// SAFETY: under unified addressing an address of the GPU is one of this process and of nothing
// else. The region lives as long as `self` has a clone of it, and does not move. Who else works on
// it is the GPU, between a launch and its event, on packets that are not the NIC's.
unsafe impl DeviceMemory for LentDevice {
    fn base(&self) -> NonZeroUsize {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn page_bytes(&self) -> usize {
        GPU_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_lent() {
        assert_eq!(pages(0x10_0000, 0x3_0000), (0x10_0000, 0x3_0000));
        assert_eq!(pages(0x10_0200, 0x3_0000), (0x11_0000, 0x2_0000));
        assert_eq!(pages(0x10_0200, 0x1_0000), (0x11_0000, 0));
        for (address, bytes) in [(0x10_0200, 1), (0x1f_ffff, 0x1_0001), (0x20_0000, 0x1_0000)] {
            let (base, len) = pages(address, LentDevice::region_bytes(bytes));
            assert!(base as u64 >= address && len >= bytes, "{address:#x}");
            assert!(base.is_multiple_of(GPU_PAGE) && len.is_multiple_of(GPU_PAGE));
        }
    }

    #[test]
    fn more_than_is_free_is_refused_with_both_numbers() {
        use MemoryKind::{Device, Host, HostPinned, Huge, Managed};
        for kind in [Device, Managed] {
            assert_eq!(admit(kind, 100, 100), Ok(()));
            let error = admit(kind, 101, 100).expect_err("one too many");
            assert_eq!(
                error.to_string(),
                format!(
                    "101 bytes of {kind} memory are asked for, and the GPU has 100 bytes free; \
                     use fewer or smaller buffers"
                )
            );
        }
        // Not of the GPU's memory.
        assert_eq!(admit(HostPinned, 101, 100), Ok(()));
        for kind in [Host, Huge] {
            assert_eq!(admit(kind, 1, 100), Err(RegionError::Kind(kind)));
        }
        assert_eq!(admit(Device, 0, 100), Err(RegionError::Empty));
    }
}
