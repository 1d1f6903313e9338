//! Packet buffers in memory of ours.

use std::ffi::{CString, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_core::memory::{DeviceMemory, HostMemory, MemoryKind};
use tensorwire_dpdk_sys as sys;

use crate::config::{HEADROOM, PoolSpec};
use crate::eal::Eal;
use crate::error::{CallError, PoolError, undone};
use crate::storage::Storage;

/// Mbufs that a thread keeps for itself, so that it rarely goes to the shared ring of the pool.
const CACHE: u32 = 256;

/// A region as packet buffers. Clones are handles to the same pool, which goes with the last.
#[derive(Clone, Debug)]
pub struct PacketPool {
    inner: Arc<Inner>,
}

struct Inner {
    /// DPDK's pool.
    pool: *mut c_void,
    range: sys::PoolRange,
    element: u16,
    frame_bytes: usize,
    /// Bytes of a frame that this CPU will read.
    read: usize,
    storage: ManuallyDrop<Storage>,
    /// Last: it must outlive the pool.
    _eal: Eal,
}

// SAFETY: a pool is made for use by several threads at once; the value keeps it and its memory
// alive and takes both down once.
unsafe impl Send for Inner {}

// SAFETY: as above; what a shared reference allows (counting, taking and giving mbufs) DPDK allows
// to any thread.
unsafe impl Sync for Inner {}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.storage.kind();
        write!(f, "{} × {} B of kind {kind}", self.range.count, self.element)
    }
}

impl PacketPool {
    /// Makes a pool in `storage`, which belongs to it from then on.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing is left of it then, and `storage` is gone.
    pub fn new(
        eal: &Eal,
        spec: &PoolSpec,
        storage: Box<dyn HostMemory>,
    ) -> Result<Self, PoolError> {
        Self::over(eal, spec, Storage::Host(storage))
    }

    /// The same in memory that this CPU does not reach.
    ///
    /// # Errors
    ///
    /// As [`PacketPool::new`].
    pub fn on_device(
        eal: &Eal,
        spec: &PoolSpec,
        storage: Box<dyn DeviceMemory>,
    ) -> Result<Self, PoolError> {
        Self::over(eal, spec, Storage::Device(storage))
    }

    pub(crate) fn over(eal: &Eal, spec: &PoolSpec, storage: Storage) -> Result<Self, PoolError> {
        let element = spec.element_bytes()?;
        let needed = spec.storage_bytes()?;
        if spec.buffers == 0 {
            return Err(PoolError::Empty);
        }
        if storage.len() < needed {
            return Err(PoolError::Storage { given: storage.len(), needed });
        }
        let named = CString::new(spec.name.as_str()).ok().filter(|_| spec.name.len() <= 25);
        let name = named.ok_or_else(|| PoolError::Name(spec.name.clone()))?;
        let read = match storage.kind() {
            // A GPU's driver lent it: the payloads are the GPU's, and to ask the caches for them
            // costs a receiving core half of its rate.
            MemoryKind::HostPinned => HEADER_BYTES,
            MemoryKind::Device => 0,
            _ => usize::MAX,
        };
        let registered = Registered::new(storage)?;
        let (base, len) = registered.range();
        let mut pool = ptr::null_mut();
        // A pool must be larger than its caches by half.
        let cache = CACHE.min(spec.buffers / 2);
        // SAFETY: EAL is running; the memory is registered, ours alone and at least as large as
        // the elements together; it is freed after the pool.
        let result = unsafe {
            sys::twd_pool_create(
                name.as_ptr(),
                spec.buffers,
                cache,
                element,
                base,
                base.addr() as u64,
                len,
                &raw mut pool,
            )
        };
        CallError::check("rte_pktmbuf_pool_create_extbuf", result)?;
        let mut range = sys::PoolRange::default();
        // SAFETY: the pool was just made, and nobody else has it yet.
        unsafe { sys::twd_pool_range(pool, &raw mut range) };
        let inner = Inner {
            pool,
            range,
            element,
            frame_bytes: spec.frame_bytes,
            read,
            storage: registered.keep(),
            _eal: eal.clone(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// DPDK's own pointer.
    pub(crate) fn raw(&self) -> *mut c_void {
        self.inner.pool
    }

    /// Begin and length of its memory.
    pub(crate) fn memory(&self) -> (*mut c_void, usize) {
        (self.inner.storage.base(), self.inner.storage.len())
    }

    /// Number of buffers.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.inner.range.count as usize
    }

    /// Buffers that nobody has: neither a NIC's ring nor the application.
    #[must_use]
    pub fn available(&self) -> usize {
        // SAFETY: the pool lives as long as the handle, and counting is allowed at any time.
        (unsafe { sys::twd_pool_available(self.inner.pool) }) as usize
    }

    /// The longest frame of the geometry, in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.inner.frame_bytes
    }

    /// Bytes of a buffer, headroom included.
    #[must_use]
    pub fn element_bytes(&self) -> usize {
        self.inner.element.into()
    }

    /// Bytes that a frame may have in a buffer.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.element_bytes() - HEADROOM
    }

