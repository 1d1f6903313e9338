//! What a GPU is doing: one reading, from NVML on servers and Spark, from `tegrastats` on Jetson
//! and IGX.

pub mod nvml;
mod show;
pub mod tegrastats;

pub use show::{csv, csv_header, text};

/// What one GPU is doing. What its source does not tell is absent, never 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Number, as `nvidia-smi` counts.
    pub index: u32,
    /// The vendor's name.
    pub name: String,
    /// PCI address.
    pub pci: Option<String>,
    /// Time in which it did something, in percent.
    pub gpu_percent: Option<u32>,
    /// Time in which its memory was read or written, in percent.
    pub memory_percent: Option<u32>,
    /// Clock of the graphics engine, in MHz.
    pub graphics_mhz: Option<u32>,
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// Memory free, in bytes.
    pub memory_free: Option<u64>,
    /// Power drawn, in W.
    pub power_w: Option<f64>,
    /// Power allowed, in W.
    pub power_limit_w: Option<f64>,
    /// Temperature, in °C.
    pub temperature_c: Option<f64>,
    /// Fan, in percent of its speed; what is cooled from outside has none.
    pub fan_percent: Option<u32>,
    /// Performance state, 0 (fastest) to 15.
    pub pstate: Option<u32>,
    /// Who may use it.
    pub compute_mode: Option<&'static str>,
    /// Why its clocks are lower than they could be, each by name; `None` where it does not say.
    pub throttled: Option<Vec<&'static str>>,
}

/// Where readings come from.
pub trait Source {
    /// What it is.
    fn describe(&self) -> String;

    /// Reads the GPU `wanted`, or all of them.
    ///
    /// # Errors
    ///
    /// One line on why there is no reading.
    fn read(&mut self, wanted: Option<u32>) -> Result<Vec<Reading>, String>;
}

/// NVML where it is and has a GPU, else `tegrastats`.
///
/// # Errors
///
/// One line with what is wrong with each.
pub fn open(interval_ms: u64) -> Result<Box<dyn Source>, String> {
    let nvml = match nvml::Nvml::open() {
        Ok(source) => return Ok(Box::new(source)),
        Err(why) => why,
    };
    match tegrastats::Tegrastats::start(interval_ms) {
        Ok(source) => Ok(Box::new(source)),
        Err(why) => Err(format!("no GPU can be read: {nvml}; {why}")),
    }
}
