//! DGX Spark, and servers and workstations with a GPU in a slot: what differs there, and nothing
//! else.
//!
//! Spark's GB10 shares one memory between processor and GPU. So packets in `host_pinned` memory are
//! read by the GPU at the speed of that memory, and there is no memory of the GPU that a NIC could
//! write instead. Its cores are of two strengths; which are the strong ones the kernel tells
//! (`cpu_capacity`), and `tensorwire doctor` looks there rather than in a table.
//!
//! With a GPU in a slot a NIC can write the GPU's memory directly (GPUDirect RDMA). Packets in
//! `host_pinned` memory cross the bus when they are reordered, which is bounded by it and not by
//! the GPU (`kernels/BENCH.md`: 94.6 µs against 4.7 µs for a batch of the documented geometry).

use tensorwire_configs::platform::{Packets, Platform, Worth};

/// DGX Spark (GB10).
pub const SPARK: Platform = Platform {
    name: "DGX Spark",
    signs: &["dgx", "spark"],
    packets: Packets::new(Worth::SHARED, Worth::Best, Worth::ON_CPU),
};

/// A server or workstation of the DGX family with GPUs in slots.
pub const SERVER: Platform = Platform {
    name: "DGX server",
    signs: &["dgx"],
    packets: Packets::new(
        Worth::Best,
        Worth::Slower("every packet crosses the bus once more"),
        Worth::ON_CPU,
    ),
};

/// The platforms of this crate, the most particular first.
pub const ALL: [&Platform; 2] = [&SPARK, &SERVER];

#[cfg(test)]
mod tests {
    use tensorwire_configs::RegionKind;

    use super::*;

    fn named(name: &str) -> Option<&'static str> {
        ALL.iter().find(|platform| platform.is(name)).map(|platform| platform.name)
    }

    #[test]
    fn machines_are_told_apart() {
        assert_eq!(named("NVIDIA_DGX_Spark"), Some("DGX Spark"));
        assert_eq!(named("DGXH100"), Some("DGX server"));
        assert_eq!(named("NVIDIA IGX Orin Developer Kit"), None);
    }

    #[test]
    fn packets_go_where_the_gpu_reads_them_best() {
        assert_eq!(SPARK.best(), RegionKind::HostPinned);
        assert_eq!(SERVER.best(), RegionKind::Device);
    }
}
