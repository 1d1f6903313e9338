//! Plans against the packets themselves: a pool whose bytes name their place is copied run by run,
//! and every address of the list has to lead to the bytes of its packet.

use tensorwire_core::geometry::ElementType;
use tensorwire_sim::prng::Prng;

use super::{APART, Bulk, LINE, MAX_RUNS, PIECE_SHIFT, Rows, Run};
use crate::queue::Layout;

const HEADER: usize = 64;
const FRAME: usize = 1240;
/// No multiple of a line: packets begin anywhere in one, at multiples of 8.
const STRIDE: usize = 1272;
const SLOTS: u32 = 4096;
const BUFFERS: usize = 12_000;
/// Where the pool and the staging area are said to be.
const BASE: u64 = 0x7f00_0000_0000;
const NEAR: u64 = 0x0000_1000_0000;

fn bulk_of(bytes: usize) -> Bulk {
    let layout = Layout {
        input: ElementType::Int8,
        output: ElementType::Fp16,
        network_order: false,
        slots: SLOTS,
        payload_offset: u32::try_from(HEADER).expect("small"),
        payload_bytes: u32::try_from(FRAME - HEADER).expect("small"),
    };
    Bulk::new(BASE, bytes, &layout)
}

fn bulk() -> Bulk {
    bulk_of(BUFFERS * STRIDE)
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

/// What was copied: bytes from begin to end of all runs, and those of them that were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    span: u64,
    bytes: u64,
}

/// Copies as the plan says, and looks up every packet of the buffers.
#[track_caller]
fn follow(pool: &[u8], bulk: &mut Bulk, buffers: &[Option<usize>]) -> Option<Copied> {
    let packets: Vec<u64> = buffers.iter().map(|buffer| buffer.map_or(0, address)).collect();
    follow_to(pool, bulk, &packets)
}

