//! Flows: which UDP frames are ours.
//!
//! A NIC that can steer does this in hardware and says so with each packet. This is the same match
//! in software, for every NIC that cannot: first match wins, in the order of the configuration.
#![forbid(unsafe_code)]

use core::fmt;

use crate::header::UdpHeader;

#[cfg(test)]
mod tests;

/// Flows that one table holds.
pub const MAX_FLOWS: usize = 64;

/// UDP ports `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// A port range whose end lies before its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRangeError {
    /// First port that was given.
    pub first: u16,
    /// Last port that was given.
    pub last: u16,
}

impl fmt::Display for PortRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port range {}-{} is empty: it ends before it begins", self.first, self.last)
    }
}

impl core::error::Error for PortRangeError {}

impl PortRange {
    /// The ports from `first` to `last`, both included.
    ///
    /// # Errors
    ///
    /// [`PortRangeError`] when `last` is below `first`.
    pub const fn new(first: u16, last: u16) -> Result<Self, PortRangeError> {
        if first > last {
            return Err(PortRangeError { first, last });
        }
        Ok(Self { first, last })
    }

    /// One port.
    #[must_use]
    pub const fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The first port of the range.
    #[must_use]
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The last port of the range.
    #[must_use]
    pub const fn last(self) -> u16 {
        self.last
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self::single(port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// What a frame must have to belong to flow `id`. `None` matches everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowMatch {
    /// The flow's own number; 0 is legal.
    pub id: u32,
    /// UDP source ports.
    pub udp_src: Option<PortRange>,
    /// UDP destination ports.
    pub udp_dst: Option<PortRange>,
    /// IPv4 total length in bytes, as the header states it.
    pub ipv4_len: Option<u16>,
}

impl FlowMatch {
    /// The flow that every UDP frame belongs to.
    #[must_use]
    pub const fn any(id: u32) -> Self {
        Self { id, udp_src: None, udp_dst: None, ipv4_len: None }
    }
}

/// Numbers from `first` on, `more` of them besides: one subtraction and one comparison say whether
/// a number is among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u16,
    more: u16,
}

impl Span {
    const ALL: Self = Self { first: 0, more: u16::MAX };

    const fn of(range: Option<PortRange>) -> Self {
        match range {
            Some(PortRange { first, last }) => Self { first, more: last - first },
            None => Self::ALL,
        }
    }

    #[inline]
    const fn contains(self, n: u16) -> bool {
        n.wrapping_sub(self.first) <= self.more
    }
}

/// A [`FlowMatch`] in the form that is fast to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    udp_src: Span,
    udp_dst: Span,
    ipv4_len: Span,
    id: u32,
}

impl Rule {
    const UNUSED: Self =
        Self { udp_src: Span::ALL, udp_dst: Span::ALL, ipv4_len: Span::ALL, id: 0 };

    fn of(flow: &FlowMatch) -> Self {
        let FlowMatch { id, udp_src, udp_dst, ipv4_len } = *flow;
        let ipv4_len = ipv4_len.map(PortRange::single);
        Self {
            udp_src: Span::of(udp_src),
            udp_dst: Span::of(udp_dst),
            ipv4_len: Span::of(ipv4_len),
            id,
        }
    }

    #[inline]
    fn matches(&self, header: &UdpHeader) -> bool {
        // `&`, not `&&`: the comparisons need no order, the compiler may join them.
        self.udp_src.contains(header.src_port)
            & self.udp_dst.contains(header.dst_port)
            & self.ipv4_len.contains(header.ip_total_len)
    }
}

/// The flows of a receive queue, in order; at most [`MAX_FLOWS`].
///
/// An empty table matches nothing. A queue that takes every UDP frame has one
/// [`FlowMatch::any`].
#[derive(Clone, Debug)]
pub struct FlowTable {
    /// The first `len` are in use. A plain array: what a match costs is in the loop over it, and
    /// nothing must stand between the two.
    rules: [Rule; MAX_FLOWS],
    len: usize,
}

/// Why a flow was not added to a table. The table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowTableError {
    /// The table holds [`MAX_FLOWS`] flows.
    Full {
        /// The flow that found no room.
        id: u32,
    },
    /// The table has a flow of that id: packets could not say which of the two they belong to.
    DuplicateId {
        /// The id.
        id: u32,
    },
}

impl fmt::Display for FlowTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { id } => {
                write!(f, "no room for flow {id}: the table holds {MAX_FLOWS} flows")
            }
            Self::DuplicateId { id } => write!(f, "flow id {id} is used twice"),
        }
    }
}

impl core::error::Error for FlowTableError {}

impl FlowTable {
    /// A table without flows, which matches nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { rules: [Rule::UNUSED; MAX_FLOWS], len: 0 }
    }

    /// Adds a flow behind those that are there.
    ///
    /// # Errors
    ///
    /// [`FlowTableError`] when there is no room or the id is taken.
    pub fn push(&mut self, flow: &FlowMatch) -> Result<(), FlowTableError> {
        let id = flow.id;
        if self.rules().iter().any(|other| other.id == id) {
            return Err(FlowTableError::DuplicateId { id });
        }
        let place = self.rules.get_mut(self.len).ok_or(FlowTableError::Full { id })?;
        *place = Rule::of(flow);
        self.len += 1;
        Ok(())
    }

    /// The id of the first flow that `header` belongs to.
    #[must_use]
    #[inline]
    pub fn matches(&self, header: &UdpHeader) -> Option<u32> {
        self.rules().iter().find(|rule| rule.matches(header)).map(|rule| rule.id)
    }

    /// How many flows there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a flow looks at the IPv4 length: then the sequence must not lie there.
    #[must_use]
    pub fn matches_ipv4_len(&self) -> bool {
        self.rules().iter().any(|rule| rule.ipv4_len != Span::ALL)
    }

    #[inline]
    fn rules(&self) -> &[Rule] {
        self.rules.get(..self.len).unwrap_or_default()
    }
}

impl Default for FlowTable {
    fn default() -> Self {
        Self::new()
    }
}
