use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use proptest::prelude::*;

use tensorwire_core::flow::{FlowMatch, PortRange};
use tensorwire_core::header::HeaderSpec;

use super::*;
use crate::testkit::{SMALL, lend, length_of, read_frame, send, send_or_lend, write_frame};

fn none<const N: usize>() -> [PacketDesc; N] {
    [const { PacketDesc::EMPTY }; N]
}

/// Every receive buffer is in exactly one place, and every frame under exactly one count.
fn check_balance(tx: &SwTx<'_>, rx: &SwRx<'_>) {
    let with_app = rx.side.with_app;
    let places = [tx.side.free.len(), tx.staged(), rx.waiting(), with_app, tx.returned.len()];
    assert_eq!(places.iter().sum::<usize>(), tx.pool.buffers(), "{places:?}");
    assert_eq!(rx.free_buffers(), tx.pool.buffers() - with_app);
    let nic = tx.nic_stats();
    let on_the_way = (tx.staged() + rx.waiting()) as u64;
    assert_eq!(tx.stats().sent, rx.delivered() + nic.missed + nic.errors + on_the_way);
    assert_eq!(rx.stats(), nic);
    assert_eq!(rx.foreign(), 0);
}

#[test]
fn frames_arrive_as_they_were_sent_and_in_order() {
    let mut nic = SwNic::new(SMALL).expect("small");
    let (mut tx, mut rx) = nic.split();
    let mut got = Vec::new();
    let mut n = 0;
    while got.len() < 100 {
        while tx.room() > 0 {
            send(&mut tx, n).expect("there is room");
            n += 1;
        }
        tx.flush();
        let mut burst = none::<3>();
        let count = rx.rx_burst(&mut burst);
        for packet in &burst[..count] {
            assert_eq!(packet.len() as usize, length_of(got.len() as u64));
            got.push(read_frame(rx.bytes(packet)));
        }
        rx.release(&mut burst);
        assert!(burst.iter().all(PacketDesc::is_none));
        check_balance(&tx, &rx);
    }
    assert!(got.iter().copied().eq(0..got.len() as u64));
    assert!(tx.finish());
}

#[test]
fn frames_go_on_the_ring_in_groups_before_a_flush() {
    for (rx_ring, group) in [(20, 8), (64, 8), (100, 12), (256, 32), (512, 32)] {
        let config = SwNicConfig { rx_bufs: 600, rx_ring, tx_bufs: 600, tx_ring: 600, ..SMALL };
        let mut nic = SwNic::new(config).expect("small");
        let (mut tx, rx) = nic.split();
        for n in 1..=group as u64 {
            assert_eq!((rx.waiting(), tx.staged()), (0, usize::try_from(n - 1).expect("few")));
            send_or_lend(&mut tx, n).expect("room");
        }
        assert_eq!((rx.waiting(), tx.staged()), (group, 0), "a ring of {rx_ring}");
        check_balance(&tx, &rx);
    }
}

#[test]
fn the_ring_holds_exactly_what_was_asked_for() {
    for mode in [TxMode::Lossless, TxMode::Wire] {
        let mut nic = SwNic::new(SwNicConfig { mode, ..SMALL }).expect("small");
        let (mut tx, rx) = nic.split();
        let accepted = (0..10).filter(|n| send(&mut tx, *n).is_ok()).count();
        tx.flush();
        assert_eq!(rx.waiting(), 5);
        let lost = NicStats { missed: 5, errors: 0, no_buffer: 0 };
        match mode {
            TxMode::Lossless => assert_eq!((accepted, tx.nic_stats()), (5, NicStats::default())),
            TxMode::Wire => assert_eq!((accepted, tx.nic_stats()), (10, lost)),
        }
        check_balance(&tx, &rx);
    }
}

