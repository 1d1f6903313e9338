//! The sending end: frames without their first 42 bytes, as datagrams.

use std::fmt;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};

use tensorwire_core::counters::TxStats;
use tensorwire_core::port::{SendError, TxQueue};

use crate::{HEADERS, OpenError, TxConfig, bound, find_way, sys};

/// Frames that wait for the kernel at most.
pub const STAGE: usize = sys::MAX_PIECES;

/// Datagrams of one message at most (`UDP_MAX_SEGMENTS` of the kernel).
pub const SEGMENTS: usize = 64;

/// Bytes of a message at most: an IPv4 packet without its IPv4 and UDP headers.
const MESSAGE_BYTES: usize = 65_535 - 28;

/// Bytes of a MAC header.
const ETHERNET: usize = 14;

/// What the sending end owns between splits.
pub(crate) struct TxSide {
    socket: UdpSocket,
    remote: SocketAddrV4,
    frame_bytes: usize,
    /// Frames in the order in which they are sent: a ring of places, `frame_bytes` apart.
    frames: Vec<u8>,
    lens: Vec<usize>,
    head: usize,
    staged: usize,
    /// Whether the kernel cuts large messages into datagrams.
    segments: bool,
    sent: u64,
}

impl fmt::Debug for TxSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let staged = self.staged;
        f.debug_struct("TxSide").field("remote", &self.remote).field("staged", &staged).finish()
    }
}

impl TxSide {
    pub(crate) fn open(config: &TxConfig) -> Result<Self, OpenError> {
        let socket = bound(config.local)?;
        fits(config)?;
        find_way(config.local, config.remote);
        let segments = sys::segments(&socket);
        let places = config.ring.clamp(1, STAGE);
        let frames = vec![0; places * config.frame_bytes];
        let lens = vec![0; places];
        Ok(Self {
            socket,
            remote: config.remote,
            frame_bytes: config.frame_bytes,
            frames,
            lens,
            head: 0,
            staged: 0,
            segments,
            sent: 0,
        })
    }

    fn place(&self, index: usize) -> usize {
        (self.head + index) % self.lens.len()
    }

    /// What the socket carries of the staged frame.
    fn piece(&self, index: usize) -> &[u8] {
        let place = self.place(index);
        let (start, len) = (place * self.frame_bytes, self.lens[place]);
        self.frames[start..start + len].get(HEADERS..).unwrap_or(&[])
    }

    /// How many of the frames from `index` on make one message, and the bytes of each.
    fn group(&self, index: usize) -> (usize, u16) {
        let bytes = self.piece(index).len();
        let most = if self.segments { SEGMENTS.min(MESSAGE_BYTES / bytes.max(1)) } else { 1 };
        let end = self.staged.min(index + most.max(1));
        let alike = (index + 1..end).take_while(|next| self.piece(*next).len() == bytes).count();
        (1 + alike, u16::try_from(bytes).unwrap_or(u16::MAX))
    }

    /// Hands as many of the staged frames to the kernel as it takes.
    fn push(&mut self) {
        while self.staged > 0 {
            let mut sizes = [(0, 0); sys::MAX_MESSAGES];
            let mut at = 0;
            for size in &mut sizes {
                if at == self.staged {
                    break;
                }
                *size = self.group(at);
                at += size.0;
            }
            let groups = sizes.iter().copied().take_while(|size| size.0 > 0);
            let pieces = (0..at).map(|index| self.piece(index));
            match sys::send(&self.socket, self.remote, pieces, groups) {
                Ok(taken) => {
                    let frames: usize = sizes.iter().take(taken).map(|size| size.0).sum();
                    self.head = self.place(frames);
                    self.staged -= frames;
                    if taken == 0 {
                        return;
                    }
                }
                Err(error) if self.goes_on(&error, sizes[0].0) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether to try again at once. Everything else is tried again later: a full queue, and a link
    /// or a neighbour that is not there, since it may come back; a sender that gets nowhere is
    /// stopped by its own stall detector.
    fn goes_on(&mut self, error: &io::Error, size: usize) -> bool {
        match error.raw_os_error() {
            Some(libc::EINTR) => true,
            // A device that cannot segment, or a way that is too narrow for the segments.
            Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if size > 1 => {
                self.segments = false;
                true
            }
            _ => false,
        }
    }
}

/// Refuses a way that is too narrow for a packet: the kernel would send it in fragments, and of a
/// fragment that is lost it says nothing.
fn fits(config: &TxConfig) -> Result<(), OpenError> {
    let what = || format!("the way to {}", config.remote);
    let mtu = sys::mtu(config.remote).map_err(|error| OpenError { what: what(), error })?;
    let bytes = config.packet_bytes.saturating_sub(ETHERNET);
    if bytes <= mtu {
        return Ok(());
    }
    let error = format!(
        "takes IP packets of {mtu} bytes (MTU); a frame without its MAC header has {bytes}"
    );
    Err(OpenError { what: what(), error: io::Error::new(io::ErrorKind::InvalidInput, error) })
}

/// The sending end of a [`crate::SocketNic`].
#[derive(Debug)]
pub struct SocketTx<'n> {
    side: &'n mut TxSide,
}

impl<'n> SocketTx<'n> {
    pub(crate) fn new(side: &'n mut TxSide) -> Self {
        Self { side }
    }
}

impl TxQueue for SocketTx<'_> {
    fn room(&mut self) -> usize {
        if self.side.staged == self.side.lens.len() {
            self.side.push();
        }
        self.side.lens.len() - self.side.staged
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let side = &mut *self.side;
        if len > side.frame_bytes {
            return Err(SendError::TooLong { len, room: side.frame_bytes });
        }
        if side.staged == side.lens.len() {
            return Err(SendError::Full);
        }
        let place = side.place(side.staged);
        let start = place * side.frame_bytes;
        fill(&mut side.frames[start..start + len]);
        side.lens[place] = len;
        side.staged += 1;
        side.sent += 1;
        Ok(())
    }

    fn flush(&mut self) {
        self.side.push();
    }

    fn finish(&mut self) -> bool {
        self.side.push();
        self.side.staged == 0
    }

    fn stats(&self) -> TxStats {
        TxStats { sent: self.side.sent, ..TxStats::default() }
    }
}
