//! The ports of a run, open.

use tensorwire_cuda::gather::{GatherFault, OnDevice, StreamGather};
use tensorwire_dpdk::{
    CallError, DpdkNic, DpdkTx, Eal, Headers, LinkProbe, NicConfig, NicError, Port, PortAddress,
    PortError, PortFault, Stage, Stamps, Storage, Timing, left_standing,
};

use super::ends::{PortPackets, PortRx};
use crate::exit::{ExitCode, Failure};
use crate::run::clock::Clock;
use crate::run::gpu::Packets;
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
    /// For packets on a GPU whose headers the NIC does not split off.
    gather: Option<Box<StreamGather>>,
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
    lent: Option<Packets>,
    (talk, clock): (Talk, Clock),
) -> Result<DpdkRun, Failure> {
    let (lent, gather) = match lent {
        Some(Packets::Host(memory)) => (Some(Storage::Host(memory)), None),
        Some(Packets::Device(memory, gather)) => (Some(Storage::Device(memory)), Some(gather)),
        None => (None, None),
    };
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
    let addresses = config.ports().cloned().collect();
    Ok(DpdkRun { nic, gather, names, addresses, talk })
}

fn refused(error: &NicError) -> Failure {
    failure(ExitCode::Device, format!("DPDK: {error}"))
}

/// Ports do not start; `on_gpu` where their packets are to lie in memory of a GPU.
fn not_started(error: &NicError, on_gpu: bool) -> Failure {
    let failed = refused(error);
    match error {
        NicError::Port(PortError::Call { stage: Stage::Map, .. }) if on_gpu => failure(
            failed.exit,
            format!(
                "{}; for a NIC to write to memory of the GPU the kernel needs the module \
                 nvidia-peermem (modprobe nvidia-peermem), or dma-bufs of it",
                failed.reason
            ),
        ),
        _ => failed,
    }
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
    type Memory<'n> = PortPackets;
    type Rx<'n> = PortRx<'n>;
    type Tx<'n> = DpdkTx<'n>;
    const JOINED: bool = false;

    fn ends(&mut self) -> Result<EndsOf<'_, Self>, Failure> {
        let on_gpu = self.gather.is_some();
        self.nic.start().map_err(|error| not_started(&error, on_gpu))?;
        for (port, name) in self.nic.ports().zip(&self.names) {
            describe(port, name, self.talk);
        }
        let ports = self.nic.ports().zip(&self.names).zip(&self.addresses);
        let mut links: Vec<_> =
            ports.map(|((port, name), address)| link(port, name, address)).collect();
        let gather = self.gather.take();
        let (tx, rx) = self.nic.split();
        let mut on_gpu = None;
        let rx = rx.map(|(rx, view)| {
            if !matches!(view.headers(), Headers::InPlace) {
                on_gpu = Some(OnDevice(view.clone()));
            }
            PortRx::over(rx, view, gather)
        });
        // The receiver's port is the first.
        let fault = rx.as_ref().and_then(|(rx, _)| rx.fault());
        if let Some((fault, (_, probe))) = fault.zip(links.first_mut()) {
            let port = std::mem::replace(probe, Box::new(Nobody));
            *probe = Box::new(HeadersProbe { port, fault });
        }
        Ok(Ends { tx, rx, on_gpu, links })
    }

    fn counted(&self) -> Counted {
        let ports = self.nic.ports().zip(&self.names);
        // A port that cannot say has no counters.
        let ports = ports.filter_map(|(port, name)| {
            let counter = |(name, value)| Counter { name, value };
            let counters = port.xstats().ok()?.into_iter().map(counter).collect();
            Some(sink::Port { port: name.clone(), counters })
        });
        Counted { rx: self.nic.rx_stats(), in_groups: false, ports: ports.collect() }
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

/// A port whose packets have their headers brought by a GPU: of no use when that has failed.
#[derive(Debug)]
struct HeadersProbe {
    port: Box<dyn Probe + Send>,
    fault: GatherFault,
}

impl Probe for HeadersProbe {
    fn look(&mut self) -> Option<Look> {
        let look = self.port.look();
        if self.fault.get().is_some() { Some(blind(look)) } else { look }
    }
}

/// What a port is whose headers do not come any more, whatever it says itself.
fn blind(look: Option<Look>) -> Look {
    let state = LinkState::Faulty("the GPU does not bring the headers of packets any more");
    look.map_or(Look::at(state), |look| Look { state, ..look })
}

/// Nothing to look at.
#[derive(Debug)]
struct Nobody;

impl Probe for Nobody {
    fn look(&mut self) -> Option<Look> {
        None
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
    for line in port.lying().into_iter().chain(port.headers()) {
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
        let before = Look { resets: 3, ..Look::at(LinkState::Up) };
        for (look, resets) in [(Some(before), 3), (None, 0)] {
            let look = blind(look);
            assert!(matches!(look.state, LinkState::Faulty(why) if why.contains("headers")));
            assert_eq!(look.resets, resets);
        }
    }

    #[test]
    fn a_nic_that_is_not_given_memory_of_a_gpu_names_what_the_kernel_needs() {
        let failed = |stage| {
            let error = CallError { call: "rte_dev_dma_map", code: libc::EINVAL };
            NicError::Port(PortError::Call { device: "p0".to_owned(), stage, error })
        };
        let map = not_started(&failed(Stage::Map), true);
        assert_eq!(map.exit, ExitCode::Device);
        assert!(map.reason.contains("rte_dev_dma_map"), "{}", map.reason);
        assert!(map.reason.contains("modprobe nvidia-peermem"), "{}", map.reason);
        for (stage, on_gpu) in [(Stage::Map, false), (Stage::Start, true)] {
            let other = not_started(&failed(stage), on_gpu);
            assert!(!other.reason.contains("nvidia"), "{stage}: {}", other.reason);
        }
    }
}
