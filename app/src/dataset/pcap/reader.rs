//! Reading a capture, record by record: memory is bounded by the largest record.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::{
    FILE_HEADER_BYTES, LINKTYPE_ETHERNET, MAGIC_MICROS, MAGIC_NANOS, MAX_RECORD_BYTES,
    RECORD_HEADER_BYTES, link_type_name,
};
use crate::dataset::DatasetError;
use crate::file;

/// Magic of pcapng: its section header block.
const MAGIC_PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Magic of an old variant with longer record headers.
const MAGIC_KUZNETZOV: u32 = 0xa1b2_cd34;

/// The part of a record that a file is cut in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapPart {
    /// The 16 bytes before the frame.
    RecordHeader,
    /// The frame.
    Frame,
}

/// Why a file is no capture that can be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum PcapError {
    /// The operating system refused to read on.
    Io(io::Error),
    /// Not one byte.
    Empty,
    /// Cut inside the file header.
    CutHeader {
        /// Bytes that are there, of 24.
        bytes: usize,
    },
    /// A pcapng file.
    PcapNg,
    /// A compressed file: the name of the compression.
    Compressed(&'static str),
    /// The variant with longer record headers, by Alexey Kuznetsov.
    Modified,
    /// Something else: the first four bytes.
    NotPcap([u8; 4]),
    /// A format version other than 2.
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// Frames of another link type than Ethernet.
    LinkType(u32),
    /// Frames end with a frame check sequence.
    FrameCheckSequence {
        /// Its length in bytes.
        bytes: u32,
    },
    /// The file ends inside a record.
    Cut {
        /// Where the cut record begins, in bytes from the start of the file.
        record_offset: u64,
        /// Where the file ends.
        end: u64,
        /// What is cut.
        part: PcapPart,
        /// Bytes that the record would have, its header included (as far as it is known).
        expected: u64,
        /// Records before it, all whole.
        whole: u64,
    },
    /// A record of a length that cannot be.
    RecordLength {
        /// Where the record begins.
        record_offset: u64,
        /// Records before it.
        whole: u64,
        /// The captured length that it claims.
        captured: u32,
    },
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::Empty => f.write_str("the file is empty (0 bytes)"),
            Self::CutHeader { bytes } => write!(
                f,
                "cut short: {bytes} bytes, and the file header alone has {FILE_HEADER_BYTES}"
            ),
            Self::PcapNg => {
                f.write_str("this is pcapng; convert it with: editcap -F pcap IN.pcapng OUT.pcap")
            }
            Self::Compressed(how) => write!(f, "compressed with {how}; decompress it first"),
            Self::Modified => f.write_str(
                "modified pcap (magic a1b2cd34); convert it with: editcap -F pcap IN OUT.pcap",
            ),
            Self::NotPcap([a, b, c, d]) => {
                write!(f, "not a pcap file: it begins with {a:02x} {b:02x} {c:02x} {d:02x}")
            }
            Self::Version { major, minor } => {
                write!(f, "pcap version {major}.{minor}, only 2.x is read")
            }
            Self::LinkType(number) => {
                let name = link_type_name(*number);
                write!(f, "link type {number}, {name}; only {LINKTYPE_ETHERNET}, Ethernet, is read")
            }
            Self::FrameCheckSequence { bytes } => write!(
                f,
                "frames carry a check sequence (FCS) of {bytes} bytes; save the capture without"
            ),
            Self::Cut { record_offset, end, part, expected, whole } => {
                let part = match part {
                    PcapPart::RecordHeader => "record header",
                    PcapPart::Frame => "frame",
                };
                write!(
                    f,
                    "cut short at byte {end}: the {part} of the record at byte {record_offset} \
                     ends at byte {}; {whole} whole frames lie before it",
                    record_offset + expected
                )
            }
            Self::RecordLength { record_offset, whole, captured } => write!(
                f,
                "damaged: the record at byte {record_offset} (after {whole} whole ones) claims \
                 {captured} bytes, allowed {MAX_RECORD_BYTES}"
            ),
        }
    }
}

