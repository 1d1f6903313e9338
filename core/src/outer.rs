//! Headers in front of a frame's own: VLAN tags and tunnels, put there on the way out and taken off
//! on the way in. A NIC that can does it; this is the same in software, for every NIC that cannot.
//!
//! A tag is IEEE 802.1Q. Tunnels: VXLAN (RFC 7348), GRE (RFC 2784, without its optional fields) and
//! NVGRE (RFC 7637), all over IPv4 without options. Reading is safe for any bytes of any length.
#![forbid(unsafe_code)]

use crate::header::{Ipv4Front, read_ipv4_front, write_ipv4_front};

#[cfg(test)]
mod tests;

/// Bytes of two Ethernet addresses.
const ADDRESSES: usize = 12;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of Ethernet and IPv4.
const FRONT: usize = 34;
/// Bytes of a tag.
const TAG: usize = 4;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Bytes of a VXLAN or NVGRE header; that of GRE has half of them.
const LONG: usize = 8;
/// See [`LONG`].
const SHORT: usize = 4;
/// IEEE 802.1Q and 802.1ad.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_GRE: u8 = 47;
/// An Ethernet frame inside GRE: "transparent Ethernet bridging".
pub const BRIDGED: u16 = 0x6558;
/// An IPv4 packet inside GRE.
pub const ROUTED: u16 = 0x0800;
/// The VXLAN header's only flag: it has a network number.
const VXLAN_FLAGS: u8 = 0x08;
/// NVGRE is GRE with a key.
const NVGRE_FLAGS: [u8; 2] = [0x20, 0x00];
/// First of the ports that RFC 7348 recommends for the source.
const VXLAN_SOURCE: u16 = 0xc000;

/// A header in front of a frame's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// A VLAN tag: this one is put, any is taken off.
    Vlan(Tag),
    /// A tunnel.
    Tunnel(Tunnel),
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Its EtherType.
    pub ethertype: u16,
    /// Priority (3 bits), "may be dropped" (1) and VLAN number (12).
    pub control: u16,
}

/// A tunnel. Addresses that are absent are those of the frame itself when it is put, and any when
/// it is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Which one.
    pub kind: TunnelKind,
    /// Source of the outer Ethernet header.
    pub eth_src: Option<[u8; 6]>,
    /// Destination of the outer Ethernet header.
    pub eth_dst: Option<[u8; 6]>,
    /// Source of the outer IPv4 header.
    pub ip_src: Option<[u8; 4]>,
    /// Destination of the outer IPv4 header.
    pub ip_dst: Option<[u8; 4]>,
}

/// Kinds of tunnel. Numbers that are absent are 0 when it is put, and any when it is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// Ethernet over UDP.
    Vxlan {
        /// Number of the network, 24 bits.
        vni: Option<u32>,
        /// Outer source port; absent when it is put: 49152.
        udp_src: Option<u16>,
        /// Outer destination port.
        udp_dst: u16,
    },
    /// Ethernet ([`BRIDGED`]) or IPv4 ([`ROUTED`]) over IPv4. What is routed loses its own Ethernet
    /// header, and has the outer one when it is taken off.
    Gre {
        /// What is inside.
        protocol: u16,
    },
    /// Ethernet over GRE with a number.
    Nvgre {
        /// Number of the network, 24 bits.
        tni: Option<u32>,
        /// Number of the flow in it, which is not looked at.
        flow_id: u8,
    },
}

impl TunnelKind {
    /// Bytes between the outer IPv4 header and the inner frame or packet.
    const fn own_bytes(self) -> usize {
        match self {
            Self::Vxlan { .. } => UDP + LONG,
            Self::Gre { .. } => SHORT,
            Self::Nvgre { .. } => LONG,
        }
    }

    /// Whether the inner frame has an Ethernet header of its own.
    #[must_use]
    pub const fn bridges(self) -> bool {
        !matches!(self, Self::Gre { protocol } if protocol != BRIDGED)
    }
}

impl Outer {
    /// Bytes by which a frame grows with it.
    #[must_use]
    pub const fn grows(&self) -> usize {
        match self {
            Self::Vlan(_) => TAG,
            Self::Tunnel(tunnel) => {
                let own = FRONT + tunnel.kind.own_bytes();
                if tunnel.kind.bridges() { own } else { own - ETHERNET }
            }
        }
    }

    /// Bytes from the first of the frame to the first behind the header.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        match self {
            Self::Vlan(_) => ADDRESSES + TAG,
            Self::Tunnel(tunnel) => FRONT + tunnel.kind.own_bytes(),
        }
    }

    /// Puts the header in front of the frame that begins at byte [`Outer::grows`] of `frame`.
    /// False, and nothing written, when that has no headers of its own or is longer than IPv4
    /// allows.
    #[must_use]
    pub fn put(&self, frame: &mut [u8]) -> bool {
        match self {
            Self::Vlan(tag) => put_tag(*tag, frame).is_some(),
            Self::Tunnel(tunnel) => tunnel.put(self.grows(), frame).is_some(),
        }
    }

    /// Takes the header off: the frame begins that many bytes later then. `None`, and nothing
    /// changed, when it is not there.
    #[must_use]
    #[inline]
    pub fn take_off(&self, frame: &mut [u8]) -> Option<usize> {
        match self {
            Self::Vlan(_) => take_tag_off(frame),
            Self::Tunnel(tunnel) => tunnel.take_off(self.grows(), frame),
        }
    }
}

