//! `.pth` files whose archive is sound, so that the pickle inside is what is tried: programs of the
//! operations that such files use (and some that they do not), and whole dictionaries of views
//! against a plain gather.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire::model::weights::read_bytes;

#[path = "support/tensors.rs"]
mod tensors;

/// A view on a storage.
#[derive(Arbitrary, Debug)]
struct View {
    storage: u8,
    offset: u8,
    dims: Vec<(u8, u8)>,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Mark,
    Tuple,
    TupleOf(u8),
    EmptyTuple,
    EmptyDict,
    EmptyList,
    None,
    True,
    Int(i32),
    Long(Vec<u8>),
    Float,
    Word(u8),
    Text(String),
    Global(u8),
    StackGlobal,
    Persistent,
    Reduce,
    SetItem,
    SetItems,
    Append,
    Appends,
    Build,
    Remember(u8),
    RememberLong(u32),
    Memoize,
    Recall(u8),
    OrderedDict,
    View(View),
    Stop,
    Raw(u8),
}

#[derive(Arbitrary, Debug)]
enum Input {
    /// A dictionary of views and nothing else.
    Dictionary {
        storages: Vec<Vec<u8>>,
        views: Vec<View>,
    },
    Program {
        storages: Vec<Vec<u8>>,
        ops: Vec<Op>,
    },
    Raw {
        pickle: Vec<u8>,
    },
}

const WORDS: [&str; 8] =
    ["storage", "0", "cpu", "torch", "FloatStorage", "a", "b.num_batches_tracked", "collections"];
const GLOBALS: [&str; 8] = [
    "collections\nOrderedDict\n",
    "torch._utils\n_rebuild_tensor_v2\n",
    "torch._utils\n_rebuild_parameter\n",
    "torch\nSize\n",
    "torch\nFloatStorage\n",
    "torch\nBFloat16Storage\n",
    "torch\nLongStorage\n",
    "os\nsystem\n",
];

#[derive(Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let length = u32::try_from(text.len()).expect("short").to_le_bytes();
        self.put(b"X").put(&length).put(text.as_bytes())
    }

    fn int(&mut self, value: u64) -> &mut Self {
        let value = i32::try_from(value).expect("small");
        self.put(b"J").put(&value.to_le_bytes())
    }

    fn global(&mut self, name: &str) -> &mut Self {
        self.put(b"c").put(name.as_bytes())
    }

    fn ordered_dict(&mut self) -> &mut Self {
        self.global(GLOBALS[0]).put(b")R")
    }

    /// A tensor as `torch.save` writes it. Even storages hold fp32, odd ones bf16.
    fn view(&mut self, view: &View, storages: &[Vec<u8>]) {
        let number = storage_of(view, storages);
        let bytes = storages.get(number).map_or(0, Vec::len) as u64;
        let (class, size) = if number % 2 == 0 { (GLOBALS[4], 4) } else { (GLOBALS[5], 2) };
        self.global(GLOBALS[1]).put(b"((").text("storage").global(class);
        self.text(&number.to_string()).text("cpu").int(bytes / size).put(b"tQ");
        self.int(view.offset.into()).put(b"(");
        for (dim, _) in &view.dims {
            self.int((*dim).into());
        }
        self.put(b"t(");
        for (_, stride) in &view.dims {
            self.int((*stride).into());
        }
        self.put(b"t\x89").ordered_dict().put(b"tR");
    }

    fn op(&mut self, op: &Op, storages: &[Vec<u8>]) {
        match op {
            Op::Mark => self.put(b"("),
            Op::Tuple => self.put(b"t"),
            Op::TupleOf(n) => self.put(&[0x85 + n % 3]),
            Op::EmptyTuple => self.put(b")"),
            Op::EmptyDict => self.put(b"}"),
            Op::EmptyList => self.put(b"]"),
            Op::None => self.put(b"N"),
            Op::True => self.put(b"\x88"),
            Op::Int(value) => self.put(b"J").put(&value.to_le_bytes()),
            Op::Long(bytes) => {
                let len = bytes.len().min(255);
                self.put(&[0x8a, len as u8]).put(&bytes[..len])
            }
            Op::Float => self.put(b"G").put(&[0; 8]),
            Op::Word(n) => self.text(WORDS[usize::from(n % 8)]),
            Op::Text(text) => self.text(text),
            Op::Global(n) => self.global(GLOBALS[usize::from(n % 8)]),
            Op::StackGlobal => self.put(b"\x93"),
            Op::Persistent => self.put(b"Q"),
            Op::Reduce => self.put(b"R"),
            Op::SetItem => self.put(b"s"),
            Op::SetItems => self.put(b"u"),
            Op::Append => self.put(b"a"),
            Op::Appends => self.put(b"e"),
            Op::Build => self.put(b"b"),
            Op::Remember(n) => self.put(&[b'q', *n]),
            Op::RememberLong(n) => self.put(b"r").put(&n.to_le_bytes()),
            Op::Memoize => self.put(b"\x94"),
            Op::Recall(n) => self.put(&[b'h', *n]),
            Op::OrderedDict => self.ordered_dict(),
            Op::View(view) => {
                self.view(view, storages);
                self
            }
            Op::Stop => self.put(b"."),
            Op::Raw(byte) => self.put(&[*byte]),
        };
    }
}

