//! What a model takes and gives, read from the ONNX file itself.
//!
//! An inference library may report other types than the file has (`rten` reads fp16 as fp32), so
//! names, shapes and types are taken from here. Weights are skipped, not loaded: a file of 240 MB
//! costs some hundred small reads.
//!
//! Source of the field numbers: `onnx.proto` of the ONNX repository.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Seek};
use std::path::{Path, PathBuf};

use crate::types::{Dim, ElemType, TensorInfo};
use crate::wire::{Reader, Value};

/// Inputs and outputs that a model may have; one image model has two or three.
const MAX_TENSORS: usize = 1_024;
/// Dimensions of one tensor.
const MAX_DIMS: usize = 64;
/// Bytes of one name.
const MAX_NAME: usize = 64 * 1024;

/// What a model takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIo {
    /// Inputs that a caller must feed, in the order of the file (initialisers that old files list
    /// among the inputs are left out).
    pub inputs: Vec<TensorInfo>,
    /// Outputs, in the order of the file.
    pub outputs: Vec<TensorInfo>,
    /// Version of the default operator set (`ai.onnx`); `None` where the file states none.
    pub opset: Option<u64>,
    /// Version of the ONNX file format.
    pub ir_version: u64,
    /// The program that wrote the file, with its version; empty where the file states none.
    pub producer: String,
}

/// Why the header of a model could not be read.
#[derive(Debug)]
pub struct HeaderError {
    /// The file; `None` for bytes in memory.
    pub path: Option<PathBuf>,
    /// What went wrong.
    pub kind: HeaderErrorKind,
}

/// What went wrong in reading the header of a model.
#[derive(Debug)]
#[non_exhaustive]
pub enum HeaderErrorKind {
    /// The file could not be opened.
    Open(io::Error),
    /// It is a folder, a pipe or a device.
    NotAFile,
    /// The file could not be read at this byte.
    Read(u64, io::Error),
    /// The bytes are not an ONNX model.
    Malformed {
        /// Byte of the file.
        at: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A field is longer than the message it is in: the file is cut short or is no ONNX model.
    Overrun {
        /// Byte of the file at which the field's content starts.
        at: u64,
        /// Bytes that the field claims.
        len: u64,
        /// Bytes that are left for it.
        room: u64,
    },
    /// No byte is in the file.
    Empty,
    /// The file is well formed and has no graph.
    NoGraph,
}

impl fmt::Display for HeaderErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "cannot be opened: {e}"),
            Self::NotAFile => f.write_str("cannot be opened: it is not a regular file"),
            Self::Read(at, e) => write!(f, "cannot be read at byte {at}: {e}"),
            Self::Malformed { at, what } => write!(f, "not an ONNX model: byte {at}: {what}"),
            Self::Overrun { at, len, room } => write!(
                f,
                "not an ONNX model, or cut short: byte {at}: a field of {len} bytes where {room} \
                 are left"
            ),
            Self::Empty => f.write_str("not an ONNX model: the file is empty"),
            Self::NoGraph => f.write_str("not an ONNX model: there is no graph in it"),
        }
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}", self.kind)
    }
}

impl std::error::Error for HeaderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            HeaderErrorKind::Open(e) | HeaderErrorKind::Read(_, e) => Some(e),
            _ => None,
        }
    }
}

/// Reads the header of the model file `path`.
///
/// # Errors
///
/// [`HeaderError`] when the file cannot be read or is not an ONNX model.
pub fn read_header(path: &Path) -> Result<ModelIo, HeaderError> {
    let fail = |kind| HeaderError { path: Some(path.to_path_buf()), kind };
    // Asked before it is opened: the open of a pipe may never return, and a device never ends.
    let about = path.metadata().map_err(|e| fail(HeaderErrorKind::Open(e)))?;
    if !about.is_file() {
        return Err(fail(HeaderErrorKind::NotAFile));
    }
    let file = File::open(path).map_err(|e| fail(HeaderErrorKind::Open(e)))?;
    parse(BufReader::new(file)).map_err(fail)
}

/// Reads the header of a model in memory. Any bytes are a model or an error.
///
/// # Errors
///
/// [`HeaderError`] when the bytes are not an ONNX model.
pub fn read_header_bytes(bytes: &[u8]) -> Result<ModelIo, HeaderError> {
    parse(Cursor::new(bytes)).map_err(|kind| HeaderError { path: None, kind })
}

