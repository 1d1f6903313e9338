//! Must link: the public functions of core, all of them, without an allocator. They may panic.
//!
//! `run.sh` compares the list with the sources and names what is not here.
#![no_std]
#![no_main]

use core::fmt::{Debug, Display};
use core::hint::black_box;

use tensorwire_core::bits::{BitField, BitFieldError};
use tensorwire_core::burst::{
    Burst, BurstPool, Filling, Free, InFlight, PacketDesc, PoolError, Ready, Retained, WrongPool,
};
use tensorwire_core::counters::{
    DroppedImages, ImageCounters, MalformedCounters, PacketCounters, PartialBy, RangeList,
    SlotCounters,
};
use tensorwire_core::flow::{FlowMatch, FlowTable, FlowTableError, PortRange, PortRangeError};
use tensorwire_core::geometry::{
    self, Declared, ElementType, Geometry, GeometrySpec, Overlap, Pools, Violation, Violations,
};
use tensorwire_core::outer::{Outer, TunnelKind};
use tensorwire_core::header::{self, BuildError, PacketCheck, Refused, Reject};
use tensorwire_core::ledger::{Census, Ledger, LedgerError, Move, TransitionError};
use tensorwire_core::limits::MAX_SPLIT;
use tensorwire_core::memory::MemoryKind;
use tensorwire_core::pipeline::consumer::{Consumer, ConsumerFailure};
use tensorwire_core::pipeline::interrupt::on_signal;
use tensorwire_core::pipeline::poller::{Poller, SplitLink, SplitQueue};
use tensorwire_core::pipeline::producer::Producer;
use tensorwire_core::pipeline::transmitter::{TransmitEnd, Transmitter};
use tensorwire_core::pipeline::{ConsumerEnd, Link, ProducerEnd};
use tensorwire_core::port::{self, SendError, SinkFault, StageError};
use tensorwire_core::reassembly::{Busy, Reassembly};
use tensorwire_core::ring::{CapacityError, Full, Receiver, Ring, Sender};
use tensorwire_core::sequence::Position;
use tensorwire_core::sync::{Flag, Published, Rounds};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::{ImageMask, SlotMap};
use tensorwire_link_proofs::devices::Device;
use tensorwire_link_proofs::{given, hot};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Links functions without a call: their addresses are used.
macro_rules! link {
    ($($function:expr),* $(,)?) => { $( black_box($function as *const ()); )* };
}

/// Links what a type prints.
macro_rules! print {
    ($($shown:ty),* $(,)?) => { link!($(<$shown as Debug>::fmt, <$shown as Display>::fmt),*) };
}

/// The entry point.
#[unsafe(no_mangle)]
pub extern "C" fn _start() {
    hot::path();
    frames();
    shapes();
    positions();
    buffers();
    counts();
    machines();
    texts();
}

fn frames() {
    link!(
        BitField::new,
        BitField::offset_bits,
        BitField::width_bits,
        BitField::end_bits,
        BitField::first_byte,
        BitField::end_byte,
        BitField::max,
        BitField::read,
        BitField::write,
        header::classify,
        header::build,
        header::set_sequence,
        header::mend_checksums,
        Outer::grows,
        Outer::header_bytes,
        Outer::put,
        Outer::take_off,
        TunnelKind::bridges,
        PacketCheck::new,
        PacketCheck::check,
        Refused::count,
        Refused::name,
        FlowMatch::any,
        FlowTable::new,
        FlowTable::push,
        FlowTable::matches,
        FlowTable::len,
        FlowTable::is_empty,
        FlowTable::matches_ipv4_len,
        PortRange::new,
        PortRange::single,
        PortRange::first,
        PortRange::last,
    );
}

