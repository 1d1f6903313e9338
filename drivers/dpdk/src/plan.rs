//! The ports of a run, worked out from a configuration; nothing here calls DPDK.

use std::fmt;
use std::time::Duration;

use tensorwire_core::flow::FlowMatch;
use tensorwire_core::outer::Outer;

use crate::config::{EalConfig, ElementError, Pages, PoolSpec, af_packet};

/// Which port it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortAddress {
    /// A NIC, by its PCI address, as `0000:01:00.0`.
    Pci(String),
    /// A Linux interface, by its name: DPDK's `af_packet` device is put on it.
    Interface(String),
    /// A virtual device of DPDK with its options, as `net_memif0,role=server`.
    Virtual(String),
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Pci(name) | Self::Interface(name) | Self::Virtual(name)) = self;
        f.write_str(name)
    }
}

/// Packet buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// How many.
    pub count: u32,
    /// The longest frame of the geometry, in bytes.
    pub frame_bytes: usize,
    /// Bytes that a buffer has at least, should a longer frame be sent; the port is set up for
    /// those of the geometry.
    pub room_bytes: usize,
    /// The pages that they lie in.
    pub pages: Pages,
}

/// Which flows the device is asked to steer to the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// The flows whose packets are wanted, in order. A frame that the device steers is marked with
    /// its flow, and the receiver takes the device's word for it.
    pub flows: Vec<FlowMatch>,
    /// Headers that the frames of all of them come with and that are taken off, the outermost
    /// first: by the device, where it has the rules, else by software.
    pub outer: Vec<Outer>,
    /// Nothing else is to reach the queue: the kernel keeps it (`flow_isolation`).
    pub isolation: bool,
}

/// The receiving side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxConfig {
    /// Its port.
    pub port: PortAddress,
    /// Its buffers.
    pub buffers: Buffers,
    /// Descriptors.
    pub ring: u16,
    /// What is steered to it.
    pub flows: FlowPlan,
    /// The device says when packets came, if it can (`hardware_timestamps`).
    pub timestamps: bool,
    /// Packets lie in memory of a GPU, and payloads begin at this byte of a frame; `None`: in
    /// memory that this CPU reads.
    pub on_device: Option<u16>,
}

/// The sending side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxConfig {
    /// Its port; that of the receiving side if one port does both.
    pub port: PortAddress,
    /// Its buffers.
    pub buffers: Buffers,
    /// Descriptors.
    pub ring: u16,
    /// Every frame gets the port's own address as its source.
    pub eth_src: bool,
    /// Headers that frames of a flow get, the innermost first; of several flows the first counts.
    pub flows: Vec<(FlowMatch, Vec<Outer>)>,
}

/// The ports of a run: one that receives, one that sends, or one that does both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// The receiving side.
    pub rx: Option<RxConfig>,
    /// The sending side.
    pub tx: Option<TxConfig>,
}

/// Mebibytes of DPDK's own memory before any packet buffer: its tables, and rings of descriptors.
const BASE_MIB: u64 = 128;

/// Bytes of DPDK's own memory for each packet buffer: the mbuf with its header and trailer, and a
/// place in the ring of the pool. Measured with 22.11: 269.
const BYTES_PER_BUFFER: u64 = 384;

impl NicConfig {
    /// How DPDK is started for it, for threads that may run on `cores`. Virtual devices are not
    /// among the arguments: they are attached afterwards, so that a refusal names its device.
    #[must_use]
    pub fn eal(&self, cores: Vec<u32>) -> EalConfig {
        let mut config = EalConfig::new(cores);
        for port in self.ports() {
            if let PortAddress::Pci(address) = port {
                config.pci.push(address.clone());
                // Its DMA does not reach plain pages of DPDK's own where an IOMMU is in between.
                config.pages = Pages::Huge;
            }
        }
        // Two to a frame where a device splits it.
        let rx = self.rx.as_ref().map_or(0, |rx| {
            u64::from(rx.buffers.count) * if rx.on_device.is_some() { 2 } else { 1 }
        });
        let tx = self.tx.as_ref().map_or(0, |tx| u64::from(tx.buffers.count));
        let bytes = (rx + tx) * BYTES_PER_BUFFER;
        let memory = BASE_MIB + bytes.div_ceil(1 << 20);
        config.memory_mib = u32::try_from(memory).unwrap_or(u32::MAX);
        config
    }

