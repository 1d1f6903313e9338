//! A NIC in software: what is sent on one end is received on the other, through real descriptor
//! rings and buffer pools of the sizes a configuration asks for.
//!
//! The two ends may live on two threads, or be stepped by one. [`SwTx`] does the NIC's work as
//! well: it takes a free receive buffer for each frame, writes the frame there, and puts its
//! descriptor on the receive ring, which [`SwRx`] polls. That copy is the "wire", and like a real
//! NIC's it goes past the caches, in whole lines ([`Landing`]); from there on nothing is copied. A
//! frame that lies in memory ([`TxQueue::send_from`]) is copied this once. One that a `fill` makes
//! ([`TxQueue::send`]) is copied a second time, out of a transmit buffer: a `fill` writes with
//! ordinary stores, and straight into the receive buffer these cost three times as much where the
//! two threads are on cores that share no cache, since every line would be fetched from the core
//! that read it before.
//!
//! Descriptors go on the ring in groups, after one fence for all frames of the group, and by the
//! thread that wrote them: flush a queue before another thread takes it over. Until then it is full
//! there, and what was not flushed waits for its own thread.
//!
//! Free receive buffers come back by a second ring and are kept in a stack: the buffer that was
//! given back last, which is still in the cache, is written to next. However large the pool, only
//! as many of its buffers are touched as the receiver is behind. Where a device reads the buffers
//! ([`SwNic::new_in`]) they are kept in a queue instead, as in the pools of real NICs: packets that
//! arrive together then lie together, however long the NIC runs, and can be copied in bulk. A stack
//! from which batches are taken while others come back would soon be in pieces.
//!
//! Balance, once the sender has flushed and the receiver has polled to the end:
//! `sent = delivered + missed + errors`. Faults are a wrapper, [`crate::wire::Faulty`], which works
//! on any transmit queue.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::counters::{NicStats, TxStats};
use tensorwire_core::flow::FlowTable;
use tensorwire_core::header::{self, Verify};
use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_core::memory::HostMemory;
use tensorwire_core::port::{PacketMemory, RxQueue, SendError, TxQueue};
use tensorwire_core::ring::{Receiver, Ring, Sender};

use crate::pool::{Arriving, FreeBuf, LANDING, Landing, MemoryError, PacketPool, PacketView};

/// The largest receive ring, in descriptors.
pub const MAX_RX_RING: usize = 16_384;

/// The largest receive pool, in buffers.
pub const MAX_RX_BUFS: usize = 65_536;

/// Descriptors and free buffers cross between the threads in groups of up to this many.
const GROUP: usize = 32;

/// The fewest frames that share a fence before they go on the ring without a flush.
const GROUP_MIN: usize = 8;

/// Such a group is at most one of so many of the ring, where that is more than the fewest: a
/// receiver is not to wait for a flush while most of a short ring is staged.
const GROUPS: usize = 8;

/// What happens when the receiver cannot take a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMode {
    /// The sender waits, as with link-level flow control: no frame is ever lost.
    #[default]
    Lossless,
    /// The frame is lost and counted, as on a wire.
    Wire,
}

/// What happens to a frame that is longer than a receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversize {
    /// It is received with its true length and as many of its bytes as fit: the receiver tells
    /// trailers and tags from frames of its geometry itself, and counts them.
    #[default]
    Cut,
    /// It is dropped by the NIC and counted under `errors`.
    Error,
}

/// What a software NIC is made of.
#[derive(Clone, Debug)]
pub struct SwNicConfig {
    /// Receive buffers, 1 to [`MAX_RX_BUFS`].
    pub rx_bufs: usize,
    /// Bytes of a receive buffer.
    pub rx_buf_size: usize,
    /// Receive descriptors, 1 to [`MAX_RX_RING`]: frames that wait to be polled.
    pub rx_ring: usize,
    /// Transmit buffers. The wire is done with a frame as soon as it was written, so this only
    /// bounds what [`TxQueue::room`] offers.
    pub tx_bufs: usize,
    /// The longest frame that can be sent, in bytes.
    pub tx_buf_size: usize,
    /// Transmit descriptors; bounds what [`TxQueue::room`] offers.
    pub tx_ring: usize,
    /// What happens when the receiver cannot take a frame.
    pub mode: TxMode,
    /// What happens to a frame that is longer than a receive buffer.
    pub oversize: Oversize,
    /// The source address that the NIC writes into each frame (offload `tx_eth_src`).
    pub tx_eth_src: Option<[u8; 6]>,
    /// The flows that the NIC steers by. A frame of one of them is tagged with it; any other frame
    /// is received untagged, so that software sees and counts it. `None`: no frame is tagged.
    pub flows: Option<FlowTable>,
}

