//! Packet buffers in one allocation of our own, reached through tokens that exist once: a buffer is
//! either [`Free`], and the kernel may write to it, or a `PacketDesc`, and the application reads.
#![allow(unsafe_code)] // slices into one allocation, kept apart by tokens

use std::alloc::{self, Layout};
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::port::PacketMemory;

/// Buffers start on a cache line of their own.
const LINE: usize = 64;

/// The bit that tells a handle of this crate from those of other packet memory.
const MARK: u64 = 1 << 62;

/// Pools are numbered, so that a packet of another pool is told by its handle.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Numbers of pools fit between the mark and the index.
const LAST: u32 = (1 << 30) - 1;

/// A buffer that nobody reads.
#[derive(Debug)]
pub(crate) struct Free(u32);

/// The packet buffers of a receiving socket.
#[derive(Debug)]
pub struct SocketPool {
    base: NonNull<u8>,
    layout: Layout,
    buffers: u32,
    size: usize,
    stride: usize,
    mark: u64,
}

// SAFETY: the pool is plain memory that belongs to whoever has the pool; nothing about it is tied
// to the thread that made it.
unsafe impl Send for SocketPool {}

// SAFETY: a shared pool gives access only through tokens that exist once: bytes are written through
// the token of a free buffer and read through that of a packet, and a buffer has one of the two.
unsafe impl Sync for SocketPool {}

impl SocketPool {
    /// Allocates `buffers` buffers for frames of `size` bytes, touches every page, and makes the
    /// token of each.
    pub(crate) fn new(buffers: u32, size: usize) -> io::Result<(Self, Vec<Free>)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let stride = size.checked_next_multiple_of(LINE).ok_or_else(invalid)?;
        let total = stride.checked_mul(buffers as usize).filter(|total| *total > 0);
        let layout = Layout::from_size_align(total.ok_or_else(invalid)?, LINE);
        let layout = layout.map_err(|_| invalid())?;
        let next = |id: u32| (id < LAST).then_some(id + 1);
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let id = id.map_err(|_| out_of_memory())?;
        // SAFETY: the layout is not of size 0.
        let base = unsafe { alloc::alloc(layout) };
        let base = NonNull::new(base).ok_or_else(out_of_memory)?;
        // SAFETY: `base` is valid for writes of that many bytes, and nobody else has it yet.
        unsafe { base.write_bytes(0, layout.size()) };
        let mark = MARK | u64::from(id) << 32;
        let free = (0..buffers).rev().map(Free).collect();
        Ok((Self { base, layout, buffers, size, stride, mark }, free))
    }

    /// The longest frame that a buffer holds, in bytes.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        self.size
    }

    /// The address of buffer `index`, which is one of the pool's.
    #[inline]
    fn at(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.buffers, "no buffer {index}");
        // SAFETY: indices of tokens are below `buffers`, so the distance is below the size of the
        // allocation, which fits an isize as every layout does.
        unsafe { self.base.add(index as usize * self.stride) }
    }

    /// All bytes of a free buffer. They hold what an earlier frame left there.
    #[inline]
    pub(crate) fn bytes_mut<'a>(&'a self, buffer: &'a mut Free) -> &'a mut [u8] {
        let base = self.at(buffer.0).as_ptr();
        // SAFETY: the token exists once and is borrowed mutably while the slice lives; the bytes
        // were written when the pool was made.
        unsafe { slice::from_raw_parts_mut(base, self.size) }
    }

    /// The same bytes, to read.
    #[inline]
    pub(crate) fn bytes_of<'a>(&'a self, buffer: &'a Free) -> &'a [u8] {
        let base = self.at(buffer.0).as_ptr();
        // SAFETY: the token exists once, and what writes through it borrows it mutably; the bytes
        // were written when the pool was made.
        unsafe { slice::from_raw_parts(base, self.size) }
    }

    /// The buffer holds a frame of `len` bytes (of which it keeps as many as fit).
    #[inline]
    pub(crate) fn publish(&self, buffer: Free, len: u32) -> PacketDesc {
        // SAFETY: the one token of the buffer is consumed here; until this one comes back through
        // `reclaim` there is no other, and nothing writes to the buffer without one.
        unsafe { PacketDesc::claim(self.mark | u64::from(buffer.0), len, 0) }
    }

    /// The index of the buffer with this handle, if it is one of this pool.
    #[inline]
    fn index(&self, handle: u64) -> Option<u32> {
        let index = u32::try_from(handle ^ self.mark).ok()?;
        (index < self.buffers).then_some(index)
    }

    /// The application is done with a packet; `None` for one of another pool, and for none.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the token ends here")]
    pub(crate) fn reclaim(&self, packet: PacketDesc) -> Option<Free> {
        self.index(packet.handle()).map(Free)
    }
}

impl PacketMemory for SocketPool {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        let Some(index) = self.index(packet.handle()) else { return &[] };
        let len = usize::try_from(packet.len()).unwrap_or(usize::MAX).min(self.size);
        let base = self.at(index).as_ptr();
        // SAFETY: as long as the packet's token exists there is no token of a free buffer, and only
        // through one of those is it written to. The packet is borrowed while the slice lives.
        unsafe { slice::from_raw_parts(base, len) }
    }
}

impl Drop for SocketPool {
    fn drop(&mut self) {
        // SAFETY: this is the allocation of `new`, with its layout; slices of it borrow the pool.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// The packet memory for those who read packets without having the queue.
#[derive(Clone, Debug)]
pub struct SocketPackets(pub(crate) Arc<SocketPool>);

impl PacketMemory for SocketPackets {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.0.bytes(packet)
    }
}