impl std::error::Error for PcapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(error) = self { Some(error) } else { None }
    }
}

/// What the file header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Numbers are big-endian.
    pub big_endian: bool,
    /// The fraction of a time stamp counts nanoseconds, not microseconds.
    pub nanoseconds: bool,
    /// The snapshot length. Not believed.
    pub snaplen: u32,
}

impl FileHeader {
    fn parse(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<Self, PcapError> {
        let (big_endian, nanoseconds) = byte_order(bytes)?;
        let word = |at: usize| word(big_endian, bytes, at);
        let (high, low) = (word(4) >> 16, word(4) & 0xffff);
        // Two numbers of 16 bits: in a little-endian file the first is the lower half.
        let (major, minor) = if big_endian { (high, low) } else { (low, high) };
        if major != 2 {
            let narrow = |n| u16::try_from(n).unwrap_or(u16::MAX);
            return Err(PcapError::Version { major: narrow(major), minor: narrow(minor) });
        }
        // Bits 31..28: length of the FCS in 16-bit words, where bit 26 says that it is known.
        let link = word(20);
        let fcs_words = if link & 1 << 26 == 0 { 0 } else { link >> 28 };
        let link_type = link & 0x03ff_ffff;
        if link_type != LINKTYPE_ETHERNET {
            return Err(PcapError::LinkType(link_type));
        }
        if fcs_words > 0 {
            return Err(PcapError::FrameCheckSequence { bytes: fcs_words * 2 });
        }
        Ok(Self { big_endian, nanoseconds, snaplen: word(16) })
    }
}

/// Whether numbers are big-endian, and whether fractions are nanoseconds.
fn byte_order(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<(bool, bool), PcapError> {
    let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
    match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
        (MAGIC_MICROS, _) => Ok((false, false)),
        (MAGIC_NANOS, _) => Ok((false, true)),
        (_, MAGIC_MICROS) => Ok((true, false)),
        (_, MAGIC_NANOS) => Ok((true, true)),
        (MAGIC_KUZNETZOV, _) | (_, MAGIC_KUZNETZOV) => Err(PcapError::Modified),
        _ => Err(foreign(magic)),
    }
}

/// What a file with this start is, if not a capture.
const fn foreign(magic: [u8; 4]) -> PcapError {
    match magic {
        MAGIC_PCAPNG => PcapError::PcapNg,
        [0x1f, 0x8b, ..] => PcapError::Compressed("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => PcapError::Compressed("zstd"),
        [0xfd, b'7', b'z', b'X'] => PcapError::Compressed("xz"),
        [0x04, 0x22, 0x4d, 0x18] => PcapError::Compressed("lz4"),
        _ => PcapError::NotPcap(magic),
    }
}

/// The number at `at`, in the byte order of the file.
fn word(big_endian: bool, bytes: &[u8], at: usize) -> u32 {
    let bytes: [u8; 4] = std::array::from_fn(|i| bytes[at + i]);
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// One frame of a capture, lent until the next one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where the record begins, in bytes from the start of the file.
    pub offset: u64,
    /// When the frame was captured, in ns since 1970; `None` when the fraction is a second or more.
    pub time_ns: Option<u64>,
    /// Length of the frame on the wire, as the record says.
    pub original: u32,
    /// The bytes of the frame: not more than `original`, fewer where the frame was sliced.
    pub bytes: &'a [u8],
    /// More bytes than `original` were stored; they are left out of `bytes`.
    pub trimmed: bool,
}

impl Record<'_> {
    /// Whether the capture kept only the front of the frame.
    #[must_use]
    pub const fn sliced(&self) -> bool {
        self.bytes.len() < self.original as usize
    }
}

/// A capture being read. Holds one record at a time.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    header: FileHeader,
    /// Where the next record begins.
    offset: u64,
    whole: u64,
    frame: Vec<u8>,
}

