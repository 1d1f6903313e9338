//! Writing headers: a new frame, and a frame whose sequence number changes.

use core::fmt;
use core::ops::Range;

use super::checksum::{IPV4_CHECKSUM, UDP_CHECKSUM, fold, ipv4_checksum, mended, udp_checksum};
use super::{
    ETHERNET, ETHERTYPE_IPV4, FRAGMENT_MASK, HEADERS_BYTES, IPV4, MAX_FRAME_BYTES, PROTOCOL_UDP,
    UDP, UDP_AT, VERSION_IHL,
};
use crate::bits::BitField;

/// Addresses and ports of a frame that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSpec {
    /// Ethernet source address.
    pub eth_src: [u8; 6],
    /// Ethernet destination address.
    pub eth_dst: [u8; 6],
    /// IPv4 source address.
    pub ip_src: [u8; 4],
    /// IPv4 destination address.
    pub ip_dst: [u8; 4],
    /// UDP source port.
    pub udp_src: u16,
    /// UDP destination port.
    pub udp_dst: u16,
}

/// Why a frame was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// It has no room for the headers.
    TooShort {
        /// Bytes of the frame.
        len: usize,
        /// Bytes of the headers.
        min: u32,
    },
    /// Its length does not fit the IPv4 header.
    TooLong {
        /// Bytes of the frame.
        len: usize,
        /// Bytes of the longest frame.
        max: u32,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { len, min } => {
                write!(f, "a frame of {len} bytes has no room for headers of {min} bytes")
            }
            Self::TooLong { len, max } => {
                write!(f, "a frame of {len} bytes is longer than IPv4 allows ({max})")
            }
        }
    }
}

impl core::error::Error for BuildError {}

/// Time to live of the frames that we write.
const TTL: u8 = 64;
/// "Don't Fragment": a fragment would be refused, so no router may make one.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];

/// Writes the Ethernet, IPv4 and UDP headers into the first 42 bytes of `frame`, with lengths for
/// the whole of it and checksums for its bytes as they are. Filler and payload are the caller's,
/// and are there already: the UDP checksum covers them. A sequence number is written afterwards,
/// by [`set_sequence`].
///
/// # Errors
///
/// [`BuildError`] when the frame is shorter than the headers or longer than IPv4 allows; nothing
/// is written then.
pub fn build(spec: &HeaderSpec, frame: &mut [u8]) -> Result<(), BuildError> {
    let len = frame.len();
    let too_short = BuildError::TooShort { len, min: HEADERS_BYTES };
    let too_long = BuildError::TooLong { len, max: MAX_FRAME_BYTES };
    parts(frame).ok_or(too_short)?;
    let HeaderSpec { eth_src, eth_dst, ip_src, ip_dst, .. } = *spec;
    let front = Ipv4Front { eth_src, eth_dst, ip_src, ip_dst, protocol: PROTOCOL_UDP };
    if !write_ipv4_front(&front, frame) {
        return Err(too_long);
    }
    let (_, ipv4, udp) = parts(frame).ok_or(too_short)?;
    let udp_len = u16::try_from(udp.len()).map_err(|_| too_long)?;
    if let Some(header) = udp.first_chunk_mut::<UDP>() {
        header[..2].copy_from_slice(&spec.udp_src.to_be_bytes());
        header[2..4].copy_from_slice(&spec.udp_dst.to_be_bytes());
        header[4..6].copy_from_slice(&udp_len.to_be_bytes());
    }
    put_udp_checksum(ipv4, udp);
    Ok(())
}

/// What of Ethernet and IPv4 tells one frame from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipv4Front {
    pub(crate) eth_src: [u8; 6],
    pub(crate) eth_dst: [u8; 6],
    pub(crate) ip_src: [u8; 4],
    pub(crate) ip_dst: [u8; 4],
    pub(crate) protocol: u8,
}

