use super::*;
use crate::file::NewFile;

/// Byte order and unit of a file that a test builds.
#[derive(Clone, Copy, Debug)]
struct Flavour {
    big_endian: bool,
    nanoseconds: bool,
}

const PLAIN: Flavour = Flavour { big_endian: false, nanoseconds: false };
const FLAVOURS: [(Flavour, [u8; 4]); 4] = [
    (PLAIN, [0xd4, 0xc3, 0xb2, 0xa1]),
    (Flavour { big_endian: true, nanoseconds: false }, [0xa1, 0xb2, 0xc3, 0xd4]),
    (Flavour { big_endian: false, nanoseconds: true }, [0x4d, 0x3c, 0xb2, 0xa1]),
    (Flavour { big_endian: true, nanoseconds: true }, [0xa1, 0xb2, 0x3c, 0x4d]),
];

impl Flavour {
    fn word(self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// A file header with this snapshot length and link type.
    fn header(self, snaplen: u32, link: u32) -> Vec<u8> {
        let magic = if self.nanoseconds { MAGIC_NANOS } else { MAGIC_MICROS };
        let half = |value: u16| {
            if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
        };
        let mut out = self.word(magic).to_vec();
        out.extend(half(2));
        out.extend(half(4));
        for value in [0, 0, snaplen, link] {
            out.extend(self.word(value));
        }
        out
    }

    fn record(self, time: (u32, u32), original: u32, frame: &[u8]) -> Vec<u8> {
        let captured = u32::try_from(frame.len()).expect("short");
        let words = [time.0, time.1, captured, original];
        let mut out: Vec<u8> = words.iter().flat_map(|&value| self.word(value)).collect();
        out.extend(frame);
        out
    }
}

/// Three frames of 256 bytes: 24 + 3 × (16 + 256) = 840 bytes, 1 ms apart.
fn three_frames(flavour: Flavour) -> Vec<u8> {
    let mut file = flavour.header(65_535, 1);
    for i in 0..3_u8 {
        let unit = if flavour.nanoseconds { 1_000_000 } else { 1_000 };
        file.extend(flavour.record((7, u32::from(i) * unit), 256, &[i; 256]));
    }
    file
}

/// What a test looks at of a record.
type Seen = (Option<u64>, u32, Vec<u8>, bool);

fn read_all(file: &[u8]) -> Result<Vec<Seen>, PcapError> {
    let mut reader = CaptureReader::new(file)?;
    let mut seen = Vec::new();
    while let Some(record) = reader.next_record()? {
        seen.push((record.time_ns, record.original, record.bytes.to_vec(), record.trimmed));
    }
    Ok(seen)
}

fn refusal(file: &[u8]) -> String {
    read_all(file).expect_err("refused").to_string()
}

#[test]
fn p01_all_four_byte_orders_give_identical_frames() {
    let expected: Vec<Seen> = (0..3_u8)
        .map(|i| (Some(7_000_000_000 + u64::from(i) * 1_000_000), 256, vec![i; 256], false))
        .collect();
    for (flavour, magic) in FLAVOURS {
        let file = three_frames(flavour);
        assert_eq!(file[..4], magic);
        assert_eq!(file.len(), 840);
        assert_eq!(read_all(&file).expect("read"), expected, "{flavour:?}");
        let header = *CaptureReader::new(&file[..]).expect("read").header();
        assert_eq!((header.big_endian, header.snaplen), (flavour.big_endian, 65_535));
    }
}

#[test]
fn p02_a_fraction_of_a_second_or_more_is_no_time() {
    let times = |flavour: Flavour, fractions: &[u32]| -> Vec<Option<u64>> {
        let mut file = flavour.header(65_535, 1);
        for &fraction in fractions {
            file.extend(flavour.record((1, fraction), 1, &[0]));
        }
        read_all(&file).expect("read").into_iter().map(|seen| seen.0).collect()
    };
    for (flavour, _) in FLAVOURS {
        if flavour.nanoseconds {
            let seen = times(flavour, &[999_999_999, 1_000_000_000, u32::MAX]);
            assert_eq!(seen, [Some(1_999_999_999), None, None]);
        } else {
            let seen = times(flavour, &[999_999, 1_000_000, 999_999_999]);
            assert_eq!(seen, [Some(1_999_999_000), None, None]);
        }
    }
}

#[test]
fn p03_pcapng_is_refused_by_name_with_the_conversion() {
    let file = [&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat();
    assert_eq!(
        refusal(&file),
        "this is pcapng; convert it with: editcap -F pcap IN.pcapng OUT.pcap"
    );
    // Also where the file is shorter than a pcap header.
    assert!(refusal(&file[..12]).starts_with("this is pcapng"));
}

#[test]
fn other_files_are_refused_by_name() {
    assert!(refusal(&[0x1f, 0x8b, 8, 0, 0]).starts_with("compressed with gzip"));
    assert!(refusal(&[0x28, 0xb5, 0x2f, 0xfd, 0]).starts_with("compressed with zstd"));
    assert!(refusal(&0xa1b2_cd34_u32.to_le_bytes()).starts_with("modified pcap"));
    assert_eq!(refusal(b"%YAML 1.2"), "not a pcap file: it begins with 25 59 41 4d");
    let mut file = three_frames(PLAIN);
    file[4] = 3;
    assert_eq!(refusal(&file), "pcap version 3.4, only 2.x is read");
}

#[test]
fn p04_a_cut_file_is_told_from_a_whole_one() {
    let file = three_frames(PLAIN);
    assert_eq!(read_all(&file[..296]).expect("one whole frame").len(), 1);
    assert_eq!(read_all(&file[..24]).expect("no frame").len(), 0);
    assert_eq!(refusal(&file[..10]), "cut short: 10 bytes, and the file header alone has 24");
    assert_eq!(refusal(&file[..3]), "cut short: 3 bytes, and the file header alone has 24");
    let cut = |end: usize| refusal(&file[..end]);
    for (end, message) in [
        (30, "the record header of the record at byte 24 ends at byte 40; 0 whole frames"),
        (39, "the record header of the record at byte 24 ends at byte 40; 0 whole frames"),
        (40, "the frame of the record at byte 24 ends at byte 296; 0 whole frames"),
        (100, "the frame of the record at byte 24 ends at byte 296; 0 whole frames"),
        (839, "the frame of the record at byte 568 ends at byte 840; 2 whole frames"),
    ] {
        assert_eq!(cut(end), format!("cut short at byte {end}: {message} lie before it"));
    }
}

#[test]
fn p05_bytes_behind_the_original_length_are_dropped() {
    for (original, kept) in [(256, 256), (1, 1), (0, 0)] {
        let mut file = PLAIN.header(65_535, 1);
        let frame: Vec<u8> = (0..=255).chain(0..4).collect();
        file.extend(PLAIN.record((0, 0), original, &frame));
        // The next record is found behind the stored bytes, not behind the kept ones.
        file.extend(PLAIN.record((0, 0), 3, &[7, 8, 9]));
        let seen = read_all(&file).expect("read");
        assert_eq!(seen[0], (Some(0), original, frame[..kept].to_vec(), true));
        assert_eq!(seen[1], (Some(0), 3, vec![7, 8, 9], false));
    }
}

#[test]
fn p06_the_snapshot_length_is_not_believed() {
    let mut file = PLAIN.header(96, 1);
    file.extend(PLAIN.record((0, 0), 256, &[5; 256]));
    assert_eq!(read_all(&file).expect("read"), [(Some(0), 256, vec![5; 256], false)]);
}

#[test]
fn p06_p11_a_sliced_frame_is_read_and_marked() {
    let mut file = PLAIN.header(128, 1);
    file.extend(PLAIN.record((0, 0), 256, &[5; 128]));
    let mut reader = CaptureReader::new(&file[..]).expect("read");
    let record = reader.next_record().expect("read").expect("one");
    assert!(record.sliced());
    assert_eq!((record.bytes.len(), record.original), (128, 256));
}

#[test]
fn p09_other_link_types_are_refused_with_number_and_name() {
    for (number, name) in [
        (0, "BSD loopback (NULL)"),
        (101, "raw IP"),
        (113, "Linux cooked (LINUX_SLL)"),
        (228, "raw IPv4"),
        (276, "Linux cooked v2 (LINUX_SLL2)"),
        (4242, "unknown"),
    ] {
        let message = format!("link type {number}, {name}; only 1, Ethernet, is read");
        assert_eq!(refusal(&PLAIN.header(65_535, number)), message);
    }
    // A known check sequence of 2 × 16 bits behind each frame; and one whose length is not known.
    assert!(refusal(&PLAIN.header(65_535, 0x2400_0001)).contains("(FCS) of 4 bytes"));
    assert!(read_all(&PLAIN.header(65_535, 0x2000_0001)).is_ok());
}

#[test]
fn p12_a_record_claims_no_memory_that_is_not_there() {
    for claimed in [262_145, u32::MAX] {
        let mut file = three_frames(PLAIN);
        file[24 + 272 + 8..24 + 272 + 12].copy_from_slice(&claimed.to_le_bytes());
        assert_eq!(
            refusal(&file),
            format!(
                "damaged: the record at byte 296 (after 1 whole ones) claims {claimed} bytes, \
                 allowed 262144"
            )
        );
    }
}

#[test]
fn p13_an_empty_file_and_one_without_frames_differ() {
    assert_eq!(refusal(&[]), "the file is empty (0 bytes)");
    assert!(read_all(&PLAIN.header(65_535, 1)).expect("a capture").is_empty());
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.pcap");
    let mut writer = CaptureWriter::create(&path).expect("writable");
    writer.write(0, &[1, 2, 3]).expect("written");
    writer.write(3_000_001, &[4; 9000]).expect("written");
    assert!(writer.write(3_000_000, &[5]).is_err(), "time went back");
    assert!(writer.write(u64::MAX, &[5]).is_err(), "beyond the format");
    assert!(writer.write(4_000_000, &vec![0; 262_145]).is_err(), "too long");
    assert_eq!((writer.frames(), writer.bytes()), (2, 24 + 16 + 3 + 16 + 9000));
    assert!(!path.exists());
    writer.finish().expect("renamed");
    let file = std::fs::read(&path).expect("there");
    assert_eq!(file.len(), 24 + 16 + 3 + 16 + 9000);
    let seen = read_all(&file).expect("read");
    assert_eq!(seen[0], (Some(0), 3, vec![1, 2, 3], false));
    assert_eq!(seen[1], (Some(3_000_001_000), 9000, vec![4; 9000], false));
    // Nothing is left of the temporary file.
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1);
    drop(NewFile::create(&path).expect("writable"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1);
}
