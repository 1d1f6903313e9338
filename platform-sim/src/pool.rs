//! Memory for packets and for batches, touched once and reached only through tokens. With its
//! module `landing` the only place of this crate with unsafe code.
//!
//! Who may touch a buffer is said by a token that exists once. A packet buffer is either a
//! [`FreeBuf`], which the wire writes through, or a [`PacketDesc`], which the application reads
//! through; [`PacketPool::publish`] and [`PacketPool::reclaim`] turn the one into the other. A
//! batch buffer belongs to a [`Burst`]: written through `&mut Burst<Filling>`, read through a
//! shared borrow in the later states. Tokens travel between threads by safe means (a ring), which
//! orders what was written before the move before what is read after it.
//!
//! A token of another pool is refused: it names its pool, and no two pools of a process have the
//! same name.
//!
//! Slots of a batch are written past the caches (non-temporal stores), which hardware keeps in no
//! order until a fence. One fence per slot would double the time of a batch, so
//! [`BatchMemory::convert`] leaves it out and marks the buffer instead; until
//! [`BatchMemory::fence`] has been called on the same thread, nobody can read the buffer or write
//! to it in another way.
#![allow(unsafe_code)] // slices into one allocation, kept apart by tokens; see the SAFETY comments

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tensorwire_core::burst::{Burst, BurstPool, Filling, InFlight, PacketDesc, PoolId};
use tensorwire_core::burst::{Ready, Retained, State};
use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_core::memory::HostMemory;
use tensorwire_core::port::PacketMemory;
use tensorwire_kernels::Kernel;

mod landing;

pub use landing::{Arriving, LANDING, Landing};

/// Buffers start on a cache line of their own: a neighbour that is written does not disturb them.
const LINE: usize = 64;

/// The size of a huge page (x86-64, and aarch64 with 4 KiB pages). A region that is at least as
/// large starts on a multiple of it, so that the system can back it with such pages.
const HUGE_PAGE: usize = 2 << 20;

/// Why memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// No buffers, buffers of no bytes, or more of either than can be addressed.
    Size {
        /// Buffers asked for.
        buffers: usize,
        /// Bytes of each.
        bytes: usize,
    },
    /// The system has not that much memory for us.
    Exhausted {
        /// Bytes asked for, in all.
        bytes: usize,
    },
    /// 2^31 − 1 packet pools were made in this process.
    Ids,
    /// The memory that was lent is not the one that is needed.
    Lent {
        /// Bytes of it.
        given: usize,
        /// Bytes needed.
        bytes: usize,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { buffers, bytes } => write!(
                f,
                "a pool of {buffers} buffers of {bytes} bytes; both must be at least 1, and the \
                 whole must be addressable"
            ),
            Self::Exhausted { bytes } => write!(f, "no memory for a pool of {bytes} bytes"),
            Self::Ids => f.write_str("no packet pool id is left in this process"),
            Self::Lent { given, bytes } => {
                write!(f, "a pool of {bytes} bytes is to be built in a region of {given}")
            }
        }
    }
}

impl std::error::Error for MemoryError {}

/// Whose allocation it is.
enum Owner {
    /// Ours, to be given back.
    Own,
    /// A driver's, which a device reaches. `None` once it was left behind.
    Lent(Option<Box<dyn HostMemory>>),
}

/// One allocation, cut into buffers of equal size.
struct Region {
    base: NonNull<u8>,
    layout: Layout,
    owner: Owner,
    buffers: usize,
    /// Bytes of a buffer that are used.
    size: usize,
    /// Distance of two buffers: `size`, rounded up to a cache line.
    stride: usize,
    /// Stores of another thread may still arrive: the memory must not be used for anything else.
    leak: bool,
}

// SAFETY: a region is plain memory that belongs to whoever has the region; nothing in it or about
// it is tied to the thread that made it.
unsafe impl Send for Region {}

// SAFETY: a shared region gives out addresses, not access; the two functions that make slices of
// them are unsafe, and their callers see to it that no byte is written while another thread uses
// it.
unsafe impl Sync for Region {}

