//! `.pth` files of PyTorch 1.6 and later: a zip archive with a pickle of the state dictionary and
//! one entry per storage.
//!
//! Source: `torch/serialization.py` and `torch/_utils.py` of PyTorch, read for the layout.

use std::collections::HashMap;

use super::pickle::{self, Value};
use super::{Dtype, IGNORED_SUFFIX, ReadError, Tensor, Weights, zip};

pub(super) const FORMAT: &str = "pth";

fn malformed(place: impl Into<String>, what: impl Into<String>) -> ReadError {
    ReadError::Malformed { format: FORMAT, place: place.into(), what: what.into() }
}

/// Reads the tensors of a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Weights, ReadError> {
    let entries = zip::entries(bytes)?;
    let (root, pickle) = entries
        .iter()
        .find_map(|entry| entry.name.strip_suffix("data.pkl").map(|root| (root, entry)))
        .ok_or_else(|| malformed("archive", "no data.pkl in it: not made by torch.save"))?;
    let entries: HashMap<&str, &zip::Entry<'_>> = entries
        .iter()
        .filter_map(|entry| entry.name.strip_prefix(root).map(|name| (name, entry)))
        .collect();
    if let Some(order) = entries.get("byteorder")
        && order.data()? != b"little"
    {
        return Err(ReadError::Refused { format: FORMAT, what: "big-endian tensors".into() });
    }
    let Value::Dict(items) = pickle::load(pickle.data()?)? else {
        return Err(malformed("data.pkl", "not a dictionary of tensors"));
    };
    let mut storages = HashMap::new();
    let mut weights = Weights::default();
    // What is copied is at most what the file has: entries could share bytes, tensors a storage.
    let (mut loaded, mut elements) = (0, 0);
    for (name, value) in items.iter() {
        let Value::Text(name) = name else {
            return Err(malformed("data.pkl", format!("a key that is no text: {name}")));
        };
        if name.ends_with(IGNORED_SUFFIX) {
            continue;
        }
        let Value::Tensor(view) = value else {
            let what = format!(
                "{value}, not a tensor; save the state dictionary alone: \
                 torch.save(model.state_dict(), FILE)"
            );
            return Err(malformed(format!("'{name}'"), what));
        };
        let key = (view.storage.key.clone(), view.storage.class.clone());
        let storage = match storages.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let (data, dtype) = find_storage(&entries, &view.storage)?;
                loaded += data.len();
                if loaded > bytes.len() {
                    return Err(malformed("archive", "its entries share bytes"));
                }
                entry.insert(dtype.widen(data))
            }
        };
        let tensor = view.gather(storage).ok_or_else(|| {
            let what = format!(
                "shape {:?} with strides {:?} from element {} leaves its storage of {} elements",
                view.shape,
                view.strides,
                view.offset,
                storage.len()
            );
            malformed(format!("tensor '{name}'"), what)
        })?;
        elements += tensor.values.len();
        if elements > bytes.len() {
            let what = format!(
                "with it the tensors have more elements together ({elements}) than the file has \
                 bytes"
            );
            return Err(malformed(format!("tensor '{name}'"), what));
        }
        if !weights.insert(name.to_string(), tensor) {
            return Err(malformed(format!("tensor '{name}'"), "the name comes twice"));
        }
    }
    Ok(weights)
}

/// The bytes of a storage, and what they are.
fn find_storage<'a>(
    entries: &HashMap<&str, &zip::Entry<'a>>,
    storage: &pickle::Storage,
) -> Result<(&'a [u8], Dtype), ReadError> {
    let place = || format!("storage '{}'", storage.key);
    let dtype = match &*storage.class {
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::Bf16,
        "FloatStorage" => Dtype::F32,
        "DoubleStorage" => Dtype::F64,
        other => {
            let what = format!("{other}; half, bfloat16, float and double can be read");
            return Err(malformed(place(), what));
        }
    };
    let entry = entries
        .get(format!("data/{}", storage.key).as_str())
        .ok_or_else(|| malformed(place(), "not in the archive"))?;
    let bytes = entry.data()?;
    if Some(bytes.len()) != storage.elements.checked_mul(dtype.bytes()) {
        let what = format!("{} bytes for {} elements", bytes.len(), storage.elements);
        return Err(malformed(place(), what));
    }
    Ok((bytes, dtype))
}

/// A tensor as a window on a storage.
#[derive(Debug)]
pub(super) struct View {
    pub(super) storage: std::rc::Rc<pickle::Storage>,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl View {
    /// The elements in row-major order; `None` when one of them lies outside the storage.
    fn gather(&self, storage: &[f32]) -> Option<Tensor> {
        let count = self.shape.iter().try_fold(1_usize, |n, dim| n.checked_mul(*dim))?;
        // The last element is the furthest: strides are not negative.
        let mut last = self.offset;
        for (dim, stride) in self.shape.iter().zip(&self.strides) {
            last = dim.saturating_sub(1).checked_mul(*stride)?.checked_add(last)?;
        }
        // A broadcast view (stride 0) could ask for any number of elements.
        if count > 0 && (last >= storage.len() || count > storage.len()) {
            return None;
        }
        let mut values = Vec::with_capacity(count);
        for index in 0..count {
            let (mut rest, mut at) = (index, self.offset);
            for (dim, stride) in self.shape.iter().zip(&self.strides).rev() {
                at += rest % dim * stride;
                rest /= dim;
            }
            values.push(storage[at]);
        }
        Some(Tensor { shape: self.shape.clone(), values })
    }
}
