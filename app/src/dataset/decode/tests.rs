use super::*;

/// 16 × 16 pixels of (200, 40, 90), 77 grey, and a CMYK tint; written by Pillow 13.0.0.
const RGB: &[u8] = include_bytes!("rgb.jpg");
const PROGRESSIVE: &[u8] = include_bytes!("progressive.jpg");
const GREY: &[u8] = include_bytes!("grey.jpg");
const CMYK: &[u8] = include_bytes!("cmyk.jpg");

fn png(
    width: u32,
    height: u32,
    color: png::ColorType,
    depth: png::BitDepth,
    palette: Option<&[u8]>,
    data: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if let Some(palette) = palette {
        encoder.set_palette(palette.to_vec());
    }
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(data).expect("the pixels");
    writer.finish().expect("the end");
    out
}

fn decoded(bytes: &[u8]) -> (RgbImage, Reduced) {
    let mut image = RgbImage::default();
    let reduced = decode(bytes, &mut image).expect("an image");
    (image, reduced)
}

fn refusal(bytes: &[u8]) -> String {
    decode(bytes, &mut RgbImage::default()).expect_err("refused").to_string()
}

#[test]
fn every_kind_of_png_becomes_rgb() {
    use png::{BitDepth, ColorType};
    let plain = Reduced::default();
    let alpha = Reduced { alpha: true, depth: false };
    let depth = Reduced { alpha: false, depth: true };

    let rgb = png(2, 1, ColorType::Rgb, BitDepth::Eight, None, &[1, 2, 3, 4, 5, 6]);
    let (image, reduced) = decoded(&rgb);
    assert_eq!((image.width, image.height, reduced), (2, 1, plain));
    assert_eq!(image.pixels, [1, 2, 3, 4, 5, 6]);

    let rgba = png(2, 1, ColorType::Rgba, BitDepth::Eight, None, &[1, 2, 3, 0, 4, 5, 6, 9]);
    assert_eq!(decoded(&rgba), (image.clone(), alpha));

    let grey = png(2, 1, ColorType::Grayscale, BitDepth::Eight, None, &[7, 9]);
    assert_eq!(decoded(&grey).0.pixels, [7, 7, 7, 9, 9, 9]);
    let grey = png(2, 1, ColorType::GrayscaleAlpha, BitDepth::Eight, None, &[7, 1, 9, 2]);
    assert_eq!(decoded(&grey).0.pixels, [7, 7, 7, 9, 9, 9]);
    assert_eq!(decoded(&grey).1, alpha);

    let colors = [10, 20, 30, 40, 50, 60];
    let palette = png(2, 1, ColorType::Indexed, BitDepth::One, Some(&colors), &[0b0100_0000]);
    assert_eq!(decoded(&palette).0.pixels, [10, 20, 30, 40, 50, 60]);

    let deep = png(1, 1, ColorType::Rgb, BitDepth::Sixteen, None, &[1, 200, 2, 200, 3, 200]);
    assert_eq!(decoded(&deep), (RgbImage { width: 1, height: 1, pixels: vec![1, 2, 3] }, depth));
}

#[test]
fn a_cut_png_is_refused() {
    let data: Vec<u8> = (0..=255).cycle().take(32 * 32 * 3).collect();
    let whole = png(32, 32, png::ColorType::Rgb, png::BitDepth::Eight, None, &data);
    assert_eq!(decoded(&whole).0.pixels, data);
    for keep in [8, 20, whole.len() / 2, whole.len() - 20] {
        assert!(refusal(&whole[..keep]).starts_with("PNG: "), "cut to {keep} bytes");
    }
}

#[test]
fn jpeg_in_colour_progressive_and_grey() {
    for bytes in [RGB, PROGRESSIVE] {
        let (image, _) = decoded(bytes);
        assert_eq!((image.width, image.height), (16, 16));
        for pixel in image.pixels.as_chunks::<3>().0 {
            let far = pixel.iter().zip([200_u8, 40, 90]).any(|(&a, b)| a.abs_diff(b) > 2);
            assert!(!far, "{pixel:?}");
        }
    }
    assert_eq!(decoded(GREY).0.pixels, [77; 16 * 16 * 3]);
}

#[test]
fn jpeg_that_cannot_be_used_is_refused_by_name() {
    assert!(refusal(CMYK).contains("CMYK"));
    assert!(refusal(&RGB[..300]).starts_with("JPEG: "));
    assert!(refusal(&[0xff, 0xd8, 0xff]).starts_with("JPEG: "));
}

#[test]
fn ppm_with_comments_and_its_faults() {
    let (image, _) = decoded(b"P6 # made by hand\n2 1\n# max\n255\n\x01\x02\x03\x04\x05\x06");
    assert_eq!(image.pixels, [1, 2, 3, 4, 5, 6]);
    assert_eq!(refusal(b"P6 2 1 255\n\x01\x02"), "cut short: 2 of 6 bytes of pixels");
    assert!(refusal(b"P6 2 1 1023\n").contains("maximum 1023"));
    assert!(refusal(b"P6 2").contains("header"));
    assert!(refusal(b"P6 2 -1 255\n").contains("header"));
    assert!(refusal(b"P3 1 1 255 0 0 0").starts_with("a P3 file"));
}

#[test]
fn sizes_are_checked_before_the_memory_is_taken() {
    assert!(refusal(b"P6 0 5 255\n").starts_with("0 × 5 pixels"));
    assert!(refusal(b"P6 99999 5 255\n").starts_with("99999 × 5 pixels"));
    assert!(refusal(b"P6 16384 16384 255\n").starts_with("16384 × 16384 pixels"));
    let mut huge = png(1, 1, png::ColorType::Grayscale, png::BitDepth::Eight, None, &[0]);
    // Width 2^30 with its checksum: the header alone decides.
    huge[16] = 0x40;
    let crc = crc32fast::hash(&huge[12..29]).to_be_bytes();
    huge[29..33].copy_from_slice(&crc);
    assert!(refusal(&huge).starts_with("1073741825 × 1 pixels"), "{}", refusal(&huge));
}

#[test]
fn other_files_are_refused() {
    assert_eq!(refusal(b"GIF89a"), "neither PNG nor JPEG nor PPM (P6)");
    assert_eq!(refusal(b""), "neither PNG nor JPEG nor PPM (P6)");
}
