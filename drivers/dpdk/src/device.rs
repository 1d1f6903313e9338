//! Devices: something with a port, attached and detached.

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tensorwire_dpdk_sys as sys;

use crate::eal::Eal;
use crate::error::{CallError, PortError, undone};
use crate::stage::Stage;

/// How long a closed memif port is left alone. Its peer's disconnect is handled by a thread of EAL,
/// which reads the port: in one process out of ten DPDK 22.11 crashes if that comes later.
const MEMIF_REST: Duration = Duration::from_millis(100);

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Name of the port.
    pub name: String,
    /// Name of its driver.
    pub driver: String,
    /// The least bytes of a receive buffer, without headroom; 0: any.
    pub min_rx_bytes: usize,
    /// The longest frame it receives, in bytes.
    pub max_rx_bytes: u32,
    /// The largest MTU, in bytes.
    pub max_mtu: u32,
    /// NUMA node, if it has one.
    pub numa_node: Option<u32>,
    /// Its address; all zeros if it has none.
    pub mac: [u8; 6],
    /// Whether it can stamp what it receives with a time.
    pub timestamps: bool,
    /// Whether it receives the front of a frame into one buffer and the rest into another.
    pub splits: bool,
    /// Whether it is software: this CPU writes what it receives.
    pub software: bool,
    /// Whether its rules are there again after its driver has set it up anew by itself.
    pub keeps_rules: bool,
    /// Receive and transmit queues that it has at most.
    pub max_queues: (u16, u16),
}

/// A device with its port, not set up yet (see [`crate::Port`]). It is closed and, if it is a
/// virtual one, detached when the value goes.
#[derive(Debug)]
pub struct Device {
    port: u16,
    name: String,
    /// How it was attached: its name with its options.
    args: String,
    kind: Kind,
    /// The rings that the port uses, freed after it.
    rings: Option<Arc<Rings>>,
    eal: Eal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Attached by EAL at its start and detached at its end.
    Pci,
    /// Attached here.
    Virtual,
}

impl Device {
    /// Attaches the virtual device that `devargs` describes, as `net_memif0,role=server,id=0`.
    ///
    /// # Errors
    ///
    /// [`PortError`] when DPDK has no such device or refuses its options.
    pub fn attach(eal: &Eal, devargs: &str) -> Result<Self, PortError> {
        let text = CString::new(devargs).map_err(|_| PortError::Name(devargs.to_owned()))?;
        let name = devargs.split(',').next().unwrap_or_default();
        // SAFETY: EAL is running, and the text ends in a zero.
        let result = unsafe { sys::twd_device_probe(text.as_ptr()) };
        CallError::check("rte_dev_probe", result).map_err(|error| failed(name, error))?;
        let mut device = Self::find(eal, name, Kind::Virtual)?;
        devargs.clone_into(&mut device.args);
        Ok(device)
    }

    /// The NIC at the PCI address `address`, which EAL attached when it was started.
    ///
    /// # Errors
    ///
    /// [`PortError`] when EAL found no such NIC, or has no driver for it.
    pub fn pci(eal: &Eal, address: &str) -> Result<Self, PortError> {
        Self::find(eal, address, Kind::Pci)
    }

    fn find(eal: &Eal, name: &str, kind: Kind) -> Result<Self, PortError> {
        let text = CString::new(name).map_err(|_| PortError::Name(name.to_owned()))?;
        let mut port = 0;
        // SAFETY: EAL is running; the text ends in a zero, and `port` is ours to write to.
        let result = unsafe { sys::twd_port_by_name(text.as_ptr(), &raw mut port) };
        CallError::check("rte_eth_dev_get_port_by_name", result)
            .map_err(|error| failed(name, error))?;
        let (name, args) = (name.to_owned(), name.to_owned());
        Ok(Self { port, name, args, kind, rings: None, eal: eal.clone() })
    }

    /// Number of the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name with the options that it was attached with.
    #[must_use]
    pub fn args(&self) -> &str {
        &self.args
    }

    /// The DPDK that it belongs to.
    #[must_use]
    pub const fn eal(&self) -> &Eal {
        &self.eal
    }

    /// What its port is.
    ///
    /// # Errors
    ///
    /// [`PortError`] when the port is gone.
    pub fn info(&self) -> Result<PortInfo, PortError> {
        let raw = self.raw_info().map_err(|error| failed(&self.name, error))?;
        Ok(PortInfo {
            name: text(&raw.name),
            driver: text(&raw.driver),
            min_rx_bytes: raw.min_rx_bytes as usize,
            max_rx_bytes: raw.max_rx_bytes,
            max_mtu: raw.max_mtu,
            numa_node: u32::try_from(raw.socket).ok(),
            mac: raw.mac,
            timestamps: raw.timestamps == 1,
            splits: raw.splits == 1,
            software: raw.software == 1,
            keeps_rules: raw.keeps_rules == 1,
            max_queues: (raw.max_rx_queues, raw.max_tx_queues),
        })
    }

