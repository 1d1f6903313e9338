//! Any bytes as a configuration: a verdict and findings that every output can show.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensorwire_configs::{Options, check_bytes};

#[path = "support/findings.rs"]
mod findings;

fuzz_target!(|bytes: &[u8]| {
    findings::check(&check_bytes("x.yaml", bytes, &Options::default()));
});
