//! Any bytes: a verdict, soon, and no panic.

use std::fmt::Write as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tensorwire_configs::render::{Format, render};
use tensorwire_configs::{Options, SHIPPED, Verdict, check_bytes};

use crate::support::MINI;

/// xorshift64*, enough to stir bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % (n.max(1) as u64)).unwrap_or(0)
    }
}

/// What this thread has worked for: unlike the time that goes by, it is not longer on a busy
/// machine.
pub(crate) fn worked() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("a time since the thread began")
}

fn judged(bytes: &[u8]) -> Duration {
    let start = worked();
    let checked = check_bytes("x", bytes, &Options::default());
    for format in [Format::Text, Format::Json, Format::Sarif, Format::Github] {
        let shown = render(&[&checked], format);
        assert!(format != Format::Text || !shown.contains('\x1b'));
    }
    assert_eq!(checked.config.is_some(), checked.verdict() <= Verdict::Warnings);
    worked() - start
}

/// Pieces that YAML gives a meaning to.
const PIECES: &[&str] = &[
    "- ",
    ": ",
    "? ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!t ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "# ",
    "\n",
    "\r",
    "\t",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "<<: ",
    "  ",
    ",",
    "\u{feff}",
    "\u{85}",
    "~",
    "0x",
    "<x>",
    "${X}",
    "é",
    "\\",
    "\0",
    "%TAG ! x\n",
    "@",
    "`",
    "\u{2028}",
];

#[test]
fn stirred_files_never_panic() {
    let mut random = Random(0x5eed);
    for round in 0..4_000 {
        let text = match round % (SHIPPED.len() + 1) {
            0 => MINI,
            n => SHIPPED[n - 1].1,
        };
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = u8::try_from(random.below(256)).unwrap_or(0),
                1 => drop(bytes.drain(at..(at + random.below(80)).min(bytes.len()))),
                2 => bytes.truncate(at),
                _ => {
                    let piece = PIECES[random.below(PIECES.len())];
                    bytes.splice(at..at, piece.bytes());
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        judged(&bytes);
    }
}

#[test]
fn soups_of_yaml_never_panic() {
    let mut random = Random(0xf00d);
    for _ in 0..4_000 {
        let mut soup = String::new();
        for _ in 0..random.below(60) {
            soup.push_str(PIECES[random.below(PIECES.len())]);
            if random.below(3) == 0 {
                soup.push_str(["daqiri", "cfg", "reorder", "a", "1"][random.below(5)]);
            }
        }
        judged(soup.as_bytes());
    }
}

#[test]
fn ten_mebibytes_of_anything_are_refused_within_a_second() {
    const SIZE: usize = 10 << 20;
    let mut random = Random(7);
    let noise: Vec<u8> = (0..SIZE).map(|_| u8::try_from(random.below(256)).unwrap_or(0)).collect();
    let mut keys = String::new();
    for n in 0..SIZE / 12 {
        let _ = writeln!(keys, "key{n}: {n}");
    }
    let junk = [
        noise,
        keys.into_bytes(),
        vec![b'['; SIZE],
        vec![b'a'; SIZE],
        b"- ".repeat(SIZE / 2),
        b"a: b: c\n".repeat(SIZE / 8),
        "é".repeat(SIZE / 2).into_bytes(),
        // Cut in the middle of a character.
        format!("a{}", "é".repeat(SIZE / 2)).into_bytes(),
    ];
    for bytes in junk {
        let time = judged(&bytes);
        let found = check_bytes("x", &bytes, &Options::default()).diagnostics;
        let number = found.first().map(|found| found.code.to_string());
        assert!(matches!(number.as_deref(), Some("TW0101" | "TW0102")), "{number:?}");
        assert!(time < Duration::from_secs(1), "{time:?} for {:?}…", &bytes[..8]);
    }
}

/// The size limit alone would let these through; none may take time that grows faster than it.
#[test]
fn a_file_at_the_size_limit_is_judged_in_time() {
    const SIZE: usize = 1 << 20;
    let lines = |line: &str| line.repeat(SIZE / line.len());
    let shapes = [
        lines("["),
        lines("{"),
        lines("- "),
        lines("? "),
        lines("a: "),
        lines("- a\n"),
        lines("a: 1\n"),
        lines("[a, "),
        lines("\"a\" "),
        lines("'"),
        lines("a"),
        lines("a\n"),
        lines(" "),
        lines("\n"),
        lines("# c\n"),
        lines("&a "),
        lines("*a "),
        lines("!a "),
        lines("- &a a\n"),
        lines("\"\\u0041"),
        lines("é: é\n"),
        lines("{a: b}, "),
        format!("a: [{}]\n", lines("x,")),
        format!("a: |\n{}", lines("  text\n")),
        format!("a: \"{}\"\n", lines("text \\\n ")),
        format!("? [{}]\n: b\n", lines("x,")),
    ];
    for text in shapes {
        let time = judged(text.as_bytes());
        let start: String = text.chars().take(12).collect();
        assert!(time < Duration::from_secs(2), "{time:?} for {start:?}…");
    }
}
