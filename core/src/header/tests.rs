use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert, prop_assert_eq, prop_assume, proptest};

use super::{
    BuildError, ETHERNET, HEADERS_BYTES, HeaderSpec, MAX_FRAME_BYTES, Reject, UDP_AT, UdpHeader,
    Verify, build, checksum, classify, mend_checksums, set_sequence,
};
use crate::bits::BitField;

pub(super) const SPEC: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [1, 1, 1, 1],
    ip_dst: [2, 2, 2, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

/// The documented place of the sequence, on the IPv4 total length.
fn documented() -> BitField {
    BitField::new(128, 12).expect("a field")
}

/// The routable place, behind the UDP header.
fn routable() -> BitField {
    BitField::new(336, 16).expect("a field")
}

/// A frame of the documented geometry with a payload that is no zeros.
fn documented_frame() -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame.extend((0..1176u32).map(|i| (i * 7).to_le_bytes()[0]));
    build(&SPEC, &mut frame).expect("a frame that fits");
    frame
}

/// The oracle: word after word, each carry added at once.
fn naive_sum(bytes: impl IntoIterator<Item = u8>) -> u16 {
    let bytes: Vec<u8> = bytes.into_iter().collect();
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    u16::try_from(sum).expect("carries are folded in")
}

/// Whether both checksums of a UDP frame are right, by RFC 791 and RFC 768 and the oracle.
fn checksums_right(frame: &[u8]) -> bool {
    let ip = naive_sum(frame[ETHERNET..UDP_AT].to_vec()) == 0xffff;
    let udp_len = usize::from(frame[38]) << 8 | usize::from(frame[39]);
    let mut covered = frame[26..34].to_vec();
    covered.extend([0, 17, frame[38], frame[39]]);
    covered.extend(&frame[UDP_AT..UDP_AT + udp_len]);
    ip && (frame[40..42] == [0, 0] || naive_sum(covered) == 0xffff)
}

#[test]
fn the_sum_of_rfc_1071() {
    assert_eq!(checksum::sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(checksum::sum(&[]), 0);
    assert_eq!(checksum::sum(&[0xab]), 0xab00);
    assert_eq!(checksum::fold(u64::MAX), 0xffff);
    assert_eq!(checksum::fold(0x1_0000_0000), 1);
    assert_eq!(checksum::fold(0xffff_fffe_ffff_ffff), 0xfffe, "the most that is carried");
}

#[test]
fn a_frame_is_what_other_tools_make_of_it() {
    // Made with scapy 2.6: Ether/IP(id=0, flags="DF", ttl=64)/UDP/0..9.
    let expected = [
        0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, //
        0x45, 0x00, 0x00, 0x25, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x34, 0xc3, //
        0x01, 0x01, 0x01, 0x01, 0x02, 0x02, 0x02, 0x02, //
        0x10, 0x00, 0x10, 0x01, 0x00, 0x11, 0xc5, 0xb5, //
        0, 1, 2, 3, 4, 5, 6, 7, 8,
    ];
    let mut frame = [0; 51];
    frame[42..].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    build(&HeaderSpec { udp_dst: 4097, ..SPEC }, &mut frame).expect("a frame that fits");
    assert_eq!(frame, expected);
    let header = UdpHeader { src_port: 4096, dst_port: 4097, ip_total_len: 37, udp_len: 17 };
    assert_eq!(classify(&frame, frame.len(), Verify::Udp), Ok(header));
}

#[test]
fn c17_checksums_are_right_for_the_bytes_as_sent() {
    let mut frame = documented_frame();
    assert_eq!(frame[16..18], [0x04, 0xca], "1226 bytes of IPv4");
    assert_eq!(frame[24..26], [0x30, 0x1e]);
    assert_eq!(frame[40..42], [0xce, 0x68]);
    // What the length field holds then, and the header checksum that scapy computes for it.
    let cases = [(0, 10, 0x34de), (1, 26, 0x34ce), (2, 42, 0x34be), (0xabc, 0xabca, 0x891d)];
    for (sequence, length, checksum) in cases {
        assert!(set_sequence(&mut frame, documented(), sequence));
        assert_eq!(documented().read(&frame), Some(sequence));
        assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), length);
        assert_eq!(u16::from_be_bytes([frame[24], frame[25]]), checksum);
        assert_eq!(frame[40..42], [0xce, 0x68], "UDP does not cover the IPv4 length");
        let header = classify(&frame, frame.len(), Verify::Udp).expect("a right frame");
        assert_eq!((header.ip_total_len, header.udp_len), (length, 1206));
    }
}

