//! Bundles: a program, its configuration, its engine and its self-test in one folder, which is
//! installed whole, switched at once, and rolled back by itself.
//!
//! ```text
//! /var/lib/tensorwire/bundles/1.2/   bundle.json, SHA256SUMS, tensorwire, config.yaml, …
//!                     current   -> bundles/1.2    what runs
//!                     fallback  -> bundles/1.1    while 1.2 is on trial: what comes back
//!                     previous  -> bundles/1.1    after it: what `rollback` goes back to
//!                     trial-1                     1.2 was started once and is not confirmed
//!                     rollback                    why the last one was taken back
//! ```
//!
//! All that is decided shows in names, and a name changes by `rename(2)`: at once, and without
//! room on the disk. A power cut between two of them leaves one state or the other, never a
//! third. [`contents`] says what a bundle is, [`store`] installs and switches it, [`trial`] starts
//! it, counts its starts, confirms it or takes it back.

pub mod cli;
mod confirm;
pub mod contents;
pub mod error;
pub mod store;
pub mod trial;

#[cfg(test)]
pub(crate) mod testkit;