    /// The ports, each once, the receiver's first.
    pub fn ports(&self) -> impl Iterator<Item = &PortAddress> {
        let tx = self.tx.as_ref().filter(|_| !self.one_port());
        let rx = self.rx.as_ref().map(|rx| &rx.port);
        rx.into_iter().chain(tx.map(|tx| &tx.port))
    }

    /// Whether a NIC is among them.
    #[must_use]
    pub fn hardware(&self) -> bool {
        self.ports().any(|port| matches!(port, PortAddress::Pci(_)))
    }

    /// Whether one port receives and sends.
    #[must_use]
    pub fn one_port(&self) -> bool {
        let rx = self.rx.as_ref().map(|rx| &rx.port);
        rx.is_some() && rx == self.tx.as_ref().map(|tx| &tx.port)
    }

    /// Bytes of memory that the receiver's packet buffers lie in, for those who lend it: they have
    /// to say how much before the device can be asked what it needs.
    ///
    /// # Errors
    ///
    /// [`ElementError`] for buffers that DPDK cannot have, and without a receiver.
    pub fn rx_storage_bytes(&self) -> Result<usize, ElementError> {
        /// More than what any driver of a NIC asks for (22.11: 1646, of vmxnet3).
        const DEVICE: usize = 2048;
        let rx = self.rx.as_ref().ok_or(ElementError { frame_bytes: 0 })?;
        let slot = self.device(&rx.port, 0).map_or(0, |device| slot_bytes(&device));
        let spec = PoolSpec {
            name: String::new(),
            buffers: rx.buffers.count,
            frame_bytes: rx.buffers.frame_bytes,
            device_bytes: slot.max(DEVICE).max(rx.buffers.room_bytes),
        };
        spec.storage_bytes()
    }

    /// The longest frame that either side has a buffer for, in bytes.
    fn room_bytes(&self) -> u32 {
        let room = |buffers: &Buffers| buffers.frame_bytes.max(buffers.room_bytes);
        let rx = self.rx.as_ref().map_or(0, |rx| room(&rx.buffers));
        let tx = self.tx.as_ref().map_or(0, |tx| room(&tx.buffers));
        u32::try_from(rx.max(tx)).unwrap_or(u32::MAX)
    }

    /// How long the port that sends gets, at the end, for what it has accepted: a NIC puts it on
    /// the wire, and a memif takes back from its peer what that has not read yet, which a peer in
    /// this process has.
    #[must_use]
    pub fn linger(&self) -> Duration {
        /// A ring of 8192 frames of 9000 bytes at 10 Gb/s takes 59 ms.
        const NIC: Duration = Duration::from_millis(100);
        /// For a reader that shares its core with others.
        const MEMIF: Duration = Duration::from_secs(1);
        match self.tx.as_ref().map(|tx| &tx.port) {
            Some(PortAddress::Pci(_)) => NIC,
            Some(PortAddress::Virtual(name)) if name.starts_with("net_memif") => {
                if self.rx.is_none() { MEMIF } else { Duration::ZERO }
            }
            _ => Duration::ZERO,
        }
    }

    /// The virtual device of `port`, with its options; `None` for a NIC. Devices on interfaces are
    /// numbered: two of them have different numbers.
    #[must_use]
    pub fn device(&self, port: &PortAddress, number: u32) -> Option<String> {
        match port {
            PortAddress::Pci(_) => None,
            PortAddress::Interface(name) => Some(af_packet(number, name, self.room_bytes())),
            PortAddress::Virtual(device) => Some(device.clone()),
        }
    }
}

/// Bytes that a buffer must have for the virtual device `device`, where its driver asks for them
/// only when the queue is set up: `af_packet` wants to receive a whole slot of its ring, which is
/// `framesz` without 32 bytes that the kernel keeps.
#[must_use]
pub fn slot_bytes(device: &str) -> usize {
    /// What the driver takes if it is not told.
    const DEFAULT: usize = 2048;
    const KERNEL: usize = 32;
    if !device.starts_with("net_af_packet") {
        return 0;
    }
    let slot = device.split(',').find_map(|option| option.strip_prefix("framesz="));
    let slot = slot.and_then(|bytes| bytes.parse().ok()).unwrap_or(DEFAULT);
    slot.saturating_sub(KERNEL)
}

