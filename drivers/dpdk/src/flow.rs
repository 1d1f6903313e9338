//! Steering rules: the flows of a configuration as a NIC matches them.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::ptr;

use tensorwire_core::flow::{FlowMatch, PortRange};
use tensorwire_core::header::{HeaderSpec, build};
use tensorwire_core::outer::{Outer, Tunnel, TunnelKind};
use tensorwire_dpdk_sys as sys;

use crate::device::text;
use crate::error::CallError;
use crate::plan::FlowPlan;

/// Who matches the flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// No flow was asked for.
    Off,
    /// The device.
    Device {
        /// Its rules.
        rules: usize,
        /// Whether other frames stay with the kernel.
        isolated: bool,
    },
    /// The device cannot; every frame reaches the queue, and software matches.
    Software {
        /// The rule that the device refused, 0-based; `None`: it was the isolation.
        rule: Option<usize>,
        /// Its error.
        error: CallError,
        /// Its own words, if it has any.
        words: String,
    },
}

impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("no flows to steer"),
            Self::Device { rules, isolated } => {
                let others = if *isolated { "stay with the kernel" } else { "are received too" };
                write!(f, "flows are matched by the NIC ({rules} rules; other frames {others})")
            }
            Self::Software { error, words, .. } => {
                write!(f, "flows are matched in software: the device has no such rules ({error}")?;
                if !words.is_empty() {
                    write!(f, ": {words}")?;
                }
                f.write_str(")")
            }
        }
    }
}

/// A rule of the device.
#[derive(Debug)]
pub(crate) struct Rule(*mut c_void);

// SAFETY: a rule belongs to its port, not to a thread; it is destroyed once, by whoever has it.
unsafe impl Send for Rule {}

/// Lets only what rules match reach the queues of `port`, or everything again.
pub(crate) fn isolate(port: u16, on: bool) -> Result<(), CallError> {
    // SAFETY: the port is ours, and no other thread changes it.
    let result = unsafe { sys::twd_flow_isolate(port, i32::from(on)) };
    CallError::check("rte_flow_isolate", result).map(|_| ())
}

/// The rule of `flow`: its frames go to `queue`, marked with flow id + 1 where the device marks,
/// and lose `outer`. `None` for headers in an order that rules do not have.
fn rule_of(flow: &FlowMatch, queue: u16, marks: bool, outer: &[Outer]) -> Option<sys::FlowRule> {
    // A flow with the largest id of all has no mark; software matches it then.
    let mark = flow.id.checked_add(1).filter(|_| marks);
    let mut rule = sys::FlowRule {
        has_mark: mark.is_some().into(),
        queue,
        mark: mark.unwrap_or(0),
        ..matching(flow)
    };
    let tunnel = match outer {
        [] => return Some(rule),
        [Outer::Tunnel(tunnel)] => Some(tunnel),
        [Outer::Vlan(_), rest @ ..] => {
            rule.vlan = 1;
            match rest {
                [] => None,
                [Outer::Tunnel(tunnel)] => Some(tunnel),
                _ => return None,
            }
        }
        _ => return None,
    };
    if let Some(tunnel) = tunnel {
        inside(&mut rule, tunnel);
    }
    Some(rule)
}

/// The rule of sent frames of `flow`, which get `outer`; `None` as with [`rule_of`].
fn sent_rule_of(flow: &FlowMatch, outer: &[Outer]) -> Option<sys::FlowRule> {
    let mut rule = sys::FlowRule { egress: 1, ..matching(flow) };
    let tag = match outer {
        [Outer::Vlan(tag)] => Some(tag),
        [Outer::Tunnel(tunnel), rest @ ..] => {
            let header = header(tunnel)?;
            rule.encap_len = u8::try_from(Outer::Tunnel(*tunnel).header_bytes()).ok()?;
            rule.encap = header;
            if !tunnel.kind.bridges() {
                rule.decap_len = ETHERNET;
            }
            match rest {
                [] => None,
                [Outer::Vlan(tag)] => Some(tag),
                _ => return None,
            }
        }
        _ => return None,
    };
    if let Some(tag) = tag {
        (rule.vlan, rule.vlan_type, rule.vlan_control) = (1, tag.ethertype, tag.control);
    }
    Some(rule)
}

