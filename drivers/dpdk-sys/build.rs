//! Finds libdpdk and compiles the shim against its headers; without the feature `dpdk` it does
//! nothing, and without the library it says so and leaves the crate empty.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_dpdk)");
    println!("cargo::rerun-if-changed=csrc");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    /// The oldest release that the shim is written for.
    const OLDEST: &str = "22.11";

    /// The parts of the shim, one subject each.
    const SOURCES: [&str; 6] = ["eal", "device", "memory", "burst", "flow", "event"];

    /// Libraries that the shim calls. Drivers are not among them, except the one whose function
    /// makes ports of rings: EAL loads the others when it starts.
    const LIBRARIES: [&str; 8] = [
        "rte_net_ring",
        "rte_ethdev",
        "rte_mbuf",
        "rte_mempool",
        "rte_ring",
        "rte_eal",
        "rte_kvargs",
        "rte_telemetry",
    ];

    /// Asks for DPDK in the program itself, with the drivers below: it then runs where no DPDK is
    /// installed, or another one (`ci/dpdk-static.sh`).
    const STATIC: &str = "TENSORWIRE_DPDK_STATIC";

    /// What a program with DPDK in it consists of. Whole archives: drivers are found by what they
    /// register when the program starts, which no symbol asks for, and the order does not matter.
    const ARCHIVES: [&str; 24] = [
        "rte_net_ring",
        "rte_net_memif",
        "rte_net_af_packet",
        "rte_net_mlx5",
        "rte_common_mlx5",
        "rte_bus_auxiliary",
        "rte_bus_pci",
        "rte_bus_vdev",
        "rte_mempool_ring",
        "rte_ethdev",
        "rte_net",
        "rte_meter",
        "rte_mbuf",
        "rte_mempool",
        "rte_hash",
        "rte_rcu",
        "rte_ring",
        "rte_pci",
        "rte_eal",
        "rte_kvargs",
        "rte_telemetry",
        "numa",
        "bsd",
        "md",
    ];

    /// What stays shared: the user-space half of the kernel's RDMA driver has to fit the kernel
    /// (package rdma-core).
    const SHARED: [&str; 2] = ["mlx5", "ibverbs"];

    fn link() {
        println!("cargo::rerun-if-env-changed={STATIC}");
        if std::env::var_os(STATIC).is_none_or(|word| word.is_empty()) {
            for name in LIBRARIES {
                println!("cargo::rustc-link-lib=dylib={name}");
            }
            return;
        }
        // pkg-config leaves the system's own folder out, and archives are looked for by rustc.
        if let Ok(folder) = pkg_config::get_variable("libdpdk", "libdir") {
            println!("cargo::rustc-link-search=native={folder}");
        }
        for name in ARCHIVES {
            let whole = if name.starts_with("rte_") { "+whole-archive" } else { "-whole-archive" };
            println!("cargo::rustc-link-lib=static:{whole},-bundle={name}");
        }
        for name in SHARED {
            println!("cargo::rustc-link-lib=dylib={name}");
        }
    }

    pub(super) fn build() {
        let found = pkg_config::Config::new()
            .atleast_version(OLDEST)
            .cargo_metadata(false)
            .env_metadata(true)
            .probe("libdpdk");
        let library = match found {
            Ok(library) => library,
            Err(error) => {
                let first = error.to_string();
                let first = first.lines().next().unwrap_or_default().to_owned();
                println!("cargo::warning=building without DPDK {OLDEST} or later: {first}");
                return;
            }
        };
        let mut shim = cc::Build::new();
        shim.files(SOURCES.map(|name| format!("csrc/{name}.c")));
        shim.includes(&library.include_paths).opt_level(3).warnings(true).std("gnu11");
        // DPDK's own headers are not free of what -Wextra finds.
        shim.flag("-Wno-unused-parameter").flag("-include").flag("rte_config.h");
        // Experimental in 22.11 and unchanged since: pools of external memory, maps for DMA.
        shim.define("ALLOW_EXPERIMENTAL_API", None);
        // Its headers use instructions that every machine it runs on has (SSE4.2).
        if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
            shim.flag("-march=corei7");
        }
        shim.compile("tensorwire_dpdk_shim");
        for path in &library.link_paths {
            println!("cargo::rustc-link-search=native={}", path.display());
        }
        link();
        println!("cargo::rustc-cfg=has_dpdk");
        println!("cargo::metadata=found={}", library.version);
    }
}
