//! The queue over a stand-in for the kernel, which brings the headers when it is asked for the
//! event, some polls later.
#![allow(unsafe_code)] // a promise about where packets lie

use std::cell::Cell;
use std::rc::Rc;

use tensorwire_core::port::TxQueue;
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, TxMode};
use tensorwire_sim::pool::PacketView;

use super::*;

/// The buffers of a software NIC, as if they were on a GPU: the address is the number, plus one.
#[derive(Clone)]
struct Buffers(PacketView);

/// No byte of it is for the CPU to see.
impl PacketMemory for Buffers {
    fn bytes<'a>(&'a self, _: &'a PacketDesc) -> &'a [u8] {
        &[]
    }

    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        Some(Nanos(packet.len().into()))
    }
}

/// A queue that stamps packets: the time is the length.
struct Stamped<Q>(Q);

impl<Q: RxQueue> PacketMemory for Stamped<Q> {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.0.bytes(packet)
    }

    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        Some(Nanos(packet.len().into()))
    }
}

impl<Q: RxQueue> RxQueue for Stamped<Q> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        self.0.rx_burst(out)
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        self.0.release(packets);
    }

    fn free_buffers(&self) -> usize {
        self.0.free_buffers()
    }

    fn stats(&self) -> NicStats {
        self.0.stats()
    }

    /// Behind by one, so that it can be told from the default.
    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        Some(Nanos(now.0 - 1))
    }
}

// SAFETY: a buffer of the software NIC holds one packet at a time; the stand-in for the GPU follows
// no address.
unsafe impl DevicePackets for Buffers {
    fn buffers(&self) -> usize {
        self.0.buffers()
    }

    fn number(&self, packet: &PacketDesc) -> Option<usize> {
        self.0.number(packet)
    }

    fn address(&self, packet: &PacketDesc) -> Option<u64> {
        self.number(packet).map(|number| number as u64 + 1)
    }
}

/// What is in each buffer, and how late the device is.
#[derive(Default)]
struct Device {
    lag: Cell<u32>,
    fails: Cell<Option<u32>>,
    asked: Cell<u32>,
}

struct Fake {
    device: Rc<Device>,
    lists: Vec<Vec<u64>>,
    headers: Vec<Vec<u8>>,
    waits: Vec<(usize, u32)>,
}

impl Gather for Fake {
    fn list(&mut self, burst: usize) -> &mut [u64] {
        &mut self.lists[burst]
    }

    fn submit(&mut self, burst: usize, count: usize) -> Result<(), CudaError> {
        self.waits[burst] = (count, self.device.lag.get());
        Ok(())
    }

    fn done(&mut self, burst: usize) -> Result<bool, CudaError> {
        self.device.asked.set(self.device.asked.get() + 1);
        if let Some(code) = self.device.fails.take() {
            // Half of a header, or those of another burst: nothing of it may be seen.
            self.headers[burst].fill(0xab);
            return Err(CudaError { call: "cuEventQuery", code });
        }
        let (count, lag) = &mut self.waits[burst];
        if *lag > 0 {
            *lag -= 1;
            return Ok(false);
        }
        // The header of a packet says its buffer's address, in every byte.
        for (at, address) in self.lists[burst][..*count].iter().enumerate() {
            let byte = u8::try_from(*address).expect("a small pool");
            self.headers[burst][at * HEADER_BYTES..][..HEADER_BYTES].fill(byte);
        }
        Ok(true)
    }

    fn headers(&self, burst: usize) -> &[u8] {
        &self.headers[burst]
    }
}

fn nic() -> SwNic {
    let config = SwNicConfig {
        rx_bufs: 200,
        rx_buf_size: 256,
        rx_ring: 200,
        tx_bufs: 200,
        tx_buf_size: 300,
        tx_ring: 200,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    };
    SwNic::new(config).expect("small")
}