impl SwNicConfig {
    /// Checks the numbers, without taking any memory.
    ///
    /// # Errors
    ///
    /// [`NicError::OutOfRange`], the first that is 0 or above its limit.
    pub fn check(&self) -> Result<(), NicError> {
        let bounded = [
            ("rx_bufs", self.rx_bufs, MAX_RX_BUFS),
            ("rx_buf_size", self.rx_buf_size, u32::MAX as usize),
            ("rx_ring", self.rx_ring, MAX_RX_RING),
            ("tx_bufs", self.tx_bufs, usize::MAX),
            ("tx_buf_size", self.tx_buf_size, u32::MAX as usize),
            ("tx_ring", self.tx_ring, usize::MAX),
        ];
        match bounded.into_iter().find(|(_, given, max)| *given == 0 || given > max) {
            Some((what, given, max)) => Err(NicError::OutOfRange { what, given, max }),
            None => Ok(()),
        }
    }
}

/// Why a software NIC could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NicError {
    /// A number is 0 or above its limit.
    OutOfRange {
        /// The field of [`SwNicConfig`].
        what: &'static str,
        /// What was asked for.
        given: usize,
        /// The largest number allowed.
        max: usize,
    },
    /// The memory for the packets could not be had.
    Memory(MemoryError),
}

impl fmt::Display for NicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { what, given, max } => {
                write!(f, "software NIC: {what} is {given}, allowed 1 to {max}")
            }
            Self::Memory(_) => f.write_str("software NIC: no packet memory"),
        }
    }
}

impl std::error::Error for NicError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OutOfRange { .. } => None,
            Self::Memory(error) => Some(error),
        }
    }
}

/// What the sending end counts. One thread writes, both read; each number stands for itself, so
/// Relaxed will do, and whoever has joined the other thread reads final numbers.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    sent: AtomicU64,
    missed: AtomicU64,
    errors: AtomicU64,
    no_buffer: AtomicU64,
}

impl Shared {
    /// Adds one to a counter that only the calling thread writes: no locked instruction is needed.
    #[inline]
    fn bump(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn nic(&self) -> NicStats {
        NicStats {
            missed: self.missed.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            no_buffer: self.no_buffer.load(Ordering::Relaxed),
        }
    }
}

/// Which of the free receive buffers is taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    /// The one that came back last.
    Newest,
    /// The one that came back first.
    Oldest,
}

/// What the sending end owns between splits.
#[derive(Debug)]
#[repr(align(128))]
struct TxSide {
    /// Free receive buffers, in the order in which they came back.
    free: VecDeque<FreeBuf>,
    /// Which of them is taken next.
    reuse: Reuse,
    /// Frames that are sent and not received yet, in their receive buffers.
    stage: Landing,
    /// The transmit buffer.
    frame: Vec<u8>,
}

impl TxSide {
    fn new(free: Vec<FreeBuf>, reuse: Reuse, frame_bytes: usize, stage: Landing) -> Self {
        // The last of the list is buffer 0, which is taken first.
        let free = match reuse {
            Reuse::Newest => free.into(),
            Reuse::Oldest => free.into_iter().rev().collect(),
        };
        Self { free, reuse, stage, frame: vec![0; frame_bytes] }
    }

    /// A free buffer.
    #[inline]
    fn take(&mut self) -> Option<FreeBuf> {
        match self.reuse {
            Reuse::Newest => self.free.pop_back(),
            Reuse::Oldest => self.free.pop_front(),
        }
    }
}

/// What the receiving end owns between splits.
#[derive(Debug, Default)]
#[repr(align(128))]
struct RxSide {
    /// Packets that the application has.
    with_app: usize,
    delivered: u64,
    foreign: u64,
}