#[test]
fn the_routable_layout_keeps_lengths_and_checksums_valid() {
    let mut frame = documented_frame();
    for sequence in [0, 1, 0x7fff, 0xffff] {
        assert!(set_sequence(&mut frame, routable(), sequence));
        assert_eq!(routable().read(&frame), Some(sequence));
        assert_eq!(frame[16..18], [0x04, 0xca]);
        assert!(checksums_right(&frame));
        assert!(classify(&frame, frame.len(), Verify::Udp).is_ok());
    }
}

#[test]
fn a_sequence_on_a_checksum_is_not_overwritten_by_it() {
    for offset in [192, 320] {
        let field = BitField::new(offset, 16).expect("a field");
        let mut frame = documented_frame();
        assert!(set_sequence(&mut frame, field, 0xbeef));
        assert_eq!(field.read(&frame), Some(0xbeef));
    }
}

/// A field may lie anywhere; each checksum is made or mended exactly where it covers the field.
#[test]
fn a_sequence_on_what_a_checksum_covers_or_beside_it() {
    let with = |offset: u32, value: u32, trailer: usize| {
        let mut frame = documented_frame();
        frame.extend(vec![0xee; trailer]);
        let field = BitField::new(offset, 16).expect("a field");
        assert!(set_sequence(&mut frame, field, value));
        assert_eq!(field.read(&frame), Some(value));
        frame
    };
    // Time to live and protocol, right before the IPv4 checksum.
    assert!(checksums_right(&with(22 * 8, 0x3311, 0)));
    // The UDP length: another part of the frame is covered.
    for len in [8, 9, 20, 500] {
        assert!(checksums_right(&with(38 * 8, len, 0)), "{len}");
    }
    // The first bytes behind the datagram, which no checksum covers, and its last bytes.
    assert!(checksums_right(&with(1240 * 8, 0xbeef, 4)));
    assert!(checksums_right(&with(1238 * 8, 0xbeef, 4)));
    // Another protocol is another UDP pseudo header.
    let frame = with(22 * 8, 0x4012, 0);
    let mut covered = frame[26..34].to_vec();
    covered.extend([0, 0x12, frame[38], frame[39]]);
    covered.extend(&frame[UDP_AT..]);
    assert_eq!(naive_sum(covered), 0xffff);
}

#[test]
fn a_udp_checksum_of_0_is_written_as_all_ones() {
    // RFC 768: 0 says that there is none. Two payload bytes take the sum through all its values.
    let mut anew = [0; 44];
    build(&SPEC, &mut anew).expect("a frame that fits");
    let mut mended = anew;
    let mut all_ones = 0;
    for sequence in 0..=u16::MAX {
        anew[42..].copy_from_slice(&sequence.to_be_bytes());
        build(&SPEC, &mut anew).expect("a frame that fits");
        assert!(set_sequence(&mut mended, routable(), sequence.into()));
        assert_eq!(mended, anew);
        assert_ne!(anew[40..42], [0, 0]);
        all_ones += u32::from(anew[40..42] == [0xff, 0xff]);
    }
    assert_eq!(all_ones, 1);
}

#[test]
fn a_frame_of_a_stale_checksum_is_mended_once() {
    // As the public generator writes it: checksum first, then the sequence over the length.
    let mut frame = documented_frame();
    assert!(documented().write(&mut frame, 5));
    frame[1000] ^= 0xff;
    assert_eq!(classify(&frame, frame.len(), Verify::Ip), Err(Reject::Checksum));
    assert!(mend_checksums(&mut frame));
    assert!(checksums_right(&frame));
    // No UDP checksum stays no UDP checksum.
    frame[40..42].fill(0);
    assert!(mend_checksums(&mut frame));
    assert_eq!(frame[40..42], [0, 0]);
    assert!(set_sequence(&mut frame, routable(), 77));
    assert_eq!(frame[40..42], [0, 0]);
    assert!(classify(&frame, frame.len(), Verify::Udp).is_ok());
}

#[test]
fn frames_that_cannot_be_built() {
    let error = BuildError::TooShort { len: 41, min: HEADERS_BYTES };
    assert_eq!(build(&SPEC, &mut [0xee; 41]), Err(error));
    assert_eq!(error.to_string(), "a frame of 41 bytes has no room for headers of 42 bytes");
    let mut frame = vec![0xee; MAX_FRAME_BYTES as usize + 1];
    let error = BuildError::TooLong { len: frame.len(), max: MAX_FRAME_BYTES };
    assert_eq!(build(&SPEC, &mut frame), Err(error));
    assert!(frame.iter().all(|byte| *byte == 0xee), "nothing is written");
    frame.pop();
    assert_eq!(build(&SPEC, &mut frame), Ok(()));
    assert_eq!(frame[16..18], [0xff, 0xff]);
    assert!(checksums_right(&frame));

    assert!(!set_sequence(&mut [0xee; 41], documented(), 1));
    assert!(!mend_checksums(&mut [0xee; 41]));
    let mut short = [0; 43];
    build(&SPEC, &mut short).expect("a frame that fits");
    let before = short;
    assert!(!set_sequence(&mut short, routable(), 1), "the field ends behind the frame");
    assert_eq!(short, before);
}

