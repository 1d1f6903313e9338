//! Captures as tests take them apart and put them together again.

use std::fs;
use std::path::Path;

/// A capture: its file header, and its records with theirs.
#[derive(Clone, Debug)]
pub struct Pcap {
    /// The 24 bytes in front.
    pub header: Vec<u8>,
    /// Each record: 16 bytes of header, then the frame.
    pub records: Vec<Vec<u8>>,
}

impl Pcap {
    /// Reads a little-endian capture.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("a capture");
        let (header, mut rest) = bytes.split_at(24);
        assert_eq!(header[..4], 0xa1b2_c3d4_u32.to_le_bytes(), "a capture");
        let mut records = Vec::new();
        while !rest.is_empty() {
            let length = rest[8..12].try_into().map(u32::from_le_bytes).expect("4 bytes");
            let (record, behind) = rest.split_at(16 + length as usize);
            records.push(record.to_vec());
            rest = behind;
        }
        Self { header: header.to_vec(), records }
    }

    /// A record around `frame`, at the time of another one.
    #[must_use]
    pub fn record(like: &[u8], frame: &[u8]) -> Vec<u8> {
        let length = u32::try_from(frame.len()).expect("a frame").to_le_bytes();
        [&like[..8], &length, &length, frame].concat()
    }

    /// The bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        bytes.extend(self.records.iter().flatten());
        bytes
    }
}