/// A NIC in software, with one transmit and one receive queue.
#[derive(Debug)]
pub struct SwNic {
    config: SwNicConfig,
    pool: Arc<PacketPool>,
    received: Box<Ring<PacketDesc, MAX_RX_RING>>,
    returned: Box<Ring<FreeBuf, MAX_RX_BUFS>>,
    tx: TxSide,
    rx: RxSide,
    shared: Shared,
}

impl SwNic {
    /// Makes the NIC: all memory it will ever use is allocated and touched here.
    ///
    /// # Errors
    ///
    /// [`NicError`] when a number of the configuration is out of its range, or when the memory
    /// cannot be had.
    pub fn new(config: SwNicConfig) -> Result<Self, NicError> {
        config.check()?;
        let pool = PacketPool::new(config.rx_bufs, config.rx_buf_size);
        Ok(Self::over(config, pool.map_err(NicError::Memory)?, Reuse::Newest))
    }

    /// The same, with receive buffers in memory of a driver, which a device reads:
    /// [`PacketPool::bytes_needed`] of it.
    ///
    /// # Errors
    ///
    /// As [`SwNic::new`], and when the memory is too short.
    pub fn new_in(config: SwNicConfig, memory: Box<dyn HostMemory>) -> Result<Self, NicError> {
        config.check()?;
        let pool = PacketPool::new_in(config.rx_bufs, config.rx_buf_size, memory);
        Ok(Self::over(config, pool.map_err(NicError::Memory)?, Reuse::Oldest))
    }

    fn over(config: SwNicConfig, (pool, free): (PacketPool, Vec<FreeBuf>), reuse: Reuse) -> Self {
        let pool = Arc::new(pool);
        let tx = TxSide::new(free, reuse, config.tx_buf_size, Landing::new(Arc::clone(&pool)));
        Self {
            config,
            pool,
            received: Box::new(Ring::new()),
            returned: Box::new(Ring::new()),
            tx,
            rx: RxSide::default(),
            shared: Shared::default(),
        }
    }

    /// The packet memory, for those who read packets without having the queue.
    #[must_use]
    pub fn packets(&self) -> PacketView {
        PacketView::new(Arc::clone(&self.pool))
    }

    /// Lends the two ends, one to each of two threads or both to one. May be called again when
    /// both ends are gone; frames that were not polled are still there.
    pub fn split(&mut self) -> (SwTx<'_>, SwRx<'_>) {
        let checked = "the capacities were checked when the NIC was made and never change";
        let (received, input) = self.received.split(self.config.rx_ring).expect(checked);
        let (back, returned) = self.returned.split(self.config.rx_bufs).expect(checked);
        let Self { config, pool, tx, rx, shared, .. } = self;
        let (pool, shared) = (&**pool, &*shared);
        (
            SwTx { config, pool, shared, side: tx, received, returned, credit: 0 },
            SwRx { pool, shared, side: rx, input, back },
        )
    }
}

/// The sending end of a [`SwNic`], and the wire to the receiving one.
#[derive(Debug)]
pub struct SwTx<'n> {
    config: &'n SwNicConfig,
    pool: &'n PacketPool,
    shared: &'n Shared,
    side: &'n mut TxSide,
    received: Sender<'n, PacketDesc, MAX_RX_RING>,
    returned: Receiver<'n, FreeBuf, MAX_RX_BUFS>,
    /// Receive descriptors known to be free, besides those of staged frames.
    credit: usize,
}

