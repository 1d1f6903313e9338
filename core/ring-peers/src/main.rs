//! Our ring beside others, `rte_ring` of DPDK among them: the bench of `core/benches/ring` with one
//! column more. `rte_ring` is called, not inlined, which single items feel.

#[path = "../../benches/ring/kinds.rs"]
mod kinds;
#[path = "../../benches/ring/race.rs"]
mod race;
mod rte;

use race::Entry;

fn main() {
    let rounds = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(201);
    let entries = [
        Entry::of::<kinds::Ours>(),
        Entry::of::<kinds::OursCopying>(),
        Entry::of::<kinds::Rtrb>(),
        Entry::of::<kinds::RtrbChunks>(),
        Entry::of::<kinds::Heapless>(),
        Entry::of::<kinds::Crossbeam>(),
        Entry::of::<rte::Rte>(),
    ];
    race::table(&entries, 2, rounds);
}
