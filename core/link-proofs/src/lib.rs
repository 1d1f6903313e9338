//! What the link proofs share: opaque values, opaque devices, and the hot path.
//!
//! The programs are linked, never run. Nothing here does anything sensible; it only makes sure that
//! the code under proof is reachable and that the optimiser can assume nothing about its inputs.
#![no_std]

pub mod devices;
pub mod hot;

use core::hint::black_box;

/// A value that the optimiser knows nothing about.
#[inline(never)]
pub fn given<T>() -> T {
    let pointer: *const T = black_box(core::ptr::null());
    // SAFETY: not upheld, and need not be: the programs are never run.
    unsafe { pointer.read() }
}

/// Uses a value in a way that the optimiser knows nothing about.
#[inline(never)]
pub fn keep<T>(value: T) {
    black_box(value);
}
