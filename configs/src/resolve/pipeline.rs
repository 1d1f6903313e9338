//! The application: which queue receives, which sends, and what happens in between.

use tensorwire_core::flow::{FlowMatch, MAX_FLOWS, PortRange};
use tensorwire_core::geometry::Pools;
use tensorwire_core::header::HeaderSpec;
use tensorwire_core::outer::Outer;
use tensorwire_core::time::Nanos;

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::{Receiver, Sender, octets};
use crate::resolve::device::{Device, Side, unresolved, unresolved_id};
use crate::resolve::outer;
use crate::resolve::reorder::{check_spread, target};
use crate::rules::Code;
use crate::source::Span;

/// One end of the pipeline: the application's block, and the queue that it names.
#[derive(Clone, Copy)]
pub(super) struct End<'t> {
    pub(super) bench: &'t Fields,
    pub(super) interface: &'t Fields,
    pub(super) half: &'t Fields,
    pub(super) queue: &'t Fields,
}

impl<'t> End<'t> {
    /// Index and fields of the region of the queue, when it has exactly one.
    pub(super) fn region(&self, device: &Device<'t>) -> Option<(usize, &'t Fields)> {
        let mut names = self.queue.texts("memory_regions");
        let (name, _) = names.next()?;
        let at = device.region(name)?;
        names.next().is_none().then_some(())?;
        Some((at, device.regions.get(at)?))
    }
}

const fn block(side: Side) -> &'static str {
    match side {
        Side::Rx => "bench_rx",
        Side::Tx => "bench_tx",
    }
}

/// Resolves the names of an application block; the first queue is the one that runs.
pub(super) fn end<'t>(
    root: &'t Fields,
    device: &Device<'t>,
    side: Side,
    report: &mut Report<'_>,
) -> Option<End<'t>> {
    let mut first = None;
    for (at, bench) in root.maps(block(side)).enumerate() {
        if at == 1 {
            let message = format!("`{}` names several queues; tensorwire runs one", block(side));
            report.add(Code::ManyQueues, &bench.path, bench.anchor, message);
        }
        let end = resolve_end(device, side, bench, report);
        if at == 0 {
            first = end;
        }
    }
    first
}

fn resolve_end<'t>(
    device: &Device<'t>,
    side: Side,
    bench: &'t Fields,
    report: &mut Report<'_>,
) -> Option<End<'t>> {
    let name = bench.text("interface_name")?;
    let (path, span) = (bench.path("interface_name"), bench.span("interface_name"));
    let Some(interface) = device.interface(name) else {
        let names = device.interfaces.iter().map(|interface| interface.text("name"));
        unresolved("interface", name, names, &path, span, report);
        return None;
    };
    let key = side.key();
    if interface.given(key).is_none() {
        let message = format!("the interface `{name}` has no `{key}` side");
        report
            .add(Code::Unresolved, &path, span, message)
            .second(interface.anchor, "the interface");
        return None;
    }
    let half = interface.map(key)?;
    let id = bench.integer("queue_id")?;
    let known: Vec<Option<u64>> = half.maps("queues").map(|queue| queue.integer("id")).collect();
    let queue = half.maps("queues").find(|queue| queue.integer("id") == Some(id));
    if queue.is_none() {
        let place = (bench.path("queue_id"), bench.span("queue_id"));
        unresolved_id(&format!("{key} queue"), id, &known, (&place.0, place.1), report);
    }
    Some(End { bench, interface, half, queue: queue? })
}