    /// Bytes of a frame that this CPU will read: all of it, or its headers, where a GPU reads the
    /// rest; 0 where it can read none.
    #[must_use]
    #[inline]
    pub fn read_bytes(&self) -> usize {
        self.inner.read.min(self.room_bytes())
    }

    /// Whether this CPU can read what lies in it.
    #[must_use]
    pub fn cpu_readable(&self) -> bool {
        self.inner.storage.kind().on_host()
    }

    /// Whether the bytes from `at` to before `end` all lie in its buffers.
    #[must_use]
    #[inline]
    pub fn contains(&self, at: *const u8, end: *const u8) -> bool {
        let range = &self.inner.range;
        at.addr() as u64 >= range.data_first && end.addr() as u64 <= range.data_last && at <= end
    }

    /// The number of the buffer that the byte at `at` lies in; one of another pool has none.
    #[inline]
    pub(crate) fn number(&self, at: *const u8) -> Option<usize> {
        let offset = (at.addr() as u64).checked_sub(self.inner.range.data_first)?;
        // Buffers lie in their memory one behind the other.
        let number = usize::try_from(offset / u64::from(self.inner.element)).ok()?;
        (number < self.buffers()).then_some(number)
    }

    /// Whether `handle` is the address of one of its mbufs.
    #[inline]
    pub(crate) fn owns(&self, handle: u64) -> bool {
        (self.inner.range.mbuf_first..=self.inner.range.mbuf_last).contains(&handle)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the pool is alive, and counting is allowed at any time.
        let available = unsafe { sys::twd_pool_available(self.pool) };
        if available < self.range.count {
            // Somebody still has a buffer: a token that was lost, or the peer of a ring. Memory
            // that may be written to is never freed: it stays, and is counted.
            undone(false);
            return;
        }
        // SAFETY: all mbufs are back, and no queue is set up over the pool: ports hold a handle.
        unsafe { sys::twd_pool_free(self.pool) };
        // SAFETY: taken once, here, and not used after.
        let storage = unsafe { ManuallyDrop::take(&mut self.storage) };
        drop(Registered { storage: ManuallyDrop::new(storage) });
    }
}

/// Memory that EAL knows of.
struct Registered {
    storage: ManuallyDrop<Storage>,
}

impl Registered {
    fn new(storage: Storage) -> Result<Self, CallError> {
        let (base, len) = (storage.base(), storage.len());
        // SAFETY: the range is ours and page-aligned, as `HostMemory` and `DeviceMemory` promise,
        // and is unregistered before it goes; DPDK notes it and does not touch it.
        let result = unsafe { sys::twd_memory_register(base, len, storage.page_bytes()) };
        CallError::check("rte_extmem_register", result)?;
        Ok(Self { storage: ManuallyDrop::new(storage) })
    }

    fn range(&self) -> (*mut c_void, usize) {
        (self.storage.base(), self.storage.len())
    }

    /// It stays registered; whoever has the storage makes a `Registered` of it to undo that.
    fn keep(self) -> ManuallyDrop<Storage> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is not dropped.
        ManuallyDrop::new(unsafe { ManuallyDrop::take(&mut this.storage) })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (base, len) = self.range();
        // SAFETY: registered by `new`, with this range; no pool lies in it any more.
        let result = unsafe { sys::twd_memory_unregister(base, len) };
        undone(result == 0);
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.storage) };
    }
}
