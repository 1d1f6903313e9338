//! A NIC whose packets are there already: the receiving core and the GPU by themselves.
//!
//! Every buffer of the pool is filled once, before anything is measured; from then on its frame is
//! handed out again and again, in the order of the sequence numbers, without a sender and without a
//! copy. A real NIC would write each frame to memory and a descriptor beside it; here headers are
//! in the cache after the first round, as they are behind a NIC that writes to it (DDIO).

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::geometry::Geometry;
use tensorwire_core::memory::HostMemory;
use tensorwire_core::pipeline::Next;
use tensorwire_core::port::{PacketMemory, RxQueue};
use tensorwire_sim::pool::PacketPool;

use super::{Frames, RX_BUFS, Sender};

/// The receive queue of such a NIC.
#[derive(Debug)]
pub(crate) struct Prebuilt {
    pool: PacketPool,
    ready: VecDeque<PacketDesc>,
    buffers: usize,
    left: Arc<AtomicU64>,
}

impl Prebuilt {
    /// Fills whole batches of `frames`, as many as the pool has room for; `packets` of them are
    /// handed out in all.
    pub(crate) fn new(
        geometry: &Geometry,
        frames: &Frames,
        memory: Option<Box<dyn HostMemory>>,
        packets: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let len = geometry.frame_bytes();
        let (pool, mut free) = match memory {
            Some(memory) => PacketPool::new_in(RX_BUFS, len, memory)?,
            None => PacketPool::new(RX_BUFS, len)?,
        };
        let period = u64::try_from(frames.bytes.len() / len)?;
        let buffers = u64::try_from(RX_BUFS)? / period * period;
        let mut ready = VecDeque::with_capacity(RX_BUFS);
        for number in 0..buffers {
            let mut buf = free.pop().ok_or("fewer buffers than were asked for")?;
            let bytes = pool.bytes_mut(&mut buf, len).ok_or("a short buffer")?;
            bytes.copy_from_slice(frames.frame(number % period));
            let packet = pool.publish(buf, u32::try_from(len)?, super::FLOW + 1);
            ready.push_back(packet.map_err(|_| "a foreign buffer")?);
        }
        let left = Arc::new(AtomicU64::new(packets));
        Ok(Self { pool, buffers: ready.len(), ready, left })
    }

    /// In the place of a sender: it is done when the last packet was handed out.
    pub(super) fn sender(&self) -> Sender<'static> {
        let left = Arc::clone(&self.left);
        Box::new(move |_| match left.load(Ordering::Relaxed) {
            0 => Next::Done,
            _ => Next::Wait(None),
        })
    }
}

impl PacketMemory for Prebuilt {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.pool.bytes(packet)
    }

    fn prefetch(&self, packet: &PacketDesc) {
        self.pool.prefetch(packet);
    }
}

impl RxQueue for Prebuilt {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        // Relaxed: who waits for the end looks at the number and nothing else.
        let left = self.left.load(Ordering::Relaxed);
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let count = out.len().min(self.ready.len()).min(most);
        for (place, packet) in out.iter_mut().zip(self.ready.drain(..count)) {
            *place = packet;
        }
        self.left.store(left - count as u64, Ordering::Relaxed);
        count
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        let given = packets.iter_mut().filter(|packet| !packet.is_none());
        self.ready.extend(given.map(PacketDesc::take));
    }

    fn free_buffers(&self) -> usize {
        RX_BUFS - (self.buffers - self.ready.len())
    }

    fn stats(&self) -> NicStats {
        NicStats::default()
    }
}
