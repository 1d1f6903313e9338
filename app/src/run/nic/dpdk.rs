//! Ports by DPDK: what a configuration asks of them, and the ports as the NIC of a run.

use tensorwire_configs::{Address, Config, Receiver, Region, RegionKind, Sender};
use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_core::outer::Outer;
pub use tensorwire_dpdk::BUILT;
use tensorwire_dpdk::plan::shares_buffers;
use tensorwire_dpdk::{Buffers, FlowPlan, NicConfig, Pages, PortAddress, RxConfig, TxConfig};

use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;

/// What a user has to do for a build with DPDK.
pub const HOW: &str = "build it with `cargo build --release --features dpdk` where libdpdk 22.11 \
                       or later is installed (docs/dpdk.md)";

/// The ports that `config` asks for.
///
/// # Errors
///
/// A [`Failure`]: 5 for a build without DPDK, for memory that no port of it can receive into, and
/// for more descriptors than a port can have.
pub fn ports(config: &Config) -> Result<NicConfig, Failure> {
    let rx = config.rx.as_ref().map(|rx| receiver(config, rx)).transpose()?;
    let tx = config.tx.as_ref().map(|tx| sender(config, tx)).transpose()?;
    if !BUILT {
        let rx = config.rx.as_ref().map(|rx| (&rx.interface, &rx.address));
        let tx = config.tx.as_ref().map(|tx| (&tx.interface, &tx.address));
        let ends: Vec<String> = [rx, tx]
            .into_iter()
            .flatten()
            .map(|(name, address)| format!("`{name}` at {address}"))
            .collect();
        return Err(failure(
            ExitCode::Device,
            format!(
                "interface {} needs DPDK, and this build has none: {HOW}; with `loopback: \"sw\"` \
                 and `address: loopback` the software NIC runs anywhere",
                ends.join(" and ")
            ),
        ));
    }
    Ok(NicConfig { rx, tx })
}

/// Bytes of memory that the receiver's packets want lent by a GPU.
///
/// # Errors
///
/// Why a GPU cannot read them.
pub fn lent_bytes(config: &NicConfig) -> Result<usize, String> {
    let rx = config.rx.as_ref().map(|rx| &rx.port);
    if let Some(PortAddress::Virtual(device)) = rx
        && shares_buffers(device)
    {
        return Err(format!(
            "`{device}` passes on the sender's own buffers, which lie in memory that no GPU reads"
        ));
    }
    config.rx_storage_bytes().map_err(|error| error.to_string())
}

fn receiver(config: &Config, rx: &Receiver) -> Result<RxConfig, Failure> {
    let on_device = on_device(config, rx)?;
    Ok(RxConfig {
        port: port(&rx.interface, &rx.address)?,
        buffers: match on_device {
            // The pages are those of the GPU.
            Some(_) => packets(config, rx.region, Pages::Plain, (0, 0))?,
            None => buffers(config, rx.region, 0, grows(&rx.outer))?,
        },
        ring: ring("rx_ring", config.settings.rx_ring)?,
        flows: FlowPlan {
            flows: rx.reordered().copied().collect(),
            outer: rx.outer.clone(),
            isolation: rx.flow_isolation,
        },
        timestamps: rx.hardware_timestamps,
        on_device,
    })
}

/// Where payloads begin, if packets are to lie in memory of a GPU; `None` for memory that the CPU
/// reads.
///
/// # Errors
///
/// A [`Failure`] (exit 5) for what would have the CPU reach them.
fn on_device(config: &Config, rx: &Receiver) -> Result<Option<u16>, Failure> {
    let region = config.regions.get(rx.region).filter(|region| region.kind == RegionKind::Device);
    let Some(region) = region else { return Ok(None) };
    let spec = config.geometry.spec();
    let numbers_end = u64::from(spec.seq_bit_offset) + u64::from(spec.seq_bit_width);
    let virtual_device = matches!(rx.address, Address::Virtual(_) | Address::Interface(_));
    let why = if !rx.reorder_on_gpu {
        "`reorder_type` is `cpu`, which reads payloads".to_owned()
    } else if virtual_device {
        format!("`{}` is software, which writes with the CPU, and that cannot", rx.address)
    } else if !rx.outer.is_empty() {
        "`vlan_pop` and `tunnel_decap` are done by software where the NIC has no rules for it, and \
         software does not reach the frame"
            .to_owned()
    } else if numbers_end > 8 * HEADER_BYTES as u64 {
        format!("the number of a packet has to lie in the first {HEADER_BYTES} bytes of its frame")
    } else {
        let offset = u16::try_from(config.geometry.payload_offset());
        return offset.map(Some).map_err(|_| {
            failure(ExitCode::Device, "payloads begin behind what a NIC can split off a frame")
        });
    };
    Err(failure(
        ExitCode::Device,
        format!(
            "memory region `{}` is of kind `device`: {why}; with `host_pinned` the NIC writes to \
             memory of the host that a GPU reads",
            region.name
        ),
    ))
}

