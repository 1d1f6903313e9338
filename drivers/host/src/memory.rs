//! Memory that stays: mapped, in place and locked before it is used.
//!
//! Two steps. `mlockall(MCL_CURRENT | MCL_ONFAULT)` marks all that is mapped, so that no page of it
//! is written out once it is there; on fault, because a CUDA process has reserved address space
//! that is many times the memory of the machine, and filling that in would be refused or worse. Not
//! `MCL_FUTURE`: it would apply to what a driver maps later as well, and a driver that cannot
//! reserve address space because a lock limit is reached fails in places that nobody has tested.
//! Then the mappings that the loops can touch are filled in one by one (`mlock` fills in what it
//! locks): code, data, heap, stacks. A private page of data is written to by that, so that not even
//! the first write to it faults.

#![allow(unsafe_code)] // calls of the C library; each block says why it may be made

use std::fmt;
use std::fs;
use std::io;

/// What is filled in at most, in bytes of one mapping: what is larger is a reservation that
/// somebody fills in bit by bit, not memory in use.
const LARGEST: u64 = 64 << 30;

/// Why memory could not be locked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The process has not the right; RLIMIT_MEMLOCK is what it may lock without CAP_IPC_LOCK.
    Right {
        /// RLIMIT_MEMLOCK, in bytes.
        limit: u64,
        /// All that is mapped, in bytes.
        mapped: u64,
    },
    /// What else the system says, and to what.
    System(&'static str, io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right { limit, mapped } => write!(
                f,
                "CAP_IPC_LOCK is missing, and RLIMIT_MEMLOCK is {limit} bytes, below the {mapped} \
                 that are mapped; give it by AmbientCapabilities=CAP_IPC_LOCK or \
                 LimitMEMLOCK=infinity in the unit, or by setcap cap_ipc_lock+ep on the program"
            ),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for LockError {}

/// What was locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locked {
    /// Bytes that were filled in.
    pub filled_bytes: u64,
    /// Mappings that were filled in.
    pub filled: u32,
    /// Mappings that were left to be filled in when they are touched: reservations, and what a
    /// driver maps.
    pub left: u32,
}

/// Locks all that is mapped, and fills in what the process uses. Called once everything is
/// allocated, all threads are there, and devices have reserved their address space.
///
/// # Errors
///
/// [`LockError`].
pub fn lock_all() -> Result<Locked, LockError> {
    // SAFETY: no memory is touched through Rust's references; pages are only kept in place.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) } != 0 {
        return Err(refused("mlockall", io::Error::last_os_error()));
    }
    let maps = maps().map_err(|error| LockError::System("/proc/self/maps", error))?;
    let mut locked = Locked::default();
    for mapping in maps.lines().filter_map(Mapping::parse) {
        if !mapping.is_used() {
            locked.left += 1;
            continue;
        }
        match fill(&mapping) {
            Ok(()) => {
                locked.filled += 1;
                locked.filled_bytes += mapping.bytes();
            }
            // It has gone since, or the kernel does not let it be filled in (a guard page).
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => locked.left += 1,
            Err(error) => return Err(refused("mlock", error)),
        }
    }
    Ok(locked)
}

fn fill(mapping: &Mapping) -> io::Result<()> {
    let (Ok(start), Ok(bytes)) = (usize::try_from(mapping.start), usize::try_from(mapping.bytes()))
    else {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    };
    // SAFETY: as with `mlockall`; an address that is not mapped is an error of the call.
    let done = unsafe { libc::mlock(std::ptr::without_provenance(start), bytes) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn refused(what: &'static str, error: io::Error) -> LockError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN) => {
            let maps = maps().unwrap_or_default();
            let mapped = maps.lines().filter_map(Mapping::parse).map(|mapping| mapping.bytes());
            LockError::Right { limit: limit(libc::RLIMIT_MEMLOCK), mapped: mapped.sum() }
        }
        _ => LockError::System(what, error),
    }
}

fn maps() -> io::Result<String> {
    fs::read_to_string("/proc/self/maps")
}

/// A soft limit of this process; `u64::MAX` is none.
pub(crate) fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a structure of the size that the call writes.
    let got = unsafe { libc::getrlimit(resource, &raw mut limit) };
    if got == 0 { limit.rlim_cur } else { 0 }
}

/// A line of `/proc/self/maps` (proc_pid_maps(5)).
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (rights, rest) = rest.split_once(' ')?;
        // Behind the rights: offset, device, inode, then the path, which may hold spaces.
        let mut rest = rest.splitn(4, ' ');
        let path = rest.nth(3).unwrap_or_default().trim_start();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { start: hex(start)?, end: hex(end)?, rights, path })
    }

    const fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the process uses it as memory: readable, of no device, of a size that is no
    /// reservation. The kernel's own pages are always there.
    fn is_used(&self) -> bool {
        let kernels = ["[vvar]", "[vvar_vclock]", "[vdso]", "[vsyscall]"].contains(&self.path);
        // Shared memory of a file system is memory, whatever else lies in /dev is a device's.
        let device = self.path.starts_with("/dev/")
            && !["/dev/shm/", "/dev/hugepages/", "/dev/zero"]
                .iter()
                .any(|memory| self.path.starts_with(memory));
        self.rights.starts_with('r') && !kernels && !device && self.bytes() <= LARGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_memory_and_what_is_not() {
        let used = |line| Mapping::parse(line).expect("a mapping").is_used();
        assert!(used("00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b"));
        assert!(used("7f0000000000-7f0000021000 rw-p 00000000 00:00 0 "));
        assert!(used("7ffc0000-7ffc1000 rw-p 00000000 00:00 0                    [stack]"));
        assert!(used("7f00-8f00 rw-s 00000000 00:1a 7                 /dev/shm/ring"));
        // A reservation of CUDA, a guard page, registers of a device, the kernel's own.
        assert!(!used("200000000-10200000000 ---p 00000000 00:00 0 "));
        assert!(!used("200000000-10200000000 rw-p 00000000 00:00 0 "));
        assert!(!used("7f00-8f00 ---p 00000000 00:00 0 "));
        assert!(!used("7f00-8f00 rw-s 00000000 00:06 492              /dev/nvidia0"));
        assert!(!used("7f00-8f00 r-xp 00000000 00:00 0                  [vdso]"));
        let path = Mapping::parse("00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b");
        assert_eq!(
            path.map(|mapping| (mapping.path, mapping.bytes())),
            Some(("/usr/bin/a b", 0x52000))
        );
        assert_eq!(Mapping::parse("no mapping"), None);
    }

    #[test]
    fn a_refusal_names_the_right_and_how_to_give_it() {
        let text = LockError::Right { limit: 65_536, mapped: 1_000_000 }.to_string();
        for word in ["CAP_IPC_LOCK", "65536", "1000000", "LimitMEMLOCK=infinity", "setcap"] {
            assert!(text.contains(word), "{text}");
        }
    }
}
