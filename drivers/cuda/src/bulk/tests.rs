//! Plans against the packets themselves: a pool whose bytes name their place is copied run by run,
//! and every address of the list has to lead to the bytes of its packet.

use tensorwire_sim::prng::Prng;

use super::{APART, Bulk, LINE, MAX_RUNS, PIECE_SHIFT, Run};

const FRAME: usize = 1240;
/// No multiple of a line: packets begin anywhere in one, at multiples of 8.
const STRIDE: usize = 1272;
const SLOTS: u32 = 4096;
const BUFFERS: usize = 12_000;
/// Where the pool and the staging area are said to be.
const BASE: u64 = 0x7f00_0000_0000;
const NEAR: u64 = 0x0000_1000_0000;

fn bulk() -> Bulk {
    Bulk::new(BASE, BUFFERS * STRIDE, FRAME, SLOTS)
}

fn address(buffer: usize) -> u64 {
    BASE + (buffer * STRIDE) as u64
}

/// Every byte of the pool is another than its neighbours and than that of other buffers there.
fn pool() -> Vec<u8> {
    let mut prng = Prng::new(5);
    (0..BUFFERS * STRIDE).map(|_| prng.next_u64().to_le_bytes()[0]).collect()
}

fn range(from: u64, bytes: u64) -> std::ops::Range<usize> {
    let from = usize::try_from(from).expect("small");
    from..from + usize::try_from(bytes).expect("small")
}

/// Copies as the plan says, and looks up every packet; the bytes that were copied.
#[track_caller]
fn follow(pool: &[u8], bulk: &mut Bulk, buffers: &[Option<usize>]) -> Option<u64> {
    let before: Vec<u64> = buffers.iter().map(|buffer| buffer.map_or(0, address)).collect();
    let mut list = before.clone();
    let room = bulk.room();
    let Some(runs) = bulk.plan(&mut list, NEAR) else {
        assert_eq!(list, before, "refused, and changed all the same");
        return None;
    };
    assert!(!runs.is_empty() && runs.len() <= MAX_RUNS);
    let mut area = vec![0; room];
    let mut end = 0;
    for Run { from, to, bytes } in runs {
        assert!(*to >= end, "runs overlap");
        assert_eq!((from % LINE, to % LINE), (0, 0));
        end = to + bytes;
        area[range(*to, *bytes)].copy_from_slice(&pool[range(*from, *bytes)]);
    }
    for (near, buffer) in list.iter().zip(buffers) {
        match buffer {
            None => assert_eq!(*near, 0),
            Some(buffer) => {
                let packet = &area[range(near - NEAR, FRAME as u64)];
                assert!(packet == &pool[buffer * STRIDE..][..FRAME], "buffer {buffer}");
                assert_eq!(near % LINE, address(*buffer) % LINE, "buffer {buffer}: alignment");
            }
        }
    }
    Some(runs.iter().map(|run| run.bytes).sum())
}

fn shuffled(mut buffers: Vec<Option<usize>>, seed: u64) -> Vec<Option<usize>> {
    let mut prng = Prng::new(seed);
    for at in (1..buffers.len()).rev() {
        let other = usize::try_from(prng.below(at as u64 + 1)).expect("small");
        buffers.swap(at, other);
    }
    buffers
}

#[test]
fn packets_that_lie_together_are_one_copy_of_their_span() {
    let (pool, mut bulk) = (pool(), bulk());
    let span = 4095 * STRIDE + FRAME;
    for first in [0, 1, 777, BUFFERS - 4096] {
        let buffers: Vec<_> = (first..first + 4096).map(Some).collect();
        let slack = (first * STRIDE) as u64 % LINE;
        let copied = Some(span as u64 + slack);
        assert_eq!(follow(&pool, &mut bulk, &buffers), copied, "from {first}");
        assert_eq!(follow(&pool, &mut bulk, &shuffled(buffers, 3)), copied, "from {first}");
    }
}

