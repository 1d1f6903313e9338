//! Receive offload, over the kernel's loopback: what a sender hands to the kernel in one message
//! arrives as one message.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use super::*;
use crate::gro::{GroupStats, Groups};
use crate::recv::{RxSide, SocketRx};
use crate::sys;

/// Bytes of a datagram of the geometry.
const ROOM: usize = FRAME - HEADERS;

fn offloaded(buffers: u32, ring: usize) -> RxConfig {
    RxConfig { offload: true, ..rx(buffers, ring) }
}

fn open(buffers: u32, ring: usize) -> SocketNic {
    let nic = SocketNic::open(Some(&offloaded(buffers, ring)), None).expect("a free port");
    assert!(nic.offload_refused().is_none(), "{:?}", nic.offload_refused());
    nic
}

fn sender() -> UdpSocket {
    let socket = UdpSocket::bind(loopback(0)).expect("a free port");
    assert!(sys::segments(&socket), "a kernel that cuts");
    socket
}

fn port_of(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("bound").port()
}

/// Datagram `number`, of `len` bytes.
fn datagram(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 31 + at / 251).to_le_bytes()[0]).collect()
}

/// Sends `datagrams` as one message, all but the last of one length.
fn send_group(socket: &UdpSocket, to: SocketAddrV4, datagrams: &[Vec<u8>]) {
    let bytes = u16::try_from(datagrams[0].len()).expect("short");
    let pieces = datagrams.iter().map(Vec::as_slice);
    let sent = sys::send(socket, to, pieces, std::iter::once((datagrams.len(), bytes)));
    assert_eq!(sent.expect("the kernel takes it"), 1);
}

/// What came is what was sent: its length, and as many of its bytes as a buffer holds.
#[track_caller]
fn assert_came(rx: &SocketRx<'_>, packets: &[PacketDesc], sent: &[Vec<u8>]) {
    assert_eq!(packets.len(), sent.len());
    for (number, (packet, sent)) in packets.iter().zip(sent).enumerate() {
        assert_eq!(packet.len() as usize, HEADERS + sent.len(), "length of {number}");
        let bytes = rx.bytes(packet);
        let kept = sent.len().min(ROOM);
        assert!(bytes[HEADERS..] == sent[..kept], "bytes of {number}");
        let told = u16::from_be_bytes([bytes[16], bytes[17]]) as usize;
        assert_eq!(told, (28 + sent.len()).min(FRAME + 1 - 14), "IPv4 length of {number}");
    }
}

#[test]
fn a_group_becomes_packets_where_the_kernel_has_put_them() {
    let mut receiver = open(4_096, 4_096);
    let to = receiver.local().expect("it receives");
    let mut tx = SocketNic::open(
        None,
        Some(&TxConfig {
            local: loopback(0),
            remote: to,
            packet_bytes: FRAME,
            frame_bytes: FRAME,
            ring: 8_192,
        }),
    )
    .expect("a free port");
    let frames: Vec<_> = (0..1_000).map(|number| frame(number, FRAME)).collect();
    let mut rx = receiver.split().1.expect("receives");
    let mut packets = Vec::new();
    for part in frames.chunks(200) {
        send(&mut tx.split().0.expect("sends"), part);
        packets.append(&mut receive(&mut rx, part.len()));
    }
    assert_eq!(packets.len(), frames.len());
    for (packet, frame) in packets.iter().zip(&frames) {
        let bytes = rx.bytes(packet);
        assert_eq!(bytes[HEADERS..], frame[HEADERS..]);
        assert!(bytes.as_ptr().addr().is_multiple_of(64), "a buffer of the pool");
        let header = header::classify(bytes, FRAME, Verify::Udp).expect("a whole UDP frame");
        assert_eq!((header.dst_port, header.udp_len), (to.port(), 1_206));
    }
    assert_eq!(rx.free_buffers(), 4_096 - 1_000);
    rx.release(&mut packets);
    assert_eq!(rx.free_buffers(), 4_096);
    assert_eq!(rx.stats(), NicStats::default());
    let stats = receiver.group_stats().expect("with groups");
    assert_eq!((stats.datagrams, stats.copied), (1_000, 0), "{stats:?}");
    assert!((5..100).contains(&stats.groups), "{stats:?}");
}

