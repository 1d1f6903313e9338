//! How large the values inside a network are: what an int8 model needs to know.
//!
//! The network is run on images of a capture, its norms folded, and each value that will be
//! quantized is counted in a histogram of magnitudes. The largest magnitude that int8 stands for is
//! the one with the least squared error over that histogram, or the one that loses least of what
//! the histogram tells: the few values beyond it are cut off, and all others get finer steps.

use std::collections::BTreeMap;

use tensorwire_onnx::{Probe, RunError};

use super::options::Method;

/// Bins of a histogram.
const BINS: usize = 2_048;
/// Steps of int8 on each side of 0.
const STEPS: f32 = 127.0;
/// Least magnitude that is tried, in bins: below it there are no more bins than steps.
const FIRST: usize = 128;
/// Bins between two magnitudes that are tried.
const STRIDE: usize = 8;

/// The step of int8 of each value, by the name of the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scales(pub(crate) BTreeMap<String, f32>);

impl Scales {
    /// As TensorRT's calibration cache: a line with version and kind, then the step of each value
    /// as the bits of an fp32 in hexadecimal. TensorRT refuses a cache whose first line is another
    /// version's; it does not depend on the GPU.
    pub(crate) fn table(&self, version: u32, method: Method) -> String {
        let kind = match method {
            Method::LeastError | Method::Entropy => "EntropyCalibration2",
            Method::MinMax => "MinMaxCalibration",
        };
        let mut text = format!("TRT-{version}-{kind}\n");
        for (name, scale) in &self.0 {
            text += &format!("{name}: {:08x}\n", scale.to_bits());
        }
        text
    }
}

/// Magnitudes, counted. The range doubles when a value is beyond it.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bins: Vec<u64>,
    /// The end of the last bin; 0 before the first value other than 0.
    range: f32,
    largest: f32,
}

fn as_f32(value: usize) -> f32 {
    u16::try_from(value).map_or(f32::MAX, f32::from)
}

/// A count as a weight.
#[expect(clippy::cast_precision_loss, reason = "a weight, exact up to 2^53")]
fn weight(count: u64) -> f64 {
    count as f64
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { bins: vec![0; BINS], range: 0.0, largest: 0.0 }
    }

    /// Counts the magnitudes of `values`. Zeros are exact in int8 and do not count.
    pub(crate) fn add(&mut self, values: &[f32]) {
        let largest = values.iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
        if largest == 0.0 || !largest.is_finite() {
            return;
        }
        self.largest = self.largest.max(largest);
        if self.range == 0.0 {
            self.range = largest;
        }
        while largest > self.range {
            for bin in 0..BINS / 2 {
                self.bins[bin] = self.bins[2 * bin] + self.bins[2 * bin + 1];
            }
            self.bins[BINS / 2..].fill(0);
            self.range *= 2.0;
        }
        let per_unit = as_f32(BINS) / self.range;
        for value in values.iter().map(|v| v.abs()).filter(|v| *v > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to BINS: the value is positive and within the range"
            )]
            let bin = (value * per_unit) as usize;
            self.bins[bin.min(BINS - 1)] += 1;
        }
    }

    /// The step of int8; 1 where only zeros came, which any step stands for.
    pub(crate) fn scale(&self, method: Method) -> f32 {
        if self.largest == 0.0 {
            return 1.0;
        }
        match method {
            Method::MinMax => self.largest / STEPS,
            Method::LeastError => self.least(|_, scale| self.squared_error(scale)),
            Method::Entropy => self.least(|bins, _| self.divergence(bins)),
        }
    }

    /// The step, of those that are tried, with the least loss by its number of bins and itself.
    fn least(&self, loss: impl Fn(usize, f32) -> f64) -> f32 {
        let width = self.range / as_f32(BINS);
        let limit = |bins: usize| (as_f32(bins) * width).min(self.largest) / STEPS;
        let tried = (FIRST..=BINS).step_by(STRIDE).map(|bins| (bins, limit(bins)));
        let with_loss = tried.map(|(bins, scale)| (loss(bins, scale), scale));
        let best = with_loss.min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or(self.largest / STEPS, |(_, scale)| scale)
    }

    /// What is lost when the magnitudes of the first `bins` bins become int8 and those beyond are
    /// cut off: the Kullback–Leibler divergence, in nats, of the counts with the cut ones in the
    /// last bin from the counts as 128 steps give them back, evenly over the bins that had some
    /// (Migacz, "8-bit inference with TensorRT", GTC 2017). A last bin that has only what was cut
    /// off is given back half a count: with none the divergence would be infinite.
    fn divergence(&self, bins: usize) -> f64 {
        let (kept, cut) = self.bins.split_at(bins);
        let cut: u64 = cut.iter().sum();
        let (all, inside) = (weight(kept.iter().sum::<u64>() + cut), weight(kept.iter().sum()));
        let mut divergence = 0.0;
        for step in 0..FIRST {
            let (first, end) = (step * bins / FIRST, (step + 1) * bins / FIRST);
            let filled = kept[first..end].iter().filter(|count| **count > 0).count();
            let sum: u64 = kept[first..end].iter().sum();
            for (bin, &count) in (first..end).zip(&kept[first..end]) {
                let with_cut = if bin + 1 == bins { count + cut } else { count };
                if with_cut == 0 {
                    continue;
                }
                let given_back = if count == 0 { 0.5 } else { weight(sum) / weight(filled as u64) };
                let (p, q) = (weight(with_cut) / all, given_back / inside);
                divergence += p * (p / q).ln();
            }
        }
        divergence
    }

    /// The sum of squared differences between each magnitude and what int8 makes of it.
    fn squared_error(&self, scale: f32) -> f64 {
        let width = self.range / as_f32(BINS);
        let filled = self.bins.iter().enumerate().filter(|(_, count)| **count > 0);
        filled
            .map(|(bin, &count)| {
                let middle = (as_f32(bin) + 0.5) * width;
                let step = (middle / scale).round().min(STEPS) * scale;
                let error = f64::from(middle - step);
                error * error * weight(count)
            })
            .sum()
    }
}