/// Copies as the plan says, and looks up every packet of the list.
#[track_caller]
fn follow_to(pool: &[u8], bulk: &mut Bulk, before: &[u64]) -> Option<Copied> {
    let mut list = before.to_vec();
    let room = bulk.room();
    let Some(runs) = bulk.plan(&mut list, NEAR) else {
        assert_eq!(list, before, "refused, and changed all the same");
        return None;
    };
    assert!(!runs.is_empty() && runs.len() <= MAX_RUNS);
    let mut area = vec![0; room];
    let (mut end, mut copied) = (0, Copied { span: 0, bytes: 0 });
    for Run { from, to, bytes, rows } in runs {
        assert!(*to >= end, "runs overlap");
        assert_eq!((from % LINE, to % LINE), (0, 0));
        end = to + bytes;
        let all = Rows { lead: 0, bytes: *bytes, apart: 0, count: 1 };
        let Rows { lead, bytes: width, apart, count } = rows.unwrap_or(all);
        assert!(lead + (count - 1) * apart + width <= *bytes, "rows beyond the run");
        for row in 0..count {
            let at = lead + row * apart;
            area[range(to + at, width)].copy_from_slice(&pool[range(from + at, width)]);
        }
        copied.span += bytes;
        copied.bytes += count * width;
    }
    for (near, far) in list.iter().zip(before) {
        assert_eq!(*near == 0, *far == 0);
        if *far != 0 {
            let at = range(near - NEAR, FRAME as u64).start + HEADER;
            let from = range(far - BASE, FRAME as u64).start + HEADER;
            assert!(area[at..][..FRAME - HEADER] == pool[from..][..FRAME - HEADER], "{far:#x}");
            assert_eq!(near % LINE, far % LINE, "{far:#x}: alignment");
        }
    }
    Some(copied)
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
fn packets_that_lie_together_are_one_copy_of_their_payloads() {
    let (pool, mut bulk) = (pool(), bulk());
    let span = 4095 * STRIDE + FRAME;
    for first in [0, 1, 777, BUFFERS - 4096] {
        let buffers: Vec<_> = (first..first + 4096).map(Some).collect();
        let slack = (first * STRIDE) as u64 % LINE;
        let bytes = 4096 * (FRAME - HEADER) as u64;
        let copied = Some(Copied { span: span as u64 + slack, bytes });
        assert_eq!(follow(&pool, &mut bulk, &buffers), copied, "from {first}");
        assert_eq!(follow(&pool, &mut bulk, &shuffled(buffers, 3)), copied, "from {first}");
    }
}

#[test]
fn the_end_of_the_pool_and_its_begin_are_two_copies() {
    let (pool, mut bulk) = (pool(), bulk());
    let buffers: Vec<_> = (0..4096).map(|i| Some((BUFFERS - 1000 + i) % BUFFERS)).collect();
    let copied = follow(&pool, &mut bulk, &buffers).expect("two runs");
    let span = copied.span;
    assert!(span <= 4096 * STRIDE as u64 + 2 * LINE, "{span}: what lies between is not copied");
    assert_eq!(copied.bytes, 4096 * (FRAME - HEADER) as u64);
}

#[test]
fn missing_packets_and_small_batches_are_planned_too() {
    let (pool, mut bulk) = (pool(), bulk());
    let some: Vec<_> = (0..4096).map(|i| (i % 40 != 0).then_some(i)).collect();
    assert!(follow(&pool, &mut bulk, &some).is_some());
    let one: Vec<_> = (0..4096).map(|i| (i == 9).then_some(11_999)).collect();
    let span = FRAME as u64 + (11_999 * STRIDE) as u64 % LINE;
    let bytes = (FRAME - HEADER) as u64;
    assert_eq!(follow(&pool, &mut bulk, &one), Some(Copied { span, bytes }));
    // The first packet of a pool tells nothing about the others: all of it is copied.
    assert_eq!(follow(&pool, &mut self::bulk(), &one), Some(Copied { span, bytes: span }));
    assert_eq!(follow(&pool, &mut bulk, &[None; 4096]), None, "nothing to copy");
}

#[test]
fn packets_that_are_strewn_are_left_where_they_are() {
    let (pool, mut bulk) = (pool(), bulk());
    // Every second buffer, once it is known where buffers are: twice the bytes.
    assert!(follow(&pool, &mut bulk, &[Some(7), Some(8)]).is_some());
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
    let mut short = bulk_of(FRAME - 1);
    assert_eq!(short.plan(&mut [BASE], NEAR), None, "a pool shorter than a frame");
}

/// As a NIC's pools have it: a head, room before the packet, and a power of two.
#[test]
fn buffers_that_are_far_apart_are_copied_by_rows() {
    let pool = pool();
    for apart in [1536, 2048, 2480] {
        let mut bulk = bulk();
        let packets: Vec<u64> = (0..4096).map(|i| BASE + 256 + i * apart).collect();
        let copied = follow_to(&pool, &mut bulk, &packets).expect("by rows");
        assert_eq!(copied.bytes, 4096 * (FRAME - HEADER) as u64, "{apart}");
    }
    // Further apart, the area would have no room.
    let wide: Vec<u64> = (0..4096).map(|i| BASE + i * 2880).collect();
    assert_eq!(follow_to(&pool, &mut bulk(), &wide), None);
}

/// Packets that begin now here, now there in their buffers, after some that did not.
#[test]
fn packets_that_are_not_evenly_apart_are_copied_with_what_lies_between() {
    let (pool, mut bulk) = (pool(), bulk());
    let even: Vec<u64> = (0..4096).map(address).collect();
    let odd: Vec<u64> = (0..4096).map(|i| address(i) + 8 * (i as u64 % 3)).collect();
    let whole = |copied: Option<Copied>| copied.is_some_and(|copied| copied.span == copied.bytes);
    assert!(!whole(follow_to(&pool, &mut bulk, &even)));
    assert!(whole(follow_to(&pool, &mut bulk, &odd)));
    assert!(whole(follow_to(&pool, &mut bulk, &even)), "what was learned is kept");
    // The first batch had every second buffer: the next one tells.
    let mut bulk = self::bulk();
    let second: Vec<u64> = (0..300).map(|i| address(2 * i)).collect();
    assert!(!whole(follow_to(&pool, &mut bulk, &second)));
    let copied = follow_to(&pool, &mut bulk, &even).expect("by rows");
    assert_eq!(copied.bytes, 4096 * (FRAME - HEADER) as u64);
}

/// Beyond 4 GiB the short way to a remainder does not hold, and nobody is to rely on it.
#[test]
fn packets_beyond_four_gigabytes_are_copied_with_what_lies_between() {
    let mut grid = super::Grid::default();
    grid.learn([640, 1920].into_iter());
    let far = (1_u64 << 32) / 1280 * 1280;
    for (at, is) in [(640, true), (1920, true), (641, false), (639, false), (0, false)] {
        assert_eq!(grid.has(at), is, "{at}");
        assert_eq!(grid.has(at + far - 1280), is, "{at} far");
    }
    assert!(!grid.has(far + 1280 + 640));
    for apart in [1240, 1264, 1280, 2048, 9000, 65_536, 1_000_003] {
        let mut grid = super::Grid::default();
        grid.learn([0, apart].into_iter());
        let mut prng = Prng::new(apart);
        for _ in 0..2000 {
            let at = prng.below(1 << 32);
            let multiple = at / apart * apart;
            assert!(grid.has(multiple), "{multiple} of {apart}");
            assert_eq!(grid.has(at), at.is_multiple_of(apart), "{at} of {apart}");
            assert!(!grid.has(multiple + 1) && !grid.has((multiple + apart) - 1), "{multiple}");
        }
    }
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
