//! The part of DPDK that tensorwire calls, declared as it is in `csrc/shim.h`.
//!
//! The shim owns every structure and every inline function of DPDK, so no layout of theirs is
//! written down a second time here, except three fields of the mbuf that are read per packet, whose
//! places the shim asserts. Nothing here is safe; `tensorwire-dpdk` is.
//!
//! Empty unless the cargo feature `dpdk` is on and libdpdk (22.11 or later) was found when this was
//! built: [`BUILT`] says which. A version is told apart by `RTE_VERSION` in the shim alone.
#![allow(unsafe_code)] // declarations of C functions, and the reads of an mbuf

#[cfg(has_dpdk)]
mod ffi;
#[cfg(has_dpdk)]
pub use ffi::*;

/// Whether this was built against DPDK.
pub const BUILT: bool = cfg!(has_dpdk);
