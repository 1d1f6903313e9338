//! Any bytes as a frame: exactly one cause, the same one from both entries, and no panic.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use tensorwire_core::counters::PacketCounters;
use tensorwire_core::flow::{FlowMatch, FlowTable, PortRange};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::header::{
    Accepted, HeaderSpec, Malformed, PacketCheck, Refused, Reject, Verify, build, classify,
};

/// A small geometry: frames of 256 bytes, 16 packets to a batch.
const SPEC: GeometrySpec = GeometrySpec {
    height: 16,
    width: 16,
    packets_per_image: 4,
    images_per_batch: 4,
    payload_bytes: 192,
    seq_bit_width: 8,
    ..GeometrySpec::DOCUMENTED
};

const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [1, 1, 1, 1],
    ip_dst: [2, 2, 2, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

#[derive(Arbitrary, Debug)]
struct Input {
    verify: u8,
    accept_trailer: bool,
    steered: Option<u32>,
    /// What the descriptor says; the true length where there is none.
    claimed_len: Option<u32>,
    /// Start from a right frame of this length and change bytes, instead of from any bytes.
    template: Option<u16>,
    changes: Vec<(u16, u8)>,
}

fn frame(input: &Input, rest: &[u8]) -> Vec<u8> {
    let Some(len) = input.template else { return rest.to_vec() };
    let len = 42 + usize::from(len % 300);
    let mut frame: Vec<u8> = rest.iter().copied().chain(std::iter::repeat(0)).take(len).collect();
    build(&HEADER, &mut frame).expect("42 to 341 bytes");
    for (at, byte) in &input.changes {
        let at = usize::from(*at) % frame.len();
        frame[at] = *byte;
    }
    frame
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Unstructured::new(bytes);
    let Ok(input) = Input::arbitrary(&mut bytes) else { return };
    let frame = frame(&input, bytes.take_rest());
    let verify = [Verify::None, Verify::Ip, Verify::Udp][usize::from(input.verify % 3)];
    let len = input.claimed_len.unwrap_or(u32::try_from(frame.len()).expect("a short frame"));

    let geometry = Geometry::new(&SPEC).expect("the rules hold");
    let port = Some(PortRange::single(4096));
    let mut flows = FlowTable::new();
    flows
        .push(&FlowMatch { udp_src: port, udp_dst: port, ..FlowMatch::any(7) })
        .expect("room for one flow");
    let check = PacketCheck::new(&geometry, &flows, verify, input.accept_trailer);

    let answer = check.check(&frame, len, input.steered.unwrap_or(0));
    let mut packets = PacketCounters { offered: 1, ..PacketCounters::default() };
    match answer {
        Ok(Accepted { flow, wire, trimmed }) => {
            packets.placed += 1;
            assert_eq!(Some(wire), geometry.seq_field().read(&frame));
            assert_eq!(trimmed, len > 256);
            assert!(len == 256 || input.accept_trailer && len > 256);
            match input.steered {
                None | Some(0) => assert_eq!(flow, 7),
                Some(tag) => assert_eq!(flow, tag - 1),
            }
        }
        Err(cause) => cause.count(&mut packets),
    }
    assert!(packets.balanced());

    // The headers alone, by the other entry, without what only a packet of ours is asked for.
    match classify(&frame, len as usize, Verify::None) {
        Ok(_) => assert!(!matches!(
            answer,
            Err(Refused::Malformed(
                Malformed::Vlan | Malformed::Fragment | Malformed::Ihl | Malformed::NotUdp
            ))
        )),
        Err(reject) => {
            assert_ne!(reject, Reject::Checksum);
            assert_eq!(answer, Err(Refused::from(reject)));
        }
    }
    if answer.is_ok() {
        assert!(classify(&frame, len as usize, verify).is_ok());
    }
});
