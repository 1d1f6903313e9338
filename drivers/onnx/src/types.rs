//! The words that reading and writing share: element types, dimensions, tensors.

use std::fmt;

use tensorwire_core::geometry::ElementType;

/// Element type of an ONNX tensor (`TensorProto.DataType`), those we know by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElemType {
    /// 32-bit float.
    Fp32,
    /// 16-bit IEEE float.
    Fp16,
    /// 16-bit brain float.
    Bf16,
    /// 64-bit float.
    Fp64,
    /// Signed byte.
    Int8,
    /// Unsigned byte.
    Uint8,
    /// Signed 16-bit integer.
    Int16,
    /// Signed 32-bit integer.
    Int32,
    /// Signed 64-bit integer.
    Int64,
    /// Any other type, by its number in the ONNX format.
    Other(u64),
}

impl ElemType {
    /// The type with the number `code` of the ONNX format.
    #[must_use]
    pub const fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Fp32,
            2 => Self::Uint8,
            3 => Self::Int8,
            5 => Self::Int16,
            6 => Self::Int32,
            7 => Self::Int64,
            10 => Self::Fp16,
            11 => Self::Fp64,
            16 => Self::Bf16,
            other => Self::Other(other),
        }
    }

    /// The number of the type in the ONNX format.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Fp32 => 1,
            Self::Uint8 => 2,
            Self::Int8 => 3,
            Self::Int16 => 5,
            Self::Int32 => 6,
            Self::Int64 => 7,
            Self::Fp16 => 10,
            Self::Fp64 => 11,
            Self::Bf16 => 16,
            Self::Other(code) => code,
        }
    }

    /// Bytes of one element; `None` for a type that we do not know.
    #[must_use]
    pub const fn bytes(self) -> Option<usize> {
        match self {
            Self::Int8 | Self::Uint8 => Some(1),
            Self::Fp16 | Self::Bf16 | Self::Int16 => Some(2),
            Self::Fp32 | Self::Int32 => Some(4),
            Self::Fp64 | Self::Int64 => Some(8),
            Self::Other(_) => None,
        }
    }
}

impl From<ElementType> for ElemType {
    fn from(element: ElementType) -> Self {
        match element {
            ElementType::Int4 => Self::Other(22),
            ElementType::Int8 => Self::Int8,
            ElementType::Int16 => Self::Int16,
            ElementType::Int32 => Self::Int32,
            ElementType::Fp16 => Self::Fp16,
            ElementType::Bf16 => Self::Bf16,
            ElementType::Fp32 => Self::Fp32,
            ElementType::Fp64 => Self::Fp64,
        }
    }
}

impl fmt::Display for ElemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp64 => "fp64",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Other(0) => "no element type",
            Self::Other(22) => "int4",
            Self::Other(code) => return write!(f, "ONNX type {code}"),
        })
    }
}

/// One dimension of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number that the model fixes.
    Fixed(u64),
    /// Left open under a name.
    Symbol(String),
    /// Left open: absent, or a negative number.
    Open,
}

impl Dim {
    /// Whether the dimension can be `value`.
    #[must_use]
    pub const fn allows(&self, value: u64) -> bool {
        match self {
            Self::Fixed(fixed) => *fixed == value,
            Self::Symbol(_) | Self::Open => true,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(value) => write!(f, "{value}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Open => f.write_str("-1"),
        }
    }
}

/// An input or output of a model, as its file states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name of the tensor.
    pub name: String,
    /// Element type.
    pub elem_type: ElemType,
    /// Dimensions, outermost first; `None` where the file states none.
    pub dims: Option<Vec<Dim>>,
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' {} {}", self.name, self.elem_type, Shape(self.dims.as_deref()))
    }
}

/// A shape for people: `[N,3,224,224]`.
#[derive(Debug)]
pub(crate) struct Shape<'a>(pub(crate) Option<&'a [Dim]>);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = self.0 else {
            return f.write_str("of no stated shape");
        };
        f.write_str("[")?;
        for (i, dim) in dims.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}
