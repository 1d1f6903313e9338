//! A port, set up, started, steered, and taken down again in the reverse order.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use tensorwire_core::counters::NicStats;
use tensorwire_core::flow::FlowMatch;
use tensorwire_core::outer::Outer;
use tensorwire_dpdk_sys as sys;

use crate::device::{Device, PortInfo, text};
use crate::error::{CallError, PortError, undone};
use crate::event::{Reported, Watch};
use crate::flow::{self, Rule, Steering};
use crate::link::LinkProbe;
use crate::plan::FlowPlan;
use crate::pool::PacketPool;
use crate::rx::{DpdkRx, RxSide};
use crate::stage::Stage;
use crate::stamp::{Stamps, Timing};
use crate::tx::{DpdkTx, TxSide};
use crate::view::{Headers, PacketView};

/// The largest frame that every Ethernet port takes, without its checksum (IEEE 802.3).
const STANDARD_FRAME: usize = 1514;

/// Bytes of a frame that are not part of its MTU.
const ETHERNET_HEADER: usize = 14;

/// The only queue of a port.
const QUEUE: u16 = 0;

/// A queue.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Descriptors asked for; the device has the last word, see [`Port::rings`].
    pub ring: u16,
    /// Its buffers.
    pub pool: PacketPool,
}

/// What a port is set up for.
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// The receive queue, if any.
    pub rx: Option<QueueConfig>,
    /// The transmit queue, if any.
    pub tx: Option<QueueConfig>,
    /// How received frames lie in the pool of their queue.
    pub headers: Headers,
    /// Pools of senders whose very buffers arrive here (ring devices).
    pub peers: Vec<PacketPool>,
    /// The flows to steer to the receive queue.
    pub flows: Option<FlowPlan>,
    /// Headers that frames of a flow get on their way out.
    pub wrap: Vec<(FlowMatch, Vec<Outer>)>,
    /// Every frame that is sent gets the port's own address as its source (`tx_eth_src`). Written
    /// by software.
    pub eth_src: bool,
    /// Frames are stamped with the time of their arrival, from then on, where the device does it.
    pub timestamps: Option<Instant>,
    /// How long what was sent gets to leave the device before it is stopped; it ends with the link.
    pub linger: Duration,
}

/// A port that runs. Taken down when it is closed or dropped.
#[derive(Debug)]
pub struct Port {
    /// `None` once it is closed.
    device: Option<Device>,
    up: Up,
    config: PortConfig,
    rings: (u16, u16),
    steering: Steering,
    wrapping: Steering,
    timing: Timing,
    rx: Option<RxSide>,
    tx: Option<TxSide>,
}

/// What has to be undone.
#[derive(Debug, Default)]
struct Up {
    isolated: bool,
    started: bool,
    watched: Option<Watch>,
    /// Rules do not outlive a recovery by the driver.
    rules_go: bool,
    marks: bool,
    rules: Vec<Rule>,
    mapped: Vec<PacketPool>,
}

impl Port {
    /// Sets up `device` and starts it. `watch` is told of each stage before it begins, and may
    /// refuse to go on.
    ///
    /// # Errors
    ///
    /// [`PortError`]; everything that was set up has been taken down again then.
    pub fn open(
        device: Device,
        config: PortConfig,
        watch: impl FnMut(Stage) -> bool,
    ) -> Result<Self, PortError> {
        if config.rx.is_none() && config.tx.is_none() {
            return Err(PortError::NoQueue);
        }
        let rings = [&config.rx, &config.tx].map(|q| q.as_ref().map_or(0, |q| q.ring));
        let mut port = Self {
            device: Some(device),
            up: Up::default(),
            config,
            rings: (rings[0], rings[1]),
            steering: Steering::Off,
            wrapping: Steering::Off,
            timing: Timing::Loop,
            rx: None,
            tx: None,
        };
        // On the way out by `?` the value is dropped, which undoes what was done.
        port.set_up(watch)?;
        Ok(port)
    }