fn gather(device: &Rc<Device>) -> Fake {
    Fake {
        device: Rc::clone(device),
        lists: vec![vec![0; MAX_POLL]; BURSTS],
        headers: vec![vec![0; MAX_POLL * HEADER_BYTES]; BURSTS],
        waits: vec![(0, 0); BURSTS],
    }
}

#[test]
fn every_packet_comes_once_in_order_with_the_header_of_its_own_buffer() {
    for (lag, room) in [(0, 7), (1, 7), (3, 64), (5, 1), (2, 256)] {
        let device = Rc::new(Device::default());
        device.lag.set(lag);
        let mut nic = nic();
        let view = nic.packets();
        let (mut tx, rx) = nic.split();
        let mut queue = GatheredRx::new(rx, Buffers(view.clone()), gather(&device));
        let (mut sent, mut seen) = (0_u64, 0_u64);
        let mut held: VecDeque<PacketDesc> = VecDeque::new();
        for round in 0..400_u64 {
            for _ in 0..round % 6 {
                let number = sent;
                let fill = |f: &mut [u8]| f[..8].copy_from_slice(&number.to_le_bytes());
                sent += u64::from(tx.send(100 + (number % 3) as usize, fill).is_ok());
            }
            tx.flush();
            let mut out: Vec<PacketDesc> = Vec::new();
            out.resize_with(room, PacketDesc::default);
            let came = queue.rx_burst(&mut out);
            assert!(out[came..].iter().all(PacketDesc::is_none));
            for packet in out.drain(..came) {
                // The NIC's bytes say which frame it is; the header says which buffer.
                assert_eq!(view.bytes(&packet)[..8], seen.to_le_bytes(), "in order");
                held.push_back(packet);
                seen += 1;
            }
            // Headers stay while the packet does, whatever came after it, with the queue or
            // without.
            let apart = queue.view();
            for packet in &held {
                let address = view.number(packet).expect("ours") as u64 + 1;
                let byte = u8::try_from(address).expect("a small pool");
                assert_eq!(queue.bytes(packet), vec![byte; HEADER_BYTES]);
                assert_eq!(apart.bytes(packet), vec![byte; HEADER_BYTES]);
            }
            while held.len() > 20 {
                queue.release(&mut [held.pop_front().expect("some")]);
            }
        }
        // Who gets nothing may be sure that there was nothing.
        loop {
            let mut out = [const { PacketDesc::EMPTY }; 3];
            let came = queue.rx_burst(&mut out);
            seen += came as u64;
            held.extend(out.into_iter().take(came));
            if came == 0 {
                break;
            }
        }
        assert_eq!(seen, sent, "lag {lag}, room {room}");
        assert!(seen > 400);
        for packet in held {
            queue.release(&mut [packet]);
        }
        assert_eq!(queue.free_buffers(), 200);
    }
}

#[test]
fn a_frame_shorter_than_a_header_has_no_more_bytes_than_it_has() {
    let device = Rc::new(Device::default());
    let mut nic = nic();
    let view = nic.packets();
    let (mut tx, rx) = nic.split();
    let mut queue = GatheredRx::new(rx, Buffers(view), gather(&device));
    tx.send(20, |frame| frame.fill(1)).expect("sent");
    tx.flush();
    let mut out = [PacketDesc::EMPTY];
    assert_eq!(queue.rx_burst(&mut out), 1);
    assert_eq!(queue.bytes(&out[0]).len(), 20);
    let on_device = OnDevice(&queue.packets);
    let address = queue.packets.number(&out[0]).expect("ours") as u64 + 1;
    // Whatever the CPU sees of it.
    assert_eq!(on_device.frame(&out[0], &[]), Some((address, 20)));
    queue.release(&mut out);
}

