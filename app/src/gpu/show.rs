//! Readings for people and for spreadsheets.

use std::fmt::{Display, Write};

use super::Reading;

/// What is not told.
const UNKNOWN: &str = "–";

fn or_unknown<T: Display>(value: Option<T>, unit: &str) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value}{unit}"))
}

fn mib(bytes: Option<u64>) -> String {
    or_unknown(bytes.map(|bytes| bytes >> 20), " MiB")
}

fn watts(power: Option<f64>) -> String {
    or_unknown(power.map(|power| format!("{power:.1}")), " W")
}

/// A reading as a few lines.
#[must_use]
pub fn text(reading: &Reading) -> String {
    let r = reading;
    let mut text = format!("GPU {} {}", r.index, r.name);
    if let Some(pci) = &r.pci {
        let _ = write!(text, " at {pci}");
    }
    let throttled = match &r.throttled {
        None => UNKNOWN.to_owned(),
        Some(reasons) if reasons.is_empty() => "no".to_owned(),
        Some(reasons) => reasons.join(", "),
    };
    let percent = |value| or_unknown(value, " %");
    let mhz = |value| or_unknown(value, " MHz");
    let celsius = r.temperature_c.map(|c| format!("{c:.0}"));
    let _ = write!(
        text,
        "\n  utilisation  GPU {}, memory {}\n  clocks       graphics {}, SM {}, memory {}\n  \
         memory       used {}, free {}\n  power        {} of {}\n  temperature  {}, fan {}\n  \
         state        {}, compute mode {}\n  throttled    {throttled}\n",
        percent(r.gpu_percent),
        percent(r.memory_percent),
        mhz(r.graphics_mhz),
        mhz(r.sm_mhz),
        mhz(r.memory_mhz),
        mib(r.memory_used),
        mib(r.memory_free),
        watts(r.power_w),
        watts(r.power_limit_w),
        or_unknown(celsius, " °C"),
        percent(r.fan_percent),
        or_unknown(r.pstate.map(|state| format!("P{state}")), ""),
        or_unknown(r.compute_mode, ""),
    );
    text
}

/// The names of the columns of [`csv`].
#[must_use]
pub fn csv_header() -> &'static str {
    "seconds,gpu,name,gpu_percent,memory_percent,graphics_mhz,sm_mhz,memory_mhz,memory_used_bytes,\
     memory_free_bytes,power_w,power_limit_w,temperature_c,fan_percent,pstate,compute_mode,\
     throttled\n"
}

/// A reading as one row; what is not told is an empty field. Reasons are separated by `;`.
#[must_use]
pub fn csv(seconds: f64, reading: &Reading) -> String {
    fn field(value: Option<impl Display>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let r = reading;
    let throttled = r.throttled.as_ref().map(|reasons| reasons.join(";"));
    // A name is the driver's; a quote or a comma in it must not shift the columns.
    let name = r.name.replace(['"', ',', '\n', '\r'], " ");
    let fields = [
        format!("{seconds:.3}"),
        r.index.to_string(),
        name,
        field(r.gpu_percent),
        field(r.memory_percent),
        field(r.graphics_mhz),
        field(r.sm_mhz),
        field(r.memory_mhz),
        field(r.memory_used),
        field(r.memory_free),
        field(r.power_w),
        field(r.power_limit_w),
        field(r.temperature_c),
        field(r.fan_percent),
        field(r.pstate),
        field(r.compute_mode),
        field(throttled),
    ];
    fields.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Reading {
        Reading {
            index: 1,
            name: "NVIDIA H200".into(),
            pci: Some("0000:4e:00.0".into()),
            gpu_percent: Some(98),
            memory_percent: Some(61),
            graphics_mhz: Some(1980),
            sm_mhz: Some(1980),
            memory_mhz: Some(3201),
            memory_used: Some(12 << 30),
            memory_free: Some(128 << 30),
            power_w: Some(612.34),
            power_limit_w: Some(700.0),
            temperature_c: Some(61.0),
            fan_percent: None,
            pstate: Some(0),
            compute_mode: Some("default"),
            throttled: Some(vec!["software power cap", "hardware thermal slowdown"]),
        }
    }

    #[test]
    fn a_reading_is_a_few_lines() {
        let expected = "GPU 1 NVIDIA H200 at 0000:4e:00.0\n  utilisation  GPU 98 %, memory 61 %\n  \
                        clocks       graphics 1980 MHz, SM 1980 MHz, memory 3201 MHz\n  \
                        memory       used 12288 MiB, free 131072 MiB\n  \
                        power        612.3 W of 700.0 W\n  \
                        temperature  61 °C, fan –\n  state        P0, compute mode default\n  \
                        throttled    software power cap, hardware thermal slowdown\n";
        assert_eq!(text(&full()), expected);
        // What is not told is no zero.
        let silent = text(&Reading { index: 7, ..Reading::default() });
        assert!(silent.contains("throttled    –") && !silent.contains('0'), "{silent}");
    }

    #[test]
    fn a_row_has_as_many_fields_as_the_header() {
        let columns = csv_header().matches(',').count();
        for reading in [full(), Reading::default(), Reading { name: "a,\"b\"".into(), ..full() }] {
            assert_eq!(csv(0.5, &reading).matches(',').count(), columns);
        }
        assert!(csv(1.25, &full()).starts_with("1.250,1,NVIDIA H200,98,61,1980,1980,3201,"));
        assert!(csv(0.0, &full()).ends_with(",software power cap;hardware thermal slowdown\n"));
    }
}