    fn set_up(&mut self, mut watch: impl FnMut(Stage) -> bool) -> Result<(), PortError> {
        let info = self.device()?.info()?;
        let mut options = sys::PortOptions {
            marks: self.config.flows.is_some().into(),
            timestamps: self.config.timestamps.is_some().into(),
            split: self.config.headers.payloads().is_some().into(),
        };
        for stage in Stage::OPEN {
            if !watch(stage) {
                return Err(PortError::Stopped(stage));
            }
            let done = match stage {
                Stage::Attach => Ok(()),
                Stage::Isolate => {
                    self.isolate();
                    Ok(())
                }
                Stage::Configure => {
                    self.check_buffers(&info)?;
                    self.up.rules_go = !info.keeps_rules;
                    self.configure(&info.driver, info.max_mtu, &mut options)
                }
                Stage::Map => self.map(),
                Stage::RxQueue => self.rx_queue(),
                Stage::TxQueue => self.tx_queue(),
                Stage::Start => self.start(),
                Stage::Steer => self.steer(options.marks == 1).map(|()| self.wrap()),
            };
            let name = &info.name;
            done.map_err(|error| PortError::Call { device: name.clone(), stage, error })?;
        }
        let id = self.device()?.port();
        self.timing = match self.config.timestamps {
            None => Timing::Loop,
            Some(_) if options.timestamps == 0 => Timing::NoStamps,
            Some(epoch) => Stamps::of(id, epoch),
        };
        if let Some(queue) = &self.config.rx {
            let mut view = PacketView::new(queue.pool.clone(), self.config.peers.clone())
                .lying(self.config.headers.clone());
            if let Timing::Device(stamps) = &self.timing {
                view = view.stamped(stamps.clone());
            }
            let by_device = matches!(self.steering, Steering::Device { .. });
            let plan = self.config.flows.as_ref().filter(|_| !by_device);
            let outer = plan.map_or_else(Vec::new, |plan| plan.outer.clone());
            self.rx = Some(RxSide::new(id, QUEUE, view, self.up.marks, outer));
        }
        if let Some(queue) = &self.config.tx {
            let mac = self.config.eth_src.then_some(info.mac);
            let by_device = matches!(self.wrapping, Steering::Device { .. });
            let flows = if by_device { &[][..] } else { &self.config.wrap };
            self.tx = Some(TxSide::new(id, QUEUE, queue.pool.clone(), mac, flows));
        }
        Ok(())
    }

    fn device(&self) -> Result<&Device, PortError> {
        self.device.as_ref().ok_or_else(|| PortError::Name("a closed port".to_owned()))
    }

