//! What a packet of the documented geometry costs the thread that polls, with and without receive
//! offload, over the kernel's loopback: datagrams that wait in the socket are received until none
//! is left, as groups and as single ones. Nanoseconds of wall time per packet, in turns, the median
//! of the rounds; who sends is not timed.
//!
//! `cargo bench -p tensorwire-socket`

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Instant;

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::port::{RxQueue, TxQueue};
use tensorwire_socket::{HEADERS, RxConfig, SocketNic, SocketRx, TxConfig};

/// Bytes of a frame.
const FRAME: usize = 1_240;

/// Packets that wait at a time: fewer than the socket's buffer holds, in whole messages.
const PACKETS: usize = 2_000;

const ROUNDS: usize = 101;

fn loopback() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)
}

/// Receives until nothing is left; nanoseconds per packet.
fn drain(rx: &mut SocketRx<'_>) -> f64 {
    let began = Instant::now();
    let mut count = 0;
    loop {
        let mut burst = [const { PacketDesc::EMPTY }; MAX_POLL];
        let came = rx.rx_burst(&mut burst);
        rx.release(&mut burst[..came]);
        count += came;
        if came == 0 {
            break;
        }
    }
    let took = began.elapsed().as_secs_f64();
    assert_eq!(count, PACKETS, "the socket's buffer holds them (as root, or with a larger limit)");
    took * 1e9 / PACKETS as f64
}

fn send_groups(remote: SocketAddrV4) -> Result<(), Box<dyn Error>> {
    let (packet_bytes, frame_bytes) = (FRAME, FRAME);
    let config = TxConfig { local: loopback(), remote, packet_bytes, frame_bytes, ring: 8_192 };
    let mut sender = SocketNic::open(None, Some(&config))?;
    let mut tx = sender.split().0.ok_or("sends")?;
    for _ in 0..PACKETS {
        while tx.room() == 0 {
            tx.flush();
        }
        tx.send(FRAME, |out| out.fill(7))?;
    }
    while !tx.finish() {}
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let open = |offload| {
        let config = RxConfig {
            local: loopback(),
            buffers: 8_192,
            frame_bytes: FRAME,
            ring: 8_192,
            offload,
        };
        SocketNic::open(Some(&config), None)
    };
    // One for each kind of stream: the receiver goes by what has come before.
    let mut nics = [open(false)?, open(true)?, open(false)?, open(true)?];
    let alone = UdpSocket::bind(loopback())?;
    let mut figures = [const { Vec::new() }; 4];
    for round in 0..ROUNDS {
        for turn in 0..4 {
            let at = if round % 2 == 0 { turn } else { 3 - turn };
            let nic = &mut nics[at];
            let remote = nic.local().ok_or("not bound")?;
            let mut rx = nic.split().1.ok_or("receives")?;
            if at < 2 {
                send_groups(remote)?;
            } else {
                for _ in 0..PACKETS {
                    let _ = alone.send_to(&[7; FRAME - HEADERS], remote)?;
                }
            }
            figures[at].push(drain(&mut rx));
        }
    }
    let [groups, offloaded, single, single_offloaded] = figures.map(median);
    println!("sent in groups: {groups:.0} ns a packet, with offload {offloaded:.0}");
    println!("sent one by one: {single:.0} ns a packet, with offload {single_offloaded:.0}");
    Ok(())
}
