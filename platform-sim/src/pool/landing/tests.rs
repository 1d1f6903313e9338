use std::sync::atomic::Ordering;
use std::thread;

use tensorwire_core::port::PacketMemory;

use super::super::tests::Driver;
use super::*;

/// A pool, in memory of its own or of a driver, and the tokens of its buffers.
fn pool(lent: bool, buffers: usize, bytes: usize) -> (Arc<PacketPool>, Vec<FreeBuf>) {
    let pages = PacketPool::bytes_needed(buffers, bytes).expect("small").div_ceil(4096);
    let pool = if lent {
        PacketPool::new_in(buffers, bytes, Driver::lend(pages).0)
    } else {
        PacketPool::new(buffers, bytes)
    };
    let (pool, free) = pool.expect("small");
    (Arc::new(pool), free)
}

fn published(landing: &mut Landing) -> Vec<PacketDesc> {
    let mut packets = [const { PacketDesc::EMPTY }; LANDING];
    let count = landing.publish(&mut packets);
    assert!(packets[count..].iter().all(PacketDesc::is_none));
    packets.into_iter().take(count).collect()
}

/// The two pieces of a frame.
fn arriving<'f>(front: &'f mut [u8; LINE], frame: &'f [u8]) -> Arriving<'f> {
    let (head, rest) = frame.split_at(frame.len().min(LINE));
    front[..head.len()].copy_from_slice(head);
    Arriving { front, rest, len: u32::try_from(frame.len()).expect("short"), flow: 7 }
}

#[test]
fn a_frame_of_any_length_from_any_place_has_zeros_behind_it_and_no_more() {
    let most = if cfg!(miri) { 200 } else { 2048 };
    let bytes: Vec<u8> = (0..most + 64).map(|at: usize| (at % 251 + 1).to_le_bytes()[0]).collect();
    for lent in [false, true] {
        let (pool, mut free) = pool(lent, 3, most + 2 * LINE);
        let mut landing = Landing::new(Arc::clone(&pool));
        for len in 0..=most {
            let mut buf = free.remove(0);
            // An earlier frame was as long as the buffer.
            pool.bytes_mut(&mut buf, most + 2 * LINE).expect("its own").fill(0xee);
            let handle = buf.handle;
            // From a place of any alignment.
            let frame = &bytes[len % 64..][..len];
            landing.write(buf, &arriving(&mut [0; LINE], frame)).expect("room");
            let mut packets = published(&mut landing);
            let packet = packets.pop().expect("one");
            assert_eq!((packet.handle(), packet.len() as usize, packet.flow()), (handle, len, 7));
            assert_eq!(pool.bytes(&packet), frame, "{len} bytes");
            let mut buf = pool.reclaim(packet).expect("its own");
            let behind = &pool.bytes_mut(&mut buf, most + 2 * LINE).expect("its own")[len..];
            let line = len.next_multiple_of(LINE).max(LINE) - len;
            assert!(behind[..line].iter().all(|byte| *byte == 0), "{len} bytes, behind");
            assert!(behind[line..].iter().all(|byte| *byte == 0xee), "{len} bytes, beyond");
            free.push(buf);
        }
    }
}

#[test]
fn frames_longer_than_the_buffer_are_cut_and_disturb_no_neighbour() {
    let bytes: Vec<u8> = (1..=250).collect();
    for lent in [false, true] {
        // 40 bytes are less than a line, 100 less than two, 128 two.
        for size in [40, 100, 128] {
            let (pool, mut free) = pool(lent, 3, size);
            for buf in &mut free {
                pool.bytes_mut(buf, size).expect("its own").fill(0xee);
            }
            let middle = free.remove(1);
            let mut landing = Landing::new(Arc::clone(&pool));
            landing.write(middle, &arriving(&mut [0; LINE], &bytes)).expect("room");
            let packets = published(&mut landing);
            assert_eq!(packets[0].len(), 250);
            assert_eq!(pool.bytes(&packets[0]), &bytes[..size]);
            for buf in &mut free {
                let neighbour = pool.bytes_mut(buf, size).expect("its own");
                assert!(neighbour.iter().all(|byte| *byte == 0xee), "{size}");
            }
        }
    }
}

#[test]
fn tokens_without_a_place_come_back() {
    let (own, mut free) = pool(false, LANDING + 1, 100);
    let (_other, mut others) = pool(false, 1, 100);
    let mut landing = Landing::new(Arc::clone(&own));
    assert!(landing.is_empty() && published(&mut landing).is_empty());
    let mut front = [0; LINE];
    let frame = arriving(&mut front, &[5; 30]);
    let foreign = landing.write(others.remove(0), &frame).expect_err("of another pool");
    assert!(!foreign.is_none() && landing.is_empty());
    let handles: Vec<u64> = free.iter().map(|buf| buf.handle).collect();
    for buf in free.drain(..LANDING) {
        assert!(landing.has_room());
        landing.write(buf, &frame).expect("room");
    }
    assert!(!landing.has_room());
    let last = landing.write(free.remove(0), &frame).expect_err("no place");
    assert_eq!((last.handle, landing.len()), (handles[LANDING], LANDING));
    let packets = published(&mut landing);
    assert!(packets.iter().map(PacketDesc::handle).eq(handles[..LANDING].iter().copied()));
    landing.write(last, &frame).expect("room again");
    assert_eq!(published(&mut landing).len(), 1);
}

#[test]
fn frames_are_published_by_the_thread_that_wrote_them() {
    let (pool, mut free) = pool(false, 3, 100);
    let mut landing = Landing::new(Arc::clone(&pool));
    landing.write(free.remove(0), &arriving(&mut [0; LINE], &[1; 80])).expect("room");
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(!landing.has_room() && published(&mut landing).is_empty());
            let refused = landing.write(free.remove(0), &arriving(&mut [0; LINE], &[2; 80]));
            free.push(refused.expect_err("another thread's frames wait"));
        });
        other.join().expect("the other thread ends");
    });
    assert_eq!(published(&mut landing).len(), 1);
    // An empty one may go anywhere.
    thread::scope(|scope| {
        scope.spawn(|| {
            landing.write(free.remove(0), &arriving(&mut [0; LINE], &[3; 80])).expect("room");
            let packets = published(&mut landing);
            assert_eq!(pool.bytes(&packets[0]), [3; 80]);
        });
    });
}

#[test]
#[cfg_attr(miri, ignore = "it leaves memory behind, as it must")]
fn memory_that_another_thread_may_still_write_to_is_not_given_back() {
    for (elsewhere, given_back) in [(false, 1), (true, 0)] {
        let (memory, gone) = Driver::lend(1);
        let (pool, mut free) = PacketPool::new_in(2, 100, memory).expect("small");
        let mut landing = Landing::new(Arc::new(pool));
        let mut write = || {
            landing.write(free.remove(0), &arriving(&mut [0; LINE], &[1; 80])).expect("room");
        };
        if elsewhere {
            thread::scope(|scope| scope.spawn(write).join().expect("it ends"));
        } else {
            write();
        }
        drop(landing);
        assert_eq!(gone.load(Ordering::Relaxed), given_back, "written elsewhere: {elsewhere}");
    }
}