#[test]
fn the_last_of_a_group_may_be_shorter() {
    let mut receiver = open(256, 4_096);
    let to = receiver.local().expect("it receives");
    let mut sent: Vec<_> = (0..9).map(|number| datagram(number, ROOM)).collect();
    sent.push(datagram(9, 500));
    send_group(&sender(), to, &sent);
    let mut rx = receiver.split().1.expect("receives");
    let packets = receive(&mut rx, sent.len());
    assert_came(&rx, &packets, &sent);
    let stats = receiver.group_stats();
    assert_eq!(stats, Some(GroupStats { groups: 1, datagrams: 10, copied: 0 }));
}

#[test]
fn groups_of_other_lengths_are_taken_apart() {
    for (len, last, count) in
        [(300, 300, 60), (300, 1, 60), (1, 1, 64), (ROOM + 4, 7, 20), (2_000, 1_999, 30)]
    {
        let mut receiver = open(256, 4_096);
        let to = receiver.local().expect("it receives");
        let lens = std::iter::repeat_n(len, count - 1).chain([last]);
        let sent: Vec<_> = lens.enumerate().map(|(number, len)| datagram(number, len)).collect();
        send_group(&sender(), to, &sent);
        let mut rx = receiver.split().1.expect("receives");
        let mut packets = receive(&mut rx, count);
        assert_came(&rx, &packets, &sent);
        rx.release(&mut packets);
        assert_eq!(rx.free_buffers(), 256);
        let count = count as u64;
        let stats = receiver.group_stats();
        assert_eq!(stats, Some(GroupStats { groups: 1, datagrams: count, copied: count }));
    }
}

#[test]
fn every_group_has_the_address_of_its_own_sender() {
    let mut receiver = open(1_024, 4_096);
    let to = receiver.local().expect("it receives");
    let senders = [sender(), sender(), sender()];
    for round in 0..6 {
        let group: Vec<_> = (0..20).map(|number| datagram(round * 20 + number, ROOM)).collect();
        send_group(&senders[round % 3], to, &group);
    }
    let mut rx = receiver.split().1.expect("receives");
    let packets = receive(&mut rx, 120);
    let sent: Vec<_> = (0..120).map(|number| datagram(number, ROOM)).collect();
    assert_came(&rx, &packets, &sent);
    for (number, packet) in packets.iter().enumerate() {
        let header = header::classify(rx.bytes(packet), FRAME, Verify::Udp).expect("UDP");
        assert_eq!(header.src_port, port_of(&senders[number / 20 % 3]), "packet {number}");
    }
    let stats = receiver.group_stats();
    assert_eq!(stats, Some(GroupStats { groups: 6, datagrams: 120, copied: 0 }));
}

#[test]
fn datagrams_that_come_alone_keep_their_lengths() {
    let mut receiver = open(2_048, 4_096);
    let to = receiver.local().expect("it receives");
    let socket = UdpSocket::bind(loopback(0)).expect("a free port");
    let lens = [ROOM, 1, 0, 300, ROOM + 4, 9_000, 60_000, ROOM, ROOM, 20];
    let sent: Vec<_> = lens.iter().enumerate().map(|(n, len)| datagram(n, *len)).collect();
    for datagram in &sent {
        assert_eq!(socket.send_to(datagram, to).expect("sent"), datagram.len());
    }
    let mut rx = receiver.split().1.expect("receives");
    let mut packets = receive(&mut rx, sent.len());
    assert_came(&rx, &packets, &sent);
    rx.release(&mut packets);
    assert_eq!(rx.free_buffers(), 2_048);
    assert_eq!(receiver.group_stats(), Some(GroupStats::default()));
}

