//! Memory of a region, whoever allocated it.
//!
//! A driver allocates memory that a device reaches; the pools that are built in it belong to other
//! crates. This is where the two meet: an owned piece of memory, with its kind.
#![allow(unsafe_code)] // a trait whose implementors make a promise about memory

use core::fmt;
use core::ptr::NonNull;

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Plain host memory.
    Host,
    /// Huge pages of the host.
    Huge,
    /// Host memory that does not move, which a GPU reads and writes in place.
    HostPinned,
    /// Memory of a GPU, which the CPU cannot read.
    Device,
    /// Memory that moves between CPU and GPU, page by page.
    Managed,
}

impl MemoryKind {
    /// The word of a configuration; `managed` is none.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Huge => "huge",
            Self::HostPinned => "host_pinned",
            Self::Device => "device",
            Self::Managed => "managed",
        }
    }

    /// Whether the CPU can read and write it.
    #[must_use]
    pub const fn on_host(self) -> bool {
        !matches!(self, Self::Device)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An owned piece of memory that the CPU can read and write.
///
/// # Safety
///
/// From the time the value exists until it is dropped, `len` bytes from `base` on are valid for
/// reads and writes by any thread, do not move, were initialised, and are used by nobody else in
/// this process, unless who has the value lets them. `base` is a multiple of 4096.
pub unsafe trait HostMemory: fmt::Debug + Send + Sync {
    /// Its first byte.
    fn base(&self) -> NonNull<u8>;

    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it is.
    fn kind(&self) -> MemoryKind;
}

#[cfg(test)]
mod tests {
    use super::MemoryKind;

    #[test]
    fn only_device_memory_is_out_of_reach() {
        use MemoryKind::{Device, Host, HostPinned, Huge, Managed};
        let out = [Host, Huge, HostPinned, Device, Managed].map(|kind| !kind.on_host());
        assert_eq!(out, [false, false, false, true, false]);
        assert_eq!(MemoryKind::HostPinned.to_string(), "host_pinned");
    }
}
