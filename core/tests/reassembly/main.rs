//! The reassembly against an independent model of its rules, over any stream.
//!
//! [`model`] is the reference, [`driver`] feeds both sides and compares, [`stream`] says what may
//! happen on a wire; the fuzz target `reassembly` uses the same files. What both sides could
//! have wrong alike is asked of the outcome: [`honest`], [`limits`].
#![expect(clippy::print_stderr, reason = "how often each rule was reached, and how many sequences")]

mod arbitrary;
mod driver;
mod exhaustive;
mod honest;
mod limits;
mod model;
mod stream;
mod words;
