//! The NIC of a run: which kind a configuration asks for, and the one seam at which a kind of NIC
//! is put under the pipeline.

use tensorwire_configs::{Config, Mode, Receiver};
use tensorwire_core::port::{PacketMemory, RxQueue, TxQueue};
use tensorwire_dpdk::NicConfig;
use tensorwire_sim::nic::{NicError, Oversize, SwNic, SwNicConfig, SwRx, SwTx, TxMode};
use tensorwire_sim::pool::{PacketPool, PacketView};
use tensorwire_socket::{RxConfig, SocketNic, SocketPackets, SocketRx, SocketTx, TxConfig};

use super::link::{KernelLink, Probe};
use super::plan::failure;
use crate::exit::{ExitCode, Failure};
use crate::run::args::{RunArgs, SimTx};
use crate::sink::{Counted, Counter, Port};
use crate::talk::Talk;

pub mod dpdk;

/// The address that the software NIC sends from: locally administered (IEEE 802, bit 1 of byte 0).
const SOFTWARE_NIC_MAC: [u8; 6] = [0x02, 0x74, 0x77, 0, 0, 1];

/// A NIC that was opened, all its memory taken. The stages of a run are generic over this trait, so
/// no call on the packet path is dynamic; a new kind of NIC is an implementation of it, a variant
/// of [`NicPlan`], and an arm in `stages::execute`. It is shut down when it is dropped.
pub trait Nic {
    /// Where packets lie, for those who read them without having the queue.
    type Memory<'n>: PacketMemory + Send
    where
        Self: 'n;
    /// The receiving end.
    type Rx<'n>: RxQueue + Send
    where
        Self: 'n;
    /// The sending end.
    type Tx<'n>: TxQueue + Send
    where
        Self: 'n;

    /// Whether what was sent can be polled as soon as the sender is done with it. On a wire it may
    /// still be under way then, and frames may come before anybody is ready for them.
    const JOINED: bool;

    /// Lends the ends that the configuration asked for. From here on the NIC receives: it is called
    /// when the model is loaded and everything else is there.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) when the device cannot be started.
    fn ends(&mut self) -> Result<EndsOf<'_, Self>, Failure>;

    /// What it counted, once its ends are given back: nothing of it is polled any more.
    fn counted(&self) -> Counted {
        Counted::default()
    }
}

/// The name of a link, and who can say what it is.
pub type Watched = (String, Box<dyn Probe + Send>);

/// The ends of a NIC.
#[derive(Debug)]
pub struct Ends<T, R, M> {
    /// The sending end, where something is sent.
    pub tx: Option<T>,
    /// The receiving end and its memory, where something is received.
    pub rx: Option<(R, M)>,
    /// Where a GPU finds packets that lie in its own memory; `None` where they do not.
    pub on_gpu: Option<dpdk::OnGpu>,
    /// Its links, where it has some, each with the name that a person knows it by.
    pub links: Vec<Watched>,
}

/// The ends of a NIC of kind `N`.
pub type EndsOf<'n, N> = Ends<<N as Nic>::Tx<'n>, <N as Nic>::Rx<'n>, <N as Nic>::Memory<'n>>;

impl Nic for SwNic {
    type Memory<'n> = PacketView;
    type Rx<'n> = SwRx<'n>;
    type Tx<'n> = SwTx<'n>;
    const JOINED: bool = true;

    fn ends(&mut self) -> Result<EndsOf<'_, Self>, Failure> {
        let packets = self.packets();
        let (tx, rx) = self.split();
        Ok(Ends { tx: Some(tx), rx: Some((rx, packets)), on_gpu: None, links: Vec::new() })
    }
}

impl Nic for SocketNic {
    type Memory<'n> = SocketPackets;
    type Rx<'n> = SocketRx<'n>;
    type Tx<'n> = SocketTx<'n>;
    const JOINED: bool = false;

