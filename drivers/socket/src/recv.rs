//! The receiving end: datagrams into packet buffers, with the headers that they had on the wire.

use std::fmt;
use std::io;
use std::iter;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::header::{self, HeaderSpec};
use tensorwire_core::port::{PacketMemory, RxQueue};

use crate::gro::{GroupStats, Groups};
use crate::pool::{Free, SocketPackets, SocketPool};
use crate::{HEADERS, OpenError, RING_BYTES, RxConfig, bound, sys};

/// Most datagrams of one system call.
pub const MESSAGES: usize = sys::MAX_MESSAGES;

/// What the receiving end owns between splits.
pub(crate) struct RxSide {
    socket: UdpSocket,
    local: SocketAddrV4,
    pool: Arc<SocketPool>,
    free: Vec<Free>,
    /// Buffers that the next call receives into.
    posted: Vec<Free>,
    headers: Headers,
    /// What the kernel puts together, where it is asked to.
    groups: Option<Groups>,
    /// Why it does not, where it was.
    refused: Option<io::Error>,
    wanted: usize,
    granted: usize,
    errors: u64,
    no_buffer: u64,
}

impl fmt::Debug for RxSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.free.len();
        f.debug_struct("RxSide").field("local", &self.local).field("free", &free).finish()
    }
}

impl RxSide {
    pub(crate) fn open(config: &RxConfig) -> Result<Self, OpenError> {
        Self::open_with(config, sys::coalesce)
    }

    /// The same, where `coalesce` asks the kernel for receive offload.
    pub(crate) fn open_with(
        config: &RxConfig,
        coalesce: impl FnOnce(&UdpSocket) -> io::Result<()>,
    ) -> Result<Self, OpenError> {
        let socket = bound(config.local)?;
        let local = match socket.local_addr() {
            Ok(std::net::SocketAddr::V4(local)) => local,
            _ => config.local,
        };
        let wanted = config.ring.saturating_mul(RING_BYTES);
        // The kernel doubles what it is asked for.
        let granted = sys::receive_buffer(&socket, wanted / 2);
        let made = SocketPool::new(config.buffers, config.frame_bytes.max(HEADERS));
        let (pool, free) = made.map_err(|error| OpenError {
            what: format!("{} packet buffers of {} bytes", config.buffers, config.frame_bytes),
            error,
        })?;
        let headers = Headers::new(local, pool.frame_bytes());
        let offload = config.offload.then(|| coalesce(&socket)).transpose();
        let (offload, refused) = match offload {
            Ok(offload) => (offload, None),
            Err(error) => (None, Some(error)),
        };
        let groups = offload.map(|()| Groups::new(free.len(), pool.frame_bytes()));
        Ok(Self {
            socket,
            local,
            pool: Arc::new(pool),
            free,
            posted: Vec::with_capacity(MESSAGES),
            headers,
            groups,
            refused,
            wanted,
            granted,
            errors: 0,
            no_buffer: 0,
        })
    }

    pub(crate) fn packets(&self) -> SocketPackets {
        SocketPackets(Arc::clone(&self.pool))
    }

    pub(crate) const fn local(&self) -> SocketAddrV4 {
        self.local
    }

    pub(crate) fn short_of_buffer(&self) -> Option<(usize, usize)> {
        (self.granted < self.wanted).then_some((self.wanted, self.granted))
    }

    #[cfg(test)]
    pub(crate) fn replace_groups(&mut self, groups: Groups) {
        self.groups = Some(groups);
    }

    pub(crate) const fn refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    pub(crate) fn group_stats(&self) -> Option<GroupStats> {
        self.groups.as_ref().map(|groups| groups.stats)
    }

    pub(crate) fn stats(&self) -> NicStats {
        NicStats {
            missed: sys::drops(&self.socket),
            errors: self.errors + self.groups.as_ref().map_or(0, |groups| groups.cut),
            no_buffer: self.no_buffer,
        }
    }

    fn free_buffers(&self) -> usize {
        let with_groups = self.groups.as_ref().map_or(0, Groups::buffers);
        self.free.len() + self.posted.len() + with_groups
    }

    /// At most one system call: up to `out.len()` packets. Returns how many, and whether there may
    /// be more.
    fn poll(&mut self, out: &mut [PacketDesc]) -> (usize, bool) {
        if self.groups.is_some() { self.poll_groups(out) } else { self.poll_datagrams(out) }
    }

    fn poll_groups(&mut self, out: &mut [PacketDesc]) -> (usize, bool) {
        let Some(groups) = &mut self.groups else { return (0, false) };
        let mut more = true;
        if !groups.waiting() {
            if self.free.len() + groups.buffers() == 0 {
                self.no_buffer += 1;
                return (0, false);
            }
            let received = groups.receive(&self.socket, &self.pool, &mut self.free);
            more = more_after(received, &mut self.errors);
        }
        let mut came = 0;
        for place in out {
            let packet = groups.packet(&self.pool, &mut self.free, &mut self.headers);
            let Some(packet) = packet else { break };
            *place = packet;
            came += 1;
        }
        if came == 0 && groups.waiting() {
            self.no_buffer += 1;
            more = false;
        }
        (came, more)
    }

