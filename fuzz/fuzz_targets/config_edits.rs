//! The shipped configurations with values, keys and lines changed: what bytes at random hardly
//! reach, the checks behind the parser.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire_configs::{Backend, Options, SHIPPED, Verdict, check_str};

#[path = "support/findings.rs"]
mod findings;

#[derive(Arbitrary, Debug)]
enum Change {
    /// Another value behind the key of a line.
    Number {
        line: u8,
        value: u64,
    },
    Small {
        line: u8,
        value: i16,
    },
    Word {
        line: u8,
        word: u8,
    },
    Text {
        line: u8,
        text: String,
    },
    Nothing {
        line: u8,
    },
    /// A line goes, comes twice, or moves in or out.
    Remove {
        line: u8,
    },
    Repeat {
        line: u8,
    },
    Shift {
        line: u8,
        by: i8,
    },
    /// A line of another file.
    Insert {
        line: u8,
        file: u8,
        other: u8,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    file: u8,
    changes: Vec<Change>,
    cores: Option<Vec<u8>>,
    images_per_inference: Option<u32>,
    backend: Option<u8>,
}

const BACKENDS: [Backend; 4] = [Backend::Auto, Backend::TensorRt, Backend::Onnx, Backend::None];

const WORDS: [&str; 24] = [
    "true",
    "false",
    "host",
    "huge",
    "device",
    "host_pinned",
    "sw",
    "loopback",
    "rx",
    "tx",
    "block",
    "drop",
    "passthrough",
    "auto",
    "none",
    "onnx",
    "udp",
    "fused",
    "split",
    "0000:01:00.0",
    "02:00:00:00:00:01",
    "1.1.1.1",
    "<placeholder>",
    "[]",
];

fn lines(file: u8) -> Vec<String> {
    SHIPPED[usize::from(file) % SHIPPED.len()].1.lines().map(str::to_owned).collect()
}

/// The line with another value, if it has a key.
fn with_value(line: &str, value: &str) -> String {
    let end = line.find(": ").map_or_else(|| line.trim_end().len(), |at| at + 1);
    format!("{} {value}", line.get(..end).unwrap_or(line))
}

fn apply(text: &mut Vec<String>, change: &Change) {
    let (Change::Number { line, .. }
    | Change::Small { line, .. }
    | Change::Word { line, .. }
    | Change::Text { line, .. }
    | Change::Nothing { line }
    | Change::Remove { line }
    | Change::Repeat { line }
    | Change::Shift { line, .. }
    | Change::Insert { line, .. }) = change;
    let at = usize::from(*line) % text.len().max(1);
    let Some(old) = text.get(at).cloned() else { return };
    match change {
        Change::Number { value, .. } => text[at] = with_value(&old, &value.to_string()),
        Change::Small { value, .. } => text[at] = with_value(&old, &value.to_string()),
        Change::Word { word, .. } => {
            text[at] = with_value(&old, WORDS[usize::from(*word) % WORDS.len()]);
        }
        Change::Text { text: new, .. } => text[at] = with_value(&old, new),
        Change::Nothing { .. } => text[at] = with_value(&old, ""),
        Change::Remove { .. } => drop(text.remove(at)),
        Change::Repeat { .. } => text.insert(at, old),
        Change::Shift { by, .. } if *by >= 0 => {
            text[at] = " ".repeat(usize::from(by.unsigned_abs() % 8)) + &old;
        }
        Change::Shift { by, .. } => {
            let spaces = old.len() - old.trim_start_matches(' ').len();
            text[at] = old[spaces.min(usize::from(by.unsigned_abs()))..].to_owned();
        }
        Change::Insert { file, other, .. } => {
            let from = lines(*file);
            text.insert(at, from[usize::from(*other) % from.len()].clone());
        }
    }
}

fuzz_target!(|input: Input| {
    let mut text = lines(input.file);
    for change in input.changes.iter().take(16) {
        apply(&mut text, change);
    }
    let options = Options {
        cores_available: input.cores.map(|cores| cores.into_iter().map(u32::from).collect()),
        images_per_inference: input.images_per_inference,
        eth_dst: None,
        backend: input.backend.map(|n| BACKENDS[usize::from(n) % BACKENDS.len()]),
    };
    let checked = check_str("x.yaml", &text.join("\n"), &options);
    findings::check(&checked);
    if input.changes.is_empty() && options == Options::default() {
        assert!(checked.verdict() <= Verdict::Warnings, "shipped files are right");
    }
});
