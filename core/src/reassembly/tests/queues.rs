//! One stream out of several queues, as a NIC spreads it by a hash and a poller empties them in
//! turn: what docs/dpdk.md says of it.

use super::*;

/// A stream whose packets go to two queues in turn, polled 32 at a time; the second queue is read
/// so many packets later than the first.
fn spread(behind: u64) -> Outcome {
    let mut rig = Rig::new(documented(16), 2, Nanos::ZERO);
    let end = 8 * 4096;
    let (mut even, mut odd) = ((0..end).step_by(2), (1..end).step_by(2));
    let ahead = usize::try_from(behind).expect("small");
    even.by_ref().take(ahead).for_each(|position| rig.send(position));
    loop {
        let burst = even.by_ref().take(32).chain(odd.by_ref().take(32)).collect::<Vec<_>>();
        if burst.is_empty() {
            return rig.finish();
        }
        burst.into_iter().for_each(|position| rig.send(position));
    }
}

#[test]
fn a_stream_out_of_two_queues_loses_what_came_where_one_is_behind() {
    // A few hundred packets are order enough.
    let near = spread(500);
    assert_eq!((near.counters.placed, near.whole(32).len()), (8 * 4096, 8 * 32));
    assert_eq!((near.counters.discontinuities, near.counters.slots.missing), (0, 0));
    // A ring full of packets: every one came, and what is seen is a sender that starts anew again
    // and again.
    let far = spread(8192);
    assert!(far.counters.discontinuities > 0, "{:?}", far.counters);
    assert!(far.counters.slots.missing > 0, "{:?}", far.counters);
    assert!(far.whole(32).len() < 8 * 32, "{:?}", far.counters);
}
