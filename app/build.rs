//! Passes on whether `tensorwire-dpdk` was built against DPDK.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_dpdk)");
    if std::env::var_os("DEP_TENSORWIRE_DPDK_BUILT").is_some() {
        println!("cargo::rustc-cfg=has_dpdk");
    }
}
