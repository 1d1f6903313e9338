//! IGX Orin and IGX Thor: what differs there, and nothing else.
//!
//! These boards take a GPU in a slot beside the one on the chip. With it, a NIC writes the GPU's
//! memory directly (GPUDirect RDMA), and that is the way: with packets in `host_pinned` memory
//! users of the original system measured a median of 3 ms and a mean of 1.8 s on such a board.
//! A board without a card has the GPU of its chip only, which shares the memory of the processor;
//! `host_pinned` is the way there.

use tensorwire_configs::RegionKind;
use tensorwire_configs::platform::{Platform, Worth};

const ON_CPU: Worth = Worth::Slower("the GPU cannot read it: batches are built by the CPU");

/// A board with a GPU in its slot.
pub const WITH_CARD: Platform = Platform {
    name: "IGX with a GPU in its slot",
    signs: &["igx"],
    packets: &[
        (RegionKind::Device, Worth::Best),
        (
            RegionKind::HostPinned,
            Worth::Slower("batches wait for the bus, seconds at times on such a board"),
        ),
        (RegionKind::Huge, ON_CPU),
        (RegionKind::Host, ON_CPU),
    ],
};

/// A board with the GPU of its chip only.
pub const ON_CHIP: Platform = Platform {
    name: "IGX with the GPU of its chip",
    signs: &["igx"],
    packets: &[
        (RegionKind::HostPinned, Worth::Best),
        (
            RegionKind::Device,
            Worth::Impossible("processor and GPU share one memory; a NIC cannot be given a GPU's"),
        ),
        (RegionKind::Huge, ON_CPU),
        (RegionKind::Host, ON_CPU),
    ],
};

/// The platform of a board that tells `name` of itself, with or without a GPU in its slot.
#[must_use]
pub fn of(name: &str, card: bool) -> Option<&'static Platform> {
    let platform = if card { &WITH_CARD } else { &ON_CHIP };
    platform.is(name).then_some(platform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_decides_where_packets_go() {
        let best = |name, card| of(name, card).and_then(Platform::best);
        assert_eq!(best("NVIDIA IGX Orin Developer Kit", true), Some(RegionKind::Device));
        assert_eq!(best("NVIDIA IGX Thor", false), Some(RegionKind::HostPinned));
        assert_eq!(best("NVIDIA DGX Spark", true), None);
    }

    #[test]
    fn each_kind_of_memory_is_judged_once_and_one_is_best() {
        for platform in [&WITH_CARD, &ON_CHIP] {
            for kind in
                [RegionKind::Huge, RegionKind::Device, RegionKind::HostPinned, RegionKind::Host]
            {
                let judged = platform.packets.iter().filter(|(known, _)| *known == kind).count();
                assert_eq!(judged, 1, "{} {}", platform.name, kind.word());
            }
            let best = platform.packets.iter().filter(|(_, worth)| *worth == Worth::Best).count();
            assert_eq!(best, 1, "{}", platform.name);
        }
    }
}
