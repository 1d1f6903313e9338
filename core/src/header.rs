//! Headers: Ethernet II, IPv4 and UDP, as we write them and as we read them.
//!
//! A frame begins with 14 bytes of Ethernet, 20 of IPv4 (no options) and 8 of UDP; filler follows
//! up to the payload offset. Nothing in front of the payload may move: what would shift it (a VLAN
//! tag, IPv4 options, a later fragment) is refused by name. All reading is safe for any bytes of
//! any length.
//!
//! The sequence number may lie on top of a header field. In the documented layout it replaces the
//! IPv4 total length, so the receiver never uses that length: a frame is as long as the NIC says.
//! Checksums that we write are right for the bytes as sent, the sequence included.
#![forbid(unsafe_code)]

use core::fmt;

mod checksum;
mod packet;
mod write;

#[cfg(test)]
mod tests;

pub use packet::{Accepted, Malformed, PacketCheck, Refused};
pub use write::{BuildError, HeaderSpec, build, mend_checksums, set_sequence};
pub(crate) use write::{Ipv4Front, read_ipv4_front, sequence_is_in_front, write_ipv4_front};

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of an IPv4 header without options.
const IPV4: usize = 20;
/// Bytes of the UDP header.
const UDP: usize = 8;
/// Where the UDP header begins.
const UDP_AT: usize = ETHERNET + IPV4;

/// Bytes of the Ethernet, IPv4 and UDP headers: no payload begins before.
pub const HEADERS_BYTES: u32 = 42;
const _: () = assert!(HEADERS_BYTES as usize == UDP_AT + UDP);

/// The longest frame: an IPv4 datagram of 65,535 bytes (its length is a 16-bit field) behind an
/// Ethernet header.
pub const MAX_FRAME_BYTES: u32 = 65_549;

/// IEEE 802 numbers of the protocols that we name.
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_VLAN: u16 = 0x8100; // 802.1Q
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8; // 802.1ad
/// Version 4, and a header of 5 × 4 bytes.
const VERSION_IHL: u8 = 0x45;
/// RFC 791 "More Fragments" and the fragment offset; "Don't Fragment" is not among them.
const FRAGMENT_MASK: u16 = 0x3fff;
const PROTOCOL_UDP: u8 = 17;

/// What the receiver checks of a frame's checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// Nothing: also frames whose sender let the sequence break its checksums are taken.
    #[default]
    None,
    /// The IPv4 header checksum.
    Ip,
    /// The IPv4 header checksum and, where there is one, the UDP checksum. It covers the payload,
    /// so it is checked only where this CPU can read the whole datagram: a frame in device memory,
    /// of which only the headers are readable, passes.
    Udp,
}

/// What matters of the headers of a UDP frame, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
    /// IPv4 total length as the header states it; the sequence number in the documented layout.
    pub ip_total_len: u16,
    /// UDP length as the header states it: header and data.
    pub udp_len: u16,
}

/// Why a frame is not a plain UDP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reject {
    /// It ends before its headers do.
    Short,
    /// It has an 802.1Q or 802.1ad tag: everything behind it is shifted.
    Vlan,
    /// It is not IPv4: ARP, IPv6, LLDP and whatever else a network carries.
    NotIpv4,
    /// Its IP version is not 4, or its header length is not 5 words: options, or nonsense.
    Ihl,
    /// It is a fragment: more follow, or it is not the first.
    Fragment,
    /// It is IPv4, but not UDP.
    NotUdp,
    /// A checksum does not fit.
    Checksum,
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the frame ends inside its headers",
            Self::Vlan => "the frame has a VLAN tag",
            Self::NotIpv4 => "the frame is not IPv4",
            Self::Ihl => "the IPv4 version is not 4 or its header length is not 20 bytes",
            Self::Fragment => "the frame is a fragment of an IPv4 datagram",
            Self::NotUdp => "the frame is IPv4 but not UDP",
            Self::Checksum => "the IPv4 or UDP checksum does not fit",
        })
    }
}

impl core::error::Error for Reject {}

/// Reads the headers of a frame of `frame_len` bytes, of which `bytes` are readable (all, or the
/// front). For any bytes there is exactly one answer; it never panics.
///
/// The order: Ethernet type (a tag is [`Reject::Vlan`], anything but IPv4 [`Reject::NotIpv4`]),
/// version and header length, fragment, protocol, checksums. Each is judged as soon as its header
/// is there, and [`Reject::Short`] is the answer where it is not.
///
/// # Errors
///
/// [`Reject`] for every frame that is not a whole, plain UDP frame.
#[inline]
pub fn classify(bytes: &[u8], frame_len: usize, verify: Verify) -> Result<UdpHeader, Reject> {
    // A buffer is longer than its frame: what lies behind the frame is of an earlier one.
    let bytes = bytes.get(..frame_len).unwrap_or(bytes);
    let header = parse(bytes)?;
    if verify != Verify::None && !checksum::fit(bytes, frame_len, verify) {
        return Err(Reject::Checksum);
    }
    Ok(header)
}

/// The headers, without checksums.
#[inline]
fn parse(bytes: &[u8]) -> Result<UdpHeader, Reject> {
    let (ethernet, bytes) = bytes.split_first_chunk::<ETHERNET>().ok_or(Reject::Short)?;
    let [.., type_high, type_low] = *ethernet;
    let ethertype = u16::from_be_bytes([type_high, type_low]);
    if ethertype != ETHERTYPE_IPV4 {
        let tagged = matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN);
        return Err(if tagged { Reject::Vlan } else { Reject::NotIpv4 });
    }
    let (ipv4, bytes) = bytes.split_first_chunk::<IPV4>().ok_or(Reject::Short)?;
    if ipv4[0] != VERSION_IHL {
        return Err(Reject::Ihl);
    }
    if u16::from_be_bytes([ipv4[6], ipv4[7]]) & FRAGMENT_MASK != 0 {
        return Err(Reject::Fragment);
    }
    if ipv4[9] != PROTOCOL_UDP {
        return Err(Reject::NotUdp);
    }
    let udp = bytes.first_chunk::<UDP>().ok_or(Reject::Short)?;
    Ok(UdpHeader {
        src_port: u16::from_be_bytes([udp[0], udp[1]]),
        dst_port: u16::from_be_bytes([udp[2], udp[3]]),
        ip_total_len: u16::from_be_bytes([ipv4[2], ipv4[3]]),
        udp_len: u16::from_be_bytes([udp[4], udp[5]]),
    })
}
