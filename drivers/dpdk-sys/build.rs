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
    const SOURCES: [&str; 5] = ["eal", "device", "memory", "burst", "flow"];

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
        for name in LIBRARIES {
            println!("cargo::rustc-link-lib=dylib={name}");
        }
        println!("cargo::rustc-cfg=has_dpdk");
        println!("cargo::metadata=found={}", library.version);
    }
}
