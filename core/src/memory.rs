//! Memory of a region, whoever allocated it.
//!
//! A driver allocates memory that a device reaches; the pools that are built in it belong to other
//! crates. This is where the two meet: an owned piece of memory, with its kind. Memory that this
//! CPU reads is [`HostMemory`]; memory that only devices reach is [`DeviceMemory`], which has an
//! address and no pointer.
#![allow(unsafe_code)] // traits whose implementors make a promise about memory

use core::fmt;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use crate::burst::PacketDesc;

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

/// An owned piece of memory that devices reach and this CPU does not touch: a NIC writes there, a
/// GPU reads there.
///
/// # Safety
///
/// From the time the value exists until it is dropped, `len` bytes from `base` on are addresses of
/// this process that belong to this memory alone and do not move; a device that they are given to
/// by these addresses may read and write there. Nobody else in this process has them used, unless
/// who has the value lets them. Nothing is promised to the CPU: it may neither read nor write
/// there. `base` and `len` are multiples of `page_bytes`.
pub unsafe trait DeviceMemory: fmt::Debug + Send + Sync {
    /// The address of its first byte: to be handed on, never to be followed.
    fn base(&self) -> NonZeroUsize;

    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a page, a power of two and at least 4096: as what it is made known to a NIC.
    fn page_bytes(&self) -> usize;
}

/// The packets of a NIC that writes them to a [`DeviceMemory`], for those who tell another device
/// where they lie.
///
/// # Safety
///
/// Of two packets that exist at the same time and have numbers, the numbers differ. As long as a
/// packet exists, the device can read its frame at its address; of a frame whose headers are
/// elsewhere, what lies behind them; of any other at least [`crate::limits::HEADER_BYTES`] bytes,
/// however short the frame is.
pub unsafe trait DevicePackets {
    /// How many packet buffers there are.
    fn buffers(&self) -> usize;

    /// The number of a packet's buffer, below [`DevicePackets::buffers`]; `None` for one of another
    /// NIC.
    fn number(&self, packet: &PacketDesc) -> Option<usize>;

    /// The address of its frame as the device sees it, never 0. Where the NIC puts headers
    /// elsewhere it is that from which the payload is as far as in a whole frame, and nothing in
    /// front of the payload is the packet's. `None` for a packet of another NIC, and for one that
    /// has no payload there.
    fn address(&self, packet: &PacketDesc) -> Option<u64>;
}

// SAFETY: the promise of what is borrowed, handed on.
unsafe impl<D: DevicePackets + ?Sized> DevicePackets for &D {
    fn buffers(&self) -> usize {
        (**self).buffers()
    }

    fn number(&self, packet: &PacketDesc) -> Option<usize> {
        (**self).number(packet)
    }

    fn address(&self, packet: &PacketDesc) -> Option<u64> {
        (**self).address(packet)
    }
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
