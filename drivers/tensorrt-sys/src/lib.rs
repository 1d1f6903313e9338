//! TensorRT behind C functions.
//!
//! A shim in C++ (`shim/`) is compiled against the NvInfer.h of this machine: TensorRT 8.6, 10, 11
//! or TensorRT-RTX 1. The library is not linked; the shim loads it by its versioned name and
//! refuses it when it does not belong to the headers. Raw declarations only: the safe side is the
//! crate `tensorwire-tensorrt`.
//!
//! Without headers there is no `ffi` here, and [`MISSING`] says why.

#[cfg(has_tensorrt)]
pub mod ffi;

/// Why the shim was not built; empty when it was.
pub const MISSING: &str = env!("TENSORWIRE_TRT_MISSING");

/// Whether the shim was built.
pub const BUILT: bool = cfg!(has_tensorrt);

#[cfg(test)]
mod tests {
    #[test]
    fn a_missing_shim_has_a_reason() {
        assert_eq!(super::BUILT, super::MISSING.is_empty(), "{}", super::MISSING);
    }
}