/// The region that batches are built in: named by `reorder:`, by the device's stage, or the only
/// one that no queue uses.
pub(super) fn output_region<'t>(
    device: &Device<'t>,
    app: &Fields,
    rx: &Fields,
    report: &mut Report<'_>,
) -> Option<(usize, &'t Fields)> {
    let path = app.path("memory_region");
    let found = |at: usize| Some((at, *device.regions.get(at)?));
    if app.given("memory_region").is_some() {
        let name = app.text("memory_region")?;
        let at = device.region(name);
        if at.is_none() {
            let names = device.regions.iter().map(|region| region.text("name"));
            unresolved("region", name, names, &path, app.span("memory_region"), report);
        }
        let at = at?;
        let place = (&*path, app.span("memory_region"));
        return found(at).filter(|_| feeds_no_queue(device, name, place, report));
    }
    let mut configs = rx.maps("reorder_configs");
    if let (Some(config), None) = (configs.next(), configs.next()) {
        return found(device.region(config.text("memory_region")?)?);
    }
    let used = |name: &str| {
        [Side::Rx, Side::Tx]
            .into_iter()
            .flat_map(|side| device.queues(side))
            .any(|(_, queue)| queue.texts("memory_regions").any(|(other, _)| other == name))
    };
    let names = device.regions.iter().map(|region| region.text("name"));
    let names: Vec<&str> = names.collect::<Option<_>>()?;
    // A queue whose region is missing or misspelt may be the one that uses a free one.
    let whole =
        [Side::Rx, Side::Tx].into_iter().flat_map(|side| device.queues(side)).all(|(_, queue)| {
            let mut regions = queue.texts("memory_regions").peekable();
            regions.peek().is_some() && regions.all(|(name, _)| names.contains(&name))
        });
    if !whole {
        return None;
    }
    let free: Vec<usize> =
        (0..names.len()).filter(|at| names.get(*at).is_some_and(|name| !used(name))).collect();
    match free.as_slice() {
        [at] => return found(*at),
        [] => {
            let message = "no region is left for the batches: every one feeds a queue";
            report
                .add(Code::OutputRegion, &path, app.anchor, message)
                .help("add a region, or name one with `reorder.memory_region`");
        }
        several => {
            let list: Vec<&str> = several.iter().filter_map(|at| names.get(*at)).copied().collect();
            let message = format!("batches could go to each of {}", list.join(", "));
            report
                .add(Code::OutputRegion, &path, app.anchor, message)
                .help("name one of them with `reorder.memory_region`");
        }
    }
    None
}

/// Batches are not built where packets arrive.
fn feeds_no_queue(
    device: &Device<'_>,
    name: &str,
    place: (&str, Span),
    report: &mut Report<'_>,
) -> bool {
    let mut queues = [Side::Rx, Side::Tx].into_iter().flat_map(|side| device.queues(side));
    let user = queues.find_map(|(_, queue)| {
        queue.texts("memory_regions").find(|(other, _)| *other == name).map(|(_, span)| span)
    });
    if let Some(user) = user {
        let message = format!("`{name}` feeds a queue; batches need a region of their own");
        report.add(Code::OutputRegion, place.0, place.1, message).second(user, "the queue");
    }
    user.is_none()
}

/// The flows of a receiver's queue, those of them that are reordered (empty = all), and the headers
/// that they take off.
pub(super) type Flows = (Vec<FlowMatch>, Vec<u32>, Vec<Outer>);

/// The flows of the receiver's queue.
pub(super) fn flows(app: &Fields, end: &End<'_>, report: &mut Report<'_>) -> Option<Flows> {
    let queue = end.queue.integer("id")?;
    let mut flows = Vec::new();
    for flow in end.half.maps("flows").filter(|flow| target(flow) == Some(queue)) {
        flows.push(flow_match(flow.small("id")?, flow.map("match"))?);
        if flows.len() == MAX_FLOWS + 1 {
            let message = format!("more flows than the {MAX_FLOWS} that a queue has");
            report.add(Code::Range, &flow.path("id"), flow.span("id"), message);
        }
    }
    if end.half.items("flows").is_empty() {
        // Without flows and isolation every UDP frame goes to the queue.
        flows.push(FlowMatch::any(0));
    }
    let known: Vec<Option<u64>> = end.half.maps("flows").map(|flow| flow.integer("id")).collect();
    let mut ids: Vec<u32> = Vec::new();
    let path = app.path("flow_ids");
    for (id, span) in app.integers("flow_ids") {
        if known.contains(&Some(id)) {
            check_spread(end.half, id, (&path, span), report);
        } else {
            unresolved_id("flow", id, &known, (&path, span), report);
        }
        ids.push(u32::try_from(id).ok()?);
    }
    let mut configs = end.half.maps("reorder_configs");
    if app.given("flow_ids").is_some() {
        let outer = outer::of_receiver(end, &ids, report);
        return Some((flows, ids, outer));
    }
    if let Some(config) = configs.next() {
        ids = config.integers("flow_ids").filter_map(|(id, _)| u32::try_from(id).ok()).collect();
    } else {
        for flow in &flows {
            check_spread(end.half, flow.id.into(), (&app.path, app.anchor), report);
        }
    }
    let outer = outer::of_receiver(end, &ids, report);
    Some((flows, ids, outer))
}

