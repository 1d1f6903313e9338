//! Any bytes as a file of labels and as a file of class names, against the rules in a few lines.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tensorwire::dataset::{LabelsError, LineFault, read_classes, read_labels};

#[path = "support/scratch.rs"]
mod scratch;

static FILE: LazyLock<scratch::Scratch> = LazyLock::new(|| scratch::Scratch::new("labels"));

/// The lines without their white space and without the empty ones at the end.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// A run of digits that comes to a class: at most 65,535, and below `classes` where those are
/// known.
fn label(line: &[u8], classes: usize) -> Option<u16> {
    let mut value = 0_u64;
    for digit in line {
        value = (value * 10 + u64::from(digit.checked_sub(b'0').filter(|d| *d < 10)?)).min(100_000);
    }
    let value = (!line.is_empty()).then_some(value)?;
    let known = classes == 0 || value < classes as u64;
    u16::try_from(value).ok().filter(|_| known)
}

fuzz_target!(|bytes: &[u8]| {
    let path = FILE.put(bytes);
    let lines = lines(bytes);
    // A number of classes that depends on the input, 0 included.
    for classes in [0, bytes.len() % 40] {
        let first_bad = lines.iter().position(|line| label(line, classes).is_none());
        match (read_labels(path, classes), first_bad) {
            (Ok(labels), None) => {
                let expected: Option<Vec<u16>> = lines.iter().map(|l| label(l, classes)).collect();
                assert_eq!(Some(labels.as_slice()), expected.as_deref());
                assert_eq!(labels.len(), lines.len());
                assert_eq!(labels.get(labels.len() as u64), None);
                assert!(classes == 0 || labels.classes() <= classes);
            }
            (Err(error), Some(bad)) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                let LabelsError::Line { line, fault, .. } = error else { panic!("{error}") };
                assert_eq!(line, bad + 1);
                assert_eq!(fault == LineFault::Empty, lines[bad].is_empty());
            }
            (answer, bad) => panic!("{answer:?}, but the first bad line is {bad:?}"),
        }
    }
    let bad = lines.iter().position(|line| str::from_utf8(line).is_err());
    match (read_classes(path), bad) {
        (Ok(names), None) => {
            assert!(names.iter().map(String::as_bytes).eq(lines));
        }
        (Err(LabelsError::Line { line, fault: LineFault::NotText, .. }), Some(bad)) => {
            assert_eq!(line, bad + 1);
        }
        (answer, bad) => panic!("{answer:?}, but the first bad line is {bad:?}"),
    }
});
