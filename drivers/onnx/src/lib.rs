//! ONNX files and CPU inference.
