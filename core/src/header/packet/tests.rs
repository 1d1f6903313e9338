use proptest::prelude::{any, prop};
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::{Accepted, Malformed, PacketCheck, Refused};
use crate::counters::PacketCounters;
use crate::flow::{FlowMatch, FlowTable, PortRange};
use crate::geometry::{Geometry, GeometrySpec};
use crate::header::tests::SPEC;
use crate::header::{HeaderSpec, Verify, build, set_sequence};

/// A geometry of small frames: 46 bytes, of which 4 are payload.
const SMALL: GeometrySpec = GeometrySpec {
    channels: 1,
    height: 4,
    width: 4,
    packets_per_image: 4,
    images_per_batch: 2,
    payload_byte_offset: 42,
    payload_bytes: 4,
    seq_bit_offset: 128,
    seq_bit_width: 8,
    ..GeometrySpec::DOCUMENTED
};

fn check_of(spec: &GeometrySpec, verify: Verify, accept_trailer: bool) -> PacketCheck {
    let geometry = Geometry::new(spec).expect("a geometry");
    let port = Some(PortRange::single(4096));
    let mut flows = FlowTable::new();
    flows
        .push(&FlowMatch { udp_src: port, udp_dst: port, ..FlowMatch::any(201) })
        .expect("room for one flow");
    PacketCheck::new(&geometry, &flows, verify, accept_trailer)
}

/// The name is that of the counter that counts it, and what is shown.
#[test]
fn a_reason_is_shown_by_the_name_of_its_counter() {
    for (refused, name) in [
        (Refused::Short, "short"),
        (Refused::Long, "long"),
        (Refused::OtherFlow, "other_flow"),
        (Refused::Malformed(Malformed::Vlan), "malformed.vlan"),
        (Refused::Malformed(Malformed::NotUdp), "malformed.not_udp"),
    ] {
        assert_eq!((refused.name(), refused.to_string().as_str()), (name, name));
    }
}

fn mini(accept_trailer: bool) -> PacketCheck {
    check_of(&GeometrySpec::MINI, Verify::None, accept_trailer)
}

/// A packet of MINI, 256 bytes, with sequence 77.
fn packet() -> Vec<u8> {
    let mut frame: Vec<u8> = (0..=255).collect();
    build(&SPEC, &mut frame).expect("a frame that fits");
    let field = Geometry::new(&GeometrySpec::MINI).expect("a geometry").seq_field();
    assert!(set_sequence(&mut frame, field, 77));
    frame
}

fn judge(check: &PacketCheck, frame: &[u8]) -> Result<Accepted, Refused> {
    check.check(frame, len(frame), 0)
}

/// The length of a frame, as a descriptor says it.
fn len(frame: &[u8]) -> u32 {
    u32::try_from(frame.len()).expect("a short frame")
}

const OURS: Accepted = Accepted { flow: 201, wire: 77, trimmed: false };

#[test]
fn a_packet_of_ours() {
    assert_eq!(judge(&mini(false), &packet()), Ok(OURS));
    let strict = check_of(&GeometrySpec::MINI, Verify::Udp, false);
    assert_eq!(judge(&strict, &packet()), Ok(OURS));
}

#[test]
fn h01_vlan_tag_is_malformed_also_at_the_right_length() {
    let mut frame = packet();
    frame.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    let vlan = Err(Refused::Malformed(Malformed::Vlan));
    assert_eq!(judge(&mini(false), &frame), vlan);
    assert_eq!(judge(&mini(true), &frame), vlan, "never a payload that is shifted by 4");
    frame.truncate(256);
    assert_eq!(judge(&mini(false), &frame), vlan);
}

#[test]
fn h06_too_long_or_too_short() {
    let check = mini(false);
    for len in [255, 64, 63, 14, 13, 0] {
        assert_eq!(judge(&check, &packet()[..len]), Err(Refused::Short), "{len}");
    }
    let mut frame = packet();
    frame.push(0);
    assert_eq!(judge(&check, &frame), Err(Refused::Long));
    // The next good one is good.
    assert_eq!(judge(&check, &packet()), Ok(OURS));
}

