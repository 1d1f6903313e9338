//! A receive queue whose packets lie in memory that only the GPU can read.
//!
//! The NIC writes packets to the GPU; the CPU, which decides, needs their headers. For each burst
//! one kernel brings the first 64 bytes of every packet to pinned memory, and the burst is handed
//! out when they are there. Up to [`BURSTS`] bursts are on their way at once, so that the time of
//! one gather is paid once and not per burst. From then on everything is as with packets that the
//! CPU can read: the same check, the same reassembly, and a reorder by address and slot.
#![allow(unsafe_code)] // launches, and slices of pinned memory; each block says why it may be done

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::slice;
use std::sync::{Arc, OnceLock};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::NicStats;
use tensorwire_core::limits::{HEADER_BYTES, MAX_POLL};
use tensorwire_core::memory::{DevicePackets, MemoryKind};
use tensorwire_core::port::{PacketMemory, RxQueue};
use tensorwire_core::time::Nanos;

use crate::abi::{GatherParams, Packets};
use crate::device::Gpu;
use crate::error::CudaError;
use crate::kernels::{Function, Kernels, Shape};
use crate::memory::{Region, RegionError};
use crate::reorder::Locate;
use crate::stream::{Events, Stream};

/// Bytes of a header, as the kernel takes them.
const HEADER: u32 = 64;
const _: () = assert!(HEADER as usize == HEADER_BYTES);

/// Bursts whose headers are on their way.
pub const BURSTS: usize = 4;

/// Where the GPU finds packets that only it can read.
#[derive(Clone, Copy, Debug)]
pub struct OnDevice<D>(pub D);

impl<D: DevicePackets> Locate for OnDevice<D> {
    #[inline]
    fn frame(&self, packet: &PacketDesc, _: &[u8]) -> Option<(u64, usize)> {
        let address = self.0.address(packet)?;
        Some((address, usize::try_from(packet.len()).unwrap_or(usize::MAX)))
    }
}

/// What brings headers, burst by burst. A test has its own.
pub trait Gather {
    /// The list of a burst: addresses of up to [`MAX_POLL`] packets.
    fn list(&mut self, burst: usize) -> &mut [u64];

    /// Brings the headers of the first `count` packets of the list.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when that cannot be enqueued.
    fn submit(&mut self, burst: usize, count: usize) -> Result<(), CudaError>;

    /// Whether they are there.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when bringing them failed.
    fn done(&mut self, burst: usize) -> Result<bool, CudaError>;

    /// The headers of a burst that is done, [`HEADER_BYTES`] bytes each.
    fn headers(&self, burst: usize) -> &[u8];
}

impl<G: Gather + ?Sized> Gather for Box<G> {
    fn list(&mut self, burst: usize) -> &mut [u64] {
        (**self).list(burst)
    }

    fn submit(&mut self, burst: usize, count: usize) -> Result<(), CudaError> {
        (**self).submit(burst, count)
    }

    fn done(&mut self, burst: usize) -> Result<bool, CudaError> {
        (**self).done(burst)
    }

    fn headers(&self, burst: usize) -> &[u8] {
        (**self).headers(burst)
    }
}

/// The kernel that gathers headers, on a stream of its own.
#[derive(Debug)]
pub struct StreamGather {
    // Dropped first: the stream waits for what uses the rest.
    stream: Stream,
    function: Function,
    events: Events,
    lists: Region,
    headers: Region,
}

impl StreamGather {
    /// A stream that gathers.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when something of it cannot be had.
    pub fn new(kernels: &Kernels, gpu: &Gpu) -> Result<Self, RegionError> {
        let lists = BURSTS * MAX_POLL * size_of::<u64>();
        let mut gather = Self {
            stream: Stream::new(gpu)?,
            function: kernels.function("tw_gather_headers")?,
            events: Events::new(gpu, BURSTS, false)?,
            lists: Region::new(gpu, MemoryKind::HostPinned, lists)?,
            headers: Region::new(gpu, MemoryKind::HostPinned, BURSTS * MAX_POLL * HEADER_BYTES)?,
        };
        // CUDA loads a kernel at its first launch, which takes time and memory: now, of no packet.
        gather.submit(0, 0)?;
        gather.stream.synchronize()?;
        Ok(gather)
    }
}

