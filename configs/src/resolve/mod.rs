//! Values → configuration: what no single value can tell, because two places must agree.

mod cores;
mod device;
mod flows;
mod geometry;
mod notes;
mod outer;
mod pipeline;
mod reorder;
mod settings;
mod socket;

use tensorwire_core::geometry::Geometry;

use crate::Options;
use crate::diagnostic::Report;
use crate::fields::{self, Fields};
use crate::model::{Backend, Config, Receiver};
use crate::rules::Code;
use crate::source::Span;

use device::{Device, Side};
use geometry::Parts;
use pipeline::End;

pub(crate) use notes::bits_per_second;
pub(crate) use socket::EndPoints;

/// Where the two roles are declared, if they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) rx: Option<Span>,
    pub(crate) tx: Option<Span>,
}

impl Roles {
    fn of(root: &Fields) -> Self {
        let place = |key| root.given(key).map(|given| given.key_span);
        Self { rx: place("bench_rx"), tx: place("bench_tx") }
    }
}

/// Runs every check that looks at more than one value. The configuration comes out when nothing
/// but warnings and notes were found, these checks or earlier ones.
pub(crate) fn resolve(
    root: &Fields,
    options: &Options,
    report: &mut Report<'_>,
) -> (Option<Config>, Roles) {
    let roles = Roles::of(root);
    let preset = ["tensorwire", "stats"].map(fields::absent);
    let block = |key, preset| root.map(key).or(preset);
    let blocks = block("tensorwire", preset[0].as_ref()).zip(block("stats", preset[1].as_ref()));
    let cfg = root.map("daqiri").and_then(|daqiri| daqiri.map("cfg"));
    let Some((cfg, (settings, stats))) = cfg.zip(blocks) else { return (None, roles) };
    let Some(device) = Device::new(cfg, settings) else { return (None, roles) };
    let runs = root.given("reorder").is_some();
    device.check(runs, report);
    flows::check(&device, report);
    reorder::check(&device, runs, report);
    cores::check(root, &device, options.cores_available.as_deref(), report);
    let rx = pipeline::end(root, &device, Side::Rx, report);
    let tx = pipeline::end(root, &device, Side::Tx, report);
    if device.sockets && !runs {
        let (path, span) = (cfg.path("stream_type"), cfg.span("stream_type"));
        let message = "sockets without a `reorder` block: their messages are not packets of images";
        report.add(Code::NoPipeline, &path, span, message);
        return (None, roles);
    }
    let blocks = Blocks { root, settings, stats, roles };
    let config = application(&blocks, &device, (rx, tx), options, report);
    (config.filter(|_| !report.stops_a_run()), roles)
}

/// The application's part of the file; absent blocks of settings hold their defaults.
struct Blocks<'t> {
    root: &'t Fields,
    settings: &'t Fields,
    stats: &'t Fields,
    roles: Roles,
}

fn application<'t>(
    blocks: &Blocks<'t>,
    device: &Device<'t>,
    ends: (Option<End<'t>>, Option<End<'t>>),
    options: &Options,
    report: &mut Report<'_>,
) -> Option<Config> {
    let Blocks { root, roles, .. } = *blocks;
    if roles == Roles::default() {
        no_role(root, device, report);
        return None;
    }
    if root.given("reorder").is_none() {
        let span = roles.rx.or(roles.tx).unwrap_or_default();
        let message = "there is no `reorder` block, so packets are not images; tensorwire checks \
                       such files and does not run them";
        report.add(Code::NoPipeline, "reorder", span, message);
        frame_fits(ends.1, device, report);
        return None;
    }
    let app = root.map("reorder")?;
    needs_inference(blocks, options, report);
    let flows = ends.0.and_then(|rx| pipeline::flows(app, &rx, report));
    let sockets = socket::end_points(device, ends, report);
    let parts = parts(blocks, app, device, ends, options, report);
    if let Some(region) = parts.output_region.filter(|_| !device.software) {
        reorder::writable(app, region, report);
    }
    let geometry = parts.check(device, report)?;
    notes::check(&parts, device, &geometry, report);
    settings::check_backend(&parts, options, &geometry, report);
    socket::check_offload(parts.settings, device.sockets && ends.0.is_some(), report);
    if device.sockets {
        socket::check(app, ends, &geometry, report);
    }
    let mut config = assemble(blocks, device, &parts, geometry, flows, options)?;
    if device.sockets {
        config.put_sockets(sockets?);
        socket::check_flows(&config, ends.0, report);
    }
    notes::check_sender(&config, &parts, options.eth_dst.is_some(), report);
    Some(config)
}

