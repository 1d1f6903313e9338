//! IGX Orin and IGX Thor: what differs there, and nothing else.
//!
//! These boards take a GPU in a slot beside the one on the chip. With it, a NIC writes the GPU's
//! memory directly (GPUDirect RDMA), and that is the way: with packets in `host_pinned` memory
//! users of the original system measured a median of 3 ms and a mean of 1.8 s on such a board.
//! A board without a card has the GPU of its chip only, which shares the memory of the processor;
//! `host_pinned` is the way there.

use tensorwire_configs::platform::{Packets, Platform, Worth};

/// A board with a GPU in its slot.
pub const WITH_CARD: Platform = Platform {
    name: "IGX with a GPU in its slot",
    signs: &["igx"],
    packets: Packets::new(
        Worth::Best,
        Worth::Slower("batches wait for the bus, seconds at times on such a board"),
        Worth::ON_CPU,
    ),
};

/// A board with the GPU of its chip only.
pub const ON_CHIP: Platform = Platform {
    name: "IGX with the GPU of its chip",
    signs: &["igx"],
    packets: Packets::new(Worth::SHARED, Worth::Best, Worth::ON_CPU),
};

/// The platform of a board that tells `name` of itself, with or without a GPU in its slot.
#[must_use]
pub fn of(name: &str, card: bool) -> Option<&'static Platform> {
    let platform = if card { &WITH_CARD } else { &ON_CHIP };
    platform.is(name).then_some(platform)
}

#[cfg(test)]
mod tests {
    use tensorwire_configs::RegionKind;

    use super::*;

    #[test]
    fn a_card_decides_where_packets_go() {
        let best = |name, card| of(name, card).map(Platform::best);
        assert_eq!(best("NVIDIA IGX Orin Developer Kit", true), Some(RegionKind::Device));
        assert_eq!(best("NVIDIA IGX Thor", false), Some(RegionKind::HostPinned));
        assert_eq!(best("NVIDIA DGX Spark", true), None);
    }
}