impl SwTx<'_> {
    /// What the receiving side of the NIC counted.
    #[must_use]
    pub fn nic_stats(&self) -> NicStats {
        self.shared.nic()
    }

    /// How many receive buffers the wire has: neither on a ring nor with the application.
    #[must_use]
    pub fn free_buffers(&self) -> usize {
        self.side.free.len()
    }

    /// How many received frames wait for a flush to be put on the receive ring.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.side.stage.len()
    }

    /// Puts the staged frames on the ring.
    fn publish(&mut self) {
        let mut packets = [const { PacketDesc::EMPTY }; LANDING];
        let count = self.side.stage.publish(&mut packets);
        if count > 0 {
            let pushed = self.received.push_batch(&mut packets[..count]);
            // There is a free descriptor for each staged frame: that is what `credit` counts.
            debug_assert_eq!(pushed, count);
        }
    }

    /// Takes back the buffers that the application has released since.
    fn collect(&mut self) {
        let mut group = [const { FreeBuf::NONE }; GROUP];
        loop {
            let n = self.returned.pop_batch(&mut group);
            // Never more than the pool has, for which there is room.
            self.side.free.extend(group[..n].iter_mut().map(mem::take));
            if n < GROUP {
                return;
            }
        }
    }

    /// Counts the free descriptors again.
    fn refresh(&mut self) {
        self.publish();
        self.credit = self.received.free().saturating_sub(self.side.stage.len());
    }

    /// What becomes of a frame of `len` bytes that is sent now; nothing is moved yet.
    ///
    /// # Errors
    ///
    /// [`SendError`] when it is not sent.
    #[inline]
    fn judge(&mut self, len: usize) -> Result<Fate, SendError> {
        if len > self.config.tx_buf_size {
            return Err(SendError::TooLong { len, room: self.config.tx_buf_size });
        }
        let mut staging = self.side.stage.has_room();
        if self.credit == 0 || !staging {
            self.refresh();
            staging = self.side.stage.has_room();
        }
        if self.side.free.is_empty() {
            self.collect();
        }
        if len > self.pool.frame_bytes() && self.config.oversize == Oversize::Error {
            return Ok(Fate::Error);
        }
        if self.credit > 0 && !self.side.free.is_empty() && staging {
            return Ok(Fate::Arrives);
        }
        match self.config.mode {
            TxMode::Lossless => Err(SendError::Full),
            TxMode::Wire => Ok(Fate::Missed),
        }
    }

    /// A frame is sent, and what was judged comes true. Until here nothing was moved, so a `fill`
    /// or a `patch` that panics loses no buffer.
    #[inline]
    fn accept(&mut self, fate: Fate, front: &mut Front, rest: &[u8], len: usize) {
        match fate {
            Fate::Arrives => self.stage(front, rest, len),
            Fate::Error => Shared::bump(&self.shared.errors),
            Fate::Missed => {
                // Without a buffer for it, a descriptor is none: it counts as missed either way.
                if self.side.free.is_empty() {
                    Shared::bump(&self.shared.no_buffer);
                }
                Shared::bump(&self.shared.missed);
            }
        }
        Shared::bump(&self.shared.sent);
    }

    /// The NIC's own work on a frame, of which it needs the front: it writes the source address and
    /// steers. Returns the tag.
    #[inline]
    fn offload(config: &SwNicConfig, front: &mut [u8]) -> u32 {
        if let Some(mac) = &config.tx_eth_src
            && let Some(place) = front.get_mut(6..12)
        {
            place.copy_from_slice(mac);
        }
        let Some(flows) = &config.flows else { return 0 };
        let header = header::classify(front, front.len(), Verify::None);
        let flow = header.ok().and_then(|header| flows.matches(&header));
        flow.and_then(|id| id.checked_add(1)).unwrap_or(0)
    }

    /// The frame gets a receive buffer and is written there.
    #[inline]
    fn stage(&mut self, front: &mut Front, rest: &[u8], len: usize) {
        let Some(buf) = self.side.take() else { return };
        let flow = Self::offload(self.config, &mut front.0[..len.min(HEADER_BYTES)]);
        // No frame is longer than 32 bits can say: a transmit buffer is not.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        match self.side.stage.write(buf, &Arriving { front: &front.0, rest, len, flow }) {
            Ok(()) => self.credit -= 1,
            // There was room for it, and a buffer on the free list is the pool's.
            Err(buf) => {
                debug_assert!(false, "a frame that was judged to arrive");
                self.side.free.push_back(buf);
            }
        }
        if self.side.stage.len() >= (self.config.rx_ring / GROUPS).clamp(GROUP_MIN, LANDING) {
            self.publish();
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It gets a receive buffer.
    Arrives,
    /// It is longer than one, and the NIC drops it.
    Error,
    /// The receiver does not keep up.
    Missed,
}

/// A copy of the front of a frame, zeros behind it: the line that is changed on the way.
#[repr(align(64))]
struct Front([u8; HEADER_BYTES]);

