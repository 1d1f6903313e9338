//! Who may touch a buffer, said in types.
//!
//! Two kinds of token live here. [`PacketDesc`] is the right to one packet buffer of a NIC;
//! [`Burst`] is the right to one output buffer, the one that a batch is built in. Neither can be
//! copied or cloned, so a buffer that was given back cannot be used again and cannot be given back
//! twice: such a program does not compile. Neither has a `Drop` either: a token that is lost is a
//! bug that the conservation check (`free + filling + ready + in flight + retained = all`) shows,
//! and a `Drop` that recycled it would hide it.
//!
//! A batch buffer goes `Free → Filling → Ready → InFlight → Retained → Free`.
#![allow(unsafe_code)] // the two promises that only a driver can make; see the `unsafe fn`s

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::limits::MAX_BATCH_BUFFERS;

/// The right to one packet buffer that a NIC filled.
///
/// 16 bytes, so that a burst of 64 is 1 KiB. The handle is the driver's own (an mbuf address, an
/// index); the core never looks into it. The flow is what the NIC's steering said about the frame:
/// a flow id of the configuration plus one, or 0 where the NIC did not classify it and the match
/// runs in software.
#[must_use = "a packet buffer that is not released is lost to the NIC"]
#[derive(PartialEq, Eq)]
pub struct PacketDesc {
    handle: u64,
    len: u32,
    flow: u32,
}

impl PacketDesc {
    /// No packet. Bursts are handed over in arrays of these; a driver fills them and a release
    /// leaves them behind.
    pub const EMPTY: Self = Self { handle: u64::MAX, len: 0, flow: 0 };

    /// States that the caller holds the buffer `handle` with a frame of `len` bytes in it.
    ///
    /// # Safety
    ///
    /// Until this token comes back through the driver's release, no other token for the same
    /// buffer exists and nothing writes to it: memory access through the token relies on it.
    pub const unsafe fn claim(handle: u64, len: u32, flow: u32) -> Self {
        Self { handle, len, flow }
    }

    /// A token without a buffer behind it, for the tests of this crate.
    #[cfg(test)]
    pub(crate) const fn fake(handle: u64, len: u32, flow: u32) -> Self {
        Self { handle, len, flow }
    }

    /// The driver's own name for the buffer.
    #[must_use]
    #[inline]
    pub const fn handle(&self) -> u64 {
        self.handle
    }

    /// Length of the frame in bytes, from the first byte of the destination address.
    #[must_use]
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "an empty frame is not an empty token")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// What the NIC's flow steering said: flow id + 1, or 0 for "not classified".
    #[must_use]
    #[inline]
    pub const fn flow(&self) -> u32 {
        self.flow
    }

    /// Whether this is [`PacketDesc::EMPTY`], the absence of a packet.
    #[must_use]
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.handle == u64::MAX
    }

    /// Moves the token out and leaves [`PacketDesc::EMPTY`].
    #[inline]
    pub const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

impl Default for PacketDesc {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for PacketDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            f.write_str("PacketDesc(none)")
        } else {
            write!(f, "PacketDesc({:#x}, {} B, flow {})", self.handle, self.len, self.flow)
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A state of a batch buffer. Sealed: the five below are all there are.
pub trait State: sealed::Sealed {
    /// The state as a value, for ledgers and messages.
    const NAME: SlotState;
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}
            impl sealed::Sealed for $name {}
            impl State for $name {
                const NAME: SlotState = SlotState::$name;
            }
        )*
        /// The state of a batch buffer as a value: the run-time twin of the type states, for the
        /// ledger, the simulator and the tests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SlotState {
            $($(#[$doc])* $name),*
        }
    };
}

states! {
    /// Nobody's: the producer may begin a batch in it.
    Free,
    /// The producer's: packets are being placed in it.
    Filling,
    /// Complete as far as the CPU is concerned: its reorder is submitted, it waits in the job ring.
    Ready,
    /// The consumer's: its inference is being enqueued.
    InFlight,
    /// Its inference is enqueued; the device may still read it.
    Retained,
}