#[test]
fn room_is_what_send_takes() {
    let mut nic = SwNic::new(SwNicConfig { tx_ring: 3, ..SMALL }).expect("small");
    let (mut tx, mut rx) = nic.split();
    assert_eq!(tx.room(), 3, "a step offers no more than the transmit ring");
    let mut kept = none::<12>();
    let mut count = 0;
    // 12 buffers: after two rings full only 2 are left, then none.
    for (n, room) in [(5, 0), (5, 0), (2, 0)] {
        for i in 0..n {
            send(&mut tx, i).expect("room");
        }
        assert_eq!(tx.room(), room);
        assert_eq!(send(&mut tx, 0), Err(SendError::Full));
        count += rx.rx_burst(&mut kept[count..]);
    }
    assert_eq!((count, rx.free_buffers(), tx.room()), (12, 0, 0));
    rx.release(&mut kept[..1]);
    assert_eq!((rx.free_buffers(), tx.room()), (1, 1));
    check_balance(&tx, &rx);
}

#[test]
fn room_counts_all_that_was_released() {
    let config = SwNicConfig { rx_bufs: 100, rx_ring: 100, tx_ring: 200, tx_bufs: 200, ..SMALL };
    let mut nic = SwNic::new(config).expect("small");
    let (mut tx, mut rx) = nic.split();
    let mut kept = none::<100>();
    for _ in 0..3 {
        assert_eq!(tx.room(), 100);
        (0..100).for_each(|n| send(&mut tx, n).expect("room"));
        tx.flush();
        assert_eq!((rx.rx_burst(&mut kept), tx.room()), (100, 0));
        rx.release(&mut kept);
    }
}

#[test]
fn an_empty_pool_is_told_from_a_full_ring() {
    let config = SwNicConfig { mode: TxMode::Wire, rx_bufs: 3, ..SMALL };
    let mut nic = SwNic::new(config).expect("small");
    let (mut tx, mut rx) = nic.split();
    for n in 0..5 {
        send(&mut tx, n).expect("a wire takes everything");
    }
    assert_eq!(tx.nic_stats(), NicStats { missed: 2, errors: 0, no_buffer: 2 });
    tx.flush();
    let mut kept = none::<5>();
    assert_eq!(rx.rx_burst(&mut kept), 3);
    send(&mut tx, 5).expect("a wire takes everything");
    rx.release(&mut kept);
    send(&mut tx, 6).expect("a wire takes everything");
    tx.flush();
    assert_eq!(rx.stats(), NicStats { missed: 3, errors: 0, no_buffer: 3 });
    assert_eq!(rx.rx_burst(&mut kept), 1);
    assert_eq!(read_frame(rx.bytes(&kept[0])), 6);
    check_balance(&tx, &rx);
}

#[test]
fn long_frames_are_cut_or_errors() {
    for oversize in [Oversize::Cut, Oversize::Error] {
        let mut nic = SwNic::new(SwNicConfig { oversize, ..SMALL }).expect("small");
        let (mut tx, mut rx) = nic.split();
        tx.send(300, |frame| write_frame(1, frame)).expect("as long as a transmit buffer");
        tx.send(256, |frame| write_frame(2, frame)).expect("as long as a receive buffer");
        let error = tx.send(301, |_| panic!("must not be called")).expect_err("too long");
        assert_eq!(error, SendError::TooLong { len: 301, room: 300 });
        tx.flush();
        let mut burst = none::<3>();
        let count = rx.rx_burst(&mut burst);
        check_balance(&tx, &rx);
        let mut whole = vec![0; 300];
        write_frame(1, &mut whole);
        match oversize {
            Oversize::Cut => {
                assert_eq!((count, rx.stats().errors), (2, 0));
                assert_eq!((burst[0].len(), rx.bytes(&burst[0])), (300, &whole[..256]));
                assert_eq!(read_frame(rx.bytes(&burst[1])), 2);
            }
            Oversize::Error => {
                assert_eq!((count, rx.stats().errors), (1, 1));
                assert_eq!(read_frame(rx.bytes(&burst[0])), 2);
            }
        }
    }
}

