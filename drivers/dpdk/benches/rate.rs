//! How many packets a second of one core goes through, received, checked and placed, and sent, in
//! one thread, beside `dpdk-testpmd` on the same device (`ci/dpdk-rate.sh` runs both).
//!
//!     rate ring|memif|af_packet none|cpu pass|send [SECONDS]
//!
//! `none`: the reorder stage does nothing, and the pool knows that no payload is read here, as
//! where a GPU reorders; `cpu`: it converts every payload into its batch. `pass`: what was placed
//! is sent on in its buffer with its next sequence number, as testpmd sends on what it received;
//! `send`: buffers go back to their pool, and a sender takes others, as in a run. Batches go to an
//! inference that does nothing. `af_packet` is for the interfaces twr0 and twr1, joined. Prints
//! packets per second of CPU time, and of the clock.
#![allow(unsafe_code)] // the CPU time of a thread
#![expect(clippy::print_stdout, reason = "the figures are for people and scripts")]

#[cfg(not(has_dpdk))]
fn main() {
    println!("skipped: built without DPDK (cargo bench -p tensorwire-dpdk --features dpdk)");
}

#[cfg(has_dpdk)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    measured::run()
}

#[cfg(has_dpdk)]
mod measured {
    use std::error::Error;
    use std::ptr::{self, NonNull};
    use std::time::{Duration, Instant};

    use tensorwire_core::bits::BitField;
    use tensorwire_core::burst::{Burst, BurstPool, Filling, PacketDesc};
    use tensorwire_core::counters::NicStats;
    use tensorwire_core::flow::{FlowMatch, FlowTable};
    use tensorwire_core::geometry::{Geometry, GeometrySpec};
    use tensorwire_core::header::{HeaderSpec, PacketCheck, Verify, build};
    use tensorwire_core::limits::MAX_POLL;
    use tensorwire_core::memory::MemoryKind;
    use tensorwire_core::pipeline::Link;
    use tensorwire_core::pipeline::consumer::Consumer;
    use tensorwire_core::pipeline::producer::{
        Backpressure, MissingPolicy, Producer, ProducerConfig,
    };
    use tensorwire_core::port::{
        Delivery, Event, Outputs, PacketMemory, Reorder, RxQueue, Sink, SinkFault, StageError,
        TxQueue,
    };
    use tensorwire_core::time::Nanos;
    use tensorwire_core::window::SlotMap;
    use tensorwire_dpdk::{
        Buffers, DpdkNic, DpdkRx, DpdkTx, FlowPlan, HostMemory, HostPages, NicConfig, Pages,
        PortAddress, RxConfig, TxConfig,
    };
    use tensorwire_dpdk_sys as sys;
    use tensorwire_kernels::{Conversion, Kernel};
    use tensorwire_sim::infer::NullInfer;
    use tensorwire_sim::pool::BatchMemory;
    use tensorwire_sim::reorder::CpuReorder;

    const FLOW: FlowMatch = FlowMatch::any(1);
    const RING: u16 = 1024;
    const BUFFERS: u32 = 8191;
    /// Frames under way at most: as many as testpmd has, so that what lies in a cache for the one
    /// does for the other.
    const UNDER_WAY: u64 = 128;
    const BATCHES: usize = 8;

    /// No reorder: payloads are found and left alone.
    struct Nothing;

    impl Reorder for Nothing {
        fn place<M: PacketMemory>(
            &mut self,
            _: &mut Burst<Filling>,
            _: u32,
            _: &mut PacketDesc,
            _: &M,
        ) {
        }

        fn start(&mut self, _: &mut Burst<Filling>, _: SlotMap<'_>) -> Result<Event, StageError> {
            Ok(Event::DONE)
        }

        fn abandon(&mut self, _: &mut Burst<Filling>) {}

        fn poll_done(&mut self, _: &mut [PacketDesc]) -> usize {
            0
        }
    }

    /// Memory whose payloads this CPU does not read: it calls itself what a GPU's driver lends.
    #[derive(Debug)]
    struct ForGpu(HostPages);

    // SAFETY: the promise of `HostPages`, which it hands on.
    unsafe impl HostMemory for ForGpu {
        fn base(&self) -> NonNull<u8> {
            self.0.base()
        }

        fn len(&self) -> usize {
            self.0.len()
        }

        fn kind(&self) -> MemoryKind {
            MemoryKind::HostPinned
        }
    }

