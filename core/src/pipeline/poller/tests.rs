//! The poller alone, over a NIC that hands out numbers.

use std::boxed::Box;
use std::cell::Cell;
use std::collections::VecDeque;

use super::*;

/// What arrives, what is free, what was given back.
#[derive(Debug)]
struct Nic {
    arriving: VecDeque<u64>,
    free: usize,
    back: Vec<u64>,
    asked: Vec<usize>,
}

impl Nic {
    fn new(packets: u64) -> Self {
        Self { arriving: (0..packets).collect(), free: 100, back: Vec::new(), asked: Vec::new() }
    }
}

impl PacketMemory for Nic {
    fn bytes<'a>(&'a self, _: &'a PacketDesc) -> &'a [u8] {
        &[]
    }
}

impl RxQueue for Nic {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        self.asked.push(out.len());
        let count = out.len().min(self.arriving.len());
        for slot in &mut out[..count] {
            *slot = PacketDesc::fake(self.arriving.pop_front().expect("counted"), 64, 0);
        }
        self.free -= count;
        count
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        for packet in packets {
            assert!(!packet.is_none(), "a slot without a packet came back");
            self.back.push(packet.take().handle());
            self.free += 1;
        }
    }

    fn free_buffers(&self) -> usize {
        self.free
    }

    fn stats(&self) -> NicStats {
        NicStats { missed: 7, errors: 8, no_buffer: 9 }
    }
}

/// Memory that notes what it was asked for ahead of time.
#[derive(Debug, Default)]
struct Noting(Cell<u64>);

impl PacketMemory for Noting {
    fn bytes<'a>(&'a self, _: &'a PacketDesc) -> &'a [u8] {
        &[1, 2, 3]
    }

    fn prefetch(&self, packet: &PacketDesc) {
        self.0.set(packet.handle());
    }
}

fn taken<M: PacketMemory>(queue: &mut SplitQueue<'_, M>, room: usize) -> Vec<PacketDesc> {
    let mut out: Vec<PacketDesc> = (0..room).map(|_| PacketDesc::EMPTY).collect();
    let came = queue.rx_burst(&mut out);
    out.truncate(came);
    out
}

/// The rings of a link are made on the stack before they are boxed, and unoptimised more than once.
fn on_a_big_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(test);
    thread.expect("a thread").join().expect("the test passes");
}

fn handles(packets: &[PacketDesc]) -> Vec<u64> {
    packets.iter().map(PacketDesc::handle).collect()
}

#[test]
fn packets_pass_on_and_come_back_and_the_step_says_what_to_do() {
    on_a_big_stack(pass_on_and_come_back);
}

fn pass_on_and_come_back() {
    let mut link = Box::new(SplitLink::new());
    let (mut poller, mut queue) =
        link.split(Nic::new(5), Noting::default(), 3, 100).expect("legal");
    assert_eq!(queue.free_buffers(), 100, "before the first step too");
    // Three fit; the others wait in the NIC, which is not asked while there is no room.
    assert_eq!((poller.step(), poller.drained()), (Next::Again, false));
    assert_eq!((poller.step(), poller.drained()), (Next::Wait(None), false));
    assert_eq!(poller.rx().asked, [3]);
    assert_eq!(queue.free_buffers(), 97);
    assert_eq!(queue.stats(), NicStats { missed: 7, errors: 8, no_buffer: 9 });
    let mut first = taken(&mut queue, 8);
    assert_eq!(handles(&first), [0, 1, 2]);
    queue.prefetch(&first[1]);
    assert_eq!((queue.memory.0.get(), queue.bytes(&first[0])), (1, &[1, 2, 3][..]));
    // One of them is kept: its slot is empty, and nothing goes back for it.
    let kept = first[1].take();
    queue.release(&mut first);
    assert_eq!(queue.free_buffers(), 99, "those on their way back are free");
    assert_eq!((poller.under_way(), queue.shared.free.get()), ((0, 2), 97));
    // Given back and new ones in the same step, fewer than there is room for.
    assert_eq!((poller.step(), poller.drained()), (Next::Again, true));
    assert_eq!(poller.under_way(), (2, 0));
    assert_eq!((poller.rx().back.as_slice(), queue.free_buffers()), (&[0, 2][..], 97));
    // Given back and nothing new is work, too.
    let mut rest = taken(&mut queue, 8);
    rest.push(kept);
    assert_eq!(handles(&rest), [3, 4, 1]);
    queue.release(&mut rest);
    assert_eq!((poller.step(), poller.drained()), (Next::Again, true));
    assert_eq!((poller.step(), poller.drained()), (Next::Wait(None), true));
    assert_eq!(queue.free_buffers(), 100);
}

#[test]
fn an_end_waits_for_what_was_released() {
    on_a_big_stack(wait_for_what_was_released);
}

