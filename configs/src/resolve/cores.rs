//! Cores: who shares one, and which of them this machine lacks.

use std::collections::BTreeMap;

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::resolve::device::{Device, Side};
use crate::rules::Code;
use crate::source::Span;

/// A thread that is pinned: the key that says where.
struct User {
    path: String,
    span: Span,
    core: u32,
}

pub(super) fn check(
    root: &Fields,
    device: &Device<'_>,
    available: Option<&[u32]>,
    report: &mut Report<'_>,
) {
    if device.sockets && root.given("reorder").is_none() {
        return;
    }
    let users = users(root, device);
    check_shared(&users, report);
    if let Some(available) = available {
        check_available(&users, available, device.software, report);
    }
}

fn users(root: &Fields, device: &Device<'_>) -> Vec<User> {
    let mut users = Vec::new();
    let mut pin = |fields: &Fields, key: &str| {
        if let Some(core) = fields.small(key) {
            users.push(User { path: fields.path(key), span: fields.span(key), core });
        }
    };
    pin(device.cfg, "master_core");
    for side in [Side::Rx, Side::Tx] {
        for (_, queue) in device.queues(side) {
            pin(queue, "cpu_core");
        }
    }
    for block in ["bench_rx", "bench_tx"] {
        for bench in root.maps(block) {
            pin(bench, "cpu_core");
        }
    }
    if let Some(inference) = root.map("inference") {
        pin(inference, "cpu_core");
    }
    users
}

fn check_shared(users: &[User], report: &mut Report<'_>) {
    let mut by_core: BTreeMap<u32, Vec<&User>> = BTreeMap::new();
    for user in users {
        by_core.entry(user.core).or_default().push(user);
    }
    by_core.retain(|_, users| users.len() > 1);
    let Some(shared) = by_core.values().next() else { return };
    let list: Vec<String> = by_core
        .iter()
        .map(|(core, users)| {
            let paths: Vec<&str> = users.iter().map(|user| user.path.as_str()).collect();
            format!("core {core}: {}", paths.join(", "))
        })
        .collect();
    let (Some(first), Some(other)) = (shared.first(), shared.get(1)) else { return };
    let message = format!("busy threads share a core ({})", list.join("; "));
    report
        .add(Code::SharedCores, &other.path, other.span, message)
        .second(first.span, "the same core")
        .help("give each its own; a poller and a producer on one core run as one thread");
}

fn check_available(users: &[User], available: &[u32], software: bool, report: &mut Report<'_>) {
    let lacking: Vec<&User> = users.iter().filter(|user| !available.contains(&user.core)).collect();
    let Some(first) = lacking.first() else { return };
    let count = available.len();
    if software {
        let list: Vec<String> =
            lacking.iter().map(|user| format!("{} {}", user.path, user.core)).collect();
        let message = format!(
            "this machine lets us use {count} cores and not these; their threads are not pinned \
             ({})",
            list.join(", ")
        );
        report.add(Code::LoopbackCores, &first.path, first.span, message);
        return;
    }
    for user in lacking {
        let message = format!("this machine has no core {} that we may use", user.core);
        report
            .add(Code::NoCore, &user.path, user.span, message)
            .expected(format!("one of {}", ranges(available)))
            .help("`--no-pin` runs without pinning");
    }
}

/// `0-3, 8, 10-11`.
fn ranges(cores: &[u32]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for core in sorted {
        match parts.last_mut() {
            Some((_, last)) if core == *last || core == last.saturating_add(1) => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
        .collect();
    parts.join(", ")
}