    fn ends(&mut self) -> Result<EndsOf<'_, Self>, Failure> {
        let packets = self.packets();
        // A sender's way is up to the kernel, and may change.
        let links = self.interface().map(kernel_link).into_iter().collect();
        let (tx, rx) = self.split();
        Ok(Ends { tx, rx: rx.zip(packets), on_gpu: None, links })
    }

    fn counted(&self) -> Counted {
        let Some(groups) = self.group_stats() else { return Counted::default() };
        let counter = |(name, value): (&str, u64)| Counter { name: name.to_owned(), value };
        let counters = [
            ("gro_groups", groups.groups),
            ("gro_packets", groups.datagrams),
            ("gro_copied_packets", groups.copied),
        ];
        let name = self.local().map(|local| format!("udp://{local}")).unwrap_or_default();
        let port = Port { port: name, counters: counters.map(counter).to_vec() };
        Counted { rx: self.rx_stats(), in_groups: true, ports: vec![port] }
    }
}

/// The link of the kernel's interface `name`.
fn kernel_link(name: String) -> Watched {
    let probe = KernelLink::new(&name);
    (name, Box::new(probe))
}

/// The NIC that is going to be opened.
#[derive(Clone, Debug)]
pub enum NicPlan {
    /// The software NIC: sender and receiver in this process.
    Software(Box<SwNicConfig>),
    /// UDP sockets of the kernel.
    Socket {
        /// The receiving one.
        rx: Option<RxConfig>,
        /// The sending one.
        tx: Option<TxConfig>,
    },
    /// Ports by DPDK.
    Dpdk(Box<NicConfig>),
}

impl NicPlan {
    /// The NIC that `config` asks for.
    ///
    /// # Errors
    ///
    /// A [`Failure`]: 5 for a device that this build cannot drive and for sizes that the device
    /// does not have, 2 for a flag that means nothing to it.
    pub fn of(config: &Config, mode: Mode, args: &RunArgs) -> Result<Self, Failure> {
        if let Some(sockets) = sockets(config) {
            return of_software_only(args).map(|()| sockets);
        }
        if !config.software_loopback {
            let ports = dpdk::ports(config)?;
            return of_software_only(args).map(|()| Self::Dpdk(Box::new(ports)));
        }
        both_sides(mode)?;
        software(config, args).map(|nic| Self::Software(Box::new(nic)))
    }

    /// Whether its packets are to lie in memory of a GPU: with the software NIC and sockets they
    /// never do.
    #[must_use]
    pub fn packets_on_device(&self) -> bool {
        match self {
            Self::Dpdk(nic) => nic.rx.as_ref().is_some_and(|rx| rx.on_device.is_some()),
            Self::Software(_) | Self::Socket { .. } => false,
        }
    }

    /// Bytes of memory that this NIC wants lent for the packets that a GPU is to read.
    ///
    /// # Errors
    ///
    /// Why a GPU cannot read its packets.
    pub fn lent_bytes(&self) -> Result<usize, String> {
        match self {
            Self::Software(nic) => PacketPool::bytes_needed(nic.rx_bufs, nic.rx_buf_size)
                .map_err(|error| error.to_string()),
            Self::Dpdk(nic) => dpdk::lent_bytes(nic),
            Self::Socket { .. } => Err("the kernel puts what sockets receive into memory that no \
                                        GPU reads"
                .to_owned()),
        }
    }
}

/// Packet buffers of the receiver; 0 without one.
#[must_use]
pub fn rx_bufs(config: &Config) -> usize {
    let region = config.rx.as_ref().and_then(|rx| config.regions.get(rx.region));
    region.map_or(0, |region| region.buffers as usize)
}

/// The longest frame that the sender has a buffer for, in bytes.
#[must_use]
pub fn tx_buf_size(config: &Config) -> usize {
    let region = config.tx.as_ref().and_then(|tx| config.regions.get(tx.region));
    region.map_or(config.geometry.frame_bytes(), |region| region.buffer_bytes as usize)
}