fn put_tag(tag: Tag, frame: &mut [u8]) -> Option<()> {
    let front = frame.first_chunk_mut::<{ ADDRESSES + TAG }>()?;
    front.copy_within(TAG.., 0);
    let [.., t0, t1, c0, c1] = front;
    [*t0, *t1] = tag.ethertype.to_be_bytes();
    [*c0, *c1] = tag.control.to_be_bytes();
    Some(())
}

#[inline]
fn take_tag_off(frame: &mut [u8]) -> Option<usize> {
    let front = frame.first_chunk_mut::<{ ADDRESSES + TAG }>()?;
    let [.., t0, t1, _, _] = *front;
    if !TAGS.contains(&u16::from_be_bytes([t0, t1])) {
        return None;
    }
    front.copy_within(..ADDRESSES, TAG);
    Some(TAG)
}

impl Tunnel {
    fn put(&self, grows: usize, frame: &mut [u8]) -> Option<()> {
        let inner = read_ipv4_front(frame.get(grows..)?)?;
        let protocol = match self.kind {
            TunnelKind::Vxlan { .. } => PROTOCOL_UDP,
            _ => PROTOCOL_GRE,
        };
        let front = Ipv4Front {
            eth_src: self.eth_src.unwrap_or(inner.eth_src),
            eth_dst: self.eth_dst.unwrap_or(inner.eth_dst),
            ip_src: self.ip_src.unwrap_or(inner.ip_src),
            ip_dst: self.ip_dst.unwrap_or(inner.ip_dst),
            protocol,
        };
        if !write_ipv4_front(&front, frame) {
            return None;
        }
        let own = frame.get_mut(FRONT..)?;
        match self.kind {
            TunnelKind::Vxlan { vni, udp_src, udp_dst } => {
                let len = u16::try_from(own.len()).ok()?;
                let (udp, vxlan) = own.split_first_chunk_mut::<UDP>()?;
                let words = [udp_src.unwrap_or(VXLAN_SOURCE), udp_dst, len, 0];
                put_words(udp, words); // checksum 0: none, as RFC 7348 asks
                let [n0, n1, n2] = number(vni);
                *vxlan.first_chunk_mut()? = [VXLAN_FLAGS, 0, 0, 0, n0, n1, n2, 0];
            }
            TunnelKind::Gre { protocol } => {
                let [p0, p1] = protocol.to_be_bytes();
                *own.first_chunk_mut()? = [0, 0, p0, p1];
            }
            TunnelKind::Nvgre { tni, flow_id } => {
                let ([f0, f1], [p0, p1]) = (NVGRE_FLAGS, BRIDGED.to_be_bytes());
                let [n0, n1, n2] = number(tni);
                *own.first_chunk_mut()? = [f0, f1, p0, p1, n0, n1, n2, flow_id];
            }
        }
        Some(())
    }

    #[inline]
    fn take_off(&self, grows: usize, frame: &mut [u8]) -> Option<usize> {
        let front = read_ipv4_front(frame)?;
        let same = self.eth_src.is_none_or(|mac| mac == front.eth_src)
            && self.eth_dst.is_none_or(|mac| mac == front.eth_dst)
            && self.ip_src.is_none_or(|ip| ip == front.ip_src)
            && self.ip_dst.is_none_or(|ip| ip == front.ip_dst);
        let own = frame.get(FRONT..)?;
        let ours = match self.kind {
            TunnelKind::Vxlan { vni, udp_src, udp_dst } => {
                let (udp, vxlan) = own.split_first_chunk::<UDP>()?;
                let [f, _, _, _, n0, n1, n2, _] = *vxlan.first_chunk::<LONG>()?;
                let [s0, s1, d0, d1, ..] = *udp;
                front.protocol == PROTOCOL_UDP
                    && u16::from_be_bytes([d0, d1]) == udp_dst
                    && udp_src.is_none_or(|port| port == u16::from_be_bytes([s0, s1]))
                    && f == VXLAN_FLAGS
                    && vni.is_none_or(|_| number(vni) == [n0, n1, n2])
            }
            TunnelKind::Gre { protocol } => {
                let [f0, f1, p0, p1] = *own.first_chunk::<SHORT>()?;
                front.protocol == PROTOCOL_GRE
                    && [f0, f1] == [0, 0]
                    && u16::from_be_bytes([p0, p1]) == protocol
            }
            TunnelKind::Nvgre { tni, .. } => {
                let [f0, f1, p0, p1, n0, n1, n2, _] = *own.first_chunk::<LONG>()?;
                front.protocol == PROTOCOL_GRE
                    && [f0, f1] == NVGRE_FLAGS
                    && u16::from_be_bytes([p0, p1]) == BRIDGED
                    && tni.is_none_or(|_| number(tni) == [n0, n1, n2])
            }
        };
        if !same || !ours {
            return None;
        }
        if !self.kind.bridges() {
            // The outer Ethernet header is the packet's from here on; both carry IPv4.
            let header = *frame.first_chunk::<ETHERNET>()?;
            *frame.get_mut(grows..)?.first_chunk_mut()? = header;
        }
        Some(grows)
    }
}

/// Four 16-bit numbers of a header.
fn put_words(header: &mut [u8; UDP], words: [u16; 4]) {
    for (place, word) in header.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
}

/// The lower 24 bits.
fn number(of: Option<u32>) -> [u8; 3] {
    let [_, bytes @ ..] = of.unwrap_or(0).to_be_bytes();
    bytes
}
