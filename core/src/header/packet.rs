//! The one question that the receiver asks of every frame: ours, and if not, why not?

use core::fmt;

use super::{Reject, Verify, checksum, parse};
use crate::bits::BitField;
use crate::counters::PacketCounters;
use crate::flow::FlowTable;
use crate::geometry::Geometry;

#[cfg(test)]
mod tests;

/// A frame that is a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The flow it belongs to.
    pub flow: u32,
    /// Its wire sequence number.
    pub wire: u32,
    /// It is longer than a packet of the geometry, and the bytes at its end are to be ignored.
    pub trimmed: bool,
}

/// What is malformed about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Malformed {
    /// An 802.1Q or 802.1ad tag that the NIC did not pop.
    Vlan,
    /// A fragment of an IPv4 datagram.
    Fragment,
    /// An IPv4 header whose version or length cannot be, or that has options.
    Ihl,
    /// An IPv4 or UDP checksum that does not fit.
    Checksum,
    /// IPv4, but not UDP.
    NotUdp,
}

/// Why a frame is not a packet of ours: the one cause that it is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// Shorter than a packet of the geometry, or than its headers.
    Short,
    /// Longer than a packet of the geometry.
    Long,
    /// Other traffic: not IPv4, or of no flow of ours.
    OtherFlow,
    /// Not a packet as we can read it.
    Malformed(Malformed),
}

impl Refused {
    /// Counts the frame under its cause; `offered` is the caller's.
    #[inline]
    pub const fn count(self, packets: &mut PacketCounters) {
        let malformed = &mut packets.malformed;
        *match self {
            Self::Short => &mut packets.short,
            Self::Long => &mut packets.long,
            Self::OtherFlow => &mut packets.other_flow,
            Self::Malformed(Malformed::Vlan) => &mut malformed.vlan,
            Self::Malformed(Malformed::Fragment) => &mut malformed.fragment,
            Self::Malformed(Malformed::Ihl) => &mut malformed.ihl,
            Self::Malformed(Malformed::Checksum) => &mut malformed.checksum,
            Self::Malformed(Malformed::NotUdp) => &mut malformed.not_udp,
        } += 1;
    }

    /// The name of the counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::OtherFlow => "other_flow",
            Self::Malformed(Malformed::Vlan) => "malformed.vlan",
            Self::Malformed(Malformed::Fragment) => "malformed.fragment",
            Self::Malformed(Malformed::Ihl) => "malformed.ihl",
            Self::Malformed(Malformed::Checksum) => "malformed.checksum",
            Self::Malformed(Malformed::NotUdp) => "malformed.not_udp",
        }
    }
}

impl From<Reject> for Refused {
    #[inline]
    fn from(reject: Reject) -> Self {
        match reject {
            Reject::Short => Self::Short,
            Reject::NotIpv4 => Self::OtherFlow,
            Reject::Vlan => Self::Malformed(Malformed::Vlan),
            Reject::Ihl => Self::Malformed(Malformed::Ihl),
            Reject::Fragment => Self::Malformed(Malformed::Fragment),
            Reject::NotUdp => Self::Malformed(Malformed::NotUdp),
            Reject::Checksum => Self::Malformed(Malformed::Checksum),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Refused {}

/// The receiver's check of a frame, with everything it needs in one place.
#[derive(Clone, Debug)]
pub struct PacketCheck {
    field: BitField,
    frame_bytes: u32,
    verify: Verify,
    accept_trailer: bool,
    flows: FlowTable,
}

impl PacketCheck {
    /// A check for packets of `geometry` in one of `flows`. With `accept_trailer` a frame may be
    /// longer than a packet: some switches and NICs leave padding or a checksum at its end.
    #[must_use]
    pub fn new(
        geometry: &Geometry,
        flows: &FlowTable,
        verify: Verify,
        accept_trailer: bool,
    ) -> Self {
        let spec = geometry.spec();
        Self {
            field: geometry.seq_field(),
            // A geometry's frame is at most `MAX_FRAME_BYTES`.
            frame_bytes: spec.payload_byte_offset.saturating_add(spec.payload_bytes),
            verify,
            accept_trailer,
            flows: flows.clone(),
        }
    }

    /// Judges a frame of `len` bytes, of which `bytes` are readable: all of it, or at least the
    /// headers and the sequence field. `nic_flow` is what the NIC's steering said: flow id + 1, or
    /// 0 where it did not classify the frame.
    ///
    /// Exactly one answer for any bytes; it never panics. The order decides under which cause a
    /// frame with several faults is counted:
    ///
    /// 1. Headers: anything but IPv4 is `other_flow`, a tag, options, a fragment and anything but
    ///    UDP are `malformed`, a frame that ends inside its headers is `short`.
    /// 2. Flow: a frame that no flow matches is `other_flow`, whatever its length. A frame that
    ///    the NIC steered belongs to the flow that the NIC says.
    /// 3. Length: below a packet of the geometry `short`, above it `long` (or `trimmed`). It is the
    ///    frame's length; those in the IPv4 and UDP headers are not used.
    /// 4. Checksums as [`Verify`] says: `malformed.checksum`. Last, as it costs most and only
    ///    packets that would be placed are worth it.
    ///
    /// # Errors
    ///
    /// [`Refused`], the cause that the frame is to be counted under.
    #[inline]
    pub fn check(&self, bytes: &[u8], len: u32, nic_flow: u32) -> Result<Accepted, Refused> {
        // A buffer is longer than its frame: what lies behind the frame is of an earlier one.
        let bytes = bytes.get(..len as usize).unwrap_or(bytes);
        let header = parse(bytes)?;
        let flow = match nic_flow.checked_sub(1) {
            Some(flow) => flow,
            None => self.flows.matches(&header).ok_or(Refused::OtherFlow)?,
        };
        if len < self.frame_bytes {
            return Err(Refused::Short);
        }
        let trimmed = len > self.frame_bytes;
        if trimmed && !self.accept_trailer {
            return Err(Refused::Long);
        }
        if self.verify != Verify::None && !checksum::fit(bytes, len as usize, self.verify) {
            return Err(Refused::Malformed(Malformed::Checksum));
        }
        // The field lies in front of the payload, so it is there unless the driver made too little
        // of the frame readable.
        let wire = self.field.read(bytes).ok_or(Refused::Short)?;
        Ok(Accepted { flow, wire, trimmed })
    }
}
