//! The classic pcap file format, read and written here.
//!
//! Why not a crate: `pcap-file` refuses records whose original length is above the snapshot length
//! or below the captured one, which common tools read (and old captures hold); `pcap-parser` leaves
//! the buffer and all of these rules to its caller. Neither tells the byte at which a file is cut.
//! What is left of the format is 24 + 16 bytes of header.
//!
//! ```text
//! file header, 24 bytes          record header, 16 bytes, then the bytes of the frame
//!   0  magic                       0  seconds
//!   4  version 2.4 (two u16)       4  fraction: µs or ns, as the magic says
//!   8  reserved (8 bytes)          8  captured length
//!  16  snapshot length            12  original length
//!  20  link type and FCS
//! ```
//!
//! All numbers are in the byte order of the machine that wrote the file; the magic shows which.
//!
//! Rules where files disagree with themselves:
//!
//! - captured > original: the bytes behind the original length were never on the wire; they are
//!   dropped and the record is marked as trimmed (as Wireshark does);
//! - captured > snapshot length: read, the header is not believed;
//! - captured > 262,144 bytes: the file is damaged;
//! - captured < original: a frame cut at capture time; the caller sees both lengths.

mod reader;
mod writer;

pub use reader::{CaptureReader, FileHeader, PcapError, PcapPart, Record};
pub use writer::{CaptureWriter, WriteError};

/// Magic of a file with microseconds, in the byte order of the file.
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
/// Magic of a file with nanoseconds.
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 24;
/// Bytes of a record header.
pub const RECORD_HEADER_BYTES: usize = 16;
/// The most bytes of one record, and the snapshot length that we write: what tcpdump uses.
pub const MAX_RECORD_BYTES: u32 = 262_144;
/// The link type of Ethernet.
pub const LINKTYPE_ETHERNET: u32 = 1;

/// The name of a link type, as the registry of the pcap format has it.
#[must_use]
pub const fn link_type_name(number: u32) -> &'static str {
    match number {
        0 => "BSD loopback (NULL)",
        1 => "Ethernet",
        6 => "token ring (IEEE802_5)",
        9 => "PPP",
        12 | 101 => "raw IP",
        105 => "Wi-Fi (IEEE802_11)",
        108 => "OpenBSD loopback (LOOP)",
        113 => "Linux cooked (LINUX_SLL)",
        127 => "Wi-Fi with radiotap (IEEE802_11_RADIOTAP)",
        189 => "USB (USB_LINUX)",
        220 => "USB (USB_LINUX_MMAPPED)",
        228 => "raw IPv4",
        229 => "raw IPv6",
        247 => "InfiniBand (INFINIBAND)",
        276 => "Linux cooked v2 (LINUX_SLL2)",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;
