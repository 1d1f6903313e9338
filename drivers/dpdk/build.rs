//! Passes on whether the layer below was built against DPDK.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_dpdk)");
    if std::env::var_os("DEP_TENSORWIRE_DPDK_SHIM_FOUND").is_some() {
        println!("cargo::rustc-cfg=has_dpdk");
    }
}
