//! `csrc/shim.h`, declaration by declaration.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::AtomicU32;

/// Packets that one burst call moves at most (`TWD_BURST`).
pub const BURST: usize = 64;

/// Bytes of a name, with its end (`TWD_NAME`).
pub const NAME: usize = 64;

/// Bytes of the longest header that a rule cuts off or puts (`TWD_HEADER`).
pub const HEADER: usize = 64;

/// Ethernet over UDP (`TWD_VXLAN`).
pub const VXLAN: u8 = 1;

/// GRE (`TWD_GRE`).
pub const GRE: u8 = 2;

/// GRE with a number (`TWD_NVGRE`).
pub const NVGRE: u8 = 3;

/// Where an mbuf holds the address of its buffer (`TWD_MBUF_BUF_ADDR`, asserted in `burst.c`).
const MBUF_BUF_ADDR: usize = 0;

/// Where an mbuf holds the distance of its data from there (`TWD_MBUF_DATA_OFF`).
const MBUF_DATA_OFF: usize = 16;

/// Where an mbuf holds the length of its data (`TWD_MBUF_DATA_LEN`).
const MBUF_DATA_LEN: usize = 40;

/// What a port is (`struct twd_port_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    /// Its name, ended by a zero.
    pub name: [c_char; NAME],
    /// Its driver, ended by a zero.
    pub driver: [c_char; NAME],
    /// The device that it belongs to.
    pub device: *mut c_void,
    /// The least bytes of a receive buffer; 0: any.
    pub min_rx_bytes: u32,
    /// The longest frame that it receives, in bytes.
    pub max_rx_bytes: u32,
    /// The largest MTU, in bytes.
    pub max_mtu: u32,
    /// NUMA node, or -1.
    pub socket: i32,
    /// Receive queues at most.
    pub max_rx_queues: u16,
    /// Transmit queues at most.
    pub max_tx_queues: u16,
    /// Its address, or zeros.
    pub mac: [u8; 6],
    /// 1: it stamps what it receives with a time.
    pub timestamps: u8,
    /// 1: rules are there again after its driver has set it up anew by itself.
    pub keeps_rules: u8,
    /// 1: a frame may be received into two buffers of two pools, the first of a length of ours.
    pub splits: u8,
    /// 1: what it receives is written by this CPU.
    pub software: u8,
}

/// What a port is asked for besides queues (`struct twd_port_options`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortOptions {
    /// 1: frames are marked by rules. Cleared where the port cannot do it.
    pub marks: u8,
    /// 1: frames are stamped with a time. Cleared where the port cannot do it.
    pub timestamps: u8,
    /// 1: frames are split; only for a port that does it.
    pub split: u8,
}

/// How often a driver reported what (`struct twd_events`). It counts with release.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Events {
    /// It asks for a reset of the port.
    pub resets: AtomicU32,
    /// The device is gone.
    pub removals: AtomicU32,
    /// It has begun to set the port up anew by itself.
    pub recoveries: AtomicU32,
    /// It has done so.
    pub recovered: AtomicU32,
    /// It could not.
    pub failed: AtomicU32,
    /// 1: it is about it. It may begin twice and end once.
    pub recovering: AtomicU32,
}

/// What a port counted (`struct twd_port_stats`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub in_packets: u64,
    /// Frames sent.
    pub out_packets: u64,
    /// Bytes received.
    pub in_bytes: u64,
    /// Bytes sent.
    pub out_bytes: u64,
    /// Frames dropped because no descriptor was free.
    pub in_missed: u64,
    /// Frames received with an error.
    pub in_errors: u64,
    /// Frames that could not be sent.
    pub out_errors: u64,
    /// Times that no buffer could be had to receive into.
    pub no_buffer: u64,
}

/// A statistic of the driver's own (`struct twd_xstat`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct XStat {
    /// Its name, ended by a zero.
    pub name: [c_char; NAME],
    /// Its value.
    pub value: u64,
}

/// Where the mbufs of a pool and their buffers lie (`struct twd_pool_range`), as addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolRange {
    /// The first mbuf.
    pub mbuf_first: u64,
    /// The last mbuf.
    pub mbuf_last: u64,
    /// The first byte of the first buffer.
    pub data_first: u64,
    /// The byte behind the last buffer.
    pub data_last: u64,
    /// How many there are.
    pub count: u32,
}

