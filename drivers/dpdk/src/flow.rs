//! Steering rules: the flows of a configuration as a NIC matches them.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::ptr;

use tensorwire_core::flow::{FlowMatch, PortRange};
use tensorwire_dpdk_sys as sys;

use crate::device::text;
use crate::error::CallError;

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

/// The rule of `flow`: its frames go to `queue`, marked with flow id + 1 where the device marks.
fn rule_of(flow: &FlowMatch, queue: u16, marks: bool) -> sys::FlowRule {
    let ends = |range: Option<PortRange>| range.map_or((0, 0), |r| (r.first(), r.last()));
    let (src_first, src_last) = ends(flow.udp_src);
    let (dst_first, dst_last) = ends(flow.udp_dst);
    // A flow with the largest id of all has no mark; software matches it then.
    let mark = flow.id.checked_add(1).filter(|_| marks);
    sys::FlowRule {
        src_first,
        src_last,
        dst_first,
        dst_last,
        ipv4_len: flow.ipv4_len.unwrap_or(0),
        has_src: flow.udp_src.is_some().into(),
        has_dst: flow.udp_dst.is_some().into(),
        has_len: flow.ipv4_len.is_some().into(),
        has_mark: mark.is_some().into(),
        queue,
        mark: mark.unwrap_or(0),
    }
}

/// Makes the rules of `flows`, all or none. A driver's *validate* is not asked: that of one virtual
/// device accepts what its *create* refuses.
pub(crate) fn create(
    port: u16,
    queue: u16,
    flows: &[FlowMatch],
    marks: bool,
) -> Result<Vec<Rule>, Steering> {
    let mut rules = Vec::with_capacity(flows.len());
    for (number, flow) in flows.iter().enumerate() {
        let rule = rule_of(flow, queue, marks);
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
    use super::*;

    #[test]
    fn a_rule_says_what_the_flow_says() {
        let flow = FlowMatch {
            id: 201,
            udp_src: Some(PortRange::single(4096)),
            udp_dst: PortRange::new(4096, 4100).ok(),
            ipv4_len: None,
        };
        let rule = rule_of(&flow, 3, true);
        assert_eq!((rule.src_first, rule.src_last, rule.has_src), (4096, 4096, 1));
        assert_eq!((rule.dst_first, rule.dst_last, rule.has_dst), (4096, 4100, 1));
        assert_eq!((rule.has_len, rule.queue), (0, 3));
        assert_eq!((rule.has_mark, rule.mark), (1, 202));
        assert_eq!(rule_of(&flow, 0, false).has_mark, 0);
        // Mark 0 means "not marked", so the largest id has none.
        let largest = rule_of(&FlowMatch { id: u32::MAX, ..flow }, 0, true);
        assert_eq!((largest.has_mark, largest.mark), (0, 0));
        let length = rule_of(&FlowMatch { ipv4_len: Some(1226), ..FlowMatch::any(0) }, 0, true);
        assert_eq!((length.has_len, length.ipv4_len, length.has_src, length.mark), (1, 1226, 0, 1));
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
