//! The times at which a device received packets.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::time::Nanos;
use tensorwire_dpdk_sys as sys;

use crate::clock::DeviceClock;
use crate::error::CallError;
use crate::event::Reported;
use crate::view::mbuf;

/// Who says when a packet came.
#[derive(Clone, Debug, Default)]
pub enum Timing {
    /// The loop that receives, which was what was asked for.
    #[default]
    Loop,
    /// The loop, since the device has no time stamps.
    NoStamps,
    /// The loop, since the device stamps packets by a clock that it does not show.
    NoClock(Option<CallError>),
    /// The device.
    Device(Stamps),
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let software = "packets are timed by software";
        match self {
            Self::Loop => f.write_str(software),
            Self::NoStamps => write!(f, "{software}: the device has no time stamps"),
            Self::NoClock(None) => write!(f, "{software}: the clock of the device stands still"),
            Self::NoClock(Some(error)) => {
                write!(f, "{software}: the device does not show the clock of its stamps ({error})")
            }
            Self::Device(stamps) => {
                let megahertz = stamps.clock.hertz() / 1e6;
                write!(f, "packets are timed by the NIC, whose clock has {megahertz:.1} MHz")
            }
        }
    }
}

/// A device that stamps what it receives.
#[derive(Clone, Debug)]
pub struct Stamps {
    port: u16,
    /// Where an mbuf holds the stamp, and the flag that says that it does.
    field: (i32, u64),
    clock: Arc<DeviceClock>,
}

impl Stamps {
    /// Those of `port`, which was set up for them and runs; times are from `epoch` on.
    pub(crate) fn of(port: u16, epoch: Instant) -> Timing {
        let (mut offset, mut flag) = (0, 0);
        // SAFETY: both are ours to write to.
        let result = unsafe { sys::twd_timestamp_field(&raw mut offset, &raw mut flag) };
        if let Err(error) = CallError::check("rte_mbuf_dyn_rx_timestamp_register", result) {
            return Timing::NoClock(Some(error));
        }
        match DeviceClock::new(epoch, || ticks(port)) {
            Ok(clock) => {
                let clock = Arc::new(clock);
                Timing::Device(Self { port, field: (offset, flag), clock })
            }
            Err(error) => Timing::NoClock(error),
        }
    }

    /// Looks at the device's clock again: to be called some times a second by a thread that carries
    /// no packets, and not while the port is taken down.
    pub fn sync(&self, reported: &Reported) {
        // Nothing may be asked of a port that its driver sets up anew.
        if !reported.recovering() {
            self.clock.sync(|| ticks(self.port));
        }
    }

    /// When the device received the packet.
    #[inline]
    pub(crate) fn of_packet(&self, packet: &PacketDesc) -> Option<Nanos> {
        let (offset, flag) = self.field;
        let mut ticks = 0;
        // SAFETY: an mbuf of a pool of ours, as the caller has seen, whose holder asks; place and
        // flag are those that DPDK gave for time stamps.
        let result = unsafe { sys::twd_timestamp(mbuf(packet), offset, flag, &raw mut ticks) };
        if result == 0 { self.clock.at(ticks) } else { None }
    }
}

fn ticks(port: u16) -> Result<u64, CallError> {
    let mut ticks = 0;
    // SAFETY: `ticks` is ours to write to; a port that does not exist is an error.
    let result = unsafe { sys::twd_port_clock(port, &raw mut ticks) };
    CallError::check("rte_eth_read_clock", result).map(|_| ticks)
}
