//! `status`: how a run is, on one screen, from what it tells Prometheus.

pub(crate) mod bundle;

use std::fmt::Write;
use std::thread;

use serde_json::{Map, Value, json};

use self::bundle::Bundles;
use super::print;
use crate::cli::StatusArgs;
use crate::exit::{ExitCode, Failure};
use crate::metrics::{Scrape, ScrapeError};

/// The numbers whose growth is a loss, with the label that names the cause.
const LOSSES: [(&str, &str); 4] = [
    ("tensorwire_nic_lost_total", "nic"),
    ("tensorwire_packets_total", "packets"),
    ("tensorwire_batches_partial_total", "partial batches"),
    ("tensorwire_images_lost_total", "images"),
];

/// Causes under which a packet is not lost: it came whole, or was never ours.
const HARMLESS: [&str; 3] = ["placed", "other_flow", "early"];

/// A run that stands still for so long is not well, in seconds.
const STALLED: f64 = 5.0;

/// Runs `status`. The exit code says how the run is: 0 well, 1 it loses something, 5 it is not
/// there, not ready, or stands still.
///
/// # Errors
///
/// A [`Failure`]: 5 when nobody answers, 7 when stdout cannot be written.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let bundles = Bundles::of(&args.bundles);
    let (before, now) = match looks(args) {
        Ok(looks) => looks,
        Err(error) => {
            // Why nothing runs may be that a bundle was taken back.
            if args.json {
                show(&json!({"state": "silent", "bundle": bundles.json()}))?;
            } else {
                print(&bundles.text())?;
            }
            return Err(Failure { exit: ExitCode::Device, reason: error.to_string() });
        }
    };
    let report = Report::new(&before, &now, args.interval.as_secs_f64());
    if args.json {
        let mut json = report.json();
        json["bundle"] = bundles.json();
        show(&json)?;
    } else {
        print(&(report.text() + &bundles.text()))?;
    }
    Ok(report.exit())
}

/// The numbers, and those of the interval before.
fn looks(args: &StatusArgs) -> Result<(Scrape, Scrape), ScrapeError> {
    let before = Scrape::of(args.address)?;
    thread::sleep(args.interval);
    Ok((before, Scrape::of(args.address)?))
}

fn show(json: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(json).map_err(|error| Failure {
        exit: ExitCode::Internal,
        reason: format!("status: {error}"),
    })?;
    print(&(text + "\n"))
}

/// A cause of loss: how much since the start, how much between the two looks.
#[derive(Debug, PartialEq)]
struct Loss {
    of: &'static str,
    cause: String,
    total: f64,
    now: f64,
}

/// What two looks show.
#[derive(Debug)]
struct Report<'a> {
    now: &'a Scrape,
    before: &'a Scrape,
    seconds: f64,
    losses: Vec<Loss>,
}

/// The value of `cause="…"` or the like.
fn cause(labels: &str) -> &str {
    labels.split('"').nth(1).unwrap_or(labels)
}

impl<'a> Report<'a> {
    fn new(before: &'a Scrape, now: &'a Scrape, seconds: f64) -> Self {
        let mut losses = Vec::new();
        for (name, of) in LOSSES {
            for sample in now.all(name).filter(|s| !HARMLESS.contains(&cause(&s.labels))) {
                let was = before.labelled(name, &sample.labels).unwrap_or(0.0);
                let (total, now) = (sample.value, sample.value - was);
                if total > 0.0 {
                    losses.push(Loss { of, cause: cause(&sample.labels).to_owned(), total, now });
                }
            }
        }
        Self { now, before, seconds, losses }
    }

    fn value(&self, name: &str) -> f64 {
        self.now.value(name).unwrap_or(0.0)
    }

    /// How much a number grows in a second.
    fn rate(&self, name: &str) -> f64 {
        (self.value(name) - self.before.value(name).unwrap_or(0.0)) / self.seconds
    }

    /// The mean of a time over what was counted, in milliseconds: of now if something was, of the
    /// whole run otherwise; `None` where nothing was yet.
    fn mean_ms(&self, seconds: &str, count: &str) -> Option<f64> {
        let ratio = |time: f64, count: f64| (count > 0.0).then(|| time / count * 1e3);
        ratio(self.rate(seconds), self.rate(count))
            .or_else(|| ratio(self.value(seconds), self.value(count)))
    }

    /// One word, and whether all is well with it.
    fn state(&self) -> (&'static str, ExitCode) {
        if self.value("tensorwire_stopping") > 0.0 {
            ("stopping", ExitCode::Device)
        } else if self.value("tensorwire_ready") < 1.0 {
            ("starting", ExitCode::Device)
        } else if self.value("tensorwire_stalled_seconds") >= STALLED {
            ("stalled", ExitCode::Device)
        } else if self.losses.iter().any(|loss| loss.now > 0.0) {
            ("losing", ExitCode::Losing)
        } else {
            ("well", ExitCode::Complete)
        }
    }

    fn exit(&self) -> ExitCode {
        self.state().1
    }

    fn delay_ms(&self, quantile: &str) -> Option<f64> {
        let labels = format!("quantile=\"{quantile}\"");
        let value = self.now.labelled("tensorwire_last_packet_to_features_seconds", &labels);
        value.filter(|value| value.is_finite()).map(|value| value * 1e3)
    }

