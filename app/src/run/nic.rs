//! The software NIC that a configuration asks for.

use tensorwire_configs::{Config, Receiver};
use tensorwire_sim::nic::{NicError, Oversize, SwNicConfig, TxMode};

use super::plan::failure;
use crate::cli::{RunArgs, SimTx};
use crate::exit::{ExitCode, Failure};

/// The address that the software NIC sends from: locally administered (IEEE 802, bit 1 of byte 0).
const SOFTWARE_NIC_MAC: [u8; 6] = [0x02, 0x74, 0x77, 0, 0, 1];

/// The NIC of `config`.
///
/// # Errors
///
/// A [`Failure`] (exit 5) when the configuration is right and the software NIC has no rings or
/// pools of that size.
pub fn plan(config: &Config, args: &RunArgs) -> Result<SwNicConfig, Failure> {
    let rx = config.rx.as_ref().ok_or_else(|| {
        failure(ExitCode::Internal, "a run without a receiver reached the software NIC")
    })?;
    let flows = rx
        .reordered_flow_table()
        .map_err(|error| failure(ExitCode::Config, format!("rx.flows: {error}")))?;
    let frame_bytes = config.geometry.frame_bytes();
    let region = config.tx.as_ref().and_then(|tx| config.regions.get(tx.region));
    let (tx_bufs, tx_buf_size) =
        region.map_or((1, frame_bytes), |r| (r.buffers as usize, r.buffer_bytes as usize));
    let eth_src = config.tx.as_ref().filter(|tx| tx.offload_eth_src).map(|_| SOFTWARE_NIC_MAC);
    let nic = SwNicConfig {
        rx_bufs: rx_bufs(config, rx),
        rx_buf_size: frame_bytes,
        rx_ring: config.settings.rx_ring as usize,
        tx_bufs,
        tx_buf_size,
        tx_ring: config.settings.tx_ring as usize,
        // A run that is bounded by time measures what gets through, as on a wire; one that sends
        // something is to arrive whole.
        mode: match (args.sim_tx, args.seconds) {
            (Some(SimTx::Wire), _) | (None, Some(_)) => TxMode::Wire,
            (Some(SimTx::Lossless), _) | (None, None) => TxMode::Lossless,
        },
        oversize: Oversize::Cut,
        tx_eth_src: eth_src,
        flows: rx.flow_isolation.then_some(flows),
    };
    nic.check().map_err(|error| refused(&error))?;
    Ok(nic)
}

/// Packet buffers of the receiver.
fn rx_bufs(config: &Config, rx: &Receiver) -> usize {
    config.regions.get(rx.region).map_or(0, |region| region.buffers as usize)
}

/// In the words of the configuration.
fn refused(error: &NicError) -> Failure {
    let key = match error {
        NicError::OutOfRange { what: "rx_ring", .. } => "tensorwire.rx_ring: ",
        NicError::OutOfRange { what: "rx_bufs", .. } => "num_bufs of the receive region: ",
        _ => "",
    };
    failure(ExitCode::Device, format!("{key}{error}"))
}