/// Runs `images` (fp32, as the model takes them) through `probe` and counts every value.
///
/// # Errors
///
/// [`RunError`] when the model cannot be run. `seen` is told of each image and stops by `false`.
pub(crate) fn count(
    probe: &Probe,
    images: &[Vec<f32>],
    mut seen: impl FnMut(usize) -> bool,
) -> Result<Vec<(String, Histogram)>, RunError> {
    let mut histograms: Vec<(String, Histogram)> =
        probe.names().map(|name| (name.to_owned(), Histogram::new())).collect();
    for (number, image) in images.iter().enumerate() {
        probe.run(image, |value, data| histograms[value].1.add(data))?;
        if !seen(number + 1) {
            break;
        }
    }
    Ok(histograms)
}

/// The scale of each value.
pub(crate) fn scales(histograms: &[(String, Histogram)], method: Method) -> Scales {
    let scale = |(name, histogram): &(String, Histogram)| (name.clone(), histogram.scale(method));
    Scales(histograms.iter().map(scale).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(count: u16, largest: f32) -> Vec<f32> {
        (1..=count).map(|n| f32::from(n) / f32::from(count) * largest).collect()
    }

    #[test]
    fn values_spread_evenly_use_the_whole_range() {
        let mut histogram = Histogram::new();
        histogram.add(&ramp(10_000, 6.35));
        let exact = histogram.scale(Method::MinMax);
        assert!((exact - 0.05).abs() < 1e-6, "{exact}");
        for method in [Method::LeastError, Method::Entropy] {
            let chosen = histogram.scale(method);
            assert!((chosen / exact - 1.0).abs() < 0.02, "{method}: {chosen}");
        }
    }

    #[test]
    fn one_value_far_out_does_not_coarsen_the_others() {
        let mut histogram = Histogram::new();
        for _ in 0..100 {
            histogram.add(&ramp(10_000, 1.0));
        }
        histogram.add(&[20.0]);
        assert!((histogram.scale(Method::MinMax) - 20.0 / 127.0).abs() < 1e-6);
        for method in [Method::LeastError, Method::Entropy] {
            let chosen = histogram.scale(method);
            assert!(chosen < 4.0 / 127.0, "{method}: {chosen}: the range is that of the many");
        }
    }

    /// Against the definition, over bins that are written down.
    #[test]
    fn the_divergence_is_that_of_counts_given_back_by_128_steps() {
        let mut histogram = Histogram { range: 2_048.0, largest: 2_048.0, ..Histogram::new() };
        // Two bins to a step: the first step has 3 and 1, the last but one of 256 bins 4, the last
        // 2 and, cut off, 6.
        for (bin, count) in [(0, 3), (1, 1), (254, 4), (255, 2), (256, 5), (2_047, 1)] {
            histogram.bins[bin] = count;
        }
        let term = |p: f64, q: f64| p / 16.0 * ((p / 16.0) / (q / 10.0)).ln();
        let expected = term(3.0, 2.0) + term(1.0, 2.0) + term(4.0, 3.0) + term(8.0, 3.0);
        let found = histogram.divergence(256);
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
        // The last of 260 bins has nothing but the one that was cut off.
        let term = |p: f64, q: f64| p / 16.0 * ((p / 16.0) / (q / 15.0)).ln();
        let expected = term(3.0, 2.0) + term(1.0, 2.0) + term(4.0, 4.0) + term(2.0, 3.5);
        let expected = expected + term(5.0, 3.5) + term(1.0, 0.5);
        let found = histogram.divergence(260);
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    }

    #[test]
    fn the_range_doubles_and_nothing_is_lost() {
        let mut histogram = Histogram::new();
        for largest in [0.5, 1.0, 3.0, 40.0] {
            histogram.add(&ramp(1_000, largest));
        }
        assert_eq!(histogram.bins.iter().sum::<u64>(), 4_000);
        assert!(histogram.range >= 40.0 && histogram.largest == 40.0);
    }

    #[test]
    fn a_table_is_what_tensorrt_reads() {
        let scales = Scales([("input".to_owned(), 1.0), ("relu".to_owned(), 0.05)].into());
        let text = scales.table(8600, Method::LeastError);
        assert_eq!(text, "TRT-8600-EntropyCalibration2\ninput: 3f800000\nrelu: 3d4ccccd\n");
        assert_eq!(scales.table(8600, Method::Entropy), text);
        assert!(
            scales.table(100_300, Method::MinMax).starts_with("TRT-100300-MinMaxCalibration\n")
        );
    }

    #[test]
    fn zeros_alone_have_some_step() {
        let mut histogram = Histogram::new();
        histogram.add(&[0.0; 16]);
        histogram.add(&[f32::INFINITY]);
        assert_eq!(histogram.scale(Method::LeastError), 1.0);
    }
}