#[test]
fn the_source_address_is_written_where_there_is_one() {
    let mac = [2, 4, 6, 8, 10, 12];
    let mut nic = SwNic::new(SwNicConfig { tx_eth_src: Some(mac), ..SMALL }).expect("small");
    let (mut tx, mut rx) = nic.split();
    for len in [0, 11, 12, 64, 300] {
        tx.send(len, |frame| frame.fill(0xee)).expect("room");
    }
    tx.flush();
    let mut burst = none::<5>();
    assert_eq!(rx.rx_burst(&mut burst), 5);
    assert!(rx.bytes(&burst[0]).is_empty());
    assert_eq!(rx.bytes(&burst[1]), [0xee; 11], "too short to have one");
    for packet in &burst[2..] {
        let (head, rest) = rx.bytes(packet).split_at(12);
        assert_eq!((&head[..6], &head[6..]), (&[0xee; 6][..], &mac[..]));
        assert!(rest.iter().all(|b| *b == 0xee));
    }
}

#[test]
fn frames_of_a_flow_are_tagged_and_others_are_not() {
    let mut flows = FlowTable::new();
    for (id, port) in [(201, 4096), (0, 5000), (u32::MAX, 6000)] {
        let udp_dst = Some(PortRange::single(port));
        flows.push(&FlowMatch { udp_dst, ..FlowMatch::any(id) }).expect("three flows");
    }
    let mut nic = SwNic::new(SwNicConfig { flows: Some(flows), ..SMALL }).expect("small");
    let (mut tx, mut rx) = nic.split();
    // 300 bytes are cut, the headers are there. An id without a successor cannot be a tag.
    for (port, len, tag) in [(4096, 256, 202), (5000, 300, 1), (7, 256, 0), (6000, 256, 0)] {
        let spec = HeaderSpec {
            eth_src: [2; 6],
            eth_dst: [4; 6],
            ip_src: [10, 0, 0, 1],
            ip_dst: [10, 0, 0, 2],
            udp_src: 9,
            udp_dst: port,
        };
        tx.send(len, |frame| header::build(&spec, frame).expect("long enough")).expect("room");
        tx.flush();
        let mut burst = none::<1>();
        assert_eq!(rx.rx_burst(&mut burst), 1);
        assert_eq!((burst[0].flow(), burst[0].len() as usize), (tag, len));
        rx.release(&mut burst);
    }
    tx.send(20, |frame| frame.fill(0)).expect("room");
    tx.flush();
    let mut burst = none::<1>();
    assert_eq!((rx.rx_burst(&mut burst), burst[0].flow()), (1, 0));
}

#[test]
fn a_second_split_finds_the_frames_of_the_first() {
    let mut nic = SwNic::new(SMALL).expect("small");
    {
        let (mut tx, mut rx) = nic.split();
        for n in 0..4 {
            send(&mut tx, n).expect("room");
        }
        tx.flush();
        let mut burst = none::<1>();
        assert_eq!(rx.rx_burst(&mut burst), 1);
        rx.release(&mut burst);
        send(&mut tx, 4).expect("room");
        // Not flushed: the descriptor waits in the stage.
    }
    let (mut tx, mut rx) = nic.split();
    check_balance(&tx, &rx);
    tx.flush();
    let mut burst = none::<8>();
    assert_eq!(rx.rx_burst(&mut burst), 4);
    let got: Vec<u64> = burst[..4].iter().map(|p| read_frame(rx.bytes(p))).collect();
    assert_eq!(got, [1, 2, 3, 4]);
    check_balance(&tx, &rx);
}

#[test]
fn a_fill_that_panics_loses_no_buffer() {
    let mut nic = SwNic::new(SMALL).expect("small");
    let (mut tx, mut rx) = nic.split();
    for len in [100, 300] {
        let result = catch_unwind(AssertUnwindSafe(|| tx.send(len, |_| panic!("on purpose"))));
        assert!(result.is_err());
        check_balance(&tx, &rx);
        let frame = vec![1; len];
        let patch = |_: &mut [u8]| panic!("on purpose");
        let result = catch_unwind(AssertUnwindSafe(|| tx.send_from(&frame, patch)));
        assert!(result.is_err());
        check_balance(&tx, &rx);
    }
    assert_eq!(tx.stats().sent, 0);
    // And the next ones go out as ever.
    for n in 0..5 {
        send_or_lend(&mut tx, n).expect("room");
    }
    tx.flush();
    let mut burst = none::<5>();
    assert_eq!(rx.rx_burst(&mut burst), 5);
    assert!(burst.iter().map(|packet| read_frame(rx.bytes(packet))).eq(0..5));
    check_balance(&tx, &rx);
}