impl Gather for StreamGather {
    fn list(&mut self, burst: usize) -> &mut [u64] {
        let Some(base) = self.lists.host().filter(|_| burst < BURSTS) else { return &mut [] };
        // SAFETY: the region has `BURSTS` lists of `MAX_POLL` entries, and this is one of them.
        let first = unsafe { base.cast::<u64>().add(burst * MAX_POLL) };
        // SAFETY: zeroed when it was made; `&mut self` is the only way to it on the CPU, and the
        // queue writes to it only while no gather reads it.
        unsafe { slice::from_raw_parts_mut(first.as_ptr(), MAX_POLL) }
    }

    fn submit(&mut self, burst: usize, count: usize) -> Result<(), CudaError> {
        const NO_BURST: CudaError = CudaError { call: "burst of headers", code: 1 };
        let event = self.events.get(burst).filter(|_| count <= MAX_POLL).ok_or(NO_BURST)?;
        let count = u32::try_from(count).map_err(|_| NO_BURST)?;
        let _entered = self.stream.gpu().enter()?;
        let (list, out) = (burst * MAX_POLL * size_of::<u64>(), burst * MAX_POLL * HEADER_BYTES);
        let params = GatherParams {
            packets: Packets {
                addresses: self.lists.device_address() + list as u64,
                count,
                ..Packets::default()
            },
            out: self.headers.device_address() + out as u64,
            header_bytes: HEADER,
            padding: 0,
        };
        let shape = Shape::gather(count.max(1), HEADER);
        // SAFETY: `params` is what this kernel takes; list and headers of the burst are this
        // stage's and are not touched until the event, and the addresses are of whole buffers of
        // the NIC, whose tokens the queue keeps.
        unsafe { self.function.launch(&self.stream, shape, &params, false)? };
        event.record(&self.stream)
    }

    fn done(&mut self, burst: usize) -> Result<bool, CudaError> {
        self.events.get(burst).map_or(Ok(true), crate::stream::Event::done)
    }

    fn headers(&self, burst: usize) -> &[u8] {
        let Some(base) = self.headers.host().filter(|_| burst < BURSTS) else { return &[] };
        let bytes = MAX_POLL * HEADER_BYTES;
        // SAFETY: the region has `BURSTS` times that many bytes, and this is one of them.
        let first = unsafe { base.add(burst * bytes) };
        // SAFETY: zeroed when it was made; the gather that wrote to it is done, as the caller has
        // asked, and the next one is submitted through `&mut self`.
        unsafe { slice::from_raw_parts(first.as_ptr(), bytes) }
    }
}

/// A burst on its way.
#[derive(Debug)]
struct Burst {
    packets: [PacketDesc; MAX_POLL],
    count: usize,
    /// Of these the first so many were handed out.
    handed: usize,
    /// Its headers are there.
    here: bool,
}

/// The header of the packet in each buffer.
struct Headers(Box<[UnsafeCell<[u8; HEADER_BYTES]>]>);

// SAFETY: a header is written by the queue while the queue has the packet, and read by who has the
// packet: numbers of packets that exist at the same time differ (`DevicePackets`). Who hands a
// packet to another thread hands on what was written before.
unsafe impl Sync for Headers {}

impl Headers {
    fn new(buffers: usize) -> Self {
        Self((0..buffers).map(|_| UnsafeCell::new([0; HEADER_BYTES])).collect())
    }

    /// That of a packet, as long as somebody has it; nothing for a number that there is not.
    #[inline]
    fn of<'a>(&'a self, packet: &'a PacketDesc, number: Option<usize>) -> &'a [u8] {
        let len = usize::try_from(packet.len()).unwrap_or(usize::MAX).min(HEADER_BYTES);
        let Some(place) = number.and_then(|number| self.0.get(number)) else { return &[] };
        // SAFETY: the caller has the packet for as long as the slice lives, so the queue has not,
        // and writes elsewhere.
        let header: &[u8; HEADER_BYTES] = unsafe { &*place.get() };
        header.get(..len).unwrap_or(header)
    }