/// The match alone.
fn matching(flow: &FlowMatch) -> sys::FlowRule {
    let ends = |range: Option<PortRange>| range.map_or((0, 0), |r| (r.first(), r.last()));
    let (src_first, src_last) = ends(flow.udp_src);
    let (dst_first, dst_last) = ends(flow.udp_dst);
    sys::FlowRule {
        src_first,
        src_last,
        dst_first,
        dst_last,
        ipv4_len: flow.ipv4_len.unwrap_or(0),
        has_src: flow.udp_src.is_some().into(),
        has_dst: flow.udp_dst.is_some().into(),
        has_len: flow.ipv4_len.is_some().into(),
        ..sys::FlowRule::ANY
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: u8 = 14;

/// The frames come in `tunnel`, which is taken off.
fn inside(rule: &mut sys::FlowRule, tunnel: &Tunnel) {
    let number = match tunnel.kind {
        TunnelKind::Vxlan { vni, udp_src, udp_dst } => {
            rule.tunnel = sys::VXLAN;
            rule.has_outer_udp_src = udp_src.is_some().into();
            (rule.outer_udp_src, rule.outer_udp_dst) = (udp_src.unwrap_or(0), udp_dst);
            vni
        }
        TunnelKind::Gre { .. } => {
            rule.tunnel = sys::GRE;
            None
        }
        TunnelKind::Nvgre { tni, .. } => {
            rule.tunnel = sys::NVGRE;
            tni
        }
    };
    (rule.has_vni, rule.vni) = (number.is_some().into(), number.unwrap_or(0));
    (rule.has_outer_src, rule.outer_src) =
        (tunnel.ip_src.is_some().into(), tunnel.ip_src.unwrap_or_default());
    (rule.has_outer_dst, rule.outer_dst) =
        (tunnel.ip_dst.is_some().into(), tunnel.ip_dst.unwrap_or_default());
    rule.inner_eth = tunnel.kind.bridges().into();
    if let Some(header) = header(tunnel) {
        let bytes = Outer::Tunnel(*tunnel).header_bytes();
        (rule.decap_len, rule.decap) = (u8::try_from(bytes).unwrap_or(0), header);
        if !tunnel.kind.bridges() {
            // What was routed has no Ethernet header of its own.
            rule.encap_len = ETHERNET;
            rule.encap = header;
        }
    }
}

/// The bytes of the tunnel's headers, around an empty frame: a NIC writes lengths and checksums
/// itself, and addresses that the configuration leaves out are zeros.
fn header(tunnel: &Tunnel) -> Option<[u8; sys::HEADER]> {
    let outer = Outer::Tunnel(*tunnel);
    let mut frame = [0; 2 * sys::HEADER];
    let nobody = HeaderSpec {
        eth_src: [0; 6],
        eth_dst: [0; 6],
        ip_src: [0; 4],
        ip_dst: [0; 4],
        udp_src: 0,
        udp_dst: 0,
    };
    build(&nobody, frame.get_mut(outer.grows()..)?).ok()?;
    outer.put(&mut frame).then_some(())?;
    frame.first_chunk().copied()
}

/// Makes the rules of what is received, as [`create`].
pub(crate) fn steer(
    port: u16,
    queue: u16,
    plan: &FlowPlan,
    marks: bool,
) -> Result<Vec<Rule>, Steering> {
    create(port, plan.flows.iter().map(|flow| rule_of(flow, queue, marks, &plan.outer)))
}

/// Makes the rules of what is sent, as [`create`].
pub(crate) fn wrap(port: u16, flows: &[(FlowMatch, Vec<Outer>)]) -> Result<Vec<Rule>, Steering> {
    create(port, flows.iter().map(|(flow, outer)| sent_rule_of(flow, outer)))
}

/// Makes `rules`, all or none. A driver's *validate* is not asked: that of one virtual device
/// accepts what its *create* refuses.
fn create(
    port: u16,
    wanted: impl Iterator<Item = Option<sys::FlowRule>>,
) -> Result<Vec<Rule>, Steering> {
    let mut rules = Vec::new();
    for (number, rule) in wanted.enumerate() {
        let Some(rule) = rule else {
            destroy(port, rules);
            let error = CallError { call: "rte_flow_create", code: libc::ENOTSUP };
            let words = "headers in this order".to_owned();
            return Err(Steering::Software { rule: Some(number), error, words });
        };
        let mut handle = ptr::null_mut();
        let mut message = [0; 256];
        // SAFETY: the port is ours; `rule` is read during the call only, and the other two are ours
        // to write to, the message up to its length.
        let result = unsafe {
            let room = message.len();
            let message: *mut c_char = message.as_mut_ptr();
            sys::twd_flow_create(port, &raw const rule, &raw mut handle, message, room)
        };
        if let Err(error) = CallError::check("rte_flow_create", result) {
            destroy(port, rules);
            let words = text(&message);
            return Err(Steering::Software { rule: Some(number), error, words });
        }
        rules.push(Rule(handle));
    }
    Ok(rules)
}

/// Takes `rules` away, the last one first, as they lean on each other. How many the device kept.
pub(crate) fn destroy(port: u16, rules: Vec<Rule>) -> usize {
    let kept = rules.into_iter().rev().filter(|rule| {
        // SAFETY: the rule is of this port and is destroyed once: it is consumed here.
        (unsafe { sys::twd_flow_destroy(port, rule.0) }) < 0
    });
    kept.count()
}

#[cfg(test)]
mod tests {
    use tensorwire_core::outer::{ROUTED, Tag};

    use super::*;

    #[test]
    fn a_rule_says_what_the_flow_says() {
        let flow = FlowMatch {
            id: 201,
            udp_src: Some(PortRange::single(4096)),
            udp_dst: PortRange::new(4096, 4100).ok(),
            ipv4_len: None,
        };
        let rule = rule_of(&flow, 3, true, &[]).expect("a rule");
        assert_eq!((rule.src_first, rule.src_last, rule.has_src), (4096, 4096, 1));
        assert_eq!((rule.dst_first, rule.dst_last, rule.has_dst), (4096, 4100, 1));
        assert_eq!((rule.has_len, rule.queue), (0, 3));
        assert_eq!((rule.has_mark, rule.mark), (1, 202));
        assert_eq!(rule_of(&flow, 0, false, &[]).expect("a rule").has_mark, 0);
        // Mark 0 means "not marked", so the largest id has none.
        let largest = rule_of(&FlowMatch { id: u32::MAX, ..flow }, 0, true, &[]).expect("a rule");
        assert_eq!((largest.has_mark, largest.mark), (0, 0));
        let length =
            rule_of(&FlowMatch { ipv4_len: Some(1226), ..FlowMatch::any(0) }, 0, true, &[]);
        let length = length.expect("a rule");
        assert_eq!((length.has_len, length.ipv4_len, length.has_src, length.mark), (1, 1226, 0, 1));
    }

    fn tunnel(kind: TunnelKind) -> Outer {
        let (ip_src, ip_dst) = (Some([10, 0, 0, 1]), None);
        Outer::Tunnel(Tunnel { kind, eth_src: None, eth_dst: None, ip_src, ip_dst })
    }

    #[test]
    fn a_rule_takes_headers_off() {
        let flow = FlowMatch::any(0);
        let rule = |outer: &[Outer]| rule_of(&flow, 0, true, outer);
        let tag = Outer::Vlan(Tag::default());
        let vxlan = TunnelKind::Vxlan { vni: Some(7), udp_src: Some(9), udp_dst: 4789 };
        let popped = rule(&[tag]).expect("a rule");
        assert_eq!((popped.vlan, popped.tunnel, popped.decap_len), (1, 0, 0));
        let both = rule(&[tag, tunnel(vxlan)]).expect("a rule");
        assert_eq!(
            (both.vlan, both.tunnel, both.inner_eth, both.decap_len),
            (1, sys::VXLAN, 1, 50)
        );
        assert_eq!((both.has_vni, both.vni, both.has_outer_udp_src), (1, 7, 1));
        assert_eq!((both.outer_udp_src, both.outer_udp_dst), (9, 4789));
        assert_eq!((both.has_outer_src, both.outer_src), (1, [10, 0, 0, 1]));
        assert_eq!((both.has_outer_dst, both.encap_len), (0, 0));
        // EtherType, protocol, ports, and the number of the network.
        assert_eq!((&both.decap[12..14], both.decap[23]), (&[8, 0][..], 17));
        assert_eq!(both.decap[46..49], [0, 0, 7]);
        let nvgre = TunnelKind::Nvgre { tni: None, flow_id: 0 };
        let nvgre = rule(&[tunnel(nvgre)]).expect("a rule");
        assert_eq!((nvgre.tunnel, nvgre.has_vni, nvgre.decap_len), (sys::NVGRE, 0, 42));
        // What is routed has no Ethernet header inside: it gets one.
        let routed = rule(&[tunnel(TunnelKind::Gre { protocol: ROUTED })]).expect("a rule");
        assert_eq!((routed.tunnel, routed.inner_eth), (sys::GRE, 0));
        assert_eq!((routed.decap_len, routed.encap_len), (38, 14));
        assert_eq!(routed.encap[12..14], [8, 0]);
        // A tag inside of a tunnel, two tunnels.
        assert_eq!(rule(&[tunnel(vxlan), tag]), None);
        assert_eq!(rule(&[tunnel(vxlan), tunnel(vxlan)]), None);
    }

    #[test]
    fn a_rule_of_sent_frames_puts_headers() {
        let tag = Outer::Vlan(Tag { ethertype: 0x88a8, control: 0x6064 });
        let rule = |outer: &[Outer]| sent_rule_of(&FlowMatch::any(0), outer);
        let pushed = rule(&[tag]).expect("a rule");
        assert_eq!((pushed.egress, pushed.vlan, pushed.has_mark), (1, 1, 0));
        assert_eq!((pushed.vlan_type, pushed.vlan_control, pushed.encap_len), (0x88a8, 0x6064, 0));
        let routed = tunnel(TunnelKind::Gre { protocol: ROUTED });
        let both = rule(&[routed, tag]).expect("a rule");
        // The frame's own Ethernet header goes, 38 bytes come.
        assert_eq!((both.tunnel, both.decap_len, both.encap_len, both.vlan), (0, 14, 38, 1));
        assert_eq!((both.encap[23], &both.encap[26..30]), (47, &[10, 0, 0, 1][..]));
        assert_eq!(rule(&[tag, routed]), None);
        assert_eq!(rule(&[]), None);
    }

    #[test]
    fn both_sides_of_the_shim_have_one_rule() {
        // SAFETY: no arguments.
        let bytes = unsafe { sys::twd_flow_rule_bytes() };
        assert_eq!(bytes as usize, size_of::<sys::FlowRule>());
    }

    #[test]
    fn the_start_up_line_says_who_matches() {
        let device = Steering::Device { rules: 1, isolated: true }.to_string();
        assert_eq!(
            device,
            "flows are matched by the NIC (1 rules; other frames stay with the kernel)"
        );
        let error = CallError { call: "rte_flow_create", code: 38 };
        let software =
            Steering::Software { rule: Some(0), error, words: "not here".to_owned() }.to_string();
        assert_eq!(
            software,
            "flows are matched in software: the device has no such rules (rte_flow_create: \
             Function not implemented (code 38): not here)"
        );
    }
}
