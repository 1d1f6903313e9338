//! A device that does nothing, at once: what is left of a run is the receiving core's own work.
#![allow(unsafe_code)] // memory that is lent to a pool; the block says why it may be

use std::ptr::NonNull;

use tensorwire_core::memory::{HostMemory, MemoryKind};
use tensorwire_core::time::Nanos;
use tensorwire_cuda::CudaError;
use tensorwire_cuda::queue::Queue;

/// The queue of such a device: its lists.
pub(super) struct Nowhere(Vec<Vec<u64>>);

impl Nowhere {
    pub(super) fn new(buffers: usize, slots: u32) -> Self {
        Self(vec![vec![0; slots as usize]; buffers])
    }
}

impl Queue for Nowhere {
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]> {
        self.0.get_mut(buffer).map(Vec::as_mut_slice)
    }

    fn submit(&mut self, _: usize) -> Result<(), CudaError> {
        Ok(())
    }

    fn done(&mut self, _: usize) -> Result<bool, CudaError> {
        Ok(true)
    }

    fn took(&mut self, _: usize) -> Option<Nanos> {
        None
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u8; 64]);

/// Plain memory that is lent as a driver would lend its own. It is kept to the end of the process:
/// a bench makes one or two of them.
#[derive(Debug)]
pub(super) struct Plain(NonNull<[Line]>);

impl Plain {
    pub(super) fn new(bytes: usize) -> Self {
        let lines: Box<[Line]> = vec![Line([0; 64]); bytes.div_ceil(64)].into();
        Self(NonNull::from(Box::leak(lines)))
    }
}

// SAFETY: plain memory, which no thread has but by the pool that it is lent to.
unsafe impl Send for Plain {}

// SAFETY: as above: the value gives out an address, not access.
unsafe impl Sync for Plain {}

// SAFETY: zeroed, on lines of its own, never moved or given back; all access is through the pool
// that it is lent to.
unsafe impl HostMemory for Plain {
    fn base(&self) -> NonNull<u8> {
        self.0.cast()
    }

    fn len(&self) -> usize {
        self.0.len() * 64
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
}
