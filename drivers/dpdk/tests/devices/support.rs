//! One process per test, and ports to test with.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::port::{PacketMemory, RxQueue, SendError, TxQueue};
use tensorwire_dpdk::{
    Buffers, Device, DpdkRx, DpdkTx, Eal, EalConfig, FlowPlan, HostPages, NicConfig, PacketPool,
    Pages, PoolSpec, Port, PortAddress, PortConfig, QueueConfig, RxConfig, TxConfig, left_standing,
    ring_pair,
};

/// The environment's name for the test that this process runs.
pub(crate) const CHILD: &str = "TENSORWIRE_DPDK_TEST";

/// Bytes of a frame of the main job.
pub(crate) const FRAME: usize = 1240;

/// Says a line that shows in the output of the tests.
#[expect(clippy::print_stderr, reason = "for people who run the tests")]
pub(crate) fn report(line: &str) {
    eprintln!("{line}");
}

/// Held by tests that look at what others may leave for a moment: files, free huge pages.
pub(crate) fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    // A test that failed with it is reported as such.
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` in a process of its own; `name` is that of the test, with its module. What the
/// process says goes on to the output of the test.
#[track_caller]
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    alone_leaving(0, name, body);
}

/// As [`alone`], of a test after which `standing` things could not be taken down.
#[track_caller]
pub(crate) fn alone_leaving(standing: u64, name: &str, body: impl FnOnce()) {
    alone_among(standing, name, Vec::new, body);
}

/// As [`alone_leaving`], with what `environment` says besides.
#[track_caller]
pub(crate) fn alone_among(
    standing: u64,
    name: &str,
    environment: impl FnOnce() -> Vec<(String, String)>,
    body: impl FnOnce(),
) {
    if env::var(CHILD).as_deref() == Ok(name) {
        body();
        assert_eq!(left_standing(), standing, "could not be taken down");
        return;
    }
    let itself = env::current_exe().expect("this program");
    let output = Command::new(itself)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .envs(environment())
        .output()
        .expect("this program runs");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    report(&err);
    let passed = output.status.success() && out.contains("1 passed");
    assert!(passed, "{name}: {}\n{out}\n{err}", output.status);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An empty folder, gone with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new one, named after this process.
    pub(crate) fn new() -> Self {
        Self::of("")
    }

    /// A new one, named after this process and a test of it.
    pub(crate) fn of(test: &str) -> Self {
        let name = format!("tensorwire-dpdk-{}{}", std::process::id(), test.replace("::", "-"));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder for temporary files");
        Self(path)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is only untidy.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The cores that this process may use.
pub(crate) fn cores() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cores = Vec::new();
    for range in list.expect("a list of cores").trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().expect("a number");
        cores.extend(number(first)..=number(last));
    }
    cores
}

/// DPDK in plain pages: no privilege needed.
pub(crate) fn eal() -> Eal {
    let config = EalConfig { memory_mib: 128, ..EalConfig::new(cores()) };
    Eal::start(&config).expect("DPDK starts")
}

/// A pool of `buffers` frames of `frame_bytes`.
pub(crate) fn pool(eal: &Eal, name: &str, buffers: u32, frame_bytes: usize) -> PacketPool {
    let spec = PoolSpec { name: name.to_owned(), buffers, frame_bytes, device_bytes: 0 };
    let memory = HostPages::plain(spec.storage_bytes().expect("a size")).expect("memory");
    PacketPool::new(eal, &spec, Box::new(memory)).expect("a pool")
}

/// Opens a port without looking at its stages.
pub(crate) fn open(device: Device, config: PortConfig) -> Port {
    Port::open(device, config, |_| true).expect("a port")
}

/// Two ports, what the first sends the second receives.
pub(crate) struct Wire {
    /// The sending port.
    pub(crate) tx: Port,
    /// The receiving port.
    pub(crate) rx: Port,
    /// Buffers of the sender.
    pub(crate) tx_pool: PacketPool,
    /// Buffers of the receiver.
    pub(crate) rx_pool: PacketPool,
}

impl Wire {
    /// Over two devices, with `buffers` buffers on each side.
    pub(crate) fn over([a, b]: [Device; 2], eal: &Eal, buffers: u32, frame_bytes: usize) -> Self {
        let name = |side: &str| format!("{side}{}", a.port());
        let tx_pool = pool(eal, &name("tx"), buffers, frame_bytes);
        let rx_pool = pool(eal, &name("rx"), buffers, frame_bytes);
        let queue = |pool: &PacketPool| Some(QueueConfig { ring: 1024, pool: pool.clone() });
        let tx = PortConfig { tx: queue(&tx_pool), rx: queue(&tx_pool), ..PortConfig::default() };
        let rx = PortConfig {
            rx: queue(&rx_pool),
            tx: queue(&rx_pool),
            peers: vec![tx_pool.clone()],
            ..PortConfig::default()
        };
        // The receiver first: a memif client is turned away by a server that has not started.
        let rx = open(b, rx);
        Self { tx: open(a, tx), rx, tx_pool, rx_pool }
    }

    /// Over rings.
    pub(crate) fn rings(eal: &Eal, buffers: u32, frame_bytes: usize) -> Self {
        Self::over(ring_pair(eal, 1024).expect("two devices"), eal, buffers, frame_bytes)
    }

    /// Over memif, both ends in this process; the socket is in `folder`.
    pub(crate) fn memif(eal: &Eal, folder: &Path, buffers: u32, frame_bytes: usize) -> Self {
        let socket = folder.join("memif.sock");
        let room = (frame_bytes + 128).next_power_of_two();
        let end = |number: u32, role: &str| {
            let devargs = format!(
                "net_memif{number},role={role},id=0,rsize=10,bsize={room},socket={},\
                 socket-abstract=no",
                socket.display()
            );
            Device::attach(eal, &devargs).expect("a memif device")
        };
        // The client goes first when the wire does, so that it sees no end that is gone.
        let server = end(0, "server");
        Self::over([end(1, "client"), server], eal, buffers, frame_bytes)
    }

    /// Its ends.
    pub(crate) fn ends(&mut self) -> (DpdkTx<'_>, DpdkRx<'_>) {
        let tx = self.tx.split().1.expect("a transmit queue");
        let rx = self.rx.split().0.expect("a receive queue");
        (tx, rx)
    }
}

/// A receiver and a sender on two ports joined by memif; the socket is in `folder`.
pub(crate) fn memif_nic(folder: &Folder) -> NicConfig {
    let socket = folder.path().join("m.sock");
    let address = |number: u32, role: &str| {
        PortAddress::Virtual(format!(
            "net_memif{number},role={role},id=0,rsize=10,socket={},socket-abstract=no",
            socket.display()
        ))
    };
    let buffers = Buffers { count: 2047, frame_bytes: FRAME, room_bytes: 0, pages: Pages::Plain };
    let flows = FlowPlan { flows: vec![], outer: vec![], isolation: false };
    NicConfig {
        rx: Some(RxConfig {
            port: address(0, "server"),
            buffers,
            ring: 1024,
            flows,
            timestamps: false,
            on_device: None,
        }),
        tx: Some(TxConfig {
            port: address(1, "client"),
            buffers,
            ring: 1024,
            eth_src: false,
            flows: vec![],
        }),
    }
}

/// Byte `at` of frame `number`.
pub(crate) fn byte(number: u64, at: usize) -> u8 {
    let at = u64::try_from(at).expect("a place in a frame");
    number.wrapping_mul(37).wrapping_add(at.wrapping_mul(11)).to_le_bytes()[0]
}

/// Sends `count` frames of `len` bytes and checks every byte of what arrives, in order; `seen` gets
/// the bytes of each frame, where they lie.
pub(crate) fn carry(
    (tx, rx): (&mut DpdkTx<'_>, &mut DpdkRx<'_>),
    count: u64,
    len: usize,
    mut seen: impl FnMut(&DpdkRx<'_>, &[u8]),
) {
    let (mut sent, mut got, mut idle) = (0, 0, 0);
    let mut burst = [const { PacketDesc::EMPTY }; 64];
    while got < count {
        // Never more under way than the smallest ring holds.
        while sent < count && sent - got < 512 {
            let fill = |frame: &mut [u8]| {
                for (at, place) in frame.iter_mut().enumerate() {
                    *place = byte(sent, at);
                }
            };
            match tx.send(len, fill) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        tx.flush();
        let n = rx.rx_burst(&mut burst);
        for packet in &burst[..n] {
            let bytes = rx.bytes(packet);
            assert_eq!(bytes.len(), len);
            assert_eq!(packet.len() as usize, len);
            let right = bytes.iter().enumerate().all(|(at, &b)| b == byte(got, at));
            assert!(right, "frame {got} is another");
            seen(rx, bytes);
            got += 1;
        }
        rx.release(&mut burst[..n]);
        idle = if n == 0 { idle + 1 } else { 0 };
        assert!(idle < 200_000_000, "{got} of {count} frames arrived");
    }
    assert!(tx.finish());
}