#[test]
fn the_end_of_the_pool_and_its_begin_are_two_copies() {
    let (pool, mut bulk) = (pool(), bulk());
    let buffers: Vec<_> = (0..4096).map(|i| Some((BUFFERS - 1000 + i) % BUFFERS)).collect();
    let copied = follow(&pool, &mut bulk, &buffers).expect("two runs");
    assert!(copied <= 4096 * STRIDE as u64 + 2 * LINE, "{copied}: what lies between is not copied");
}

#[test]
fn missing_packets_and_small_batches_are_planned_too() {
    let (pool, mut bulk) = (pool(), bulk());
    let some: Vec<_> = (0..4096).map(|i| (i % 40 != 0).then_some(i)).collect();
    assert!(follow(&pool, &mut bulk, &some).is_some());
    let one: Vec<_> = (0..4096).map(|i| (i == 9).then_some(11_999)).collect();
    let copied = follow(&pool, &mut bulk, &one).expect("a packet is copied");
    assert_eq!(copied, FRAME as u64 + (11_999 * STRIDE) as u64 % LINE);
    assert_eq!(follow(&pool, &mut bulk, &[None; 4096]), None, "nothing to copy");
}

#[test]
fn packets_that_are_strewn_are_left_where_they_are() {
    let (pool, mut bulk) = (pool(), bulk());
    // Every second buffer: twice the bytes.
    let strewn: Vec<_> = (0..4096).map(|i| Some(2 * i)).collect();
    assert_eq!(follow(&pool, &mut bulk, &strewn), None);
    // Clusters of 100 packets, far apart: no excess, but more copies than are allowed.
    let far = usize::try_from(APART + (1 << PIECE_SHIFT)).expect("small") / STRIDE + 2;
    let clusters = |count: usize| -> Vec<_> {
        (0..count).flat_map(|c| (0..100).map(move |i| Some(c * (100 + far) + i))).collect()
    };
    assert!(follow(&pool, &mut bulk, &clusters(MAX_RUNS)).is_some());
    assert_eq!(follow(&pool, &mut bulk, &clusters(MAX_RUNS + 1)), None);
}

#[test]
fn an_address_that_is_not_of_the_pool_is_never_copied_from() {
    let mut bulk = bulk();
    for foreign in [BASE - 1, 1, BASE + (BUFFERS * STRIDE - FRAME) as u64 + 1, u64::MAX] {
        let mut list = [address(3), foreign];
        assert_eq!(bulk.plan(&mut list, NEAR), None, "{foreign:#x}");
        assert_eq!(list, [address(3), foreign]);
    }
    let mut short = Bulk::new(BASE, FRAME - 1, FRAME, 1);
    assert_eq!(short.plan(&mut [BASE], NEAR), None, "a pool shorter than a frame");
}

/// Batches out of a pool that hands buffers out as they come back, with some kept for long.
#[test]
fn whatever_lies_where_a_plan_leads_to_every_packet() {
    let (pool, mut bulk) = (pool(), bulk());
    let mut prng = Prng::new(11);
    let (mut planned, mut refused) = (0, 0);
    for round in 0..300 {
        let packets = 1 + prng.below(4096);
        let holes = 1 + prng.below(30);
        let mut at = prng.below(BUFFERS as u64);
        let mut buffers = Vec::new();
        for _ in 0..packets {
            let step = match prng.below(200 * holes) {
                0 => prng.below(BUFFERS as u64),
                few if few < 40 => 1 + few,
                _ => 1,
            };
            at = (at + step) % BUFFERS as u64;
            buffers.push(Some(usize::try_from(at).expect("small")));
        }
        match follow(&pool, &mut bulk, &shuffled(buffers, round)) {
            Some(_) => planned += 1,
            None => refused += 1,
        }
    }
    assert!(planned >= 30 && refused >= 30, "{planned} planned, {refused} refused");
}
