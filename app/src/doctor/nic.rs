//! The NICs: driver and firmware, link and speed, MTU, NUMA node; and how user space reaches them.

use tensorwire_configs::Address;

use super::machine::Machine;
use super::{Findings, Needs};

const NET: &str = "sys/class/net";
const PCI: &str = "sys/bus/pci/devices";

/// Drivers under which a device can be driven from user space without the kernel letting go of it
/// (DPDK's guides call them bifurcated).
const SHARED: [&str; 2] = ["mlx5_core", "mlx4_core"];
/// Drivers that hand a device to user space.
const HANDED: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

pub(super) fn examine(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    if needs.config.is_some() {
        for address in &needs.interfaces {
            one(machine, address, needs, findings);
        }
        if needs.interfaces.is_empty() {
            findings.ok("NIC", "none is opened: the loopback is in software");
        }
    } else {
        all(machine, findings);
    }
    let handed = |address: &Address| {
        let Address::Pci(pci) = address else { return false };
        let driver = machine.target(&format!("{PCI}/{pci}/driver"));
        let shared = driver.is_some_and(|driver| SHARED.contains(&driver.as_str()));
        machine.has(&format!("{PCI}/{pci}")) && !shared
    };
    if needs.config.is_none() || needs.interfaces.iter().any(|address| handed(address)) {
        vfio(machine, findings);
    }
}

/// Every NIC of the machine that is hardware.
fn all(machine: &Machine, findings: &mut Findings) {
    let mut none = true;
    for name in machine.names(NET) {
        if machine.has(&format!("{NET}/{name}/device")) {
            none = false;
            let driver = machine.target(&format!("{NET}/{name}/device/driver"));
            let driver = driver.unwrap_or_else(|| "an unknown driver".to_owned());
            findings.note(&name, format!("{driver}, {}", link_text(machine, &name)));
        }
    }
    if none {
        findings.note("NIC", "there is none; the software NIC and sockets need none");
    }
}

fn link_text(machine: &Machine, name: &str) -> String {
    let state = machine.text(&format!("{NET}/{name}/operstate"));
    let mut text = format!("link {}", state.as_deref().unwrap_or("unknown"));
    if let Some(mbps) = speed(machine, name) {
        text += &format!(", {} Gb/s", f64::from(mbps) / 1000.0);
    }
    if let Some(mtu) = machine.number(&format!("{NET}/{name}/mtu")) {
        text += &format!(", MTU {mtu}");
    }
    text
}

/// Megabits per second; `None` where the kernel says −1 or nothing.
fn speed(machine: &Machine, name: &str) -> Option<u32> {
    machine.text(&format!("{NET}/{name}/speed"))?.parse().ok()
}

fn one(machine: &Machine, address: &Address, needs: &Needs<'_>, findings: &mut Findings) {
    match address {
        Address::Pci(pci) => device(machine, &pci.to_string(), needs, findings),
        Address::Interface(name) => interface(machine, name, needs, findings),
        Address::Virtual(device) => {
            let (name, options) = device.split_once(',').unwrap_or((device, ""));
            findings.ok(name, "a virtual device of DPDK");
            if let Some(iface) = options.split(',').find_map(|o| o.strip_prefix("iface=")) {
                interface(machine, iface, needs, findings);
            }
        }
        Address::Ip(ip) => match machine.owns(*ip) {
            Some(true) => findings.ok(&ip.to_string(), "an address of this machine"),
            Some(false) => findings.lacks(
                &ip.to_string(),
                "no address of this machine",
                format!("ip addr add {ip}/24 dev INTERFACE, or configs/net_xhost.sh"),
            ),
            None => findings.note(&ip.to_string(), "whose address it is cannot be told"),
        },
        _ => {}
    }
}