/// The right to one batch buffer in state `S`. Neither `Copy` nor `Clone`; moves consume it.
///
/// Misuse does not compile. A free buffer is not ready:
/// ```compile_fail,E0599
/// let mut pool = tensorwire_core::burst::BurstPool::new(4).unwrap();
/// let free = pool.take().unwrap();
/// free.submit();
/// ```
/// A buffer that was handed over is gone:
/// ```compile_fail,E0382
/// let mut pool = tensorwire_core::burst::BurstPool::new(4).unwrap();
/// let free = pool.take().unwrap();
/// let filling = free.begin();
/// let again = free.begin();
/// ```
/// A token is not cloned:
/// ```compile_fail,E0599
/// let mut pool = tensorwire_core::burst::BurstPool::new(4).unwrap();
/// let free = pool.take().unwrap();
/// let twice = free.clone();
/// ```
#[must_use = "a batch buffer whose token is dropped is lost to the pool"]
pub struct Burst<S: State> {
    pool: PoolId,
    index: u16,
    state: PhantomData<S>,
}

impl<S: State> Burst<S> {
    #[inline]
    const fn turn<T: State>(self) -> Burst<T> {
        Burst { pool: self.pool, index: self.index, state: PhantomData }
    }

    /// Which buffer of its pool this is, 0-based.
    #[must_use]
    #[inline]
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// The pool that the buffer belongs to.
    #[must_use]
    #[inline]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }
}

impl<S: State> fmt::Debug for Burst<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Burst<{:?}>({}/{})", S::NAME, self.pool.0, self.index)
    }
}

impl Burst<Free> {
    /// The producer begins a batch.
    #[inline]
    pub const fn begin(self) -> Burst<Filling> {
        self.turn()
    }
}

impl Burst<Filling> {
    /// The reorder of the batch is submitted; the buffer may go to the consumer.
    #[inline]
    pub const fn seal(self) -> Burst<Ready> {
        self.turn()
    }

    /// The batch is given up (no whole image in it, or policy); nothing reads the buffer.
    #[inline]
    pub const fn abandon(self) -> Burst<Free> {
        self.turn()
    }
}

impl Burst<Ready> {
    /// The consumer is about to enqueue the inference. Done *before* the enqueue, so that a device
    /// never reads a buffer that still counts as ready.
    #[inline]
    pub const fn submit(self) -> Burst<InFlight> {
        self.turn()
    }

    /// The job is given up before any device saw the buffer.
    #[inline]
    pub const fn discard(self) -> Burst<Free> {
        self.turn()
    }
}

impl Burst<InFlight> {
    /// The enqueue succeeded: the device may read the buffer until its event is done.
    #[inline]
    pub const fn retain(self) -> Burst<Retained> {
        self.turn()
    }

    /// The enqueue failed.
    ///
    /// # Safety
    ///
    /// The caller has made sure (by synchronising the stream) that no device reads the buffer.
    #[inline]
    pub const unsafe fn abort(self) -> Burst<Free> {
        self.turn()
    }

    /// The inference stage refused the submission, see [`crate::port::Infer::submit`].
    pub(crate) const fn refused(self) -> Burst<Free> {
        // SAFETY: the contract of `Infer::submit` says that nothing reads the input once it has
        // returned an error, and the consumer calls this only then.
        unsafe { self.abort() }
    }
}

impl Burst<Retained> {
    /// The device is done with the buffer.
    ///
    /// # Safety
    ///
    /// The caller knows from the device (its event, or a finished drain) that nothing reads the
    /// buffer any more.
    #[inline]
    pub const unsafe fn complete(self) -> Burst<Free> {
        self.turn()
    }