    /// One datagram for each message.
    fn poll_datagrams(&mut self, out: &mut [PacketDesc]) -> (usize, bool) {
        let wanted = out.len().min(MESSAGES);
        while self.posted.len() < wanted
            && let Some(buffer) = self.free.pop()
        {
            self.posted.push(buffer);
        }
        let room = self.posted.len().min(wanted);
        if room == 0 {
            self.no_buffer += 1;
            return (0, false);
        }
        let mut datagrams = [sys::NOTHING; MESSAGES];
        let pool = &*self.pool;
        let parts = self.posted.iter_mut().take(room);
        let parts = parts.map(|buffer| iter::once(&mut pool.bytes_mut(buffer)[HEADERS..]));
        let received = sys::receive(&self.socket, parts, &mut datagrams[..room]);
        let came = received.as_ref().map_or(0, |came| *came);
        let more = more_after(received.map(|came| came == room), &mut self.errors);
        let received = self.posted.drain(..came).zip(&datagrams);
        for ((mut buffer, datagram), place) in received.zip(out) {
            let len = HEADERS + datagram.len;
            self.headers.write(datagram.from, len, pool.bytes_mut(&mut buffer));
            // A datagram has less than 2^16 bytes.
            *place = pool.publish(buffer, u32::try_from(len).unwrap_or(u32::MAX));
        }
        (came, more)
    }
}

/// Whether the socket may hold more, after a call that says so itself unless it failed.
fn more_after(received: io::Result<bool>, errors: &mut u64) -> bool {
    match received {
        Ok(more) => more,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
        Err(_) => {
            *errors += 1;
            false
        }
    }
}

/// The headers in front of the datagrams: those of the last one, since most are alike.
pub(crate) struct Headers {
    to: SocketAddrV4,
    from: SocketAddrV4,
    len: usize,
    /// A frame to build headers in, one byte longer than a buffer so that a longer datagram is told
    /// by its length as well.
    frame: Vec<u8>,
}

impl Headers {
    fn new(to: SocketAddrV4, frame_bytes: usize) -> Self {
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Self { to, from: nobody, len: 0, frame: vec![0; frame_bytes + 1] }
    }

    /// Writes the headers of a frame of `len` bytes to the front of `out`.
    #[inline]
    pub(crate) fn write(&mut self, from: SocketAddrV4, len: usize, out: &mut [u8]) {
        if from != self.from || len != self.len {
            self.build(from, len);
        }
        if let (Some(out), Some(headers)) = (out.get_mut(..HEADERS), self.frame.get(..HEADERS)) {
            out.copy_from_slice(headers);
        }
    }

    #[cold]
    fn build(&mut self, from: SocketAddrV4, len: usize) {
        (self.from, self.len) = (from, len);
        let spec = HeaderSpec {
            eth_src: [0; 6],
            eth_dst: [0; 6],
            ip_src: from.ip().octets(),
            ip_dst: self.to.ip().octets(),
            udp_src: from.port(),
            udp_dst: self.to.port(),
        };
        let len = len.min(self.frame.len());
        // A frame of at least the headers and at most a buffer and one byte can be built.
        let _ = self.frame.get_mut(..len).map(|frame| header::build(&spec, frame));
        // The checksum of other bytes than these; 0 says that there is none.
        if let Some(checksum) = self.frame.get_mut(HEADERS - 2..HEADERS) {
            checksum.fill(0);
        }
    }
}

/// The receiving end of a [`crate::SocketNic`].
#[derive(Debug)]
pub struct SocketRx<'n> {
    side: &'n mut RxSide,
}

impl<'n> SocketRx<'n> {
    pub(crate) fn new(side: &'n mut RxSide) -> Self {
        Self { side }
    }
}

impl PacketMemory for SocketRx<'_> {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.side.pool.bytes(packet)
    }
}

impl RxQueue for SocketRx<'_> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let mut came = 0;
        // Until the socket is empty: a deadline may fire after a burst that is not full.
        while let Some(rest) = out.get_mut(came..).filter(|rest| !rest.is_empty()) {
            let (more, full) = self.side.poll(rest);
            came += more;
            if !full {
                break;
            }
        }
        came
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        for packet in packets {
            // Never more than the pool has, which is the capacity of the vector.
            self.side.free.extend(self.side.pool.reclaim(packet.take()));
        }
    }

    fn free_buffers(&self) -> usize {
        self.side.free_buffers()
    }

    fn stats(&self) -> NicStats {
        self.side.stats()
    }
}