fn storage_of(view: &View, storages: &[Vec<u8>]) -> usize {
    usize::from(view.storage) % storages.len().max(1)
}

/// A zip archive of stored entries.
fn zip(entries: &[(String, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let long = |value: usize| u32::try_from(value).expect("a small file").to_le_bytes();
    let short = |value: usize| u16::try_from(value).expect("few and short").to_le_bytes();
    for (name, data) in entries {
        let offset = long(file.len());
        let crc = crc32fast::hash(data).to_le_bytes();
        let sizes = [crc, long(data.len()), long(data.len())].concat();
        file.extend([&b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0"[..], &sizes].concat());
        file.extend([short(name.len()), [0, 0]].concat());
        file.extend([name.as_bytes(), data].concat());
        directory.extend([&b"PK\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0"[..], &sizes].concat());
        directory.extend([&short(name.len())[..], &[0; 12], &offset, name.as_bytes()].concat());
    }
    let (start, length) = (long(file.len()), long(directory.len()));
    file.extend_from_slice(&directory);
    let count = short(entries.len());
    file.extend([&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &length, &start, &[0, 0]].concat());
    file
}

fn file(pickle: &[u8], storages: &[Vec<u8>]) -> Vec<u8> {
    let mut entries = vec![("x/data.pkl".to_owned(), pickle)];
    for (number, storage) in storages.iter().enumerate().take(64) {
        entries.push((format!("x/data/{number}"), storage));
    }
    zip(&entries)
}

/// The elements of a view, one index after the other; `None` where it leaves its storage.
fn gather(view: &View, storage: &[u8], wide: bool) -> Option<Vec<f32>> {
    let element = |at: usize| {
        let bytes = if wide { storage.get(at * 4..at * 4 + 4) } else { None };
        let half = if wide { None } else { storage.get(at * 2..at * 2 + 2) };
        let half = half.map(|b| f32::from_le_bytes([0, 0, b[0], b[1]]));
        bytes.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).or(half)
    };
    if view.dims.iter().any(|(dim, _)| *dim == 0) {
        return Some(Vec::new());
    }
    // All positions of the first dimensions, then one dimension more.
    let mut positions = vec![usize::from(view.offset)];
    for (dim, stride) in &view.dims {
        let steps = 0..usize::from(*dim);
        positions = positions
            .iter()
            .flat_map(|at| steps.clone().map(move |i| at + i * usize::from(*stride)))
            .collect();
    }
    positions.into_iter().map(element).collect()
}

fn dictionary(mut storages: Vec<Vec<u8>>, views: &[View]) {
    storages.truncate(16);
    if storages.is_empty() {
        storages.push(Vec::new());
    }
    for (number, storage) in storages.iter_mut().enumerate() {
        let size = if number % 2 == 0 { 4 } else { 2 };
        storage.truncate(storage.len() / size * size);
    }
    let elements = |view: &View| {
        view.dims.iter().try_fold(1_usize, |n, (dim, _)| n.checked_mul(usize::from(*dim)))
    };
    let mut pickle = Pickle::default();
    pickle.put(b"\x80\x02").ordered_dict().put(b"(");
    for (name, view) in views.iter().enumerate() {
        pickle.text(&format!("t{name}")).view(view, &storages);
    }
    pickle.put(b"u.");
    let file = file(&pickle.0, &storages);
    let weights = tensors::check(read_bytes(&file), file.len());

    let total = views.iter().try_fold(0_usize, |sum, view| sum.checked_add(elements(view)?));
    let deep = views.iter().any(|view| view.dims.len() > 64);
    // Too much for the file, or for this check.
    if deep || total.is_none_or(|total| total > file.len()) {
        assert!(weights.is_none());
        return;
    }
    for (name, view) in views.iter().enumerate() {
        let number = storage_of(view, &storages);
        let wide = number % 2 == 0;
        let size = if wide { 4 } else { 2 };
        let fits = elements(view).expect("counted") <= storages[number].len() / size;
        let expected = gather(view, &storages[number], wide).filter(|_| fits);
        let Some(expected) = expected else {
            assert!(weights.is_none());
            return;
        };
        let Some(weights) = &weights else { continue };
        let tensor = weights.get(&format!("t{name}")).expect("one of the dictionary");
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&tensor.values), bits(&expected));
    }
    assert!(weights.is_some(), "every view is right");
}

fuzz_target!(|input: Input| {
    let file = match input {
        Input::Dictionary { storages, views } => return dictionary(storages, &views),
        Input::Program { storages, ops } => {
            let mut pickle = Pickle::default();
            for op in &ops {
                pickle.op(op, &storages);
            }
            file(&pickle.0, &storages)
        }
        Input::Raw { pickle } => file(&pickle, &[vec![0; 16]]),
    };
    tensors::check(read_bytes(&file), file.len());
});
