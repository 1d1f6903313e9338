//! Bilinear resize, bit for bit as Pillow's `Image.resize(size, Image.BILINEAR)` on 8-bit RGB.
//!
//! The model was trained on images that Pillow resized, so "nearly the same" pixels would be an
//! error that nobody finds. The rules, which Pillow shares with no other common library:
//!
//! - Sample centres lie at half pixels; output `x` looks at input `(x + 0.5) × scale`.
//! - The triangle has a radius of one *source* pixel when enlarging and of `scale` source pixels
//!   when reducing (an antialiased reduction); taps beyond the edge are left out and the rest is
//!   normalised to one.
//! - Weights are rounded to 22 fractional bits; a sum is rounded half up and clamped to 0..=255.
//! - The horizontal pass comes first and is rounded to 8 bits before the vertical pass.
//!   (Pillow 13 began to take the vertical pass first where that is less work, for some tall images
//!   that are reduced; there its pixels differ from these, and from its own of before, by a step.)

/// Fractional bits of a weight: 8 bits of pixel and 2 bits of headroom of an `i32` remain.
const WEIGHT_BITS: u32 = 22;

/// Bytes of a pixel: R, G, B.
const CHANNELS: usize = 3;

/// The taps of one axis: for each output position a run of input positions and their weights.
#[derive(Debug)]
struct Axis {
    /// First input position and number of taps, per output position.
    runs: Vec<(usize, usize)>,
    /// Weights of all runs, one after another, in 2^-22.
    weights: Vec<i32>,
}

/// Truncates toward zero, as a C cast does. Only for coordinates, which are far below 2^31.
#[expect(clippy::cast_possible_truncation, reason = "coordinates of images, below 2^31")]
const fn truncate(value: f64) -> i64 {
    value as i64
}

impl Axis {
    /// The taps that turn `from` samples into `to`. Both at least 1.
    fn new(from: u32, to: u32) -> Self {
        let scale = f64::from(from) / f64::from(to);
        // The radius of the triangle: one source pixel, or more when reducing.
        let radius = scale.max(1.0);
        let sharpness = 1.0 / radius;
        let mut runs = Vec::new();
        let mut weights = Vec::new();
        let mut exact = Vec::new();
        for position in 0..to {
            let centre = (f64::from(position) + 0.5) * scale;
            let first = truncate(centre - radius + 0.5).max(0);
            let end = truncate(centre + radius + 0.5).min(i64::from(from));
            exact.clear();
            exact.extend((first..end).map(|tap| {
                #[expect(clippy::cast_precision_loss, reason = "an image coordinate")]
                let distance = (tap as f64 - centre + 0.5) * sharpness;
                (1.0 - distance.abs()).max(0.0)
            }));
            // The tap at the centre is always inside and has a weight above zero.
            let sum: f64 = exact.iter().sum();
            #[expect(clippy::cast_possible_truncation, reason = "0..=2^22")]
            weights.extend(exact.iter().map(|weight| {
                truncate(0.5 + weight / sum * f64::from(1_u32 << WEIGHT_BITS)) as i32
            }));
            runs.push((usize::try_from(first).unwrap_or(0), exact.len()));
        }
        Self { runs, weights }
    }

    /// The runs with their weights, in output order.
    fn taps(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let mut rest = &self.weights[..];
        self.runs.iter().map(move |&(first, count)| {
            let (weights, tail) = rest.split_at(count);
            rest = tail;
            (first, weights)
        })
    }
}

