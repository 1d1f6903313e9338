use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::header::{self, HeaderSpec, Verify};
use tensorwire_core::port::{PacketMemory, RxQueue, SendError, TxQueue};

use super::{HEADERS, RxConfig, STAGE, SocketNic, TxConfig};

mod gro;

const FRAME: usize = 1_240;

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn rx(buffers: u32, ring: usize) -> RxConfig {
    RxConfig { local: loopback(0), buffers, frame_bytes: FRAME, ring, offload: false }
}

/// A NIC whose two ends are joined by the kernel's loopback.
fn joined(buffers: u32, ring: usize) -> (SocketNic, SocketNic) {
    let receiver = SocketNic::open(Some(&rx(buffers, ring)), None).expect("a free port");
    let remote = receiver.local().expect("it receives");
    let tx = TxConfig {
        local: loopback(0),
        remote,
        packet_bytes: FRAME,
        frame_bytes: 2_048,
        ring: 8_192,
    };
    (receiver, SocketNic::open(None, Some(&tx)).expect("a free port"))
}

/// Frame `number`, of `len` bytes, as a capture holds it.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let spec = HeaderSpec {
        eth_src: [2; 6],
        eth_dst: [4; 6],
        ip_src: [1; 4],
        ip_dst: [2; 4],
        udp_src: 4_096,
        udp_dst: 4_096,
    };
    let byte = |at: u32| (at * 7 + number * 31).to_le_bytes()[0];
    let mut frame: Vec<u8> = (0..).map(byte).take(len).collect();
    header::build(&spec, &mut frame).expect("long enough");
    frame
}

fn send(tx: &mut impl TxQueue, frames: &[Vec<u8>]) {
    for frame in frames {
        while tx.room() == 0 {
            tx.flush();
        }
        tx.send(frame.len(), |out| out.copy_from_slice(frame)).expect("there is room");
    }
    while !tx.finish() {}
}

/// Polls until so many packets have come, or none for a while.
fn receive(rx: &mut impl RxQueue, count: usize) -> Vec<PacketDesc> {
    let mut packets = Vec::new();
    for _ in 0..1_000_000 {
        let mut burst = [const { PacketDesc::EMPTY }; 256];
        let came = rx.rx_burst(&mut burst);
        packets.extend(burst.into_iter().take(came));
        if packets.len() >= count {
            break;
        }
    }
    packets
}

#[test]
fn what_is_sent_arrives_in_order_behind_headers_that_are_right() {
    let (mut receiver, mut sender) = joined(4_096, 4_096);
    let local = receiver.local().expect("it receives");
    let frames: Vec<_> = (0..1_000).map(|number| frame(number, FRAME)).collect();
    let (mut tx, mut rx) =
        (sender.split().0.expect("sends"), receiver.split().1.expect("receives"));
    let mut packets = Vec::new();
    // In parts, so that the kernel's buffer holds each.
    for part in frames.chunks(200) {
        send(&mut tx, part);
        packets.append(&mut receive(&mut rx, part.len()));
    }
    assert_eq!(packets.len(), frames.len());
    for (packet, frame) in packets.iter().zip(&frames) {
        let bytes = rx.bytes(packet);
        assert_eq!(packet.len() as usize, FRAME);
        assert_eq!(bytes[HEADERS..], frame[HEADERS..], "what lies behind the UDP header");
        let header = header::classify(bytes, FRAME, Verify::Udp).expect("a whole UDP frame");
        assert_eq!(header.dst_port, local.port());
        assert_eq!((header.ip_total_len, header.udp_len), (1_226, 1_206));
        assert_eq!(bytes[26..34], [127, 0, 0, 1, 127, 0, 0, 1], "both addresses");
    }
    assert_eq!(rx.free_buffers(), 4_096 - 1_000);
    rx.release(&mut packets);
    assert_eq!(rx.free_buffers(), 4_096);
    assert_eq!(rx.stats(), NicStats::default());
    assert_eq!(tx.stats().sent, 1_000);
}