/// The front of an IPv4 frame without options that is no fragment; its lengths and its checksum are
/// not looked at. `None` for any other.
#[inline]
pub(crate) fn read_ipv4_front(frame: &[u8]) -> Option<Ipv4Front> {
    let (ethernet, rest) = frame.split_first_chunk::<ETHERNET>()?;
    let ipv4 = rest.first_chunk::<IPV4>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *ethernet;
    let [version, _, _, _, _, _, f0, f1, _, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = *ipv4;
    let plain = u16::from_be_bytes([t0, t1]) == ETHERTYPE_IPV4
        && version == VERSION_IHL
        && u16::from_be_bytes([f0, f1]) & FRAGMENT_MASK == 0;
    plain.then_some(Ipv4Front {
        eth_src: [s0, s1, s2, s3, s4, s5],
        eth_dst: [d0, d1, d2, d3, d4, d5],
        ip_src: [a0, a1, a2, a3],
        ip_dst: [b0, b1, b2, b3],
        protocol,
    })
}

/// Writes Ethernet and IPv4 headers for the whole of `frame`. False, and nothing written, when it
/// is too short or too long for them.
pub(crate) fn write_ipv4_front(front: &Ipv4Front, frame: &mut [u8]) -> bool {
    let Some((ethernet, rest)) = frame.split_first_chunk_mut::<ETHERNET>() else { return false };
    let Ok(ip_len) = u16::try_from(rest.len()) else { return false };
    let Some(ipv4) = rest.first_chunk_mut::<IPV4>() else { return false };
    ethernet[..6].copy_from_slice(&front.eth_dst);
    ethernet[6..12].copy_from_slice(&front.eth_src);
    ethernet[12..].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
    *ipv4 = [0; IPV4]; // type of service, identification: 0
    ipv4[0] = VERSION_IHL;
    ipv4[2..4].copy_from_slice(&ip_len.to_be_bytes());
    ipv4[6..8].copy_from_slice(&DONT_FRAGMENT);
    ipv4[8] = TTL;
    ipv4[9] = front.protocol;
    ipv4[12..16].copy_from_slice(&front.ip_src);
    ipv4[16..].copy_from_slice(&front.ip_dst);
    put_ipv4_checksum(ipv4);
    true
}

/// Writes the sequence number (its lower bits, as many as the field has) and mends each checksum
/// that this breaks: the IPv4 header checksum is made anew, the UDP checksum is corrected by what
/// changed, so the payload is not read. A checksum that the field itself lies on is left to hold
/// the sequence, and a UDP checksum of 0 ("none") stays.
///
/// A checksum that was wrong before is only right afterwards if it was made anew; for frames of
/// unknown origin call [`mend_checksums`] once.
///
/// False, and nothing written, when the frame is shorter than its headers or than the field.
#[must_use]
#[inline]
pub fn set_sequence(frame: &mut [u8], field: BitField, value: u32) -> bool {
    let Some(stored) = udp_checksum_field(frame) else { return false };
    let touched = field.first_byte()..field.end_byte();
    let before = udp_sum_of(frame, &touched);
    if !field.write(frame, value) {
        return false;
    }
    let after = udp_sum_of(frame, &touched);
    let Some((_, ipv4, udp)) = parts(frame) else { return false };
    if meets(&touched, ETHERNET, IPV4) && !meets(&touched, ETHERNET + IPV4_CHECKSUM, 2) {
        put_ipv4_checksum(ipv4);
    }
    if stored == 0 || meets(&touched, UDP_AT + UDP_CHECKSUM, 2) {
        return true;
    }
    if meets(&touched, UDP_AT + 4, 2) {
        put_udp_checksum(ipv4, udp); // another length: another part of the frame is covered
    } else {
        let checksum = mended(stored, before, after);
        let checksum = if checksum == 0 { u16::MAX } else { checksum };
        put(udp, UDP_CHECKSUM, checksum);
    }
    true
}

/// Whether [`set_sequence`], and reading the field, does to the first `front` bytes of any longer
/// frame what it does to the whole. Not where the field lies on the UDP length: the checksum then
/// covers another part of the payload, and is made anew.
pub(crate) const fn sequence_is_in_front(field: BitField, front: usize) -> bool {
    let touched = field.first_byte()..field.end_byte();
    front >= UDP_AT + UDP && touched.end <= front && !meets(&touched, UDP_AT + 4, 2)
}

/// Makes both checksums anew for the bytes as they are. A UDP checksum of 0 ("none") stays; it
/// becomes 0 where the UDP length cannot be. Not for a sequence field that lies on a checksum: it
/// would be overwritten.
///
/// False, and nothing written, when the frame is shorter than its headers.
#[must_use]
pub fn mend_checksums(frame: &mut [u8]) -> bool {
    let Some(stored) = udp_checksum_field(frame) else { return false };
    let Some((_, ipv4, udp)) = parts(frame) else { return false };
    put_ipv4_checksum(ipv4);
    if stored != 0 {
        put_udp_checksum(ipv4, udp);
    }
    true
}

/// The Ethernet header, the IPv4 header, and UDP to the end of the frame, which is at least the
/// UDP header.
#[inline]
fn parts(frame: &mut [u8]) -> Option<(&mut [u8; ETHERNET], &mut [u8; IPV4], &mut [u8])> {
    let (ethernet, rest) = frame.split_first_chunk_mut::<ETHERNET>()?;
    let (ipv4, udp) = rest.split_first_chunk_mut::<IPV4>()?;
    (udp.len() >= UDP).then_some((ethernet, ipv4, udp))
}

/// The UDP checksum as the frame has it; `None` where the headers are cut.
#[inline]
fn udp_checksum_field(frame: &[u8]) -> Option<u16> {
    let udp = frame.get(UDP_AT..)?.first_chunk::<UDP>()?;
    Some(u16::from_be_bytes([udp[UDP_CHECKSUM], udp[UDP_CHECKSUM + 1]]))
}

/// Whether `touched` has a byte of the `len` bytes from `at` on.
#[inline]
const fn meets(touched: &Range<usize>, at: usize, len: usize) -> bool {
    touched.start < at + len && at < touched.end
}

/// What the bytes of `touched` add to the UDP sum: those of the pseudo header (protocol and
/// addresses, all at their own parity) and those of the datagram.
#[inline]
fn udp_sum_of(frame: &[u8], touched: &Range<usize>) -> u16 {
    let udp_len = match frame.get(UDP_AT + 4..UDP_AT + 6) {
        Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    };
    let covered = |at: usize| {
        at == ETHERNET + 9 || (at >= ETHERNET + 12 && at < UDP_AT.saturating_add(udp_len))
    };
    let bytes = frame.get(touched.clone()).unwrap_or_default();
    let mut sum = 0u64;
    for (at, byte) in touched.clone().zip(bytes) {
        if covered(at) {
            let word = if at % 2 == 0 { u64::from(*byte) << 8 } else { u64::from(*byte) };
            sum = sum.wrapping_add(word);
        }
    }
    fold(sum)
}

#[inline]
fn put_ipv4_checksum(ipv4: &mut [u8; IPV4]) {
    let checksum = ipv4_checksum(ipv4);
    put(ipv4, IPV4_CHECKSUM, checksum);
}

/// `udp` begins with the UDP header.
#[inline]
fn put_udp_checksum(ipv4: &[u8; IPV4], udp: &mut [u8]) {
    let checksum = udp_checksum(ipv4, udp).unwrap_or(0);
    put(udp, UDP_CHECKSUM, checksum);
}

/// Writes a big-endian number at `at`; nothing where there is no room.
#[inline]
fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *place = value.to_be_bytes();
    }
}
