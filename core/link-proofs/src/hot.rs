//! Everything that runs per packet, per burst or per batch.

use tensorwire_core::bits::BitField;
use tensorwire_core::burst::{Burst, BurstPool, Free, PacketDesc};
use tensorwire_core::counters::{
    DroppedImages, ImageCounters, MalformedCounters, PacketCounters, PartialBy, RangeList,
    SlotCounters,
};
use tensorwire_core::flow::FlowTable;
use tensorwire_core::header::{self, PacketCheck, Refused, Verify};
use tensorwire_core::limits::{MAX_BATCH_BUFFERS, MAX_QUEUE_DEPTH, MAX_SPLIT};
use tensorwire_core::pipeline::Job;
use tensorwire_core::pipeline::consumer::Consumer;
use tensorwire_core::pipeline::poller::{Poller, SplitQueue};
use tensorwire_core::pipeline::producer::Producer;
use tensorwire_core::pipeline::transmitter::Transmitter;
use tensorwire_core::port::{PacketMemory, RxQueue};
use tensorwire_core::reassembly::Reassembly;
use tensorwire_core::ring::{Receiver, Sender};
use tensorwire_core::sequence::Position;
use tensorwire_core::sync::{Flag, Published};
use tensorwire_core::window::{ImageMask, SlotMap};

use crate::devices::Device;
use crate::{given, keep};

/// All of it.
#[inline(never)]
pub fn path() {
    header();
    window();
    ring::<PacketDesc, MAX_SPLIT>();
    ring::<Job, MAX_QUEUE_DEPTH>();
    ring::<Burst<Free>, MAX_BATCH_BUFFERS>();
    batch::<PacketDesc, MAX_SPLIT>();
    batch::<u64, 8>();
    batch::<[u64; 8], 8>();
    copies::<u64, 8>();
    copies::<[u64; 8], 8>();
    tokens();
    counters();
    signals();
    machines();
}

/// Checks of a frame, and the rewriting of one that is sent.
fn header() {
    keep(given::<&BitField>().read(given()));
    keep(given::<&BitField>().write(given(), given()));
    for verify in [Verify::None, Verify::Ip, Verify::Udp] {
        keep(header::classify(given(), given(), verify));
    }
    keep(given::<&FlowTable>().matches(given()));
    keep(given::<&PacketCheck>().check(given(), given(), given()));
    given::<Refused>().count(given());
    keep(header::set_sequence(given(), given(), given()));
    keep(header::mend_checksums(given()));
}

/// Where a packet belongs, and what follows from it.
fn window() {
    let position = given::<&mut Position>();
    keep(position.locate(given()));
    keep(position.within_step(given()));
    keep(position.read_forward(given()));
    keep(position.agree(given(), given()));
    keep(position.near(given(), given(), given()));
    position.accept(given());
    keep((position.next(), position.space(), position.step()));

    let reassembly = given::<&mut Reassembly<PacketDesc>>();
    keep(reassembly.place(given(), given()));
    keep(reassembly.accept(given(), given(), given()));
    keep((reassembly.is_due(), reassembly.next_action()));
    reassembly.unplace(given(), given());
    reassembly.tick(given());
    reassembly.relieve(given());
    reassembly.finish(given());
    keep((reassembly.deadline(), reassembly.held(), reassembly.join(), reassembly.next()));
    keep((reassembly.closed(), reassembly.counters(), reassembly.open_windows()));

    let slots: SlotMap<'_> = reassembly.slots(given());
    keep(slots.contains(given()));
    keep(slots.covered(given(), given()));
    slots.missing().for_each(keep);
    keep(slots.slots());

    let mask = given::<&mut ImageMask>();
    mask.insert(given());
    keep((mask.contains(given()), mask.count(), mask.is_empty(), mask.words()));
    keep(mask.window(given(), given()));
    mask.iter().for_each(keep);
    keep(ImageMask::first(given()));
}

/// Both ends of a ring, one item at a time.
fn ring<T: 'static, const SLOTS: usize>() {
    let tx = given::<&mut Sender<'static, T, SLOTS>>();
    keep(tx.push(given()));
    keep((tx.free(), tx.capacity()));
    let rx = given::<&mut Receiver<'static, T, SLOTS>>();
    keep(rx.pop());
    keep((rx.len(), rx.is_empty(), rx.capacity()));
}

/// Both ends of a ring, in batches.
fn batch<T: Default + 'static, const SLOTS: usize>() {
    keep(given::<&mut Sender<'static, T, SLOTS>>().push_batch(given()));
    keep(given::<&mut Receiver<'static, T, SLOTS>>().pop_batch(given()));
}

/// Batches that copy.
fn copies<T: Copy + 'static, const SLOTS: usize>() {
    keep(given::<&mut Sender<'static, T, SLOTS>>().push_slice(given()));
}

/// The life of a batch buffer and of a packet.
fn tokens() {
    let pool = given::<&mut BurstPool>();
    let Some(free) = pool.take() else { return };
    keep((free.index(), free.pool(), pool.free(), pool.buffers(), pool.id()));
    keep(pool.put(given::<Burst<Free>>().begin().abandon()));
    keep(pool.put(given::<Burst<Free>>().begin().seal().discard()));
    let in_flight = free.begin().seal().submit();
    let free = if given() {
        // SAFETY: there is no device, and the program is never run.
        unsafe { in_flight.abort() }
    } else {
        // SAFETY: there is no device, and the program is never run.
        unsafe { in_flight.retain().complete() }
    };
    keep(pool.put(free));
    // SAFETY: there is no NIC, and the program is never run.
    let mut packet = unsafe { PacketDesc::claim(given(), given(), given()) };
    keep((packet.handle(), packet.len(), packet.flow(), packet.is_none()));
    keep(packet.take());
}

/// Counting, and the sums that must balance.
fn counters() {
    keep(given::<&MalformedCounters>().total());
    keep((given::<&PacketCounters>().accounted(), given::<&PacketCounters>().balanced()));
    keep(given::<&SlotCounters>().balanced(given()));
    keep((given::<&PartialBy>().total(), given::<&DroppedImages>().total()));
    keep(given::<&ImageCounters>().expected());
    let ranges = given::<&mut RangeList>();
    ranges.add(given(), given());
    keep((ranges.as_slice(), ranges.truncated()));
}

/// What the threads tell each other.
fn signals() {
    let flag = given::<&Flag>();
    flag.set();
    keep(flag.get());
    let number = given::<&Published>();
    number.set(given());
    keep(number.get());
}

/// One step of each machine.
fn machines() {
    keep(given::<&mut Producer<'static, Device, Device>>().step(given()));
    keep(given::<&mut Producer<'static, SplitQueue<'static, Device>, Device>>().step(given()));
    keep(given::<&mut Consumer<'static, Device, Device>>().step());
    keep(given::<&mut Poller<'static, Device>>().step());
    keep(given::<&mut Transmitter<Device, Device>>().step(given()));
    let queue = given::<&mut SplitQueue<'static, Device>>();
    keep(queue.rx_burst(given()));
    queue.release(given());
    keep((queue.free_buffers(), queue.stats()));
    keep(queue.bytes(given()));
}
