//! The network side: names resolve, numbers are unique, addresses and regions fit.

use tensorwire_core::geometry::{Grouped, queue_region_floor};

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::{Address, Region, RegionKind};
use crate::rules::Code;
use crate::scalar::{nearest, shown};
use crate::source::Span;

/// The decoded `daqiri.cfg`, with what most checks ask for.
pub(super) struct Device<'t> {
    pub(super) cfg: &'t Fields,
    pub(super) regions: Vec<&'t Fields>,
    pub(super) interfaces: Vec<&'t Fields>,
    /// A socket stream: without a pipeline the rules of raw streams do not hold.
    pub(super) sockets: bool,
    /// TX and RX are joined in software.
    pub(super) software: bool,
    pub(super) rx_ring: u64,
    pub(super) tx_ring: u64,
}

/// Receive or transmit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Rx,
    Tx,
}

impl Side {
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        }
    }
}

impl<'t> Device<'t> {
    /// `None` when a setting that checks ask for was refused.
    pub(super) fn new(cfg: &'t Fields, settings: &Fields) -> Option<Self> {
        Some(Self {
            cfg,
            regions: cfg.maps("memory_regions").collect(),
            interfaces: cfg.maps("interfaces").collect(),
            sockets: cfg.word("stream_type") == Some("socket"),
            software: cfg.word("loopback") == Some("sw"),
            rx_ring: settings.integer("rx_ring")?,
            tx_ring: settings.integer("tx_ring")?,
        })
    }

    /// The typed regions; `None` when one of them is not whole.
    pub(super) fn typed_regions(&self) -> Option<Vec<Region>> {
        self.regions.iter().map(|region| typed_region(region)).collect()
    }

    /// Index of the region of that name.
    pub(super) fn region(&self, name: &str) -> Option<usize> {
        self.regions.iter().position(|region| region.text("name") == Some(name))
    }