/// Two NICs, one of which is sent frames as they lie in memory.
#[test]
fn a_frame_that_is_lent_arrives_as_one_that_is_written() {
    let mut flows = FlowTable::new();
    let udp_dst = Some(PortRange::single(4096));
    flows.push(&FlowMatch { udp_dst, ..FlowMatch::any(201) }).expect("one flow");
    let longest = if cfg!(miri) { 300 } else { 2048 };
    let spec = HeaderSpec {
        eth_src: [2; 6],
        eth_dst: [4; 6],
        ip_src: [10, 0, 0, 1],
        ip_dst: [10, 0, 0, 2],
        udp_src: 9,
        udp_dst: 4096,
    };
    for (reuse, oversize) in [(Reuse::Newest, Oversize::Cut), (Reuse::Oldest, Oversize::Error)] {
        let config = SwNicConfig {
            rx_buf_size: longest - 100,
            tx_buf_size: longest - 10,
            tx_eth_src: Some([6; 6]),
            flows: Some(flows.clone()),
            oversize,
            ..SMALL
        };
        let nic = || {
            let pool = PacketPool::new(config.rx_bufs, config.rx_buf_size).expect("small");
            SwNic::over(config.clone(), pool, reuse)
        };
        let (mut nics, mut source) = ([nic(), nic()], vec![0; longest + 64]);
        let [written, lent] = &mut nics;
        let (mut ends, mut lent_ends) = (written.split(), lent.split());
        for len in 0..=longest {
            // At a place of any alignment.
            let frame = &mut source[len % 64..][..len];
            write_tail(len, frame);
            let _ = header::build(&spec, frame);
            let patch = |front: &mut [u8]| front.iter_mut().step_by(7).for_each(|b| *b ^= 0x10);
            let fill = |out: &mut [u8]| {
                out.copy_from_slice(frame);
                patch(&mut out[..len.min(HEADER_BYTES)]);
            };
            assert_eq!(ends.0.send(len, fill), lent_ends.0.send_from(frame, patch), "{len}");
            let seen = [&mut ends, &mut lent_ends].map(|(tx, rx)| {
                tx.flush();
                let mut burst = none::<1>();
                let count = rx.rx_burst(&mut burst);
                let seen = (count, burst[0].len(), burst[0].flow(), rx.bytes(&burst[0]).to_vec());
                rx.release(&mut burst);
                check_balance(tx, rx);
                (seen, rx.stats(), tx.stats())
            });
            assert_eq!(seen[0], seen[1], "{len} bytes");
        }
        assert_eq!(ends.1.delivered(), lent_ends.1.delivered());
    }
}

/// Fills a frame with bytes that depend on its length and on their place.
fn write_tail(len: usize, frame: &mut [u8]) {
    for (byte, at) in frame.iter_mut().zip(0_usize..) {
        *byte = (at.wrapping_mul(13) ^ len).to_le_bytes()[0];
    }
}