/// A burst takes what it has room for, and the next one goes on in the group.
#[test]
fn a_burst_may_be_smaller_than_a_group() {
    let mut receiver = open(256, 4_096);
    let to = receiver.local().expect("it receives");
    let sent: Vec<_> = (0..50).map(|number| datagram(number, ROOM)).collect();
    send_group(&sender(), to, &sent);
    let mut rx = receiver.split().1.expect("receives");
    let mut packets = Vec::new();
    while packets.len() < 50 {
        let mut burst = [const { PacketDesc::EMPTY }; 7];
        let came = rx.rx_burst(&mut burst);
        assert_eq!(came, 7.min(50 - packets.len()));
        packets.extend(burst.into_iter().take(came));
    }
    assert_came(&rx, &packets, &sent);
}

/// With fewer buffers than a group has datagrams the others wait, and none is lost.
#[test]
fn what_has_no_buffer_waits() {
    for buffers in [1, 2, 5, 60] {
        let mut receiver = open(buffers, 4_096);
        let to = receiver.local().expect("it receives");
        let sent: Vec<_> = (0..100).map(|number| datagram(number, ROOM)).collect();
        let socket = sender();
        for group in sent.chunks(50) {
            send_group(&socket, to, group);
        }
        let mut rx = receiver.split().1.expect("receives");
        for part in sent.chunks(buffers as usize) {
            let mut packets = receive(&mut rx, part.len());
            assert_came(&rx, &packets, part);
            rx.release(&mut packets);
            assert_eq!(rx.free_buffers(), buffers as usize);
        }
        assert_eq!(rx.stats(), NicStats { no_buffer: rx.stats().no_buffer, ..NicStats::default() });
        let mut burst = [const { PacketDesc::EMPTY }; 8];
        assert_eq!(rx.rx_burst(&mut burst), 0);
    }
}

#[test]
fn without_a_buffer_nothing_is_handed_out() {
    let mut receiver = open(4, 4_096);
    let to = receiver.local().expect("it receives");
    let sent: Vec<_> = (0..10).map(|number| datagram(number, ROOM)).collect();
    send_group(&sender(), to, &sent);
    let mut rx = receiver.split().1.expect("receives");
    let mut packets = receive(&mut rx, 4);
    let mut burst = [const { PacketDesc::EMPTY }; 8];
    assert_eq!((packets.len(), rx.rx_burst(&mut burst), rx.free_buffers()), (4, 0, 0));
    assert!(rx.stats().no_buffer > 0);
    rx.release(&mut packets);
    let packets = receive(&mut rx, 4);
    assert_came(&rx, &packets, &sent[4..8]);
}

/// Groups and single datagrams of all lengths, from two senders, into a pool that is short at
/// times: each arrives as it was sent.
#[test]
fn any_mixture_arrives_as_it_was_sent() {
    let mut receiver = open(90, 8_192);
    let to = receiver.local().expect("it receives");
    let senders = [sender(), sender()];
    let mut rx = receiver.split().1.expect("receives");
    let mut seed = 88_172_645_463_325_252_u64;
    let mut draw = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).expect("small")
    };
    let (mut held, mut total) = (Vec::new(), 0);
    for round in 0..400 {
        let len = [ROOM, ROOM, ROOM, 1 + draw(ROOM), ROOM + draw(900)][draw(5)];
        let count = 1 + draw(64.min(65_000 / len));
        let last = 1 + draw(len);
        let lens = std::iter::repeat_n(len, count - 1).chain([last]);
        let sent: Vec<_> =
            lens.enumerate().map(|(number, len)| datagram(total + number, len)).collect();
        send_group(&senders[round % 2], to, &sent);
        let mut came = 0;
        while came < count {
            let mut packets = receive(&mut rx, (count - came).min(1 + draw(20)));
            assert_came(&rx, &packets, &sent[came..count.min(came + packets.len())]);
            came += packets.len();
            held.append(&mut packets);
            if held.len() > draw(26) {
                rx.release(&mut held);
                held.clear();
            }
        }
        total += count;
    }
    rx.release(&mut held);
    assert_eq!(rx.free_buffers(), 90);
    assert_eq!((rx.stats().missed, rx.stats().errors), (0, 0));
    let stats = receiver.group_stats().expect("with groups");
    assert!(stats.copied > 1_000 && stats.copied + 1_000 < stats.datagrams, "{stats:?}");
}

