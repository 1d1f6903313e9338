//! Memory that packets are received into and sent from. DPDK does not allocate it: it is registered
//! as *external* memory, whoever made it. What a GPU reads comes from its driver, as
//! [`tensorwire_core::memory::HostMemory`] or [`tensorwire_core::memory::DeviceMemory`]; the host's
//! own is mapped here.

use std::fmt;
use std::io;
use std::ptr::NonNull;

use tensorwire_core::memory::{DeviceMemory, HostMemory, MemoryKind};

/// Bytes of a huge page (x86-64, and aarch64 with 4 KiB pages).
pub const HUGE_PAGE: usize = 2 << 20;

/// Memory that packets lie in, whoever has made it.
#[derive(Debug)]
pub enum Storage {
    /// This CPU reads it.
    Host(Box<dyn HostMemory>),
    /// Devices only: this CPU learns what is in it by other ways.
    Device(Box<dyn DeviceMemory>),
}

impl From<Box<dyn HostMemory>> for Storage {
    fn from(memory: Box<dyn HostMemory>) -> Self {
        Self::Host(memory)
    }
}

#[cfg(any(has_dpdk, test))]
impl Storage {
    /// Its first byte; of a device's memory no more than an address.
    pub(crate) fn base(&self) -> *mut std::ffi::c_void {
        match self {
            Self::Host(memory) => memory.base().as_ptr().cast(),
            Self::Device(memory) => std::ptr::without_provenance_mut(memory.base().get()),
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Host(memory) => memory.len(),
            Self::Device(memory) => memory.len(),
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> MemoryKind {
        match self {
            Self::Host(memory) => memory.kind(),
            Self::Device(_) => MemoryKind::Device,
        }
    }

    /// The pages as which DPDK is told of it.
    pub(crate) fn page_bytes(&self) -> usize {
        let whole = |bytes: usize| bytes.is_multiple_of(HUGE_PAGE);
        match self {
            Self::Device(memory) => memory.page_bytes(),
            Self::Host(memory)
                if memory.kind() == MemoryKind::Huge
                    && whole(memory.base().addr().get())
                    && whole(memory.len()) =>
            {
                HUGE_PAGE
            }
            Self::Host(_) => SMALL_PAGE,
        }
    }
}

/// Bytes of a plain page.
const SMALL_PAGE: usize = 4096;

/// Why memory could not be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// No bytes, or more than can be addressed.
    Size {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The system refuses.
    Refused {
        /// `huge` or `host`.
        kind: &'static str,
        /// Bytes asked for, whole pages.
        bytes: usize,
        /// Its reason.
        error: io::Error,
    },
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { bytes } => write!(f, "a region of {bytes} bytes"),
            Self::Refused { kind: "huge", bytes, error } => write!(
                f,
                "no region of {} huge pages of 2 MiB: {error}; make them available with \
                 `sysctl vm.nr_hugepages=…`, or use the kind `host`",
                bytes / HUGE_PAGE
            ),
            Self::Refused { kind, bytes, error } => {
                write!(f, "no region of {bytes} bytes of kind `{kind}`: {error}")
            }
        }
    }
}

impl std::error::Error for StorageError {}

/// Memory of the host, mapped for us alone and touched once.
#[derive(Debug)]
pub struct HostPages {
    base: NonNull<u8>,
    len: usize,
    page: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; who reads and writes it is the matter
// of those who use the range.
unsafe impl Send for HostPages {}

// SAFETY: as above; a shared reference gives out an address and nothing else.
unsafe impl Sync for HostPages {}

impl HostPages {
    /// At least `bytes` bytes of plain pages.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the system has not that much.
    pub fn plain(bytes: usize) -> Result<Self, StorageError> {
        Self::map(bytes, SMALL_PAGE, 0)
    }

    /// At least `bytes` bytes of huge pages, which must have been set aside.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the system has not that many.
    pub fn huge(bytes: usize) -> Result<Self, StorageError> {
        Self::map(bytes, HUGE_PAGE, libc::MAP_HUGETLB)
    }

    fn map(bytes: usize, page: usize, flags: i32) -> Result<Self, StorageError> {
        let len = bytes.checked_next_multiple_of(page).filter(|&len| len > 0);
        let len = len.ok_or(StorageError::Size { bytes })?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | flags;
        // SAFETY: an anonymous mapping at an address of the system's choice touches nothing that is
        // there already.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        let kind = if page == HUGE_PAGE { "huge" } else { "host" };
        if base == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(StorageError::Refused { kind, bytes: len, error });
        }
        // The system never maps at address 0 without being asked to.
        let base = NonNull::new(base.cast()).ok_or(StorageError::Size { bytes })?;
        Ok(Self { base, len, page })
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `map` got, and whoever used it had the value.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "a mapping of ours could not be given back");
    }
}

// SAFETY: the mapping is readable, writable, zero, aligned to its pages (4096 bytes at least), ours
// alone until `drop`, and neither moves nor grows.
unsafe impl HostMemory for HostPages {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> MemoryKind {
        if self.page == HUGE_PAGE { MemoryKind::Huge } else { MemoryKind::Host }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_whole_pages_and_zero() {
        let memory = HostPages::plain(5000).expect("two pages");
        assert_eq!((memory.len(), memory.kind()), (8192, MemoryKind::Host));
        assert_eq!(memory.base().as_ptr().addr() % 4096, 0);
        // SAFETY: the mapping is 8192 bytes long, and nobody writes to it.
        let bytes = unsafe { std::slice::from_raw_parts(memory.base().as_ptr(), 8192) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        let base = memory.base().as_ptr().cast();
        let storage = Storage::Host(Box::new(memory));
        assert_eq!((storage.base(), storage.len()), (base, 8192));
        assert_eq!((storage.page_bytes(), storage.kind()), (4096, MemoryKind::Host));
    }

    #[test]
    fn a_refusal_says_what_was_asked_for() {
        assert!(matches!(HostPages::plain(0), Err(StorageError::Size { bytes: 0 })));
        let error = HostPages::plain(usize::MAX / 4).expect_err("2^61 bytes").to_string();
        assert!(error.contains("of kind `host`"), "{error}");
        // 64 TiB of huge pages: no machine has set that many aside.
        let error = HostPages::huge(1 << 46).expect_err("2^25 huge pages").to_string();
        assert!(error.contains("33554432 huge pages"), "{error}");
    }
}