pub(super) fn flow_match(id: u32, matched: Option<&Fields>) -> Option<FlowMatch> {
    let Some(matched) = matched else { return Some(FlowMatch::any(id)) };
    let ports = |key| matched.ports(key).and_then(|(a, b)| PortRange::new(a, b).ok());
    let ipv4_len = matched.integer("ipv4_len").and_then(|len| u16::try_from(len).ok());
    Some(FlowMatch { id, udp_src: ports("udp_src"), udp_dst: ports("udp_dst"), ipv4_len })
}

/// The receiver, when all of its parts are there.
pub(super) fn receiver(
    end: &End<'_>,
    (region, output_region): (usize, usize),
    (flows, reordered_flows, outer): Flows,
    reorder: &Fields,
    pools: Pools,
) -> Option<Receiver> {
    Some(Receiver {
        interface: end.interface.text("name")?.to_owned(),
        address: end.interface.address("address")?.clone(),
        queue_id: end.queue.small("id")?,
        queue: end.queue.text("name")?.to_owned(),
        queue_path: end.queue.path.clone(),
        bench_path: end.bench.path.clone(),
        poller_core: end.queue.small("cpu_core"),
        producer_core: end.bench.small("cpu_core"),
        batch_size: end.queue.small("batch_size")?,
        timeout: Nanos::from_micros(end.queue.integer("timeout_us")?),
        region,
        output_region,
        flow_isolation: end.half.flag("flow_isolation"),
        hardware_timestamps: end.half.flag("hardware_timestamps"),
        flows,
        reordered_flows,
        outer,
        reorder_on_gpu: reorder.word("reorder_type") == Some("gpu"),
        network_order: false,
        pools,
        socket: None,
    })
}

/// The sender, when all of its parts are there.
pub(super) fn sender(end: &End<'_>, region: usize, eth_dst: Option<[u8; 6]>) -> Option<Sender> {
    let bench = end.bench;
    let port = |key| bench.integer(key).and_then(|port| u16::try_from(port).ok());
    Some(Sender {
        interface: end.interface.text("name")?.to_owned(),
        address: end.interface.address("address")?.clone(),
        queue_id: end.queue.small("id")?,
        queue: end.queue.text("name")?.to_owned(),
        bench_path: bench.path.clone(),
        queue_core: end.queue.small("cpu_core"),
        worker_core: bench.small("cpu_core"),
        batch_size: bench.small("batch_size").or_else(|| end.queue.small("batch_size"))?,
        region,
        header: HeaderSpec {
            eth_src: bench.mac("eth_src_addr").unwrap_or_default(),
            eth_dst: eth_dst.or_else(|| bench.mac("eth_dst_addr"))?,
            ip_src: octets(Some(bench.ipv4("ip_src_addr")?)),
            ip_dst: octets(Some(bench.ipv4("ip_dst_addr")?)),
            udp_src: port("udp_src_port")?,
            udp_dst: port("udp_dst_port")?,
        },
        flows: outer::of_sender(end)?,
        offload_eth_src: !end.queue.items("offloads").is_empty(),
        pacing_mbps: end.queue.small("pacing_mbps")?,
        socket: None,
    })
}
