//! Measured times as tables.

use std::path::Path;

use serde::Serialize;
use tensorwire_tensorrt::measure::{LayerTime, Point, percentile};

/// A layer with its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    /// Name.
    pub name: String,
    /// Mean time, in ms.
    pub ms: f64,
    /// Part of all layers, in percent.
    pub percent: f64,
    /// Whether it only changes how values lie in memory.
    pub reformat: bool,
}

/// The layers of one engine, slowest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profiled {
    /// Its file.
    pub engine: String,
    /// The sum of all layers, in ms.
    pub total_ms: f64,
    /// Of which convolutions, by the names of operators.
    pub convolutions_ms: f64,
    /// Of which layers that only change how values lie in memory.
    pub reformats_ms: f64,
    /// The layers.
    pub layers: Vec<Layer>,
}

impl Profiled {
    /// Adds up the layers of an engine.
    #[must_use]
    pub fn new(engine: &Path, times: Vec<LayerTime>) -> Self {
        let sum = |of: fn(&LayerTime) -> bool| {
            times.iter().filter(|layer| of(layer)).map(|layer| layer.mean).sum::<f64>()
        };
        let total_ms = sum(|_| true);
        let layer = |time: &LayerTime| Layer {
            name: time.name.clone(),
            ms: time.mean,
            percent: if total_ms > 0.0 { time.mean / total_ms * 100.0 } else { 0.0 },
            reformat: time.is_reformat(),
        };
        Self {
            engine: engine.display().to_string(),
            total_ms,
            convolutions_ms: sum(LayerTime::is_convolution),
            reformats_ms: sum(LayerTime::is_reformat),
            layers: times.iter().map(layer).collect(),
        }
    }
}

/// Layers in words, engine after engine, and the engines beside one another.
#[must_use]
pub fn layers(profiles: &[Profiled], images: u32) -> String {
    let mut text = String::new();
    for profile in profiles {
        text += &format!("{}, {images} images\n", profile.engine);
        text += "        ms      %  layer\n";
        for layer in &profile.layers {
            let mark = if layer.reformat { "  [reformat]" } else { "" };
            text += &format!("{:>10.4} {:>6.2}  {}{mark}\n", layer.ms, layer.percent, layer.name);
        }
    }
    text += "  total ms   convs ms  reformats ms  engine\n";
    for profile in profiles {
        let Profiled { engine, total_ms, convolutions_ms, reformats_ms, .. } = profile;
        text +=
            &format!("{total_ms:>10.4} {convolutions_ms:>10.4} {reformats_ms:>13.4}  {engine}\n");
    }
    text + "each layer is waited for while it is timed: an inference takes less than the sum\n"
}

/// A name between commas.
fn field(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The same for a spreadsheet.
#[must_use]
pub fn layers_csv(profiles: &[Profiled]) -> String {
    let mut text = "engine,layer,ms,percent,reformat\n".to_owned();
    for profile in profiles {
        for Layer { name, ms, percent, reformat } in &profile.layers {
            let (engine, name) = (field(&profile.engine), field(name));
            text += &format!("{engine},{name},{ms:.6},{percent:.3},{reformat}\n");
        }
    }
    text
}

/// The times of one batch size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SweepRow {
    /// Images of an inference.
    pub images: u32,
    /// Half of all take at most this, in ms.
    pub p50_ms: f64,
    /// Nine of ten.
    pub p90_ms: f64,
    /// 95 of 100.
    pub p95_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// Images in a second, over all runs.
    pub images_per_s: f64,
    /// Half of all copies of the inputs from pinned memory of the host take at most this, in ms.
    pub copy_in_ms: f64,
    /// The same of the outputs, to it.
    pub copy_out_ms: f64,
}

impl SweepRow {
    /// The figures of a point.
    #[must_use]
    pub fn of(point: &Point) -> Self {
        Self {
            images: point.images,
            p50_ms: point.percentile(50),
            p90_ms: point.percentile(90),
            p95_ms: point.percentile(95),
            p99_ms: point.percentile(99),
            images_per_s: point.images_per_s(),
            copy_in_ms: percentile(&point.copies_in, 50),
            copy_out_ms: percentile(&point.copies_out, 50),
        }
    }
}

/// The first batch size from which on more images gain less than a twentieth of the best rate.
#[must_use]
pub fn full_at(rows: &[SweepRow]) -> Option<u32> {
    let best = rows.iter().map(|row| row.images_per_s).fold(0.0, f64::max);
    rows.iter().find(|row| row.images_per_s >= 0.95 * best).map(|row| row.images)
}

