//! Packets in the memory of a GPU, as a NIC would write them there.
#![allow(unsafe_code)] // a promise about where packets lie

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::memory::DevicePackets;
use tensorwire_core::port::{PacketMemory, RxQueue};
use tensorwire_cuda::memory::Region;
use tensorwire_sim::pool::PacketView;

/// The buffers of a software NIC, and their shadows on the GPU.
#[derive(Clone, Debug)]
pub(super) struct Shadows {
    pub(super) view: PacketView,
    pub(super) region: Region,
    pub(super) stride: usize,
}

// SAFETY: a buffer of the NIC holds one packet at a time, and its shadow is as long as the longest
// frame, rounded up to 64 bytes; the region lives as long as the value.
unsafe impl DevicePackets for Shadows {
    fn buffers(&self) -> usize {
        self.view.buffers()
    }

    fn number(&self, packet: &PacketDesc) -> Option<usize> {
        self.view.number(packet)
    }

    fn address(&self, packet: &PacketDesc) -> Option<u64> {
        let number = self.number(packet)?;
        Some(self.region.device_address() + (number * self.stride) as u64)
    }
}

/// Writes each packet to its shadow when it comes, which is the work of the NIC and not measured.
pub(super) struct Shadowed<Q> {
    pub(super) inner: Q,
    pub(super) shadows: Shadows,
}

impl<Q: RxQueue> PacketMemory for Shadowed<Q> {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.inner.bytes(packet)
    }
}

impl<Q: RxQueue> RxQueue for Shadowed<Q> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let came = self.inner.rx_burst(out);
        for packet in &out[..came] {
            let number = self.shadows.number(packet).expect("a packet of this NIC");
            let bytes = self.inner.bytes(packet);
            self.shadows.region.write(number * self.shadows.stride, bytes).expect("written");
        }
        came
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        self.inner.release(packets);
    }

    fn free_buffers(&self) -> usize {
        self.inner.free_buffers()
    }

    fn stats(&self) -> NicStats {
        self.inner.stats()
    }
}
