//! Images to frames.

use tensorwire_core::header::{build, set_sequence};

use super::{PrepareError, PrepareOptions};
use crate::dataset::image::RgbImage;
use crate::dataset::pcap::CaptureWriter;
use crate::dataset::resize::Resizer;

/// Turns images into frames, with one running sequence.
pub(super) struct Packetizer<'a> {
    options: &'a PrepareOptions,
    resizer: Resizer,
    /// The resized image. Shape: `[height, width, 3]`, u8.
    pixels: Vec<u8>,
    /// The image as it is sent. Shape: `[3, height, width]`, int8.
    planes: Vec<u8>,
    frame: Vec<u8>,
    /// Frames written so far.
    sent: u64,
}

impl<'a> Packetizer<'a> {
    pub(super) fn new(options: &'a PrepareOptions) -> Self {
        let geometry = &options.geometry;
        Self {
            options,
            resizer: Resizer::new((0, 0), (0, 0)),
            pixels: vec![0; geometry.elements_per_image()],
            planes: vec![0; geometry.elements_per_image()],
            frame: vec![0; geometry.frame_bytes()],
            sent: 0,
        }
    }

    pub(super) fn write(
        &mut self,
        image: &RgbImage,
        writer: &mut CaptureWriter,
    ) -> Result<(), PrepareError> {
        self.resize(image);
        to_planes(&self.pixels, &mut self.planes);
        let options = self.options;
        let (geometry, field) = (&options.geometry, options.geometry.seq_field());
        for payload in self.planes.chunks_exact(geometry.payload_bytes()) {
            self.frame[geometry.payload_offset()..].copy_from_slice(payload);
            build(&options.header, &mut self.frame).map_err(PrepareError::Build)?;
            // Every bit of the counter that the field holds; it wraps.
            let number = u32::try_from(self.sent & u64::from(field.max())).unwrap_or(0);
            // Cannot be refused: a geometry's field lies in front of its payload.
            let written = set_sequence(&mut self.frame, field, number);
            debug_assert!(written, "a field inside the frame");
            let micros = self.sent * u64::from(options.interval_us);
            let out = || options.out.clone();
            writer.write(micros, &self.frame).map_err(|error| PrepareError::Write(out(), error))?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Resizes into `pixels`, with tables that are kept while the size stays the same.
    fn resize(&mut self, image: &RgbImage) {
        let size = (image.width, image.height);
        if self.resizer.from() != size || self.resizer.target_bytes() != self.pixels.len() {
            let spec = self.options.geometry.spec();
            self.resizer = Resizer::new(size, (spec.width, spec.height));
        }
        self.resizer.resize(&image.pixels, &mut self.pixels);
    }
}

/// `[height, width, 3]` u8 to `[3, height, width]` int8 = pixel − 128.
fn to_planes(pixels: &[u8], planes: &mut [u8]) {
    let plane = pixels.len() / 3;
    for (i, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
        for (c, value) in pixel.iter().enumerate() {
            // −128 in two's complement is the flip of the highest bit.
            planes[c * plane + i] = value ^ 0x80;
        }
    }
}
