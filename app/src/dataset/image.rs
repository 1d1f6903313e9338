//! An image in memory, and where images come from.

use super::DatasetError;

/// An 8-bit RGB image. Shape of `pixels`: `[height, width, 3]`, u8, without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RgbImage {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The pixels, R,G,B, row by row.
    pub pixels: Vec<u8>,
}

impl RgbImage {
    /// Makes it a black image of this size and hands out its pixels.
    pub(crate) fn reset(&mut self, width: u32, height: u32) -> &mut [u8] {
        (self.width, self.height) = (width, height);
        self.pixels.clear();
        self.pixels.resize(width as usize * height as usize * 3, 0);
        &mut self.pixels
    }
}

/// A numbered set of images. The same index always gives the same image.
pub(crate) trait ImageSource {
    /// How many images there are; `None` when there is no end.
    fn len(&self) -> Option<u64>;

    /// Names of the classes, in the order of the labels. Empty when there are no labels.
    fn classes(&self) -> &[String];

    /// Reads image `index`, below `len`, and tells its label.
    fn read(&mut self, index: u64, image: &mut RgbImage) -> Result<Option<u16>, DatasetError>;

    /// Remarks on the images read so far, one line each, for the report.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
