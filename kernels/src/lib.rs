//! Reorder and convert kernels.
