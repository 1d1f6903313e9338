//! Up and down, thousands of times: nothing may be left.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::{env, thread};

use tensorwire_dpdk::{EalConfig, left_standing};

use crate::support::{FRAME, Folder, Wire, alone, carry, eal, lock, report};

/// What a process holds of the system.
#[derive(Debug)]
struct Held {
    mappings: usize,
    files: usize,
    threads: usize,
    resident_kib: u64,
}

impl Held {
    fn now() -> Self {
        let read = |name: &str| fs::read_to_string(name).expect("a file of /proc");
        let status = read("/proc/self/status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = line.and_then(|line| line.split_whitespace().next()).expect("a size");
        Self {
            mappings: read("/proc/self/maps").lines().count(),
            files: fs::read_dir("/proc/self/fd").expect("a folder").count(),
            threads: fs::read_dir("/proc/self/task").expect("a folder").count(),
            resident_kib: resident.parse().expect("a number"),
        }
    }

    /// Nothing more than before, but for `files` descriptors and `kib` KiB of memory.
    #[track_caller]
    fn no_more_than(&self, before: &Self, files: usize, kib: u64) {
        report(&format!("before: {before:?}; after: {self:?}"));
        assert!(self.mappings <= before.mappings + 2, "mappings: {before:?}, then {self:?}");
        assert!(self.files <= before.files + files, "files: {before:?}, then {self:?}");
        assert_eq!(self.threads, before.threads);
        let grown = self.resident_kib.saturating_sub(before.resident_kib);
        assert!(grown <= kib, "{grown} KiB more: {before:?}, then {self:?}");
    }
}

#[test]
fn ten_thousand_ports_and_pools_on_rings() {
    alone("cycles::ten_thousand_ports_and_pools_on_rings", || {
        let eal = eal();
        let cycle = |frames| {
            let mut wire = Wire::rings(&eal, 127, FRAME);
            let (mut tx, mut rx) = wire.ends();
            carry((&mut tx, &mut rx), frames, FRAME, |_, _| ());
        };
        // What is made once and kept (tables, caches of the C library) is there after these.
        (0..100).for_each(|_| cycle(10));
        let before = Held::now();
        // Two ports and two pools each.
        (0..5_000).for_each(|_| cycle(3));
        // Pages that the allocators keep.
        Held::now().no_more_than(&before, 0, 2048);
        assert_eq!((eal.handles(), left_standing()), (1, 0));
    });
}

#[test]
fn fifty_pairs_of_memif() {
    alone("cycles::fifty_pairs_of_memif", || {
        let folder = Folder::new();
        let eal = eal();
        let cycle = || {
            let mut wire = Wire::memif(&eal, folder.path(), 1023, FRAME);
            let (mut tx, mut rx) = wire.ends();
            carry((&mut tx, &mut rx), 200, FRAME, |_, _| ());
        };
        (0..3).for_each(|_| cycle());
        let before = Held::now();
        (0..50).for_each(|_| cycle());
        // DPDK 22.11 unlinks the listening socket of a memif server and never closes it: one
        // descriptor a pair, and some 90 KiB beside it (docs/dpdk.md). Ours is nothing.
        Held::now().no_more_than(&before, 50, 50 * 128);
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(eal.handles(), 1);
    });
}

/// One whole life of DPDK, for the next test to start as a process.
#[test]
fn one_process() {
    if env::var_os("TENSORWIRE_DPDK_TEST").is_none() {
        return alone("cycles::one_process", || {
            let eal = eal();
            carry_a_little(&eal);
        });
    }
    let eal = eal();
    carry_a_little(&eal);
    drop(eal);
    assert_eq!(left_standing(), 0);
}

fn carry_a_little(eal: &tensorwire_dpdk::Eal) {
    let mut wire = Wire::rings(eal, 511, FRAME);
    let (mut tx, mut rx) = wire.ends();
    // From another thread than the one that started DPDK.
    thread::scope(|scope| {
        let worker = scope.spawn(|| carry((&mut tx, &mut rx), 1000, FRAME, |_, _| ()));
        worker.join().expect("carried");
    });
}

#[test]
fn a_hundred_processes_leave_no_file() {
    let _alone = lock();
    let itself = env::current_exe().expect("this program");
    let places = ["/var/run/dpdk", "/dev/hugepages", "/tmp/dpdk"];
    let files =
        || -> Vec<String> { places.iter().flat_map(|place| below(Path::new(place))).collect() };
    let before = files();
    for round in 0..100 {
        let output = Command::new(&itself)
            .args(["cycles::one_process", "--exact", "--test-threads=1"])
            .env("TENSORWIRE_DPDK_TEST", "cycles::one_process")
            .output()
            .expect("this program runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{round}: {output:?}");
    }
    // The prefix of this process names nothing: it has not started DPDK.
    let prefix = EalConfig::new(vec![0]).file_prefix;
    let left: Vec<String> = files().into_iter().filter(|name| !before.contains(name)).collect();
    // Tests that run beside this one have files as long as they live.
    let left = left.iter().filter(|name| !alive(name) && Path::new(name).exists());
    let left: Vec<&String> = left.collect();
    assert!(left.is_empty(), "left behind: {left:?} ({prefix})");
}

/// Whether the process that a run-time folder is named after still lives.
fn alive(name: &str) -> bool {
    let tail = name.rsplit("tensorwire-").next().unwrap_or_default();
    let pid: String = tail.chars().take_while(char::is_ascii_digit).collect();
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}

fn below(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| [vec![path.display().to_string()], below(&path)].concat()).collect()
}