fn wait_for_what_was_released() {
    let mut link = Box::new(SplitLink::new());
    let (mut poller, mut queue) =
        link.split(Nic::new(9), Noting::default(), 4, 100).expect("legal");
    assert_eq!(poller.step(), Next::Again);
    let mut packets = taken(&mut queue, 2);
    queue.release(&mut packets);
    queue.close();
    // What came back is handed over, nothing is asked for any more, and then it is done.
    assert_eq!((poller.step(), poller.drained()), (Next::Again, false));
    assert_eq!((poller.step(), poller.drained()), (Next::Done, false));
    let Nic { asked, back, .. } = poller.rx();
    assert_eq!((asked.as_slice(), back.as_slice()), (&[4][..], &[0, 1][..]));
}

#[test]
fn a_producer_that_goes_without_a_word_ends_the_poller() {
    on_a_big_stack(go_without_a_word);
}

fn go_without_a_word() {
    let mut link = Box::new(SplitLink::<MAX_SPLIT>::new());
    let (mut poller, queue) = link.split(Nic::new(0), Nic::new(0), 64, 100).expect("legal");
    assert_eq!(poller.step(), Next::Wait(None));
    drop(queue);
    assert_eq!(poller.step(), Next::Done);
}

#[test]
fn the_sender_is_done_once_the_nic_was_empty_after_it() {
    on_a_big_stack(done_once_the_nic_was_empty);
}

fn done_once_the_nic_was_empty() {
    let mut link = Box::new(SplitLink::new());
    let (mut poller, mut queue) =
        link.split(Nic::new(4), Noting::default(), 4, 100).expect("legal");
    let (sent, signals) = (Flag::new(), Signals::new());
    assert_eq!(
        (poller.step_until(&sent, &signals), signals.sender_done.get()),
        (Next::Again, false)
    );
    sent.set();
    // The ring is full: the NIC is not asked, and may hold more.
    assert_eq!(
        (poller.step_until(&sent, &signals), signals.sender_done.get()),
        (Next::Wait(None), false)
    );
    let _ = taken(&mut queue, 4);
    let _ = poller.step_until(&sent, &signals);
    assert!(signals.sender_done.get());
}

/// C27: an empty ring says nothing while the poller stands still, and two looks at the NIC say no
/// more than up to when the producer had looked before them.
#[test]
fn c27_an_empty_ring_proves_what_the_poller_has_seen() {
    on_a_big_stack(proves_what_the_poller_has_seen);
}

fn proves_what_the_poller_has_seen() {
    let mut link = Box::new(SplitLink::new());
    let (mut poller, mut queue) =
        link.split(Nic::new(2), Noting::default(), 4, 100).expect("legal");
    let mut look = |poller: &mut Poller<'_, Nic>, steps: usize, at: u64| {
        for _ in 0..steps {
            let _ = poller.step();
        }
        let _ = taken(&mut queue, 8);
        queue.caught_up(Nanos(at))
    };
    // Nothing was seen; one look that may have begun before; two.
    assert_eq!(look(&mut poller, 0, 100), None);
    assert_eq!(look(&mut poller, 1, 200), None);
    assert_eq!(look(&mut poller, 1, 300), Some(Nanos::ZERO), "it had not looked before");
    // The poller stalls for as long as it likes.
    assert_eq!(look(&mut poller, 0, 5_000), None);
    assert_eq!(look(&mut poller, 3, 6_000), Some(Nanos(300)));
    assert_eq!(look(&mut poller, 2, 6_100), Some(Nanos(6_000)));
    // A clock that steps back proves nothing of what is to come.
    assert_eq!(look(&mut poller, 2, 50), Some(Nanos(50)));
    // A poll that brings as much as there is room for shows no end.
    poller.rx.arriving = (0..9).collect();
    assert_eq!(look(&mut poller, 1, 7_000), None);
    assert_eq!(look(&mut poller, 1, 7_001), None);
    assert_eq!(look(&mut poller, 1, 7_002), None, "the first that is short");
    assert_eq!(look(&mut poller, 1, 7_003), Some(Nanos(50)));
}

/// A run that is stopped: the NIC gets every buffer back.
#[test]
fn what_is_on_its_way_when_both_have_ended_goes_back() {
    on_a_big_stack(|| {
        let mut link = SplitLink::new();
        let (mut poller, mut queue) =
            link.split(Nic::new(60), Noting::default(), 32, 100).expect("legal");
        assert_eq!(poller.step(), Next::Again);
        let mut came = taken(&mut queue, 10);
        queue.release(&mut came[..4]);
        assert_eq!(poller.under_way(), (22, 4));
        queue.close();
        poller.reclaim(&mut queue);
        assert_eq!(poller.under_way(), (0, 0));
        // 32 were received, of which 6 are still with the producer.
        assert_eq!((poller.rx().back.len(), poller.rx().free), (26, 94));
    });
}
