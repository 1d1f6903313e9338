//! The ports of a run, attached and then started.

use std::fmt;
use std::time::Instant;

use tensorwire_core::counters::NicStats;

use crate::config::{Pages, PoolSpec};
use crate::device::Device;
use crate::eal::Eal;
use crate::error::{EalError, PoolError, PortError};
use crate::plan::{Buffers, NicConfig, PortAddress, shares_buffers, slot_bytes};
use crate::pool::PacketPool;
use crate::port::{Port, PortConfig, QueueConfig};
use crate::rx::DpdkRx;
use crate::storage::{HostPages, Storage, StorageError};
use crate::tx::DpdkTx;
use crate::view::{Headers, PacketView};

/// The ports of a run. They are attached when the value is made, with all their memory, and receive
/// from [`DpdkNic::start`] on; they are taken down when it goes, the sender first.
#[derive(Debug)]
pub struct DpdkNic {
    /// The sender's port, where it has one of its own.
    tx: Option<Side>,
    /// The receiver's port, which may be the sender's too; the only one of a run that sends.
    rx: Option<Side>,
    /// The NIC is to say when packets came.
    stamps: bool,
    _eal: Eal,
}

#[derive(Debug)]
enum Side {
    /// `None` for the moment in which it is started, and for good if that fails.
    Attached(Option<Box<(Device, PortConfig)>>),
    Running(Box<Port>),
}

/// Why the ports could not be opened. Whatever was set up is taken down again.
#[derive(Debug)]
#[non_exhaustive]
pub enum NicError {
    /// DPDK does not start.
    Eal(EalError),
    /// There is no memory for the packets.
    Storage(StorageError),
    /// The packet pool cannot be made.
    Pool(PoolError),
    /// A port cannot be attached or started.
    Port(PortError),
}

impl fmt::Display for NicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eal(error) => error.fmt(f),
            Self::Storage(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Port(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NicError {}

impl From<EalError> for NicError {
    fn from(error: EalError) -> Self {
        Self::Eal(error)
    }
}

impl From<StorageError> for NicError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<PoolError> for NicError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<PortError> for NicError {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

impl DpdkNic {
    /// Starts DPDK for threads that may run on `cores`, attaches the devices, and takes all memory:
    /// received packets go to `lent`, if it is given. Memory of a device it has to be where the
    /// configuration says so, and only there; the headers of what is received there come to the
    /// host by the NIC where it can split frames, else somebody has to bring them
    /// ([`Headers::Gathered`]).
    ///
    /// # Errors
    ///
    /// [`NicError`]. DPDK is over in this process then.
    pub fn open(
        config: &NicConfig,
        cores: Vec<u32>,
        lent: Option<Storage>,
    ) -> Result<Self, NicError> {
        let eal = Eal::start(&config.eal(cores))?;
        let stamps = config.rx.as_ref().is_some_and(|rx| rx.timestamps);
        let mut nic = Self { tx: None, rx: None, stamps, _eal: eal.clone() };
        // The receiver first: what the sender of a pair of virtual devices looks for is there then.
        if let Some(rx) = &config.rx {
            let device = attach(&eal, config, &rx.port, 0)?;
            let pool = pool(&eal, "tw-rx", &rx.buffers, &device, lent)?;
            let (pool, headers) = match rx.on_device {
                Some(bytes) => headers(&eal, &device, pool, bytes)?,
                None => (pool, Headers::InPlace),
            };
            let port = PortConfig {
                rx: Some(QueueConfig { ring: rx.ring, pool }),
                headers,
                flows: Some(rx.flows.clone()),
                ..PortConfig::default()
            };
            nic.rx = Some(Side::Attached(Some(Box::new((device, port)))));
        }
        let Some(tx) = &config.tx else { return Ok(nic) };
        if config.one_port()
            && let Some(Side::Attached(Some(both))) = &mut nic.rx
        {
            let (device, port) = &mut **both;
            let pool = pool(&eal, "tw-tx", &tx.buffers, device, None)?;
            if shares_buffers(device.name()) {
                port.peers.push(pool.clone());
            }
            port.tx = Some(QueueConfig { ring: tx.ring, pool });
            port.eth_src = tx.eth_src;
            port.wrap.clone_from(&tx.flows);
            port.linger = config.linger();
            return Ok(nic);
        }
        let device = attach(&eal, config, &tx.port, 1)?;
        let pool = pool(&eal, "tw-tx", &tx.buffers, &device, None)?;
        let port = PortConfig {
            tx: Some(QueueConfig { ring: tx.ring, pool }),
            eth_src: tx.eth_src,
            wrap: tx.flows.clone(),
            linger: config.linger(),
            ..PortConfig::default()
        };
        nic.tx = Some(Side::Attached(Some(Box::new((device, port)))));
        Ok(nic)
    }

    /// Asks the receiver's device for the time of each packet, as nanoseconds from `epoch` on,
    /// where the configuration wants it. Before [`DpdkNic::start`].
    pub fn stamp(&mut self, epoch: Instant) {
        if let Some(Side::Attached(Some(attached))) = &mut self.rx
            && self.stamps
        {
            attached.1.timestamps = Some(epoch);
        }
    }

    /// Starts the ports: from here on frames are received. Does nothing to those that run.
    ///
    /// # Errors
    ///
    /// [`NicError`]; that port is gone then.
    pub fn start(&mut self) -> Result<(), NicError> {
        for side in [&mut self.rx, &mut self.tx].into_iter().flatten() {
            if let Side::Attached(attached) = side
                && let Some(attached) = attached.take()
            {
                let (device, config) = *attached;
                *side = Side::Running(Box::new(Port::open(device, config, |_| true)?));
            }
        }
        Ok(())
    }

    /// Lends the queues of the ports that run: the sending one, and the receiving one with its
    /// memory.
    pub fn split(&mut self) -> (Option<DpdkTx<'_>>, Option<(DpdkRx<'_>, PacketView)>) {
        let Self { tx, rx, .. } = self;
        let mut ends = (None, None);
        if let Some(Side::Running(port)) = rx {
            let view = port.packets();
            let (receive, send) = port.split();
            ends = (send, receive.zip(view));
        }
        if let Some(Side::Running(port)) = tx {
            ends.0 = port.split().1;
        }
        ends
    }

    /// What the receiving port counted, up to this moment; `None` where there is none.
    #[must_use]
    pub fn rx_stats(&self) -> Option<NicStats> {
        self.ports().find_map(Port::rx_stats)
    }

    /// The ports that run, the receiver's first.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        [&self.rx, &self.tx].into_iter().flatten().filter_map(|side| match side {
            Side::Running(port) => Some(&**port),
            Side::Attached(_) => None,
        })
    }
}

