//! Flows: each packet class goes to queues that exist, by actions that belong there.

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::resolve::device::{Device, Side, unique, unique_number, unresolved_id};
use crate::resolve::outer;
use crate::rules::Code;
use crate::source::Span;

/// The keys that belong to each action type, besides `type`; all but the defaulted ones are due.
const ACTION_KEYS: &[(&str, &[&str])] = &[
    ("queue", &["id", "ids"]),
    ("vlan_pop", &[]),
    ("vlan_push", &["vlan_id", "pcp", "dei", "ethertype"]),
    ("tunnel_decap", &["tunnel"]),
    ("tunnel_encap", &["tunnel"]),
];

/// The keys of each tunnel type that the others do not have.
const TUNNEL_KEYS: &[(&str, &[&str])] = &[
    ("vxlan", &["vni", "outer_udp_src", "outer_udp_dst"]),
    ("gre", &["gre_protocol"]),
    ("nvgre", &["tni", "flow_id"]),
];

/// What a flow looks at; one interface can do one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Udp,
    Flex,
    Ecpri,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP ports or IPv4 length",
            Self::Flex => "a flex item",
            Self::Ecpri => "eCPRI",
        }
    }
}

pub(super) fn check(device: &Device<'_>, report: &mut Report<'_>) {
    for interface in &device.interfaces {
        if let Some(rx) = interface.map("rx") {
            check_flex_items(rx, report);
            check_side(device, rx, Side::Rx, report);
            check_classes(rx, report);
            check_isolation(rx, report);
        }
        if let Some(tx) = interface.map("tx") {
            check_side(device, tx, Side::Tx, report);
        }
    }
}

fn check_flex_items(rx: &Fields, report: &mut Report<'_>) {
    let items: Vec<&Fields> = rx.maps("flex_items").collect();
    unique(&items, "name", "flex item", report);
    unique_number(&items, "flex item", report);
    for item in items {
        if let Some(offset) = item.integer("offset").filter(|offset| offset % 4 != 0) {
            let message = format!("the offset {offset} is no multiple of 4");
            report
                .add(Code::Range, &item.path("offset"), item.span("offset"), message)
                .expected("0, 4, 8, … 24 bytes behind the UDP header");
        }
    }
}

fn check_side(device: &Device<'_>, half: &Fields, side: Side, report: &mut Report<'_>) {
    let flows: Vec<&Fields> = half.maps("flows").collect();
    unique_number(&flows, "flow", report);
    for flow in &flows {
        let actions = actions(flow, side, report);
        for action in &actions {
            check_action(action, side, report);
            outer::check(device, action, report);
        }
        if side == Side::Rx {
            check_target(half, flow, &actions, report);
        }
        check_match(half, flow, report);
    }
}

/// The actions of a flow, whichever way they are written.
fn actions<'t>(flow: &'t Fields, side: Side, report: &mut Report<'_>) -> Vec<&'t Fields> {
    match (flow.given("action"), flow.given("actions")) {
        (Some(one), Some(_)) => {
            let span = flow.span("actions");
            report
                .add(Code::OneOf, &flow.path("actions"), span, "`actions` beside `action`")
                .second(one.key_span, "one action here")
                .help("keep one of the two");
            return flow.map("action").into_iter().collect();
        }
        (None, Some(list)) if list.item.is_empty_list() => {
            report.add(Code::Action, &flow.path("actions"), list.key_span, "no action is listed");
        }
        (None, None) => {
            let need = match side {
                Side::Rx => "an action of type `queue`",
                Side::Tx => "an action",
            };
            let message = format!("the flow has no action; it needs {need}");
            report.add(Code::Action, &flow.path("action"), flow.anchor, message);
        }
        _ => {}
    }
    flow.map("action").into_iter().chain(flow.maps("actions")).collect()
}

