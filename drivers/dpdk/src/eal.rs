//! DPDK itself: started once, ended when the last that uses it is gone.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tensorwire_dpdk_sys as sys;

use crate::config::EalConfig;
use crate::error::{CallError, EalError, undone};

/// Where DPDK stands in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Not started yet.
    Before,
    /// Started.
    Running,
    /// Ended, or its start failed: it cannot be started again.
    Over,
}

static LIFE: Mutex<Life> = Mutex::new(Life::Before);

fn life() -> MutexGuard<'static, Life> {
    // A panic while it was held (there is none in the sections below) leaves a plain value.
    LIFE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// DPDK, started. Clones are handles to the same; pools and ports hold one, and DPDK ends with the
/// last of them.
#[derive(Clone, Debug)]
pub struct Eal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file_prefix: String,
}

impl Eal {
    /// Starts DPDK. The calling thread is pinned to `config.cores`.
    ///
    /// # Errors
    ///
    /// [`EalError`] when it was started before, or when it refuses; it cannot be tried again in
    /// this process then.
    pub fn start(config: &EalConfig) -> Result<Self, EalError> {
        if config.cores.is_empty() {
            return Err(EalError::NoCores);
        }
        let words = config.arguments();
        let argument = |word: &String| {
            CString::new(word.as_str()).map_err(|_| EalError::Argument(word.clone()))
        };
        let texts: Vec<CString> = words.iter().map(argument).collect::<Result<_, _>>()?;
        let mut life = life();
        if *life != Life::Before {
            return Err(EalError::Again);
        }
        *life = Life::Over;
        // Leaked, a few hundred bytes once per process: EAL keeps pointers into its arguments and
        // may change their order.
        let mut arguments: Vec<_> = texts.into_iter().map(CString::into_raw).collect();
        arguments.push(std::ptr::null_mut());
        let arguments = arguments.leak();
        let count = i32::try_from(words.len()).map_err(|_| EalError::NoCores)?;
        // SAFETY: called once per process (`LIFE`), with as many texts as it is told and a null
        // behind them, in memory that is never freed; that is all that rte_eal_init asks for.
        let result = unsafe { sys::twd_eal_init(count, arguments.as_mut_ptr()) };
        CallError::check("rte_eal_init", result).map_err(|error| {
            tidy(&config.file_prefix);
            EalError::Refused { error, arguments: words.join(" ") }
        })?;
        *life = Life::Running;
        Ok(Self { inner: Arc::new(Inner { file_prefix: config.file_prefix.clone() }) })
    }

    /// The version of DPDK, as `DPDK 22.11.11`.
    #[must_use]
    pub fn version() -> String {
        // SAFETY: may be called at any time.
        let version = unsafe { sys::twd_version() };
        // SAFETY: a text that ends in a zero and lives as long as the process.
        let text = unsafe { CStr::from_ptr(version) };
        text.to_string_lossy().into_owned()
    }

    /// Whether devices see the addresses that this process does; where not, they cannot reach
    /// memory that DPDK did not allocate.
    #[must_use]
    pub fn iova_is_va(&self) -> bool {
        // SAFETY: EAL is started: there is a handle.
        unsafe { sys::twd_iova_is_va() == 1 }
    }

    /// How many handles there are, those of pools and ports included.
    #[must_use]
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut life = life();
        if *life != Life::Running {
            return;
        }
        *life = Life::Over;
        // SAFETY: every pool, port and ring of ours holds a handle and is gone; threads give their
        // places back under the same lock, and none after this. Once, as `LIFE` says.
        let result = unsafe { sys::twd_eal_cleanup() };
        undone(result == 0);
        tidy(&self.file_prefix);
    }
}

/// DPDK leaves the empty folder of its run-time files behind, after a start that failed as well.
/// Should it not be empty, or not be there, then there is nothing to do.
fn tidy(file_prefix: &str) {
    let _ = fs::remove_dir(runtime_folder(file_prefix));
}

/// Where DPDK keeps the files of a process: `/var/run` for root, the session's own place for
/// others.
fn runtime_folder(file_prefix: &str) -> PathBuf {
    // SAFETY: always succeeds.
    let root = unsafe { libc::getuid() } == 0;
    let place = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !root).map(PathBuf::from);
    let other = if root { "/var/run" } else { "/tmp" };
    place.unwrap_or_else(|| other.into()).join("dpdk").join(file_prefix)
}

/// A thread's place in the caches of pools, given back when the thread ends.
struct Seat {
    taken: Cell<bool>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let life = life();
        if self.taken.get() && *life == Life::Running {
            // SAFETY: this thread was registered (`taken`), and EAL is running and stays so while
            // the lock is held.
            unsafe { sys::twd_thread_unregister() };
        }
    }
}

thread_local! {
    static SEAT: Option<Seat> = take_seat();
}

fn take_seat() -> Option<Seat> {
    // SAFETY: EAL is running: whoever calls `seat` has a queue, which holds a handle.
    let result = unsafe { sys::twd_thread_register() };
    // A thread without a place (there are 128) works all the same, past the caches.
    (result >= 0).then(|| Seat { taken: Cell::new(result == 1) })
}

/// Makes sure that this thread has a place in the caches of pools. Cheap after the first time.
///
/// Only for those who hold an [`Eal`] (or a queue, which does).
#[inline]
pub(crate) fn seat() {
    // A thread that is about to end has none to give any more.
    let _ = SEAT.try_with(|seat| seat.is_some());
}
