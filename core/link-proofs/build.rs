//! The programs have an entry point of their own.

fn main() {
    // On bare metal there are no start files to leave out.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-bins=-nostartfiles");
        // memcpy and its like. On bare metal they come with the compiler.
        println!("cargo::rustc-link-arg-bins=-lc");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