    /// The device as DPDK knows it.
    pub(crate) fn handle(&self) -> Result<*mut c_void, CallError> {
        self.raw_info().map(|info| info.device)
    }

    fn raw_info(&self) -> Result<sys::PortInfo, CallError> {
        let mut info = sys::PortInfo {
            name: [0; sys::NAME],
            driver: [0; sys::NAME],
            device: ptr::null_mut(),
            min_rx_bytes: 0,
            max_rx_bytes: 0,
            max_mtu: 0,
            socket: 0,
            max_rx_queues: 0,
            max_tx_queues: 0,
            mac: [0; 6],
            timestamps: 0,
            keeps_rules: 0,
            splits: 0,
            software: 0,
        };
        // SAFETY: `info` has the layout of the shim's structure and is ours to write to; a port
        // that does not exist is an error.
        let result = unsafe { sys::twd_port_info(self.port, &raw mut info) };
        CallError::check("rte_eth_dev_info_get", result).map(|_| info)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let handle = self.handle();
        // SAFETY: the port is ours, stopped (`Port` has seen to that) or never started, and no
        // queue of it is left: they borrow it.
        let closed = unsafe { sys::twd_port_close(self.port) };
        undone(closed == 0);
        if self.name.starts_with("net_memif") {
            thread::sleep(MEMIF_REST);
        }
        if self.kind == Kind::Virtual
            && let Ok(handle) = handle
        {
            // SAFETY: the device was attached by us, its only port is closed, and it is detached
            // once: the value is going.
            let removed = unsafe { sys::twd_device_remove(handle) };
            undone(removed == 0);
        }
        self.rings = None;
    }
}

/// The text of a name that ends in a zero or fills its place.
pub(crate) fn text(name: &[c_char]) -> String {
    let bytes = name.iter().map(|&c| c.to_ne_bytes()[0]).take_while(|&byte| byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

fn failed(name: &str, error: CallError) -> PortError {
    PortError::Call { device: name.to_owned(), stage: Stage::Attach, error }
}

/// Two rings, freed when no port uses them any more.
#[derive(Debug)]
struct Rings {
    rings: [*mut c_void; 2],
    _eal: Eal,
}

// SAFETY: a ring belongs to the process; the value only keeps it alive and frees it once.
unsafe impl Send for Rings {}

// SAFETY: as above; a shared reference gives nothing out.
unsafe impl Sync for Rings {}

impl Drop for Rings {
    fn drop(&mut self) {
        for ring in self.rings.into_iter().filter(|ring| !ring.is_null()) {
            // SAFETY: made by us, and both ports that used it are closed: each held the value.
            unsafe { sys::twd_ring_free(ring) };
        }
    }
}

/// Ring devices are numbered, so that their names differ. Relaxed: only the number matters.
static NEXT_PAIR: AtomicU32 = AtomicU32::new(0);

/// Two devices joined by rings in memory: what one sends the other receives, by passing the mbuf
/// itself on. For tests and for a loopback; a ring of `frames` holds that many.
///
/// # Errors
///
/// [`PortError`] when DPDK has no memory or no port left.
pub fn ring_pair(eal: &Eal, frames: u32) -> Result<[Device; 2], PortError> {
    let number = NEXT_PAIR.fetch_add(1, Ordering::Relaxed);
    let mut rings = Rings { rings: [ptr::null_mut(); 2], _eal: eal.clone() };
    for (ring, side) in rings.rings.iter_mut().zip(["ab", "ba"]) {
        let name = format!("tw{number}{side}");
        let text = CString::new(name.as_str()).map_err(|_| PortError::Name(name.clone()))?;
        // SAFETY: EAL is running; the text ends in a zero, and `ring` is ours to write to.
        let result = unsafe { sys::twd_ring_create(text.as_ptr(), frames, &raw mut *ring) };
        CallError::check("rte_ring_create", result).map_err(|error| failed(&name, error))?;
    }
    let [there, back] = rings.rings;
    let rings = Arc::new(rings);
    Ok([
        ring_device(eal, &format!("tw{number}a"), [back, there], &rings)?,
        ring_device(eal, &format!("tw{number}b"), [there, back], &rings)?,
    ])
}

fn ring_device(
    eal: &Eal,
    name: &str,
    [rx, tx]: [*mut c_void; 2],
    rings: &Arc<Rings>,
) -> Result<Device, PortError> {
    let text = CString::new(name).map_err(|_| PortError::Name(name.to_owned()))?;
    let mut port = 0;
    // SAFETY: both rings live as long as the device, which holds `rings`; each is written by one
    // port and read by the other.
    let result = unsafe { sys::twd_ring_port(text.as_ptr(), rx, tx, &raw mut port) };
    CallError::check("rte_eth_from_rings", result).map_err(|error| failed(name, error))?;
    let rings = Some(Arc::clone(rings));
    let name = format!("net_ring_{name}");
    Ok(Device { port, args: name.clone(), name, kind: Kind::Virtual, rings, eal: eal.clone() })
}