    /// Who gets what the receive loop is done with, and what is sent.
    trait Way {
        /// Sends what is to be sent.
        fn send(&mut self, rx: &DpdkRx<'_>, tx: &mut DpdkTx<'_>, frames: &mut Frames);

        /// Takes what the loop is done with.
        fn release(&mut self, rx: &mut DpdkRx<'_>, packets: &mut [PacketDesc]);

        /// Buffers that can be received into.
        fn free_buffers(&self, rx: &DpdkRx<'_>) -> usize;
    }

    /// Buffers go back to their pool, and the sender takes others.
    struct Sending {
        sent: u64,
    }

    impl Way for Sending {
        fn send(&mut self, rx: &DpdkRx<'_>, tx: &mut DpdkTx<'_>, frames: &mut Frames) {
            self.sent += frames.send(tx, UNDER_WAY.saturating_sub(self.sent - rx.received()));
        }

        fn release(&mut self, rx: &mut DpdkRx<'_>, packets: &mut [PacketDesc]) {
            rx.release(packets);
        }

        fn free_buffers(&self, rx: &DpdkRx<'_>) -> usize {
            rx.free_buffers()
        }
    }

    /// What was placed is sent on in its own buffer, as io of testpmd does, with its next number.
    struct Passing {
        /// The port that sends.
        port: u16,
        field: BitField,
        number: u32,
        sent: u64,
    }

    impl Way for Passing {
        /// The first frames; they go round.
        fn send(&mut self, _: &DpdkRx<'_>, tx: &mut DpdkTx<'_>, frames: &mut Frames) {
            if self.sent < UNDER_WAY {
                self.sent += frames.send(tx, UNDER_WAY - self.sent);
                self.number = frames.number;
            }
        }

        fn release(&mut self, _: &mut DpdkRx<'_>, packets: &mut [PacketDesc]) {
            for group in packets.chunks_mut(sys::BURST) {
                let mut mbufs = [ptr::null_mut(); sys::BURST];
                let mut count = 0;
                for packet in group.iter_mut().filter(|packet| !packet.is_none()) {
                    let handle = usize::try_from(packet.take().handle()).unwrap_or(0);
                    mbufs[count] = ptr::with_exposed_provenance_mut(handle);
                    // SAFETY: an mbuf that a burst gave us and whose one token was just consumed.
                    let (data, len) = unsafe { sys::mbuf_data(mbufs[count]) };
                    // SAFETY: the driver wrote `len` bytes there, and the mbuf is ours alone.
                    let frame = unsafe { std::slice::from_raw_parts_mut(data, len) };
                    let _ = self.field.write(frame, self.number);
                    self.number = self.number.wrapping_add(1) & self.field.max();
                    count += 1;
                }
                // At most 64.
                let count = u16::try_from(count).unwrap_or(0);
                // SAFETY: the port runs; its queue is used by this thread only; the mbufs are ours.
                let sent = unsafe { sys::twd_tx_burst(self.port, 0, mbufs.as_mut_ptr(), count) };
                // 128 go round in a ring of 1024. A loss would show: the next number is missing.
                assert_eq!(sent, count, "the device takes what it holds at most");
            }
        }

        /// What goes round has left the pool.
        fn free_buffers(&self, _: &DpdkRx<'_>) -> usize {
            BUFFERS as usize - usize::try_from(UNDER_WAY).unwrap_or(0)
        }
    }

    /// The receiving end, with who gets what it has received.
    struct End<'p, W> {
        rx: DpdkRx<'p>,
        way: W,
    }

    impl<W> PacketMemory for End<'_, W> {
        #[inline]
        fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
            self.rx.bytes(packet)
        }