impl Region {
    /// The distance of two buffers, and the layout of all.
    fn layout(buffers: usize, size: usize) -> Result<(usize, Layout), MemoryError> {
        let error = MemoryError::Size { buffers, bytes: size };
        if buffers == 0 || size == 0 {
            return Err(error);
        }
        let stride = size.checked_next_multiple_of(LINE).ok_or(error)?;
        let total = stride.checked_mul(buffers).ok_or(error)?;
        let align = if total >= HUGE_PAGE { HUGE_PAGE } else { LINE };
        let layout = Layout::from_size_align(total, align).map_err(|_| error)?;
        Ok((stride, layout))
    }

    /// Allocates `buffers` buffers of `size` bytes, all zero, and touches every page: there are no
    /// page faults later, in the loops.
    fn new(buffers: usize, size: usize) -> Result<Self, MemoryError> {
        let (stride, layout) = Self::layout(buffers, size)?;
        let total = layout.size();
        // SAFETY: the layout is not of size 0: both factors are at least 1.
        let base = unsafe { alloc::alloc(layout) };
        let base = NonNull::new(base).ok_or(MemoryError::Exhausted { bytes: total })?;
        let region = Self { base, layout, owner: Owner::Own, buffers, size, stride, leak: false };
        region.ask_for_huge_pages();
        // SAFETY: `base` is valid for writes of `total` bytes, and nobody else has it yet.
        unsafe { base.write_bytes(0, total) };
        Ok(region)
    }

    /// The same in memory of a driver, which is as long as the layout or longer.
    fn lent(buffers: usize, size: usize, memory: Box<dyn HostMemory>) -> Result<Self, MemoryError> {
        let (stride, layout) = Self::layout(buffers, size)?;
        let (base, given, bytes) = (memory.base(), memory.len(), layout.size());
        if given < bytes || !base.addr().get().is_multiple_of(LINE) {
            return Err(MemoryError::Lent { given, bytes });
        }
        let owner = Owner::Lent(Some(memory));
        Ok(Self { base, layout, owner, buffers, size, stride, leak: false })
    }

    /// Asks the system to back the region with huge pages. Only a hint: a refusal costs speed and
    /// nothing else, so it is not looked at.
    fn ask_for_huge_pages(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.layout.align() >= HUGE_PAGE {
            let (base, len) = (self.base.as_ptr().cast(), self.layout.size());
            // SAFETY: the range is our own allocation, and the hint changes no content of it.
            let _ = unsafe { libc::madvise(base, len, libc::MADV_HUGEPAGE) };
        }
    }

    /// The address of `len` bytes from byte `offset` of buffer `index` on, if they exist.
    #[inline]
    fn at(&self, index: usize, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if index >= self.buffers || offset > self.size || len > self.size - offset {
            return None;
        }
        let distance = index * self.stride + offset;
        // SAFETY: `index < buffers` and `offset ≤ size ≤ stride`, so the distance is at most the
        // size of the allocation, which fits an isize as every layout does.
        Some(unsafe { self.base.add(distance) })
    }

    /// Bytes of a buffer to be read.
    ///
    /// # Safety
    ///
    /// Nothing writes to the buffer while the slice lives.
    #[inline]
    unsafe fn bytes(&self, index: usize, offset: usize, len: usize) -> Option<&[u8]> {
        let at = self.at(index, offset, len)?;
        // SAFETY: `at` says that the bytes lie in the allocation, which lives as long as `self`
        // and was initialised as a whole; the caller sees to it that nothing writes to them.
        Some(unsafe { slice::from_raw_parts(at.as_ptr(), len) })
    }

    /// Bytes of a buffer to be written.
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes the buffer while the slice lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the caller has the token that makes it exclusive")]
    unsafe fn bytes_mut(&self, index: usize, offset: usize, len: usize) -> Option<&mut [u8]> {
        let at = self.at(index, offset, len)?;
        // SAFETY: `at` says that the bytes lie in the allocation, which lives as long as `self`
        // and was initialised as a whole; the caller sees to it that nothing else touches them.
        Some(unsafe { slice::from_raw_parts_mut(at.as_ptr(), len) })
    }

