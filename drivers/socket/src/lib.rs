//! UDP sockets of the kernel as a NIC: for machines without DPDK, and for what crosses a router.
//!
//! # What a packet looks like
//!
//! A UDP socket carries what lies behind the UDP header and nothing before it. In the routable
//! layout that is everything that a receiver needs: the sequence number begins at bit 336, the
//! first behind the 42 bytes of Ethernet, IPv4 and UDP. So the sender drops the first 42 bytes of a
//! frame and sends the rest as one datagram; the receiver puts a datagram at byte 42 of a packet
//! buffer and writes the headers before it that the frame had on the wire, as far as the kernel
//! tells them: addresses, ports and lengths are those of the datagram, the MAC addresses are zero,
//! the UDP checksum is 0 ("not computed", RFC 768), since the kernel has checked it. The core sees
//! frames of the one layout, with the same rules, flows and counters as from any NIC; and what goes
//! over the cable is the same as if a NIC had sent the frame, so the other end may be one. A layout
//! whose sequence number lies before byte 42 cannot be carried; the check of the configuration
//! refuses it.
//!
//! A raw packet socket would carry that too. It was not chosen because it needs privileges, crosses
//! no router, is handed a copy of everything on the interface, and has neither segmentation nor the
//! kernel's own checks; raw frames on a kernel interface are DPDK's `af_packet` device.
//!
//! # What is lost, and where it is counted
//!
//! The receive buffer of the socket takes the place of a NIC's descriptor ring ([`RING_BYTES`] for
//! each descriptor). A datagram that finds it full is dropped by the kernel and counted there;
//! [`SocketRx`] reads that counter (`SO_MEMINFO`) as `missed`. `SO_RXQ_OVFL` tells the same number,
//! but only with the next datagram that is received: what is dropped at the end of a stream would
//! never be seen. A datagram that is longer than a packet buffer arrives with its true length and
//! as many bytes as fit, and the core counts it as `long`.
//!
//! # System calls
//!
//! One `recvmmsg` moves up to [`MESSAGES`] datagrams into packet buffers, where the reorder stage
//! reads them; one `sendmmsg` takes up to [`STAGE`] frames, and with segmentation offload (GSO) one
//! message of it carries up to [`SEGMENTS`].
//!
//! Receive offload (GRO) is off unless it is asked for ([`RxConfig::offload`]): the kernel counts a
//! coalesced group that it drops as one (measured on Linux 6.18: 1,700 datagrams lost, 34 counted),
//! so `missed` is no longer the number of packets, and whoever reports it has to say so. With it a
//! message is a whole group, which the kernel cuts into packet buffers as it copies it out: nothing
//! is copied afterwards (the module `gro`). A kernel without it is asked once, and then datagrams
//! come one by one.

mod gro;
mod pool;
mod recv;
mod send;
mod sys;

use std::fmt;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

use tensorwire_core::counters::NicStats;

pub use gro::GroupStats;
pub use pool::{SocketPackets, SocketPool};
pub use recv::{MESSAGES, SocketRx};
pub use send::{SEGMENTS, STAGE, SocketTx};

/// Bytes of Ethernet, IPv4 and UDP headers in front of what a socket carries.
pub const HEADERS: usize = 42;

/// Bytes of a socket's receive buffer for each descriptor of the ring. The kernel charges its own
/// bookkeeping besides the bytes: 2,312 were measured for a datagram of 1,198 (Linux 6.18).
pub const RING_BYTES: usize = 2_560;

/// The receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxConfig {
    /// Own end point.
    pub local: SocketAddrV4,
    /// Packet buffers.
    pub buffers: u32,
    /// Bytes of a packet of the geometry, headers included.
    pub frame_bytes: usize,
    /// Datagrams that wait in the kernel.
    pub ring: usize,
    /// The kernel is asked to hand over in one piece what it has put together (`UDP_GRO`).
    pub offload: bool,
}

/// The sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxConfig {
    /// Own end point; any address and port where the kernel is to choose.
    pub local: SocketAddrV4,
    /// Where datagrams go.
    pub remote: SocketAddrV4,
    /// Bytes of a packet of the geometry, headers included: the way must take it whole.
    pub packet_bytes: usize,
    /// The longest frame that can be sent, headers included.
    pub frame_bytes: usize,
    /// Frames that wait for the kernel; at most [`STAGE`] are used.
    pub ring: usize,
}

