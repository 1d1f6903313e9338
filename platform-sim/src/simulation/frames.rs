//! The images that a simulated sender sends, and what must come out for each.

use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{self, HeaderSpec};
use tensorwire_core::pipeline::transmitter::FrameSource;
use tensorwire_kernels::{Conversion, Isa, Kernel};

use crate::prng::Prng;

/// The addresses and ports of the simulated stream.
pub(super) const HEADER: HeaderSpec = HeaderSpec {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    ip_src: [10, 0, 0, 1],
    ip_dst: [10, 0, 0, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

/// Frames of one pass, made from a seed, and the CRC of each image as it must arrive.
#[derive(Debug)]
pub(super) struct Frames {
    frame_bytes: usize,
    bytes: Vec<u8>,
    crcs: Vec<u32>,
}

impl Frames {
    /// `images` images of random pixels.
    pub(super) fn new(
        geometry: &Geometry,
        images: u64,
        conversion: Conversion,
        prng: &mut Prng,
    ) -> Self {
        let frame_bytes = geometry.frame_bytes();
        let packets = usize::try_from(images).unwrap_or(0) * geometry.packets_per_image() as usize;
        let mut bytes = vec![0; packets * frame_bytes];
        let field = geometry.seq_field();
        for (number, frame) in (0_u64..).zip(bytes.chunks_exact_mut(frame_bytes)) {
            for word in frame[geometry.payload_offset()..].chunks_mut(8) {
                word.copy_from_slice(&prng.next_u64().to_le_bytes()[..word.len()]);
            }
            let built = header::build(&HEADER, frame);
            debug_assert!(built.is_ok(), "a frame of a geometry holds its headers: {built:?}");
            let wire = u32::try_from(number % geometry.sequence_space()).unwrap_or(0);
            let written = header::set_sequence(frame, field, wire);
            debug_assert!(written, "the sequence field of a geometry lies in its frames");
        }
        let mut frames = Self { frame_bytes, bytes, crcs: Vec::new() };
        frames.crcs = frames.expect(geometry, conversion);
        frames
    }

    /// The CRC of each image after its conversion, by the kernel without special instructions.
    fn expect(&self, geometry: &Geometry, conversion: Conversion) -> Vec<u32> {
        let kernel =
            Kernel::with_isa(conversion, Isa::Portable).unwrap_or_else(|| Kernel::new(conversion));
        let image_frames = geometry.packets_per_image() as usize * self.frame_bytes;
        let mut image = vec![0; geometry.image_bytes()];
        let images = self.bytes.chunks_exact(image_frames);
        let crc = |frames: &[u8]| {
            let slots = image.chunks_exact_mut(geometry.slot_stride());
            for (frame, slot) in frames.chunks_exact(self.frame_bytes).zip(slots) {
                kernel.convert(&frame[geometry.payload_offset()..], slot);
            }
            crc32fast::hash(&image)
        };
        images.map(crc).collect()
    }

    /// The CRC that image `index` of the stream must have.
    pub(super) fn crc(&self, index: u64) -> u32 {
        let in_pass = index % self.crcs.len().max(1) as u64;
        usize::try_from(in_pass).ok().and_then(|i| self.crcs.get(i)).copied().unwrap_or(0)
    }

    /// The images whose CRC is `crc`, by their number in the pass.
    pub(super) fn find(&self, crc: u32) -> Option<u64> {
        self.crcs.iter().position(|known| *known == crc).map(|at| at as u64)
    }
}

impl FrameSource for &Frames {
    fn frames(&self) -> u64 {
        (self.bytes.len() / self.frame_bytes) as u64
    }

    fn len(&self, _index: u64) -> usize {
        self.frame_bytes
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        let frame = usize::try_from(index).ok().and_then(|i| {
            let start = i.checked_mul(self.frame_bytes)?;
            self.bytes.get(start..start + self.frame_bytes)
        });
        if let Some(frame) = frame {
            out.copy_from_slice(frame);
        }
    }
}
