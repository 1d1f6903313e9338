//! Locked memory does not fault when it is touched for the first time.

use tensorwire_host::memory::{LockError, lock_all};
use tensorwire_host::usage::page_faults;

const PAGES: usize = 2_000;

/// Page faults of this thread while it touches every page of `memory`.
fn touch(memory: &mut [u8]) -> u64 {
    let before = page_faults().expect("counted");
    for byte in memory.iter_mut().step_by(4096) {
        *byte = 1;
    }
    let after = page_faults().expect("counted");
    after.minor - before.minor + after.major - before.major
}

#[test]
fn what_was_locked_is_there() {
    // Large enough for mappings of their own, and not touched by their making.
    let mut early = vec![0u8; PAGES * 4096];
    assert!(touch(&mut early) > 0, "memory that is new faults");
    let mut late = vec![0u8; PAGES * 4096];
    match lock_all() {
        Ok(locked) => assert!(locked.filled_bytes >= (PAGES * 4096) as u64, "{locked:?}"),
        Err(LockError::Right { limit, .. }) => {
            // Straight to the terminal: libtest swallows what a test prints.
            use std::io::Write;
            let line = format!("locked: skipped: RLIMIT_MEMLOCK is {limit}\n");
            return std::io::stderr().write_all(line.as_bytes()).expect("stderr");
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(touch(&mut late), 0, "page faults in locked memory");
    assert_eq!(late.iter().filter(|&&byte| byte == 1).count(), PAGES);
}