/// Neither role: said by name, with what the interfaces would allow.
fn no_role(root: &Fields, device: &Device<'_>, report: &mut Report<'_>) {
    let sides = [Side::Rx, Side::Tx]
        .into_iter()
        .filter(|side| device.queues(*side).next().is_some())
        .map(|side| format!("`bench_{}`", side.key()));
    let sides: Vec<String> = sides.collect();
    let message = "neither `bench_rx` nor `bench_tx`: the file has no role";
    let span = root.given("daqiri").map(|given| given.key_span).unwrap_or_default();
    let found = report.add(Code::NoRole, "", span, message);
    if !sides.is_empty() {
        found.help(format!("its queues allow {}", sides.join(" and ")));
    }
}

/// A receiver infers, unless it is told not to, and then there are no features to write.
fn needs_inference(blocks: &Blocks<'_>, options: &Options, report: &mut Report<'_>) {
    let backend = settings::backend(blocks.settings, options);
    let Some(span) = blocks.roles.rx else { return };
    if backend == Some(Backend::None) {
        settings::no_features(blocks.settings, options, report);
    } else if blocks.root.given("inference").is_none() {
        let message = "`inference` is missing: the receiver has no model";
        report
            .add(Code::NoInference, "inference", span, message)
            .help("add an `inference` block, or `tensorwire: {inference_backend: none}`");
    } else if let (Some(inference), Some(backend)) = (blocks.root.map("inference"), backend) {
        settings::model_named(inference, backend, report);
    }
}

/// Without a `reorder:` block the sender's own numbers say how long a frame is.
fn frame_fits(tx: Option<End<'_>>, device: &Device<'_>, report: &mut Report<'_>) {
    let Some(tx) = tx else { return };
    let Some((_, region)) = tx.region(device) else { return };
    let frame = tx.bench.integer("header_size").zip(tx.bench.integer("payload_size"));
    let Some(((header, payload), size)) = frame.zip(region.integer("buf_size")) else { return };
    let frame = header.saturating_add(payload);
    if size < frame {
        let message = format!("{size} bytes do not hold a frame");
        report
            .add(Code::TxBufSize, &region.path("buf_size"), region.span("buf_size"), message)
            .expected(format!("at least {header} + {payload} = {frame}"))
            .second(tx.bench.span("payload_size"), "the payload of a frame");
    }
}

fn parts<'t>(
    blocks: &Blocks<'t>,
    app: &'t Fields,
    device: &Device<'t>,
    (rx, tx): (Option<End<'t>>, Option<End<'t>>),
    options: &Options,
    report: &mut Report<'_>,
) -> Parts<'t> {
    let output = rx.and_then(|rx| {
        reorder::agree(app, rx.half, report);
        pipeline::output_region(device, app, rx.half, report)
    });
    let region = |end: Option<End<'t>>| Some(end?.region(device)?.1);
    Parts {
        app,
        inference: blocks.root.map("inference"),
        settings: blocks.settings,
        rx,
        tx,
        rx_region: region(rx),
        tx_region: region(tx),
        output_region: output.map(|(_, region)| region),
        data_types: rx.and_then(|rx| rx.half.maps("reorder_configs").next()?.map("data_types")),
        images_override: options.images_per_inference,
    }
}

fn assemble(
    blocks: &Blocks<'_>,
    device: &Device<'_>,
    parts: &Parts<'_>,
    geometry: Geometry,
    flows: Option<pipeline::Flows>,
    options: &Options,
) -> Option<Config> {
    let at = |region: Option<&Fields>| {
        let region = region?;
        device.regions.iter().position(|other| std::ptr::eq(*other, region))
    };
    let rx = match &parts.rx {
        None => None,
        Some(rx) => {
            let regions = (at(parts.rx_region)?, at(parts.output_region)?);
            let rx = pipeline::receiver(rx, regions, flows?, parts.app, parts.pools(device)?)?;
            Some(Receiver { network_order: parts.network_order(), ..rx })
        }
    };
    let tx = match &parts.tx {
        None => None,
        Some(tx) => Some(pipeline::sender(tx, at(parts.tx_region)?, options.eth_dst)?),
    };
    let images = parts.images_per_inference();
    Some(Config {
        master_core: device.cfg.small("master_core")?,
        log_level: settings::log_level(device.cfg)?,
        debug: device.cfg.flag("debug"),
        software_loopback: device.software,
        regions: device.typed_regions()?,
        geometry,
        shape_given: parts.inference.is_some(),
        rx,
        tx,
        inference: match parts.inference {
            Some(inference) => Some(settings::inference(inference, images, &geometry)?),
            None => None,
        },
        dataset: settings::dataset(blocks.root.map("dataset")),
        stats: settings::stats(blocks.stats)?,
        settings: settings::settings(blocks.settings, options)?,
    })
}
