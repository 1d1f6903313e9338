//! End points of a socket stream, and what a socket cannot carry.

use std::net::{Ipv4Addr, SocketAddrV4};

use tensorwire_core::flow::PortRange;
use tensorwire_core::geometry::Geometry;

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::{Address, Config, RegionKind};
use crate::resolve::device::{Device, region_kind};
use crate::resolve::pipeline::End;
use crate::rules::Code;
use crate::scalar;
use crate::source::Span;

/// Bytes of Ethernet, IPv4 and UDP headers: the kernel writes them, a socket does not carry them.
const HEADERS: u32 = 42;

/// The end points of both sides, as far as they were asked for and are right.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndPoints {
    /// The receiver's own.
    pub(crate) rx: Option<SocketAddrV4>,
    /// The sender's own and where it sends to.
    pub(crate) tx: Option<(SocketAddrV4, SocketAddrV4)>,
}

/// Which of its two end points an interface names.
#[derive(Clone, Copy)]
enum Which {
    Local,
    Remote,
}

impl Which {
    /// The keys: the URI, and the older form.
    const fn keys(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Local => ("local_addr", "local_ip", "local_port"),
            Self::Remote => ("remote_addr", "remote_ip", "remote_port"),
        }
    }
}

/// Finds the end points of the pipeline's two ends, and reports what is wrong with them. `None`:
/// the stream has no sockets, or something was reported.
pub(super) fn end_points(
    device: &Device<'_>,
    (rx, tx): (Option<End<'_>>, Option<End<'_>>),
    report: &mut Report<'_>,
) -> Option<EndPoints> {
    if !device.sockets {
        return None;
    }
    if device.software {
        let (path, span) = (device.cfg.path("loopback"), device.cfg.span("loopback"));
        let message = "sockets are joined by the kernel, not in software";
        report
            .add(Code::EndPoint, &path, span, message)
            .second(device.cfg.span("stream_type"), "the stream")
            .help("take `loopback` out; udp://127.0.0.1 reaches this machine");
        return None;
    }
    let mut found = EndPoints::default();
    if let Some(rx) = rx {
        found.rx = Some(of(rx.interface, Which::Local, true, report)??);
        host_memory(device, &rx, report);
    }
    if let Some(tx) = tx {
        let remote = of(tx.interface, Which::Remote, true, report)??;
        // One interface with both sides has one end point of its own, and the receiver has it.
        let shared = rx.is_some_and(|rx| std::ptr::eq(rx.interface, tx.interface));
        let own = if shared { None } else { of(tx.interface, Which::Local, false, report)? };
        let any = SocketAddrV4::new(own_ip(tx.interface).unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        found.tx = Some((own.unwrap_or(any), remote));
    }
    Some(found)
}

/// The end point: `None` when something was reported, `Some(None)` when it may be absent and is.
#[expect(clippy::option_option, reason = "refused, absent and there are three answers")]
fn of(
    interface: &Fields,
    which: Which,
    required: bool,
    report: &mut Report<'_>,
) -> Option<Option<SocketAddrV4>> {
    let (uri, ip, port) = which.keys();
    let Some(config) = interface.map("socket_config") else {
        if interface.given("socket_config").is_none() {
            let message = "a socket stream has end points, and the interface names none";
            let path = interface.path("socket_config");
            report
                .add(Code::Missing, &path, interface.anchor, message)
                .help(format!("add `socket_config` with `{uri}: \"udp://10.0.0.1:4096\"`"));
        }
        return None;
    };
    let parts = [ip, port].map(|key| config.given(key));
    let found = match (config.given(uri), parts) {
        (Some(_), [None, None]) => parsed(config, uri, report)?,
        (None, [Some(_), Some(_)]) => pair(config, ip, port, report)?,
        (None, [None, None]) if !required => return Some(None),
        (Some(given), _) => {
            let message = format!("`{uri}` and its older form `{ip}`, `{port}`");
            let span = parts.into_iter().flatten().next().map_or(given.key_span, |p| p.key_span);
            report
                .add(Code::OneOf, &config.path(ip), span, message)
                .second(given.key_span, "the same end point");
            return None;
        }
        (None, _) => {
            let message = format!("`{uri}` is missing");
            report
                .add(Code::Missing, &config.path(uri), config.anchor, message)
                .expected("an end point, as udp://10.0.0.1:4096");
            return None;
        }
    };
    if matches!(which, Which::Local) {
        own_address(interface, found, (&config.path(uri), config.span(uri)), report)?;
    }
    Some(Some(found))
}

/// An end point in one text.
fn parsed(config: &Fields, key: &str, report: &mut Report<'_>) -> Option<SocketAddrV4> {
    let text = config.text(key)?;
    let (path, span) = (config.path(key), config.span(key));
    let mut refuse = |code, message: String| {
        report.add(code, &path, span, message).expected("an end point, as udp://10.0.0.1:4096");
    };
    let shown = scalar::shown(text);
    let Some((scheme, rest)) = text.split_once("://") else {
        refuse(Code::EndPoint, format!("`{shown}` has no `udp://`"));
        return None;
    };
    match scheme {
        "udp" => {}
        "tcp" | "roce" | "rdma" => {
            refuse(Code::Feature, format!("`{shown}`: tensorwire sends datagrams over UDP only"));
            return None;
        }
        _ => {
            refuse(Code::EndPoint, format!("`{shown}`: `{}` is not known", scalar::shown(scheme)));
            return None;
        }
    }
    let parts = rest.rsplit_once(':');
    let ip = parts.and_then(|(ip, _)| scalar::ipv4(ip));
    let port = parts.and_then(|(_, port)| scalar::integer(port).ok());
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let Some((ip, port)) = ip.zip(port) else {
        refuse(Code::EndPoint, format!("`{shown}` is no IPv4 address with a port from 1 to 65535"));
        return None;
    };
    Some(SocketAddrV4::new(ip, port))
}

/// An end point in its older form.
fn pair(config: &Fields, ip: &str, port: &str, report: &mut Report<'_>) -> Option<SocketAddrV4> {
    let (text, number) = (config.text(ip)?, config.small(port)?);
    let number = u16::try_from(number).ok().filter(|port| *port > 0);
    let address = scalar::ipv4(text);
    if address.is_none() {
        let message = format!("`{}` is no IPv4 address", scalar::shown(text));
        report.add(Code::EndPoint, &config.path(ip), config.span(ip), message);
    }
    if number.is_none() {
        let message = "port 0 reaches nobody";
        report.add(Code::EndPoint, &config.path(port), config.span(port), message);
    }
    Some(SocketAddrV4::new(address?, number?))
}

fn own_ip(interface: &Fields) -> Option<Ipv4Addr> {
    match interface.address("address")? {
        Address::Ip(std::net::IpAddr::V4(ip)) => Some(*ip),
        _ => None,
    }
}

/// The interface is at the address of its own end point.
fn own_address(
    interface: &Fields,
    local: SocketAddrV4,
    (path, span): (&str, Span),
    report: &mut Report<'_>,
) -> Option<()> {
    if own_ip(interface) == Some(*local.ip()) {
        return Some(());
    }
    let address = interface.address("address")?;
    let message = format!("the end point is at {}, and the interface at {address}", local.ip());
    report
        .add(Code::EndPoint, path, span, message)
        .second(interface.span("address"), "its address")
        .help("a socket stream's `address` is the IPv4 address of the interface");
    None
}

/// The kernel copies into memory that the CPU can write to.
fn host_memory(device: &Device<'_>, rx: &End<'_>, report: &mut Report<'_>) {
    let Some((_, region)) = rx.region(device) else { return };
    if region_kind(region) == Some(RegionKind::Device) {
        let message = "the kernel cannot receive into GPU memory";
        report
            .add(Code::RegionKind, &region.path("kind"), region.span("kind"), message)
            .help("write `kind: host`");
    }
}

/// What lies before byte 42 of a frame does not cross a socket; and what does must be let through.
pub(super) fn check(
    app: &Fields,
    (rx, tx): (Option<End<'_>>, Option<End<'_>>),
    geometry: &Geometry,
    report: &mut Report<'_>,
) {
    let spec = geometry.spec();
    if spec.seq_bit_offset < HEADERS * 8 {
        let (path, span) = (app.path("seq_bit_offset"), app.span("seq_bit_offset"));
        let message = format!(
            "bit {} lies in headers that the kernel writes; a socket carries what is behind them",
            spec.seq_bit_offset
        );
        report
            .add(Code::Carried, &path, span, message)
            .expected(format!("at least {}, the first bit behind the UDP header", HEADERS * 8));
    }
    let datagram =
        u64::from(spec.payload_byte_offset + spec.payload_bytes).saturating_sub(HEADERS.into());
    for end in [rx, tx].into_iter().flatten() {
        let Some(config) = end.interface.map("socket_config") else { continue };
        if let Some(limit) = config.integer("max_payload_size").filter(|limit| *limit < datagram) {
            let (path, span) = (config.path("max_payload_size"), config.span("max_payload_size"));
            let message = format!("{limit} bytes do not hold what is behind the UDP header");
            report
                .add(Code::EndPoint, &path, span, message)
                .expected(format!("at least {datagram}"));
        }
    }
    if let Some(tx) = tx {
        let (path, span) = (tx.bench.path("eth_dst_addr"), tx.bench.span("eth_dst_addr"));
        let message = "addresses and ports of `bench_tx` have no effect: the kernel writes those \
                       of the end points";
        report.add(Code::Ignored, &path, span, message);
    }
}

/// Receive offload is of a socket that receives.
pub(super) fn check_offload(settings: &Fields, receives: bool, report: &mut Report<'_>) {
    if settings.flag("socket_gro") && !receives {
        let (path, span) = (settings.path("socket_gro"), settings.span("socket_gro"));
        let message = "`socket_gro` has no effect: no socket receives";
        report.add(Code::Ignored, &path, span, message);
    }
}

/// A flow lets in what the receiver's port is sent.
pub(super) fn check_flows(config: &Config, rx: Option<End<'_>>, report: &mut Report<'_>) {
    let (Some(receiver), Some(rx)) = (&config.rx, rx) else { return };
    let Some(local) = receiver.socket else { return };
    let takes = |ports: Option<PortRange>| {
        ports.is_none_or(|ports| (ports.first()..=ports.last()).contains(&local.port()))
    };
    if receiver.flows.iter().any(|flow| takes(flow.udp_dst)) {
        return;
    }
    let Some(flow) = rx.half.maps("flows").next() else { return };
    let message = format!("no flow takes port {}, which the socket receives on", local.port());
    report.add(Code::NoFlow, &flow.path("match"), flow.span("match"), message);
}