#[test]
fn a_queue_with_frames_of_another_thread_is_full_until_that_one_flushes() {
    for mode in [TxMode::Lossless, TxMode::Wire] {
        let mut nic = SwNic::new(SwNicConfig { mode, ..SMALL }).expect("small");
        let (mut tx, mut rx) = nic.split();
        send(&mut tx, 0).expect("room");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                tx.flush();
                for result in [lend(&mut tx, 1), send(&mut tx, 1)] {
                    match mode {
                        TxMode::Lossless => assert_eq!(result, Err(SendError::Full)),
                        TxMode::Wire => assert_eq!(result, Ok(())),
                    }
                }
                assert_eq!(tx.room(), if mode == TxMode::Lossless { 0 } else { 64 });
            });
            other.join().expect("the other thread ends");
        });
        assert_eq!((tx.staged(), rx.waiting()), (1, 0));
        assert_eq!(tx.nic_stats().missed, if mode == TxMode::Lossless { 0 } else { 2 });
        check_balance(&tx, &rx);
        tx.flush();
        let mut burst = none::<1>();
        assert_eq!((rx.rx_burst(&mut burst), read_frame(rx.bytes(&burst[0]))), (1, 0));
        lend(&mut tx, 2).expect("room");
        check_balance(&tx, &rx);
    }
}

#[test]
fn a_foreign_packet_is_left_where_it_is() {
    let (mut nic, mut other) =
        (SwNic::new(SMALL).expect("small"), SwNic::new(SMALL).expect("small"));
    let ((mut tx, mut rx), (mut other_tx, mut other_rx)) = (nic.split(), other.split());
    send(&mut tx, 1).expect("room");
    tx.flush();
    send(&mut other_tx, 2).expect("room");
    other_tx.flush();
    let mut burst = none::<3>();
    assert_eq!(rx.rx_burst(&mut burst[..1]), 1);
    assert_eq!(other_rx.rx_burst(&mut burst[2..]), 1);
    assert!(rx.bytes(&burst[2]).is_empty());
    rx.release(&mut burst);
    assert_eq!((burst[0].is_none(), burst[2].is_none(), rx.foreign()), (true, false, 1));
    other_rx.release(&mut burst);
    assert!(burst[2].is_none());
    check_balance(&other_tx, &other_rx);
}

#[test]
fn a_receiver_that_keeps_up_touches_few_buffers() {
    let config = SwNicConfig { rx_bufs: 1000, rx_ring: 64, ..SMALL };
    let mut nic = SwNic::new(config).expect("small");
    let (mut tx, mut rx) = nic.split();
    let mut seen = HashSet::new();
    let mut burst = none::<32>();
    for step in 0..1000 {
        for n in 0..16 {
            send(&mut tx, step * 16 + n).expect("room");
        }
        tx.flush();
        let count = rx.rx_burst(&mut burst);
        seen.extend(burst[..count].iter().map(PacketDesc::handle));
        rx.release(&mut burst);
    }
    assert!(seen.len() <= 32, "{} buffers of 1000 for bursts of 16", seen.len());
}

#[test]
fn numbers_that_cannot_be_are_errors_by_name() {
    let cases = [
        ("rx_bufs", SwNicConfig { rx_bufs: MAX_RX_BUFS + 1, ..SMALL }),
        ("rx_ring", SwNicConfig { rx_ring: MAX_RX_RING + 1, ..SMALL }),
        ("rx_ring", SwNicConfig { rx_ring: 0, ..SMALL }),
        ("rx_buf_size", SwNicConfig { rx_buf_size: 0, ..SMALL }),
        ("tx_bufs", SwNicConfig { tx_bufs: 0, ..SMALL }),
        ("tx_buf_size", SwNicConfig { tx_buf_size: 0, ..SMALL }),
        ("tx_ring", SwNicConfig { tx_ring: 0, ..SMALL }),
    ];
    for (name, config) in cases {
        let error = SwNic::new(config).map(|_| ()).expect_err(name);
        assert!(matches!(error, NicError::OutOfRange { what, .. } if what == name), "{error}");
    }
    let largest = SwNicConfig { rx_bufs: MAX_RX_BUFS, rx_ring: MAX_RX_RING, ..SMALL };
    SwNic::new(largest).expect("the limits themselves");
}

/// What a test does to a NIC in one step.
#[derive(Clone, Debug)]
enum Op {
    Send(u8),
    Flush,
    Room,
    Poll(usize),
    /// Gives back this many of the packets held, from the front or from the back.
    Release(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1..8_u8).prop_map(Op::Send),
        Just(Op::Flush),
        Just(Op::Room),
        (1..8_usize).prop_map(Op::Poll),
        (1..8_usize, any::<bool>()).prop_map(|(n, back)| Op::Release(n, back)),
    ]
}

