//! Weights files, made here byte by byte: good ones, wrong ones, and ones that try something.

use super::pickle::Value;
use super::*;

/// A safetensors file of `header` and `data`.
fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// A zip archive of stored entries, as PyTorch lays it out: the data aligned by an extra field.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let field = |value: usize| u32::try_from(value).expect("a small file").to_le_bytes();
    for (name, data) in entries {
        let (crc, offset) = (crc32fast::hash(data).to_le_bytes(), field(file.len()));
        let sizes = [crc, field(data.len()), field(data.len())].concat();
        let [n0, n1, ..] = field(name.len());
        let padding = (64 - (file.len() + 30 + name.len()) % 64) % 64;
        let [p0, p1, ..] = field(padding);
        file.extend_from_slice(b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0");
        file.extend_from_slice(&sizes);
        file.extend_from_slice(&[n0, n1, p0, p1]);
        file.extend_from_slice(name.as_bytes());
        file.extend(std::iter::repeat_n(b'F', padding));
        file.extend_from_slice(data);
        directory.extend_from_slice(b"PK\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0");
        directory.extend_from_slice(&sizes);
        directory.extend_from_slice(&[n0, n1]);
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&offset);
        directory.extend_from_slice(name.as_bytes());
    }
    let [c0, c1, ..] = field(entries.len());
    let (start, length) = (field(file.len()), field(directory.len()));
    file.extend_from_slice(&directory);
    file.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    file.extend_from_slice(&[c0, c1, c0, c1]);
    file.extend_from_slice(&length);
    file.extend_from_slice(&start);
    file.extend_from_slice(&[0, 0]);
    file
}

/// A pickle in the making: the operations that `torch.save` writes.
#[derive(Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn op(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        let length = u32::try_from(text.len()).expect("short").to_le_bytes();
        self.op(b"X").op(&length).op(text.as_bytes())
    }

    /// A name, remembered as the next number.
    fn global(self, module: &str, name: &str) -> Self {
        self.op(format!("c{module}\n{name}\n").as_bytes())
    }

    /// The name `collections.OrderedDict`, called with nothing.
    fn ordered_dict(self) -> Self {
        self.global("collections", "OrderedDict").op(b")R")
    }

    fn int(self, value: u16) -> Self {
        let [low, high] = value.to_le_bytes();
        self.op(&[b'M', low, high])
    }

    fn ints(self, values: &[u16]) -> Self {
        values.iter().fold(self.op(b"("), |p, v| p.int(*v)).op(b"t")
    }

    /// A tensor over storage `key` of `elements` elements.
    fn tensor(
        self,
        (class, key, elements): (&str, &str, u16),
        offset: u16,
        shape: &[u16],
        strides: &[u16],
    ) -> Self {
        self.global("torch._utils", "_rebuild_tensor_v2")
            .op(b"((")
            .text("storage")
            .global("torch", class)
            .text(key)
            .text("cpu")
            .int(elements)
            .op(b"tQ")
            .int(offset)
            .ints(shape)
            .ints(strides)
            .op(b"\x89")
            .ordered_dict()
            .op(b"tR")
    }

    /// A dictionary of what `items` pushes.
    fn dict(items: impl FnOnce(Self) -> Self) -> Vec<u8> {
        let pickle = Self::default().op(b"\x80\x02").ordered_dict().op(b"q\x01(");
        // Such a dictionary carries its format as an attribute.
        let metadata = |p: Self| p.op(b"}").text("_metadata").ordered_dict().op(b"sb");
        metadata(items(pickle).op(b"u")).op(b".").0
    }
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn pth(pickle: &[u8], storages: &[(&str, &[u8])]) -> Vec<u8> {
    let mut entries = vec![("run/data.pkl", pickle), ("run/byteorder", &b"little"[..])];
    entries.extend_from_slice(storages);
    zip(&entries)
}