fn attach(
    eal: &Eal,
    config: &NicConfig,
    port: &PortAddress,
    number: u32,
) -> Result<Device, PortError> {
    match (config.device(port, number), port) {
        (None, PortAddress::Pci(address)) => Device::pci(eal, address),
        (device, _) => Device::attach(eal, &device.unwrap_or_default()),
    }
}

/// A pool for `device`, in memory that was lent or is taken here.
fn pool(
    eal: &Eal,
    name: &str,
    buffers: &Buffers,
    device: &Device,
    lent: Option<Storage>,
) -> Result<PacketPool, NicError> {
    let spec = PoolSpec {
        name: name.to_owned(),
        buffers: buffers.count,
        frame_bytes: buffers.frame_bytes,
        device_bytes: device
            .info()?
            .min_rx_bytes
            .max(slot_bytes(device.args()))
            .max(buffers.room_bytes),
    };
    let memory = match lent {
        Some(memory) => memory,
        None => {
            let bytes = spec.storage_bytes().map_err(PoolError::Element)?;
            let pages = match buffers.pages {
                Pages::Plain => HostPages::plain(bytes),
                Pages::Huge => HostPages::huge(bytes),
            };
            Storage::Host(Box::new(pages?))
        }
    };
    Ok(PacketPool::over(eal, &spec, memory)?)
}

/// The pool of a queue whose frames lie in `frames`, of which this CPU reads nothing, and how.
/// Where `device` can split them, the first `bytes` of each go to a pool of the host.
fn headers(
    eal: &Eal,
    device: &Device,
    frames: PacketPool,
    bytes: u16,
) -> Result<(PacketPool, Headers), NicError> {
    if !device.info()?.splits {
        return Ok((frames, Headers::Gathered));
    }
    let spec = PoolSpec {
        name: "tw-heads".to_owned(),
        buffers: u32::try_from(frames.buffers()).unwrap_or(u32::MAX),
        frame_bytes: bytes.into(),
        device_bytes: 0,
    };
    let memory = HostPages::plain(spec.storage_bytes().map_err(PoolError::Element)?)?;
    let heads = PacketPool::new(eal, &spec, Box::new(memory))?;
    Ok((heads, Headers::Split { payloads: frames, bytes }))
}