#[test]
fn after_an_error_packets_come_without_their_headers_and_none_is_lost() {
    let device = Rc::new(Device::default());
    device.fails.set(Some(719));
    let mut nic = nic();
    let view = nic.packets();
    let (mut tx, rx) = nic.split();
    let mut queue = GatheredRx::new(rx, Buffers(view), gather(&device));
    let fault = queue.fault();
    assert_eq!(fault.get(), None);
    for _ in 0..2 {
        for _ in 0..10 {
            tx.send(100, |frame| frame.fill(1)).expect("sent");
        }
        tx.flush();
        let mut out = [const { PacketDesc::EMPTY }; 16];
        assert_eq!(queue.rx_burst(&mut out), 10);
        assert!(out[..10].iter().all(|packet| queue.bytes(packet) == [0; HEADER_BYTES]));
        queue.release(&mut out);
    }
    assert_eq!(queue.failed().map(|error| error.code), Some(719));
    assert_eq!(fault.get(), queue.failed(), "told to who looks on");
    assert_eq!(device.asked.get(), 1, "nothing more is asked of the device");
    assert_eq!(queue.free_buffers(), 200);
}

#[test]
fn what_the_nic_says_of_a_packet_is_passed_on() {
    let device = Rc::new(Device::default());
    let mut nic = nic();
    let view = nic.packets();
    let (mut tx, rx) = nic.split();
    let mut queue = GatheredRx::new(Stamped(rx), Buffers(view), gather(&device));
    tx.send(77, |frame| frame.fill(1)).expect("sent");
    tx.flush();
    let mut out = [PacketDesc::EMPTY];
    assert_eq!(queue.rx_burst(&mut out), 1);
    assert_eq!(queue.arrived(&out[0]), Some(Nanos(77)));
    assert_eq!(queue.view().arrived(&out[0]), Some(Nanos(77)));
    queue.release(&mut out);
}

/// A burst comes back short while the next one's headers are on their way: the NIC has handed over
/// packets that nobody has seen, and a deadline may not fire over them.
#[test]
fn packets_whose_headers_are_on_their_way_are_not_caught_up_with() {
    let device = Rc::new(Device::default());
    let mut nic = nic();
    let view = nic.packets();
    let (mut tx, rx) = nic.split();
    let mut queue = GatheredRx::new(Stamped(rx), Buffers(view), gather(&device));
    let mut send = || {
        tx.send(100, |frame| frame.fill(1)).expect("sent");
        tx.flush();
    };
    let mut out = [const { PacketDesc::EMPTY }; 16];
    send();
    queue.fetch();
    device.lag.set(1);
    send();
    assert_eq!(queue.rx_burst(&mut out), 1, "the other is on its way");
    assert_eq!(queue.caught_up(Nanos(9)), None);
    assert_eq!(queue.rx_burst(&mut out[1..]), 1);
    assert_eq!(queue.caught_up(Nanos(9)), Some(Nanos(8)), "the NIC's own word");
    queue.release(&mut out);
}

#[test]
fn what_was_not_handed_out_goes_back_when_the_queue_goes() {
    for (fails, lag) in [(None, 0), (None, 5), (Some(719), 0)] {
        let device = Rc::new(Device::default());
        let mut nic = nic();
        let view = nic.packets();
        let (mut tx, rx) = nic.split();
        let mut queue = GatheredRx::new(rx, Buffers(view), gather(&device));
        for _ in 0..20 {
            tx.send(100, |frame| frame.fill(1)).expect("sent");
        }
        tx.flush();
        device.lag.set(lag);
        let mut out = [const { PacketDesc::EMPTY }; 3];
        assert_eq!(queue.rx_burst(&mut out), 3);
        queue.release(&mut out);
        device.fails.set(fails);
        for _ in 0..7 {
            tx.send(100, |frame| frame.fill(1)).expect("sent");
        }
        tx.flush();
        queue.fetch();
        assert!(queue.free_buffers() < 200);
        drop(queue);
        assert_eq!(nic.split().1.free_buffers(), 200, "lag {lag}");
    }
}
