//! NVML, looked for at run time.

use std::env;
use std::ffi::OsString;

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use super::{Reading, Source};

/// NVIDIA's management library.
#[derive(Debug)]
pub struct Nvml {
    nvml: nvml_wrapper::Nvml,
    count: u32,
}

/// Each reason, by a name that says what it is.
const REASONS: [(ThrottleReasons, &str); 9] = [
    (ThrottleReasons::GPU_IDLE, "idle"),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "application clocks setting"),
    (ThrottleReasons::SW_POWER_CAP, "software power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "software thermal slowdown"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware thermal slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "hardware power brake"),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display clock setting"),
];

/// The names of the reasons that are set.
fn reasons(set: ThrottleReasons) -> Vec<&'static str> {
    REASONS.iter().filter(|(reason, _)| set.contains(*reason)).map(|(_, name)| *name).collect()
}

impl Nvml {
    /// Opens the library that `TENSORWIRE_NVML` names, or the driver's.
    ///
    /// # Errors
    ///
    /// One line on why there is none, or no GPU.
    pub fn open() -> Result<Self, String> {
        let named = env::var_os("TENSORWIRE_NVML");
        let path = named.unwrap_or_else(|| OsString::from("libnvidia-ml.so.1"));
        let shown = path.to_string_lossy().into_owned();
        let failed = |error: NvmlError| format!("NVML ({shown}): {error}");
        let nvml = nvml_wrapper::Nvml::builder().lib_path(&path).init().map_err(failed)?;
        match nvml.device_count().map_err(failed)? {
            0 => Err(format!("NVML ({shown}) knows no GPU")),
            count => Ok(Self { nvml, count }),
        }
    }

    fn one(&self, index: u32) -> Result<Reading, NvmlError> {
        let gpu = self.nvml.device_by_index(index)?;
        let use_of = gpu.utilization_rates().ok();
        // Where CPU and GPU share one memory the GPU has none to tell of.
        let memory = gpu.memory_info().ok();
        let watts = |milliwatts: Option<u32>| milliwatts.map(|mw| f64::from(mw) / 1_000.0);
        Ok(Reading {
            index,
            name: gpu.name().unwrap_or_else(|_| "unnamed".to_owned()),
            pci: gpu.pci_info().ok().map(|pci| pci.bus_id),
            gpu_percent: use_of.as_ref().map(|u| u.gpu),
            memory_percent: use_of.as_ref().map(|u| u.memory),
            graphics_mhz: gpu.clock_info(Clock::Graphics).ok(),
            sm_mhz: gpu.clock_info(Clock::SM).ok(),
            memory_mhz: gpu.clock_info(Clock::Memory).ok(),
            memory_used: memory.as_ref().map(|m| m.used),
            memory_free: memory.as_ref().map(|m| m.free),
            power_w: watts(gpu.power_usage().ok()),
            power_limit_w: watts(gpu.enforced_power_limit().ok()),
            temperature_c: gpu.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            fan_percent: gpu.fan_speed(0).ok(),
            pstate: pstate(&gpu),
            compute_mode: gpu.compute_mode().ok().map(compute_mode),
            throttled: gpu.current_throttle_reasons().ok().map(reasons),
        })
    }
}

fn pstate(gpu: &Device<'_>) -> Option<u32> {
    let state = gpu.performance_state().ok()?.as_c();
    (state < 16).then_some(state)
}

const fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::ExclusiveThread => "exclusive thread",
        ComputeMode::Prohibited => "prohibited",
        ComputeMode::ExclusiveProcess => "exclusive process",
    }
}

impl Source for Nvml {
    fn describe(&self) -> String {
        let version = self.nvml.sys_driver_version();
        version.map_or_else(|_| "NVML".to_owned(), |version| format!("NVML, driver {version}"))
    }

    fn read(&mut self, wanted: Option<u32>) -> Result<Vec<Reading>, String> {
        if let Some(index) = wanted.filter(|index| *index >= self.count) {
            return Err(format!("GPU {index} is not there; this machine has {}", self.count));
        }
        let indices = wanted.map_or(0..self.count, |index| index..index + 1);
        let read = |index| self.one(index).map_err(|error| format!("GPU {index}: {error}"));
        indices.map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_name() {
        assert_eq!(reasons(ThrottleReasons::empty()), [""; 0]);
        let two = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(reasons(two), ["software power cap", "hardware thermal slowdown"]);
        for (reason, name) in REASONS {
            assert_eq!(reasons(reason).len(), 1, "{name}");
        }
    }
}