/// The application of a test: what it holds, and what it saw.
#[derive(Default)]
struct App {
    held: VecDeque<(PacketDesc, u64)>,
    got: Vec<u64>,
}

impl App {
    fn poll(&mut self, rx: &mut SwRx<'_>, at_most: usize) {
        let mut burst = none::<8>();
        let count = rx.rx_burst(&mut burst[..at_most]);
        for packet in burst.iter_mut().take(count) {
            let n = read_frame(rx.bytes(packet));
            self.got.push(n);
            self.held.push_back((packet.take(), n));
        }
    }

    fn release(&mut self, rx: &mut SwRx<'_>, count: usize, back: bool) {
        let mut burst = none::<8>();
        for place in burst.iter_mut().take(count) {
            let next = if back { self.held.pop_back() } else { self.held.pop_front() };
            let Some((packet, n)) = next else { break };
            // Whatever arrived since, it did not go into a buffer that is held.
            assert_eq!(read_frame(rx.bytes(&packet)), n);
            *place = packet;
        }
        rx.release(&mut burst);
    }
}

/// The receiving side of a wire, as simple as can be.
#[derive(Default)]
struct Model {
    /// Frames on the ring, staged ones included.
    ring: VecDeque<u64>,
    nic: NicStats,
    sent: u64,
}

impl Model {
    /// Whether the sender got rid of the frame.
    fn send(&mut self, n: u64, with_app: usize, config: &SwNicConfig) -> bool {
        let no_buffer = self.ring.len() + with_app == config.rx_bufs;
        if self.ring.len() < config.rx_ring && !no_buffer {
            self.ring.push_back(n);
        } else if config.mode == TxMode::Lossless {
            return false;
        } else {
            self.nic.missed += 1;
            self.nic.no_buffer += u64::from(no_buffer);
        }
        self.sent += 1;
        true
    }
}