    /// The first `lines` cache lines of a buffer, to be written. The last line of a buffer is whole
    /// even where only a part of it is used.
    ///
    /// # Safety
    ///
    /// As [`Region::bytes_mut`].
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the caller has the token that makes it exclusive")]
    unsafe fn lines_mut(&self, index: usize, lines: usize) -> Option<&mut [[u8; LINE]]> {
        if lines > self.stride / LINE {
            return None;
        }
        let at = self.at(index, 0, 0)?;
        // SAFETY: the buffer exists, as `at` says, and `lines` lines of it lie within its stride,
        // so within the allocation, which lives as long as `self` and was initialised as a whole;
        // the caller sees to it that nothing else touches them. Arrays of bytes have no alignment.
        Some(unsafe { slice::from_raw_parts_mut(at.as_ptr().cast(), lines) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Owner::Lent(memory) = &mut self.owner {
            if self.leak {
                let _ = mem::ManuallyDrop::new(memory.take());
            }
            return;
        }
        if self.leak {
            return;
        }
        // SAFETY: `base` was allocated with this layout; slices of it borrow the region, so none
        // is left.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} B (stride {} B)", self.buffers, self.size, self.stride)
    }
}

/// Handles of packets start with this bit. No address of user space has it, so the packet of a
/// driver whose handles are addresses is never taken for one of ours.
const HANDLE_MARK: u64 = 1 << 63;

/// Where a handle names its pool, above the index of the buffer.
const HANDLE_POOL_SHIFT: u32 = 32;

/// The largest pool id. One below the largest 31-bit number, so that no handle is all ones, which
/// is [`PacketDesc::EMPTY`].
const LAST_PACKET_POOL: u32 = (1 << 31) - 2;

/// Ids are handed out once each. Relaxed: only the number must be unique, nothing is published
/// with it.
static NEXT_PACKET_POOL: AtomicU32 = AtomicU32::new(0);

/// The right to write to one free packet buffer. It exists once for each buffer, and not while a
/// [`PacketDesc`] for the same buffer does.
#[must_use = "a packet buffer whose token is dropped is lost to the NIC"]
#[derive(PartialEq, Eq)]
pub struct FreeBuf {
    handle: u64,
}

impl FreeBuf {
    /// No buffer: what a ring leaves in the place of a token that it took.
    pub const NONE: Self = Self { handle: u64::MAX };

    /// Whether this is [`FreeBuf::NONE`].
    #[must_use]
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.handle == u64::MAX
    }
}

impl Default for FreeBuf {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for FreeBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            f.write_str("FreeBuf(none)")
        } else {
            write!(f, "FreeBuf({:#x})", self.handle)
        }
    }
}

/// The packet buffers of a software NIC.
#[derive(Debug)]
pub struct PacketPool {
    region: Region,
    /// The upper half of the handle of each of its buffers, in place.
    mark: u64,
    /// Bytes of a frame that the CPU will read: all of it, or its header, where the memory is a
    /// driver's and a device reads the rest.
    read: usize,
}

impl PacketPool {
    /// Allocates `buffers` buffers for frames of up to `frame_bytes` bytes, each starting on a
    /// multiple of 64 bytes, and mints the token of each: the last of the list is buffer 0.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] when either number is 0, when there is not that much memory, or when the
    /// buffers cannot be numbered with 32 bits.
    pub fn new(buffers: usize, frame_bytes: usize) -> Result<(Self, Vec<FreeBuf>), MemoryError> {
        Self::over(Region::new(buffers, frame_bytes)?, frame_bytes)
    }

    /// The same in memory of a driver: [`PacketPool::bytes_needed`] of it.
    ///
    /// # Errors
    ///
    /// As [`PacketPool::new`]; [`MemoryError::Lent`] when the memory is shorter.
    pub fn new_in(
        buffers: usize,
        frame_bytes: usize,
        memory: Box<dyn HostMemory>,
    ) -> Result<(Self, Vec<FreeBuf>), MemoryError> {
        Self::over(Region::lent(buffers, frame_bytes, memory)?, HEADER_BYTES)
    }

    /// Bytes of a pool of such buffers.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Size`] as for [`PacketPool::new`].
    pub fn bytes_needed(buffers: usize, frame_bytes: usize) -> Result<usize, MemoryError> {
        Ok(Region::layout(buffers, frame_bytes)?.1.size())
    }

