//! Any bytes as a file of weights: tensors whose shapes fit their values, or an error in one line;
//! and never more memory than the file is worth.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensorwire::model::weights::read_bytes;

#[path = "support/tensors.rs"]
mod tensors;

fuzz_target!(|bytes: &[u8]| {
    tensors::check(read_bytes(bytes), bytes.len());
});