/// The sockets that `config` asks for, if its stream is of sockets.
fn sockets(config: &Config) -> Option<NicPlan> {
    let rx = config.rx.as_ref().and_then(|rx| {
        let region = config.regions.get(rx.region)?;
        Some(RxConfig {
            local: rx.socket?,
            buffers: region.buffers,
            frame_bytes: config.geometry.frame_bytes(),
            ring: config.settings.rx_ring as usize,
            offload: config.settings.socket_gro,
        })
    });
    let tx = config.tx.as_ref().and_then(|tx| {
        let (local, remote) = tx.socket?;
        Some(TxConfig {
            local,
            remote,
            packet_bytes: config.geometry.frame_bytes(),
            frame_bytes: tx_buf_size(config),
            ring: config.settings.tx_ring as usize,
        })
    });
    (rx.is_some() || tx.is_some()).then_some(NicPlan::Socket { rx, tx })
}

/// Opens sockets, and says what the kernel did not grant.
///
/// # Errors
///
/// A [`Failure`] (exit 5) that names the end point.
pub fn open_sockets(
    rx: Option<&RxConfig>,
    tx: Option<&TxConfig>,
    talk: Talk,
) -> Result<SocketNic, Failure> {
    let opened = SocketNic::open(rx, tx);
    let nic = opened.map_err(|error| failure(ExitCode::Device, format!("socket: {error}")))?;
    if let Some((wanted, granted)) = nic.short_of_buffer() {
        talk.say(format_args!(
            "notice: the kernel keeps {granted} bytes of what nobody has received yet, and \
             tensorwire.rx_ring asks for {wanted}; raise net.core.rmem_max to {}",
            wanted / 2
        ));
    }
    if let Some(error) = nic.offload_refused() {
        talk.say(format_args!(
            "notice: tensorwire.socket_gro: the kernel has no UDP_GRO ({error}); datagrams come \
             one by one"
        ));
    }
    Ok(nic)
}

/// A flag that means nothing to a NIC that is not ours.
fn of_software_only(args: &RunArgs) -> Result<(), Failure> {
    if args.sim_tx.is_none() {
        return Ok(());
    }
    Err(failure(
        ExitCode::Usage,
        "--sim-tx: only the software NIC can choose what a full ring does",
    ))
}

/// The software NIC has both ends in one process.
fn both_sides(mode: Mode) -> Result<(), Failure> {
    if mode == Mode::Both {
        return Ok(());
    }
    Err(failure(
        ExitCode::Device,
        format!(
            "mode `{mode}`: the software NIC joins sender and receiver of one process, so both \
             have to run"
        ),
    ))
}

fn software(config: &Config, args: &RunArgs) -> Result<SwNicConfig, Failure> {
    let flows = config.rx.as_ref().map(Receiver::reordered_flow_table).transpose();
    let flows = flows.map_err(|error| failure(ExitCode::Config, format!("rx.flows: {error}")))?;
    let isolated = config.rx.as_ref().is_some_and(|rx| rx.flow_isolation);
    let region = config.tx.as_ref().and_then(|tx| config.regions.get(tx.region));
    let eth_src = config.tx.as_ref().filter(|tx| tx.offload_eth_src).map(|_| SOFTWARE_NIC_MAC);
    let nic = SwNicConfig {
        rx_bufs: rx_bufs(config),
        rx_buf_size: config.geometry.frame_bytes(),
        rx_ring: config.settings.rx_ring as usize,
        tx_bufs: region.map_or(1, |region| region.buffers as usize),
        tx_buf_size: tx_buf_size(config),
        tx_ring: config.settings.tx_ring as usize,
        // A run that is bounded by time measures what gets through, as on a wire; one that sends
        // something is to arrive whole.
        mode: match (args.sim_tx, args.seconds) {
            (Some(SimTx::Wire), _) | (None, Some(_)) => TxMode::Wire,
            (Some(SimTx::Lossless), _) | (None, None) => TxMode::Lossless,
        },
        oversize: Oversize::Cut,
        tx_eth_src: eth_src,
        flows: flows.filter(|_| isolated),
    };
    nic.check().map_err(|error| refused(&error))?;
    Ok(nic)
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
