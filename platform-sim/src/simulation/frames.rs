//! The images that a simulated sender sends.

use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{self, HeaderSpec};
use tensorwire_core::pipeline::transmitter::FrameSource;

use super::reading::PORT;
use crate::prng::Prng;

/// The addresses and ports of the simulated stream.
pub(super) const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [10, 0, 0, 1],
    ip_dst: [10, 0, 0, 2],
    udp_src: 4096,
    udp_dst: PORT,
};

/// Frames of one pass, made from a seed.
#[derive(Debug)]
pub(super) struct Frames {
    frame_bytes: usize,
    payload_offset: usize,
    bytes: Vec<u8>,
}

impl Frames {
    /// `images` images of random pixels.
    pub(super) fn new(geometry: &Geometry, images: u64, prng: &mut Prng) -> Self {
        let frame_bytes = geometry.frame_bytes();
        let payload_offset = geometry.payload_offset();
        let packets = usize::try_from(images).unwrap_or(0) * geometry.packets_per_image() as usize;
        let mut bytes = vec![0; packets * frame_bytes];
        let field = geometry.seq_field();
        for (number, frame) in (0_u64..).zip(bytes.chunks_exact_mut(frame_bytes)) {
            for word in frame[payload_offset..].chunks_mut(8) {
                word.copy_from_slice(&prng.next_u64().to_le_bytes()[..word.len()]);
            }
            let built = header::build(&HEADER, frame);
            debug_assert!(built.is_ok(), "a frame of a geometry holds its headers: {built:?}");
            let wire = u32::try_from(number % geometry.sequence_space()).unwrap_or(0);
            let written = header::set_sequence(frame, field, wire);
            debug_assert!(written, "the sequence field of a geometry lies in its frames");
        }
        Self { frame_bytes, payload_offset, bytes }
    }

    /// Frames of one pass.
    pub(super) const fn count(&self) -> u64 {
        (self.bytes.len() / self.frame_bytes) as u64
    }

    /// Frame `number` of the stream; its sequence number is that of the first pass.
    fn frame(&self, number: u64) -> Option<&[u8]> {
        let index = usize::try_from(number % self.count().max(1)).ok()?;
        self.bytes.get(index * self.frame_bytes..)?.get(..self.frame_bytes)
    }

    /// The payload of frame `number` of the stream.
    pub(super) fn payload(&self, number: u64) -> Option<&[u8]> {
        self.frame(number)?.get(self.payload_offset..)
    }
}

impl FrameSource for &Frames {
    fn frames(&self) -> u64 {
        self.count()
    }

    fn len(&self, _index: u64) -> usize {
        self.frame_bytes
    }

    fn lent(&self, index: u64) -> Option<&[u8]> {
        self.frame(index)
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        if let Some(frame) = self.frame(index) {
            out.copy_from_slice(frame);
        }
    }
}