/// A received frame (`struct twd_packet`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its mbuf.
    pub mbuf: *mut c_void,
    /// Bytes of the frame.
    pub len: u32,
    /// What a rule marked it with, or 0.
    pub mark: u32,
}

impl Packet {
    /// No frame: what an array of them is filled with.
    pub const NONE: Self = Self { mbuf: core::ptr::null_mut(), len: 0, mark: 0 };
}

/// A steering rule (`struct twd_flow_rule`): UDP over IPv4, and what `has_…` says besides.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// First source port.
    pub src_first: u16,
    /// Last source port.
    pub src_last: u16,
    /// First destination port.
    pub dst_first: u16,
    /// Last destination port.
    pub dst_last: u16,
    /// IPv4 total length.
    pub ipv4_len: u16,
    /// 1: the source port counts.
    pub has_src: u8,
    /// 1: the destination port counts.
    pub has_dst: u8,
    /// 1: the length counts.
    pub has_len: u8,
    /// 1: frames are marked with `mark`.
    pub has_mark: u8,
    /// The queue that they go to.
    pub queue: u16,
    /// The mark.
    pub mark: u32,
    /// 1: of sent frames, without queue and mark.
    pub egress: u8,
    /// 1: received frames have a tag and lose it, sent ones get it.
    pub vlan: u8,
    /// EtherType of the tag that is put.
    pub vlan_type: u16,
    /// Priority and number of the tag that is put.
    pub vlan_control: u16,
    /// The tunnel that received frames come in: [`VXLAN`], [`GRE`], [`NVGRE`], or 0.
    pub tunnel: u8,
    /// 1: the frame inside has an Ethernet header.
    pub inner_eth: u8,
    /// 1: the number of the network counts.
    pub has_vni: u8,
    /// 1: the outer source address counts.
    pub has_outer_src: u8,
    /// 1: the outer destination address counts.
    pub has_outer_dst: u8,
    /// 1: the outer source port counts.
    pub has_outer_udp_src: u8,
    /// Outer source address.
    pub outer_src: [u8; 4],
    /// Outer destination address.
    pub outer_dst: [u8; 4],
    /// Outer source port.
    pub outer_udp_src: u16,
    /// Outer destination port, which always counts.
    pub outer_udp_dst: u16,
    /// Number of the network.
    pub vni: u32,
    /// Bytes that are cut off the front.
    pub decap_len: u8,
    /// Bytes that are put there then.
    pub encap_len: u8,
    /// What they are, as far as known.
    pub decap: [u8; HEADER],
    /// What is put.
    pub encap: [u8; HEADER],
}

impl FlowRule {
    /// All zeros: every received UDP frame, to queue 0.
    pub const ANY: Self = Self {
        src_first: 0,
        src_last: 0,
        dst_first: 0,
        dst_last: 0,
        ipv4_len: 0,
        has_src: 0,
        has_dst: 0,
        has_len: 0,
        has_mark: 0,
        queue: 0,
        mark: 0,
        egress: 0,
        vlan: 0,
        vlan_type: 0,
        vlan_control: 0,
        tunnel: 0,
        inner_eth: 0,
        has_vni: 0,
        has_outer_src: 0,
        has_outer_dst: 0,
        has_outer_udp_src: 0,
        outer_src: [0; 4],
        outer_dst: [0; 4],
        outer_udp_src: 0,
        outer_udp_dst: 0,
        vni: 0,
        decap_len: 0,
        encap_len: 0,
        decap: [0; HEADER],
        encap: [0; HEADER],
    };
}

