//! What the kernel counts for a thread.
#![allow(unsafe_code)] // calls of the C library; each block says why it may be made

use std::io;
use std::mem::MaybeUninit;

/// Page faults of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// Without reading from a disk: a page that was not mapped yet.
    pub minor: u64,
    /// With reading from a disk.
    pub major: u64,
}

/// Page faults of the calling thread since it began (`getrusage(RUSAGE_THREAD)`).
///
/// # Errors
///
/// What the system says; it has no reason to refuse.
pub fn page_faults() -> io::Result<PageFaults> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a structure of the size that the call writes.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all of it was zero before, which every field may be, and the call has filled it in.
    let usage = unsafe { usage.assume_init() };
    let count = |faults| u64::try_from(faults).unwrap_or(0);
    Ok(PageFaults { minor: count(usage.ru_minflt), major: count(usage.ru_majflt) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_for_the_first_time_faults() {
        let before = page_faults().expect("counted");
        // Large enough to be mapped anew, and written page by page.
        let pages = 1_000;
        let mut memory = vec![0u8; pages * 4096];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let after = page_faults().expect("counted");
        assert_eq!(memory.iter().map(|&byte| u64::from(byte)).sum::<u64>(), pages as u64);
        // Huge pages make it one fault for 512 pages.
        assert!(after.minor > before.minor, "{before:?} {after:?}");
        assert_eq!(page_faults().expect("counted").major, after.major);
    }
}
