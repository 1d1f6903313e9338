//! Passes on whether the layer below was built against DPDK, to this crate and to those above it.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_dpdk)");
    if std::env::var_os("DEP_TENSORWIRE_DPDK_SHIM_FOUND").is_some() {
        println!("cargo::rustc-cfg=has_dpdk");
        println!("cargo::metadata=built=1");
    }
}
