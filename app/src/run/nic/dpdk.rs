//! Ports by DPDK: what a configuration asks of them, and the ports as the NIC of a run.

use tensorwire_configs::{Address, Config, Receiver, Region, RegionKind, Sender};
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
    Ok(RxConfig {
        port: port(&rx.interface, &rx.address)?,
        buffers: buffers(config, rx.region, 0, grows(&rx.outer))?,
        ring: ring("rx_ring", config.settings.rx_ring)?,
        flows: FlowPlan {
            flows: rx.reordered().copied().collect(),
            outer: rx.outer.clone(),
            isolation: rx.flow_isolation,
        },
        timestamps: rx.hardware_timestamps,
    })
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

/// The buffers of a region, each of at least `room_bytes`, and of `front` bytes of headers besides.
fn buffers(
    config: &Config,
    region: usize,
    room_bytes: usize,
    front: usize,
) -> Result<Buffers, Failure> {
    let region = config.regions.get(region);
    let region = region.ok_or_else(|| failure(ExitCode::Internal, "a queue without a region"))?;
    let (pages, frame_bytes) = (pages(region)?, config.geometry.frame_bytes() + front);
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
                "memory region `{}` is of kind `device`: DPDK is not given memory of a GPU (no \
                 dma-buf of it is registered with the NIC); with `host_pinned` the NIC writes to \
                 pinned memory that the GPU reads",
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

#[cfg(has_dpdk)]
pub use running::{DpdkRun, open, standing};

#[cfg(has_dpdk)]
mod running {
    use tensorwire_core::memory::HostMemory;
    use tensorwire_dpdk::{
        CallError, DpdkNic, DpdkRx, DpdkTx, Eal, LinkProbe, NicConfig, NicError, PacketView, Port,
        PortAddress, PortFault, Stamps, Timing, left_standing,
    };

    use crate::exit::{ExitCode, Failure};
    use crate::run::clock::Clock;
    use crate::run::link::{LinkState, Look, Probe};
    use crate::run::nic::{Ends, EndsOf, Nic, Watched, kernel_link};
    use crate::run::pin;
    use crate::run::plan::failure;
    use crate::sink::{self, Counted, Counter};
    use crate::talk::Talk;

    /// The ports of a run.
    #[derive(Debug)]
    pub struct DpdkRun {
        nic: DpdkNic,
        /// As the configuration names them, in the order of [`DpdkNic::ports`].
        names: Vec<String>,
        addresses: Vec<PortAddress>,
        talk: Talk,
    }

    /// Starts DPDK and attaches the ports, all memory taken.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) with DPDK's reason.
    pub fn open(
        config: &NicConfig,
        lent: Option<Box<dyn HostMemory>>,
        (talk, clock): (Talk, Clock),
    ) -> Result<DpdkRun, Failure> {
        let mut nic = DpdkNic::open(config, pin::available()?, lent).map_err(|error| {
            let failed = refused(&error);
            match error {
                NicError::Eal(_) if config.hardware() => failure(
                    failed.exit,
                    format!("{}; a NIC needs huge pages (sysctl vm.nr_hugepages)", failed.reason),
                ),
                _ => failed,
            }
        })?;
        nic.stamp(clock.begin());
        let names = config.ports().map(ToString::to_string).collect();
        Ok(DpdkRun { nic, names, addresses: config.ports().cloned().collect(), talk })
    }

    fn refused(error: &NicError) -> Failure {
        failure(ExitCode::Device, format!("DPDK: {error}"))
    }

    /// Says what could not be taken down, once everything of a run is gone.
    pub fn standing(talk: Talk) {
        let count = left_standing();
        if count > 0 {
            talk.error(format_args!(
                "tensorwire: DPDK could not be taken down: {count} of its ports, rules and pools \
                 (a buffer that somebody still has keeps its pool)"
            ));
        }
    }

    impl Nic for DpdkRun {
        type Memory<'n> = PacketView;
        type Rx<'n> = DpdkRx<'n>;
        type Tx<'n> = DpdkTx<'n>;
        const JOINED: bool = false;

        fn ends(&mut self) -> Result<EndsOf<'_, Self>, Failure> {
            self.nic.start().map_err(|error| refused(&error))?;
            for (port, name) in self.nic.ports().zip(&self.names) {
                describe(port, name, self.talk);
            }
            let ports = self.nic.ports().zip(&self.names).zip(&self.addresses);
            let links = ports.map(|((port, name), address)| link(port, name, address)).collect();
            let (tx, rx) = self.nic.split();
            Ok(Ends { tx, rx, links })
        }

        fn counted(&self) -> Counted {
            let ports = self.nic.ports().zip(&self.names);
            // A port that cannot say has no counters.
            let ports = ports.filter_map(|(port, name)| {
                let counter = |(name, value)| Counter { name, value };
                let counters = port.xstats().ok()?.into_iter().map(counter).collect();
                Some(sink::Port { port: name.clone(), counters })
            });
            Counted { rx: self.nic.rx_stats(), ports: ports.collect() }
        }
    }

    /// The link of a port. One that lies on an interface of the kernel is the kernel's to tell: the
    /// driver says that it is up, whatever happens.
    fn link(port: &Port, name: &str, address: &PortAddress) -> Watched {
        match address {
            PortAddress::Interface(interface) => kernel_link(interface.clone()),
            _ => {
                let stamps = match port.timing() {
                    Timing::Device(stamps) => Some(stamps.clone()),
                    _ => None,
                };
                (name.to_owned(), Box::new(PortProbe { link: port.link(), stamps }))
            }
        }
    }

    /// A port, asked without its thread.
    #[derive(Debug)]
    struct PortProbe {
        link: LinkProbe,
        stamps: Option<Stamps>,
    }

    impl Probe for PortProbe {
        fn look(&mut self) -> Option<Look> {
            let reported = self.link.reported();
            // With every look, so that the two clocks do not drift apart.
            if let Some(stamps) = &self.stamps {
                stamps.sync(reported);
            }
            let (fault, resets) = (reported.fault(), reported.resets());
            // What the driver has reported counts more than what the port answers then.
            let state = match fault {
                Some(fault) => stopped_by(fault),
                None => answered(self.link.look())?,
            };
            Some(Look { resets, ..Look::at(state) })
        }
    }

    /// What a port is that its driver has given up.
    fn stopped_by(fault: PortFault) -> LinkState {
        match fault {
            PortFault::Gone => LinkState::Gone,
            fault => LinkState::Faulty(fault.text()),
        }
    }

    fn answered(look: Result<Option<u32>, CallError>) -> Option<LinkState> {
        match look {
            Ok(Some(_)) => Some(LinkState::Up),
            Ok(None) => Some(LinkState::Down),
            Err(error) if error.no_device() => Some(LinkState::Gone),
            Err(_) => None,
        }
    }

    /// What the port became.
    fn describe(port: &Port, name: &str, talk: Talk) {
        let Some(info) = port.info() else { return };
        let link = match port.link().look() {
            Ok(Some(0)) => "link up".to_owned(),
            Ok(Some(mbps)) => format!("link of {mbps} Mb/s"),
            Ok(None) => "link down".to_owned(),
            Err(error) => format!("link not known ({error})"),
        };
        let rings: Vec<String> = [("rx", port.rings().0), ("tx", port.rings().1)]
            .into_iter()
            .filter(|(_, ring)| *ring > 0)
            .map(|(side, ring)| format!("{ring} {side} descriptors"))
            .collect();
        talk.say(format_args!(
            "{}: port {name} by {}, {}, {link}",
            Eal::version(),
            info.driver,
            rings.join(" and ")
        ));
        if port.rings().0 > 0 {
            talk.say(format_args!("port {name}: {}", port.steering()));
        }
        for line in port.headers() {
            talk.say(format_args!("port {name}: {line}"));
        }
        // Only where something else was asked for.
        if !matches!(port.timing(), Timing::Loop) {
            talk.say(format_args!("port {name}: {}", port.timing()));
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_a_driver_reports_decides_what_becomes_of_the_run() {
            assert_eq!(stopped_by(PortFault::Gone), LinkState::Gone);
            for fault in [PortFault::Reset, PortFault::NotRecovered, PortFault::RulesLost] {
                assert_eq!(stopped_by(fault), LinkState::Faulty(fault.text()));
            }
            let error = |code| Err(CallError { call: "rte_eth_link_get_nowait", code });
            assert_eq!(answered(Ok(Some(0))), Some(LinkState::Up));
            assert_eq!(answered(Ok(None)), Some(LinkState::Down));
            assert_eq!(answered(error(libc::ENODEV)), Some(LinkState::Gone));
            assert_eq!(answered(error(libc::EIO)), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, change: impl Fn(&str) -> String) -> Config {
        let text = tensorwire_configs::shipped(name).expect("shipped");
        let checked = tensorwire_configs::check_str("x", &change(text), &Default::default());
        checked.config.unwrap_or_else(|| panic!("{:#?}", checked.diagnostics))
    }

    fn sides(config: &Config) -> (Result<RxConfig, Failure>, Result<TxConfig, Failure>) {
        let (rx, tx) = (config.rx.as_ref().expect("rx"), config.tx.as_ref().expect("tx"));
        (receiver(config, rx), sender(config, tx))
    }

    fn ring_loopback(text: &str) -> String {
        text.replace("loopback: \"sw\"", "loopback: \"\"")
            .replace("address: \"loopback\"", "address: \"net_ring0\"")
    }

    #[test]
    fn the_configuration_says_which_ports() {
        let config = config("resnet50_routable_loopback.yaml", ring_loopback);
        let (rx, tx) = sides(&config);
        let (rx, tx) = (rx.expect("a receiver"), tx.expect("a sender"));
        let port = PortAddress::Virtual("net_ring0".to_owned());
        assert_eq!((&rx.port, &tx.port), (&port, &port));
        let buffers = |room_bytes| Buffers {
            count: 51_200,
            frame_bytes: 1240,
            room_bytes,
            pages: Pages::Plain,
        };
        assert_eq!((rx.buffers, tx.buffers), (buffers(0), buffers(2048)));
        assert_eq!((rx.ring, tx.ring, tx.eth_src), (8192, 8192, true));
        assert!(rx.flows.isolation);
        let ids: Vec<u32> = rx.flows.flows.iter().map(|flow| flow.id).collect();
        assert_eq!(ids, [201]);
    }

    #[test]
    fn a_gpu_lends_memory_to_every_port_but_a_ring() {
        let of = |port: &'static str| {
            let text = config("resnet50_routable_loopback.yaml", |text| {
                ring_loopback(text).replace("net_ring0", port)
            });
            let (rx, tx) = sides(&text);
            lent_bytes(&NicConfig { rx: rx.ok(), tx: tx.ok() })
        };
        // 51,200 buffers of 128 + 2048 bytes.
        assert_eq!(of("net_memif0,role=server"), Ok(111_411_200));
        let ring = of("net_ring0").expect_err("the sender's buffers come in");
        assert!(ring.starts_with("`net_ring0` passes on the sender's own buffers"), "{ring}");
    }

    #[test]
    fn only_reordered_flows_are_steered() {
        let more = "          flows:\n            - {name: other, id: 7, action: {type: queue, id: \
                    0}, match: {udp_dst: 5000}}\n";
        let config = config("resnet50_routable_loopback.yaml", |text| {
            ring_loopback(text).replacen("          flows:\n", more, 1).replacen(
                "reorder:\n",
                "reorder:\n  flow_ids: [201]\n",
                1,
            )
        });
        let flows = sides(&config).0.expect("a receiver").flows.flows;
        assert_eq!(flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), [201]);
    }

    #[test]
    fn regions_say_which_pages_and_a_gpu_is_refused() {
        let region = |kind| Region {
            name: "Data_RX".to_owned(),
            kind,
            affinity: 0,
            buffers: 7,
            buffer_bytes: 1240,
        };
        let pages = |kind| pages(&region(kind));
        assert_eq!(pages(RegionKind::Huge), Ok(Pages::Huge));
        assert_eq!(pages(RegionKind::Host), Ok(Pages::Plain));
        assert_eq!(pages(RegionKind::HostPinned), Ok(Pages::Plain));
        let refused = pages(RegionKind::Device).expect_err("memory of a GPU");
        assert_eq!(refused.exit, ExitCode::Device);
        assert!(refused.reason.starts_with("memory region `Data_RX` is of kind `device`"));
        let refused = ring("rx_ring", 65_536).expect_err("16 bits");
        assert!(refused.reason.starts_with("tensorwire.rx_ring: 65536"), "{}", refused.reason);
    }
}