/// Whether the virtual device `device` passes the sender's own buffers on to the receiver.
#[must_use]
pub fn shares_buffers(device: &str) -> bool {
    device.starts_with("net_ring")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(count: u32, room_bytes: usize) -> Buffers {
        Buffers { count, frame_bytes: 1240, room_bytes, pages: Pages::Plain }
    }

    fn rx(port: PortAddress) -> RxConfig {
        let flows = FlowPlan { flows: vec![], outer: vec![], isolation: false };
        let buffers = buffers(51_200, 1240);
        RxConfig { port, buffers, ring: 8192, flows, timestamps: false, on_device: None }
    }

    fn tx(port: PortAddress) -> TxConfig {
        TxConfig { port, buffers: buffers(51_200, 2048), ring: 8192, eth_src: false, flows: vec![] }
    }

    fn pci(function: u32) -> PortAddress {
        PortAddress::Pci(format!("0000:01:00.{function}"))
    }

    #[test]
    fn dpdk_is_started_for_the_ports() {
        let one = NicConfig { rx: Some(rx(pci(0))), tx: Some(tx(pci(0))) };
        let eal = one.eal(vec![3]);
        assert!(one.one_port());
        assert_eq!((eal.pci.len(), eal.pages, eal.cores), (1, Pages::Huge, vec![3]));
        // 128 + 102,400 × 384 bytes.
        assert_eq!(eal.memory_mib, 128 + 38);
        let split = RxConfig { on_device: Some(64), ..rx(pci(0)) };
        let split = NicConfig { rx: Some(split), tx: Some(tx(pci(0))) };
        assert_eq!(split.eal(vec![3]).memory_mib, 128 + 57);
        let two = NicConfig { rx: Some(rx(pci(0))), tx: Some(tx(pci(1))) };
        assert_eq!(two.eal(vec![3]).pci, ["0000:01:00.0", "0000:01:00.1"]);
        assert!(!two.one_port());
        let ring = PortAddress::Virtual("net_ring0".to_owned());
        let sender = NicConfig { rx: None, tx: Some(tx(ring)) };
        let eal = sender.eal(vec![0]);
        assert_eq!((eal.pci.len(), eal.pages), (0, Pages::Plain));
        assert!(!sender.one_port());
    }

    #[test]
    fn what_was_sent_gets_time_to_leave() {
        let memif = || PortAddress::Virtual("net_memif1,role=client".to_owned());
        let of = |rx, tx| NicConfig { rx, tx }.linger().as_millis();
        assert_eq!(of(None, Some(tx(pci(0)))), 100);
        assert_eq!(of(Some(rx(pci(0))), Some(tx(pci(0)))), 100);
        assert_eq!(of(None, Some(tx(memif()))), 1000);
        assert_eq!(of(Some(rx(memif())), Some(tx(memif()))), 0);
        assert_eq!(of(None, Some(tx(PortAddress::Interface("eth1".to_owned())))), 0);
        assert_eq!(of(Some(rx(pci(0))), None), 0);
    }

    #[test]
    fn an_interface_gets_slots_for_the_longest_frame() {
        let port = PortAddress::Interface("eth1".to_owned());
        let both = NicConfig { rx: Some(rx(port.clone())), tx: Some(tx(port.clone())) };
        let device = both.device(&port, 1).expect("a virtual device");
        // 2048 bytes of a frame and the kernel's own.
        assert!(device.starts_with("net_af_packet1,iface=eth1,"), "{device}");
        assert!(device.contains("framesz=4096"), "{device}");
        assert_eq!(slot_bytes(&device), 4064);
        assert_eq!(both.device(&pci(0), 0), None);
    }

    #[test]
    fn a_lender_is_asked_for_what_any_device_needs() {
        let of = |port| NicConfig { rx: Some(rx(port)), tx: None }.rx_storage_bytes();
        // 128 of headroom + 2048, whatever the NIC needs; of af_packet a slot without the kernel's
        // part: 2048 − 32, rounded up to lines.
        assert_eq!(of(pci(0)), Ok(51_200 * 2176));
        assert_eq!(of(PortAddress::Interface("eth1".to_owned())), Ok(51_200 * 2176));
        let long = PortAddress::Virtual("net_af_packet0,iface=e,framesz=16384".to_owned());
        assert_eq!(of(long), Ok(51_200 * (128 + 16_384)));
        assert!(NicConfig { rx: None, tx: None }.rx_storage_bytes().is_err());
    }

    #[test]
    fn buffers_hold_what_the_driver_hands_over() {
        assert_eq!(slot_bytes("net_af_packet0,iface=eth1"), 2016);
        assert_eq!(slot_bytes("net_af_packet0,iface=eth1,framesz=16384"), 16_352);
        assert_eq!(slot_bytes("net_memif0,framesz=16384"), 0);
        assert!(shares_buffers("net_ring0") && !shares_buffers("net_memif0"));
    }
}
