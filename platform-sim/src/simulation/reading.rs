//! Frames as the checker reads them: written from the standards and the rules of the receiver, and
//! sharing no code with it.

use tensorwire_core::counters::PacketCounters;
use tensorwire_core::geometry::GeometrySpec;
use tensorwire_core::header::Verify;

/// The UDP destination port of the simulated stream.
pub(super) const PORT: u16 = 4096;

/// What a frame is to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A packet of the stream, and its number on the wire.
    Ours(u32),
    Short,
    Long,
    OtherFlow,
    Vlan,
    Fragment,
    Ihl,
    NotUdp,
    Checksum,
}

/// The numbers of a geometry, worked out here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) packets_per_image: u64,
    pub(super) images_per_batch: u64,
    pub(super) offset: usize,
    pub(super) payload: usize,
    /// First bit of the sequence field, and how many there are.
    bit: usize,
    pub(super) width: u32,
    verify: Verify,
}

fn long(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Shape {
    pub(super) fn new(spec: &GeometrySpec, verify: Verify) -> Self {
        Self {
            packets_per_image: spec.packets_per_image.into(),
            images_per_batch: spec.images_per_batch.into(),
            offset: long(spec.payload_byte_offset),
            payload: long(spec.payload_bytes),
            bit: long(spec.seq_bit_offset),
            width: spec.seq_bit_width,
            verify,
        }
    }

    pub(super) const fn packets_per_batch(&self) -> u64 {
        self.packets_per_image * self.images_per_batch
    }

    pub(super) const fn frame(&self) -> usize {
        self.offset + self.payload
    }

    /// Numbers on the wire.
    pub(super) const fn space(&self) -> u64 {
        1 << self.width
    }

    /// The largest jump that is believed at once (DESIGN §4).
    pub(super) fn step(&self) -> u64 {
        (self.packets_per_batch() / 2).min(self.space() / 8).max(1)
    }

    /// Packets in a row that confirm each other (DESIGN §4).
    pub(super) fn confirmations(&self) -> u64 {
        (self.space() / 8).clamp(2, 8)
    }

    /// The number in the sequence field, bit by bit.
    pub(super) fn number(&self, frame: &[u8]) -> u32 {
        let bits = self.bit..self.bit + long(self.width);
        bits.fold(0, |number, bit| number << 1 | u32::from(frame[bit / 8] >> (7 - bit % 8) & 1))
    }

    /// Writes a number into the sequence field and makes both checksums right.
    pub(super) fn renumber(&self, frame: &mut [u8], number: u64) {
        for (place, bit) in (self.bit..self.bit + long(self.width)).rev().enumerate() {
            let mask = 1 << (7 - bit % 8);
            if number >> place & 1 == 1 {
                frame[bit / 8] |= mask;
            } else {
                frame[bit / 8] &= !mask;
            }
        }
        seal(frame);
    }

    /// What a frame of `len` bytes is, of which the receiver has the front: in this order, its
    /// headers, its flow, its length, its checksums.
    pub(super) fn read(&self, frame: &[u8], len: usize) -> Class {
        let frame = &frame[..frame.len().min(len).min(self.frame())];
        if frame.len() < 14 {
            return Class::Short;
        }
        match (frame[12], frame[13]) {
            (0x08, 0x00) => {}
            (0x81, 0x00) | (0x88, 0xa8) => return Class::Vlan,
            _ => return Class::OtherFlow,
        }
        if frame.len() < 34 {
            return Class::Short;
        }
        if frame[14] != 0x45 {
            return Class::Ihl;
        }
        if frame[20] & 0x3f != 0 || frame[21] != 0 {
            return Class::Fragment;
        }
        if frame[23] != 17 {
            return Class::NotUdp;
        }
        if frame.len() < 42 {
            return Class::Short;
        }
        if word(frame, 36) != PORT {
            return Class::OtherFlow;
        }
        if len < self.frame() {
            return Class::Short;
        }
        if len > self.frame() {
            return Class::Long;
        }
        if !self.checksums_fit(frame) {
            return Class::Checksum;
        }
        Class::Ours(self.number(frame))
    }

    fn checksums_fit(&self, frame: &[u8]) -> bool {
        if self.verify == Verify::None {
            return true;
        }
        let ip = sum(0, &frame[14..34]) == 0xffff;
        ip && (self.verify == Verify::Ip || udp_fits(frame))
    }
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// RFC 1071, the slow way.
fn sum(start: u32, bytes: &[u8]) -> u32 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// RFC 768: pseudo header and datagram; `None` where the UDP length cannot be.
fn udp_sum(frame: &[u8]) -> Option<u32> {
    let len = word(frame, 38);
    let datagram = frame[34..].get(..usize::from(len)).filter(|datagram| datagram.len() >= 8)?;
    Some(sum(sum(17 + u32::from(len), &frame[26..34]), datagram))
}

fn udp_fits(frame: &[u8]) -> bool {
    word(frame, 40) == 0 || udp_sum(frame) == Some(0xffff)
}

/// Makes both checksums of a well-formed frame right for its bytes.
pub(super) fn seal(frame: &mut [u8]) {
    let put = |frame: &mut [u8], at: usize, sum: u32| {
        let sum = u16::try_from(sum & 0xffff).unwrap_or(0);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    };
    put(frame, 24, 0);
    let ip = !sum(0, &frame[14..34]);
    put(frame, 24, ip);
    put(frame, 40, 0);
    if let Some(udp) = udp_sum(frame) {
        put(frame, 40, if udp == 0xffff { 0xffff } else { !udp });
    }
}

/// Frames by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) ours: u64,
    others: [u64; 8],
}

/// The names of the counters, in the order of [`Tally::others`].
const NAMES: [&str; 8] =
    ["short", "long", "other_flow", "vlan", "fragment", "ihl", "not_udp", "checksum"];

impl Tally {
    pub(super) const fn add(&mut self, class: Class) {
        match class {
            Class::Ours(_) => self.ours += 1,
            Class::Short => self.others[0] += 1,
            Class::Long => self.others[1] += 1,
            Class::OtherFlow => self.others[2] += 1,
            Class::Vlan => self.others[3] += 1,
            Class::Fragment => self.others[4] += 1,
            Class::Ihl => self.others[5] += 1,
            Class::NotUdp => self.others[6] += 1,
            Class::Checksum => self.others[7] += 1,
        }
    }

    /// The first counter that differs from what the receiver counted: its name, the receiver's
    /// number, ours.
    pub(super) fn differs(&self, counted: &PacketCounters) -> Option<(&'static str, u64, u64)> {
        let malformed = &counted.malformed;
        let theirs = [
            counted.short,
            counted.long,
            counted.other_flow,
            malformed.vlan,
            malformed.fragment,
            malformed.ihl,
            malformed.not_udp,
            malformed.checksum,
        ];
        let mut all = NAMES.iter().zip(theirs.iter().zip(self.others));
        all.find(|(_, (theirs, ours))| **theirs != *ours)
            .map(|(name, (theirs, ours))| (*name, *theirs, ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::MINI;
    use crate::simulation::frames::HEADER;
    use tensorwire_core::header;

    #[test]
    fn a_frame_as_the_core_writes_it_is_read_here_and_the_other_way_round() {
        for (width, bit) in [(8, 128), (12, 128), (16, 336), (5, 339)] {
            let spec = GeometrySpec { seq_bit_width: width, seq_bit_offset: bit, ..MINI };
            let shape = Shape::new(&spec, Verify::Udp);
            let mut frame = vec![7; shape.frame()];
            header::build(&HEADER, &mut frame).expect("room");
            for number in [0, 1, (1 << width) - 1, 1 << (width - 1)] {
                shape.renumber(&mut frame, number);
                let wire = u32::try_from(number).expect("small");
                assert_eq!(shape.read(&frame, frame.len()), Class::Ours(wire));
                assert!(header::classify(&frame, frame.len(), Verify::Udp).is_ok());
                frame[100] ^= 1;
                assert_eq!(shape.read(&frame, frame.len()), Class::Checksum);
                frame[100] ^= 1;
            }
        }
    }
}
