//! Pickles of state dictionaries, and nothing else.
//!
//! A pickle is a program for a stack machine, and the machine of Python runs whatever function
//! the program names. This one builds values only: the five functions that `torch.save` names in
//! a state dictionary are known by name and done here, any other is refused by name, and so is
//! every operation that such files do not use.
//!
//! Source of the operations: `Lib/pickletools.py` of Python.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::ReadError;
use super::pth::{FORMAT, View};

/// Containers within containers. A state dictionary needs four.
const MAX_DEPTH: u8 = 16;
/// Dimensions of a tensor: the most that PyTorch has.
const MAX_DIMS: usize = 64;
/// Bytes of a function's or class's name. Each use makes a copy.
const MAX_GLOBAL: usize = 256;

/// A value that a pickle can make here.
#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool,
    Int(i64),
    Float,
    Text(Rc<str>),
    Tuple(Rc<[Value]>, u8),
    /// A list; its elements do not matter for tensors.
    List,
    Dict(Rc<Vec<(Value, Value)>>),
    Global(Rc<str>),
    Storage(Rc<Storage>),
    Tensor(Rc<View>),
    /// A dictionary that was remembered before it was filled. A copy would miss what is put in
    /// later, so it may be remembered, but not used.
    Unfinished,
}

/// A storage as the pickle names it.
#[derive(Debug)]
pub(super) struct Storage {
    /// Name of its class, which tells the element type: `FloatStorage`.
    pub(super) class: Rc<str>,
    /// Name of its entry in the archive.
    pub(super) key: Rc<str>,
    /// Number of elements.
    pub(super) elements: usize,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bool => f.write_str("a truth value"),
            Self::Int(value) => write!(f, "the number {value}"),
            Self::Float => f.write_str("a number"),
            Self::Text(text) => write!(f, "the text '{text}'"),
            Self::Tuple(..) => f.write_str("a tuple"),
            Self::List => f.write_str("a list"),
            Self::Dict(_) | Self::Unfinished => f.write_str("a dictionary"),
            Self::Global(name) => write!(f, "the name {name}"),
            Self::Storage(_) => f.write_str("a storage"),
            Self::Tensor(_) => f.write_str("a tensor"),
        }
    }
}

impl Value {
    const fn depth(&self) -> u8 {
        match self {
            Self::Tuple(_, depth) => *depth,
            _ => 0,
        }
    }
}

/// Runs the pickle `bytes` and returns the value it makes.
pub(super) fn load(bytes: &[u8]) -> Result<Value, ReadError> {
    let mut machine = Machine { bytes, at: 0, op_at: 0, stack: Vec::new(), memo: HashMap::new() };
    loop {
        if let Some(value) = machine.step()? {
            return Ok(value);
        }
    }
}

enum Item {
    Mark,
    Value(Value),
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    op_at: usize,
    stack: Vec<Item>,
    memo: HashMap<u32, Value>,
}