    fn over(region: Region, read: usize) -> Result<(Self, Vec<FreeBuf>), MemoryError> {
        let size = MemoryError::Size { buffers: region.buffers, bytes: region.size };
        let count = u32::try_from(region.buffers).map_err(|_| size)?;
        let id = NEXT_PACKET_POOL
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| {
                (id <= LAST_PACKET_POOL).then_some(id + 1)
            })
            .map_err(|_| MemoryError::Ids)?;
        let mark = HANDLE_MARK | u64::from(id) << HANDLE_POOL_SHIFT;
        let free = (0..count).rev().map(|index| FreeBuf { handle: mark | u64::from(index) });
        Ok((Self { region, mark, read }, free.collect()))
    }

    /// How many buffers there are, whoever has them.
    #[must_use]
    pub const fn buffers(&self) -> usize {
        self.region.buffers
    }

    /// The longest frame that a buffer holds, in bytes.
    #[must_use]
    #[inline]
    pub const fn frame_bytes(&self) -> usize {
        self.region.size
    }

    /// The index of the buffer with this handle, if it is one of this pool.
    #[inline]
    fn index(&self, handle: u64) -> Option<usize> {
        let index = usize::try_from(handle ^ self.mark).ok()?;
        (index < self.region.buffers).then_some(index)
    }

    /// The first `len` bytes of a free buffer, for the wire to write to. They hold what an earlier
    /// frame left there. `None` for a buffer of another pool and for a frame that does not fit.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, buf: &'a mut FreeBuf, len: usize) -> Option<&'a mut [u8]> {
        let index = self.index(buf.handle)?;
        // SAFETY: the token of a buffer of this pool exists once, either as `FreeBuf` or as
        // `PacketDesc` (only this file makes them, by moving one into the other), and this one is
        // borrowed mutably while the slice lives.
        unsafe { self.region.bytes_mut(index, 0, len) }
    }

    /// The wire is done with a buffer: it holds a frame of `len` bytes (of which it keeps as many
    /// as fit), whose flow tag is `flow`. The application may have it.
    ///
    /// # Errors
    ///
    /// The token itself when it is of another pool.
    #[inline]
    pub fn publish(&self, buf: FreeBuf, len: u32, flow: u32) -> Result<PacketDesc, FreeBuf> {
        if self.index(buf.handle).is_none() {
            return Err(buf);
        }
        // SAFETY: the one token of the buffer was just consumed, so until this one comes back
        // through `reclaim` there is no other, and nothing writes to the buffer without one.
        Ok(unsafe { PacketDesc::claim(buf.handle, len, flow) })
    }

    /// The application is done with a packet: its buffer may be written to again.
    ///
    /// # Errors
    ///
    /// The token itself when it is of another pool or driver, or empty.
    #[inline]
    pub fn reclaim(&self, packet: PacketDesc) -> Result<FreeBuf, PacketDesc> {
        let handle = packet.handle();
        if self.index(handle).is_none() {
            return Err(packet);
        }
        // The one token of the buffer is consumed here and takes its other form.
        Ok(FreeBuf { handle })
    }
}

impl PacketMemory for PacketPool {
    /// The bytes of the frame, as many as fitted the buffer; none for a packet of another pool.
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        let Some(index) = self.index(packet.handle()) else { return &[] };
        let len = usize::try_from(packet.len()).unwrap_or(usize::MAX).min(self.region.size);
        // SAFETY: as long as a `PacketDesc` for the buffer exists there is no `FreeBuf` for it, and
        // only through one of those is it written to. The packet is borrowed while the slice lives.
        unsafe { self.region.bytes(index, 0, len) }.unwrap_or(&[])
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        let bytes = self.bytes(packet);
        tensorwire_kernels::prefetch(bytes.get(..self.read).unwrap_or(bytes));
    }
}

/// The packet memory of a pool for those who read packets without having the queue: a stage that
/// reads them after they were placed, the producer's side of a split queue.
#[derive(Clone, Debug)]
pub struct PacketView(Arc<PacketPool>);

impl PacketView {
    /// A view of `pool`.
    #[must_use]
    pub const fn new(pool: Arc<PacketPool>) -> Self {
        Self(pool)
    }

