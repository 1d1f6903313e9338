//! Every total names every cause once: each counter holds a bit of its own, so that one left out,
//! counted twice or taken off shows in the sum.

use super::*;

const MALFORMED: MalformedCounters =
    MalformedCounters { vlan: 1, fragment: 2, ihl: 4, checksum: 8, not_udp: 16 };

#[test]
fn every_cause_of_a_packet_is_in_the_balance_once() {
    assert_eq!(MALFORMED.total(), 0x1f);
    let mut packets = PacketCounters {
        offered: 0x7fff,
        placed: 0x20,
        duplicate: 0x40,
        late: 0x80,
        wild: 0x100,
        short: 0x200,
        long: 0x400,
        malformed: MALFORMED,
        other_flow: 0x800,
        no_buffer: 0x1000,
        early: 0x2000,
        held: 0x4000,
        // In `placed` as well.
        trimmed: 0x8000,
    };
    assert_eq!(packets.accounted(), 0x7fff);
    assert!(packets.balanced());
    packets.offered += 1;
    assert!(!packets.balanced());
}

#[test]
fn every_fate_of_a_slot_is_in_the_balance_once() {
    let mut slots = SlotCounters {
        batches: 31,
        placed: 16 + 4096 * 30,
        missing: 32,
        before_join: 64,
        unfinished: 128,
        skipped: 4096 - 16 - 32 - 64 - 128,
    };
    assert!(slots.balanced(4096));
    assert!(!slots.balanced(4095));
    slots.batches += 1;
    assert!(!slots.balanced(4096));
}

#[test]
fn every_reason_is_in_the_totals_once() {
    let partial = PartialBy { moved: 1, deadline: 2, pool: 4, discontinuity: 8, shutdown: 16 };
    assert_eq!(partial.total(), 31);
    let dropped =
        DroppedImages { queue_full: 1, policy: 2, infer_failed: 4, sink_failed: 8, shutdown: 0 };
    assert_eq!(dropped.total(), 15);
    let images = ImageCounters {
        delivered: 16,
        damaged: 32,
        missing: 64,
        dropped,
        unfinished: 128,
        pending: 256,
    };
    assert_eq!(images.expected(), 511);
}

#[test]
fn ranges_join_where_they_touch() {
    let mut list = RangeList::new();
    list.add(3, 3);
    list.add(4, 6);
    list.add(9, 9);
    assert_eq!(list.as_slice(), &[(3, 6), (9, 9)]);
    assert!(!list.truncated());
    assert_eq!(list.to_string(), "3–6, 9");
}

#[test]
fn a_full_list_says_so_and_keeps_what_it_has() {
    let mut list = RangeList::new();
    for i in 0..=MAX_RANGES as u64 {
        list.add(2 * i, 2 * i);
    }
    assert_eq!(list.as_slice().len(), MAX_RANGES);
    assert!(list.truncated());
    let told = list.to_string();
    assert!(told.starts_with("0, 2, 4, "), "{told}");
    assert!(told.ends_with(&format!("{}, …", 2 * (MAX_RANGES - 1))), "{told}");
}