/// After many datagrams that came alone each message is received into one buffer: the first group
/// is copied out of what stands behind it, the next one is not.
#[test]
fn a_group_that_nobody_expects_is_copied() {
    let mut receiver = open(2_048, 4_096);
    let to = receiver.local().expect("it receives");
    let socket = sender();
    let group: Vec<_> = (0..50).map(|number| datagram(number, ROOM)).collect();
    let mut copied = Vec::new();
    for groups in [0, 3] {
        for number in 0..40 {
            let sent = [datagram(number, ROOM)];
            send_group(&socket, to, &sent);
            let mut rx = receiver.split().1.expect("receives");
            let mut packets = receive(&mut rx, 1);
            assert_came(&rx, &packets, &sent);
            rx.release(&mut packets);
        }
        for _ in 0..groups {
            send_group(&socket, to, &group);
            let mut rx = receiver.split().1.expect("receives");
            let mut packets = receive(&mut rx, 50);
            assert_came(&rx, &packets, &group);
            rx.release(&mut packets);
            assert_eq!(rx.free_buffers(), 2_048);
            copied.push(receiver.group_stats().expect("with groups").copied);
        }
    }
    assert_eq!(copied, [49, 49, 49]);
}

/// A kernel that made longer messages than we have room for would lose their ends: that is told.
#[test]
fn what_is_cut_off_a_message_is_an_error() {
    let mut side = RxSide::open(&offloaded(6, 4_096)).expect("a free port");
    // Three buffers stay free, so a message has three and two datagrams more.
    side.replace_groups(Groups::with(6, FRAME, 2 * ROOM + 100));
    let sent: Vec<_> = (0..10).map(|number| datagram(number, ROOM)).collect();
    send_group(&sender(), side.local(), &sent);
    let mut rx = SocketRx::new(&mut side);
    let packets = receive(&mut rx, 10);
    assert_came(&rx, &packets, &sent[..5]);
    assert_eq!(rx.stats(), NicStats { errors: 5, ..NicStats::default() });
    assert_eq!(rx.free_buffers(), 1);
}

/// A socket that is none of UDP stands for a kernel that does not know the option.
#[test]
fn a_kernel_that_refuses_hands_over_datagrams() {
    let listener = OwnedFd::from(TcpListener::bind(loopback(0)).expect("a free port"));
    let other = UdpSocket::from(listener);
    let refuse = |_: &UdpSocket| sys::coalesce(&other);
    let mut side = RxSide::open_with(&offloaded(256, 4_096), refuse).expect("it goes on");
    let error = side.refused().and_then(io::Error::raw_os_error);
    assert_eq!(error, Some(libc::ENOPROTOOPT));
    assert_eq!(side.group_stats(), None);
    let sent: Vec<_> = (0..20).map(|number| datagram(number, ROOM)).collect();
    send_group(&sender(), side.local(), &sent);
    let mut rx = SocketRx::new(&mut side);
    let packets = receive(&mut rx, 20);
    assert_came(&rx, &packets, &sent);
}

/// The kernel counts a group that it drops once: what it says is the least that was lost.
#[test]
fn what_the_kernel_drops_is_at_least_what_it_says() {
    let mut receiver = open(4_096, 100);
    let to = receiver.local().expect("it receives");
    let sent: Vec<_> = (0..2_000).map(|number| datagram(number, ROOM)).collect();
    let socket = sender();
    for group in sent.chunks(50) {
        send_group(&socket, to, group);
    }
    let mut rx = receiver.split().1.expect("receives");
    let came = receive(&mut rx, 2_000).len() as u64;
    let missed = rx.stats().missed;
    assert!(missed > 0 && came < 2_000, "{came} came, {missed} missed");
    assert!(came + missed <= 2_000, "{came} came, {missed} missed");
}
