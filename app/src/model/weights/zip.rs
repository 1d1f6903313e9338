//! Zip archives as PyTorch writes them: entries stored, not compressed.
//!
//! Source: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (central directory) and
//! 4.3.16 (end record).

use super::ReadError;

const FORMAT: &str = "zip";
const END_RECORD: &[u8] = b"PK\x05\x06";
const END_RECORD_LEN: usize = 22;
const CENTRAL_LEN: usize = 46;
const LOCAL_LEN: usize = 30;
/// A 32-bit field with this value has its number in a zip64 record.
const IN_ZIP64: u32 = u32::MAX;

/// One entry of an archive.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// Its path in the archive.
    pub(super) name: &'a str,
    data: &'a [u8],
    crc: u32,
}

impl<'a> Entry<'a> {
    /// Its bytes, if they are what was stored.
    pub(super) fn data(&self) -> Result<&'a [u8], ReadError> {
        let crc = crc32fast::hash(self.data);
        if crc != self.crc {
            let what = format!("damaged: its CRC is {crc:08x}, stored was {:08x}", self.crc);
            return Err(malformed(format!("entry '{}'", self.name), what));
        }
        Ok(self.data)
    }
}

fn malformed(place: impl Into<String>, what: impl Into<String>) -> ReadError {
    ReadError::Malformed { format: FORMAT, place: place.into(), what: what.into() }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// The entries of the archive `bytes`, in the order of its directory.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, ReadError> {
    // The end record is the last thing in the file but for a comment of up to 65,535 bytes.
    let tail = bytes.len().saturating_sub(END_RECORD_LEN + usize::from(u16::MAX));
    let end = bytes[tail..]
        .windows(END_RECORD_LEN)
        .rposition(|window| window.starts_with(END_RECORD))
        .map(|at| &bytes[tail + at..])
        .ok_or_else(|| malformed("end record", "not there: the file is cut short"))?;
    let cut = || malformed("end record", "cut short");
    let count = u16_at(end, 10).ok_or_else(cut)?;
    let start = u32_at(end, 16).ok_or_else(cut)?;
    if count == u16::MAX || start == IN_ZIP64 {
        let what = "65,535 entries or 4 GiB and more".into();
        return Err(ReadError::Refused { format: FORMAT, what });
    }
    let mut at = start as usize;
    let mut found = Vec::new();
    for index in 0..count {
        let (entry, next) = entry(bytes, at).map_err(|what| match what {
            Fault::Cut => malformed(format!("directory entry {index}"), "cut short or damaged"),
            Fault::Named(e) => e,
        })?;
        found.push(entry);
        at = next;
    }
    Ok(found)
}

enum Fault {
    Cut,
    Named(ReadError),
}

/// The entry whose directory record is at `at`, and the position behind that record.
fn entry(bytes: &[u8], at: usize) -> Result<(Entry<'_>, usize), Fault> {
    let record = bytes.get(at..).ok_or(Fault::Cut)?;
    if !record.starts_with(b"PK\x01\x02") || record.len() < CENTRAL_LEN {
        return Err(Fault::Cut);
    }
    let short = |at| u16_at(record, at).ok_or(Fault::Cut);
    let long = |at| u32_at(record, at).ok_or(Fault::Cut);
    let (flags, method, crc) = (short(8)?, short(10)?, long(16)?);
    let (packed, size, local) = (long(20)?, long(24)?, long(42)?);
    let lens = [short(28)?, short(30)?, short(32)?].map(usize::from);
    let name = record.get(CENTRAL_LEN..CENTRAL_LEN + lens[0]).ok_or(Fault::Cut)?;
    let name = std::str::from_utf8(name).map_err(|_| Fault::Cut)?;
    let refuse = |what: &str| {
        let what = format!("entry '{name}' is {what}");
        Fault::Named(ReadError::Refused { format: FORMAT, what })
    };
    if flags & 1 != 0 {
        return Err(refuse("encrypted"));
    }
    if method != 0 || packed != size {
        return Err(refuse("compressed; PyTorch stores its entries as they are"));
    }
    if size == IN_ZIP64 || local == IN_ZIP64 {
        return Err(refuse("4 GiB or more"));
    }
    let local = bytes.get(local as usize..).ok_or(Fault::Cut)?;
    if !local.starts_with(b"PK\x03\x04") {
        return Err(Fault::Cut);
    }
    // The local header has lengths of its own: PyTorch pads there to align the data.
    let (name_len, extra_len) = (u16_at(local, 26), u16_at(local, 28));
    let (Some(name_len), Some(extra_len)) = (name_len, extra_len) else {
        return Err(Fault::Cut);
    };
    let start = LOCAL_LEN + usize::from(name_len) + usize::from(extra_len);
    let data = local.get(start..start + size as usize).ok_or(Fault::Cut)?;
    Ok((Entry { name, data, crc }, at + CENTRAL_LEN + lens.iter().sum::<usize>()))
}
