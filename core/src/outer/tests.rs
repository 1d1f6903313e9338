use super::*;
use crate::header::{HeaderSpec, Verify, build, classify};

const SPEC: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [10, 0, 0, 1],
    ip_dst: [10, 0, 0, 2],
    udp_src: 4096,
    udp_dst: 4097,
};

const PLAIN: Tunnel = Tunnel {
    kind: TunnelKind::Gre { protocol: BRIDGED },
    eth_src: None,
    eth_dst: None,
    ip_src: None,
    ip_dst: None,
};

const VXLAN: TunnelKind = TunnelKind::Vxlan { vni: Some(0x12_3456), udp_src: None, udp_dst: 4789 };
const NVGRE: TunnelKind = TunnelKind::Nvgre { tni: Some(0x65_4321), flow_id: 9 };

fn all() -> [Outer; 5] {
    let tunnel = |kind| Outer::Tunnel(Tunnel { kind, ..PLAIN });
    [
        Outer::Vlan(Tag { ethertype: 0x8100, control: 0xa064 }),
        tunnel(VXLAN),
        tunnel(TunnelKind::Gre { protocol: BRIDGED }),
        tunnel(TunnelKind::Gre { protocol: ROUTED }),
        tunnel(NVGRE),
    ]
}

/// A frame of 100 bytes behind room for `outer`.
fn frame(outer: &Outer) -> ([u8; 200], usize) {
    let mut bytes = [0xee; 200];
    let end = outer.grows() + 100;
    build(&SPEC, &mut bytes[outer.grows()..end]).expect("room");
    (bytes, end)
}

#[test]
fn what_is_put_is_taken_off_again() {
    for outer in all() {
        let (mut bytes, end) = frame(&outer);
        let (inner, _) = frame(&outer);
        let frame = &mut bytes[..end];
        assert!(outer.put(frame), "{outer:?}");
        assert!(classify(frame, end, Verify::None).is_err() || matches!(outer, Outer::Tunnel(_)));
        assert_eq!(outer.take_off(frame), Some(outer.grows()), "{outer:?}");
        // Also the addresses: none of the tunnels had others.
        assert_eq!(frame[outer.grows()..], inner[outer.grows()..end], "{outer:?}");
        assert_eq!(outer.take_off(&mut frame[outer.grows()..]), None, "only once");
    }
}

/// Byte by byte, as the standards draw them.
#[test]
fn headers_are_those_of_the_standards() {
    let sizes = all().map(|outer| (outer.grows(), outer.header_bytes()));
    assert_eq!(sizes, [(4, 16), (50, 50), (38, 38), (24, 38), (42, 42)]);
    let put = |outer: Outer| {
        let (mut bytes, end) = frame(&outer);
        assert!(outer.put(&mut bytes[..end]));
        bytes
    };
    let [vlan, vxlan, bridged, routed, nvgre] = all().map(put);
    assert_eq!(vlan[..18], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0xa0, 0x64, 8, 0]);
    // UDP: source, destination, length without Ethernet and IPv4, no checksum; then the number.
    assert_eq!(vxlan[34..42], [0xc0, 0, 0x12, 0xb5, 0, 116, 0, 0]);
    assert_eq!(vxlan[42..50], [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
    assert_eq!((vxlan[23], bridged[23]), (17, 47));
    assert_eq!(bridged[34..38], [0, 0, 0x65, 0x58]);
    assert_eq!(routed[34..38], [0, 0, 8, 0]);
    // The inner IPv4 header follows at once.
    assert_eq!((routed[38], &routed[50..54]), (0x45, &[10, 0, 0, 1][..]));
    assert_eq!(nvgre[34..42], [0x20, 0, 0x65, 0x58, 0x65, 0x43, 0x21, 9]);
    // The outer IPv4 header: its length, and a checksum that fits.
    let outer_len = u16::from_be_bytes([vxlan[16], vxlan[17]]);
    assert_eq!(outer_len, 136);
    let header = classify(&vxlan[..150], 150, Verify::Udp).expect("a UDP frame");
    assert_eq!((header.src_port, header.dst_port, header.udp_len), (0xc000, 4789, 116));
}

#[test]
fn given_addresses_are_written_and_asked_for() {
    let outer = Outer::Tunnel(Tunnel {
        kind: VXLAN,
        eth_src: Some([2, 9, 9, 9, 9, 1]),
        eth_dst: Some([2, 9, 9, 9, 9, 2]),
        ip_src: Some([192, 0, 2, 1]),
        ip_dst: Some([192, 0, 2, 2]),
    });
    let (mut bytes, end) = frame(&outer);
    assert!(outer.put(&mut bytes[..end]));
    assert_eq!(bytes[..12], [2, 9, 9, 9, 9, 2, 2, 9, 9, 9, 9, 1]);
    assert_eq!(bytes[26..34], [192, 0, 2, 1, 192, 0, 2, 2]);
    // One byte of what is asked for is another: it is not this tunnel.
    for at in [0, 11, 12, 14, 20, 23, 26, 33, 37, 42, 46, 48] {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(outer.take_off(&mut other[..end]), None, "byte {at}");
        other[at] ^= 1;
        assert_eq!(other, bytes);
    }
    assert_eq!(outer.take_off(&mut bytes[..end]), Some(50));
}

#[test]
fn numbers_that_are_absent_are_any() {
    let any = Outer::Tunnel(Tunnel {
        kind: TunnelKind::Vxlan { vni: None, udp_src: None, udp_dst: 4789 },
        ..PLAIN
    });
    let (mut bytes, end) = frame(&all()[1]);
    assert!(all()[1].put(&mut bytes[..end]));
    assert_eq!(any.take_off(&mut bytes[..end]), Some(50));
    let any = Outer::Tunnel(Tunnel { kind: TunnelKind::Nvgre { tni: None, flow_id: 0 }, ..PLAIN });
    let (mut bytes, end) = frame(&all()[4]);
    assert!(all()[4].put(&mut bytes[..end]));
    assert_eq!(any.take_off(&mut bytes[..end]), Some(42));
    // One GRE is not the other, and neither is NVGRE.
    for (at, other) in [(2, 3), (3, 2), (2, 4), (4, 2)] {
        let (mut bytes, end) = frame(&all()[at]);
        assert!(all()[at].put(&mut bytes[..end]));
        assert_eq!(all()[other].take_off(&mut bytes[..end]), None, "{at} is {other}");
    }
}

#[test]
fn frames_of_any_length_are_safe() {
    for outer in all() {
        let (bytes, end) = frame(&outer);
        let mut whole = bytes;
        assert!(outer.put(&mut whole[..end]));
        for len in 0..end {
            let mut cut = whole;
            let off = outer.take_off(&mut cut[..len]);
            assert!(off.is_none_or(|off| off <= len), "{outer:?} of {len} bytes");
            let mut short = bytes;
            let put = outer.put(&mut short[..len]);
            assert!(!put || len >= outer.header_bytes(), "{outer:?} of {len} bytes");
        }
    }
    // No frame of IPv4 to take addresses from.
    let mut nothing = [0; 200];
    assert!(!all()[1].put(&mut nothing));
    assert_eq!(nothing, [0; 200]);
}
