//! The counters that a record of a crash keeps (`tensorwire_host::crash`): which number has which
//! place, who notes it, and how it is told.
//!
//! Images delivered are noted as they are; what the loops count ten times a second, so that the
//! packets of a record may be 100 ms old.

use std::fmt::Write;

use tensorwire_core::pipeline::consumer::ConsumerCounters;
use tensorwire_host::crash::{self, COUNTERS, Record};

use crate::metrics::Seen;

/// Images delivered.
const IMAGES: usize = 0;
/// Submissions whose result was delivered.
const BATCHES: usize = 1;
/// 1 since the run was ready.
const READY: usize = 2;
/// Where the rows begin: first what was seen of the receive side, then the consumer's.
const ROWS: usize = 3;

/// Whose counter, its name, and what it is.
type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

const SEEN: [Row<Seen>; 20] = [
    ("packets", "offered", |s| s.status.packets.offered),
    ("packets", "placed", |s| s.status.packets.placed),
    ("packets", "duplicate", |s| s.status.packets.duplicate),
    ("packets", "late", |s| s.status.packets.late),
    ("packets", "wild", |s| s.status.packets.wild),
    ("packets", "short", |s| s.status.packets.short),
    ("packets", "long", |s| s.status.packets.long),
    ("packets", "malformed", |s| s.status.packets.malformed.total()),
    ("packets", "other_flow", |s| s.status.packets.other_flow),
    ("packets", "no_buffer", |s| s.status.packets.no_buffer),
    ("packets", "early", |s| s.status.packets.early),
    ("packets", "held", |s| s.status.packets.held),
    ("nic", "missed", |s| s.nic.missed),
    ("nic", "errors", |s| s.nic.errors),
    ("nic", "no_buffer", |s| s.nic.no_buffer),
    ("images", "damaged", |s| s.status.images.damaged),
    ("images", "missing", |s| s.status.images.missing),
    ("images", "queue_full", |s| s.status.images.dropped.queue_full),
    ("images", "policy", |s| s.status.images.dropped.policy),
    ("images", "reorder_failed", |s| s.status.images.dropped.infer_failed),
];

const CONSUMED: [Row<ConsumerCounters>; 3] = [
    ("images", "infer_failed", |c| c.infer_failed),
    ("images", "sink_failed", |c| c.sink_failed),
    ("images", "shutdown", |c| c.shutdown),
];

const _: () = assert!(ROWS + SEEN.len() + CONSUMED.len() <= COUNTERS);

/// Notes what was delivered.
pub(super) fn delivered(images: u64, batches: u64) {
    crash::note(IMAGES, images);
    crash::note(BATCHES, batches);
}

/// Notes that the run is ready.
pub(super) fn ready() {
    crash::note(READY, 1);
}

/// Notes what was seen of the receive side.
pub(super) fn seen(seen: &Seen) {
    note(ROWS, &SEEN, seen);
}

/// Notes what the consumer has counted.
pub(super) fn consumed(counters: &ConsumerCounters) {
    note(ROWS + SEEN.len(), &CONSUMED, counters);
}

fn note<T>(first: usize, rows: &[Row<T>], of: &T) {
    for (index, (_, _, count)) in rows.iter().enumerate() {
        crash::note(first + index, count(of));
    }
}

/// A record with its counters by name: those of the packets, and what else is not zero.
#[must_use]
pub fn told(record: &Record) -> String {
    let counter = |index: usize| record.counters.get(index).copied().unwrap_or(0);
    let when = if counter(READY) == 1 { "ready" } else { "starting" };
    let (images, batches) = (counter(IMAGES), counter(BATCHES));
    let mut text =
        format!("{record}; it was {when}, {images} images in {batches} batches delivered");
    let seen = SEEN.iter().map(|&(of, name, _)| (of, name));
    let names = seen.chain(CONSUMED.iter().map(|&(of, name, _)| (of, name)));
    let mut group = "";
    for ((of, name), value) in names.zip((ROWS..).map(counter)) {
        if value == 0 && !matches!((of, name), ("packets", "offered" | "placed")) {
            continue;
        }
        // A string takes whatever is written to it.
        let _ = if of == group {
            write!(text, ", {name} {value}")
        } else {
            write!(text, "; {of}: {name} {value}")
        };
        group = of;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(counters: [u64; COUNTERS]) -> Record {
        Record {
            torn: false,
            time_ns: 7_000_000_000,
            signal: 0,
            address: 0,
            thread: 12,
            counters,
            build: "b".to_owned(),
            thread_name: "tw-consumer".to_owned(),
            place: "a.rs:1:2".to_owned(),
            what: "panic: gone".to_owned(),
        }
    }

    #[test]
    fn counters_are_told_by_name_and_what_is_zero_is_not() {
        let begin =
            "panic: gone at a.rs:1:2, thread `tw-consumer` (12), 7 s after 1970, build b; it was ";
        let nothing = told(&record([0; COUNTERS]));
        let end = "starting, 0 images in 0 batches delivered; packets: offered 0, placed 0";
        assert_eq!(nothing, format!("{begin}{end}"));
        let mut counters = [0; COUNTERS];
        // In the order of the two lists.
        let values = (100..).take(SEEN.len() + CONSUMED.len());
        counters[..ROWS].copy_from_slice(&[6, 3, 1]);
        counters[ROWS..].iter_mut().zip(values).for_each(|(counter, value)| *counter = value);
        let end = "ready, 6 images in 3 batches delivered; packets: offered 100, placed 101, \
                   duplicate 102, late 103, wild 104, short 105, long 106, malformed 107, \
                   other_flow 108, no_buffer 109, early 110, held 111; nic: missed 112, errors \
                   113, no_buffer 114; images: damaged 115, missing 116, queue_full 117, policy \
                   118, reorder_failed 119, infer_failed 120, sink_failed 121, shutdown 122";
        assert_eq!(told(&record(counters)), format!("{begin}{end}"));
    }
}
