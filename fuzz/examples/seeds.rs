//! Writes the seeds that can be described: `cargo run --example seeds`, from `fuzz/`. Each is a
//! small input that is right, or nearly, so that a run starts behind the first checks. The seeds of
//! the other targets are what a run found (`README.md`).

use std::path::Path;
use std::{fs, io};

use tensorwire_configs::SHIPPED;
use tensorwire_core::bits::BitField;
use tensorwire_core::header::{HeaderSpec, build, set_sequence};

const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [1, 1, 1, 1],
    ip_dst: [2, 2, 2, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

fn put(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

/// A frame of 256 bytes with the number 5, as `header_classify` expects one.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; 256];
    build(&HEADER, &mut frame).expect("a short frame");
    let field = BitField::new(128, 8).expect("a field");
    assert!(set_sequence(&mut frame, field, 5), "the field is inside");
    frame
}

/// The elements of a list that is the last field of an input: a one before each.
fn list<const N: usize>(elements: &[[u8; N]]) -> Vec<u8> {
    elements.iter().flat_map(|element| std::iter::once(1).chain(*element)).collect()
}

fn headers() -> io::Result<()> {
    // Verify by UDP; no trailer, no steering, no other length, no template, no changes.
    let options = |trailer: u8| vec![2, trailer, 0, 0, 0, 0];
    let mut tagged = frame();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let mut longer = frame();
    longer.extend([0; 8]);
    for (name, trailer, frame) in
        [("right", 0, frame()), ("tagged", 0, tagged), ("with-trailer", 1, longer)]
    {
        put("header_classify", name, &[options(trailer), frame].concat())?;
    }

    let mut input = Vec::from([[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].concat());
    input.extend([1, 1, 1, 1, 2, 2, 2, 2, 0, 16, 0, 16]);
    // The documented field and the routable one, two numbers each, then a payload.
    for (name, offset, width) in [("documented", 128u16, 12u8), ("routable", 336, 16)] {
        let field = [&offset.to_le_bytes()[..], &[width]].concat();
        let numbers = [list(&[[5, 0, 0, 0], [255, 255, 0, 0]]), vec![0]].concat();
        let payload = list(&[[7]; 24]);
        put("header_roundtrip", name, &[input.clone(), field, numbers, payload].concat())?;
    }
    // Offset, near the frame, width, value, frame.
    let value = 0xabcd_u32.to_le_bytes();
    for (name, offset, width) in
        [("documented", 128u32, 12u8), ("routable", 336, 16), ("whole", 3, 32)]
    {
        let fields = [&offset.to_le_bytes()[..], &[1, width], &value].concat();
        put("bitfield", name, &[fields, list(&[[0x5a]; 64])].concat())?;
    }
    Ok(())
}

/// A stream for the reassembly: 4 × 4 packets a batch at `width` bits, two batches open, a timeout
/// of 20 µs, and steps of a kind and two numbers (`core/tests/reassembly/stream.rs`).
fn stream(width: u8, start: u32, steps: &[(u8, u16, u16)]) -> Vec<u8> {
    let step = |&(kind, a, b): &(u8, u16, u16)| {
        let [a, b] = [a.to_le_bytes(), b.to_le_bytes()];
        [kind, a[0], a[1], b[0], b[1]]
    };
    let steps: Vec<[u8; 5]> = steps.iter().map(step).collect();
    [&[0, width - 4, 1, 20][..], &start.to_le_bytes(), &list(&steps)].concat()
}

fn streams() -> io::Result<()> {
    const RUN: (u8, u16, u16) = (0, 31, 0);
    let seeds: [(&str, u8, u32, &[(u8, u16, u16)]); 10] = [
        ("in-order-over-the-wrap", 4, 0, &[RUN, RUN]),
        ("join-in-the-middle", 8, 250, &[RUN, RUN]),
        ("one-lost", 8, 0, &[RUN, (3, 0, 0), RUN]),
        ("batches-lost", 8, 0, &[RUN, (5, 3, 0), RUN]),
        ("longest-burst", 6, 0, &[RUN, (6, 8, 2), RUN, RUN]),
        ("swaps", 8, 0, &[RUN, (9, 3, 0), RUN, (7, 5, 0), RUN]),
        ("copies-and-wild-numbers", 8, 0, &[RUN, (10, 1, 0), (13, 0, 200), RUN, (12, 9, 9), RUN]),
        ("restart", 16, 100, &[RUN, (16, 0, 0), RUN, RUN]),
        ("one-batch-repeat", 16, 0, &[(17, 15, 1), (17, 15, 1)]),
        (
            "late-after-a-deadline",
            8,
            0,
            &[(0, 9, 0), (19, 30, 1), (20, 0, 0), RUN, (22, 3, 1), RUN],
        ),
    ];
    for (name, width, start, steps) in seeds {
        put("reassembly", name, &stream(width, start, steps))?;
    }
    Ok(())
}

fn files() -> io::Result<()> {
    for (name, text) in SHIPPED.iter().step_by(2) {
        put("config", name, text.as_bytes())?;
    }
    // The number of a file, and no changes.
    for file in 0..SHIPPED.len() {
        put("config_edits", &format!("shipped-{file}"), &[u8::try_from(file).expect("few"), 0])?;
    }
    put("labels", "classes", b"0\n1\n9\n65535\n")?;
    put("labels", "names", b"cat\r\n\r\ndog\r\n")?;
    let word = |n: u32| n.to_le_bytes();
    let file = [&word(0xa1b2_c3d4)[..], &[2, 0, 4, 0], &[0; 8], &word(65_535), &word(1)].concat();
    let record = [&word(1)[..], &word(999_999), &word(256), &word(256), &frame()].concat();
    put("pcap", "empty", &file)?;
    put("pcap", "two-frames", &[&file[..], &record, &record].concat())?;
    put("pcap", "cut-short", &[&file[..], &record[..100]].concat())
}

fn main() -> io::Result<()> {
    headers()?;
    streams()?;
    files()
}