/// A file of two tensors over one storage, a parameter, and a counter that is not needed.
fn good_pth() -> Vec<u8> {
    let storage = ("FloatStorage", "0", 6);
    let pickle = Pickle::dict(|p| {
        let p = p.text("a").tensor(storage, 0, &[2, 3], &[3, 1]);
        let p = p.text("b").tensor(storage, 1, &[2, 2], &[1, 3]);
        let p = p.text("c").global("torch._utils", "_rebuild_parameter").op(b"(");
        let p = p.tensor(("HalfStorage", "1", 1), 0, &[], &[]).op(b"\x88").ordered_dict();
        p.op(b"tR").text("bn.num_batches_tracked").int(9)
    });
    let values = floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    pth(&pickle, &[("run/data/0", &values), ("run/data/1", &halves(&[0.5]))])
}

const GOOD_HEADER: &str = r#"{"__metadata__":{"format":"pt"},
    "a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},
    "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},
    "c":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},
    "n.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[10,18]}}"#;

fn good_safetensors() -> Vec<u8> {
    let data = [halves(&[1.0, -2.0]), floats(&[0.1]), vec![0x40, 0x40], vec![0; 8]].concat();
    safetensors(GOOD_HEADER, &data)
}

fn refused(bytes: &[u8]) -> String {
    read_bytes(bytes).expect_err("must be refused").to_string()
}

#[test]
fn safetensors_of_each_type_are_read() {
    let weights = read_bytes(&good_safetensors()).expect("well formed");
    let tensor =
        |shape: &[usize], values: &[f32]| Tensor { shape: shape.to_vec(), values: values.to_vec() };
    assert_eq!(weights.get("a"), Some(&tensor(&[2, 1], &[1.0, -2.0])));
    assert_eq!(weights.get("b"), Some(&tensor(&[1], &[0.1])));
    assert_eq!(weights.get("c"), Some(&tensor(&[], &[3.0])));
    assert_eq!(weights.0.len(), 3, "the counter is left out");
}

/// A header of 640 bytes begins with 80 02 as the length is written, and so does an old `.pth`.
#[test]
fn a_header_of_any_length_is_one() {
    for length in (64..2048).chain([0x0403_4b50]) {
        let entry = r#"{"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]}"#;
        let header = format!("{entry}{}}}", " ".repeat(length - entry.len() - 1));
        let weights = read_bytes(&safetensors(&header, &[0, 60]));
        let weights = weights.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        assert_eq!(weights.values("a"), [1.0]);
    }
}

