//! Image files to 8-bit RGB: PNG, JPEG, and PPM (P6). The content decides, not the name.
//!
//! What is not 8-bit RGB is turned into it as common training code does (`convert("RGB")`), or
//! refused by name:
//!
//! | file | here |
//! |---|---|
//! | grey | R = G = B |
//! | palette, 1, 2 or 4 bits | expanded |
//! | PNG with 16 bits | the high byte |
//! | alpha | dropped, and said in the report |
//! | JPEG in CMYK or YCCK, PPM other than P6, PPM with a maximum other than 255 | refused |
//!
//! Colour profiles, gamma and EXIF orientation are not applied.

use std::fmt;
use std::io::Cursor;

use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::image::RgbImage;

/// The largest side of an image in pixels.
const MAX_SIDE: u32 = 16_384;
/// The most pixels of an image: 192 MiB as RGB.
const MAX_PIXELS: u64 = 64 << 20;

/// Why the bytes of a file are no image that can be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// Neither PNG nor JPEG nor PPM.
    Format,
    /// A PPM or PGM of another kind than P6: the number after the `P`.
    Pnm(char),
    /// The header of a PPM cannot be read.
    PpmHeader,
    /// The maximum value of a PPM is not 255.
    PpmMaximum(u32),
    /// Fewer pixel bytes than the header promises.
    Cut {
        /// Bytes that the header promises.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// A side of 0, or more pixels than allowed.
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// A JPEG in the colours of printing.
    Cmyk,
    /// What the PNG decoder says.
    Png(String),
    /// What the JPEG decoder says.
    Jpeg(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("neither PNG nor JPEG nor PPM (P6)"),
            Self::Pnm(kind) => write!(f, "a P{kind} file; of the PNM formats only P6 is read"),
            Self::PpmHeader => f.write_str("the PPM header is no width, height and maximum"),
            Self::PpmMaximum(max) => write!(f, "PPM with maximum {max}, only 255 is read"),
            Self::Cut { expected, found } => {
                write!(f, "cut short: {found} of {expected} bytes of pixels")
            }
            Self::Size { width, height } => write!(
                f,
                "{width} × {height} pixels, allowed 1 to {MAX_SIDE} a side and {MAX_PIXELS} in all"
            ),
            Self::Cmyk => f.write_str("JPEG in CMYK or YCCK; save it as RGB"),
            Self::Png(why) => write!(f, "PNG: {why}"),
            Self::Jpeg(why) => write!(f, "JPEG: {why}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// What was lost on the way to 8-bit RGB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reduced {
    /// An alpha channel was dropped.
    pub(crate) alpha: bool,
    /// Samples had 16 bits.
    pub(crate) depth: bool,
}

/// Decodes the bytes of a file.
///
/// # Errors
///
/// [`DecodeError`].
pub(crate) fn decode(bytes: &[u8], image: &mut RgbImage) -> Result<Reduced, DecodeError> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => decode_png(bytes, image),
        [0xff, 0xd8, ..] => decode_jpeg(bytes, image).map(|()| Reduced::default()),
        [b'P', b'6', rest @ ..] => decode_ppm(rest, image).map(|()| Reduced::default()),
        [b'P', kind @ b'1'..=b'7', ..] => Err(DecodeError::Pnm(char::from(*kind))),
        _ => Err(DecodeError::Format),
    }
}

/// Checks a size before anything of that size is allocated.
fn check_size(width: u32, height: u32) -> Result<(), DecodeError> {
    let sides = 1..=MAX_SIDE;
    let pixels = u64::from(width) * u64::from(height);
    if !sides.contains(&width) || !sides.contains(&height) || pixels > MAX_PIXELS {
        return Err(DecodeError::Size { width, height });
    }
    Ok(())
}

