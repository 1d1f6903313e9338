//! How large the values inside a network are: what an int8 model needs to know.
//!
//! The network is run on images of a capture, its norms folded, and each value that will be
//! quantized is counted in a histogram of magnitudes. The largest magnitude that int8 stands for is
//! the one with the least squared error over that histogram: the few values beyond it are cut off,
//! and all others get finer steps.

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
            Method::LeastError => "EntropyCalibration2",
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
            Method::LeastError => {
                let width = self.range / as_f32(BINS);
                let limit = |bins: usize| (as_f32(bins) * width).min(self.largest) / STEPS;
                let tried = (FIRST..=BINS).step_by(STRIDE).map(limit);
                let with_error = tried.map(|scale| (self.squared_error(scale), scale));
                let best = with_error.min_by(|a, b| a.0.total_cmp(&b.0));
                best.map_or(self.largest / STEPS, |(_, scale)| scale)
            }
        }
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
                #[expect(clippy::cast_precision_loss, reason = "a weight of a sum")]
                let count = count as f64;
                error * error * count
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
        let chosen = histogram.scale(Method::LeastError);
        assert!((chosen / exact - 1.0).abs() < 0.02, "{chosen}");
    }

    #[test]
    fn one_value_far_out_does_not_coarsen_the_others() {
        let mut histogram = Histogram::new();
        for _ in 0..100 {
            histogram.add(&ramp(10_000, 1.0));
        }
        histogram.add(&[20.0]);
        assert!((histogram.scale(Method::MinMax) - 20.0 / 127.0).abs() < 1e-6);
        let chosen = histogram.scale(Method::LeastError);
        assert!(chosen < 4.0 / 127.0, "{chosen}: the range is that of the many");
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
