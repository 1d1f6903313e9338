//! Synthetic images: ten classes of shapes that need no file. The same seed gives the same images
//! on every machine: integer arithmetic only.
//!
//! A class is a shape in its own colour on a grey ground; place, size, ground and noise vary from
//! image to image. Each ten images in a row hold every class once, in shuffled order. There is no
//! last image.

use super::DatasetError;
use super::image::{ImageSource, RgbImage};

/// Name and colour (R,G,B) of each class.
const CLASSES: [(&str, [u8; 3]); 10] = [
    ("disc", [220, 40, 40]),
    ("square", [40, 190, 60]),
    ("triangle", [50, 90, 230]),
    ("rows", [235, 215, 40]),
    ("columns", [40, 210, 220]),
    ("ring", [215, 60, 210]),
    ("cross", [240, 240, 240]),
    ("checks", [240, 140, 30]),
    ("diagonals", [130, 80, 30]),
    ("diamond", [10, 10, 20]),
];

/// Side of the square that shapes are drawn in, whatever the image has in pixels.
const UNIT: i64 = 1024;

/// Side of a synthetic source image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyntheticSize {
    /// 32 × 32, like CIFAR-10: it is resized to the geometry.
    #[default]
    Small,
    /// 224 × 224: no resize at the documented geometry.
    Full,
}

impl SyntheticSize {
    /// Side in pixels.
    #[must_use]
    pub const fn side(self) -> u32 {
        match self {
            Self::Small => 32,
            Self::Full => 224,
        }
    }
}

/// A small generator (`SplitMix64`): one multiplication chain per number, no state to share.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// The generator number `stream` of a seed.
    fn new(seed: u64, stream: u64) -> Self {
        let mut base = Self(seed);
        let mixed = base.next();
        Self(mixed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included. `low ≤ high`, less than 2^32 apart.
    fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(high - low + 1).unwrap_or(1);
        // The high half times the span: no modulo bias worth naming at these spans.
        low + i64::try_from(((self.next() >> 32) * span) >> 32).unwrap_or(0)
    }
}

/// Place and size of a shape, in units.
#[derive(Clone, Copy, Debug)]
struct Shape {
    x: i64,
    y: i64,
    radius: i64,
}

impl Shape {
    /// Whether the shape of `class` covers the point (u, v).
    const fn covers(self, class: usize, u: i64, v: i64) -> bool {
        let (x, y, r) = (u - self.x, v - self.y, self.radius);
        let (dx, dy) = (x.abs(), y.abs());
        let distance = dx * dx + dy * dy;
        // The patterns fill the image; place shifts them and size is their width.
        let width = r / 2;
        match class {
            0 => distance < r * r,
            1 => dx < r && dy < r,
            2 => dy < r && 2 * dx < y + r,
            3 => y.div_euclid(width) % 2 == 0,
            4 => x.div_euclid(width) % 2 == 0,
            5 => distance < r * r && 4 * distance > r * r,
            6 => (3 * dx < r && dy < r) || (3 * dy < r && dx < r),
            7 => (x.div_euclid(width) + y.div_euclid(width)) % 2 == 0,
            8 => (x + y).div_euclid(width) % 2 == 0,
            _ => dx + dy < r,
        }
    }
}

/// The endless set of one seed.
#[derive(Debug)]
pub(crate) struct Synthetic {
    seed: u64,
    side: u32,
    classes: Vec<String>,
}

impl Synthetic {
    /// The images of `seed`.
    pub(crate) fn new(seed: u64, size: SyntheticSize) -> Self {
        let classes = CLASSES.iter().map(|(name, _)| (*name).to_string()).collect();
        Self { seed, side: size.side(), classes }
    }

    /// The class of image `index`: its place in the shuffled ten that it belongs to.
    fn class(&self, index: u64) -> usize {
        let ten = CLASSES.len() as u64;
        let mut random = Random::new(self.seed, !(index / ten));
        let mut order: [usize; CLASSES.len()] = std::array::from_fn(|class| class);
        for last in (1..order.len()).rev() {
            let upper = i64::try_from(last).unwrap_or(0);
            order.swap(last, usize::try_from(random.between(0, upper)).unwrap_or(0));
        }
        order[usize::try_from(index % ten).unwrap_or(0)]
    }
}

