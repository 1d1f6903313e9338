//! Any bytes as a capture: the records that a plain walk over the bytes finds, or an error that
//! names the right byte; and the same answer however the bytes trickle in.
#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use tensorwire::dataset::pcap::{CaptureReader, MAX_RECORD_BYTES, PcapError, PcapPart};

/// One record, kept.
#[derive(Debug, PartialEq)]
struct Kept {
    offset: u64,
    original: u32,
    time_ns: Option<u64>,
    bytes: Vec<u8>,
    trimmed: bool,
}

/// How a capture ends.
#[derive(Debug, PartialEq)]
enum End {
    Clean,
    Cut { at: u64, part: PcapPart, expected: u64 },
    Length { at: u64, captured: u32 },
}

/// Hands out a few bytes at a time, and is interrupted now and then.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 % 7 + 1;
        if self.1 == 4 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let take = self.1.min(out.len());
        self.0.read(&mut out[..take])
    }
}

/// The capture as our reader sees it; `None` where it refuses the file header.
fn ours(input: impl Read, length: u64) -> Option<(Vec<Kept>, End)> {
    let mut reader = match CaptureReader::new(input) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!matches!(error, PcapError::Io(_)), "{error}");
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let mut kept = Vec::new();
    let end = loop {
        let sum = kept.len() as u64;
        match reader.next_record() {
            Ok(Some(record)) => {
                assert_eq!(record.sliced(), record.bytes.len() < record.original as usize);
                kept.push(Kept {
                    offset: record.offset,
                    original: record.original,
                    time_ns: record.time_ns,
                    bytes: record.bytes.to_vec(),
                    trimmed: record.trimmed,
                });
            }
            Ok(None) => break End::Clean,
            Err(PcapError::Cut { record_offset, end, part, expected, whole }) => {
                assert_eq!((end, whole), (length, sum));
                break End::Cut { at: record_offset, part, expected };
            }
            Err(PcapError::RecordLength { record_offset, whole, captured }) => {
                assert_eq!(whole, sum);
                break End::Length { at: record_offset, captured };
            }
            Err(other) => panic!("{other} from bytes in memory"),
        }
    };
    Some((kept, end))
}

/// The capture as the format is written down, without any of the reader's structure.
fn plain(bytes: &[u8]) -> Option<(Vec<Kept>, End)> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let (big, unit) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
        _ => return None,
    };
    let number = |at: usize, len: usize| {
        let field = bytes.get(at..at + len)?;
        let step = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        Some(if big { field.iter().fold(0, step) } else { field.iter().rev().fold(0, step) })
    };
    let link = number(20, 4)?;
    let check_sequence = link >> 26 & 1 == 1 && link >> 28 > 0;
    if number(4, 2)? != 2 || link & 0x03ff_ffff != 1 || check_sequence {
        return None;
    }
    let (mut at, mut kept) = (24, Vec::new());
    let end = loop {
        if at == bytes.len() {
            break End::Clean;
        }
        let cut = |part, expected| End::Cut { at: at as u64, part, expected };
        let Some(original) = number(at + 12, 4) else { break cut(PcapPart::RecordHeader, 16) };
        let field = |skip| number(at + skip, 4).expect("before the field that is there");
        let (seconds, fraction, captured) = (field(0), field(4), field(8));
        if captured > MAX_RECORD_BYTES {
            break End::Length { at: at as u64, captured };
        }
        let Some(frame) = bytes.get(at + 16..at + 16 + captured as usize) else {
            break cut(PcapPart::Frame, 16 + u64::from(captured));
        };
        let ns = u64::from(fraction) * unit;
        kept.push(Kept {
            offset: at as u64,
            original,
            time_ns: (ns < 1_000_000_000).then(|| u64::from(seconds) * 1_000_000_000 + ns),
            bytes: frame.iter().copied().take(original as usize).collect(),
            trimmed: captured > original,
        });
        at += 16 + captured as usize;
    };
    Some((kept, end))
}

fuzz_target!(|bytes: &[u8]| {
    let expected = plain(bytes);
    assert_eq!(ours(bytes, bytes.len() as u64), expected);
    assert_eq!(ours(Trickle(bytes, 0), bytes.len() as u64), expected);
});
