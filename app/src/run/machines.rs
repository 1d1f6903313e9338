//! What a plan asks of the machines of the core.

use std::time::Duration;

use tensorwire_configs::{Backpressure, Config, Missing, Receiver};
use tensorwire_core::header::PacketCheck;
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::producer::{self, ProducerConfig};
use tensorwire_core::pipeline::transmitter::TransmitterConfig;
use tensorwire_core::time::Nanos;

use super::plan::{Passes, Plan, failure};
use crate::exit::{ExitCode, Failure};
use crate::run::args::RunArgs;

/// The longest time for which a sender may find no room. The receiver may be busy for as long as
/// the inference of a batch takes, on a slow machine for minutes; whatever is slower is stuck.
const STALL_AFTER: Nanos = Nanos::from_secs(600);

pub(super) fn time_limit(args: &RunArgs) -> Option<Nanos> {
    let nanos = |seconds: Duration| u64::try_from(seconds.as_nanos()).unwrap_or(u64::MAX);
    args.seconds.map(|seconds| Nanos(nanos(seconds)))
}

pub(super) fn quiesce_wait(config: &Config) -> Nanos {
    Nanos::from_secs(u64::from(config.settings.quiesce_wait_s))
}

pub(super) fn producer(
    plan: &Plan,
    args: &RunArgs,
    rx: &Receiver,
) -> Result<ProducerConfig, Failure> {
    let settings = &plan.config.settings;
    let geometry = plan.config.geometry;
    let flows = rx
        .reordered_flow_table()
        .map_err(|error| failure(ExitCode::Config, format!("rx.flows: {error}")))?;
    Ok(ProducerConfig {
        geometry,
        check: PacketCheck::new(&geometry, &flows, settings.verify, settings.accept_trailer),
        windows: settings.window,
        timeout: rx.timeout,
        missing: match settings.missing {
            Missing::Passthrough => producer::MissingPolicy::Passthrough,
            Missing::Drop => producer::MissingPolicy::Drop,
        },
        backpressure: match settings.backpressure {
            Backpressure::Block => producer::Backpressure::Block,
            Backpressure::Drop => producer::Backpressure::Drop,
        },
        poll: (rx.batch_size as usize).min(MAX_POLL),
        rx_ring: settings.rx_ring as usize,
        startup_wait: Nanos::from_secs(u64::from(settings.startup_wait_s)),
        quiesce_wait: quiesce_wait(&plan.config),
        owed_images: args.expected_images,
        time_limit: time_limit(args),
    })
}

pub(super) fn transmitter(plan: &Plan) -> TransmitterConfig {
    let config = &plan.config;
    TransmitterConfig {
        passes: (plan.passes == Passes::Once).then_some(1),
        renumber: (plan.passes == Passes::Loop)
            .then(|| (config.geometry.seq_field(), plan.pass_packets)),
        eth_dst: plan.eth_dst,
        pacing_mbps: config.tx.as_ref().map_or(0, |tx| tx.pacing_mbps.into()),
        stall_after: STALL_AFTER,
    }
}