unsafe extern "C" {
    /// Text that lives as long as the process.
    pub fn twd_version() -> *const c_char;
    /// Text that is valid until the next call on this thread.
    pub fn twd_error_text(code: c_int) -> *const c_char;
    /// Once per process. The arguments must live and stay in place until the process ends.
    pub fn twd_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    /// Nothing of DPDK may be in use, and nothing of it is called after.
    pub fn twd_eal_cleanup() -> c_int;
    /// Whether the bus sees the addresses that this process does.
    pub fn twd_iova_is_va() -> c_int;
    /// Gives this thread a place in the caches of pools. 1: it has one now; 0: it had one.
    pub fn twd_thread_register() -> c_int;
    /// Gives the place back; of a thread that has one, and before EAL ends.
    pub fn twd_thread_unregister();

    /// Attaches the device that the text describes.
    pub fn twd_device_probe(devargs: *const c_char) -> c_int;
    /// Detaches a device whose ports are closed.
    pub fn twd_device_remove(device: *mut c_void) -> c_int;
    /// Lets a device reach registered memory.
    pub fn twd_device_map(device: *mut c_void, base: *mut c_void, iova: u64, len: usize) -> c_int;
    /// Takes that back.
    pub fn twd_device_unmap(device: *mut c_void, base: *mut c_void, iova: u64, len: usize)
    -> c_int;
    /// A ring for one sending and one receiving thread, with room for `size` frames.
    pub fn twd_ring_create(name: *const c_char, size: u32, ring: *mut *mut c_void) -> c_int;
    /// Frees a ring that no port uses.
    pub fn twd_ring_free(ring: *mut c_void);
    /// A port that receives from one ring and sends to another.
    pub fn twd_ring_port(
        name: *const c_char,
        rx: *mut c_void,
        tx: *mut c_void,
        port: *mut u16,
    ) -> c_int;
    /// The port of that name.
    pub fn twd_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    /// What a port is.
    pub fn twd_port_info(port: u16, info: *mut PortInfo) -> c_int;
    /// Numbers of queues and options, of a stopped port.
    pub fn twd_port_configure(
        port: u16,
        rx_queues: u16,
        tx_queues: u16,
        mtu: u32,
        options: *mut PortOptions,
    ) -> c_int;
    /// The ring sizes that the port has, nearest to those given.
    pub fn twd_port_adjust(port: u16, rx_ring: *mut u16, tx_ring: *mut u16) -> c_int;
    /// A receive queue over a pool, of a configured and stopped port.
    pub fn twd_port_rx_queue(port: u16, queue: u16, ring: u16, pool: *mut c_void) -> c_int;
    /// The same of a port that splits frames: the first `split` bytes into buffers of `heads`, the
    /// rest into those of `pool`.
    pub fn twd_port_rx_queue_split(
        port: u16,
        queue: u16,
        ring: u16,
        heads: *mut c_void,
        split: u16,
        pool: *mut c_void,
    ) -> c_int;
    /// A transmit queue, of a configured and stopped port.
    pub fn twd_port_tx_queue(port: u16, queue: u16, ring: u16) -> c_int;
    /// Starts a port all of whose queues are set up.
    pub fn twd_port_start(port: u16) -> c_int;
    /// Stops a port that no thread polls.
    pub fn twd_port_stop(port: u16) -> c_int;
    /// Closes a stopped port: its number is free then.
    pub fn twd_port_close(port: u16) -> c_int;
    /// The port takes frames to any address.
    pub fn twd_port_promiscuous(port: u16) -> c_int;
    /// Speed in megabits per second, and whether the link is up.
    pub fn twd_port_link(port: u16, mbps: *mut u32, up: *mut u8) -> c_int;
    /// What the clock that stamps received frames shows.
    pub fn twd_port_clock(port: u16, ticks: *mut u64) -> c_int;
    /// What a port counted.
    pub fn twd_port_stats(port: u16, stats: *mut PortStats) -> c_int;
    /// What its driver counted besides: how many, of which at most `room` were written.
    pub fn twd_port_xstats(port: u16, out: *mut XStat, room: u32) -> c_int;

    /// Makes memory that is ours known to EAL.
    pub fn twd_memory_register(base: *mut c_void, len: usize, page: usize) -> c_int;
    /// Takes that back; no pool may lie in it.
    pub fn twd_memory_unregister(base: *mut c_void, len: usize) -> c_int;
    /// A pool whose buffers are elements of registered memory.
    pub fn twd_pool_create(
        name: *const c_char,
        count: u32,
        cache: u32,
        element: u16,
        base: *mut c_void,
        iova: u64,
        len: usize,
        pool: *mut *mut c_void,
    ) -> c_int;
    /// Frees a pool all of whose mbufs are back.
    pub fn twd_pool_free(pool: *mut c_void);
    /// Where its mbufs and buffers lie.
    pub fn twd_pool_range(pool: *mut c_void, range: *mut PoolRange);
    /// Mbufs that are in the pool or in the cache of a thread.
    pub fn twd_pool_available(pool: *mut c_void) -> u32;

    /// Frames of a queue that no other thread polls; at most [`BURST`]. `split`: 0, or the bytes
    /// of a frame that lie in a first buffer; frames that lie otherwise are freed and counted.
    pub fn twd_rx_burst(
        port: u16,
        queue: u16,
        out: *mut Packet,
        room: u16,
        split: u16,
        segmented: *mut u64,
    ) -> u16;
    /// Address and bytes of the second part of a frame; 0 for a frame of one part.
    pub fn twd_second(mbuf: *const c_void, len: *mut u32) -> u64;
    /// Gives mbufs back to their pools, whichever these are.
    pub fn twd_free_bulk(mbufs: *mut *mut c_void, count: u32);
    /// All of them or none.
    pub fn twd_alloc_bulk(pool: *mut c_void, mbufs: *mut *mut c_void, count: u32) -> c_int;
    /// Makes an empty mbuf hold `len` bytes, and says where; null where they do not fit.
    pub fn twd_append(mbuf: *mut c_void, len: u16) -> *mut u8;
    /// Cuts bytes off the front of an mbuf of one segment that has more.
    pub fn twd_cut(mbuf: *mut c_void, len: u16);
    /// Hands frames to a queue that no other thread sends on: how many it took, from the front.
    pub fn twd_tx_burst(port: u16, queue: u16, mbufs: *mut *mut c_void, count: u16) -> u16;
    /// Where an mbuf holds the time it was received at, and the flag that says that it does.
    pub fn twd_timestamp_field(offset: *mut c_int, flag: *mut u64) -> c_int;
    /// That time, in ticks of the device.
    pub fn twd_timestamp(mbuf: *const c_void, offset: c_int, flag: u64, ticks: *mut u64) -> c_int;

    /// Counts what the driver of a port reports, from now on.
    pub fn twd_events_watch(port: u16, events: *const Events) -> c_int;
    /// No more. The counters must stay until this has returned 0; an error that is `EAGAIN` says
    /// that one is being counted.
    pub fn twd_events_forget(port: u16, events: *const Events) -> c_int;

    /// Bytes of [`FlowRule`] on the other side.
    pub fn twd_flow_rule_bytes() -> u32;
    /// Only what rules match reaches the queues, or everything again.
    pub fn twd_flow_isolate(port: u16, on: c_int) -> c_int;
    /// Makes a rule; the driver's own words where it does not.
    pub fn twd_flow_create(
        port: u16,
        rule: *const FlowRule,
        flow: *mut *mut c_void,
        message: *mut c_char,
        room: usize,
    ) -> c_int;
    /// Takes a rule away.
    pub fn twd_flow_destroy(port: u16, flow: *mut c_void) -> c_int;
}

