//! What the sequence field lies on top of.

use core::fmt;

use crate::bits::BitField;
use crate::header::Verify;

/// A field of the Ethernet, IPv4 or UDP header, or the filler behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// Ethernet destination address, bits 0 to 47.
    EthDst,
    /// Ethernet source address, bits 48 to 95.
    EthSrc,
    /// Ethernet type, bits 96 to 111.
    EtherType,
    /// IPv4 version and header length (IHL), bits 112 to 119.
    Ipv4Version,
    /// IPv4 type of service, bits 120 to 127.
    TypeOfService,
    /// IPv4 total length, bits 128 to 143: the documented place.
    TotalLength,
    /// IPv4 identification, bits 144 to 159.
    Id,
    /// IPv4 flags and fragment offset, bits 160 to 175.
    Fragment,
    /// IPv4 time to live, bits 176 to 183.
    Ttl,
    /// IPv4 protocol, bits 184 to 191.
    Protocol,
    /// IPv4 header checksum, bits 192 to 207.
    HeaderChecksum,
    /// IPv4 source address, bits 208 to 239.
    SrcAddr,
    /// IPv4 destination address, bits 240 to 271.
    DstAddr,
    /// UDP source port, bits 272 to 287.
    UdpSrcPort,
    /// UDP destination port, bits 288 to 303.
    UdpDstPort,
    /// UDP length, bits 304 to 319.
    UdpLength,
    /// UDP checksum, bits 320 to 335.
    UdpChecksum,
    /// Bytes of no protocol between the UDP header and the payload, from bit 336 on.
    Filler,
}

/// What it means that the sequence field lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the bits are free.
    Free,
    /// Frames arrive, but something on the way may not like them.
    Note,
    /// The receiver could not tell its own frames from others: to be refused.
    Breaks,
}

/// Each field with the number of its first bit; it ends where the next one begins.
const FIELDS: [(u32, Overlap); 18] = [
    (0, Overlap::EthDst),
    (48, Overlap::EthSrc),
    (96, Overlap::EtherType),
    (112, Overlap::Ipv4Version),
    (120, Overlap::TypeOfService),
    (128, Overlap::TotalLength),
    (144, Overlap::Id),
    (160, Overlap::Fragment),
    (176, Overlap::Ttl),
    (184, Overlap::Protocol),
    (192, Overlap::HeaderChecksum),
    (208, Overlap::SrcAddr),
    (240, Overlap::DstAddr),
    (272, Overlap::UdpSrcPort),
    (288, Overlap::UdpDstPort),
    (304, Overlap::UdpLength),
    (320, Overlap::UdpChecksum),
    (336, Overlap::Filler),
];

impl Overlap {
    /// All fields that `field` shares a bit with, in the order of the frame.
    pub fn of(field: BitField) -> impl Iterator<Item = Self> + use<> {
        let ends = FIELDS.iter().skip(1).map(|(first, _)| *first).chain([u32::MAX]);
        FIELDS
            .iter()
            .zip(ends)
            .filter(move |((first, _), end)| {
                *first < field.end_bits() && field.offset_bits() < *end
            })
            .map(|((_, overlap), _)| *overlap)
    }

    /// What comes of it, for a receiver whose flows match on the IPv4 length or not, and which
    /// verifies checksums as `verify` says.
    #[must_use]
    pub const fn effect(self, flow_matches_ipv4_len: bool, verify: Verify) -> Effect {
        let breaks = match self {
            Self::EtherType
            | Self::Ipv4Version
            | Self::Fragment
            | Self::Protocol
            | Self::UdpSrcPort
            | Self::UdpDstPort => true,
            Self::TotalLength => flow_matches_ipv4_len,
            Self::HeaderChecksum => !matches!(verify, Verify::None),
            Self::UdpLength | Self::UdpChecksum => matches!(verify, Verify::Udp),
            _ => false,
        };
        match self {
            _ if breaks => Effect::Breaks,
            Self::Filler => Effect::Free,
            _ => Effect::Note,
        }
    }

    /// Name of the field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EthDst => "Ethernet destination address",
            Self::EthSrc => "Ethernet source address",
            Self::EtherType => "Ethernet type",
            Self::Ipv4Version => "IPv4 version and header length",
            Self::TypeOfService => "IPv4 type of service",
            Self::TotalLength => "IPv4 total length",
            Self::Id => "IPv4 identification",
            Self::Fragment => "IPv4 flags and fragment offset",
            Self::Ttl => "IPv4 time to live",
            Self::Protocol => "IPv4 protocol",
            Self::HeaderChecksum => "IPv4 header checksum",
            Self::SrcAddr => "IPv4 source address",
            Self::DstAddr => "IPv4 destination address",
            Self::UdpSrcPort => "UDP source port",
            Self::UdpDstPort => "UDP destination port",
            Self::UdpLength => "UDP length",
            Self::UdpChecksum => "UDP checksum",
            Self::Filler => "filler behind the UDP header",
        }
    }

    /// What goes wrong when this field holds a sequence number, as half a sentence.
    #[must_use]
    pub const fn consequence(self) -> &'static str {
        match self {
            Self::EthDst => {
                "a NIC that is not promiscuous drops the frames and a switch floods them"
            }
            Self::EthSrc => {
                "a switch learns a new address per frame, and the offload tx_eth_src overwrites \
                 the sequence"
            }
            Self::EtherType => "the frames are not IPv4 any more",
            Self::Ipv4Version => "the IPv4 header cannot be read any more",
            Self::TypeOfService => "switches that honour priorities treat each frame differently",
            Self::TotalLength => {
                "the frames cross a cable, but not a router or anything else that trusts the length"
            }
            Self::Id => "nothing, as the frames are never fragmented",
            Self::Fragment => "the frames look like fragments",
            Self::Ttl => "a router drops the frames whose time to live is 0 or 1",
            Self::Protocol => "the frames are not UDP any more",
            Self::HeaderChecksum => "the header has no checksum: a router drops the frames",
            Self::SrcAddr => "every frame has another sender",
            Self::DstAddr => "a router sends every frame somewhere else",
            Self::UdpSrcPort | Self::UdpDstPort => "the flow match fails",
            Self::UdpLength => "anything that trusts the UDP length drops or cuts the frames",
            Self::UdpChecksum => "anything that checks the UDP checksum drops the frames",
            Self::Filler => "nothing",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sequence field lies on the {}: {}", self.name(), self.consequence())
    }
}