fn sender(config: &Config, tx: &Sender) -> Result<TxConfig, Failure> {
    let front = tx.flows.iter().map(|(_, outer)| grows(outer)).max().unwrap_or(0);
    Ok(TxConfig {
        port: port(&tx.interface, &tx.address)?,
        buffers: buffers(config, tx.region, super::tx_buf_size(config), front)?,
        ring: ring("tx_ring", config.settings.tx_ring)?,
        eth_src: tx.offload_eth_src,
        flows: tx.flows.clone(),
    })
}

fn port(name: &str, address: &Address) -> Result<PortAddress, Failure> {
    match address {
        Address::Pci(pci) => Ok(PortAddress::Pci(pci.to_string())),
        Address::Interface(name) => Ok(PortAddress::Interface(name.clone())),
        Address::Virtual(device) => Ok(PortAddress::Virtual(device.clone())),
        Address::Ip(_) | Address::Loopback => Err(failure(
            ExitCode::Device,
            format!("interface `{name}` at {address}: a raw stream needs a port"),
        )),
    }
}

/// Bytes of headers in front of a frame's own.
fn grows(outer: &[Outer]) -> usize {
    outer.iter().map(Outer::grows).sum()
}

/// The buffers of a region that the CPU writes or reads, each of at least `room_bytes`, and of
/// `front` bytes of headers besides.
fn buffers(
    config: &Config,
    region: usize,
    room_bytes: usize,
    front: usize,
) -> Result<Buffers, Failure> {
    let pages = config.regions.get(region).map_or(Ok(Pages::Plain), pages)?;
    packets(config, region, pages, (room_bytes, front))
}

fn packets(
    config: &Config,
    region: usize,
    pages: Pages,
    (room_bytes, front): (usize, usize),
) -> Result<Buffers, Failure> {
    let region = config.regions.get(region);
    let region = region.ok_or_else(|| failure(ExitCode::Internal, "a queue without a region"))?;
    let frame_bytes = config.geometry.frame_bytes() + front;
    let room_bytes = if room_bytes > 0 { room_bytes + front } else { 0 };
    Ok(Buffers { count: region.buffers, frame_bytes, room_bytes, pages })
}

fn pages(region: &Region) -> Result<Pages, Failure> {
    match region.kind {
        RegionKind::Huge => Ok(Pages::Huge),
        // A port pins what it reaches; nothing else reads it while the CPU reorders.
        RegionKind::Host | RegionKind::HostPinned => Ok(Pages::Plain),
        RegionKind::Device => Err(failure(
            ExitCode::Device,
            format!(
                "memory region `{}` is of kind `device`: frames to send are written by the CPU; \
                 use `host` or `huge`",
                region.name
            ),
        )),
    }
}

fn ring(key: &str, descriptors: u32) -> Result<u16, Failure> {
    u16::try_from(descriptors).map_err(|_| {
        failure(
            ExitCode::Device,
            format!("tensorwire.{key}: {descriptors} descriptors; a port has at most {}", u16::MAX),
        )
    })
}

/// Where a GPU finds the packets of a port that lie in its own memory.
#[cfg(has_dpdk)]
pub type OnGpu = tensorwire_cuda::gather::OnDevice<tensorwire_dpdk::PacketView>;

/// Where a GPU finds the packets of a port that lie in its own memory: without DPDK there are none.
#[cfg(not(has_dpdk))]
#[derive(Clone, Copy, Debug)]
pub enum OnGpu {}

#[cfg(not(has_dpdk))]
impl tensorwire_cuda::reorder::Locate for OnGpu {
    fn frame(&self, _: &tensorwire_core::burst::PacketDesc, _: &[u8]) -> Option<(u64, usize)> {
        match *self {}
    }
}

#[cfg(has_dpdk)]
mod ends;
#[cfg(has_dpdk)]
pub use running::{DpdkRun, open, standing};

#[cfg(has_dpdk)]
mod running;

#[cfg(test)]
mod tests;
