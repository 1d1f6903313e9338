//! The Internet checksum: the one's complement of the one's complement sum of all 16-bit words
//! (RFC 1071), for the IPv4 header (RFC 791) and for UDP with its pseudo header (RFC 768).

use super::{ETHERNET, IPV4, PROTOCOL_UDP, UDP, Verify};

/// Where the checksum lies in an IPv4 header.
pub(super) const IPV4_CHECKSUM: usize = 10;
/// Where the checksum lies in a UDP header.
pub(super) const UDP_CHECKSUM: usize = 6;

/// Folds the carries of a sum of 16-bit words back in.
#[inline]
pub(super) fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32); // at most 0x1_ffff_fffe
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32); // at most 0x1_fffe
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from(sum).unwrap_or(u16::MAX) // 16 bits are left
}

/// The one's complement sum of `bytes` as big-endian 16-bit words; an odd last byte is the upper
/// half of its word.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u16 {
    // The sum does not care for byte order as long as it is one and the same (RFC 1071, 2(B)), nor
    // for the word size. 2^32 words of 32 bits are no overflow.
    let (words, rest) = bytes.as_chunks::<4>();
    let sum =
        words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from(u32::from_ne_bytes(*word))));
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    fold(sum.wrapping_add(u64::from(u32::from_ne_bytes(last)))).to_be()
}

/// The sum of the UDP pseudo header: addresses, protocol, UDP length. The IPv4 total length is not
/// part of it, so a sequence number there does not touch UDP.
#[inline]
fn pseudo_header_sum(ipv4: &[u8; IPV4], udp_len: u16) -> u64 {
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *ipv4;
    u64::from(sum(&[s0, s1, s2, s3, d0, d1, d2, d3])) + u64::from(PROTOCOL_UDP) + u64::from(udp_len)
}

/// The IPv4 header checksum for these bytes, whatever their checksum field holds.
#[inline]
pub(super) fn ipv4_checksum(ipv4: &[u8; IPV4]) -> u16 {
    let mut ipv4 = *ipv4;
    ipv4[IPV4_CHECKSUM] = 0;
    ipv4[IPV4_CHECKSUM + 1] = 0;
    !sum(&ipv4)
}

/// The UDP length field, and the datagram of that length, header included. `None` where the length
/// is less than the header's or reaches beyond `bytes`.
#[inline]
fn datagram(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let header = bytes.first_chunk::<UDP>()?;
    let len = u16::from_be_bytes([header[4], header[5]]);
    let datagram = bytes.get(..usize::from(len)).filter(|datagram| datagram.len() >= UDP)?;
    Some((len, datagram))
}

/// The UDP checksum for these bytes (`bytes` begins with the UDP header), whatever their checksum
/// field holds; never 0, which means "no checksum". `None` where the UDP length cannot be.
#[inline]
pub(super) fn udp_checksum(ipv4: &[u8; IPV4], bytes: &[u8]) -> Option<u16> {
    let (len, datagram) = datagram(bytes)?;
    let (header, data) = datagram.split_first_chunk::<UDP>()?;
    let [ports_and_len @ .., _, _] = *header;
    let checksum =
        !fold(pseudo_header_sum(ipv4, len) + u64::from(sum(&ports_and_len)) + u64::from(sum(data)));
    Some(if checksum == 0 { u16::MAX } else { checksum })
}

/// A checksum after the 16-bit words that summed up to `before` were replaced by words that sum up
/// to `after` (RFC 1624, equation 3).
#[inline]
pub(super) fn mended(checksum: u16, before: u16, after: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!before) + u64::from(after))
}

/// Whether the checksums of a UDP frame of `frame_len` bytes fit, as far as `verify` asks.
#[inline(never)] // off the usual path, and the check of a frame is better without it
pub(super) fn fit(bytes: &[u8], frame_len: usize, verify: Verify) -> bool {
    let Some((_, behind_ethernet)) = bytes.split_first_chunk::<ETHERNET>() else { return false };
    let Some((ipv4, udp)) = behind_ethernet.split_first_chunk::<IPV4>() else { return false };
    match verify {
        Verify::None => true,
        Verify::Ip => sum(ipv4) == u16::MAX,
        Verify::Udp if planted!(UdpUnchecked) => sum(ipv4) == u16::MAX,
        Verify::Udp => sum(ipv4) == u16::MAX && udp_fits(ipv4, udp, bytes.len() < frame_len),
    }
}

/// Whether the UDP checksum fits; `cut` when `bytes` is not all of the frame.
fn udp_fits(ipv4: &[u8; IPV4], bytes: &[u8], cut: bool) -> bool {
    let Some(header) = bytes.first_chunk::<UDP>() else { return false };
    if header[UDP_CHECKSUM] == 0 && header[UDP_CHECKSUM + 1] == 0 {
        return true; // RFC 768: the sender made none
    }
    match datagram(bytes) {
        // Over right bytes, checksum included, the sum is all ones.
        Some((len, datagram)) => {
            fold(pseudo_header_sum(ipv4, len) + u64::from(sum(datagram))) == u16::MAX
        }
        None => cut,
    }
}