    /// Notes that of a packet that the queue has.
    ///
    /// # Safety
    ///
    /// The queue has that packet, and `number` is its number.
    unsafe fn put(&self, number: usize, header: &[u8; HEADER_BYTES]) {
        let Some(place) = self.0.get(number) else { return };
        // SAFETY: the caller has the packet, and so nobody reads its header.
        unsafe { *place.get() = *header };
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} headers", self.0.len())
    }
}

/// Packets on a GPU as the CPU sees them: their headers, for who reads them without the queue.
#[derive(Clone, Debug)]
pub struct GatheredPackets<D> {
    packets: D,
    headers: Arc<Headers>,
}

impl<D: DevicePackets + PacketMemory> PacketMemory for GatheredPackets<D> {
    /// The header, or the frame where that is shorter.
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.headers.of(packet, self.packets.number(packet))
    }

    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        self.packets.arrived(packet)
    }
}

/// The error that ended a gather, for who does not have the queue: none of its packets has a header
/// from then on.
#[derive(Clone, Debug, Default)]
pub struct GatherFault(Arc<OnceLock<CudaError>>);

impl GatherFault {
    /// The error, once there was one.
    #[must_use]
    pub fn get(&self) -> Option<CudaError> {
        self.0.get().copied()
    }

    /// Notes an error; the first counts.
    fn set(&self, error: CudaError) {
        let _ = self.0.set(error);
    }
}

/// A receive queue of packets on a GPU, with their headers. Packets that it has not handed out are
/// given back to the NIC when it goes.
#[derive(Debug)]
pub struct GatheredRx<Q: RxQueue, D: DevicePackets, G: Gather> {
    inner: Q,
    packets: D,
    gather: G,
    bursts: Vec<Burst>,
    /// The bursts that are on their way, oldest first, and those that are not.
    pending: VecDeque<usize>,
    idle: Vec<usize>,
    headers: Arc<Headers>,
    fault: GatherFault,
}

impl<Q: RxQueue, D: DevicePackets, G: Gather> GatheredRx<Q, D, G> {
    /// Puts the gather around the queue of a NIC.
    pub fn new(inner: Q, packets: D, gather: G) -> Self {
        let burst = || Burst {
            packets: [const { PacketDesc::EMPTY }; MAX_POLL],
            count: 0,
            handed: 0,
            here: false,
        };
        Self {
            headers: Arc::new(Headers::new(packets.buffers())),
            inner,
            packets,
            gather,
            bursts: (0..BURSTS).map(|_| burst()).collect(),
            pending: VecDeque::with_capacity(BURSTS),
            idle: (0..BURSTS).collect(),
            fault: GatherFault::default(),
        }
    }

    /// Its packets, for those who read them without having the queue.
    pub fn view(&self) -> GatheredPackets<D>
    where
        D: Clone,
    {
        GatheredPackets { packets: self.packets.clone(), headers: Arc::clone(&self.headers) }
    }

    /// The NIC's queue.
    pub const fn inner(&self) -> &Q {
        &self.inner
    }

    /// The error of CUDA that ended it. Packets that came after it have no header, and so belong to
    /// no flow.
    #[must_use]
    pub fn failed(&self) -> Option<CudaError> {
        self.fault.get()
    }

    /// The same, for who looks at it while another has the queue.
    #[must_use]
    pub fn fault(&self) -> GatherFault {
        self.fault.clone()
    }

