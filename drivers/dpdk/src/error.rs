//! What can fail, by what was tried.

use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorwire_dpdk_sys as sys;

use crate::config::ElementError;
use crate::stage::Stage;

/// A call of DPDK that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The function, as DPDK names it.
    pub call: &'static str,
    /// Its errno, positive.
    pub code: i32,
}

impl CallError {
    /// What `result` (0 or more, or a negative errno) of `call` means.
    pub(crate) const fn check(call: &'static str, result: i32) -> Result<i32, Self> {
        if result < 0 { Err(Self { call, code: result.saturating_neg() }) } else { Ok(result) }
    }

    /// Whether it says that there is no such device (any more).
    #[must_use]
    pub const fn no_device(&self) -> bool {
        self.code == libc::ENODEV
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: may be called at any time, with any number.
        let text = unsafe { sys::twd_error_text(self.code) };
        // SAFETY: it ends in a zero and stays valid until the next call on this thread, and there
        // is none before it was written.
        let text = unsafe { CStr::from_ptr(text) };
        write!(f, "{}: {} (code {})", self.call, text.to_string_lossy(), self.code)
    }
}

impl std::error::Error for CallError {}

/// Things that could not be taken down. Relaxed: a number to be read at the end.
static LEFT_STANDING: AtomicU64 = AtomicU64::new(0);

/// How many things this process could not take down: ports that do not stop, rules that a NIC
/// keeps, pools whose buffers somebody still has (their memory stays then). 0 unless something is
/// wrong. A destructor cannot return an error, and must not panic.
#[must_use]
pub fn left_standing() -> u64 {
    LEFT_STANDING.load(Ordering::Relaxed)
}

/// Counts what could not be undone.
pub(crate) fn undone(done: bool) {
    LEFT_STANDING.fetch_add((!done).into(), Ordering::Relaxed);
}

/// Why DPDK could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EalError {
    /// It was started in this process before. DPDK can be started once, whatever became of it.
    Again,
    /// No core was named.
    NoCores,
    /// An argument holds a zero byte.
    Argument(String),
    /// DPDK refuses; it says more on stderr.
    Refused {
        /// Its error.
        error: CallError,
        /// The arguments it was given.
        arguments: String,
    },
}

impl fmt::Display for EalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Again => f.write_str("DPDK was started in this process before; it can be once"),
            Self::NoCores => f.write_str("DPDK needs at least one core"),
            Self::Argument(word) => write!(f, "an argument of DPDK holds a zero byte: {word:?}"),
            Self::Refused { error, arguments } => write!(f, "{error}; it was given {arguments}"),
        }
    }
}

impl std::error::Error for EalError {}

/// Why a packet pool could not be made. Nothing of it is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// Buffers of that size cannot be.
    Element(ElementError),
    /// No buffers.
    Empty,
    /// A name that DPDK does not take.
    Name(String),
    /// The memory is too small.
    Storage {
        /// Its bytes.
        given: usize,
        /// Bytes of the pool.
        needed: usize,
    },
    /// DPDK refuses.
    Call(CallError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(error) => error.fmt(f),
            Self::Empty => f.write_str("a packet pool without buffers"),
            Self::Name(name) => write!(f, "`{name}` cannot be the name of a packet pool"),
            Self::Storage { given, needed } => {
                write!(f, "a packet pool of {needed} bytes in a region of {given}")
            }
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PoolError {}

impl From<CallError> for PoolError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<ElementError> for PoolError {
    fn from(error: ElementError) -> Self {
        Self::Element(error)
    }
}

/// Why a port could not be opened. What had been set up was taken down again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortError {
    /// The name of the device holds a zero byte.
    Name(String),
    /// Neither a receive nor a transmit queue was asked for.
    NoQueue,
    /// The watcher of the start refused to go on.
    Stopped(Stage),
    /// The buffers of the pool are too small for the device.
    Buffers {
        /// Bytes of a buffer, without headroom.
        given: usize,
        /// What the device needs.
        needed: usize,
    },
    /// Packets would lie where this CPU cannot read their headers.
    Unreadable,
    /// The device is software, which writes with this CPU, and packets would lie where that cannot
    /// write.
    Software,
    /// Headers would have to be taken off frames that do not lie in one piece before this CPU.
    Outer,
    /// A call failed.
    Call {
        /// The device.
        device: String,
        /// What was tried.
        stage: Stage,
        /// The error.
        error: CallError,
    },
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "the name of a device holds a zero byte: {name:?}"),
            Self::NoQueue => f.write_str("a port without a queue"),
            Self::Stopped(stage) => write!(f, "stopped before the stage `{stage}`"),
            Self::Buffers { given, needed } => write!(
                f,
                "packet buffers of {given} bytes, and the device receives into {needed} or more"
            ),
            Self::Unreadable => f.write_str(
                "packets would lie in memory that the CPU cannot read, and nothing brings it their \
                 headers",
            ),
            Self::Software => f.write_str(
                "the device is software, and packets would lie in memory that the CPU cannot write",
            ),
            Self::Outer => {
                f.write_str("headers would be taken off frames in memory that the CPU cannot read")
            }
            Self::Call { device, stage, error } => write!(f, "{device}: {stage}: {error}"),
        }
    }
}

impl std::error::Error for PortError {}