        #[inline]
        fn prefetch(&self, packet: &PacketDesc) {
            self.rx.prefetch(packet);
        }
    }

    impl<W: Way> RxQueue for End<'_, W> {
        fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
            self.rx.rx_burst(out)
        }

        fn release(&mut self, packets: &mut [PacketDesc]) {
            self.way.release(&mut self.rx, packets);
        }

        fn free_buffers(&self) -> usize {
            self.way.free_buffers(&self.rx)
        }

        fn stats(&self) -> NicStats {
            self.rx.stats()
        }
    }

    /// Counts batches.
    struct Count(u64);

    impl Sink for Count {
        fn deliver(&mut self, delivery: &Delivery, _: Outputs<'_>) -> Result<(), SinkFault> {
            self.0 += u64::from(delivery.whole.count());
            Ok(())
        }
    }

    fn devices(kind: &str) -> Option<[PortAddress; 2]> {
        let named = |text: String| PortAddress::Virtual(text);
        let socket = std::env::temp_dir().join(format!("tw-rate-{}.sock", std::process::id()));
        let memif = |number: u32, role: &str| {
            named(format!(
                "net_memif{number},role={role},id=0,rsize=10,bsize=2048,socket={},\
                 socket-abstract=no",
                socket.display()
            ))
        };
        match kind {
            "ring" => Some([named("net_ring0".to_owned()), named("net_ring0".to_owned())]),
            "af_packet" => {
                Some(["twr0", "twr1"].map(|name| PortAddress::Interface(name.to_owned())))
            }
            "memif" => Some([memif(0, "server"), memif(1, "client")]),
            _ => None,
        }
    }

    fn ports(kind: &str, geometry: &Geometry) -> Option<NicConfig> {
        let [rx, tx] = devices(kind)?;
        let frame_bytes = geometry.frame_bytes();
        let buffers = Buffers { count: BUFFERS, frame_bytes, room_bytes: 0, pages: Pages::Plain };
        let flows = FlowPlan { flows: vec![FLOW], outer: vec![], isolation: false };
        Some(NicConfig {
            rx: Some(RxConfig {
                port: rx,
                buffers,
                ring: RING,
                flows,
                timestamps: false,
                on_device: None,
            }),
            tx: Some(TxConfig { port: tx, buffers, ring: RING, eth_src: false, flows: vec![] }),
        })
    }

    fn settings(geometry: &Geometry) -> Result<ProducerConfig, Box<dyn Error>> {
        let mut flows = FlowTable::new();
        flows.push(&FLOW).map_err(|error| format!("{error:?}"))?;
        Ok(ProducerConfig {
            geometry: *geometry,
            check: PacketCheck::new(geometry, &flows, Verify::None, false),
            windows: 2,
            timeout: Nanos::ZERO,
            missing: MissingPolicy::Passthrough,
            backpressure: Backpressure::Block,
            poll: MAX_POLL,
            rx_ring: RING.into(),
            startup_wait: Nanos::from_secs(60),
            quiesce_wait: Nanos::from_secs(60),
            owed_images: None,
            time_limit: None,
        })
    }

    /// Fills the buffers of frames, then changes their numbers only.
    struct Frames {
        template: Vec<u8>,
        geometry: Geometry,
        number: u32,
    }

    impl Frames {
        fn new(geometry: Geometry) -> Result<Self, Box<dyn Error>> {
            let mut template = vec![7; geometry.frame_bytes()];
            let spec = HeaderSpec {
                eth_src: [2, 0, 0, 0, 0, 1],
                eth_dst: [2, 0, 0, 0, 0, 2],
                ip_src: [10, 0, 0, 1],
                ip_dst: [10, 0, 0, 2],
                udp_src: 4096,
                udp_dst: 4096,
            };
            build(&spec, &mut template)?;
            Ok(Self { template, geometry, number: 0 })
        }

        /// Sends until `under_way` frames are; how many.
        fn send(&mut self, tx: &mut DpdkTx<'_>, room: u64) -> u64 {
            let field = self.geometry.seq_field();
            let mut sent = 0;
            while sent < room {
                let (template, number) = (&self.template, self.number);
                let fill = |frame: &mut [u8]| {
                    // A buffer that was never used is zero.
                    if frame.get(12) == Some(&0) {
                        frame.copy_from_slice(template);
                    }
                    let _ = field.write(frame, number);
                };
                if tx.send(self.template.len(), fill).is_err() {
                    break;
                }
                self.number = self.number.wrapping_add(1) & field.max();
                sent += 1;
            }
            tx.flush();
            sent
        }
    }

    fn cpu_time() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is ours to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        let whole = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(whole, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Packets per second of CPU time, and of the clock.
    fn rate<W: Way, R: Reorder>(
        (mut tx, rx): (DpdkTx<'_>, End<'_, W>),
        (geometry, pool, reorder): (Geometry, BurstPool, R),
        seconds: u64,
    ) -> Result<(f64, f64), Box<dyn Error>> {
        let mut link = Box::new(Link::new());
        let (producer_end, consumer_end) =
            link.split(BATCHES, BATCHES).map_err(|error| error.to_string())?;
        let mut backlog = Vec::new();
        backlog.resize_with(BUFFERS as usize + MAX_POLL, PacketDesc::default);
        let config = settings(&geometry)?;
        let mut producer = Producer::new(config, rx, reorder, pool, producer_end, &mut backlog);
        let images = geometry.images_per_batch();
        let infer = NullInfer::default();
        let mut consumer = Consumer::new(consumer_end, infer, Count(0), images, images);
        let mut frames = Frames::new(geometry)?;
        let begin = Instant::now();
        let now = || Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        producer.start(now());
        let mut mark = None;
        loop {
            let End { rx, way } = producer.rx_mut();
            let received = rx.received();
            way.send(rx, &mut tx, &mut frames);
            producer.step(now());
            consumer.step();
            // A second to fill the buffers and to join the two ends.
            match mark {
                None if begin.elapsed() > Duration::from_secs(1) => {
                    mark = Some((received, cpu_time(), Instant::now()));
                }
                Some((before, cpu, clock)) if clock.elapsed() > Duration::from_secs(seconds) => {
                    let packets = u32::try_from(received - before).map_err(|_| "too many")?;
                    let report = producer.report();
                    if report.packets.placed + report.packets.held != report.packets.offered {
                        return Err(format!("not all were placed: {:?}", report.packets).into());
                    }
                    let cpu = (cpu_time() - cpu).as_secs_f64();
                    return Ok((
                        f64::from(packets) / cpu,
                        f64::from(packets) / clock.elapsed().as_secs_f64(),
                    ));
                }
                _ => {}
            }
        }
    }

    /// Measures with or without a reorder.
    fn measure<W: Way>(
        ends: (DpdkTx<'_>, End<'_, W>),
        geometry: Geometry,
        reorder: &str,
        seconds: u64,
    ) -> Result<(f64, f64), Box<dyn Error>> {
        let pool = BurstPool::new(BATCHES).map_err(|error| error.to_string())?;
        if reorder == "none" {
            return rate(ends, (geometry, pool, Nothing), seconds);
        }
        let kernel = Kernel::new(Conversion::Int8ToFp16);
        let memory = BatchMemory::new(&pool, geometry.batch_bytes(), kernel)?;
        let stage = CpuReorder::at_placement(&geometry, &memory)?;
        rate(ends, (geometry, pool, stage), seconds)
    }

    pub(crate) fn run() -> Result<(), Box<dyn Error>> {
        let words: Vec<String> =
            std::env::args().skip(1).filter(|word| word != "--bench").collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let usage = "rate ring|memif|af_packet none|cpu pass|send [SECONDS]";
        let (&[kind, reorder @ ("none" | "cpu"), way @ ("pass" | "send")], rest) =
            words.split_first_chunk().ok_or(usage)?
        else {
            return Err(usage.into());
        };
        let seconds = rest.first().map_or(Ok(5), |text| text.parse())?;
        let spec =
            GeometrySpec { seq_bit_offset: 336, seq_bit_width: 16, ..GeometrySpec::DOCUMENTED };
        let geometry = Geometry::new(&spec).map_err(|error| format!("{error:?}"))?;
        let config = ports(kind, &geometry).ok_or(usage)?;
        let lent: Option<Box<dyn HostMemory>> = if reorder == "none" {
            Some(Box::new(ForGpu(HostPages::plain(config.rx_storage_bytes()?)?)))
        } else {
            None
        };
        let mut nic = DpdkNic::open(&config, vec![0, 1], lent.map(Into::into))?;
        nic.start()?;
        let port = nic.ports().last().ok_or("no port")?.number();
        let (tx, rx) = nic.split();
        let (tx, (rx, _)) = (tx.ok_or("no sender")?, rx.ok_or("no receiver")?);
        let (cpu, wall) = match way {
            "pass" => {
                let field = geometry.seq_field();
                let way = Passing { port, field, number: 0, sent: 0 };
                measure((tx, End { rx, way }), geometry, reorder, seconds)?
            }
            _ => {
                let way = Sending { sent: 0 };
                measure((tx, End { rx, way }), geometry, reorder, seconds)?
            }
        };
        println!("{kind} {reorder} {way} {cpu:.0} {wall:.0}");
        Ok(())
    }
}
