//! The operators and constants of an ONNX file, for tools that look at a model without running it.
//!
//! The whole file lies in memory; constants are slices of it. Any bytes are a graph or an error.
//!
//! Source of the field numbers: `onnx.proto` of the ONNX repository.

use std::io::Cursor;

use half::f16;

use crate::header::{HeaderError, HeaderErrorKind, ModelIo, read_header_bytes};
use crate::types::ElemType;
use crate::wire::{Reader, Value};

/// Operators of a graph: no network that fits a GPU has more.
const MAX_NODES: usize = 1 << 20;
/// Bytes of one name.
const MAX_NAME: usize = 64 * 1024;
/// Dimensions of one constant.
const MAX_DIMS: usize = 64;

/// A model's operators and constants.
#[derive(Clone, Debug)]
pub struct ModelGraph<'a> {
    /// What it takes and gives.
    pub io: ModelIo,
    /// Operators, in the order of the file.
    pub nodes: Vec<GraphNode>,
    /// Initialisers, and the values of `Constant` operators.
    pub constants: Vec<Constant<'a>>,
}

/// One operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphNode {
    /// Operator, for example `Conv`.
    pub op_type: String,
    /// Whose operator it is; empty for those of ONNX itself.
    pub domain: String,
    /// Name; empty where the file gives none.
    pub name: String,
    /// Values that it takes; an empty name stands for one that is left out.
    pub inputs: Vec<String>,
    /// Values that it makes.
    pub outputs: Vec<String>,
    /// Attributes that are integers or lists of them.
    pub ints: Vec<(String, Vec<i64>)>,
}

impl GraphNode {
    /// A name to call it by: its own, or that of what it makes.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.name.is_empty() { self.outputs.first().map_or("", |o| o) } else { &self.name }
    }

    /// The integer attribute `name`, if it is there.
    #[must_use]
    pub fn int(&self, name: &str) -> Option<i64> {
        let (_, values) = self.ints.iter().find(|(n, _)| n == name)?;
        values.first().copied()
    }
}

/// A constant tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant<'a> {
    /// Name of the value.
    pub name: String,
    /// Element type.
    pub elem_type: ElemType,
    /// Dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Its elements, little-endian; empty where they lie in another file or in a form that is not
    /// read.
    pub data: &'a [u8],
}

impl Constant<'_> {
    /// Its elements as fp32; `None` where they are not there or of another type than fp32, fp16 and
    /// int8.
    #[must_use]
    pub fn values(&self) -> Option<Vec<f32>> {
        let count = self.dims.iter().try_fold(1_usize, |n, dim| n.checked_mul(*dim))?;
        if self.elem_type.bytes()?.checked_mul(count)? != self.data.len() {
            return None;
        }
        Some(match self.elem_type {
            ElemType::Fp32 => {
                self.data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
            }
            ElemType::Fp16 => {
                let halves = self.data.as_chunks().0.iter();
                halves.map(|b| f16::from_le_bytes(*b).to_f32()).collect()
            }
            ElemType::Int8 => self.data.iter().map(|b| f32::from(b.cast_signed())).collect(),
            _ => return None,
        })
    }
}

impl<'a> ModelGraph<'a> {
    /// The graph of a model in memory.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] when the bytes are not an ONNX model.
    pub fn read(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let io = read_header_bytes(bytes)?;
        let (nodes, constants) = parse(bytes).map_err(|kind| HeaderError { path: None, kind })?;
        Ok(Self { io, nodes, constants })
    }

    /// The constant `name`.
    #[must_use]
    pub fn constant(&self, name: &str) -> Option<&Constant<'a>> {
        self.constants.iter().find(|constant| constant.name == name)
    }

    /// The operator that makes the value `name`.
    #[must_use]
    pub fn maker(&self, name: &str) -> Option<&GraphNode> {
        self.nodes.iter().find(|node| node.outputs.iter().any(|output| output == name))
    }

    /// The operators that take the value `name`.
    pub fn takers<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s GraphNode> {
        self.nodes.iter().filter(move |node| node.inputs.iter().any(|input| input == name))
    }
}

type Bytes<'a> = Reader<Cursor<&'a [u8]>>;
type Found<'a> = (Vec<GraphNode>, Vec<Constant<'a>>);

/// `ModelProto`, of which the graph.
fn parse(bytes: &[u8]) -> Result<Found<'_>, HeaderErrorKind> {
    let mut reader = Reader::new(Cursor::new(bytes))?;
    let end = reader.len();
    let mut found = (Vec::new(), Vec::new());
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (7, Value::Len { end }) => graph(&mut reader, end, bytes, &mut found)?,
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(found)
}

/// `GraphProto`: nodes and initialisers.
fn graph<'a>(
    reader: &mut Bytes<'a>,
    end: u64,
    bytes: &'a [u8],
    (nodes, constants): &mut Found<'a>,
) -> Result<(), HeaderErrorKind> {
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => {
                if nodes.len() >= MAX_NODES {
                    return Err(reader.malformed("more than 1048576 operators"));
                }
                let (node, constant) = node(reader, end, bytes)?;
                if let Some(constant) = constant.filter(|_| node.op_type == "Constant") {
                    let name = node.outputs.first().cloned().unwrap_or_default();
                    constants.push(Constant { name, ..constant });
                }
                nodes.push(node);
            }
            (5, Value::Len { end }) => constants.push(tensor(reader, end, bytes)?),
            (_, value) => reader.skip(value)?,
        }
    }
    Ok(())
}