impl Front {
    /// The front of `frame`, and what lies behind.
    #[inline]
    fn of(frame: &[u8]) -> (Self, &[u8]) {
        match frame.split_first_chunk::<HEADER_BYTES>() {
            Some((front, rest)) => (Self(*front), rest),
            None => {
                let mut front = Self([0; HEADER_BYTES]);
                front.0[..frame.len()].copy_from_slice(frame);
                (front, &[])
            }
        }
    }
}

impl TxQueue for SwTx<'_> {
    fn room(&mut self) -> usize {
        let queue = self.config.tx_ring.min(self.config.tx_bufs);
        if self.config.mode == TxMode::Wire {
            return queue;
        }
        self.collect();
        self.refresh();
        if !self.side.stage.has_room() {
            return 0;
        }
        queue.min(self.credit).min(self.side.free.len())
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let fate = self.judge(len)?;
        // As long as the longest frame that is judged.
        fill(&mut self.side.frame[..len]);
        // Taken out for as long as it is read; there is no panic before it is put back.
        let frame = mem::take(&mut self.side.frame);
        let (mut front, rest) = Front::of(&frame[..len]);
        self.accept(fate, &mut front, rest, len);
        self.side.frame = frame;
        Ok(())
    }

    #[inline]
    fn send_from(&mut self, frame: &[u8], patch: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let fate = self.judge(frame.len())?;
        let (mut front, rest) = Front::of(frame);
        patch(&mut front.0[..frame.len().min(HEADER_BYTES)]);
        self.accept(fate, &mut front, rest, frame.len());
        Ok(())
    }

    fn flush(&mut self) {
        self.publish();
        self.collect();
    }

    fn finish(&mut self) -> bool {
        self.flush();
        true
    }

    fn stats(&self) -> TxStats {
        TxStats { sent: self.shared.sent.load(Ordering::Relaxed), ..TxStats::default() }
    }
}

/// The receiving end of a [`SwNic`].
#[derive(Debug)]
pub struct SwRx<'n> {
    pool: &'n PacketPool,
    shared: &'n Shared,
    side: &'n mut RxSide,
    input: Receiver<'n, PacketDesc, MAX_RX_RING>,
    back: Sender<'n, FreeBuf, MAX_RX_BUFS>,
}

impl SwRx<'_> {
    /// Frames handed to the application since the NIC was made.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.side.delivered
    }

    /// Frames on the receive ring that were not polled yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.input.len()
    }

    /// Packets of another pool or driver that were given to `release`, which left them in place.
    /// 0 unless the program has a bug.
    #[must_use]
    pub const fn foreign(&self) -> u64 {
        self.side.foreign
    }

    /// What the sending side counted.
    #[must_use]
    pub fn tx_sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }
}

impl PacketMemory for SwRx<'_> {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.pool.bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        self.pool.prefetch(packet);
    }
}

impl RxQueue for SwRx<'_> {
    #[inline]
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let n = self.input.pop_batch(out);
        self.side.with_app += n;
        self.side.delivered += n as u64;
        n
    }

    /// As the trait has it. A packet of another pool or driver stays in its place and is counted
    /// ([`SwRx::foreign`]).
    fn release(&mut self, packets: &mut [PacketDesc]) {
        for group in packets.chunks_mut(GROUP) {
            let mut bufs = [const { FreeBuf::NONE }; GROUP];
            let mut n = 0;
            for packet in group.iter_mut().filter(|packet| !packet.is_none()) {
                match self.pool.reclaim(packet.take()) {
                    Ok(buf) => {
                        bufs[n] = buf;
                        n += 1;
                    }
                    Err(foreign) => {
                        *packet = foreign;
                        self.side.foreign += 1;
                    }
                }
            }
            let pushed = self.back.push_batch(&mut bufs[..n]);
            // The ring has a place for every buffer of the pool.
            debug_assert_eq!(pushed, n);
            self.side.with_app -= pushed;
        }
    }

    #[inline]
    fn free_buffers(&self) -> usize {
        self.pool.buffers() - self.side.with_app
    }

    fn stats(&self) -> NicStats {
        self.shared.nic()
    }
}

#[cfg(test)]
mod tests;
