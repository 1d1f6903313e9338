//! Model tools: weights in, ONNX out.
