//! Writing ONNX models: the subset that image models need.
//!
//! The result is a function of the model alone: the same model gives the same bytes.
//!
//! Source of the field numbers: `onnx.proto` of the ONNX repository.

use std::fmt;
use std::io::{self, Write};

use crate::types::{Dim, ElemType, TensorInfo};
use crate::wire::{put_float, put_int, put_len, put_message, put_str};

/// A model to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct OnnxModel {
    /// Name of the program that writes it.
    pub producer: String,
    /// Version of that program.
    pub producer_version: String,
    /// Version of the ONNX file format.
    pub ir_version: u32,
    /// Version of the default operator set.
    pub opset: u32,
    /// Free facts about the model, `(key, value)`, kept in the file.
    pub metadata: Vec<(String, String)>,
    /// The graph.
    pub graph: Graph,
}

/// A graph: nodes in an order in which each value is made before it is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Name of the graph.
    pub name: String,
    /// Operators, in topological order.
    pub nodes: Vec<Node>,
    /// Constants.
    pub initializers: Vec<Initializer>,
    /// What the caller feeds.
    pub inputs: Vec<TensorInfo>,
    /// What the caller gets.
    pub outputs: Vec<TensorInfo>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Operator, for example `Conv`.
    pub op_type: &'static str,
    /// Name of this node, unique in the graph.
    pub name: String,
    /// Names of the values it takes, in the order that the operator defines.
    pub inputs: Vec<String>,
    /// Names of the values it makes.
    pub outputs: Vec<String>,
    /// Attributes.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
}

/// A constant tensor.
#[derive(Clone, PartialEq)]
pub struct Initializer {
    /// Name of the value.
    pub name: String,
    /// Element type.
    pub elem_type: ElemType,
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Elements, row-major, little-endian.
    pub data: Vec<u8>,
}

impl fmt::Debug for Initializer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}, {} B", self.name, self.elem_type, self.dims, self.data.len())
    }
}

/// Why a model could not be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The bytes could not be written.
    Io(io::Error),
    /// The data of a constant is not as long as its shape and type ask.
    Initializer {
        /// Name of the constant.
        name: String,
        /// Bytes that shape and type ask for; `None` where they cannot be told.
        expected: Option<usize>,
        /// Bytes that are there.
        given: usize,
    },
    /// The model is longer than the 2 GiB that the format allows.
    TooLong {
        /// Bytes of the graph.
        bytes: u64,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "cannot write the model: {e}"),
            Self::Initializer { name, expected: Some(expected), given } => {
                write!(f, "constant '{name}' has {given} bytes of data, its shape asks {expected}")
            }
            Self::Initializer { name, expected: None, given } => {
                write!(f, "constant '{name}' ({given} bytes) has a type or shape of no known size")
            }
            Self::TooLong { bytes } => {
                write!(f, "a model of {bytes} bytes; the format ends at 2147483647")
            }
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl OnnxModel {
    /// Writes the model to `out` and returns how many bytes it has. Weights go to `out` straight
    /// from where they are, so no second copy of them is made.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when a constant is not as long as it says, the model is too long for the
    /// format, or `out` fails. In the first two cases nothing was written.
    pub fn write_to(&self, out: &mut impl Write) -> Result<u64, WriteError> {
        let mut front = Vec::new();
        put_int(&mut front, 1, i64::from(self.ir_version));
        put_str(&mut front, 2, &self.producer);
        put_str(&mut front, 3, &self.producer_version);
        put_message(&mut front, 8, |opset| put_int(opset, 2, i64::from(self.opset)));
        for (key, value) in &self.metadata {
            put_message(&mut front, 14, |entry| {
                put_str(entry, 1, key);
                put_str(entry, 2, value);
            });
        }
        let heads = self.graph.initializer_heads()?;
        let body = self.graph.encode_without_initializers();
        let weights: usize = self.graph.initializers.iter().map(|i| i.data.len()).sum();
        let graph_len = body.len() + weights + heads.iter().map(Vec::len).sum::<usize>();
        put_len(&mut front, 7, graph_len);
        let total = (front.len() + graph_len) as u64;
        if i32::try_from(total).is_err() {
            return Err(WriteError::TooLong { bytes: total });
        }
        out.write_all(&front)?;
        out.write_all(&body)?;
        for (head, initializer) in heads.iter().zip(&self.graph.initializers) {
            out.write_all(head)?;
            out.write_all(&initializer.data)?;
        }
        Ok(total)
    }

    /// The model as bytes.
    ///
    /// # Errors
    ///
    /// As [`OnnxModel::write_to`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

impl Graph {
    /// For each constant, all of its field in the graph but the data, which is its last part.
    fn initializer_heads(&self) -> Result<Vec<Vec<u8>>, WriteError> {
        self.initializers
            .iter()
            .map(|tensor| {
                let expected = tensor.elem_type.bytes().and_then(|bytes| {
                    tensor.dims.iter().try_fold(bytes, |size, dim| size.checked_mul(*dim))
                });
                if expected != Some(tensor.data.len()) {
                    let (name, given) = (tensor.name.clone(), tensor.data.len());
                    return Err(WriteError::Initializer { name, expected, given });
                }
                let mut inner = Vec::new();
                for dim in &tensor.dims {
                    put_int(&mut inner, 1, (*dim as u64).cast_signed());
                }
                put_int(&mut inner, 2, tensor.elem_type.code().cast_signed());
                put_str(&mut inner, 8, &tensor.name);
                put_len(&mut inner, 9, tensor.data.len());
                let mut head = Vec::new();
                put_len(&mut head, 5, inner.len() + tensor.data.len());
                head.extend_from_slice(&inner);
                Ok(head)
            })
            .collect()
    }

    fn encode_without_initializers(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for node in &self.nodes {
            put_message(&mut out, 1, |out| node.encode(out));
        }
        put_str(&mut out, 2, &self.name);
        for input in &self.inputs {
            put_message(&mut out, 11, |out| encode_value_info(out, input));
        }
        for output in &self.outputs {
            put_message(&mut out, 12, |out| encode_value_info(out, output));
        }
        out
    }
}

impl Node {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for input in &self.inputs {
            put_str(out, 1, input);
        }
        for output in &self.outputs {
            put_str(out, 2, output);
        }
        put_str(out, 3, &self.name);
        put_str(out, 4, self.op_type);
        for (name, value) in &self.attributes {
            put_message(out, 5, |out| {
                put_str(out, 1, name);
                match value {
                    Attribute::Float(v) => {
                        put_float(out, 2, *v);
                        put_int(out, 20, 1);
                    }
                    Attribute::Int(v) => {
                        put_int(out, 3, *v);
                        put_int(out, 20, 2);
                    }
                    Attribute::Ints(list) => {
                        for v in list {
                            put_int(out, 8, *v);
                        }
                        put_int(out, 20, 7);
                    }
                }
            });
        }
    }
}

pub(crate) fn encode_value_info(out: &mut Vec<u8>, info: &TensorInfo) {
    put_str(out, 1, &info.name);
    put_message(out, 2, |out| {
        put_message(out, 1, |out| {
            put_int(out, 1, info.elem_type.code().cast_signed());
            let Some(dims) = &info.dims else { return };
            put_message(out, 2, |out| {
                for dim in dims {
                    put_message(out, 1, |out| match dim {
                        Dim::Fixed(value) => put_int(out, 1, value.cast_signed()),
                        Dim::Symbol(name) => put_str(out, 2, name),
                        Dim::Open => {}
                    });
                }
            });
        });
    });
}