#[test]
fn safetensors_that_do_not_add_up_are_refused() {
    let one = |entry: &str| safetensors(&format!(r#"{{"a":{entry}}}"#), &[0; 8]);
    for (entry, said) in [
        (r#"{"dtype":"F16","shape":[2],"data_offsets":[0,8]}"#, "8 bytes for shape [2] of F16"),
        (r#"{"dtype":"F32","shape":[3],"data_offsets":[0,12]}"#, "bytes 0 to 12 where"),
        (r#"{"dtype":"F32","shape":[1],"data_offsets":[8,4]}"#, "bytes 8 to 4 where"),
        (r#"{"dtype":"I64","shape":[1],"data_offsets":[0,8]}"#, "element type I64"),
        (r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#, "8 bytes for"),
        (r#"{"dtype":"F32","shape":[1]}"#, "missing field"),
    ] {
        let text = refused(&one(entry));
        assert!(text.contains(said), "{entry}: {text}");
    }
    let twice = r#"{"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]},
                    "a":{"dtype":"F16","shape":[],"data_offsets":[2,4]}}"#;
    assert!(refused(&safetensors(twice, &[0; 4])).contains("the name comes twice"));
    let mut long = good_safetensors();
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refused(&long).contains("a header of 18446744073709551615 bytes"));
}

#[test]
fn a_pth_is_read_with_its_views() {
    let weights = read_bytes(&good_pth()).expect("well formed");
    assert_eq!(weights.get("a").map(|t| &t.shape[..]), Some(&[2, 3][..]));
    assert_eq!(weights.values("a"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(weights.values("b"), [1.0, 4.0, 2.0, 5.0], "a transposed view");
    assert_eq!(weights.values("c"), [0.5]);
    assert_eq!(weights.0.len(), 3, "the counter is left out");
}

#[test]
fn a_pth_that_would_run_something_is_refused_by_name() {
    let run = |pickle: Vec<u8>| refused(&pth(&pickle, &[]));
    let system = Pickle::dict(|p| p.text("a").global("os", "system").text("true").op(b"\x85R"));
    let text = run(system);
    assert!(text.contains("names os.system") && text.contains("nothing in it is run"), "{text}");
    let eval = Pickle::dict(|p| {
        p.text("a").text("builtins").text("eval").op(b"\x93").text("1").op(b"\x85R")
    });
    assert!(run(eval).contains("names builtins.eval"));
    let object = Pickle::dict(|p| p.text("a").global("torch", "Size").op(b")\x81"));
    assert!(run(object).contains("operation NEWOBJ (0x81)"));
    // A known name with a suffix that looks harmless is still not called.
    let storage = Pickle::dict(|p| p.text("a").global("torch", "EvilStorage").op(b")R"));
    assert!(run(storage).contains("torch.EvilStorage with arguments of an unknown form"));
}

#[test]
fn a_pth_whose_views_leave_their_storage_is_refused() {
    let data = floats(&[0.0; 4]);
    let with = |elements, offset, shape: &[u16], strides: &[u16]| {
        let storage = ("FloatStorage", "0", elements);
        let pickle = Pickle::dict(|p| p.text("w").tensor(storage, offset, shape, strides));
        refused(&pth(&pickle, &[("run/data/0", &data)]))
    };
    assert!(with(4, 1, &[4], &[1]).contains("leaves its storage of 4 elements"));
    assert!(with(4, 0, &[2, 2], &[3, 1]).contains("leaves its storage"));
    assert!(with(4, 0, &[60000, 60000, 60000], &[0, 0, 0]).contains("leaves its storage"));
    assert!(with(5, 0, &[4], &[1]).contains("16 bytes for 5 elements"));
    assert!(with(4, 0, &[4, 1], &[1]).contains("_rebuild_tensor_v2 with arguments"));
}

/// Names cost some bytes, what they stand for is copied: a file must not ask for more memory than
/// it is worth.
#[test]
fn a_file_that_repeats_itself_does_not_fill_the_memory() {
    let data = [0; 256];
    // Each view is right, and there are more of them than any network shares weights.
    let storage = ("FloatStorage", "0", 64);
    let many = |count: u8| {
        Pickle::dict(|p| {
            let first = p.text("0").tensor(storage, 0, &[64], &[1]).op(b"q\x07");
            (1..count).fold(first, |p, n| p.text(&format!("{n}")).op(b"h\x07"))
        })
    };
    let shared = pth(&many(2), &[("run/data/0", &data)]);
    assert_eq!(read_bytes(&shared).expect("tied weights").0.len(), 2);
    let text = refused(&pth(&many(200), &[("run/data/0", &data)]));
    assert!(text.contains("more elements together"), "{text}");
    // Two tensors over the same bytes of a safetensors file.
    let entry = |name: &str, from: u8, to: u8| {
        let shape = (to - from) / 4;
        format!(r#""{name}":{{"dtype":"F32","shape":[{shape}],"data_offsets":[{from},{to}]}}"#)
    };
    let two = |a: &str, b: &str| safetensors(&format!("{{{a},{b}}}"), &[0; 16]);
    assert!(read_bytes(&two(&entry("a", 4, 16), &entry("b", 0, 4))).is_ok());
    assert!(read_bytes(&two(&entry("a", 0, 16), &entry("b", 8, 8))).is_ok());
    let text = refused(&two(&entry("a", 4, 16), &entry("b", 0, 8)));
    assert!(text.contains("tensor 'a': its bytes 4 to 16 are also those of 'b'"), "{text}");
}

#[test]
fn entries_of_an_archive_over_the_same_bytes_are_refused() {
    let pickle = Pickle::dict(|p| {
        (0..20).fold(p, |p, n: u16| {
            let key = n.to_string();
            p.text(&key).tensor(("FloatStorage", &key, 1024), 0, &[1], &[1])
        })
    });
    let storages: Vec<String> = (0..20).map(|n| format!("run/data/{n}")).collect();
    let data = [0; 4096];
    let empty: Vec<(&str, &[u8])> =
        storages.iter().map(|name| (name.as_str(), &data[..])).collect();
    let mut file = pth(&pickle, &empty);
    assert!(read_bytes(&file).is_ok());
    // All records of the directory point to the entry of the first storage, and the others go.
    let local = |file: &[u8], n: usize| {
        let header = b"PK\x03\x04";
        let mut found = file.windows(4).enumerate().filter(|(_, w)| w == header);
        found.nth(n).map(|(at, _)| at).expect("a local header")
    };
    let (first, second) = (local(&file, 2), local(&file, 3));
    let start = file.windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    let tail = file.split_off(start);
    file.truncate(second);
    let (shift, place) = (u32::try_from(file.len()).expect("small"), |at: usize| {
        u32::try_from(at).expect("small").to_le_bytes()
    });
    let mut tail = tail;
    let records: Vec<usize> =
        (0..tail.len() - 3).filter(|&at| tail[at..].starts_with(b"PK\x01\x02")).collect();
    for at in &records[2..] {
        tail[at + 42..at + 46].copy_from_slice(&place(first));
    }
    let end = tail.len() - 6;
    tail[end..end + 4].copy_from_slice(&shift.to_le_bytes());
    file.extend_from_slice(&tail);
    let text = refused(&file);
    assert!(text.contains("share bytes"), "{text}");
}

#[test]
fn views_and_names_beyond_reason_are_refused() {
    let dims = vec![1; 65];
    let pickle = Pickle::dict(|p| p.text("w").tensor(("FloatStorage", "0", 1), 0, &dims, &dims));
    let text = refused(&pth(&pickle, &[("run/data/0", &[0; 4])]));
    assert!(text.contains("65 dimensions"), "{text}");
    let name = format!("{}Storage", "x".repeat(300));
    let pickle = Pickle::dict(|p| p.text("w").text("torch").text(&name).op(b"\x93"));
    assert!(refused(&pth(&pickle, &[])).contains("a name of 313 bytes"));
}

#[test]
fn pth_files_of_other_kinds_are_named() {
    assert!(refused(b"\x80\x02\x8a\x0al\xfc").contains("before PyTorch 1.6"));
    assert!(refused(b"hello, world").contains("neither a safetensors file nor a .pth"));
    assert!(refused(&zip(&[("word/document.xml", b"<x/>")])).contains("no data.pkl"));
    let model = Pickle::dict(|p| p.text("epoch").int(3).text("state_dict").ordered_dict());
    let text = refused(&pth(&model, &[]));
    assert!(text.contains("'epoch': the number 3, not a tensor"), "{text}");
    let big = zip(&[("x/data.pkl", b".".as_slice()), ("x/byteorder", b"big")]);
    assert!(refused(&big).contains("big-endian"));
    let list = pth(b"\x80\x02].", &[]);
    assert!(refused(&list).contains("not a dictionary of tensors"));
}

#[test]
fn a_damaged_pth_is_noticed() {
    let good = good_pth();
    let mut flipped = good.clone();
    let at = good.windows(4).position(|w| w == 4.0_f32.to_le_bytes()).expect("the value 4");
    flipped[at] ^= 1;
    assert!(refused(&flipped).contains("entry 'run/data/0': damaged"), "{}", refused(&flipped));
    for end in [30, good.len() / 2, good.len() - 1] {
        refused(&good[..end]);
    }
}

/// Every byte of small files changed in several ways: values come out or an error, and no panic.
#[test]
fn any_byte_may_be_anything() {
    for good in [good_safetensors(), good_pth()] {
        for at in 0..good.len() {
            for value in [0, 1, 0x28, 0x7f, 0x80, 0xff, good[at] ^ 1, good[at].wrapping_add(1)] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let _ = read_bytes(&bytes);
            }
        }
    }
    // Without the archive's checksum in the way.
    let pickle = Pickle::dict(|p| p.text("w").tensor(("FloatStorage", "0", 1), 0, &[1], &[1]));
    for at in 0..pickle.len() {
        for value in 0..=255 {
            let mut bytes = pickle.clone();
            bytes[at] = value;
            let _ = pickle::load(&bytes);
        }
    }
}

#[test]
fn deep_nesting_ends_in_an_error() {
    let nested = |op: &[u8]| [b"\x80\x02)".to_vec(), op.repeat(100_000), b".".to_vec()].concat();
    assert!(refused(&pth(&nested(b"\x85"), &[])).contains("nested deeper than 16"));
    // A dictionary in a tuple in a dictionary, and so on: what an inner container holds is dropped.
    let ladder = |n: usize| {
        [b"\x80\x02}".to_vec(), b"N}".repeat(n), b"\x85s".repeat(n), b".".to_vec()].concat()
    };
    let top = pickle::load(&ladder(100_000)).expect("a dictionary");
    let Value::Dict(items) = top else { panic!("{top}") };
    assert!(matches!(&items[..], [(Value::None, Value::Tuple(inner, 1))] if inner.is_empty()));
    // Doubling: a tuple of the same tuple twice, forty times over.
    let doubled = nested(b"q\x00h\x00\x86");
    assert!(refused(&pth(&doubled, &[])).contains("nested deeper than 16"));
}

fn small() -> (Network, Weights) {
    let network = Arch::Resnet18.network();
    let weights = crate::model::seed::weights(&network, 1);
    (network, weights)
}

#[test]
fn all_problems_of_weights_are_listed_at_once() {
    let (network, mut weights) = small();
    assert_eq!(weights.problems(&network, true, Precision::Fp16), []);
    weights.0.remove("bn1.bias");
    weights.insert("extra".into(), Tensor { shape: vec![1], values: vec![0.0] });
    weights.insert("fc.bias".into(), Tensor { shape: vec![3], values: vec![0.0; 3] });
    let of = |name: &str, value: f32| {
        let mut tensor = small().1.get(name).expect("a tensor").clone();
        tensor.values[1] = value;
        (name.to_string(), tensor)
    };
    for (name, tensor) in [
        of("conv1.weight", f32::NAN),
        of("bn1.running_var", -0.5),
        of("layer1.0.bn1.weight", -70_000.0),
        of("fc.weight", 70_000.0),
    ] {
        weights.insert(name, tensor);
    }
    let mut found: Vec<String> =
        weights.problems(&network, true, Precision::Fp16).iter().map(ToString::to_string).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "bn1.running_var: a variance of -0.5",
            "conv1.weight: 1 values are infinite or not a number",
            "layer1.0.bn1.weight: -70000 is beyond fp16 (±65504); use --precision fp32",
            "missing bn1.bias [64]",
            "not in the network: extra [1]",
            "shape of fc.bias: weights [3], network [10]",
        ]
    );
    let fp32 = weights.problems(&network, true, Precision::Fp32);
    assert_eq!(fp32.len(), 5, "fp32 holds -70000");
}

#[test]
fn weights_without_a_head_do_for_features() {
    let (network, mut weights) = small();
    weights.0.retain(|name, _| !name.starts_with("fc."));
    assert_eq!(weights.problems(&network, false, Precision::Fp32), []);
    let missing = weights.problems(&network, true, Precision::Fp32);
    assert_eq!(missing.len(), 2, "{missing:?}");
}
