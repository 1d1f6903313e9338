//! Passes on whether the shim was built, as `cfg(has_tensorrt)`.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_tensorrt)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("DEP_TENSORWIRE_TRT_BUILT").as_deref() == Ok("1") {
        println!("cargo::rustc-cfg=has_tensorrt");
    }
}