/// Rounds a weighted sum half up and clamps it to a pixel.
fn to_pixel(sum: i32) -> u8 {
    let rounded = (sum + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
    u8::try_from(rounded.clamp(0, 255)).unwrap_or(u8::MAX)
}

/// A resize between two fixed sizes, with its tables and its buffer made once.
#[derive(Debug)]
pub struct Resizer {
    from: (u32, u32),
    to: (u32, u32),
    horizontal: Axis,
    vertical: Axis,
    /// After the horizontal pass. Shape: `[source height, target width, 3]`, u8.
    rows: Vec<u8>,
}

impl Resizer {
    /// Prepares the resize of `from` to `to`, each (width, height) in pixels.
    ///
    /// A side of 0 is taken as 1: the callers refuse such images and such geometries.
    #[must_use]
    pub fn new(from: (u32, u32), to: (u32, u32)) -> Self {
        let from = (from.0.max(1), from.1.max(1));
        let to = (to.0.max(1), to.1.max(1));
        Self {
            from,
            to,
            horizontal: Axis::new(from.0, to.0),
            vertical: Axis::new(from.1, to.1),
            rows: vec![0; from.1 as usize * to.0 as usize * CHANNELS],
        }
    }

    /// The source size this was made for, (width, height).
    #[must_use]
    pub const fn from(&self) -> (u32, u32) {
        self.from
    }

    /// Bytes of a target image: width × height × 3.
    #[must_use]
    pub const fn target_bytes(&self) -> usize {
        self.to.0 as usize * self.to.1 as usize * CHANNELS
    }

    /// Resizes one image.
    ///
    /// Shapes: `source` is `[source height, source width, 3]`, `target` is
    /// `[target height, target width, 3]`, both u8 R,G,B.
    ///
    /// # Panics
    ///
    /// When a slice has not the length of its shape: a broken contract between two functions of
    /// this module, never a matter of input.
    pub fn resize(&mut self, source: &[u8], target: &mut [u8]) {
        let source_row = self.from.0 as usize * CHANNELS;
        let target_row = self.to.0 as usize * CHANNELS;
        assert_eq!(source.len(), source_row * self.from.1 as usize, "length of the source image");
        assert_eq!(target.len(), target_row * self.to.1 as usize, "length of the target image");

        let lines = source.chunks_exact(source_row).zip(self.rows.chunks_exact_mut(target_row));
        for (line, out) in lines {
            for ((first, weights), pixel) in self.horizontal.taps().zip(out.as_chunks_mut().0) {
                *pixel = weigh(&line[first * CHANNELS..], weights);
            }
        }
        for ((first, weights), out) in self.vertical.taps().zip(target.chunks_exact_mut(target_row))
        {
            let rows = &self.rows[first * target_row..];
            for (x, byte) in out.iter_mut().enumerate() {
                let column = rows[x..].iter().step_by(target_row);
                let sum = column.zip(weights).map(|(&p, &w)| i32::from(p) * w).sum();
                *byte = to_pixel(sum);
            }
        }
    }
}

/// The weighted sum of the pixels at the start of `line`.
fn weigh(line: &[u8], weights: &[i32]) -> [u8; CHANNELS] {
    let mut sums = [0_i32; CHANNELS];
    for (pixel, &weight) in line.as_chunks::<CHANNELS>().0.iter().zip(weights) {
        for (sum, &value) in sums.iter_mut().zip(pixel) {
            *sum += i32::from(value) * weight;
        }
    }
    sums.map(to_pixel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testkit::{self, read_json};

    /// The test image of the table below: no symmetry, all byte values, no two equal channels.
    fn pattern(width: u32, height: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for y in 0..height {
            for x in 0..width {
                for c in 0..3 {
                    let value = x * 37 + y * 101 + c * 59 + (x * y) % 251;
                    out.push(u8::try_from(value % 256).expect("below 256"));
                }
            }
        }
        out
    }

    fn resized(from: (u32, u32), to: (u32, u32)) -> Vec<u8> {
        let mut resizer = Resizer::new(from, to);
        let mut out = vec![0; resizer.target_bytes()];
        resizer.resize(&pattern(from.0, from.1), &mut out);
        out
    }

    /// Width and height.
    type Size = (u32, u32);

    /// CRC-32 of `Image.frombytes("RGB", from, pattern).resize(to, Image.BILINEAR).tobytes()`,
    /// computed with Pillow 12.0.0.
    const PILLOW: &[(Size, Size, u32)] = &[
        ((32, 32), (224, 224), 0x49ff6676),
        ((32, 32), (16, 16), 0x0b17a75f),
        ((224, 224), (224, 224), 0x46599a58),
        ((300, 200), (224, 224), 0x627ff8f8),
        ((97, 61), (13, 7), 0xeaf0c3e5),
        ((1, 1), (5, 5), 0x39df4d38),
        ((5, 3), (1, 1), 0x699f08ff),
        ((640, 480), (224, 224), 0x28ae3e48),
        ((10, 1000), (224, 3), 0x2ee0d1cb),
        ((223, 225), (224, 224), 0xb552da87),
        ((31, 224), (224, 31), 0xb1da3fec),
        ((3000, 2), (2, 3000), 0x3afcdf13),
        ((33, 32), (32, 32), 0x9746f293),
        ((2, 2), (3, 3), 0xf0c16bd9),
        ((1000, 1), (7, 1), 0x04696d23),
    ];

    #[test]
    fn every_size_is_pillows_bit_for_bit() {
        for &(from, to, crc) in PILLOW {
            assert_eq!(crc32fast::hash(&resized(from, to)), crc, "{from:?} -> {to:?}");
        }
    }

    #[test]
    fn the_same_size_is_the_same_image() {
        assert_eq!(resized((17, 9), (17, 9)), pattern(17, 9));
    }

    #[test]
    fn a_second_image_does_not_see_the_first() {
        let mut resizer = Resizer::new((8, 8), (20, 20));
        let mut out = vec![0; resizer.target_bytes()];
        resizer.resize(&[255; 192], &mut out);
        resizer.resize(&pattern(8, 8), &mut out);
        assert_eq!(out, resized((8, 8), (20, 20)));
    }

    /// The reference set of the project: 64 CIFAR-10 images with the CRC and the sum of the pixels
    /// that the golden logits were computed from.
    #[test]
    fn the_reference_images_have_their_crc_and_sum() {
        let Some(shared) = testkit::shared() else { return };
        let golden = read_json(&shared.join("models/golden.json"));
        let data = std::fs::read(shared.join("data/cifar10_test_1000.bin")).expect("readable");
        let mut resizer = Resizer::new((32, 32), (224, 224));
        let mut out = vec![0; resizer.target_bytes()];
        let entries = golden["golden"].as_array().expect("a list");
        assert_eq!(entries.len(), 64);
        for (record, entry) in data.chunks_exact(3073).zip(entries) {
            let planes = &record[1..];
            let pixels: Vec<u8> =
                (0..1024).flat_map(|i| [planes[i], planes[1024 + i], planes[2048 + i]]).collect();
            resizer.resize(&pixels, &mut out);
            let sum: u64 = out.iter().map(|&p| u64::from(p)).sum();
            assert_eq!(Some(sum), entry["u8_224_sum"].as_u64(), "image {}", entry["i"]);
            let crc = u64::from(crc32fast::hash(&out));
            assert_eq!(Some(crc), entry["u8_224_crc32"].as_u64(), "image {}", entry["i"]);
        }
    }
}