    /// The interface of that name.
    pub(super) fn interface(&self, name: &str) -> Option<&'t Fields> {
        self.interfaces.iter().copied().find(|interface| interface.text("name") == Some(name))
    }

    /// All queues of one side, each with its interface.
    pub(super) fn queues(&self, side: Side) -> impl Iterator<Item = (&'t Fields, &'t Fields)> {
        self.interfaces.iter().flat_map(move |interface| {
            let side = interface.map(side.key());
            side.into_iter().flat_map(|side| side.maps("queues")).map(|queue| (*interface, queue))
        })
    }

    /// `runs`: the file has a pipeline, so its queues are ours to keep alive.
    pub(super) fn check(&self, runs: bool, report: &mut Report<'_>) {
        unique(&self.regions, "name", "region", report);
        unique(&self.interfaces, "name", "interface", report);
        self.check_ports(report);
        if self.interfaces.is_empty()
            && let Some(given) = self.cfg.given("interfaces")
            && given.item.is_empty_list()
        {
            let path = self.cfg.path("interfaces");
            report.add(Code::Missing, &path, given.key_span, "no interface is listed");
        }
        for interface in &self.interfaces {
            self.check_address(interface, report);
            self.check_streams(interface, report);
            for side in [Side::Rx, Side::Tx] {
                if let Some(half) = interface.map(side.key()) {
                    let queues: Vec<&Fields> = half.maps("queues").collect();
                    unique_number(&queues, "queue", report);
                    unique(&queues, "name", "queue", report);
                    for queue in queues {
                        self.check_queue(queue, runs, report);
                    }
                }
            }
        }
        self.check_floors(runs, report);
    }

    fn check_address(&self, interface: &Fields, report: &mut Report<'_>) {
        let Some(address) = interface.address("address") else { return };
        if self.sockets {
            return;
        }
        let looped = *address == Address::Loopback;
        let (path, span) = (interface.path("address"), interface.span("address"));
        if looped && !self.software {
            report
                .add(Code::Loopback, &path, span, "`loopback` is no port of a NIC")
                .second(self.cfg.span("loopback"), "loopback is not `sw` here")
                .help("set `loopback: \"sw\"`, or give the PCI address of a port");
        } else if self.software && !looped {
            let message = format!("{address} is a port, but the stream is looped in software");
            report
                .add(Code::Loopback, &path, span, message)
                .second(self.cfg.span("loopback"), "`sw` opens no port")
                .help("write `address: loopback`, or `loopback: \"\"`");
        } else if let Address::Ip(_) = address
            && self.cfg.given("stream_type").is_some()
        {
            let message = format!("{address} is an IP address; raw streams need a port");
            report
                .add(Code::Address, &path, span, message)
                .expected("a PCI address (as 0000:01:00.0), an interface name or a virtual device");
        }
    }

    /// A port is opened once.
    fn check_ports(&self, report: &mut Report<'_>) {
        let port = |interface: &Fields| match interface.address("address")? {
            Address::Pci(pci) => Some(pci.to_string()),
            // Its options are not part of its name.
            Address::Virtual(device) => device.split(',').next().map(str::to_owned),
            Address::Interface(name) => Some(name.clone()),
            Address::Ip(_) | Address::Loopback => None,
        };
        for (at, interface) in self.interfaces.iter().enumerate() {
            let Some(name) = port(interface) else { continue };
            let same = |other: &&&Fields| port(other).as_ref() == Some(&name);
            if let Some(earlier) = self.interfaces.iter().take(at).find(same) {
                let (path, span) = (interface.path("address"), interface.span("address"));
                report
                    .add(Code::Twice, &path, span, format!("two interfaces are the port {name}"))
                    .second(earlier.span("address"), "first here")
                    .help("one interface can have both `rx` and `tx`");
            }
        }
    }

    fn check_streams(&self, interface: &Fields, report: &mut Report<'_>) {
        for key in ["socket_config", "roce_config"] {
            if interface.given(key).is_some() && !self.sockets {
                let message = format!("`{key}` has no effect: the stream is raw");
                report.add(Code::Ignored, &interface.path(key), interface.span(key), message);
            }
        }
        if interface.map("rx").is_none()
            && interface.map("tx").is_none()
            && interface.given("rx").is_none()
            && interface.given("tx").is_none()
        {
            let message = "an interface with neither `rx` nor `tx`";
            report.add(Code::Missing, &interface.path, interface.anchor, message);
        }
    }

    fn check_queue(&self, queue: &Fields, runs: bool, report: &mut Report<'_>) {
        for (name, span) in queue.texts("memory_regions") {
            if self.region(name).is_none() {
                let names = self.regions.iter().map(|region| region.text("name"));
                unresolved("region", name, names, &queue.path("memory_regions"), span, report);
            }
        }
        if queue.word("poll_mode") == Some("direct") {
            for key in ["cpu_core", "batch_size", "timeout_us"] {
                if queue.given(key).is_some() {
                    let message = format!("a queue that is polled directly has no `{key}`");
                    report
                        .add(Code::DirectPoll, &queue.path(key), queue.span(key), message)
                        .second(queue.span("poll_mode"), "polled directly");
                }
            }
            return;
        }
        if self.sockets && !runs {
            return;
        }
        if queue.given("batch_size").is_none() {
            let message = "`batch_size` is missing: a queue moves packets in batches";
            report.add(Code::Missing, &queue.path("batch_size"), queue.anchor, message);
        }
        let given = queue.given("memory_regions");
        if given.is_none_or(|given| given.item.is_empty_list()) {
            let path = queue.path("memory_regions");
            let message = "the queue has no memory region: it needs one";
            report.add(Code::NoRegion, &path, queue.span("memory_regions"), message);
        }
        if queue.items("memory_regions").len() > 1 {
            let path = queue.path("memory_regions");
            let message = "two regions split header and data; tensorwire receives whole frames";
            report.add(Code::Split, &path, queue.span("memory_regions"), message);
        }
    }

    /// Regions that feed NIC queues hold enough buffers for the rings and the batches.
    fn check_floors(&self, runs: bool, report: &mut Report<'_>) {
        if self.sockets || self.software {
            return;
        }
        // DAQIRI raises such counts by itself.
        let code = if runs { Code::QueueBuffers } else { Code::FewBuffers };
        for region in &self.regions {
            let Some((name, buffers)) = region.text("name").zip(region.integer("num_bufs")) else {
                continue;
            };
            let sides = [(Side::Rx, self.rx_ring), (Side::Tx, self.tx_ring)];
            let users: Vec<(u64, u64)> = sides
                .into_iter()
                .flat_map(|(side, ring)| self.queues(side).map(move |(_, queue)| (queue, ring)))
                .filter(|(queue, _)| queue.texts("memory_regions").any(|(text, _)| text == name))
                .filter_map(|(queue, ring)| Some((ring, queue.integer("batch_size")?)))
                .collect();
            let floor: u64 = users.iter().map(|user| queue_region_floor(user.0, user.1)).sum();
            if buffers >= floor {
                continue;
            }
            let formula: Vec<String> = users
                .iter()
                .map(|(ring, batch)| format!("max(1.5 × {ring}, {ring} + 2 × {batch})"))
                .collect();
            let message = format!(
                "{} buffers: traffic stops for good once they are all in use",
                Grouped(buffers)
            );
            report
                .add(code, &region.path("num_bufs"), region.span("num_bufs"), message)
                .expected(format!("at least {} = {}", Grouped(floor), formula.join(" + ")))
                .help(format!("write {}", floor.next_multiple_of(1024)));
        }
    }
}

