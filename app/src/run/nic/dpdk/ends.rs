//! The receiving end of a port: the port's own, or one whose headers a GPU gathers.

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::port::{PacketMemory, RxQueue};
use tensorwire_core::time::Nanos;
use tensorwire_cuda::gather::{GatherFault, GatheredPackets, GatheredRx, StreamGather};
use tensorwire_dpdk::{DpdkRx, Headers, PacketView};

/// The queue.
#[derive(Debug)]
pub enum PortRx<'n> {
    /// The CPU reads frames, or what the NIC splits off them.
    Port(DpdkRx<'n>),
    /// It reads what a GPU brings it.
    Gathered(Box<GatheredRx<DpdkRx<'n>, PacketView, Box<StreamGather>>>),
}

/// Its packets, for those who read them without having the queue.
#[derive(Clone, Debug)]
pub enum PortPackets {
    /// See [`PortRx::Port`].
    Port(PacketView),
    /// See [`PortRx::Gathered`].
    Gathered(GatheredPackets<PacketView>),
}

impl<'n> PortRx<'n> {
    /// The end over the queue of a port, with `gather` around it where packets want it.
    pub fn over(
        rx: DpdkRx<'n>,
        view: PacketView,
        gather: Option<Box<StreamGather>>,
    ) -> (Self, PortPackets) {
        match gather.filter(|_| matches!(view.headers(), Headers::Gathered)) {
            None => (Self::Port(rx), PortPackets::Port(view)),
            Some(gather) => {
                let rx = GatheredRx::new(rx, view, gather);
                let packets = PortPackets::Gathered(rx.view());
                (Self::Gathered(Box::new(rx)), packets)
            }
        }
    }
}

impl PortRx<'_> {
    /// Where it is told that headers do not come any more; `None` where nobody gathers any.
    pub fn fault(&self) -> Option<GatherFault> {
        match self {
            Self::Port(_) => None,
            Self::Gathered(rx) => Some(rx.fault()),
        }
    }
}

macro_rules! packet_memory {
    ($end:ty) => {
        impl PacketMemory for $end {
            #[inline]
            fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
                match self {
                    Self::Port(end) => end.bytes(packet),
                    Self::Gathered(end) => end.bytes(packet),
                }
            }

            #[inline]
            fn prefetch(&self, packet: &PacketDesc) {
                match self {
                    Self::Port(end) => end.prefetch(packet),
                    Self::Gathered(end) => end.prefetch(packet),
                }
            }

            #[inline]
            fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
                match self {
                    Self::Port(end) => end.arrived(packet),
                    Self::Gathered(end) => end.arrived(packet),
                }
            }
        }
    };
}

packet_memory!(PortRx<'_>);
packet_memory!(PortPackets);

impl RxQueue for PortRx<'_> {
    #[inline]
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        match self {
            Self::Port(end) => end.rx_burst(out),
            Self::Gathered(end) => end.rx_burst(out),
        }
    }

    #[inline]
    fn release(&mut self, packets: &mut [PacketDesc]) {
        match self {
            Self::Port(end) => end.release(packets),
            Self::Gathered(end) => end.release(packets),
        }
    }

    #[inline]
    fn free_buffers(&self) -> usize {
        match self {
            Self::Port(end) => end.free_buffers(),
            Self::Gathered(end) => end.free_buffers(),
        }
    }

    fn stats(&self) -> NicStats {
        match self {
            Self::Port(end) => end.stats(),
            Self::Gathered(end) => end.stats(),
        }
    }

    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        match self {
            Self::Port(end) => end.caught_up(now),
            Self::Gathered(end) => end.caught_up(now),
        }
    }
}