fn check_action(action: &Fields, side: Side, report: &mut Report<'_>) {
    let Some(kind) = action.word("type") else { return };
    let wrong_side = match side {
        Side::Rx => matches!(kind, "vlan_push" | "tunnel_encap"),
        Side::Tx => matches!(kind, "queue" | "vlan_pop" | "tunnel_decap"),
    };
    if wrong_side {
        let message = format!("`{kind}` is no action of a flow under `{}`", side.key());
        report.add(Code::Action, &action.path("type"), action.span("type"), message);
    }
    only_keys(action, kind, ACTION_KEYS, report);
    let needed = match kind {
        "vlan_push" => Some("vlan_id"),
        "tunnel_encap" | "tunnel_decap" => Some("tunnel"),
        _ => None,
    };
    if let Some(key) = needed.filter(|key| action.given(key).is_none()) {
        let message = format!("`{kind}` needs `{key}`");
        report.add(Code::Missing, &action.path(key), action.anchor, message);
    }
    if let Some(tunnel) = action.map("tunnel")
        && let Some(kind) = tunnel.word("type")
    {
        only_keys(tunnel, kind, TUNNEL_KEYS, report);
    }
}

/// Reports keys that belong to another type than the one given.
fn only_keys(map: &Fields, kind: &str, table: &[(&str, &[&str])], report: &mut Report<'_>) {
    let own = table.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, keys)| keys);
    for (other, keys) in table {
        for key in keys.iter().filter(|key| !own.contains(*key)) {
            if *other != kind && map.given(key).is_some() {
                let message = format!("`{key}` belongs to `{other}`, this is `{kind}`");
                // `tunnel` belongs to two types: say it once.
                if !report.has(Code::Action, &map.path(key)) {
                    report
                        .add(Code::Action, &map.path(key), map.span(key), message)
                        .second(map.span("type"), "the type");
                }
            }
        }
    }
}

/// A receive flow ends in exactly one queue action, to queues that exist.
fn check_target(rx: &Fields, flow: &Fields, actions: &[&Fields], report: &mut Report<'_>) {
    if actions.is_empty() {
        return;
    }
    let queues = actions.iter().filter(|action| action.word("type") == Some("queue")).count();
    let last = actions.last().and_then(|action| action.word("type"));
    if queues > 1 || last.is_some_and(|last| last != "queue") {
        let message = match queues {
            0 => "the flow goes to no queue".to_owned(),
            1 => "the queue is not the last action".to_owned(),
            n => format!("the flow has {n} queue actions"),
        };
        let key = if flow.given("actions").is_some() { "actions" } else { "action" };
        report
            .add(Code::Action, &flow.path(key), flow.span(key), message)
            .expected("one action of type `queue`, the last")
            .help("several queues go into one action: `ids: [0, 1]` spreads by hash");
    }
    let known: Vec<Option<u64>> = rx.maps("queues").map(|queue| queue.integer("id")).collect();
    for action in actions.iter().filter(|action| action.word("type") == Some("queue")) {
        check_queue_action(action, flow, &known, report);
    }
}

fn check_queue_action(
    action: &Fields,
    flow: &Fields,
    known: &[Option<u64>],
    report: &mut Report<'_>,
) {
    match (action.given("id"), action.given("ids")) {
        (Some(one), Some(_)) => {
            report
                .add(Code::OneOf, &action.path("ids"), action.span("ids"), "`ids` beside `id`")
                .second(one.key_span, "one queue here");
        }
        (None, None) => {
            let message = "the action names no queue";
            report.add(Code::Action, &action.path("id"), action.anchor, message);
        }
        _ => {}
    }
    let ids: Vec<(u64, Span)> = action.integers("ids").collect();
    let one = action.given("id").and(action.integer("id")).map(|id| (id, action.span("id")));
    for (id, span) in one.iter().chain(&ids) {
        if !known.contains(&Some(*id)) {
            let key = if action.given("ids").is_some() { "ids" } else { "id" };
            unresolved_id("queue", *id, known, (&action.path(key), *span), report);
        }
    }
    for (at, (id, span)) in ids.iter().enumerate() {
        if let Some(earlier) = ids.iter().take(at).find(|earlier| earlier.0 == *id) {
            let message = format!("queue {id} stands twice in this list");
            report
                .add(Code::Twice, &action.path("ids"), *span, message)
                .second(earlier.1, "first here");
        }
    }
    if spread(action) {
        let (path, span) = (action.path("ids"), action.span("ids"));
        let ecpri = flow.map("match").and_then(|matched| matched.given("ecpri"));
        if let Some(ecpri) = ecpri {
            report
                .add(Code::OneOf, &path, span, "an eCPRI flow cannot be spread over queues")
                .second(ecpri.key_span, "eCPRI here");
        }
        let message = "packets are spread over several queues; tensorwire reads one";
        report.add(Code::ManyQueues, &path, span, message);
    }
}