#[test]
fn frames_of_other_lengths_keep_them() {
    let (mut receiver, mut sender) = joined(64, 4_096);
    let lens = [FRAME, 300, 300, FRAME, FRAME + 4, HEADERS + 1, 2_000];
    let frames: Vec<_> = lens.iter().zip(0..).map(|(len, number)| frame(number, *len)).collect();
    send(&mut sender.split().0.expect("sends"), &frames);
    let mut rx = receiver.split().1.expect("receives");
    let packets = receive(&mut rx, lens.len());
    let came: Vec<_> = packets.iter().map(|packet| packet.len() as usize).collect();
    assert_eq!(came, lens);
    for (packet, frame) in packets.iter().zip(&frames) {
        let kept = frame.len().min(FRAME);
        assert_eq!(rx.bytes(packet)[HEADERS..], frame[HEADERS..kept]);
    }
}

#[test]
fn what_the_kernel_drops_is_missed_to_the_last_one() {
    // A ring that holds a few, and nobody who polls while the frames are sent.
    let (mut receiver, mut sender) = joined(4_096, 100);
    let frames: Vec<_> = (0..2_000).map(|number| frame(number, FRAME)).collect();
    send(&mut sender.split().0.expect("sends"), &frames);
    let mut rx = receiver.split().1.expect("receives");
    let packets = receive(&mut rx, frames.len());
    let missed = rx.stats().missed;
    assert!(packets.len() < 1_000, "{} were kept", packets.len());
    assert_eq!(packets.len() as u64 + missed, 2_000, "{missed} missed");
}

#[test]
fn without_a_free_buffer_packets_wait_in_the_kernel() {
    let (mut receiver, mut sender) = joined(4, 4_096);
    let frames: Vec<_> = (0..10).map(|number| frame(number, FRAME)).collect();
    send(&mut sender.split().0.expect("sends"), &frames);
    let mut rx = receiver.split().1.expect("receives");
    let mut packets = receive(&mut rx, 4);
    let mut burst = [const { PacketDesc::EMPTY }; 8];
    assert_eq!(rx.rx_burst(&mut burst), 0);
    assert!(rx.stats().no_buffer > 0);
    rx.release(&mut packets);
    assert_eq!(receive(&mut rx, 4).len(), 4);
    assert_eq!(rx.stats().missed, 0);
}

#[test]
fn a_packet_of_another_pool_has_no_bytes_and_no_way_back() {
    let (mut receiver, mut sender) = joined(4, 4_096);
    let mut other = SocketNic::open(Some(&rx(4, 16)), None).expect("a free port");
    send(&mut sender.split().0.expect("sends"), &[frame(0, FRAME)]);
    let mut rx = receiver.split().1.expect("receives");
    let mut packets = receive(&mut rx, 1);
    let mut foreign = other.split().1.expect("receives");
    assert_eq!(foreign.bytes(&packets[0]), [0u8; 0]);
    foreign.release(&mut packets);
    assert_eq!(foreign.free_buffers(), 4);
}

#[test]
fn a_frame_that_does_not_fit_and_a_full_stage_are_told() {
    let (_receiver, mut sender) = joined(4, 16);
    let mut tx = sender.split().0.expect("sends");
    let refused = tx.send(2_049, |_| panic!("nothing is filled"));
    assert_eq!(refused, Err(SendError::TooLong { len: 2_049, room: 2_048 }));
    for _ in 0..STAGE {
        tx.send(FRAME, |out| out.fill(0)).expect("room");
    }
    assert_eq!(tx.send(FRAME, |out| out.fill(0)), Err(SendError::Full));
    assert_eq!(tx.room(), STAGE, "the kernel has taken them");
}

#[test]
fn addresses_that_cannot_be_bound_and_narrow_ways_are_refused() {
    let taken = UdpSocket::bind(loopback(0)).expect("a free port").local_addr().expect("bound");
    let held = UdpSocket::bind(taken).expect("still free");
    let config = RxConfig { local: loopback(taken.port()), ..rx(4, 16) };
    let error = SocketNic::open(Some(&config), None).expect_err("in use").to_string();
    assert!(error.starts_with(&format!("bind {taken}: ")), "{error}");
    drop(held);
    let tx = TxConfig {
        local: loopback(0),
        remote: loopback(9_999),
        packet_bytes: 80_000,
        frame_bytes: 80_000,
        ring: 16,
    };
    let error = SocketNic::open(None, Some(&tx)).expect_err("wider than the way").to_string();
    assert!(error.contains("(MTU)") && error.contains("79986"), "{error}");
}
