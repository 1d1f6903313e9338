//! Any bytes as an ONNX file: a header or an error, the same one from memory and from a file.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tensorwire_onnx::{HeaderErrorKind, read_header, read_header_bytes};

#[path = "support/scratch.rs"]
mod scratch;

static FILE: LazyLock<scratch::Scratch> = LazyLock::new(|| scratch::Scratch::new("onnx"));

fuzz_target!(|bytes: &[u8]| {
    let from_memory = read_header_bytes(bytes);
    let from_file = read_header(FILE.put(bytes));
    match (from_memory, from_file) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            // What was read is no more than what was there.
            let names: usize =
                one.inputs.iter().chain(&one.outputs).map(|tensor| tensor.name.len()).sum();
            assert!(names <= bytes.len());
        }
        (Err(one), Err(other)) => {
            assert_eq!(one.kind.to_string(), other.kind.to_string());
            match one.kind {
                HeaderErrorKind::Malformed { at, .. } => assert!(at <= bytes.len() as u64),
                HeaderErrorKind::Overrun { at, len, room } => {
                    assert!(len > room && at + room <= bytes.len() as u64);
                }
                HeaderErrorKind::Empty => assert!(bytes.is_empty()),
                HeaderErrorKind::NoGraph => {}
                other => panic!("{other} from bytes in memory"),
            }
        }
        (one, other) => panic!("{one:?} from memory, {other:?} from a file"),
    }
});