/// What the receiver makes of a right frame with some bytes changed.
fn after(change: impl FnOnce(&mut Vec<u8>)) -> Result<UdpHeader, Reject> {
    let mut frame = documented_frame();
    change(&mut frame);
    classify(&frame, frame.len(), Verify::None)
}

#[test]
fn h01_vlan_tag() {
    let insert = |frame: &mut Vec<u8>, tag: [u8; 4]| {
        frame.splice(12..12, tag);
    };
    assert_eq!(after(|frame| insert(frame, [0x81, 0x00, 0x00, 0x07])), Err(Reject::Vlan));
    let priority_tag = [0x81, 0x00, 0xe0, 0x00];
    assert_eq!(after(|frame| insert(frame, priority_tag)), Err(Reject::Vlan));
    let double = after(|frame| {
        insert(frame, [0x81, 0x00, 0x00, 0x07]);
        insert(frame, [0x88, 0xa8, 0x00, 0x08]);
    });
    assert_eq!(double, Err(Reject::Vlan));
}

#[test]
fn h02_ipv4_options() {
    for version_ihl in [0x46, 0x4f, 0x44, 0x40, 0x55, 0x65, 0x00] {
        assert_eq!(after(|frame| frame[14] = version_ihl), Err(Reject::Ihl), "{version_ihl:#x}");
    }
    for len in 14..34 {
        assert_eq!(after(|frame| frame.truncate(len)), Err(Reject::Short), "cut at {len}");
    }
}

#[test]
fn h03_fragments() {
    assert_eq!(after(|frame| frame[20] = 0x20), Err(Reject::Fragment), "more fragments");
    let offset = 1480u16 / 8;
    let later = after(|frame| frame[20..22].copy_from_slice(&offset.to_be_bytes()));
    assert_eq!(later, Err(Reject::Fragment));
    assert!(after(|frame| frame[20] = 0x40).is_ok(), "DF is not a fragment");
    assert!(after(|frame| frame[20] = 0x00).is_ok());
}

#[test]
fn h05_header_broken_by_the_sequence() {
    // Total length = sequence number, checksum stale: taken unless the user asked for checks.
    let mut frame = documented_frame();
    assert!(documented().write(&mut frame, 0xabc));
    assert!(classify(&frame, frame.len(), Verify::None).is_ok());
    assert_eq!(classify(&frame, frame.len(), Verify::Ip), Err(Reject::Checksum));
    assert_eq!(classify(&frame, frame.len(), Verify::Udp), Err(Reject::Checksum));
}

#[test]
fn other_protocols_have_their_own_names() {
    assert_eq!(after(|frame| frame[23] = 6), Err(Reject::NotUdp));
    for ethertype in [[0x08, 0x06], [0x86, 0xdd], [0x88, 0xcc], [0x00, 0x26]] {
        let other = after(|frame| frame[12..14].copy_from_slice(&ethertype));
        assert_eq!(other, Err(Reject::NotIpv4), "{ethertype:x?}");
    }
    // Also where the frame is as short as such frames are.
    let arp = after(|frame| {
        frame[13] = 0x06;
        frame.truncate(42);
    });
    assert_eq!(arp, Err(Reject::NotIpv4));
    let icmp = after(|frame| {
        frame[23] = 1;
        frame.truncate(38);
    });
    assert_eq!(icmp, Err(Reject::NotUdp));
    assert_eq!(after(|frame| frame.truncate(41)), Err(Reject::Short));
    assert!(after(|frame| frame.truncate(42)).is_ok());
}

#[test]
fn each_reason_has_words_of_its_own() {
    let reasons = [
        Reject::Short,
        Reject::Vlan,
        Reject::NotIpv4,
        Reject::Ihl,
        Reject::Fragment,
        Reject::NotUdp,
        Reject::Checksum,
    ];
    let words: BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), reasons.len());
    assert!(words.iter().all(|words| words.contains("frame") || words.contains("IPv4")));
}

#[test]
fn what_lies_behind_the_frame_is_not_read() {
    let frame = documented_frame();
    assert_eq!(classify(&frame, 41, Verify::None), Err(Reject::Short));
    assert_eq!(classify(&frame, 0, Verify::None), Err(Reject::Short));
}

