//! What is built is read back, and stays right through any sequence of sequence numbers: mending
//! a checksum gives the same bytes as making it anew.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tensorwire_core::bits::BitField;
use tensorwire_core::header::{
    HeaderSpec, UdpHeader, Verify, build, classify, mend_checksums, set_sequence,
};

#[derive(Arbitrary, Debug)]
struct Input {
    eth: ([u8; 6], [u8; 6]),
    ip: ([u8; 4], [u8; 4]),
    udp: (u16, u16),
    seq_bit_offset: u16,
    seq_bit_width: u8,
    sequence: Vec<u32>,
    payload: Vec<u8>,
}

fuzz_target!(|input: Input| {
    let spec = HeaderSpec {
        eth_src: input.eth.0,
        eth_dst: input.eth.1,
        ip_src: input.ip.0,
        ip_dst: input.ip.1,
        udp_src: input.udp.0,
        udp_dst: input.udp.1,
    };
    let mut frame = vec![0; 42];
    frame.extend(&input.payload);
    if build(&spec, &mut frame).is_err() {
        assert!(frame.len() > 65_549);
        return;
    }
    assert_eq!(frame[42..], input.payload);
    let header = classify(&frame, frame.len(), Verify::Udp).expect("as it was built");
    let UdpHeader { src_port, dst_port, ip_total_len, udp_len } = header;
    assert_eq!((src_port, dst_port), input.udp);
    assert_eq!((ip_total_len.into(), udp_len.into()), (frame.len() - 14, frame.len() - 34));

    let Ok(field) = BitField::new(input.seq_bit_offset.into(), input.seq_bit_width.into()) else {
        return;
    };
    let on = |at: usize, len: usize| field.first_byte() < at + len && at < field.end_byte();
    for value in input.sequence {
        let before = frame.clone();
        if !set_sequence(&mut frame, field, value) {
            assert!(field.end_byte() > frame.len());
            assert_eq!(frame, before);
            return;
        }
        assert_eq!(field.read(&frame), Some(value & field.max()));
        // On a checksum there is nothing to compare; the UDP length decides what UDP covers, and
        // the protocol is part of the UDP sum.
        if on(24, 2) || on(38, 4) || on(23, 1) {
            continue;
        }
        let mut anew = frame.clone();
        assert!(mend_checksums(&mut anew));
        assert_eq!(anew, frame, "{field}");
        // Unless the field lies on what says that this is a UDP frame, it still is one.
        if !on(12, 3) && !on(20, 2) {
            assert!(classify(&frame, frame.len(), Verify::Udp).is_ok());
        }
    }
});
