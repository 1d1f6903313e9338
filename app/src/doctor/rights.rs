//! The capabilities of this process (capabilities(7)).

use super::machine::Machine;
use super::{Findings, Needs};

/// Bits of `CapEff`, as `linux/capability.h` numbers them.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
pub(super) const IPC_LOCK: u32 = 14;
const SYS_NICE: u32 = 23;

/// What each is for.
const WANTED: [(u32, &str, &str); 4] = [
    (NET_RAW, "CAP_NET_RAW", "queues of a NIC from user space, packet sockets"),
    (NET_ADMIN, "CAP_NET_ADMIN", "flow isolation, promiscuous mode"),
    (IPC_LOCK, "CAP_IPC_LOCK", "memory that a NIC writes"),
    (SYS_NICE, "CAP_SYS_NICE", "real-time priorities"),
];

/// Whether this process has a capability; `None` if it cannot be told.
pub(super) fn has(machine: &Machine, capability: u32) -> Option<bool> {
    let effective = machine.field("proc/self/status", "CapEff")?;
    let bits = u64::from_str_radix(&effective, 16).ok()?;
    Some(bits >> capability & 1 == 1)
}

pub(super) fn examine(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    for (bit, name, what) in WANTED {
        // Priorities are a wish; the others are needed where a device is driven.
        let needed = needs.device() && bit != SYS_NICE;
        match has(machine, bit) {
            Some(true) => findings.ok(name, format!("there, for {what}")),
            Some(false) if needed => findings.lacks(
                name,
                format!("missing, for {what}"),
                format!(
                    "sudo, AmbientCapabilities={name} in the unit, or setcap {}+ep on the program",
                    name.to_lowercase()
                ),
            ),
            Some(false) => findings.note(name, format!("missing, would be for {what}")),
            None => findings.note(name, "cannot be told from /proc/self/status"),
        }
    }
}
