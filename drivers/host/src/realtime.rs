//! The real-time class of threads (sched(7)).
#![allow(unsafe_code)] // calls of the C library; each block says why it may be made

use std::fmt;
use std::io;

/// The priorities of `SCHED_FIFO` on Linux.
pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

/// Why a thread is not in the real-time class.
#[derive(Debug)]
#[non_exhaustive]
pub enum RealtimeError {
    /// The process has not the right; `limit` is its RLIMIT_RTPRIO, the highest priority that it
    /// may give itself without CAP_SYS_NICE.
    Right {
        /// The priority that was asked for.
        priority: u8,
        /// RLIMIT_RTPRIO.
        limit: u64,
    },
    /// What else the system says.
    System(io::Error),
}

impl fmt::Display for RealtimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right { priority, limit } => write!(
                f,
                "CAP_SYS_NICE is missing, and RLIMIT_RTPRIO is {limit}, below {priority}; give it \
                 by AmbientCapabilities=CAP_SYS_NICE or LimitRTPRIO={priority} in the unit, or by \
                 setcap cap_sys_nice+ep on the program"
            ),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RealtimeError {}

/// Puts the calling thread into `SCHED_FIFO`: it runs until it waits, before every thread of a
/// lower priority. What it starts is not real time (`SCHED_RESET_ON_FORK`).
///
/// # Errors
///
/// [`RealtimeError`]; the thread is as it was then.
pub fn make_fifo(priority: u8) -> Result<(), RealtimeError> {
    let param = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a structure that the call only reads; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const param) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EPERM) => {
            RealtimeError::Right { priority, limit: super::memory::limit(libc::RLIMIT_RTPRIO) }
        }
        _ => RealtimeError::System(error),
    })
}

/// The real-time priority of the calling thread; 0 outside of the class.
#[must_use]
pub fn priority() -> u8 {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a structure of the size that the call writes.
    let got = unsafe { libc::sched_getparam(0, &raw mut param) };
    if got == 0 { u8::try_from(param.sched_priority).unwrap_or(0) } else { 0 }
}
