//! The one platform that this program was built for, and the configuration inside it.

use tensorwire::exit::Failure;
use tensorwire_configs::Config;
use tensorwire_include_config::include_config;

/// Its name.
pub(crate) const NAME: &str = if cfg!(feature = "igx") {
    "IGX"
} else if cfg!(feature = "dgx") {
    "DGX Spark"
} else {
    "any machine (software NIC)"
};

/// The configuration. `TENSORWIRE_CONFIG` names another file when the program is built.
#[cfg(feature = "igx")]
pub(crate) fn config() -> Config {
    include_config!("TENSORWIRE_CONFIG", "igx.yaml")
}

/// The configuration. `TENSORWIRE_CONFIG` names another file when the program is built.
#[cfg(feature = "dgx")]
pub(crate) fn config() -> Config {
    include_config!("TENSORWIRE_CONFIG", "dgx.yaml")
}

/// The configuration. `TENSORWIRE_CONFIG` names another file when the program is built.
#[cfg(feature = "sim")]
pub(crate) fn config() -> Config {
    include_config!("TENSORWIRE_CONFIG", "sim.yaml")
}

/// The platform, where the machine says that it is one of this program's.
#[cfg(feature = "igx")]
fn found(name: &str) -> Option<&'static tensorwire_configs::platform::Platform> {
    tensorwire_igx::of(name, std::path::Path::new("/proc/driver/nvidia/gpus").exists())
}

/// The platform, where the machine says that it is one of this program's.
#[cfg(feature = "dgx")]
fn found(name: &str) -> Option<&'static tensorwire_configs::platform::Platform> {
    tensorwire_dgx::ALL.into_iter().find(|platform| platform.is(name))
}

/// Refuses memory for packets that cannot be on this machine.
///
/// # Errors
///
/// A [`Failure`] (exit 5).
#[cfg(any(feature = "igx", feature = "dgx"))]
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    use tensorwire::exit::ExitCode;
    use tensorwire_configs::platform::Worth;

    // Of firmware (DMI), or of a device tree.
    let files = ["/sys/class/dmi/id/product_name", "/proc/device-tree/model"];
    let name = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let region = config.rx.as_ref().and_then(|rx| config.regions.get(rx.region));
    let Some((platform, region)) = found(&name).zip(region) else { return Ok(()) };
    match platform.worth(region.kind) {
        Worth::Impossible(why) => Err(Failure {
            exit: ExitCode::Device,
            reason: format!("region {} of kind {}: {why}", region.name, region.kind.word()),
        }),
        Worth::Best | Worth::Slower(_) => Ok(()),
    }
}

/// The software NIC runs on any machine.
///
/// # Errors
///
/// None.
#[cfg(feature = "sim")]
pub(crate) fn check(_: &Config) -> Result<(), Failure> {
    Ok(())
}