    /// The inference stage reported the result of the last submission that reads the buffer, see
    /// [`crate::port::Infer`].
    pub(crate) const fn reported(self) -> Burst<Free> {
        // SAFETY: the contract of `Infer` says that nothing reads the input of a submission once
        // its result (or failure) was reported, and the consumer calls this only then.
        unsafe { self.complete() }
    }
}

/// Identity of a pool of batch buffers, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(u32);

/// Ids are handed out once each, so a token can name its pool beyond doubt. Relaxed: only the
/// number must be unique, nothing is published with it. Not through `crate::sync`: a static is
/// not part of any protocol that loom should explore.
static NEXT_POOL: AtomicU32 = AtomicU32::new(0);

/// The tokens of one pool of batch buffers: it mints each of them once, then keeps the free ones.
#[derive(Debug)]
pub struct BurstPool {
    id: PoolId,
    buffers: u16,
    free: heapless::Vec<Burst<Free>, MAX_BATCH_BUFFERS>,
}

/// Why a pool could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The number of buffers is 0 or above [`MAX_BATCH_BUFFERS`].
    Buffers {
        /// What was asked for.
        given: usize,
    },
    /// 2^32 pools were made in this process.
    Ids,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffers { given } => {
                write!(f, "a pool of {given} batch buffers, allowed 1 to {MAX_BATCH_BUFFERS}")
            }
            Self::Ids => f.write_str("no pool id is left in this process"),
        }
    }
}

impl core::error::Error for PoolError {}

/// A buffer that was returned to a pool it does not belong to. Carries the token back.
#[derive(Debug)]
pub struct WrongPool {
    /// The token, unharmed.
    pub burst: Burst<Free>,
    /// The pool that refused it.
    pub pool: PoolId,
}

impl fmt::Display for WrongPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "batch buffer {} belongs to pool {}, not to pool {}",
            self.burst.index, self.burst.pool.0, self.pool.0
        )
    }
}

impl core::error::Error for WrongPool {}

impl BurstPool {
    /// Mints the tokens of `buffers` batch buffers.
    ///
    /// # Errors
    ///
    /// [`PoolError`] when `buffers` is 0 or above [`MAX_BATCH_BUFFERS`].
    pub fn new(buffers: usize) -> Result<Self, PoolError> {
        let count = u16::try_from(buffers).map_err(|_| PoolError::Buffers { given: buffers })?;
        if buffers == 0 || buffers > MAX_BATCH_BUFFERS {
            return Err(PoolError::Buffers { given: buffers });
        }
        let id = NEXT_POOL
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1))
            .map_err(|_| PoolError::Ids)?;
        let id = PoolId(id);
        let mut free = heapless::Vec::new();
        // The last pushed is taken first: buffer 0 is used first, which is what a reader expects.
        for index in (0..count).rev() {
            // Cannot be refused: `count` is within the capacity.
            let _ = free.push(Burst { pool: id, index, state: PhantomData });
        }
        Ok(Self { id, buffers: count, free })
    }

    /// Identity of the pool.
    #[must_use]
    pub const fn id(&self) -> PoolId {
        self.id
    }

    /// How many buffers the pool has in all.
    #[must_use]
    pub const fn buffers(&self) -> u16 {
        self.buffers
    }

    /// How many are free here and now.
    #[must_use]
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free buffer, the one returned last first: it is the warmest in the cache.
    #[inline]
    pub fn take(&mut self) -> Option<Burst<Free>> {
        self.free.pop()
    }

    /// Takes a buffer back.
    ///
    /// # Errors
    ///
    /// [`WrongPool`] with the token when it belongs to another pool.
    #[inline]
    pub fn put(&mut self, burst: Burst<Free>) -> Result<(), WrongPool> {
        if burst.pool != self.id {
            return Err(WrongPool { burst, pool: self.id });
        }
        // Each token exists once, so there is room for every one of them.
        self.free.push(burst).map_err(|burst| WrongPool { burst, pool: self.id })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