#[test]
fn p14_other_traffic_in_between() {
    let check = mini(false);
    let ether = |ethertype: [u8; 2], len: usize| {
        let mut frame = packet();
        frame[12..14].copy_from_slice(&ethertype);
        frame.truncate(len);
        frame
    };
    let other_flow = Err(Refused::OtherFlow);
    assert_eq!(judge(&check, &ether([0x08, 0x06], 60)), other_flow, "ARP");
    assert_eq!(judge(&check, &ether([0x88, 0xcc], 200)), other_flow, "LLDP");
    assert_eq!(judge(&check, &ether([0x86, 0xdd], 86)), other_flow, "IPv6 ND");
    assert_eq!(judge(&check, &ether([0x08, 0x06], 256)), other_flow, "ARP of our length");
    for len in [60, 256, 300] {
        let mut frame = vec![0; len];
        build(&HeaderSpec { udp_dst: 53, ..SPEC }, &mut frame).expect("a frame that fits");
        assert_eq!(judge(&check, &frame), other_flow, "another port, {len} bytes");
    }
    let mut tcp = packet();
    tcp[23] = 6;
    assert_eq!(judge(&check, &tcp), Err(Refused::Malformed(Malformed::NotUdp)));
}

#[test]
fn p15_trailer_or_padding() {
    let mut frame = packet();
    frame.extend([0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(judge(&mini(false), &frame), Err(Refused::Long));
    let trimmed = Accepted { trimmed: true, ..OURS };
    assert_eq!(judge(&mini(true), &frame), Ok(trimmed));
    let strict = check_of(&GeometrySpec::MINI, Verify::Udp, true);
    assert_eq!(judge(&strict, &frame), Ok(trimmed), "UDP does not cover the trailer");
    assert_eq!(judge(&mini(true), &packet()[..255]), Err(Refused::Short));

    // A frame of 46 bytes that Ethernet padded to 60.
    let mut frame = vec![7; 46];
    build(&SPEC, &mut frame).expect("a frame that fits");
    let field = Geometry::new(&SMALL).expect("a geometry").seq_field();
    assert!(set_sequence(&mut frame, field, 5));
    frame.resize(60, 0);
    assert_eq!(judge(&check_of(&SMALL, Verify::Udp, false), &frame), Err(Refused::Long));
    let padded = judge(&check_of(&SMALL, Verify::Udp, true), &frame);
    assert_eq!(padded, Ok(Accepted { flow: 201, wire: 5, trimmed: true }));
}

#[test]
fn a_steered_packet_skips_the_flow_match_and_nothing_else() {
    let check = mini(false);
    let mut frame = packet();
    frame[36..38].copy_from_slice(&53u16.to_be_bytes());
    assert_eq!(judge(&check, &frame), Err(Refused::OtherFlow));
    let steered = |frame: &[u8], tag| check.check(frame, len(frame), tag);
    assert_eq!(steered(&frame, 1), Ok(Accepted { flow: 0, ..OURS }), "flow 0 is legal");
    assert_eq!(steered(&frame, 8), Ok(Accepted { flow: 7, ..OURS }));
    assert_eq!(steered(&frame[..255], 8), Err(Refused::Short));
    frame[20] = 0x20;
    assert_eq!(steered(&frame, 8), Err(Refused::Malformed(Malformed::Fragment)));
    frame[12] = 0x86;
    assert_eq!(steered(&frame, 8), Err(Refused::OtherFlow));
}

#[test]
fn a_checksum_is_asked_for_after_flow_and_length() {
    let strict = check_of(&GeometrySpec::MINI, Verify::Udp, false);
    let mut frame = packet();
    frame[200] ^= 1;
    assert_eq!(judge(&strict, &frame), Err(Refused::Malformed(Malformed::Checksum)));
    assert_eq!(judge(&strict, &frame[..255]), Err(Refused::Short));
    frame[37] = 1;
    assert_eq!(judge(&strict, &frame), Err(Refused::OtherFlow));
}

#[test]
fn the_headers_are_enough_where_the_rest_is_in_device_memory() {
    for verify in [Verify::None, Verify::Ip, Verify::Udp] {
        let check = check_of(&GeometrySpec::MINI, verify, false);
        assert_eq!(check.check(&packet()[..64], 256, 0), Ok(OURS), "{verify:?}");
    }
    // Too little of it: the sequence cannot be read.
    let spec = GeometrySpec { seq_bit_offset: 500, ..GeometrySpec::MINI };
    let check = check_of(&spec, Verify::None, false);
    assert_eq!(check.check(&packet()[..63], 256, 0), Err(Refused::Short));
    // More than the frame: what lies behind it is not looked at.
    let mut stale = packet();
    stale[36] = 0;
    assert_eq!(mini(false).check(&stale, 42, 0), Err(Refused::OtherFlow));
    assert_eq!(mini(false).check(&stale, 41, 0), Err(Refused::Short));
}

/// All causes; the match makes the compiler ask for a new one here.
fn all_causes() -> [Refused; 8] {
    let named = |refused: Refused| match refused {
        Refused::Short | Refused::Long | Refused::OtherFlow => refused,
        Refused::Malformed(
            Malformed::Vlan
            | Malformed::Fragment
            | Malformed::Ihl
            | Malformed::Checksum
            | Malformed::NotUdp,
        ) => refused,
    };
    [
        Refused::Short,
        Refused::Long,
        Refused::OtherFlow,
        Refused::Malformed(Malformed::Vlan),
        Refused::Malformed(Malformed::Fragment),
        Refused::Malformed(Malformed::Ihl),
        Refused::Malformed(Malformed::Checksum),
        Refused::Malformed(Malformed::NotUdp),
    ]
    .map(named)
}

#[test]
fn each_cause_has_a_counter_of_its_own() {
    let mut all = PacketCounters::default();
    for cause in all_causes() {
        let mut packets = PacketCounters { offered: 1, ..PacketCounters::default() };
        cause.count(&mut packets);
        assert!(packets.balanced(), "{cause}");
        cause.count(&mut all);
    }
    assert_eq!((all.short, all.long, all.other_flow), (1, 1, 1));
    let malformed = all.malformed;
    assert_eq!((malformed.vlan, malformed.fragment, malformed.ihl), (1, 1, 1));
    assert_eq!((malformed.checksum, malformed.not_udp), (1, 1));
}

proptest! {
    #[test]
    fn any_bytes_have_exactly_one_outcome(
        front in 0..=42usize,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        claimed in prop::option::of(any::<u32>()),
        nic_flow in prop::option::of(any::<u32>()),
        accept_trailer in any::<bool>(),
        verify in 0..3usize,
    ) {
        // The front of a good packet, then anything: so that every check is reached.
        let mut bytes = bytes;
        for (to, from) in bytes.iter_mut().zip(&packet()[..front]) {
            *to = *from;
        }
        let verify = [Verify::None, Verify::Ip, Verify::Udp][verify];
        let check = check_of(&GeometrySpec::MINI, verify, accept_trailer);
        let len = claimed.unwrap_or(len(&bytes));
        let mut packets = PacketCounters { offered: 1, ..PacketCounters::default() };
        match check.check(&bytes, len, nic_flow.unwrap_or(0)) {
            Ok(packet) => {
                packets.placed += 1;
                prop_assert!(len >= 256 && packet.wire < 256);
                prop_assert_eq!(packet.trimmed, len > 256);
                prop_assert!(accept_trailer || !packet.trimmed);
            }
            Err(cause) => {
                cause.count(&mut packets);
                prop_assert!(cause != Refused::Long || (len > 256 && !accept_trailer));
            }
        }
        prop_assert!(packets.balanced());
    }
}
