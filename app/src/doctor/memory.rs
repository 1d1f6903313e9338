//! Huge pages, the memory of the host, and how much of it may be locked.

use std::fmt::Write as _;

use super::machine::Machine;
use super::{Findings, Needs};

const HUGE: &str = "sys/kernel/mm/hugepages";
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

pub(super) fn examine(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    huge(machine, needs, findings);
    plain(machine, needs, findings);
    locked(machine, needs, findings);
}

/// Bytes in the largest unit that says them without a fraction, else in MiB rounded up.
pub(super) fn human(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(GIB) => format!("{} GiB", bytes / GIB),
        _ if bytes < MIB => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(MIB)),
    }
}

/// Sizes of huge pages, with how many there are and how many are free.
fn pages(machine: &Machine) -> Vec<(u64, u64, u64)> {
    let of = |name: &String| {
        let kb: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = |file: &str| machine.number(&format!("{HUGE}/{name}/{file}"));
        Some((kb.checked_mul(1024)?, count("nr_hugepages")?, count("free_hugepages")?))
    };
    machine.names(HUGE).iter().filter_map(of).collect()
}

fn huge(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    let subject = "huge pages";
    let pages = pages(machine);
    if pages.is_empty() {
        return findings.lacks(subject, "the kernel has none", "boot one with CONFIG_HUGETLBFS");
    }
    let mut found = String::new();
    for (size, total, free) in &pages {
        let comma = if found.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(found, "{comma}{free} of {total} of {} free", human(*size));
    }
    let free: u64 = pages.iter().map(|(size, _, free)| size.saturating_mul(*free)).sum();
    let total: u64 = pages.iter().map(|(_, total, _)| *total).sum();
    let small = pages.iter().map(|(size, ..)| *size).min().unwrap_or(2 * MIB);
    if needs.huge > free {
        let missing = (needs.huge - free).div_ceil(small);
        let _ = write!(found, ", the regions of kind `huge` need {}", human(needs.huge));
        let fix = format!(
            "{missing} more of {}: sysctl vm.nr_hugepages, or hugepages= at boot, before memory is \
             in pieces",
            human(small)
        );
        return findings.lacks(subject, found, fix);
    }
    if total == 0 && needs.huge == 0 {
        if needs.config.is_some() {
            return findings.ok(subject, "none, and none is asked for");
        }
        return findings.slows(
            subject,
            "none",
            "DPDK is faster with some: sysctl vm.nr_hugepages=1024",
        );
    }
    let mounts = machine.text("proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    if mounted {
        findings.ok(subject, found);
    } else {
        let fix = "mount -t hugetlbfs none /dev/hugepages";
        findings.lacks(subject, format!("{found}, hugetlbfs is not mounted"), fix);
    }
}

fn plain(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    let Some(free) = machine.meminfo("MemAvailable") else {
        return findings.note("memory", "cannot be told: /proc/meminfo has no MemAvailable");
    };
    let found = format!("{} available", human(free));
    if needs.host > free {
        let fix = "use fewer or smaller buffers, or end other programs";
        let found = format!("{found}, the regions of the host need {}", human(needs.host));
        return findings.lacks("memory", found, fix);
    }
    findings.ok("memory", found);
}

/// What may be locked bounds what a NIC may be shown.
fn locked(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    let subject = "locked memory";
    let limits = machine.text("proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let Some(soft) = line.and_then(|line| line.split_whitespace().next()) else {
        return findings.note(subject, "cannot be told from /proc/self/limits");
    };
    if soft == "unlimited" {
        return findings.ok(subject, "no limit");
    }
    if super::rights::has(machine, super::rights::IPC_LOCK) == Some(true) {
        return findings.ok(subject, "no limit for CAP_IPC_LOCK");
    }
    let limit: u64 = soft.parse().unwrap_or(0);
    let wanted = needs.huge.saturating_add(needs.host);
    let found = format!("limit {}", human(limit));
    if needs.config.is_some() && (!needs.device() || limit >= wanted) {
        findings.ok(subject, found);
    } else {
        let fix = "a NIC needs its memory locked: ulimit -l unlimited, or LimitMEMLOCK=infinity in \
                   the unit";
        findings.lacks(subject, found, fix);
    }
}
