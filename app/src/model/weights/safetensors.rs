//! The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes.
//!
//! Source: <https://github.com/huggingface/safetensors>, "Format".

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::{Dtype, IGNORED_SUFFIX, ReadError, Tensor, Weights};

const FORMAT: &str = "safetensors";
/// The limit of the format on its header.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// The header in its own order, so that a name that comes twice is seen.
struct Header(Vec<(String, Option<Entry>)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                        entries.push((name, None));
                    } else {
                        entries.push((name, Some(map.next_value()?)));
                    }
                }
                Ok(Header(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

fn malformed(place: impl Into<String>, what: impl Into<String>) -> ReadError {
    ReadError::Malformed { format: FORMAT, place: place.into(), what: what.into() }
}

/// Reads the tensors of a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Weights, ReadError> {
    let (length, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or_else(|| malformed("header", "the file has fewer than 8 bytes"))?;
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length)
        .ok()
        .filter(|_| length <= MAX_HEADER)
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| {
            let what = format!("a header of {length} bytes where {} are left", rest.len());
            malformed("header", what)
        })?;
    let data = &rest[header.len()..];
    let Header(entries) =
        serde_json::from_slice(header).map_err(|e| malformed("header", e.to_string()))?;
    refuse_shared_bytes(&entries)?;
    let mut weights = Weights::default();
    let mut names = std::collections::HashSet::new();
    for (name, entry) in entries {
        if !names.insert(name.clone()) {
            return Err(malformed(format!("tensor '{name}'"), "the name comes twice"));
        }
        let Some(entry) = entry else { continue };
        if !name.ends_with(IGNORED_SUFFIX) {
            let tensor = entry.tensor(&name, data)?;
            weights.insert(name, tensor);
        }
    }
    Ok(weights)
}

/// No byte belongs to two tensors, says the format: a file could ask for any amount of memory.
fn refuse_shared_bytes(entries: &[(String, Option<Entry>)]) -> Result<(), ReadError> {
    let mut ranges: Vec<([usize; 2], &str)> = entries
        .iter()
        .filter(|(name, _)| !name.ends_with(IGNORED_SUFFIX))
        .filter_map(|(name, entry)| Some((entry.as_ref()?.data_offsets, name.as_str())))
        .filter(|([start, end], _)| start < end)
        .collect();
    ranges.sort_unstable();
    let shared = ranges.windows(2).find(|pair| pair[0].0[1] > pair[1].0[0]);
    shared.map_or(Ok(()), |pair| {
        let ((_, one), ([start, end], other)) = (pair[0], pair[1]);
        let what = format!("its bytes {start} to {end} are also those of '{one}'");
        Err(malformed(format!("tensor '{other}'"), what))
    })
}

impl Entry {
    fn tensor(self, name: &str, data: &[u8]) -> Result<Tensor, ReadError> {
        let place = || format!("tensor '{name}'");
        let dtype = match self.dtype.as_str() {
            "F16" => Dtype::F16,
            "BF16" => Dtype::Bf16,
            "F32" => Dtype::F32,
            "F64" => Dtype::F64,
            other => {
                let what = format!("element type {other}; F16, BF16, F32 and F64 can be read");
                return Err(malformed(place(), what));
            }
        };
        let [start, end] = self.data_offsets;
        let bytes = data.get(start..end).ok_or_else(|| {
            let what = format!("bytes {start} to {end} where the file has {}", data.len());
            malformed(place(), what)
        })?;
        let wanted = self.shape.iter().try_fold(dtype.bytes(), |size, dim| size.checked_mul(*dim));
        if wanted != Some(bytes.len()) {
            let what =
                format!("{} bytes for shape {:?} of {}", bytes.len(), self.shape, self.dtype);
            return Err(malformed(place(), what));
        }
        Ok(Tensor { shape: self.shape, values: dtype.widen(bytes) })
    }
}