    /// How many buffers the pool has.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.0.buffers()
    }

    /// The number of a packet's buffer; `None` for a packet of another pool.
    #[must_use]
    #[inline]
    pub fn number(&self, packet: &PacketDesc) -> Option<usize> {
        self.0.index(packet.handle())
    }
}

impl PacketMemory for PacketView {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.0.bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        self.0.prefetch(packet);
    }
}

/// The states in which a batch buffer is read and no longer written.
pub trait Readable: State {}
impl Readable for Ready {}
impl Readable for InFlight {}
impl Readable for Retained {}

/// A number for the calling thread, never 0 and never that of another thread, dead or alive.
fn this_thread() -> u64 {
    /// Relaxed: only the number must be unique, nothing is published with it. 2^64 threads are
    /// not made in the life of a process.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        /// 0 until it is asked for: a constant to begin with needs no look at each call whether
        /// there is one.
        static THIS: Cell<u64> = const { Cell::new(0) };
    }
    THIS.with(|this| {
        if this.get() == 0 {
            this.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        this.get()
    })
}

/// The mark of a buffer whose stores are in order.
const IN_ORDER: u64 = 0;

/// The batch buffers of a pool, in host memory, and the kernel that fills them.
#[derive(Debug)]
pub struct BatchMemory {
    region: Region,
    pool: PoolId,
    kernel: Kernel,
    /// The same, leaving out the fence after each call. See `marks` for why nobody meets such a
    /// slot.
    unfenced: Kernel,
    /// For each buffer the thread whose stores to it may not be in order, or [`IN_ORDER`].
    ///
    /// Relaxed is enough: a mark is set before the token can go anywhere, and whoever has the token
    /// after that was given it by means that order the two.
    marks: Box<[AtomicU64]>,
}

impl BatchMemory {
    /// Allocates a buffer of `batch_bytes` bytes, all zero, starting on a multiple of 64 bytes, for
    /// each token of `pool`, to be filled by `kernel`.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] when `batch_bytes` is 0 or there is not that much memory.
    pub fn new(pool: &BurstPool, batch_bytes: usize, kernel: Kernel) -> Result<Self, MemoryError> {
        let region = Region::new(usize::from(pool.buffers()), batch_bytes)?;
        Ok(Self::over(pool, region, kernel))
    }

    /// The same in memory of a driver, where a device may fill the buffers in the place of the
    /// kernel: buffer after buffer, each on the next multiple of 64 bytes.
    ///
    /// # Errors
    ///
    /// As [`BatchMemory::new`]; [`MemoryError::Lent`] when the memory is shorter.
    pub fn new_in(
        pool: &BurstPool,
        batch_bytes: usize,
        kernel: Kernel,
        memory: Box<dyn HostMemory>,
    ) -> Result<Self, MemoryError> {
        let region = Region::lent(usize::from(pool.buffers()), batch_bytes, memory)?;
        Ok(Self::over(pool, region, kernel))
    }

    fn over(pool: &BurstPool, region: Region, kernel: Kernel) -> Self {
        let buffers = region.buffers;
        // SAFETY: this kernel is used in `convert` only, on a buffer that was marked with the
        // thread that calls it. All other access, from whatever thread, is refused while the mark
        // is there, `Drop` included, and the mark goes only after that thread has called `fence`.
        let unfenced = unsafe { kernel.defer_fence() };
        let marks = (0..buffers).map(|_| AtomicU64::new(IN_ORDER)).collect();
        Self { region, pool: pool.id(), kernel, unfenced, marks }
    }

    /// Bytes of a batch buffer.
    #[must_use]
    #[inline]
    pub const fn batch_bytes(&self) -> usize {
        self.region.size
    }

    /// Which pool the buffers belong to.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The mark of a buffer; `None` for a token of another pool.
    #[inline]
    fn mark<S: State>(&self, batch: &Burst<S>) -> Option<&AtomicU64> {
        if batch.pool() == self.pool { self.marks.get(usize::from(batch.index())) } else { None }
    }

