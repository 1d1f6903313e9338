//! The cores that threads are pinned to: there, kept free of others, at full clock.

use super::machine::Machine;
use super::{Findings, Needs, nic};
use crate::run::pin::list;

const CPU: &str = "sys/devices/system/cpu";

pub(super) fn examine(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    let read = |file: &str| machine.text(&format!("{CPU}/{file}")).and_then(|text| list(&text));
    let Some(online) = read("online") else {
        return findings.note("cores", format!("cannot be told from /{CPU}/online"));
    };
    findings.ok("cores", format!("{} online", online.len()));
    let isolated = read("isolated").unwrap_or_default();
    if needs.cores.is_empty() {
        return general(machine, &online, &isolated, findings);
    }
    let strongest = online.iter().filter_map(|&core| capacity(machine, core)).max();
    let mut seen: Vec<u32> = Vec::new();
    for &(core, who) in &needs.cores {
        let subject = format!("core {core}");
        if !online.contains(&core) {
            findings.lacks(
                &subject,
                format!("not online, {who} is to run there"),
                "choose one of /sys/devices/system/cpu/online",
            );
            continue;
        }
        if seen.contains(&core) {
            continue;
        }
        seen.push(core);
        one(machine, (core, who), (&isolated, strongest), needs, findings);
    }
}

/// One core that a thread polls on.
fn one(
    machine: &Machine,
    (core, who): (u32, &str),
    (isolated, strongest): (&[u32], Option<u64>),
    needs: &Needs<'_>,
    findings: &mut Findings,
) {
    let subject = format!("core {core}");
    let mut good = true;
    let master = needs.cores.iter().all(|&(other, who)| other != core || who == "the main thread");
    if !isolated.contains(&core) && !master {
        good = false;
        findings.slows(
            &subject,
            format!("not isolated, {who} shares it with whatever is scheduled there"),
            format!("isolcpus={core} nohz_full={core} rcu_nocbs={core} at boot"),
        );
    }
    if let Some(governor) = governor(machine, core).filter(|governor| governor != "performance") {
        good = false;
        findings.slows(
            &subject,
            format!("governor {governor}"),
            format!("cpupower -c {core} frequency-set -g performance"),
        );
    }
    if let (Some(strongest), Some(here)) = (strongest, capacity(machine, core))
        && here < strongest
        && !master
    {
        good = false;
        findings.slows(
            &subject,
            format!("a slower core, {here} of {strongest}, for {who}"),
            "choose one of the fast ones (cpu_capacity)",
        );
    }
    for address in &needs.interfaces {
        let Some(node) = nic::numa_node(machine, address) else { continue };
        let cores = machine.text(&format!("sys/devices/system/node/node{node}/cpulist"));
        if cores.and_then(|text| list(&text)).is_some_and(|cores| !cores.contains(&core)) && !master
        {
            good = false;
            findings.slows(
                &subject,
                format!("not on NUMA node {node}, where {address} is"),
                format!("choose one of /sys/devices/system/node/node{node}/cpulist"),
            );
        }
    }
    if good {
        findings.ok(&subject, format!("for {who}"));
    }
}

fn general(machine: &Machine, online: &[u32], isolated: &[u32], findings: &mut Findings) {
    if isolated.is_empty() {
        findings.slows(
            "isolation",
            "no core is isolated",
            "isolcpus=, nohz_full= and rcu_nocbs= at boot for the cores that poll",
        );
    } else {
        findings.ok("isolation", format!("{} cores", isolated.len()));
    }
    let mut governors: Vec<_> = online.iter().filter_map(|&core| governor(machine, core)).collect();
    governors.sort();
    governors.dedup();
    match governors.as_slice() {
        [] => findings.note("governor", "the kernel does not scale the clock here"),
        [one] if one == "performance" => findings.ok("governor", "performance"),
        some => {
            findings.slows("governor", some.join(", "), "cpupower frequency-set -g performance")
        }
    }
}

fn governor(machine: &Machine, core: u32) -> Option<String> {
    machine.text(&format!("{CPU}/cpu{core}/cpufreq/scaling_governor"))
}

/// How fast a core is against others of this machine, where they differ.
fn capacity(machine: &Machine, core: u32) -> Option<u64> {
    machine.number(&format!("{CPU}/cpu{core}/cpu_capacity"))
}