fn shapes() {
    link!(
        MemoryKind::word,
        MemoryKind::on_host,
        ElementType::bits,
        ElementType::bytes,
        ElementType::name,
        ElementType::from_name,
        GeometrySpec::violations,
        GeometrySpec::check,
        GeometrySpec::check_pools,
        Geometry::new,
        Geometry::check,
        Geometry::spec,
        Geometry::elements_per_image,
        Geometry::packets_per_image,
        Geometry::images_per_batch,
        Geometry::packets_per_batch,
        Geometry::payload_bytes,
        Geometry::payload_offset,
        Geometry::frame_bytes,
        Geometry::slot_stride,
        Geometry::image_bytes,
        Geometry::batch_bytes,
        Geometry::seq_field,
        Geometry::sequence_space,
        Geometry::batches_in_sequence_space,
        Geometry::step,
        Geometry::confirmations,
        Geometry::largest_placed_burst,
        Geometry::minimum_rate_bps,
        Geometry::overlaps,
        Geometry::sub_batches_aligned,
        Overlap::of,
        Overlap::effect,
        Overlap::name,
        Overlap::consequence,
        Pools::check,
        Pools::output_floor,
        Pools::retained_floor,
        geometry::queue_region_floor,
        geometry::nearest_payloads,
        Violation::code,
        Violations::new,
        Violations::push,
        Violations::extend,
        Violations::is_empty,
        Violations::len,
        Violations::iter,
        <Declared as Debug>::fmt,
        <Pools as Debug>::fmt,
    );
    given::<&Geometry>().overlaps().for_each(tensorwire_link_proofs::keep);
}

fn positions() {
    link!(
        Position::new,
        Position::next,
        Position::space,
        Position::step,
        Position::locate,
        Position::within_step,
        Position::read_forward,
        Position::agree,
        Position::near,
        Position::accept,
        Reassembly::<PacketDesc>::new,
        Reassembly::<PacketDesc>::counters,
        Reassembly::<PacketDesc>::held,
        Reassembly::<PacketDesc>::join,
        Reassembly::<PacketDesc>::next,
        Reassembly::<PacketDesc>::closed,
        Reassembly::<PacketDesc>::slots,
        Reassembly::<PacketDesc>::open_windows,
        Reassembly::<PacketDesc>::deadline,
        Reassembly::<PacketDesc>::place,
        Reassembly::<PacketDesc>::accept,
        Reassembly::<PacketDesc>::is_due,
        Reassembly::<PacketDesc>::next_action,
        Reassembly::<PacketDesc>::unplace,
        Reassembly::<PacketDesc>::tick,
        Reassembly::<PacketDesc>::relieve,
        Reassembly::<PacketDesc>::finish,
        SlotMap::new,
        SlotMap::contains,
        SlotMap::slots,
        SlotMap::covered,
        SlotMap::missing,
        ImageMask::first,
        ImageMask::insert,
        ImageMask::contains,
        ImageMask::words,
        ImageMask::count,
        ImageMask::is_empty,
        ImageMask::window,
        ImageMask::iter,
        Nanos::from_micros,
        Nanos::from_millis,
        Nanos::from_secs,
        Nanos::since,
        Nanos::plus,
        Nanos::as_secs_f64,
    );
}

fn buffers() {
    link!(
        PacketDesc::claim,
        PacketDesc::handle,
        PacketDesc::len,
        PacketDesc::flow,
        PacketDesc::is_none,
        PacketDesc::take,
        Burst::<Free>::index,
        Burst::<Free>::pool,
        Burst::<Free>::begin,
        Burst::<Filling>::seal,
        Burst::<Filling>::abandon,
        Burst::<Ready>::submit,
        Burst::<Ready>::discard,
        Burst::<InFlight>::retain,
        Burst::<InFlight>::abort,
        Burst::<Retained>::complete,
        BurstPool::new,
        BurstPool::id,
        BurstPool::buffers,
        BurstPool::free,
        BurstPool::take,
        BurstPool::put,
        tensorwire_core::burst::SlotState::next,
        Census::add,
        Census::of,
        Census::total,
        Ledger::new,
        Ledger::record,
        Ledger::see::<Ready>,
        Ledger::entry,
        Ledger::buffers_in,
        Ledger::census,
        Ledger::check,
        <Move as Debug>::fmt,
        Ring::<u64, 8>::new,
        Ring::<u64, 8>::split,
        core::ptr::drop_in_place::<Ring<Full<u64>, 8>>,
        Sender::<'static, u64, 8>::push,
        Sender::<'static, u64, 8>::push_batch,
        Sender::<'static, u64, 8>::push_slice,
        Sender::<'static, u64, 8>::free,
        Sender::<'static, u64, 8>::capacity,
        Receiver::<'static, u64, 8>::pop,
        Receiver::<'static, u64, 8>::pop_batch,
        Receiver::<'static, u64, 8>::len,
        Receiver::<'static, u64, 8>::is_empty,
        Receiver::<'static, u64, 8>::capacity,
    );
}

