//! Frames through a device: whole, in order, in memory of ours.
#![allow(unsafe_code)] // a token that no driver made

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::port::{PacketMemory, RxQueue, SendError, TxQueue};

use crate::support::{FRAME, Folder, Wire, alone, carry, eal};

fn whole(wire: &mut Wire, count: u64, len: usize, copies: bool) {
    let (tx_pool, rx_pool) = (wire.tx_pool.clone(), wire.rx_pool.clone());
    let (mut tx, mut rx) = wire.ends();
    let mut outside = 0;
    carry((&mut tx, &mut rx), count, len, |_, bytes| {
        let ends = bytes.as_ptr_range();
        // A ring passes the sender's buffers on, memif copies into the receiver's.
        let pool = if copies { &rx_pool } else { &tx_pool };
        outside += u32::from(!pool.contains(ends.start, ends.end));
    });
    assert_eq!(outside, 0, "frames outside our memory");
    assert_eq!((rx.received(), rx.segmented(), rx.foreign()), (count, 0, 0));
    assert_eq!(tx.stats().sent, count);
    assert_eq!(rx.free_buffers(), rx_pool.buffers());
}

#[test]
fn ring_devices_carry_frames_whole() {
    alone("frames::ring_devices_carry_frames_whole", || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 2047, FRAME);
        whole(&mut wire, 20_000, FRAME, false);
        let stats = wire.rx.stats().expect("statistics");
        assert_eq!((stats.in_packets, stats.in_missed, stats.no_buffer), (20_000, 0, 0));
        let named = wire.rx.xstats().expect("statistics by name");
        assert!(named.contains(&("rx_good_packets".to_owned(), 20_000)), "{named:?}");
        assert_eq!(wire.tx.link().look(), Ok(Some(10_000)));
        let (tx_pool, rx_pool) = (wire.tx_pool.clone(), wire.rx_pool.clone());
        drop(wire);
        assert_eq!((tx_pool.available(), rx_pool.available()), (2047, 2047));
    });
}

#[test]
fn ring_devices_carry_jumbo_frames() {
    alone("frames::ring_devices_carry_jumbo_frames", || {
        let eal = eal();
        whole(&mut Wire::rings(&eal, 1023, 9000), 3000, 9000, false);
    });
}

#[test]
fn memif_devices_carry_frames_whole() {
    alone("frames::memif_devices_carry_frames_whole", || {
        let folder = Folder::new();
        let eal = eal();
        let mut wire = Wire::memif(&eal, folder.path(), 4095, FRAME);
        whole(&mut wire, 20_000, FRAME, true);
        let pools = [wire.tx_pool.clone(), wire.rx_pool.clone()];
        drop(wire);
        assert_eq!(pools.map(|pool| pool.available()), [4095, 4095]);
    });
}

#[test]
fn a_full_wire_takes_no_more_and_loses_nothing() {
    alone("frames::a_full_wire_takes_no_more_and_loses_nothing", || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 511, FRAME);
        let (mut tx, mut rx) = wire.ends();
        let error = tx.send(FRAME + 200, |_| panic!("not asked")).expect_err("too long");
        assert_eq!(error, SendError::TooLong { len: FRAME + 200, room: 1280 });
        assert!(tx.send(0, |_| ()).is_err());
        let mut sent = 0;
        // The pool runs dry first: 511 buffers, a ring of 1024.
        while tx.room() > 0 {
            tx.send(FRAME, |frame| frame.fill(7)).expect("there is room");
            sent += 1;
        }
        assert_eq!(sent, 511);
        assert_eq!(tx.send(FRAME, |_| panic!("not asked")), Err(SendError::Full));
        assert_eq!(tx.refused(), 1);
        tx.flush();
        let mut packets = vec![];
        packets.resize_with(600, PacketDesc::default);
        assert_eq!(rx.rx_burst(&mut packets), 511);
        assert_eq!(rx.free_buffers(), 0);
        rx.release(&mut packets);
        assert!(packets.iter().all(PacketDesc::is_none));
        assert_eq!((rx.free_buffers(), tx.room()), (511, 64));
    });
}

/// A run that is interrupted: what is on its way keeps no memory.
#[test]
fn frames_that_nobody_received_go_back_to_the_sender() {
    alone("frames::frames_that_nobody_received_go_back_to_the_sender", || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 511, FRAME);
        let (mut tx, _rx) = wire.ends();
        for _ in 0..200 {
            tx.send(FRAME, |frame| frame.fill(7)).expect("room");
        }
        tx.flush();
        let pools = [wire.tx_pool.clone(), wire.rx_pool.clone()];
        assert_eq!(pools[0].available(), 511 - 200 - 56, "64 at a time are taken from the pool");
        drop(wire);
        assert_eq!(pools.map(|pool| pool.available()), [511, 511]);
    });
}

#[test]
fn a_packet_of_another_driver_is_neither_read_nor_released() {
    alone("frames::a_packet_of_another_driver_is_neither_read_nor_released", || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 511, FRAME);
        let (_tx, mut rx) = wire.ends();
        let mut packets = [const { PacketDesc::EMPTY }; 2];
        // Handles of the software NIC begin with this bit; no address does.
        // SAFETY: there is no buffer behind it, and no driver that would take it for its own.
        packets[0] = unsafe { PacketDesc::claim(1 << 63, 1240, 0) };
        assert!(rx.bytes(&packets[0]).is_empty());
        rx.release(&mut packets);
        assert_eq!(rx.foreign(), 1);
        assert_eq!(rx.arrived(&packets[0]), None);
        assert!(!packets[0].is_none());
    });
}