impl CaptureReader<BufReader<File>> {
    /// Opens a file. Also tells its length in bytes.
    ///
    /// # Errors
    ///
    /// [`DatasetError`] when it is no regular file, not readable, or no capture.
    pub fn open(path: &Path) -> Result<(Self, u64), DatasetError> {
        let (file, bytes) = file::open(path)?;
        let reader = Self::new(BufReader::with_capacity(1 << 20, file));
        Ok((reader.map_err(|error| DatasetError::pcap(path, error))?, bytes))
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file header. `input` should be buffered.
    ///
    /// # Errors
    ///
    /// [`PcapError`] when it is no capture of Ethernet frames in the classic format.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut bytes = [0; FILE_HEADER_BYTES];
        let read = fill(&mut input, &mut bytes)?;
        if read == 0 {
            return Err(PcapError::Empty);
        }
        // A short file of another kind is better called by its name than cut.
        if read >= 4 {
            byte_order(&bytes)?;
        }
        if read < FILE_HEADER_BYTES {
            return Err(PcapError::CutHeader { bytes: read });
        }
        let header = FileHeader::parse(&bytes)?;
        let offset = FILE_HEADER_BYTES as u64;
        Ok(Self { input, header, offset, whole: 0, frame: Vec::new() })
    }

    /// What the file header says.
    pub const fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Reads the next record; `None` where the file ends between two records.
    ///
    /// # Errors
    ///
    /// [`PcapError`]: [`PcapError::Cut`] where the file ends inside a record,
    /// [`PcapError::RecordLength`] for a length that cannot be. Nothing can be read after it.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, PcapError> {
        let (record_offset, whole) = (self.offset, self.whole);
        let cut = |read: usize, part, expected| PcapError::Cut {
            record_offset,
            end: record_offset + read as u64,
            part,
            expected: expected as u64,
            whole,
        };
        let mut bytes = [0; RECORD_HEADER_BYTES];
        match fill(&mut self.input, &mut bytes)? {
            0 => return Ok(None),
            RECORD_HEADER_BYTES => {}
            read => return Err(cut(read, PcapPart::RecordHeader, RECORD_HEADER_BYTES)),
        }
        let word = |at: usize| word(self.header.big_endian, &bytes, at);
        let (seconds, fraction, captured, original) = (word(0), word(4), word(8), word(12));
        if captured > MAX_RECORD_BYTES {
            return Err(PcapError::RecordLength { record_offset, whole, captured });
        }
        let captured = captured as usize;
        self.frame.resize(captured, 0);
        let read = fill(&mut self.input, &mut self.frame)?;
        if read < captured {
            let header = RECORD_HEADER_BYTES;
            return Err(cut(header + read, PcapPart::Frame, header + captured));
        }
        self.offset += (RECORD_HEADER_BYTES + captured) as u64;
        self.whole += 1;
        let kept = captured.min(original as usize);
        Ok(Some(Record {
            offset: record_offset,
            time_ns: self.header.time_ns(seconds, fraction),
            original,
            bytes: &self.frame[..kept],
            trimmed: kept < captured,
        }))
    }
}

impl FileHeader {
    /// A time stamp in ns; `None` when its fraction is not below a second.
    fn time_ns(&self, seconds: u32, fraction: u32) -> Option<u64> {
        let (limit, unit) = if self.nanoseconds { (1_000_000_000, 1) } else { (1_000_000, 1_000) };
        let fraction = (fraction < limit).then_some(u64::from(fraction) * unit)?;
        Some(u64::from(seconds) * 1_000_000_000 + fraction)
    }
}

/// Reads until `bytes` is full or the input ends, and tells how many bytes came.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize, PcapError> {
    let mut at = 0;
    while at < bytes.len() {
        match input.read(&mut bytes[at..]) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PcapError::Io(error)),
        }
    }
    Ok(at)
}