impl ImageSource for Synthetic {
    fn len(&self) -> Option<u64> {
        None
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&mut self, index: u64, image: &mut RgbImage) -> Result<Option<u16>, DatasetError> {
        let class = self.class(index);
        let color = CLASSES[class].1;
        let mut random = Random::new(self.seed, index);
        let middle = UNIT / 2;
        let shape = Shape {
            x: random.between(middle - 110, middle + 110),
            y: random.between(middle - 110, middle + 110),
            radius: random.between(250, 370),
        };
        let ground = random.between(90, 150);
        let side = i64::from(self.side);
        let pixels = image.reset(self.side, self.side).as_chunks_mut::<3>().0;
        for (i, pixel) in (0..).zip(pixels) {
            // The point in the middle of the pixel, in units.
            let u = ((i % side) * 2 + 1) * UNIT / (2 * side);
            let v = ((i / side) * 2 + 1) * UNIT / (2 * side);
            let inside = shape.covers(class, u, v);
            for (byte, part) in pixel.iter_mut().zip(color) {
                let base = if inside { i64::from(part) } else { ground };
                let value = base + random.between(-18, 18);
                *byte = u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX);
            }
        }
        Ok(Some(u16::try_from(class).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(source: &mut Synthetic, index: u64) -> (usize, Vec<u8>) {
        let mut image = RgbImage::default();
        let label = source.read(index, &mut image).expect("endless").expect("labelled");
        (usize::from(label), image.pixels)
    }

    /// Mean colour of each cell of a 4 × 4 grid of a 32 × 32 image.
    fn cells(pixels: &[u8]) -> Vec<f64> {
        let mut cells = vec![0.0; 48];
        for (i, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
            let cell = (i / 32 / 8) * 4 + i % 32 / 8;
            for (c, &value) in pixel.iter().enumerate() {
                cells[cell * 3 + c] += f64::from(value) / 64.0;
            }
        }
        cells
    }

    #[test]
    fn the_same_seed_gives_the_same_images_in_any_order() {
        let mut a = Synthetic::new(7, SyntheticSize::Small);
        let mut b = Synthetic::new(7, SyntheticSize::Small);
        let forward: Vec<_> = (0..20).map(|i| image(&mut a, i)).collect();
        let mut backward: Vec<_> = (0..20).rev().map(|i| image(&mut b, i)).collect();
        backward.reverse();
        assert!(forward == backward);
        let mut other = Synthetic::new(8, SyntheticSize::Small);
        assert!(forward.iter().enumerate().all(|(i, f)| f.1 != image(&mut other, i as u64).1));
        // No two images of a set are alike.
        let mut all: Vec<_> = forward.into_iter().map(|(_, pixels)| pixels).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 20);
    }

    /// The set must not change under a user who keeps a seed: this is its first image.
    #[test]
    fn the_images_of_a_seed_are_pinned() {
        let mut small = Synthetic::new(1, SyntheticSize::Small);
        let mut full = Synthetic::new(1, SyntheticSize::Full);
        let (small, full) = (image(&mut small, 0), image(&mut full, 0));
        assert_eq!(full.1.len(), 224 * 224 * 3);
        let seen = [crc32fast::hash(&small.1), crc32fast::hash(&full.1)];
        assert_eq!((small.0, full.0, seen), (3, 3, [3_320_416_018, 3_088_512_339]));
    }

    #[test]
    fn ten_in_a_row_hold_every_class_in_shuffled_order() {
        let source = Synthetic::new(3, SyntheticSize::Small);
        let tens: Vec<Vec<usize>> =
            (0..20).map(|ten| (0..10).map(|i| source.class(ten * 10 + i)).collect()).collect();
        for ten in &tens {
            let mut sorted = ten.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        }
        assert!(tens.iter().any(|ten| ten != &tens[0]));
    }

    /// Classes are told apart by the simplest classifier there is: the nearest class mean of a
    /// 4 × 4 thumbnail, learned on 200 images and tried on 200 others.
    #[test]
    fn classes_are_distinct() {
        let mut source = Synthetic::new(11, SyntheticSize::Small);
        let mut means = vec![vec![0.0; 48]; 10];
        for i in 0..200 {
            let (class, pixels) = image(&mut source, i);
            for (mean, value) in means[class].iter_mut().zip(cells(&pixels)) {
                *mean += value / 20.0;
            }
        }
        let distance =
            |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum() };
        let right = (200..400)
            .filter(|&i| {
                let (class, pixels) = image(&mut source, i);
                let seen = cells(&pixels);
                let nearest = (0..10).min_by(|&a, &b| {
                    distance(&means[a], &seen).total_cmp(&distance(&means[b], &seen))
                });
                nearest == Some(class)
            })
            .count();
        assert!(right >= 190, "{right} of 200");
    }
}
