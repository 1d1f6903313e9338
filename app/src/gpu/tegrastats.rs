//! `tegrastats`, the monitor of Jetson and IGX: a line of text per interval.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Reading, Source};

/// A running `tegrastats`.
#[derive(Debug)]
pub struct Tegrastats {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Tegrastats {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// One line on why it does not run.
    pub fn start(interval_ms: u64) -> Result<Self, String> {
        let mut child = Command::new("tegrastats")
            .args(["--interval", &interval_ms.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("tegrastats: {error}"))?;
        match child.stdout.take() {
            Some(stdout) => Ok(Self { child, lines: BufReader::new(stdout) }),
            None => Err("tegrastats: its output cannot be read".to_owned()),
        }
    }
}

impl Drop for Tegrastats {
    fn drop(&mut self) {
        // It never ends by itself; one that has ended needs no more than to be waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Source for Tegrastats {
    fn describe(&self) -> String {
        "tegrastats".to_owned()
    }

    fn read(&mut self, wanted: Option<u32>) -> Result<Vec<Reading>, String> {
        if let Some(index) = wanted.filter(|index| *index > 0) {
            return Err(format!("GPU {index} is not there; tegrastats tells of one"));
        }
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => Err("tegrastats has ended".to_owned()),
            Ok(_) => parse(&line)
                .map(|reading| vec![reading])
                .ok_or_else(|| format!("tegrastats says nothing of a GPU: {}", line.trim())),
            Err(error) => Err(format!("tegrastats: {error}")),
        }
    }
}

/// The number at the start of a text, whatever follows.
fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse().ok()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a percentage or a clock, which `as` bounds to what fits"
)]
fn whole(text: &str) -> Option<u32> {
    number(text).map(|value| value as u32)
}

/// What a line says of the GPU; `None` if it does not tell of one.
///
/// The words, as JetPack 4 to 7 write them: `RAM used/totalMB`, `EMC_FREQ percent%@MHz`,
/// `GR3D_FREQ percent%@MHz` or `percent%@[MHz,MHz]`, `gpu@degreesC` or `GPU@degreesC`,
/// `VDD_GPU… milliwatts mW/mean mW` (older: `VDD_IN 4000/4000`).
#[must_use]
pub fn parse(line: &str) -> Option<Reading> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    let load = after("GR3D_FREQ")?;
    let clock = |text: &str| {
        let (_, clock) = text.split_once('@')?;
        whole(clock.trim_start_matches('['))
    };
    let heat = words.iter().find_map(|word| {
        let lower = word.to_ascii_lowercase();
        number(lower.strip_prefix("gpu@")?)
    });
    let rail = words.iter().position(|w| w.starts_with("VDD_GPU") || *w == "VDD_SYS_GPU");
    let milliwatts = rail.and_then(|at| number(words.get(at + 1)?));
    let memory = after("RAM").and_then(|ram| {
        let (used, total) = ram.split_once('/')?;
        let mib = |text: &str| whole(text).map(|mib| u64::from(mib) << 20);
        let (used, total) = (mib(used)?, mib(total)?);
        Some((used, total.saturating_sub(used)))
    });
    Some(Reading {
        name: "integrated GPU".to_owned(),
        gpu_percent: whole(load),
        memory_percent: after("EMC_FREQ").and_then(whole),
        graphics_mhz: clock(load),
        memory_mhz: after("EMC_FREQ").and_then(clock),
        memory_used: memory.map(|(used, _)| used),
        memory_free: memory.map(|(_, free)| free),
        power_w: milliwatts.map(|mw| mw / 1_000.0),
        temperature_c: heat,
        ..Reading::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_orin_is_understood() {
        let line = "11-30-2026 11:40:01 RAM 2448/30697MB (lfb 4x4MB) SWAP 0/15349MB (cached 0MB) \
                    CPU [1%@729,0%@729,off,off] EMC_FREQ 12%@2133 GR3D_FREQ 45%@[611,0] NVENC off \
                    VIC_FREQ 115 APE 174 cpu@42.6C gpu@38.5C tj@45C VDD_GPU_SOC 2384mW/2384mW \
                    VDD_CPU_CV 397mW/397mW VIN_SYS_5V0 3500mW/3500mW";
        let reading = parse(line).expect("a GPU");
        assert_eq!(reading.gpu_percent, Some(45));
        assert_eq!((reading.memory_percent, reading.memory_mhz), (Some(12), Some(2133)));
        assert_eq!(reading.graphics_mhz, Some(611));
        assert_eq!(reading.memory_used, Some(2448 << 20));
        assert_eq!(reading.memory_free, Some((30697 - 2448) << 20));
        assert_eq!((reading.power_w, reading.temperature_c), (Some(2.384), Some(38.5)));
        assert_eq!(reading.throttled, None, "it does not say, which is not the same as never");
    }

    #[test]
    fn a_line_of_xavier_is_understood() {
        let line = "RAM 1500/15823MB (lfb 3000x4MB) SWAP 0/7911MB EMC_FREQ 0%@1600 GR3D_FREQ \
                    99%@1377 AUX@31C CPU@33.5C GPU@32C GPU 4000/4000 VDD_GPU 1234/1200";
        let reading = parse(line).expect("a GPU");
        assert_eq!((reading.gpu_percent, reading.graphics_mhz), (Some(99), Some(1377)));
        assert_eq!((reading.temperature_c, reading.power_w), (Some(32.0), Some(1.234)));
    }

    #[test]
    fn what_is_no_such_line_is_none() {
        for line in ["", "GR3D_FREQ", "usage: tegrastats [--interval MS]"] {
            assert_eq!(parse(line), None, "{line}");
        }
        let odd = parse("GR3D_FREQ x%@y EMC_FREQ RAM gpu@").expect("a GPU that says nothing");
        assert_eq!(odd.gpu_percent, None);
    }
}