/// Rows in words.
#[must_use]
pub fn sweep(rows: &[SweepRow]) -> String {
    let mut text =
        "  batch    p50 ms    p90 ms    p95 ms    p99 ms   images/s   copy in  copy out\n"
            .to_owned();
    for row in rows {
        let SweepRow { images, p50_ms, p90_ms, p95_ms, p99_ms, images_per_s, .. } = row;
        let SweepRow { copy_in_ms, copy_out_ms, .. } = row;
        text += &format!(
            "{images:>7} {p50_ms:>9.3} {p90_ms:>9.3} {p95_ms:>9.3} {p99_ms:>9.3} \
             {images_per_s:>10.0} {copy_in_ms:>9.3} {copy_out_ms:>9.3}\n"
        );
    }
    if let Some(images) = full_at(rows) {
        text += &format!("the GPU is full from batch {images} on (95 % of the best rate)\n");
    }
    text + "the inference alone; copies (ms, median) are of pinned host memory, timed apart\n"
}

/// The same for a spreadsheet.
#[must_use]
pub fn sweep_csv(rows: &[SweepRow]) -> String {
    let mut text =
        "images,p50_ms,p90_ms,p95_ms,p99_ms,images_per_s,copy_in_ms,copy_out_ms\n".to_owned();
    for row in rows {
        let SweepRow { images, p50_ms, p90_ms, p95_ms, p99_ms, images_per_s, .. } = row;
        let SweepRow { copy_in_ms, copy_out_ms, .. } = row;
        text += &format!(
            "{images},{p50_ms:.6},{p90_ms:.6},{p95_ms:.6},{p99_ms:.6},{images_per_s:.1},\
             {copy_in_ms:.6},{copy_out_ms:.6}\n"
        );
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const ZERO: SweepRow = SweepRow {
        images: 0,
        p50_ms: 0.0,
        p90_ms: 0.0,
        p95_ms: 0.0,
        p99_ms: 0.0,
        images_per_s: 0.0,
        copy_in_ms: 0.0,
        copy_out_ms: 0.0,
    };

    /// What was measured on an H200 with TensorRT 8.6, fp16 with a graph; the copies are made up.
    pub(crate) fn rows() -> Vec<SweepRow> {
        let row = |(images, rate): (u32, f64)| {
            let ms = f64::from(images) / rate * 1e3;
            let [p50_ms, p90_ms, p95_ms, p99_ms] = [ms; 4];
            let (copy_in_ms, copy_out_ms, images_per_s) = (0.25, 0.0625, rate);
            let row = SweepRow { images, p50_ms, p90_ms, p95_ms, p99_ms, images_per_s, ..ZERO };
            SweepRow { copy_in_ms, copy_out_ms, ..row }
        };
        [(1, 2096.0), (8, 14430.0), (32, 30688.0), (128, 36237.0), (256, 37174.0)].map(row).into()
    }

    #[test]
    fn the_gpu_is_full_where_more_images_gain_little() {
        assert_eq!(full_at(&rows()), Some(128));
        assert_eq!(full_at(&[]), None);
        let text = sweep(&rows());
        assert!(text.contains("     32     1.043"), "{text}");
        assert!(text.contains("     30688     0.250     0.062\n"), "{text}");
        assert!(text.contains("the GPU is full from batch 128 on (95 % of the best rate)\n"));
        assert_eq!(sweep_csv(&rows()).lines().count(), 6);
    }

    #[test]
    fn layers_have_shares_and_reformats_are_marked() {
        let time = |name: &str, mean| LayerTime { name: name.into(), mean };
        let times = vec![time("conv1 + relu", 0.75), time("Reformatting CopyNode", 0.25)];
        let profile = Profiled::new(Path::new("a,\"b\".engine"), times);
        assert_eq!(
            (profile.total_ms, profile.convolutions_ms, profile.reformats_ms),
            (1.0, 0.75, 0.25)
        );
        assert_eq!(profile.layers[0].percent, 75.0);
        let text = layers(std::slice::from_ref(&profile), 32);
        assert!(text.contains("    0.2500  25.00  Reformatting CopyNode  [reformat]"), "{text}");
        let csv = layers_csv(&[profile]);
        assert!(
            csv.contains("\"a,\"\"b\"\".engine\",\"conv1 + relu\",0.750000,75.000,false"),
            "{csv}"
        );
    }
}