fn device(machine: &Machine, pci: &str, needs: &Needs<'_>, findings: &mut Findings) {
    let folder = format!("{PCI}/{pci}");
    if !machine.has(&folder) {
        return findings.lacks(pci, "there is no such device", "lspci -D lists them");
    }
    let Some(driver) = machine.target(&format!("{folder}/driver")) else {
        let fix = format!("dpdk-devbind.py --bind=vfio-pci {pci}, or load its kernel driver");
        return findings.lacks(pci, "no driver has it", fix);
    };
    let firmware = firmware(machine, pci);
    let found =
        format!("{driver}{}", firmware.map_or(String::new(), |f| format!(", firmware {f}")));
    if SHARED.contains(&driver.as_str()) {
        findings.ok(pci, found);
        if !machine.names("dev/infiniband").iter().any(|name| name.starts_with("uverbs")) {
            findings.lacks(
                pci,
                "no /dev/infiniband/uverbs*",
                "apt-get install rdma-core; modprobe ib_uverbs mlx5_ib",
            );
        }
        for name in machine.names(&format!("{folder}/net")) {
            interface(machine, &name, needs, findings);
        }
    } else if HANDED.contains(&driver.as_str()) {
        findings.ok(pci, found);
        findings.note(pci, "link and MTU are DPDK's while it has the device");
    } else {
        let fix = format!("dpdk-devbind.py --bind=vfio-pci {pci} (the kernel loses the interface)");
        findings.lacks(pci, format!("{found}, which keeps it to the kernel"), fix);
    }
}

/// The firmware of a device that RDMA knows, which is the only one that the kernel shows in a file.
fn firmware(machine: &Machine, pci: &str) -> Option<String> {
    let folder = format!("{PCI}/{pci}/infiniband");
    let names = machine.names(&folder);
    machine.text(&format!("{folder}/{}/fw_ver", names.first()?))
}

fn interface(machine: &Machine, name: &str, needs: &Needs<'_>, findings: &mut Findings) {
    if !machine.has(&format!("{NET}/{name}")) {
        return findings.lacks(name, "there is no such interface", "ip link lists them");
    }
    let text = link_text(machine, name);
    let up = machine.text(&format!("{NET}/{name}/operstate"));
    // A driver that does not tell its state says "unknown", and carries packets.
    if !matches!(up.as_deref(), Some("up" | "unknown")) {
        return findings.lacks(
            name,
            text,
            format!("ip link set {name} up; look at cable and far end"),
        );
    }
    // The MTU counts what follows the Ethernet header of 14 bytes.
    let wanted = needs.frame.saturating_sub(14) as u64;
    if machine.number(&format!("{NET}/{name}/mtu")).is_some_and(|mtu| mtu < wanted) {
        let fix = format!("ip link set {name} mtu {wanted} (and at the far end)");
        return findings.lacks(name, format!("{text}, frames need {wanted}"), fix);
    }
    findings.ok(name, text);
}

/// The NUMA node of the device behind an address, on a machine that has more than one.
pub(super) fn numa_node(machine: &Machine, address: &Address) -> Option<u64> {
    let folder = match address {
        Address::Pci(pci) => format!("{PCI}/{pci}"),
        Address::Interface(name) => format!("{NET}/{name}/device"),
        _ => return None,
    };
    machine.number(&format!("{folder}/numa_node"))
}

/// How a device gets to user space that does not share it with the kernel.
fn vfio(machine: &Machine, findings: &mut Findings) {
    let groups = machine.names("sys/kernel/iommu_groups").len();
    if groups > 0 {
        findings.ok("IOMMU", format!("on, {groups} groups"));
    } else {
        findings.lacks(
            "IOMMU",
            "off",
            "intel_iommu=on iommu=pt (or amd_iommu=on) at boot, and in the firmware",
        );
    }
    if machine.has("dev/vfio/vfio") {
        findings.ok("vfio", "there");
    } else {
        findings.lacks("vfio", "no /dev/vfio/vfio", "modprobe vfio-pci (ConnectX needs none)");
    }
}
