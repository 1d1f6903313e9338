//! Headers that flows take off or put there: VLAN tags and tunnels.

use tensorwire_core::flow::FlowMatch;
use tensorwire_core::outer::{BRIDGED, Outer, ROUTED, Tag, Tunnel, TunnelKind};

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::octets;
use crate::resolve::device::Device;
use crate::resolve::pipeline::{End, flow_match};
use crate::rules::Code;

/// Says what of an action that changes headers cannot run here.
pub(super) fn check(device: &Device<'_>, action: &Fields, report: &mut Report<'_>) {
    let Some(kind) = action.word("type").filter(|kind| *kind != "queue") else { return };
    let (path, span) = (action.path("type"), action.span("type"));
    if device.software || device.sockets {
        let message = format!("`{kind}` cannot run here: only a port by DPDK changes headers");
        report.add(Code::Feature, &path, span, message);
    } else if let Some(tunnel) = action.map("tunnel")
        && let Some(protocol) = tunnel.integer("gre_protocol")
        && tunnel.word("type") == Some("gre")
        && ![u64::from(ROUTED), u64::from(BRIDGED)].contains(&protocol)
    {
        let message = format!("GRE around the protocol {protocol:#06x} cannot run here");
        report
            .add(Code::Feature, &tunnel.path("gre_protocol"), tunnel.span("gre_protocol"), message)
            .expected("0x0800 (IPv4) or 0x6558 (Ethernet)");
    }
}

/// What the flows of a receiver take off its frames, the outermost first. Frames of all of them
/// come the same way: software, which does it where the NIC does not, cannot know a frame's flow
/// before.
pub(super) fn of_receiver(end: &End<'_>, wanted: &[u32], report: &mut Report<'_>) -> Vec<Outer> {
    let wants = |flow: &&Fields| {
        wanted.is_empty() || flow.small("id").is_some_and(|id| wanted.contains(&id))
    };
    let mut all = end.half.maps("flows").filter(wants);
    let Some(first) = all.next() else { return Vec::new() };
    let outer = of_flow(first);
    for other in all {
        if of_flow(other) != outer {
            let key = if other.given("actions").is_some() { "actions" } else { "action" };
            let message = "this flow takes other headers off than the first of its queue";
            report
                .add(Code::Feature, &other.path(key), other.span(key), message)
                .second(first.anchor, "the first");
        }
    }
    outer
}

/// What a sender puts in front of its frames, by flow.
pub(super) fn of_sender(end: &End<'_>) -> Option<Vec<(FlowMatch, Vec<Outer>)>> {
    let flow = |flow: &Fields| {
        let matched = flow_match(flow.small("id")?, flow.map("match"))?;
        Some((matched, of_flow(flow)))
    };
    end.half.maps("flows").map(flow).collect()
}

fn of_flow(flow: &Fields) -> Vec<Outer> {
    flow.map("action").into_iter().chain(flow.maps("actions")).filter_map(of_action).collect()
}

fn of_action(action: &Fields) -> Option<Outer> {
    let number = |key| action.integer(key).and_then(|number| u16::try_from(number).ok());
    match action.word("type")? {
        "vlan_pop" => Some(Outer::Vlan(Tag::default())),
        "vlan_push" => {
            let (pcp, dei) = (number("pcp")?, number("dei")?);
            let control = pcp << 13 | dei << 12 | number("vlan_id")?;
            Some(Outer::Vlan(Tag { ethertype: number("ethertype")?, control }))
        }
        "tunnel_decap" | "tunnel_encap" => Some(Outer::Tunnel(tunnel(action.map("tunnel")?)?)),
        _ => None,
    }
}

fn tunnel(tunnel: &Fields) -> Option<Tunnel> {
    let number = |key| tunnel.integer(key).and_then(|number| u16::try_from(number).ok());
    let kind = match tunnel.word("type")? {
        "vxlan" => TunnelKind::Vxlan {
            vni: tunnel.small("vni"),
            udp_src: number("outer_udp_src"),
            udp_dst: number("outer_udp_dst")?,
        },
        "gre" => TunnelKind::Gre { protocol: number("gre_protocol")? },
        _ => TunnelKind::Nvgre {
            tni: tunnel.small("tni"),
            flow_id: u8::try_from(tunnel.integer("flow_id")?).ok()?,
        },
    };
    let ip = |key| tunnel.ipv4(key).map(|address| octets(Some(address)));
    Some(Tunnel {
        kind,
        eth_src: tunnel.mac("outer_eth_src"),
        eth_dst: tunnel.mac("outer_eth_dst"),
        ip_src: ip("outer_ipv4_src"),
        ip_dst: ip("outer_ipv4_dst"),
    })
}