/// `NodeProto`, and the tensor among its attributes, if there is one.
fn node<'a>(
    reader: &mut Bytes<'a>,
    end: u64,
    bytes: &'a [u8],
) -> Result<(GraphNode, Option<Constant<'a>>), HeaderErrorKind> {
    let (mut node, mut constant) = (GraphNode::default(), None);
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => node.inputs.push(reader.text(end, MAX_NAME)?),
            (2, Value::Len { end }) => node.outputs.push(reader.text(end, MAX_NAME)?),
            (3, Value::Len { end }) => node.name = reader.text(end, MAX_NAME)?,
            (4, Value::Len { end }) => node.op_type = reader.text(end, MAX_NAME)?,
            (5, Value::Len { end }) => attribute(reader, end, bytes, &mut node, &mut constant)?,
            (7, Value::Len { end }) => {
                let domain = reader.text(end, MAX_NAME)?;
                node.domain = if domain == "ai.onnx" { String::new() } else { domain };
            }
            (_, value) => reader.skip(value)?,
        }
    }
    Ok((node, constant))
}

/// `AttributeProto`: integers, lists of them, a tensor.
fn attribute<'a>(
    reader: &mut Bytes<'a>,
    end: u64,
    bytes: &'a [u8],
    node: &mut GraphNode,
    constant: &mut Option<Constant<'a>>,
) -> Result<(), HeaderErrorKind> {
    let (mut name, mut ints) = (String::new(), Vec::new());
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Len { end }) => name = reader.text(end, MAX_NAME)?,
            (3 | 8, Value::Varint(v)) => ints.push(v.cast_signed()),
            (8, Value::Len { end }) => reader.varints(end, |v| ints.push(v.cast_signed()))?,
            (5, Value::Len { end }) => *constant = Some(tensor(reader, end, bytes)?),
            (_, value) => reader.skip(value)?,
        }
    }
    if !ints.is_empty() {
        node.ints.push((name, ints));
    }
    Ok(())
}

/// `TensorProto`.
fn tensor<'a>(
    reader: &mut Bytes<'a>,
    end: u64,
    bytes: &'a [u8],
) -> Result<Constant<'a>, HeaderErrorKind> {
    let mut dims: Vec<u64> = Vec::new();
    let (mut name, mut elem_type, mut data) = (String::new(), ElemType::Other(0), &[][..]);
    while let Some((number, value)) = reader.field(end)? {
        match (number, value) {
            (1, Value::Varint(v)) => dims.push(v),
            (1, Value::Len { end }) => reader.varints(end, |v| dims.push(v))?,
            (2, Value::Varint(v)) => elem_type = ElemType::from_code(v),
            (8, Value::Len { end }) => name = reader.text(end, MAX_NAME)?,
            // 4: fp32 in packed form, which are the same bytes as the raw ones.
            (4 | 9, Value::Len { end }) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                data = bytes.get(place(reader.position())..place(end)).unwrap_or_default();
                reader.skip(value)?;
            }
            (_, value) => reader.skip(value)?,
        }
        if dims.len() > MAX_DIMS {
            return Err(reader.malformed("a tensor of more than 64 dimensions"));
        }
    }
    let dims = dims.into_iter().map(|dim| usize::try_from(dim).unwrap_or(usize::MAX)).collect();
    Ok(Constant { name, elem_type, dims, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{Attribute, Graph, Initializer, Node, OnnxModel};

    fn model() -> OnnxModel {
        let node = Node {
            op_type: "Conv",
            name: "c".into(),
            inputs: vec!["x".into(), "w".into()],
            outputs: vec!["y".into()],
            attributes: vec![("pads", Attribute::Ints(vec![1, -1])), ("group", Attribute::Int(2))],
        };
        let data = [1.5_f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let weight = Initializer {
            name: "w".into(),
            elem_type: ElemType::Fp32,
            dims: vec![2, 1, 1, 1],
            data,
        };
        OnnxModel {
            producer: "test".into(),
            producer_version: "1".into(),
            ir_version: 7,
            opset: 13,
            metadata: Vec::new(),
            graph: Graph { nodes: vec![node], initializers: vec![weight], ..Graph::default() },
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = model().to_bytes().expect("small");
        let graph = ModelGraph::read(&bytes).expect("a model");
        let node = &graph.nodes[0];
        assert_eq!((node.op_type.as_str(), node.label(), node.domain.as_str()), ("Conv", "c", ""));
        assert_eq!(node.ints, [("pads".into(), vec![1, -1]), ("group".into(), vec![2])]);
        assert_eq!(node.int("group"), Some(2));
        let weight = graph.constant("w").expect("it is there");
        assert_eq!(weight.dims, [2, 1, 1, 1]);
        assert_eq!(weight.values(), Some(vec![1.5, -2.0]));
        assert!(graph.maker("y").is_some() && graph.takers("x").count() == 1);
    }

    #[test]
    fn any_bytes_are_a_graph_or_an_error() {
        let bytes = model().to_bytes().expect("small");
        for end in 0..bytes.len() {
            // A cut may fall between two fields, and then the rest is a model without something.
            if let Ok(graph) = ModelGraph::read(&bytes[..end]) {
                assert!(graph.nodes.len() <= 1);
            }
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bent = bytes.clone();
                bent[at] ^= flip;
                if let Ok(graph) = ModelGraph::read(&bent) {
                    // The data is of the length that the shape asks, or is not given out.
                    for constant in &graph.constants {
                        let _ = constant.values();
                    }
                }
            }
        }
    }
}
