//! Huge pages: DPDK's own memory and a region of ours in them, and nothing of them left behind.
//!
//! They have to be set aside first (`sysctl vm.nr_hugepages=64`, which `ci/dpdk.sh` does); where
//! they are not, the tests say that they are skipped.

use std::process::{Command, Stdio};
use std::{env, fs, process};

use tensorwire_core::memory::{HostMemory, MemoryKind};
use tensorwire_dpdk::{
    Eal, EalConfig, HostPages, PacketPool, Pages, PoolSpec, PortConfig, QueueConfig, ring_pair,
};

use crate::support::{CHILD, FRAME, Wire, alone, carry, cores, lock, open, report};

/// Pages that a test needs: 64 MiB for DPDK, and two regions.
const NEEDED: u64 = 48;

/// Huge pages that are free.
fn free() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("a file of /proc");
    let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Runs `body`, in a process of its own or as that process, where there are enough of them; they
/// are all free again afterwards.
fn with_huge_pages(name: &str, body: impl FnOnce()) {
    if env::var(CHILD).as_deref() == Ok(name) {
        return body();
    }
    let _alone = lock();
    let before = free();
    if before < NEEDED {
        report(&format!(
            "skipped: dpdk: {name}: {before} huge pages of 2 MiB are free, {NEEDED} are needed \
             (sysctl vm.nr_hugepages={NEEDED})"
        ));
        return;
    }
    let files = files();
    body();
    assert_eq!(free(), before, "huge pages did not come back");
    assert_eq!(self::files(), files, "files of huge pages");
}

/// What lies in the places where huge pages can have names.
fn files() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").expect("a file of /proc");
    let huge = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    let places = huge.filter_map(|line| line.split(' ').nth(1));
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    entries.map(|entry| entry.path().display().to_string()).collect()
}

fn start() -> (Eal, Wire) {
    let config = EalConfig { memory_mib: 64, pages: Pages::Huge, ..EalConfig::new(cores()) };
    let eal = Eal::start(&config).expect("DPDK starts");
    assert!(eal.iova_is_va());
    let pool = |name: &str| {
        let spec =
            PoolSpec { name: name.to_owned(), buffers: 2047, frame_bytes: FRAME, device_bytes: 0 };
        let memory = HostPages::huge(spec.storage_bytes().expect("a size")).expect("huge pages");
        assert_eq!((memory.kind(), memory.len()), (MemoryKind::Huge, 4 << 20));
        PacketPool::new(&eal, &spec, Box::new(memory)).expect("a pool")
    };
    let (tx_pool, rx_pool) = (pool("tx"), pool("rx"));
    let queue = |pool: &PacketPool| Some(QueueConfig { ring: 1024, pool: pool.clone() });
    let [a, b] = ring_pair(&eal, 1024).expect("two devices");
    let rx =
        PortConfig { rx: queue(&rx_pool), peers: vec![tx_pool.clone()], ..PortConfig::default() };
    let tx = PortConfig { tx: queue(&tx_pool), ..PortConfig::default() };
    let rx = open(b, rx);
    (eal, Wire { tx: open(a, tx), rx, tx_pool, rx_pool })
}

#[test]
fn frames_lie_in_huge_pages_and_these_come_back() {
    let name = "huge::frames_lie_in_huge_pages_and_these_come_back";
    with_huge_pages(name, || {
        alone(name, || {
            let (_eal, mut wire) = start();
            let pool = wire.tx_pool.clone();
            let (mut tx, mut rx) = wire.ends();
            let mut inside = 0;
            carry((&mut tx, &mut rx), 10_000, FRAME, |_, bytes| {
                let ends = bytes.as_ptr_range();
                inside += u32::from(pool.contains(ends.start, ends.end));
            });
            assert_eq!(inside, 10_000);
        });
    });
}

/// Huge pages have names nowhere (`--in-memory`), so that they are gone with the process, whatever
/// ends it.
#[test]
fn a_process_that_dies_leaves_no_huge_page() {
    let name = "huge::a_process_that_dies_leaves_no_huge_page";
    with_huge_pages(name, || {
        if env::var(CHILD).as_deref() == Ok(name) {
            let _running = start();
            process::abort();
        }
        let itself = env::current_exe().expect("this program");
        let child = Command::new(itself)
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, name)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let folder = format!("/var/run/dpdk/tensorwire-{}", child.id());
        let output = child.wait_with_output().expect("it ends");
        // The one thing that is left, as docs/dpdk.md says; other users have it elsewhere.
        let _ = fs::remove_dir_all(folder);
        assert!(output.status.code().is_none(), "it was to die: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{said}");
    });
}