fn typed_region(region: &Fields) -> Option<Region> {
    Some(Region {
        name: region.text("name")?.to_owned(),
        kind: region_kind(region)?,
        affinity: region.small("affinity")?,
        buffers: region.small("num_bufs")?,
        buffer_bytes: region.small("buf_size")?,
    })
}

pub(super) fn region_kind(region: &Fields) -> Option<RegionKind> {
    let all = [RegionKind::Huge, RegionKind::Device, RegionKind::HostPinned, RegionKind::Host];
    let word = region.word("kind")?;
    all.into_iter().find(|kind| kind.word() == word)
}

/// Reports every `key` text that an earlier map of the list has too.
pub(super) fn unique(maps: &[&Fields], key: &str, what: &str, report: &mut Report<'_>) {
    for (at, map) in maps.iter().enumerate() {
        let Some(text) = map.text(key) else { continue };
        let earlier = maps.iter().take(at).find(|earlier| earlier.text(key) == Some(text));
        if let Some(earlier) = earlier {
            let message = format!("two {what}s are called `{}`", shown(text));
            report
                .add(Code::Twice, &map.path(key), map.span(key), message)
                .second(earlier.span(key), "first here");
        }
    }
}

/// Reports every `id` that an earlier map of the list has too.
pub(super) fn unique_number(maps: &[&Fields], what: &str, report: &mut Report<'_>) {
    for (at, map) in maps.iter().enumerate() {
        let Some(id) = map.integer("id") else { continue };
        let earlier = maps.iter().take(at).find(|earlier| earlier.integer("id") == Some(id));
        if let Some(earlier) = earlier {
            let message = format!("two {what}s have the id {id}");
            report
                .add(Code::Twice, &map.path("id"), map.span("id"), message)
                .second(earlier.span("id"), "first here");
        }
    }
}

/// Reports a name that nothing has, with the nearest that something has. Quiet when a name of the
/// list was refused itself: it may be the one that is meant.
pub(super) fn unresolved<'n>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = Option<&'n str>>,
    path: &str,
    span: Span,
    report: &mut Report<'_>,
) {
    let Some(known) = known.collect::<Option<Vec<&str>>>() else { return };
    let message = format!("there is no {what} `{}`", shown(name));
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("the file has no {what}"),
        None => format!("there is {}", known.join(", ")),
    };
    report.add(Code::Unresolved, path, span, message).help(help);
}

/// Reports a number that nothing has.
pub(super) fn unresolved_id(
    what: &str,
    id: u64,
    known: &[Option<u64>],
    place: (&str, Span),
    report: &mut Report<'_>,
) {
    if known.contains(&None) {
        return;
    }
    let known: Vec<String> = known.iter().flatten().map(u64::to_string).collect();
    let help = match known.as_slice() {
        [] => format!("the interface has no {what}"),
        known => format!("there is {}", known.join(", ")),
    };
    report.add(Code::Unresolved, place.0, place.1, format!("there is no {what} {id}")).help(help);
}