/// Copies pixels of `samples` bytes each (grey, grey + alpha, RGB, RGBA) as RGB.
fn copy_pixels(from: &[u8], samples: usize, to: &mut [u8]) {
    let to = to.as_chunks_mut::<3>().0;
    for (pixel, out) in from.chunks_exact(samples).zip(to) {
        *out = match *pixel {
            [r, g, b] | [r, g, b, _] => [r, g, b],
            [grey] | [grey, _] => [grey; 3],
            _ => [0; 3],
        };
    }
}

fn decode_png(bytes: &[u8], image: &mut RgbImage) -> Result<Reduced, DecodeError> {
    let failed = |error: png::DecodingError| DecodeError::Png(error.to_string());
    // The limit covers what the decoder allocates for itself; the pixels are ours.
    let limits = png::Limits { bytes: 64 << 20 };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let info = decoder.read_header_info().map_err(failed)?;
    let (width, height) = info.size();
    let depth = info.bit_depth == png::BitDepth::Sixteen;
    check_size(width, height)?;

    let mut reader = decoder.read_info().map_err(failed)?;
    let samples = reader.output_color_type().0.samples();
    let size = reader.output_buffer_size().ok_or(DecodeError::Size { width, height })?;
    let mut decoded = vec![0; size];
    reader.next_frame(&mut decoded).map_err(failed)?;
    copy_pixels(&decoded, samples, image.reset(width, height));
    Ok(Reduced { alpha: samples == 2 || samples == 4, depth })
}

fn decode_jpeg(bytes: &[u8], image: &mut RgbImage) -> Result<(), DecodeError> {
    let failed = |error: zune_jpeg::errors::DecodeErrors| DecodeError::Jpeg(error.to_string());
    let side = MAX_SIDE as usize;
    let options = DecoderOptions::new_safe()
        .set_strict_mode(true)
        .set_max_width(side)
        .set_max_height(side)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(Cursor::new(bytes), options);
    decoder.decode_headers().map_err(failed)?;
    let (width, height) = decoder.info().map_or((0, 0), |info| (info.width, info.height));
    let (width, height) = (u32::from(width), u32::from(height));
    check_size(width, height)?;
    let samples = match decoder.input_colorspace() {
        Some(ColorSpace::CMYK | ColorSpace::YCCK) => return Err(DecodeError::Cmyk),
        Some(ColorSpace::Luma) => {
            decoder.set_options(options.jpeg_set_out_colorspace(ColorSpace::Luma));
            1
        }
        _ => 3,
    };
    let decoded = decoder.decode().map_err(failed)?;
    let expected = width as usize * height as usize * samples;
    if decoded.len() != expected {
        return Err(DecodeError::Cut { expected, found: decoded.len() });
    }
    copy_pixels(&decoded, samples, image.reset(width, height));
    Ok(())
}

/// Reads one number of a PPM header: white space and comments, then digits.
fn ppm_number(bytes: &mut &[u8]) -> Option<u32> {
    loop {
        match bytes {
            [b'#', rest @ ..] => {
                let end = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r')?;
                *bytes = &rest[end..];
            }
            [byte, rest @ ..] if byte.is_ascii_whitespace() => *bytes = rest,
            _ => break,
        }
    }
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = bytes.split_at(digits);
    *bytes = rest;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// PPM as of netpbm: `P6`, width, height, maximum, one white space, pixels.
fn decode_ppm(mut rest: &[u8], image: &mut RgbImage) -> Result<(), DecodeError> {
    let mut number = || ppm_number(&mut rest).ok_or(DecodeError::PpmHeader);
    let (width, height, maximum) = (number()?, number()?, number()?);
    check_size(width, height)?;
    if maximum != 255 {
        return Err(DecodeError::PpmMaximum(maximum));
    }
    let [white, pixels @ ..] = rest else { return Err(DecodeError::PpmHeader) };
    if !white.is_ascii_whitespace() {
        return Err(DecodeError::PpmHeader);
    }
    let out = image.reset(width, height);
    let (expected, found) = (out.len(), pixels.len());
    let pixels = pixels.get(..expected).ok_or(DecodeError::Cut { expected, found })?;
    out.copy_from_slice(pixels);
    Ok(())
}

#[cfg(test)]
mod tests;
