//! What a port writes into the headers of frames, and takes off: where no device does it, software.

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::flow::FlowMatch;
use tensorwire_core::header::{HeaderSpec, Verify, build, classify};
use tensorwire_core::outer::{Outer, Tag, Tunnel, TunnelKind};
use tensorwire_core::port::{PacketMemory, RxQueue, TxQueue};
use tensorwire_dpdk::{DpdkNic, NicConfig};

use crate::support::{FRAME, Folder, alone, cores, memif_nic};

const SPEC: HeaderSpec = HeaderSpec {
    eth_src: [0; 6],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [10, 0, 0, 1],
    ip_dst: [10, 0, 0, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

/// Sends one frame to each port of UDP, and hands over what arrives, in order; the address of the
/// sending port besides.
fn through(config: &NicConfig, ports: &[u16], mut seen: impl FnMut(&[u8], usize)) -> [u8; 6] {
    let mut nic = DpdkNic::open(config, cores(), None).expect("ports");
    nic.start().expect("they start");
    let mac = nic.ports().last().and_then(|port| port.info()).expect("a port").mac;
    let (tx, rx) = nic.split();
    let (mut tx, (mut rx, _)) = (tx.expect("a sender"), rx.expect("a receiver"));
    let mut burst = [const { PacketDesc::EMPTY }; 64];
    let (mut sent, mut got, mut turns) = (0, 0, 0u64);
    while got < ports.len() {
        if let Some(&udp_dst) = ports.get(sent) {
            let fill = |frame: &mut [u8]| {
                frame.fill(7);
                build(&HeaderSpec { udp_dst, ..SPEC }, frame).expect("room");
            };
            sent += usize::from(tx.send(FRAME, fill).is_ok());
        }
        tx.flush();
        let n = rx.rx_burst(&mut burst);
        for packet in &burst[..n] {
            seen(rx.bytes(packet), packet.len() as usize);
        }
        rx.release(&mut burst[..n]);
        got += n;
        turns += 1;
        assert!(turns < 200_000_000, "{got} of {} arrived", ports.len());
    }
    mac
}

/// `tx_eth_src`: the frame of a capture has none.
#[test]
fn the_ports_own_address_is_the_source() {
    alone("headers::the_ports_own_address_is_the_source", || {
        let folder = Folder::new();
        let mut config = memif_nic(&folder);
        let mut sources = Vec::new();
        let source = |bytes: &[u8]| bytes[6..12].to_vec();
        config.tx.as_mut().expect("a sender").eth_src = true;
        let mac = through(&config, &[4096; 3], |bytes, _| sources.push(source(bytes)));
        assert_ne!(mac, [0; 6]);
        assert_eq!(sources, [mac; 3]);
    });
}

const TAG: Outer = Outer::Vlan(Tag { ethertype: 0x8100, control: 100 });

const TUNNEL: Outer = Outer::Tunnel(Tunnel {
    kind: TunnelKind::Vxlan { vni: Some(7), udp_src: None, udp_dst: 4789 },
    eth_src: None,
    eth_dst: None,
    ip_src: None,
    ip_dst: None,
});

/// Frames to port 1 get a tunnel and a tag, those to port 2 a tag, the rest nothing; `taken` comes
/// off. The lengths of what arrives, and its ports where it is plain UDP with right checksums.
fn three_flows(taken: &[Outer]) -> Vec<(usize, Option<u16>)> {
    let folder = Folder::new();
    let mut config = memif_nic(&folder);
    let to = |port: u16| FlowMatch { udp_dst: Some(port.into()), ..FlowMatch::any(0) };
    let tx = config.tx.as_mut().expect("a sender");
    tx.flows = vec![(to(1), vec![TUNNEL, TAG]), (to(2), vec![TAG])];
    tx.buffers.room_bytes = FRAME + 54;
    let rx = config.rx.as_mut().expect("a receiver");
    rx.flows.flows = vec![FlowMatch::any(5)];
    rx.flows.outer = taken.to_vec();
    rx.buffers.frame_bytes = FRAME + 54;
    let mut seen = Vec::new();
    through(&config, &[1, 2, 3], |bytes, len| {
        assert_eq!(bytes.len(), len);
        let header = classify(bytes, len, Verify::Udp).ok();
        seen.push((len, header.map(|header| header.dst_port)));
    });
    seen
}

#[test]
fn each_flow_gets_its_own_headers() {
    alone("headers::each_flow_gets_its_own_headers", || {
        assert_eq!(three_flows(&[]), [(1294, None), (1244, None), (1240, Some(3))]);
    });
}

#[test]
fn headers_come_off_as_far_as_they_are_there() {
    alone("headers::headers_come_off_as_far_as_they_are_there", || {
        let plain = [(1240, Some(1)), (1240, Some(2)), (1240, Some(3))];
        assert_eq!(three_flows(&[TAG, TUNNEL]), plain);
    });
}

#[test]
fn what_is_inside_stays() {
    alone("headers::what_is_inside_stays", || {
        // A frame in a tunnel is one of UDP, to the port of the tunnel.
        let inside = [(1290, Some(4789)), (1240, Some(2)), (1240, Some(3))];
        assert_eq!(three_flows(&[TAG]), inside);
    });
}