/// The data of an mbuf: where it begins, and how many bytes of it lie together.
///
/// # Safety
///
/// `mbuf` is an mbuf that the caller holds, as a burst or an allocation gave it and nothing took it
/// back since.
#[must_use]
#[inline]
pub unsafe fn mbuf_data(mbuf: *const c_void) -> (*mut u8, usize) {
    let head: *const u8 = mbuf.cast();
    // SAFETY: an mbuf is at least two cache lines long, so the place is inside it.
    let buffer = unsafe { head.add(MBUF_BUF_ADDR) };
    // SAFETY: that is where an mbuf holds the address of its buffer (asserted by the shim).
    let buffer = unsafe { buffer.cast::<*mut u8>().read() };
    // SAFETY: as above.
    let offset = unsafe { head.add(MBUF_DATA_OFF) };
    // SAFETY: 16 bits, aligned, written by the driver before it handed the mbuf over.
    let offset = unsafe { offset.cast::<u16>().read() };
    // SAFETY: as above.
    let len = unsafe { head.add(MBUF_DATA_LEN) };
    // SAFETY: 16 bits, aligned, written by the driver before it handed the mbuf over.
    let len = unsafe { len.cast::<u16>().read() };
    // Wrapping: the buffer may be no memory of this CPU, of which only the address counts.
    (buffer.wrapping_add(usize::from(offset)), usize::from(len))
}
