//! Which machine this is, and whether packets go to memory that suits it.

use tensorwire_configs::platform::{Platform, Worth};

use super::machine::Machine;
use super::{Findings, Needs};

const SUBJECT: &str = "machine";
const PCI: &str = "sys/bus/pci/devices";

/// The name that the firmware gives: DMI on servers and Spark, the device tree on boards.
fn name(machine: &Machine) -> Option<String> {
    let files = ["sys/class/dmi/id/product_name", "proc/device-tree/model"];
    files.iter().find_map(|file| machine.text(file).filter(|name| !name.is_empty()))
}

/// Whether a GPU of NVIDIA's is on the PCI bus as a card: a display or 3D controller (class 03) of
/// vendor 10de.
fn card(machine: &Machine) -> bool {
    machine.names(PCI).iter().any(|address| {
        let read = |file| machine.text(&format!("{PCI}/{address}/{file}")).unwrap_or_default();
        read("vendor") == "0x10de" && read("class").starts_with("0x03")
    })
}

fn platform(machine: &Machine, name: &str) -> Option<&'static Platform> {
    let dgx = tensorwire_dgx::ALL.into_iter().find(|platform| platform.is(name));
    dgx.or_else(|| tensorwire_igx::of(name, card(machine)))
}

pub(super) fn examine(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    let name = name(machine).unwrap_or_else(|| "it does not tell its name".to_owned());
    let Some(platform) = platform(machine, &name) else {
        return findings.ok(SUBJECT, name);
    };
    findings.ok(SUBJECT, format!("{name}: {}", platform.name));
    let Some(config) = needs.config else { return };
    let Some(region) = config.rx.as_ref().and_then(|rx| config.regions.get(rx.region)) else {
        return;
    };
    let best = platform.best().word();
    let found =
        |why| format!("packets go to `{}` of kind {}: {why}", region.name, region.kind.word());
    match platform.worth(region.kind) {
        Worth::Slower(why) if needs.device() => {
            findings.slows(SUBJECT, found(why), format!("kind: {best}"));
        }
        Worth::Impossible(why) => findings.lacks(SUBJECT, found(why), format!("kind: {best}")),
        _ => {}
    }
}
