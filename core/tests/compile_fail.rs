//! Misuse of the ownership types does not compile, and the compiler says the right thing.
//!
//! The messages beside the programs are those of the toolchain that the workspace is built with.
//! After a change of toolchain look at the differences, then write them anew with
//! `TRYBUILD=overwrite`.
#![cfg(not(loom))]

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