fn counts() {
    link!(
        MalformedCounters::total,
        PacketCounters::accounted,
        PacketCounters::balanced,
        SlotCounters::balanced,
        PartialBy::total,
        DroppedImages::total,
        ImageCounters::expected,
        RangeList::new,
        RangeList::add,
        RangeList::as_slice,
        RangeList::truncated,
        Flag::new,
        Flag::set,
        Flag::get,
        Published::new,
        Published::set,
        Published::get,
        Rounds::new,
        Rounds::count,
        Rounds::made,
    );
    port::write_patched(given(), given(), |front| tensorwire_link_proofs::keep(front));
}

fn machines() {
    link!(
        Link::new,
        Link::split,
        ProducerEnd::signals,
        ConsumerEnd::take_job,
        ConsumerEnd::give_back,
        Producer::<'static, Device, Device>::new,
        Producer::<'static, Device, Device>::start,
        Producer::<'static, Device, Device>::stop,
        Producer::<'static, Device, Device>::report,
        Producer::<'static, Device, Device>::status,
        Producer::<'static, Device, Device>::buffers,
        Producer::<'static, Device, Device>::all_buffers_free,
        Producer::<'static, Device, Device>::rx,
        Producer::<'static, Device, Device>::rx_mut,
        Producer::<'static, Device, Device>::reorder,
        Producer::<'static, Device, Device>::step,
        Consumer::<'static, Device, Device>::new,
        Consumer::<'static, Device, Device>::counters,
        Consumer::<'static, Device, Device>::failure,
        Consumer::<'static, Device, Device>::buffers,
        Consumer::<'static, Device, Device>::into_parts,
        Consumer::<'static, Device, Device>::sink,
        Consumer::<'static, Device, Device>::infer,
        Consumer::<'static, Device, Device>::step,
        SplitLink::new,
        SplitLink::<8>::with_slots,
        SplitLink::<MAX_SPLIT>::split::<Device, Device>,
        Poller::<'static, Device, MAX_SPLIT>::step,
        Poller::<'static, Device, MAX_SPLIT>::step_until,
        Poller::<'static, Device, MAX_SPLIT>::under_way,
        Poller::<'static, Device, MAX_SPLIT>::drained,
        Poller::<'static, Device, MAX_SPLIT>::rx,
        Poller::<'static, Device, MAX_SPLIT>::reclaim::<Device>,
        SplitQueue::<'static, Device, MAX_SPLIT>::close,
        on_signal,
        Transmitter::<Device, Device>::new,
        Transmitter::<Device, Device>::counters,
        Transmitter::<Device, Device>::end,
        Transmitter::<Device, Device>::owed,
        Transmitter::<Device, Device>::queue,
        Transmitter::<Device, Device>::stop,
        Transmitter::<Device, Device>::step,
    );
}

fn texts() {
    print!(
        BitField,
        BitFieldError,
        PoolError,
        WrongPool,
        RangeList,
        PortRange,
        PortRangeError,
        FlowTableError,
        ElementType,
        Geometry,
        Overlap,
        Violation,
        Violations,
        BuildError,
        Refused,
        Reject,
        TransitionError,
        LedgerError,
        ConsumerFailure,
        TransmitEnd,
        SendError,
        SinkFault,
        StageError,
        Busy<PacketDesc>,
        CapacityError,
        Full<u64>,
        Nanos,
    );
}