/// Whether a queue action spreads its packets over several queues.
pub(super) fn spread(action: &Fields) -> bool {
    let mut ids = action.integers("ids").map(|(id, _)| id);
    ids.next().is_some_and(|first| ids.any(|id| id != first))
}

fn check_match(half: &Fields, flow: &Fields, report: &mut Report<'_>) {
    let Some(matched) = flow.map("match") else { return };
    let flex = matched.given("flex_item_id");
    for key in ["val", "mask"] {
        let (given, wanted) = (matched.given(key).is_some(), flex.is_some());
        if given && !wanted {
            let message = format!("`{key}` without `flex_item_id`");
            report.add(Code::OneOf, &matched.path(key), matched.span(key), message);
        } else if wanted && !given {
            let message = format!("a flex item is compared with `{key}`, which is missing");
            report.add(Code::Missing, &matched.path(key), matched.span("flex_item_id"), message);
        }
    }
    if let Some(id) = matched.integer("flex_item_id") {
        let known: Vec<Option<u64>> = match half.has("flex_items") {
            true => half.maps("flex_items").map(|item| item.integer("id")).collect(),
            false => Vec::new(),
        };
        if !known.contains(&Some(id)) {
            let place = (&*matched.path("flex_item_id"), matched.span("flex_item_id"));
            unresolved_id("flex item", id, &known, place, report);
        }
    }
    let classes = classes(matched);
    if let [(_, first), (class, second), ..] = classes.as_slice() {
        let message = format!("one match on two things; this is {}", class.name());
        report.add(Code::OneOf, &matched.path, *second, message).second(*first, "the other");
    }
    if let Some(ecpri) = matched.map("ecpri")
        && let (Some(_), Some(other)) = (ecpri.given("pc_id"), ecpri.given("rtc_id"))
    {
        report
            .add(Code::OneOf, &ecpri.path("rtc_id"), other.key_span, "`rtc_id` beside `pc_id`")
            .second(ecpri.span("pc_id"), "the other");
    }
}

fn classes(matched: &Fields) -> Vec<(Class, Span)> {
    let place =
        |keys: &[&str]| keys.iter().find_map(|key| matched.given(key)).map(|given| given.key_span);
    let udp = place(&["udp_src", "udp_dst", "ipv4_len"]).map(|span| (Class::Udp, span));
    let flex = place(&["flex_item_id"]).map(|span| (Class::Flex, span));
    let ecpri = place(&["ecpri"]).map(|span| (Class::Ecpri, span));
    [udp, flex, ecpri].into_iter().flatten().collect()
}

/// All flows of an interface look at the same kind of thing; of two kinds one would be dead.
fn check_classes(rx: &Fields, report: &mut Report<'_>) {
    let mut first: Option<(Class, Span)> = None;
    for flow in rx.maps("flows") {
        let Some(matched) = flow.map("match") else { continue };
        let Some((class, span)) = classes(matched).into_iter().next() else { continue };
        match first {
            None => first = Some((class, span)),
            Some((other, place)) if other != class => {
                let message = format!(
                    "this flow matches {}, another of the interface {}: one of them is dead",
                    class.name(),
                    other.name()
                );
                report
                    .add(Code::FlowClass, &matched.path, span, message)
                    .second(place, "the other kind");
            }
            Some(_) => {}
        }
    }
}

fn check_isolation(rx: &Fields, report: &mut Report<'_>) {
    if rx.flag("flow_isolation") && rx.items("flows").is_empty() {
        let message = "isolated, and no flow lets packets in: nothing arrives";
        report
            .add(Code::Isolation, &rx.path("flow_isolation"), rx.span("flow_isolation"), message)
            .help("add a flow, or set `flow_isolation: false`");
    }
}
