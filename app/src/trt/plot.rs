//! A plot as SVG: rate and latency over the batch size.

use std::fmt::Write;

use super::table::SweepRow;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Text inside an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where a row lies: one step for each, since batch sizes double.
fn x(at: usize, rows: usize) -> f64 {
    let part = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    LEFT + (WIDTH - LEFT - RIGHT) * part(at) / part(rows.saturating_sub(1).max(1))
}

fn y(value: f64, most: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / most).clamp(0.0, 1.0)
}

fn line(values: &[f64], color: &str) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let place = |(at, value): (usize, &f64)| (x(at, values.len()), y(*value, most));
    let points: Vec<(f64, f64)> = values.iter().enumerate().map(place).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut text = format!(
        "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>\n",
        path.join(" ")
    );
    for (x, y) in points {
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
    }
    text
}

fn label(x: f64, y: f64, anchor: &str, color: &str, text: &str) -> String {
    let text = escaped(text);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>\n"
    )
}

/// The rows of a sweep: images in a second on the left, the median time on the right.
#[must_use]
pub fn sweep(title: &str, rows: &[SweepRow]) -> String {
    const RATE: &str = "#1b6ca8";
    const TIME: &str = "#c2571a";
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text += &label(WIDTH / 2.0, 20.0, "middle", "black", title);
    let rates: Vec<f64> = rows.iter().map(|row| row.images_per_s).collect();
    let times: Vec<f64> = rows.iter().map(|row| row.p50_ms).collect();
    text += &line(&rates, RATE);
    text += &line(&times, TIME);
    for (at, row) in rows.iter().enumerate() {
        let bottom = HEIGHT - BOTTOM + 18.0;
        text += &label(x(at, rows.len()), bottom, "middle", "black", &row.images.to_string());
    }
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    text += &label(LEFT, TOP - 6.0, "middle", RATE, &format!("{:.0} images/s", most(&rates)));
    let at = WIDTH - RIGHT;
    text += &label(at, TOP - 6.0, "middle", TIME, &format!("{:.3} ms", most(&times)));
    text += &label(WIDTH / 2.0, HEIGHT - 8.0, "middle", "black", "images of an inference");
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trt::table::tests::rows;

    #[test]
    fn every_row_is_a_point_on_each_line() {
        let text = sweep("a & b <c>", &rows());
        assert_eq!(text.matches("<circle").count(), 10);
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(text.contains("a &amp; b &lt;c&gt;") && text.ends_with("</svg>\n"));
        assert!(text.contains("37174 images/s") && text.contains("6.887 ms"), "{text}");
        // The best rate lies at the top, and nothing outside.
        assert!(text.contains("cx=\"650.0\" cy=\"40.0\""), "{text}");
        assert!(!text.contains("NaN") && !text.contains("\"inf"));
        let empty = sweep("none", &[]);
        assert!(!empty.contains("NaN"), "{empty}");
    }
}
