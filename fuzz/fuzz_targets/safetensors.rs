//! Files in the safetensors format with a header that is text: entries in any order, with any
//! shape and any range, against the format's rules; or any text at all.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire::model::weights::read_bytes;

#[path = "support/tensors.rs"]
mod tensors;

#[derive(Arbitrary, Debug)]
enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    I64,
}

#[derive(Arbitrary, Debug)]
struct Entry {
    name: u8,
    kind: Kind,
    shape: Vec<u8>,
    start: u16,
    /// The length that shape and kind ask for, unless this changes it.
    stretch: i8,
}

#[derive(Arbitrary, Debug)]
enum Input {
    Entries { entries: Vec<Entry>, data: Vec<u8> },
    Text { header: String, data: Vec<u8> },
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), data].concat()
}

impl Entry {
    const fn bytes(&self) -> u64 {
        match self.kind {
            Kind::F16 | Kind::Bf16 => 2,
            Kind::F32 => 4,
            Kind::F64 | Kind::I64 => 8,
        }
    }

    /// Bytes that the shape asks for; none beyond 64 bits.
    fn wanted(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.bytes(), |n, &dim| n.checked_mul(dim.into()))
    }

    fn range(&self) -> (u64, u64) {
        let start = u64::from(self.start);
        let end = start.saturating_add(self.wanted().unwrap_or(0));
        (start, end.saturating_add_signed(self.stretch.into()))
    }

    fn json(&self) -> String {
        let (start, end) = self.range();
        format!(
            r#""{}":{{"dtype":"{}","shape":{:?},"data_offsets":[{start},{end}]}}"#,
            self.name(),
            format!("{:?}", self.kind).to_uppercase(),
            self.shape,
        )
    }

    /// Few names, so that some come twice; some of the kind that is left out.
    fn name(&self) -> String {
        let suffix = if self.name & 0x40 == 0 { "" } else { ".num_batches_tracked" };
        format!("t{}{suffix}", self.name % 16)
    }

    fn ignored(&self) -> bool {
        self.name().ends_with(".num_batches_tracked")
    }

    fn good(&self, data: usize) -> bool {
        let (start, end) = self.range();
        let fits = start <= end && end <= data as u64;
        fits && self.wanted() == Some(end - start) && !matches!(self.kind, Kind::I64)
    }
}

/// Whether no name comes twice, every tensor is right, and no two of them share a byte.
fn good(entries: &[Entry], data: usize) -> bool {
    let mut names: Vec<String> = entries.iter().map(Entry::name).collect();
    names.sort();
    let mut taken = vec![false; data];
    names.windows(2).all(|pair| pair[0] != pair[1])
        && entries.iter().filter(|entry| !entry.ignored()).all(|entry| {
            let (start, end) = entry.range();
            entry.good(data)
                && taken[start as usize..end as usize]
                    .iter_mut()
                    .all(|byte| !std::mem::replace(byte, true))
        })
}

fuzz_target!(|input: Input| {
    let (entries, data) = match &input {
        Input::Text { header, data } => {
            let file = file(header, data);
            tensors::check(read_bytes(&file), file.len());
            return;
        }
        Input::Entries { entries, data } => (entries, data),
    };
    let header: Vec<String> = entries.iter().map(Entry::json).collect();
    let file = file(&format!("{{{}}}", header.join(",")), data);
    let weights = tensors::check(read_bytes(&file), file.len());
    assert_eq!(weights.is_some(), good(entries, data.len()));
    let Some(weights) = weights else { return };
    assert_eq!(weights.iter().count(), entries.iter().filter(|e| !e.ignored()).count());
    for entry in entries.iter().filter(|entry| !entry.ignored()) {
        let tensor = weights.get(&entry.name()).expect("one of them");
        assert!(tensor.shape.iter().copied().eq(entry.shape.iter().map(|&dim| usize::from(dim))));
        let start = usize::from(entry.start);
        for (i, value) in tensor.values.iter().enumerate() {
            let at = &data[start + i * entry.bytes() as usize..];
            let expected = match entry.kind {
                Kind::F32 => f32::from_le_bytes(at[..4].try_into().expect("4 bytes")),
                Kind::Bf16 => f32::from_le_bytes([0, 0, at[0], at[1]]),
                // Rounding and subnormals have tests of their own.
                Kind::F16 | Kind::F64 | Kind::I64 => continue,
            };
            assert_eq!(value.to_bits(), expected.to_bits());
        }
    }
});