/// `ModelProto`.
fn parse(source: impl BufRead + Seek) -> Result<ModelIo, HeaderErrorKind> {
    let mut reader = Reader::new(source)?;
    let end = reader.len();
    if end == 0 {
        return Err(HeaderErrorKind::Empty);
    }
    let mut graph = None::<GraphIo>;
    let (mut ir_version, mut opset) = (0, None);
    let (mut name, mut version) = (String::new(), String::new());
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Varint(v)) => ir_version = v,
            (2, Value::Len { end }) => name = reader.text(end, MAX_NAME)?,
            (3, Value::Len { end }) => version = reader.text(end, MAX_NAME)?,
            (7, Value::Len { end }) => read_graph(&mut reader, end, graph.get_or_insert_default())?,
            (8, Value::Len { end }) => {
                if let Some(v) = read_opset(&mut reader, end)? {
                    opset = Some(v);
                }
            }
            (_, value) => reader.skip(value)?,
        }
    }
    let graph = graph.ok_or(HeaderErrorKind::NoGraph)?;
    let GraphIo { mut inputs, outputs, initializers } = graph;
    inputs.retain(|input| !initializers.contains(&input.name));
    let producer = if version.is_empty() { name } else { format!("{name} {version}") };
    Ok(ModelIo { inputs, outputs, opset, ir_version, producer })
}

#[derive(Default)]
struct GraphIo {
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    initializers: HashSet<String>,
}

/// `GraphProto`: inputs, outputs and the names of the initialisers.
fn read_graph<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
    graph: &mut GraphIo,
) -> Result<(), HeaderErrorKind> {
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (5, Value::Len { end }) => {
                if let Some(name) = read_initializer(reader, end)? {
                    graph.initializers.insert(name);
                }
            }
            (11, Value::Len { end }) => read_value_info(reader, end, &mut graph.inputs)?,
            (12, Value::Len { end }) => read_value_info(reader, end, &mut graph.outputs)?,
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(())
}

/// `TensorProto`: its name alone.
fn read_initializer<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
) -> Result<Option<String>, HeaderErrorKind> {
    let mut name = None;
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (8, Value::Len { end }) => name = Some(reader.text(end, MAX_NAME)?),
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(name)
}

/// `OperatorSetIdProto`: the version, if it is that of the default domain.
fn read_opset<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
) -> Result<Option<u64>, HeaderErrorKind> {
    let (mut domain, mut version) = (String::new(), 0);
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => domain = reader.text(end, MAX_NAME)?,
            (2, Value::Varint(v)) => version = v,
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(matches!(domain.as_str(), "" | "ai.onnx").then_some(version))
}

/// `ValueInfoProto`, appended to `out`. A value that is not a tensor keeps "no element type".
fn read_value_info<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
    out: &mut Vec<TensorInfo>,
) -> Result<(), HeaderErrorKind> {
    if out.len() >= MAX_TENSORS {
        return Err(reader.malformed("more than 1024 inputs or outputs"));
    }
    let mut info = TensorInfo { name: String::new(), elem_type: ElemType::Other(0), dims: None };
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => info.name = reader.text(end, MAX_NAME)?,
            (2, Value::Len { end }) => read_type(reader, end, &mut info)?,
            (_, value) => reader.skip(value)?,
        }
    }
    out.push(info);
    Ok(())
}

/// `TypeProto`: the tensor type, where it is one.
fn read_type<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
    info: &mut TensorInfo,
) -> Result<(), HeaderErrorKind> {
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => read_tensor_type(reader, end, info)?,
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(())
}

/// `TypeProto.Tensor`: element type and shape.
fn read_tensor_type<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
    info: &mut TensorInfo,
) -> Result<(), HeaderErrorKind> {
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Varint(code)) => info.elem_type = ElemType::from_code(code),
            (2, Value::Len { end }) => read_shape(reader, end, info.dims.get_or_insert_default())?,
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(())
}

/// `TensorShapeProto`.
fn read_shape<R: BufRead + Seek>(
    reader: &mut Reader<R>,
    end: u64,
    dims: &mut Vec<Dim>,
) -> Result<(), HeaderErrorKind> {
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => {
                if dims.len() >= MAX_DIMS {
                    return Err(reader.malformed("a tensor of more than 64 dimensions"));
                }
                dims.push(read_dim(reader, end)?);
            }
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(())
}

/// `TensorShapeProto.Dimension`. A negative number means the same as none, by common use.
fn read_dim<R: BufRead + Seek>(reader: &mut Reader<R>, end: u64) -> Result<Dim, HeaderErrorKind> {
    let mut dim = Dim::Open;
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Varint(v)) => {
                let open = v.cast_signed() < 0;
                dim = if open { Dim::Open } else { Dim::Fixed(v) };
            }
            (2, Value::Len { end }) => {
                let name = reader.text(end, MAX_NAME)?;
                dim = if name.is_empty() { Dim::Open } else { Dim::Symbol(name) };
            }
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(dim)
}

#[cfg(test)]
mod tests;
