//! Our ring beside others: `rtrb`, `heapless::spsc`, `crossbeam_queue::ArrayQueue`; with
//! `rte_ring` of DPDK where it is installed, see `core/ring-peers`.
//!
//! `cargo bench -p tensorwire-core --bench ring`, with a number of rounds after `--` if need be.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod kinds;
mod race;

use race::Entry;

fn main() {
    // Cargo adds `--bench`.
    let rounds = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(201);
    let entries = [
        Entry::of::<kinds::Ours>(),
        Entry::of::<kinds::OursCopying>(),
        Entry::of::<kinds::Rtrb>(),
        Entry::of::<kinds::RtrbChunks>(),
        Entry::of::<kinds::Heapless>(),
        Entry::of::<kinds::Crossbeam>(),
    ];
    race::table(&entries, 2, rounds);
}
