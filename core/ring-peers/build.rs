//! Compiles the few lines of C around the inline functions of `rte_ring`.

fn main() {
    println!("cargo::rerun-if-changed=src/rte.c");
    // Only what is needed: by itself pkg-config names every library of DPDK.
    let dpdk = match pkg_config::Config::new().cargo_metadata(false).probe("libdpdk") {
        Ok(dpdk) => dpdk,
        Err(error) => {
            println!(
                "cargo::error=DPDK is not installed (Debian: libdpdk-dev, pkg-config): {error}"
            );
            return;
        }
    };
    cc::Build::new()
        .file("src/rte.c")
        .includes(&dpdk.include_paths)
        .flag("-include")
        .flag("rte_config.h")
        .flag_if_supported("-march=corei7")
        .opt_level(3)
        // Those of DPDK's own headers.
        .warnings(false)
        .compile("ring_peers_rte");
    for path in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for library in ["rte_ring", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