#[test]
fn verify_udp_needs_the_whole_datagram() {
    let mut frame = documented_frame();
    frame[500] ^= 1;
    let len = frame.len();
    assert_eq!(classify(&frame, len, Verify::Udp), Err(Reject::Checksum));
    assert!(classify(&frame, len, Verify::Ip).is_ok());
    assert!(classify(&frame[..64], len, Verify::Udp).is_ok(), "only the headers are readable");
    // "No checksum" is all of the field, not half of it.
    for half in [40, 41] {
        let mut frame = documented_frame();
        frame[half] = 0;
        assert_eq!(classify(&frame, len, Verify::Udp), Err(Reject::Checksum), "byte {half}");
    }
    // A length beyond the frame, or below the header, is wrong by itself.
    for udp_len in [1207u16, 65_535, 7, 0] {
        frame[38..40].copy_from_slice(&udp_len.to_be_bytes());
        assert_eq!(classify(&frame, len, Verify::Udp), Err(Reject::Checksum), "{udp_len}");
    }
}

/// Frames of any length that a frame can have in practice, with any bytes behind the headers.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let addresses = any::<([u8; 6], [u8; 6], [u8; 4], [u8; 4], u16, u16)>();
    (prop::collection::vec(any::<u8>(), 42..300), addresses).prop_map(|(mut frame, spec)| {
        let (eth_src, eth_dst, ip_src, ip_dst, udp_src, udp_dst) = spec;
        let spec = HeaderSpec { eth_src, eth_dst, ip_src, ip_dst, udp_src, udp_dst };
        build(&spec, &mut frame).expect("a frame that fits");
        frame
    })
}

proptest! {
    #[test]
    fn the_sum_is_the_naive_sum(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(checksum::sum(&bytes), naive_sum(bytes));
    }

    #[test]
    fn what_is_built_is_read_back(
        mut frame in prop::collection::vec(any::<u8>(), 42..300),
        udp_src in any::<u16>(),
        udp_dst in any::<u16>(),
    ) {
        let data = frame[42..].to_vec();
        build(&HeaderSpec { udp_src, udp_dst, ..SPEC }, &mut frame).expect("a frame that fits");
        prop_assert_eq!(&frame[42..], &data[..], "the payload is the caller's");
        prop_assert!(checksums_right(&frame));
        prop_assert!(frame[40..42] != [0, 0], "0 would mean that there is none");
        let header = classify(&frame, frame.len(), Verify::Udp);
        let ip_total_len = u16::try_from(frame.len() - ETHERNET).expect("a short frame");
        let udp_len = ip_total_len - 20;
        let expected = UdpHeader { src_port: udp_src, dst_port: udp_dst, ip_total_len, udp_len };
        prop_assert_eq!(header, Ok(expected));
    }

    #[test]
    fn a_mended_frame_is_a_frame_built_anew(
        mut frame in any_frame(),
        offset in 0..2400u32,
        width in 1..=32u32,
        values in prop::collection::vec(any::<u32>(), 1..4),
    ) {
        let field = BitField::new(offset, width).expect("a field");
        let end = field.end_byte();
        prop_assume!(end <= frame.len());
        let on = |at: usize, len: usize| field.first_byte() < at + len && at < end;
        // With the sequence on a checksum, or on the length that says what UDP covers, there is
        // no right checksum to compare.
        prop_assume!(!on(24, 2) && !on(38, 4) && !on(14, 1));
        // The protocol is part of the UDP sum; all but UDP has another checksum.
        prop_assume!(!on(23, 1));
        for value in values {
            prop_assert!(set_sequence(&mut frame, field, value));
            prop_assert_eq!(field.read(&frame), Some(value & field.max()));
            let mut anew = frame.clone();
            prop_assert!(mend_checksums(&mut anew));
            prop_assert_eq!(&anew, &frame, "{}", field);
            prop_assert!(checksums_right(&frame));
        }
    }

    #[test]
    fn any_bytes_have_one_answer(
        bytes in prop::collection::vec(any::<u8>(), 0..90),
        front in 0..5usize,
        frame_len in 0..100usize,
    ) {
        // Bytes that get further and further: random ones alone would all end at the type.
        let mut bytes = bytes;
        let steps: [&[(usize, u8)]; 5] = [
            &[],
            &[(12, 0x08), (13, 0x00)],
            &[(12, 0x08), (13, 0x00), (14, 0x45)],
            &[(12, 0x08), (13, 0x00), (14, 0x45), (20, 0), (21, 0)],
            &[(12, 0x08), (13, 0x00), (14, 0x45), (20, 0), (21, 0), (23, 17), (38, 0)],
        ];
        for (at, byte) in steps[front] {
            if let Some(place) = bytes.get_mut(*at) {
                *place = *byte;
            }
        }
        for verify in [Verify::None, Verify::Ip, Verify::Udp] {
            let answer = classify(&bytes, frame_len, verify);
            prop_assert!(answer != Err(Reject::Checksum) || verify != Verify::None);
            if bytes.len().min(frame_len) < HEADERS_BYTES as usize {
                prop_assert!(answer.is_err());
            }
        }
        let _ = mend_checksums(&mut bytes);
    }
}