    /// Number of the port; of a closed one a number that no port has.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.device.as_ref().map_or(u16::MAX, Device::port)
    }

    fn check_buffers(&self, info: &PortInfo) -> Result<(), PortError> {
        if info.software && !self.rx_pools().all(PacketPool::cpu_readable) {
            return Err(PortError::Software);
        }
        let (Some(queue), headers) = (&self.config.rx, &self.config.headers) else {
            return Ok(());
        };
        if !(queue.pool.cpu_readable() || matches!(headers, Headers::Gathered)) {
            return Err(PortError::Unreadable);
        }
        let outer = self.config.flows.as_ref().is_some_and(|plan| !plan.outer.is_empty());
        if outer && !matches!(headers, Headers::InPlace) {
            return Err(PortError::Outer);
        }
        let whole = headers.payloads().unwrap_or(&queue.pool);
        let front = usize::from(headers.split());
        let needed = info.min_rx_bytes;
        for (given, needed) in [(whole.room_bytes(), needed), (queue.pool.room_bytes(), front)] {
            if given < needed {
                return Err(PortError::Buffers { given, needed });
            }
        }
        Ok(())
    }

    /// The pools of received frames: two where they are split.
    fn rx_pools(&self) -> impl Iterator<Item = &PacketPool> {
        let pool = self.config.rx.as_ref().map(|queue| &queue.pool);
        pool.into_iter().chain(self.config.headers.payloads())
    }

    /// Before anything else: some drivers take it only then.
    fn isolate(&mut self) {
        if !self.config.flows.as_ref().is_some_and(|plan| plan.isolation) {
            return;
        }
        match flow::isolate(self.number(), true) {
            Ok(()) => self.up.isolated = true,
            Err(error) => {
                self.steering = Steering::Software { rule: None, error, words: String::new() };
            }
        }
    }

    fn configure(
        &mut self,
        driver: &str,
        max_mtu: u32,
        options: &mut sys::PortOptions,
    ) -> Result<(), CallError> {
        let pools = self.rx_pools().chain(self.config.tx.as_ref().map(|queue| &queue.pool));
        let frame = pools.map(PacketPool::frame_bytes).max().unwrap_or(0);
        // Only where it is needed, and not for an interface of the kernel, which keeps its own.
        let own = frame <= STANDARD_FRAME || driver == "net_af_packet";
        let mtu = u32::try_from(frame.saturating_sub(ETHERNET_HEADER)).unwrap_or(u32::MAX);
        let mtu = if own { 0 } else { mtu.min(max_mtu) };
        let (rx, tx) = (self.config.rx.is_some(), self.config.tx.is_some());
        self.up.watched = Some(Watch::new(self.number())?);
        let options = &raw mut *options;
        // SAFETY: the port is ours and stopped; the answers are ours to write to.
        let result =
            unsafe { sys::twd_port_configure(self.number(), rx.into(), tx.into(), mtu, options) };
        CallError::check("rte_eth_dev_configure", result)?;
        let (id, rx, tx) = (self.number(), &raw mut self.rings.0, &raw mut self.rings.1);
        // SAFETY: both are ours to write to.
        let result = unsafe { sys::twd_port_adjust(id, rx, tx) };
        CallError::check("rte_eth_dev_adjust_nb_rx_tx_desc", result).map(|_| ())
    }

    /// A device that reaches memory by itself has to know ours. One that has no use for it says so.
    fn map(&mut self) -> Result<(), CallError> {
        let Some(device) = &self.device else { return Ok(()) };
        let handle = device.handle()?;
        let pools = self.rx_pools().chain(self.config.tx.as_ref().map(|queue| &queue.pool));
        for pool in pools.chain(&self.config.peers).cloned().collect::<Vec<_>>() {
            let (base, len) = pool.memory();
            if self.up.mapped.iter().any(|other| other.memory() == pool.memory()) {
                continue;
            }
            let iova = base.addr() as u64;
            // SAFETY: the memory is registered and stays so until it is unmapped: `mapped` has it.
            let result = unsafe { sys::twd_device_map(handle, base, iova, len) };
            match CallError::check("rte_dev_dma_map", result) {
                Ok(_) => self.up.mapped.push(pool),
                Err(error) if error.code == libc::ENOTSUP && pool.cpu_readable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn rx_queue(&mut self) -> Result<(), CallError> {
        let Some(queue) = &self.config.rx else { return Ok(()) };
        let (port, ring, pool) = (self.number(), self.rings.0, queue.pool.raw());
        let result = match &self.config.headers {
            Headers::Split { payloads, bytes } => {
                let rest = payloads.raw();
                // SAFETY: the port is ours, configured and stopped; the pools outlive the queue:
                // `config` keeps them until the port is closed.
                unsafe { sys::twd_port_rx_queue_split(port, QUEUE, ring, pool, *bytes, rest) }
            }
            // SAFETY: as above.
            _ => unsafe { sys::twd_port_rx_queue(port, QUEUE, ring, pool) },
        };
        CallError::check("rte_eth_rx_queue_setup", result).map(|_| ())
    }

    fn tx_queue(&mut self) -> Result<(), CallError> {
        if self.config.tx.is_none() {
            return Ok(());
        }
        // SAFETY: the port is ours, configured and stopped.
        let result = unsafe { sys::twd_port_tx_queue(self.number(), QUEUE, self.rings.1) };
        CallError::check("rte_eth_tx_queue_setup", result).map(|_| ())
    }

    fn start(&mut self) -> Result<(), CallError> {
        // SAFETY: the port is ours, and all its queues are set up.
        let result = unsafe { sys::twd_port_start(self.number()) };
        CallError::check("rte_eth_dev_start", result)?;
        self.up.started = true;
        Ok(())
    }

    fn steer(&mut self, marks: bool) -> Result<(), CallError> {
        let Some(plan) = &self.config.flows else { return Ok(()) };
        if !plan.isolation || self.up.isolated {
            match flow::steer(self.number(), QUEUE, plan, marks) {
                Ok(rules) => {
                    let isolated = self.up.isolated;
                    self.steering = Steering::Device { rules: rules.len(), isolated };
                    self.up.rules = rules;
                    self.up.marks = marks;
                    return Ok(());
                }
                Err(refused) => self.steering = refused,
            }
        }
        // In software then: every frame has to come in, whatever its address.
        if self.up.isolated {
            flow::isolate(self.number(), false)?;
            self.up.isolated = false;
        }
        // SAFETY: the port is ours and runs. A device without such a mode takes every frame anyway.
        let result = unsafe { sys::twd_port_promiscuous(self.number()) };
        match CallError::check("rte_eth_promiscuous_enable", result) {
            Err(error) if error.code != libc::ENOTSUP => Err(error),
            _ => Ok(()),
        }
    }

    /// Rules for what is sent, where headers are to be put; software does it where there are none.
    fn wrap(&mut self) {
        if self.config.tx.is_none() || self.config.wrap.is_empty() {
            return;
        }
        match flow::wrap(self.number(), &self.config.wrap) {
            Ok(rules) => {
                self.wrapping = Steering::Device { rules: rules.len(), isolated: false };
                self.up.rules.extend(rules);
            }
            Err(refused) => self.wrapping = refused,
        }
    }

    /// Who takes headers off what is received, and who puts them in front of what is sent, in
    /// words; nothing where there are none.
    #[must_use]
    pub fn headers(&self) -> Vec<String> {
        let who = |steering: &Steering| match steering {
            Steering::Device { .. } => "the NIC",
            _ => "software",
        };
        let taken = self.config.flows.as_ref().is_some_and(|plan| !plan.outer.is_empty());
        let taken = taken.then(|| format!("headers are taken off by {}", who(&self.steering)));
        let put = !self.config.wrap.is_empty() && self.config.tx.is_some();
        let put = put.then(|| format!("headers are put by {}", who(&self.wrapping)));
        taken.into_iter().chain(put).collect()
    }

    /// How this CPU comes by the headers of what is received, in words; nothing where it reads
    /// whole frames.
    #[must_use]
    pub fn lying(&self) -> Option<String> {
        match &self.config.headers {
            Headers::InPlace => None,
            Headers::Split { bytes, .. } => Some(format!(
                "the NIC writes the first {bytes} bytes of a frame to the host, the rest to the GPU"
            )),
            Headers::Gathered => Some(
                "the NIC writes frames to the GPU, which brings the host their headers: it cannot \
                 split them"
                    .to_owned(),
            ),
        }
    }

    /// What the port is; `None` once it is closed.
    #[must_use]
    pub fn info(&self) -> Option<PortInfo> {
        self.device.as_ref()?.info().ok()
    }

    /// Descriptors of the receive and transmit ring, as the device has them; 0 for a queue that the
    /// port has not.
    #[must_use]
    pub const fn rings(&self) -> (u16, u16) {
        self.rings
    }

    /// Who matches the flows.
    #[must_use]
    pub const fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Who says when packets came.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Received packets, for those who read them without having the queue.
    #[must_use]
    pub fn packets(&self) -> Option<PacketView> {
        self.rx.as_ref().map(|side| side.view().clone())
    }

    /// Lends the two queues, one to each of two threads or both to one.
    pub fn split(&mut self) -> (Option<DpdkRx<'_>>, Option<DpdkTx<'_>>) {
        let Self { rx, tx, .. } = self;
        (rx.as_mut().map(DpdkRx::new), tx.as_mut().map(DpdkTx::new))
    }

    /// What the port counted.
    ///
    /// # Errors
    ///
    /// [`CallError`] when it cannot say, as when it is closed.
    pub fn stats(&self) -> Result<sys::PortStats, CallError> {
        stats(self.number())
    }

    /// What its receiving side counted, as [`DpdkRx`] has it, read now; `None` without one.
    #[must_use]
    pub fn rx_stats(&self) -> Option<NicStats> {
        self.rx.as_ref().map(RxSide::read_stats)
    }

    /// What its driver counted besides, by name.
    ///
    /// # Errors
    ///
    /// [`CallError`] when it cannot say, as when it is closed.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, CallError> {
        let mut values = vec![sys::XStat { name: [0; sys::NAME], value: 0 }; 512];
        // SAFETY: the list is ours to write to and as long as it is said to be.
        let result = unsafe { sys::twd_port_xstats(self.number(), values.as_mut_ptr(), 512) };
        let count = CallError::check("rte_eth_xstats_get", result)?;
        values.truncate(usize::try_from(count).unwrap_or(0));
        Ok(values.iter().map(|stat| (text(&stat.name), stat.value)).collect())
    }

    /// Who can say what its link is, also while others have its queues.
    #[must_use]
    pub fn link(&self) -> LinkProbe {
        LinkProbe::new(self.number(), self.reported())
    }

    /// What its driver reports, from its configuration on.
    #[must_use]
    pub fn reported(&self) -> Reported {
        let rules = self.up.rules_go && !self.up.rules.is_empty();
        self.up.watched.as_ref().map(|watch| watch.reported(rules)).unwrap_or_default()
    }

    /// Takes the port down: rules, the port itself, maps, the device. Whether there was something
    /// to do: not when it was closed before.
    pub fn close(&mut self) -> bool {
        let Some(device) = self.device.take() else { return false };
        let port = device.port();
        if let Some(watch) = &self.up.watched {
            watch.settle();
        }
        // Frames that were filled and not sent go back to their pool.
        let sent = self.tx.take().is_some_and(|mut side| side.discard());
        // And so do those of a peer that nobody received: a ring keeps them when it goes, and with
        // them the memory of the peer's pool.
        if let Some(mut side) = self.rx.take()
            && !self.config.peers.is_empty()
        {
            DpdkRx::new(&mut side).drain();
        }
        let kept = flow::destroy(port, std::mem::take(&mut self.up.rules));
        undone(kept == 0);
        if self.up.isolated {
            // The device is given back to the kernel in any case when it is closed.
            let _ = flow::isolate(port, false);
        }
        if self.up.started {
            if sent {
                LinkProbe::new(port, self.reported()).linger(self.config.linger);
            }
            // SAFETY: the port is ours and runs, and its queues are gone: they borrow `self`.
            let result = unsafe { sys::twd_port_stop(port) };
            undone(result == 0);
        }
        let handle = device.handle().ok();
        for pool in self.up.mapped.drain(..) {
            unmap(handle, &pool);
        }
        // Nothing is watched any more before the port is closed, which ends the value.
        self.up = Up::default();
        drop(device);
        true
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.close();
    }
}

fn unmap(device: Option<*mut c_void>, pool: &PacketPool) {
    let Some(device) = device else { return };
    let (base, len) = pool.memory();
    // SAFETY: mapped before, with the same numbers; the port is stopped and uses it no more.
    let result = unsafe { sys::twd_device_unmap(device, base, base.addr() as u64, len) };
    undone(result == 0);
}

/// What `port` counted.
pub(crate) fn stats(port: u16) -> Result<sys::PortStats, CallError> {
    let mut stats = sys::PortStats::default();
    // SAFETY: `stats` has the layout of the shim's structure and is ours to write to; a port that
    // does not exist is an error.
    let result = unsafe { sys::twd_port_stats(port, &raw mut stats) };
    CallError::check("rte_eth_stats_get", result).map(|_| stats)
}