/// Any interleaving of both sides, against the model, with all balances after every step.
fn interleave(mode: TxMode, rx_bufs: usize, rx_ring: usize, ops: &[Op]) {
    let config = SwNicConfig { mode, rx_bufs, rx_ring, ..SMALL };
    let mut nic = SwNic::new(config.clone()).expect("small");
    let (mut tx, mut rx) = nic.split();
    let (mut app, mut model, mut next) = (App::default(), Model::default(), 0);
    for op in ops {
        match *op {
            Op::Send(count) => {
                for _ in 0..count {
                    let taken = send_or_lend(&mut tx, next).is_ok();
                    assert_eq!(taken, model.send(next, app.held.len(), &config));
                    next += u64::from(taken);
                }
            }
            Op::Flush => tx.flush(),
            Op::Room if mode == TxMode::Lossless => {
                let free = rx_bufs - model.ring.len() - app.held.len();
                assert_eq!(tx.room(), free.min(rx_ring - model.ring.len()));
            }
            Op::Room => assert_eq!(tx.room(), 64),
            Op::Poll(count) => {
                let before = app.got.len();
                app.poll(&mut rx, count);
                for n in &app.got[before..] {
                    assert_eq!(model.ring.pop_front(), Some(*n));
                }
            }
            Op::Release(count, back) => app.release(&mut rx, count, back),
        }
        check_balance(&tx, &rx);
        assert_eq!((tx.stats().sent, tx.nic_stats()), (model.sent, model.nic));
    }
    tx.flush();
    assert_eq!(rx.waiting(), model.ring.len());
    if mode == TxMode::Lossless {
        assert_eq!(app.got.len() + rx.waiting(), usize::try_from(next).expect("few"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn any_interleaving_counts_every_frame_once(
        wire in any::<bool>(),
        rx_bufs in 1..20_usize,
        rx_ring in 1..20_usize,
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        let mode = if wire { TxMode::Wire } else { TxMode::Lossless };
        interleave(mode, rx_bufs, rx_ring, &ops);
    }
}

/// Sends frames `0..frames` from one thread and checks them on another.
fn two_threads(config: SwNicConfig, frames: u64) -> (u64, NicStats) {
    let mut nic = SwNic::new(config).expect("small");
    let (mut tx, mut rx) = nic.split();
    let (done_tx, done) = std::sync::mpsc::channel::<()>();
    let sender = move || {
        let mut n = 0;
        while n < frames {
            let room = tx.room() as u64;
            for _ in 0..room.min(frames - n) {
                send_or_lend(&mut tx, n).expect("there is room");
                n += 1;
            }
            tx.flush();
            if room == 0 {
                thread::yield_now();
            }
        }
        assert!(tx.finish());
        drop(done_tx);
        tx.nic_stats()
    };
    let receiver = move || {
        let mut last = None;
        let mut burst = none::<16>();
        loop {
            let over = done.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            let count = rx.rx_burst(&mut burst);
            for packet in &burst[..count] {
                let n = read_frame(rx.bytes(packet));
                assert!(last < Some(n), "{n} after {last:?}");
                last = Some(n);
            }
            rx.release(&mut burst);
            if count == 0 {
                if over {
                    return rx.delivered();
                }
                thread::yield_now();
            }
        }
    };
    thread::scope(|scope| {
        let sender = scope.spawn(sender);
        let receiver = scope.spawn(receiver);
        let stats = sender.join().expect("the sender ends");
        (receiver.join().expect("the receiver ends"), stats)
    })
}

#[test]
fn two_threads_lossless() {
    let frames = if cfg!(miri) { 100 } else { 100_000 };
    assert_eq!(two_threads(SMALL, frames), (frames, NicStats::default()));
}

#[test]
fn two_threads_on_a_wire() {
    let frames = if cfg!(miri) { 100 } else { 100_000 };
    let (delivered, nic) = two_threads(SwNicConfig { mode: TxMode::Wire, ..SMALL }, frames);
    assert_eq!(delivered + nic.missed, frames);
    assert!(nic.no_buffer <= nic.missed);
}

/// The buffers of batches of four packets, each batch given back while the sender is two packets
/// into the next but one.
fn buffers_of_batches(reuse: Reuse, batches: u64) -> Vec<usize> {
    let pool = PacketPool::new(SMALL.rx_bufs, SMALL.rx_buf_size).expect("small");
    let mut nic = SwNic::over(SMALL, pool, reuse);
    let view = nic.packets();
    let (mut tx, mut rx) = nic.split();
    let (mut numbers, mut before) = (Vec::new(), none::<4>());
    for batch in 0..batches {
        let mut now = none::<4>();
        for half in 0..2 {
            assert!(tx.room() >= 2, "and what came back is collected");
            for i in 0..2 {
                send(&mut tx, 4 * batch + 2 * half + i).expect("room");
            }
            tx.flush();
            let from = usize::try_from(2 * half).expect("small");
            assert_eq!(rx.rx_burst(&mut now[from..from + 2]), 2);
            if half == 0 {
                rx.release(&mut before);
            }
        }
        numbers.extend(now.iter().filter_map(|packet| view.number(packet)));
        before = now;
        check_balance(&tx, &rx);
    }
    numbers
}

#[test]
fn buffers_that_a_device_reads_are_reused_oldest_first() {
    let in_a_row =
        |batch: &[usize]| batch.windows(2).all(|pair| pair[1] == (pair[0] + 1) % SMALL.rx_bufs);
    let oldest = buffers_of_batches(Reuse::Oldest, 50);
    assert_eq!(oldest.len(), 200);
    assert!(in_a_row(&oldest), "{oldest:?}");
    let newest = buffers_of_batches(Reuse::Newest, 50);
    assert!(!in_a_row(&newest), "{newest:?}");
    let used: HashSet<usize> = newest.into_iter().collect();
    assert!(used.len() < SMALL.rx_bufs, "a stack touches as few as it can: {used:?}");
}