    /// The same for a buffer whose stores are in order.
    #[inline]
    fn in_order<S: State>(&self, batch: &Burst<S>) -> Option<usize> {
        let mark = self.mark(batch)?.load(Ordering::Relaxed);
        (mark == IN_ORDER).then_some(usize::from(batch.index()))
    }

    /// `len` bytes from byte `offset` on of a batch that is being built. They hold what an earlier
    /// batch left there.
    ///
    /// `None` for a token of another pool, for bytes beyond the buffer, and between
    /// [`BatchMemory::convert`] and [`BatchMemory::fence`].
    #[inline]
    pub fn slot_mut<'a>(
        &'a self,
        batch: &'a mut Burst<Filling>,
        offset: usize,
        len: usize,
    ) -> Option<&'a mut [u8]> {
        let index = self.in_order(batch)?;
        // SAFETY: the token of a batch buffer exists once, a pool id is given to one `BurstPool`
        // only, and all access to this memory is through tokens of that pool. This one is borrowed
        // mutably while the slice lives.
        unsafe { self.region.bytes_mut(index, offset, len) }
    }

    /// The whole of a batch that is complete.
    ///
    /// `None` for a token of another pool, and between [`BatchMemory::convert`] and
    /// [`BatchMemory::fence`].
    #[must_use]
    #[inline]
    pub fn bytes<'a, S: Readable>(&'a self, batch: &'a Burst<S>) -> Option<&'a [u8]> {
        let index = self.in_order(batch)?;
        // SAFETY: the token exists once and is borrowed while the slice lives; the buffer is
        // written to only through a mutable borrow of the same token in state `Filling`.
        unsafe { self.region.bytes(index, 0, self.region.size) }
    }

    /// The kernel that fills the buffers, with a fence in each call: for slices of
    /// [`BatchMemory::slot_mut`].
    #[must_use]
    pub const fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Marks the buffer with this thread and gives `len` bytes of it to the kernel.
    #[inline]
    fn unordered<'a>(
        &'a self,
        batch: &'a mut Burst<Filling>,
        offset: usize,
        len: usize,
    ) -> Option<&'a mut [u8]> {
        let mark = self.mark(batch)?;
        let this = this_thread();
        let marked = mark.load(Ordering::Relaxed);
        if marked != this {
            if marked != IN_ORDER {
                return None;
            }
            mark.store(this, Ordering::Relaxed);
        }
        // SAFETY: as in `slot_mut`.
        unsafe { self.region.bytes_mut(usize::from(batch.index()), offset, len) }
    }

    /// Converts a payload into the bytes from `offset` on. They can be read after
    /// [`BatchMemory::fence`].
    ///
    /// False, and nothing is done, for a token of another pool, for bytes beyond the buffer, and
    /// for a buffer that another thread has written to and not fenced.
    #[must_use]
    #[inline]
    pub fn convert(&self, batch: &mut Burst<Filling>, offset: usize, payload: &[u8]) -> bool {
        let len = payload.len().saturating_mul(self.kernel.conversion().output_width());
        let Some(slot) = self.unordered(batch, offset, len) else { return false };
        self.unfenced.convert(payload, slot);
        true
    }

    /// Puts the stores of [`BatchMemory::convert`] in order, before the buffer is read, written to
    /// in another way, or handed on.
    ///
    /// False, and nothing is done, for a token of another pool and for a buffer that another thread
    /// has written to.
    #[must_use]
    pub fn fence(&self, batch: &mut Burst<Filling>) -> bool {
        let Some(mark) = self.mark(batch) else { return false };
        let marked = mark.load(Ordering::Relaxed);
        if marked != IN_ORDER && marked != this_thread() {
            return false;
        }
        self.kernel.fence();
        mark.store(IN_ORDER, Ordering::Relaxed);
        true
    }
}

impl Drop for BatchMemory {
    /// Stores of this thread are put in order. If those of another may not be, then the memory is
    /// not given back: they could arrive when it is somebody else's.
    fn drop(&mut self) {
        self.kernel.fence();
        let this = this_thread();
        let others = |mark: &AtomicU64| ![IN_ORDER, this].contains(&mark.load(Ordering::Relaxed));
        self.region.leak = self.marks.iter().any(others);
    }
}

#[cfg(test)]
mod tests;
