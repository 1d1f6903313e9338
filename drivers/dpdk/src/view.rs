//! Packets as this CPU sees them, and where a device finds them that reads what this CPU does not.

use std::ffi::c_void;
use std::ptr;

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::memory::DevicePackets;
use tensorwire_core::port::PacketMemory;
use tensorwire_core::time::Nanos;
use tensorwire_dpdk_sys as sys;
use tensorwire_kernels::prefetch;

use crate::pool::PacketPool;
use crate::stamp::Stamps;

/// How frames lie in the pools of a queue.
#[derive(Clone, Debug, Default)]
pub enum Headers {
    /// Whole, and this CPU reads them.
    #[default]
    InPlace,
    /// Their first bytes in the pool of the queue, which this CPU reads, the rest in another, which
    /// it may not read.
    Split {
        /// The pool of the rest.
        payloads: PacketPool,
        /// Bytes that are split off: all that lies in front of the payload.
        bytes: u16,
    },
    /// Whole, where this CPU reads nothing: somebody brings it their first bytes.
    Gathered,
}

impl Headers {
    /// Bytes of a frame that lie in a first buffer; 0: it lies in one.
    pub(crate) const fn split(&self) -> u16 {
        match self {
            Self::Split { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// The pool of the payloads, where it is one of its own.
    pub(crate) const fn payloads(&self) -> Option<&PacketPool> {
        match self {
            Self::Split { payloads, .. } => Some(payloads),
            _ => None,
        }
    }
}

/// Packets as this CPU sees them: the memory of those pools whose buffers a queue may hand over.
#[derive(Clone, Debug)]
pub struct PacketView {
    first: PacketPool,
    more: Vec<PacketPool>,
    headers: Headers,
    stamps: Option<Stamps>,
}

impl PacketView {
    /// A view of `pool`, and of `more` pools whose buffers come in as well (a ring device passes on
    /// the buffers of its sender).
    #[must_use]
    pub fn new(pool: PacketPool, more: Vec<PacketPool>) -> Self {
        Self { first: pool, more, headers: Headers::InPlace, stamps: None }
    }

    /// The same where frames lie otherwise.
    pub(crate) fn lying(self, headers: Headers) -> Self {
        Self { headers, ..self }
    }

    /// The same where a device stamps what it receives.
    pub(crate) fn stamped(self, stamps: Stamps) -> Self {
        Self { stamps: Some(stamps), ..self }
    }

    /// The pools of the mbufs that a burst hands over.
    pub fn pools(&self) -> impl Iterator<Item = &PacketPool> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// How frames lie in them.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Whether `packet` is of one of the pools.
    #[inline]
    pub(crate) fn owns(&self, packet: &PacketDesc) -> bool {
        let handle = packet.handle();
        self.first.owns(handle) || self.more.iter().any(|pool| pool.owns(handle))
    }

    /// Where the frame of `packet`, or its first part, begins, and how many bytes lie together
    /// there; of a packet that is not from these pools, nothing.
    #[inline]
    fn data(&self, packet: &PacketDesc) -> Option<(*const u8, usize)> {
        if !self.owns(packet) {
            return None;
        }
        // SAFETY: the handle is the address of an mbuf of a pool that this view keeps alive, and
        // the token says that its holder has it: `DpdkRx` claims one for each mbuf that a burst
        // gave it, and no other driver's handles are in the range of the pool's mbufs.
        let (data, len) = unsafe { sys::mbuf_data(mbuf(packet)) };
        debug_assert!(
            // A packet of no bytes lies nowhere.
            len == 0 || self.pools().any(|pool| pool.contains(data, data.wrapping_add(len))),
            "a packet outside our memory"
        );
        Some((data, len))
    }
}

impl PacketMemory for PacketView {
    /// As the trait has it; of a packet that is not from these pools, and of packets in memory that
    /// this CPU does not read, nothing.
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        if matches!(self.headers, Headers::Gathered) {
            return &[];
        }
        let Some((data, len)) = self.data(packet) else { return &[] };
        // SAFETY: the driver wrote `len` bytes there before it handed the mbuf over; they are in a
        // buffer that this CPU reads (a port is not opened otherwise) and that stays while the pool
        // does, and nothing writes to it while the token is out.
        unsafe { std::slice::from_raw_parts(data, len) }
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        let bytes = self.bytes(packet);
        prefetch(bytes.get(..self.first.read_bytes()).unwrap_or(bytes));
    }

    /// As the trait has it; of a device without stamps, and of a packet that is not from these
    /// pools, nothing.
    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        self.stamps.as_ref().filter(|_| self.owns(packet))?.of_packet(packet)
    }
}

// SAFETY: an mbuf has a buffer of its own as long as it is out, and buffers are numbered by where
// they lie. The memory is the device's own; a buffer in it is larger than a header, and the part of
// a split frame is checked to lie in it.
unsafe impl DevicePackets for PacketView {
    fn buffers(&self) -> usize {
        self.first.buffers()
    }

    #[inline]
    fn number(&self, packet: &PacketDesc) -> Option<usize> {
        let (data, _) = self.data(packet)?;
        self.first.number(data)
    }

    /// As the trait has it; of packets that this CPU reads whole, nothing.
    #[inline]
    fn address(&self, packet: &PacketDesc) -> Option<u64> {
        let (data, _) = self.data(packet)?;
        match &self.headers {
            Headers::InPlace => None,
            Headers::Gathered => Some(data.addr() as u64).filter(|at| *at > 0),
            Headers::Split { payloads, bytes } => {
                let mut len = 0;
                // SAFETY: as in `data`, of which this is the mbuf.
                let at = unsafe { sys::twd_second(mbuf(packet), &raw mut len) };
                let begin = ptr::without_provenance::<u8>(usize::try_from(at).ok()?);
                let inside = payloads.contains(begin, begin.wrapping_add(len as usize));
                at.checked_sub((*bytes).into()).filter(|at| *at > 0 && inside)
            }
        }
    }
}

/// The mbuf behind a token.
#[inline]
pub(crate) fn mbuf(packet: &PacketDesc) -> *mut c_void {
    // An address fits: it was one.
    ptr::with_exposed_provenance_mut(usize::try_from(packet.handle()).unwrap_or(0))
}