    /// Takes packets from the NIC and sends for their headers.
    fn fetch(&mut self) {
        let Some(at) = self.idle.pop() else { return };
        let burst = &mut self.bursts[at];
        burst.count = self.inner.rx_burst(&mut burst.packets);
        let count = burst.count;
        if count == 0 {
            self.idle.push(at);
            return;
        }
        (burst.handed, burst.here) = (0, false);
        let list = self.gather.list(at);
        // All of them, unless the NIC has handed over what is another's, which has no address and
        // gets no header.
        let addresses = burst.packets[..count].iter().filter_map(|p| self.packets.address(p));
        let mut listed = 0;
        for (place, address) in list.iter_mut().zip(addresses) {
            *place = address;
            listed += 1;
        }
        if self.failed().is_none()
            && listed > 0
            && let Err(error) = self.gather.submit(at, listed)
        {
            self.fault.set(error);
        }
        self.pending.push_back(at);
    }

    /// Looks whether the headers of the oldest burst are there, and puts them where
    /// [`PacketMemory::bytes`] finds them.
    fn arrive(&mut self) -> Option<usize> {
        let at = *self.pending.front()?;
        if !self.bursts[at].here {
            let done = match self.failed() {
                Some(_) => true,
                None => self.gather.done(at).unwrap_or_else(|error| {
                    self.fault.set(error);
                    true
                }),
            };
            if !done {
                return None;
            }
            let failed = self.failed().is_some();
            let burst = &mut self.bursts[at];
            burst.here = true;
            let (headers, _) = self.gather.headers(at).as_chunks::<HEADER_BYTES>();
            let listed = burst.packets[..burst.count].iter();
            let listed = listed.filter(|packet| self.packets.address(packet).is_some());
            for (packet, header) in listed.zip(headers) {
                let header = if failed { &[0; HEADER_BYTES] } else { header };
                if let Some(number) = self.packets.number(packet) {
                    // SAFETY: the packet has not been handed out yet.
                    unsafe { self.headers.put(number, header) };
                }
            }
        }
        Some(at)
    }

    /// Hands out the oldest burst, or a part of it.
    fn hand_out(&mut self, at: usize, out: &mut [PacketDesc]) -> usize {
        let burst = &mut self.bursts[at];
        let from = burst.packets[burst.handed..burst.count].iter_mut();
        let mut moved = 0;
        for (place, packet) in out.iter_mut().zip(from) {
            *place = packet.take();
            moved += 1;
        }
        burst.handed += moved;
        if burst.handed == burst.count {
            self.pending.pop_front();
            self.idle.push(at);
        }
        moved
    }
}

impl<Q: RxQueue, D: DevicePackets, G: Gather> PacketMemory for GatheredRx<Q, D, G> {
    /// The header, or the frame where that is shorter.
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.headers.of(packet, self.packets.number(packet))
    }

    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        self.inner.arrived(packet)
    }
}

impl<Q: RxQueue, D: DevicePackets, G: Gather> RxQueue for GatheredRx<Q, D, G> {
    /// As the trait has it. When there is nothing to hand out and headers are on their way, these
    /// are waited for, which takes some microseconds: who gets no packet may be sure that there was
    /// none. The next burst is sent for before one is handed out, so that its headers come while
    /// that one is worked on.
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        self.fetch();
        let mut total = 0;
        while total < out.len() {
            match self.arrive() {
                Some(at) => {
                    total += self.hand_out(at, &mut out[total..]);
                    self.fetch();
                }
                None if total == 0 && !self.pending.is_empty() => std::hint::spin_loop(),
                None => break,
            }
        }
        total
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

    /// As the trait has it: as long as headers are on their way, packets wait where nobody looks.
    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        if self.pending.is_empty() { self.inner.caught_up(now) } else { None }
    }
}

impl<Q: RxQueue, D: DevicePackets, G: Gather> Drop for GatheredRx<Q, D, G> {
    fn drop(&mut self) {
        while let Some(at) = self.pending.pop_front() {
            // A buffer that the GPU reads is not given back. After an error it reads nothing.
            let here = self.bursts[at].here;
            while !here && self.failed().is_none() {
                match self.gather.done(at) {
                    Ok(true) => break,
                    Ok(false) => std::hint::spin_loop(),
                    Err(error) => self.fault.set(error),
                }
            }
            let burst = &mut self.bursts[at];
            self.inner.release(&mut burst.packets[burst.handed..burst.count]);
        }
    }
}

#[cfg(test)]
mod tests;