impl Machine<'_> {
    fn malformed(&self, what: impl Into<String>) -> ReadError {
        let place = format!("data.pkl byte {}", self.op_at);
        ReadError::Malformed { format: FORMAT, place, what: what.into() }
    }

    fn refused(&self, what: String) -> ReadError {
        ReadError::Refused { format: FORMAT, what }
    }

    fn take(&mut self, len: usize) -> Result<&[u8], ReadError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.malformed("the pickle is cut short"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn length(&mut self) -> Result<usize, ReadError> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn text(&mut self, len: usize) -> Result<Value, ReadError> {
        let text = std::str::from_utf8(self.take(len)?).ok().map(Rc::from);
        text.map(Value::Text).ok_or_else(|| self.malformed("a text that is not UTF-8"))
    }

    /// Bytes up to the end of the line, which is read over.
    fn line(&mut self) -> Result<&str, ReadError> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        let start = self.at;
        self.take(len + 1)?;
        let line = std::str::from_utf8(&self.bytes[start..start + len]).ok();
        line.ok_or_else(|| self.malformed("a name that is not UTF-8"))
    }

    fn push(&mut self, value: Value) {
        self.stack.push(Item::Value(value));
    }

    fn pop(&mut self) -> Result<Value, ReadError> {
        match self.stack.pop() {
            Some(Item::Value(Value::Unfinished)) => {
                Err(self.refused("a dictionary that is used twice".into()))
            }
            Some(Item::Value(value)) => Ok(value),
            Some(Item::Mark) | None => Err(self.malformed("a value is missing on the stack")),
        }
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, ReadError> {
        let mut values = Vec::new();
        while !matches!(self.stack.last(), Some(Item::Mark)) {
            values.push(self.pop()?);
        }
        self.stack.pop();
        values.reverse();
        Ok(values)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Value>, ReadError> {
        let mut values = (0..count).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        values.reverse();
        Ok(values)
    }

    fn push_tuple(&mut self, values: Vec<Value>) -> Result<(), ReadError> {
        let depth = values.iter().map(Value::depth).max().unwrap_or(0) + 1;
        if depth > MAX_DEPTH {
            return Err(self.refused(format!("tuples nested deeper than {MAX_DEPTH}")));
        }
        self.push(Value::Tuple(values.into(), depth));
        Ok(())
    }

    /// Runs one operation; the value of the pickle, if that was the last one.
    fn step(&mut self) -> Result<Option<Value>, ReadError> {
        self.op_at = self.at;
        let [op] = self.array()?;
        match op {
            b'.' => return self.pop().map(Some),
            0x80 => drop(self.array::<1>()?),    // PROTO
            0x95 => drop(self.array::<8>()?),    // FRAME
            b'(' => self.stack.push(Item::Mark), // MARK
            b'N' => self.push(Value::None),
            0x88 | 0x89 => self.push(Value::Bool), // NEWTRUE, NEWFALSE
            b'}' => self.push(Value::Dict(Rc::default())), // EMPTY_DICT
            b']' => self.push(Value::List),        // EMPTY_LIST
            b'K' | b'M' | b'J' | 0x8a | b'G' => self.number(op)?,
            b'X' | 0x8c => self.unicode(op)?,
            b')' | b't' | 0x85..=0x87 => self.tuple(op)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember_or_recall(op)?,
            b'c' | 0x93 => self.global(op)?,
            b'Q' => self.persistent()?, // BINPERSID
            b'R' => self.reduce()?,
            b's' | b'u' => self.set_items(op)?,
            b'a' | b'e' => self.append(op)?,
            b'b' => drop(self.pop()?), // BUILD: attributes of the dictionary (its _metadata)
            _ => return Err(self.refused(self.unknown(op))),
        }
        Ok(None)
    }

    fn unknown(&self, op: u8) -> String {
        let name = match op {
            b'o' => "OBJ",
            b'i' => "INST",
            0x81 => "NEWOBJ",
            0x92 => "NEWOBJ_EX",
            0x82..=0x84 => "EXT",
            b'P' => "PERSID",
            b'B' | b'C' | 0x8e | 0x96 => "BYTES",
            _ => "unknown",
        };
        format!(
            "the pickle has the operation {name} ({op:#04x}) at byte {}, which a state dictionary \
             does not need; nothing in it is run",
            self.op_at
        )
    }

    fn number(&mut self, op: u8) -> Result<(), ReadError> {
        let value = match op {
            b'K' => i64::from(self.array::<1>()?[0]), // BININT1
            b'M' => i64::from(u16::from_le_bytes(self.array()?)), // BININT2
            b'J' => i64::from(i32::from_le_bytes(self.array()?)), // BININT
            b'G' => {
                self.array::<8>()?; // BINFLOAT
                self.push(Value::Float);
                return Ok(());
            }
            _ => {
                // LONG1: little-endian two's complement of any length.
                let [len] = self.array()?;
                let bytes = self.take(usize::from(len))?;
                let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
                let mut wide = [fill; 8];
                let Some(low) = wide.get_mut(..bytes.len()) else {
                    return Err(self.refused("a number of more than 64 bits".into()));
                };
                low.copy_from_slice(bytes);
                i64::from_le_bytes(wide)
            }
        };
        self.push(Value::Int(value));
        Ok(())
    }

    fn unicode(&mut self, op: u8) -> Result<(), ReadError> {
        let len = if op == b'X' { self.length()? } else { usize::from(self.array::<1>()?[0]) };
        let text = self.text(len)?;
        self.push(text);
        Ok(())
    }

    fn tuple(&mut self, op: u8) -> Result<(), ReadError> {
        let values = match op {
            b')' => Vec::new(),
            b't' => self.pop_to_mark()?,
            _ => self.pop_many(usize::from(op - 0x84))?,
        };
        self.push_tuple(values)
    }

    fn remember_or_recall(&mut self, op: u8) -> Result<(), ReadError> {
        let index = match op {
            b'q' | b'h' => u32::from(self.array::<1>()?[0]),
            b'r' | b'j' => u32::from_le_bytes(self.array()?),
            _ => u32::try_from(self.memo.len()).map_err(|_| self.malformed("memo too long"))?,
        };
        if matches!(op, b'h' | b'j') {
            let value = self.memo.get(&index).cloned();
            let value = value.ok_or_else(|| self.malformed(format!("no memo {index}")))?;
            self.push(value);
            return Ok(());
        }
        let value = match self.stack.last() {
            Some(Item::Value(Value::Dict(_))) => Value::Unfinished,
            Some(Item::Value(value)) => value.clone(),
            _ => return Err(self.malformed("a value is missing on the stack")),
        };
        self.memo.insert(index, value);
        Ok(())
    }

    fn global(&mut self, op: u8) -> Result<(), ReadError> {
        let name: Rc<str> = if op == b'c' {
            let module = self.line()?.to_string();
            format!("{module}.{}", self.line()?).into()
        } else {
            let pair = self.pop_many(2)?;
            let [Value::Text(module), Value::Text(name)] = &pair[..] else {
                return Err(self.malformed("a name that is no text"));
            };
            // A text can be recalled from the memo at the cost of two bytes.
            let length = module.len() + 1 + name.len();
            if length > MAX_GLOBAL {
                return Err(self.refused(format!("a name of {length} bytes in the pickle")));
            }
            format!("{module}.{name}").into()
        };
        let known = matches!(
            &*name,
            "collections.OrderedDict"
                | "torch._utils._rebuild_tensor_v2"
                | "torch._utils._rebuild_parameter"
                | "torch.Size"
        ) || name.starts_with("torch.") && name.ends_with("Storage");
        if !known {
            let what = format!(
                "the pickle names {name}, which a state dictionary of plain tensors does not \
                 need; nothing in it is run"
            );
            return Err(self.refused(what));
        }
        self.push(Value::Global(name));
        Ok(())
    }

    /// `("storage", class, key, location, elements)`.
    fn persistent(&mut self) -> Result<(), ReadError> {
        let id = self.pop()?;
        let storage = match &id {
            Value::Tuple(parts, _) => match &parts[..] {
                [Value::Text(kind), Value::Global(class), Value::Text(key), _, elements]
                    if &**kind == "storage" =>
                {
                    count(elements).map(|elements| Storage {
                        class: class.strip_prefix("torch.").unwrap_or(class).into(),
                        key: key.clone(),
                        elements,
                    })
                }
                _ => None,
            },
            _ => None,
        };
        let storage = storage.ok_or_else(|| self.malformed("a storage in an unknown form"))?;
        self.push(Value::Storage(Rc::new(storage)));
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), ReadError> {
        let pair = self.pop_many(2)?;
        let [Value::Global(name), Value::Tuple(args, _)] = &pair[..] else {
            return Err(self.malformed("a call without a name or without arguments"));
        };
        let value = match (&**name, &args[..]) {
            ("collections.OrderedDict", []) => Some(Value::Dict(Rc::default())),
            ("torch._utils._rebuild_parameter", [tensor @ Value::Tensor(_), ..]) => {
                Some(tensor.clone())
            }
            ("torch.Size", [sizes]) => Some(sizes.clone()),
            ("torch._utils._rebuild_tensor_v2", [_, _, Value::Tuple(shape, _), ..])
                if shape.len() > MAX_DIMS =>
            {
                return Err(self.refused(format!("a tensor of {} dimensions", shape.len())));
            }
            (
                "torch._utils._rebuild_tensor_v2",
                [Value::Storage(storage), offset, shape, strides, ..],
            ) => view(storage, offset, shape, strides).map(|view| Value::Tensor(Rc::new(view))),
            _ => None,
        };
        let what = || self.malformed(format!("{name} with arguments of an unknown form"));
        let value = value.ok_or_else(what)?;
        self.push(value);
        Ok(())
    }

    fn set_items(&mut self, op: u8) -> Result<(), ReadError> {
        let values = if op == b's' { self.pop_many(2)? } else { self.pop_to_mark()? };
        let Some(Item::Value(Value::Dict(items))) = self.stack.last_mut() else {
            return Err(self.malformed("items for something that is no dictionary"));
        };
        // The dictionary on the stack is the only one of its kind (see `Unfinished`), so this
        // does not copy.
        let items = Rc::make_mut(items);
        let mut values = values.into_iter();
        while let Some(key) = values.next() {
            let Some(value) = values.next() else {
                return Err(self.malformed("a key without a value"));
            };
            items.push((shallow(key), shallow(value)));
        }
        Ok(())
    }

    fn append(&mut self, op: u8) -> Result<(), ReadError> {
        if op == b'a' {
            self.pop()?;
        } else {
            self.pop_to_mark()?;
        }
        match self.stack.last() {
            Some(Item::Value(Value::List)) => Ok(()),
            _ => Err(self.malformed("elements for something that is no list")),
        }
    }
}

/// Only tensors are of use inside a dictionary; an inner container keeps its kind, not its
/// content, so that no value nests without end.
fn shallow(value: Value) -> Value {
    match value {
        Value::Dict(_) => Value::Dict(Rc::default()),
        Value::Tuple(..) => Value::Tuple(Rc::default(), 1),
        value => value,
    }
}

fn count(value: &Value) -> Option<usize> {
    match value {
        Value::Int(value) => usize::try_from(*value).ok(),
        _ => None,
    }
}

fn counts(value: &Value) -> Option<Vec<usize>> {
    match value {
        Value::Tuple(values, _) => values.iter().map(count).collect(),
        _ => None,
    }
}

fn view(storage: &Rc<Storage>, offset: &Value, shape: &Value, strides: &Value) -> Option<View> {
    let shape = counts(shape)?;
    // Before they are copied: they may be longer than any shape.
    let fits = matches!(strides, Value::Tuple(strides, _) if strides.len() == shape.len());
    let strides = fits.then(|| counts(strides))??;
    Some(View { storage: storage.clone(), offset: count(offset)?, shape, strides })
}
