//! What a sender sends: the frames of a capture, or frames made up.

use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{self, BuildError, HeaderSpec};
use tensorwire_core::pipeline::transmitter::FrameSource;
use tensorwire_kernels::prefetch;

use crate::dataset::Capture;

/// How many frames before its turn a frame is asked for.
const AHEAD: u64 = 2;

/// Frames in memory.
#[derive(Debug)]
pub enum Frames {
    /// Of a capture.
    Capture(Box<Capture>),
    /// Made up: one batch of them.
    Synthetic(Synthetic),
}

impl Frames {
    /// Packets of one pass, those that the capture has lost included: by so much the numbers of a
    /// pass are above those of the pass before.
    #[must_use]
    pub fn pass_packets(&self) -> u64 {
        match self {
            Self::Capture(capture) => capture.packets_per_pass(),
            Self::Synthetic(frames) => frames.count,
        }
    }

    /// Frame `index` of a pass; empty beyond the last one.
    #[inline]
    fn frame(&self, index: u64) -> &[u8] {
        match self {
            Self::Capture(capture) => capture.frame(place(index)),
            Self::Synthetic(frames) => frames.frame(index),
        }
    }
}

impl FrameSource for &Frames {
    fn frames(&self) -> u64 {
        match self {
            Frames::Capture(capture) => capture.frames() as u64,
            Frames::Synthetic(frames) => frames.count,
        }
    }

    fn len(&self, index: u64) -> usize {
        match self {
            Frames::Capture(capture) => capture.frame(place(index)).len(),
            Frames::Synthetic(frames) => frames.frame_bytes,
        }
    }

    /// All of them lie in memory.
    #[inline]
    fn lent(&self, index: u64) -> Option<&[u8]> {
        // A capture is larger than the caches, and frames do not end where pages do, so the CPU
        // alone does not see the next one coming.
        prefetch(self.frame(index.saturating_add(AHEAD)));
        Some(self.frame(index))
    }

    #[inline]
    fn write(&self, index: u64, out: &mut [u8]) {
        let bytes = self.frame(index);
        // The transmitter asks for exactly the length it was told.
        if out.len() == bytes.len() {
            out.copy_from_slice(bytes);
        }
    }
}

fn place(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// One batch of made-up frames: payload bytes that differ from packet to packet, right headers,
/// sequence numbers from 0.
#[derive(Debug)]
pub struct Synthetic {
    bytes: Vec<u8>,
    frame_bytes: usize,
    count: u64,
}

impl Synthetic {
    /// One batch of `geometry` under `spec`.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when the headers do not fit a frame of the geometry.
    pub fn new(geometry: &Geometry, spec: &HeaderSpec) -> Result<Self, BuildError> {
        let frame_bytes = geometry.frame_bytes();
        let count = geometry.packets_per_batch();
        let mut bytes = vec![0; frame_bytes * count as usize];
        for (frame, number) in bytes.chunks_exact_mut(frame_bytes).zip(0u32..) {
            for (byte, at) in frame.iter_mut().skip(geometry.payload_offset()).zip(0u32..) {
                // Every byte depends on packet and place, so that a payload in a wrong slot shows.
                *byte = number.wrapping_mul(31).wrapping_add(at.wrapping_mul(7)).to_le_bytes()[0];
            }
            header::build(spec, frame)?;
            // The field lies before the payload, so it is there.
            let _ = header::set_sequence(frame, geometry.seq_field(), number);
        }
        Ok(Self { bytes, frame_bytes, count: u64::from(count) })
    }

    fn frame(&self, index: u64) -> &[u8] {
        let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(self.frame_bytes);
        self.bytes.get(start..start.saturating_add(self.frame_bytes)).unwrap_or(&[])
    }
}