    fn json(&self) -> Value {
        let losses = self.losses.iter().map(|loss| {
            json!({"of": loss.of, "cause": loss.cause, "total": loss.total, "now": loss.now})
        });
        let numbers = self.now.samples().iter().map(|sample| {
            let labels = &sample.labels;
            let key = if labels.is_empty() {
                sample.name.clone()
            } else {
                format!("{}{{{labels}}}", sample.name)
            };
            (key, json!(sample.value))
        });
        json!({
            "state": self.state().0,
            "seconds": self.seconds,
            "packets_per_s": self.rate("tensorwire_packets_offered_total"),
            "images_per_s": self.rate("tensorwire_images_delivered_total"),
            "losses": losses.collect::<Vec<_>>(),
            "numbers": numbers.collect::<Map<_, _>>(),
        })
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let ms = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.3}"));
        let info = self.now.all("tensorwire_build_info").next();
        let info = info.map_or("", |sample| sample.labels.as_str()).replace('"', "");
        let buffers = |state: &str| {
            let labels = format!("state=\"{state}\"");
            self.now.labelled("tensorwire_batch_buffers", &labels).unwrap_or(0.0)
        };
        let queued = self.value("tensorwire_batches_total") - self.value("tensorwire_jobs_total");
        let lines = [
            format!("tensorwire   {} ({})", self.state().0, info.replace(',', ", ")),
            format!(
                "packets      {:.0}/s, {:.0} in all, {:.0} held, {:.0} not looked at",
                self.rate("tensorwire_packets_offered_total"),
                self.value("tensorwire_packets_offered_total"),
                self.value("tensorwire_packets_held"),
                self.value("tensorwire_backlog_packets")
            ),
            format!(
                "images       {:.1}/s, {:.0} in all",
                self.rate("tensorwire_images_delivered_total"),
                self.value("tensorwire_images_delivered_total")
            ),
            format!(
                "ring         {queued:.0} batches queued; buffers free {:.0}, filling {:.0}; \
                 blocked {:.1} % of the time",
                buffers("free"),
                buffers("filling"),
                self.rate("tensorwire_producer_blocked_seconds_total") * 100.0
            ),
            format!(
                "times        reorder {} ms, inference {} ms, last packet to features {} ms (p99 \
                 {} ms)",
                ms(self.mean_ms(
                    "tensorwire_reorder_seconds_total",
                    "tensorwire_batches_reordered_total"
                )),
                ms(self
                    .mean_ms("tensorwire_inference_seconds_total", "tensorwire_inferences_total")),
                ms(self.delay_ms("0.5")),
                ms(self.delay_ms("0.99"))
            ),
        ];
        for line in lines {
            out.push_str(&line);
            out.push('\n');
        }
        if self.losses.is_empty() {
            out.push_str("losses       none\n");
        }
        for (loss, first) in
            self.losses.iter().zip(std::iter::once("losses").chain(std::iter::repeat("")))
        {
            let Loss { of, cause, total, now } = loss;
            // A string takes whatever is written to it.
            let _ = writeln!(out, "{first:<12} {of}: {cause} {total:.0} (now {now:.0})");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(more: &str) -> Scrape {
        let text = format!("tensorwire_ready 1\ntensorwire_stopping 0\n{more}");
        Scrape::parse(&text).expect("numbers")
    }

    fn state(before: &str, now: &str) -> (&'static str, u8) {
        let (before, now) = (scrape(before), scrape(now));
        let (word, exit) = Report::new(&before, &now, 1.0).state();
        (word, exit.code())
    }

    #[test]
    fn what_grows_now_is_lost_and_what_was_lost_before_is_told() {
        let late = |n| format!("tensorwire_packets_total{{cause=\"late\"}} {n}\n");
        assert_eq!(state("", ""), ("well", 0));
        assert_eq!(state(&late(7), &late(7)), ("well", 0));
        assert_eq!(state(&late(7), &late(8)), ("losing", 1));
        let placed = |n| format!("tensorwire_packets_total{{cause=\"placed\"}} {n}\n");
        assert_eq!(state(&placed(7), &placed(8)), ("well", 0));
        for (name, label) in [
            ("tensorwire_nic_lost_total", "cause=\"missed\""),
            ("tensorwire_batches_partial_total", "by=\"deadline\""),
            ("tensorwire_images_lost_total", "cause=\"sink_failed\""),
        ] {
            let lost = |n| format!("{name}{{{label}}} {n}\n");
            assert_eq!(state(&lost(0), &lost(1)), ("losing", 1), "{name}");
        }
        let (before, now) = (scrape(&late(7)), scrape(&late(9)));
        let text = Report::new(&before, &now, 1.0).text();
        assert!(text.ends_with("losses       packets: late 9 (now 2)\n"), "{text}");
        assert!(text.lines().count() <= 24, "more than a screen: {text}");
    }

    #[test]
    fn a_run_that_is_not_ready_stands_still_or_stops_is_not_well() {
        assert_eq!(state("", "tensorwire_stalled_seconds 4\n"), ("well", 0));
        assert_eq!(state("", "tensorwire_stalled_seconds 6\n"), ("stalled", 5));
        let numbers = |ready, stopping| {
            let text = format!("tensorwire_ready {ready}\ntensorwire_stopping {stopping}\n");
            Scrape::parse(&text).expect("numbers")
        };
        let starting = numbers(0, 0);
        assert_eq!(Report::new(&starting, &starting, 1.0).state().0, "starting");
        let stopping = numbers(1, 1);
        assert_eq!(Report::new(&stopping, &stopping, 1.0).state().0, "stopping");
    }
}