/// Why a socket could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// What was tried, as `bind 10.0.0.1:5000`.
    pub what: String,
    /// What the system said.
    pub error: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The sockets of a run: one that receives, one that sends, or both.
#[derive(Debug)]
pub struct SocketNic {
    rx: Option<recv::RxSide>,
    tx: Option<send::TxSide>,
}

impl SocketNic {
    /// Opens the sockets and takes all memory. From here on the kernel keeps what arrives.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when an address cannot be bound, or when there is not that much memory.
    pub fn open(rx: Option<&RxConfig>, tx: Option<&TxConfig>) -> Result<Self, OpenError> {
        let rx = rx.map(recv::RxSide::open).transpose()?;
        let tx = tx.map(send::TxSide::open).transpose()?;
        Ok(Self { rx, tx })
    }

    /// Lends the ends that were opened.
    pub fn split(&mut self) -> (Option<SocketTx<'_>>, Option<SocketRx<'_>>) {
        let Self { rx, tx } = self;
        (tx.as_mut().map(SocketTx::new), rx.as_mut().map(SocketRx::new))
    }

    /// The packet memory, for those who read packets without having the queue; `None` without a
    /// receiving side.
    #[must_use]
    pub fn packets(&self) -> Option<SocketPackets> {
        self.rx.as_ref().map(recv::RxSide::packets)
    }

    /// Where the receiving socket is bound; the port is the kernel's choice where 0 was asked for.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddrV4> {
        self.rx.as_ref().map(recv::RxSide::local)
    }

    /// The interface that has the address on which is received; `None` without a receiving side,
    /// and where it receives on all of them.
    #[must_use]
    pub fn interface(&self) -> Option<String> {
        let ip = *self.local()?.ip();
        if ip.is_unspecified() { None } else { sys::interface_of(ip) }
    }

    /// Why the kernel refused receive offload, where it was asked for: datagrams come one by one
    /// then.
    #[must_use]
    pub fn offload_refused(&self) -> Option<&io::Error> {
        self.rx.as_ref().and_then(recv::RxSide::refused)
    }

    /// What came in groups; `None` without receive offload. Where this is `Some`, what counts as
    /// missed are groups and single datagrams alike.
    #[must_use]
    pub fn group_stats(&self) -> Option<GroupStats> {
        self.rx.as_ref().and_then(recv::RxSide::group_stats)
    }

    /// What the receiving socket counted; `None` without one.
    #[must_use]
    pub fn rx_stats(&self) -> Option<NicStats> {
        self.rx.as_ref().map(recv::RxSide::stats)
    }

    /// Bytes of receive buffer that were wanted and granted, where that is less: with a
    /// smaller `net.core.rmem_max` the kernel keeps fewer datagrams than the ring has descriptors.
    #[must_use]
    pub fn short_of_buffer(&self) -> Option<(usize, usize)> {
        self.rx.as_ref().and_then(recv::RxSide::short_of_buffer)
    }
}

/// A socket that is bound and never blocks.
fn bound(local: SocketAddrV4) -> Result<UdpSocket, OpenError> {
    let socket = UdpSocket::bind(local).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    socket.map_err(|error| OpenError { what: format!("bind {local}"), error })
}

/// Lets the kernel find the way to `remote` before the first frame is sent. Until a neighbour has
/// answered, the kernel keeps a few of its datagrams and silently drops the others: a stream that
/// begins at full rate would lose its beginning. So one empty datagram goes to a port where nobody
/// listens; the refusal that comes back says that the way is there. A host that does not answer
/// costs [`WAY`], and says nothing: the stream itself will tell.
fn find_way(from: SocketAddrV4, remote: SocketAddrV4) {
    let probe = SocketAddrV4::new(*remote.ip(), DISCARD);
    let asked = UdpSocket::bind(SocketAddrV4::new(*from.ip(), 0)).and_then(|socket| {
        socket.connect(probe)?;
        socket.set_read_timeout(Some(WAY))?;
        socket.send(&[])?;
        socket.recv(&mut [0])
    });
    // Every outcome is the same to us: the way was looked for.
    let _ = asked;
}

/// The port of the discard service (RFC 863), which nobody offers.
const DISCARD: u16 = 9;

/// The longest time for which an answer is waited for: a neighbour answers within a second.
pub const WAY: Duration = Duration::from_millis(1_000);

#[cfg(test)]
mod tests;
