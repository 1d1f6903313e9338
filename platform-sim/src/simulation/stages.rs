//! The stages of a simulated run, each with its faults: queue, reorder, inference, sink.

use std::cell::RefCell;
use std::collections::VecDeque;

use tensorwire_core::burst::{Burst, Filling, InFlight, PacketDesc};
use tensorwire_core::counters::NicStats;
use tensorwire_core::pipeline::poller::SplitQueue;
use tensorwire_core::port::{
    Delivery, Event, Infer, Outputs, PacketMemory, Reorder, RxQueue, Sink, SinkFault, StageError,
    Ticket,
};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;

use super::faults::Fault;
use super::meter;
use super::world::{Between, Row, RxSide, World};
use crate::infer::{CRC_FEATURES, code, features_of};
use crate::pool::{BatchMemory, PacketView};
use crate::reorder::CpuReorder;

/// Slots of the rings between poller and producer: more than a plan has packet buffers.
pub(super) const SLOTS: usize = 1_024;

/// The receive queue of the NIC, which holds up what it is given back.
#[derive(Debug)]
pub(super) struct NicQueue<'c, 'n> {
    pub(super) side: &'c RefCell<RxSide<'n>>,
    pub(super) view: PacketView,
    pub(super) world: &'c RefCell<World>,
}

impl PacketMemory for NicQueue<'_, '_> {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.view.bytes(packet)
    }
}

/// Those of a burst that are there.
fn present(packets: &[PacketDesc]) -> u64 {
    packets.iter().map(|packet| u64::from(!packet.is_none())).sum()
}

impl RxQueue for NicQueue<'_, '_> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let came = self.side.borrow_mut().rx.rx_burst(out);
        if let Some(between) = &mut self.world.borrow_mut().between {
            between.forward += came as u64;
            between.empty += u64::from(came < out.len());
        }
        came
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        let world = &mut *self.world.borrow_mut();
        if let Some(between) = &mut world.between {
            between.back -= present(packets).min(between.back);
        }
        let held_up = world.injector.draw(Fault::PoolEmpty);
        let until = held_up.map(|arg| world.step + 1 + arg % 120);
        self.side.borrow_mut().release(packets, until);
    }

    fn free_buffers(&self) -> usize {
        let free = self.side.borrow().free();
        if let Some(between) = &mut self.world.borrow_mut().between {
            between.free = free;
        }
        free
    }

    fn stats(&self) -> NicStats {
        self.side.borrow().rx.stats()
    }
}

/// The producer's queue: the NIC's, or that of a poller. Notes what the producer is handed.
#[derive(Debug)]
pub(super) struct Queue<'c, 'n> {
    pub(super) way: Way<'c, 'n>,
    pub(super) world: &'c RefCell<World>,
}

/// How packets get from the NIC to the producer.
#[derive(Debug)]
pub(super) enum Way<'c, 'n> {
    Fused(NicQueue<'c, 'n>),
    Split(SplitQueue<'c, PacketView, SLOTS>),
}

impl PacketMemory for Queue<'_, '_> {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        match &self.way {
            Way::Fused(queue) => queue.bytes(packet),
            Way::Split(queue) => queue.bytes(packet),
        }
    }
}

impl RxQueue for Queue<'_, '_> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let came = match &mut self.way {
            Way::Fused(queue) => queue.rx_burst(out),
            Way::Split(queue) => queue.rx_burst(out),
        };
        let world = &mut *self.world.borrow_mut();
        if let Some(between) = &mut world.between {
            between.forward -= (came as u64).min(between.forward);
        }
        meter::aside(|| world.hand(out.len(), came));
        came
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        match &mut self.way {
            Way::Fused(queue) => queue.release(packets),
            Way::Split(queue) => {
                if let Some(between) = &mut self.world.borrow_mut().between {
                    between.back += present(packets);
                }
                queue.release(packets);
            }
        }
    }

    fn free_buffers(&self) -> usize {
        let free = match &self.way {
            Way::Fused(queue) => queue.free_buffers(),
            Way::Split(queue) => queue.free_buffers(),
        };
        // By what is true, as far as the poller can know it, not by what the queue says.
        let world = &mut *self.world.borrow_mut();
        let really = world.between.map_or(free, |Between { free, back, .. }| {
            free + usize::try_from(back).unwrap_or(usize::MAX)
        });
        world.least_free = world.least_free.min(really);
        free
    }

    fn stats(&self) -> NicStats {
        match &self.way {
            Way::Fused(queue) => queue.stats(),
            Way::Split(queue) => queue.stats(),
        }
    }

    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        match &mut self.way {
            Way::Fused(queue) => queue.caught_up(now),
            Way::Split(queue) => queue.caught_up(now),
        }
    }
}

/// The reorder stage of the product, slow or failing.
#[derive(Debug)]
pub(super) struct SimReorder<'c, 'm> {
    pub(super) inner: CpuReorder<'m>,
    pub(super) world: &'c RefCell<World>,
    /// Polls that find nothing.
    pub(super) late: u64,
}

impl Reorder for SimReorder<'_, '_> {
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        self.inner.place(batch, slot, packet, memory);
        self.world.borrow_mut().kept += usize::from(packet.is_none());
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        let world = &mut *self.world.borrow_mut();
        if let Some(arg) = world.injector.draw(Fault::SlowReorder) {
            self.late = 1 + arg % 60;
        }
        if let Some(arg) = world.injector.draw(Fault::ReorderError) {
            self.inner.abandon(batch);
            let fatal = arg.is_multiple_of(4);
            world.reorder_fatal |= fatal;
            return Err(StageError { call: "simulated reorder", code: code::PLANNED, fatal });
        }
        self.inner.start(batch, placed)
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        self.inner.abandon(batch);
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        if self.late > 0 {
            self.late -= 1;
            return 0;
        }
        let came = self.inner.poll_done(done);
        self.world.borrow_mut().kept -= came;
        came
    }
}

/// What goes wrong with one inference.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Right,
    Device { fatal: bool },
    Hang,
    Slow { polls: u64 },
    WrongShape,
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    rows: Vec<Row>,
    fate: Fate,
}

/// An inference that hashes each image and looks at each of its slots. `NOW`: a result is there
/// when the submission returns, as on a CPU.
#[derive(Debug)]
pub(super) struct SimInfer<'c, 'm, const NOW: bool> {
    memory: &'m BatchMemory,
    world: &'c RefCell<World>,
    image_bytes: usize,
    stride: usize,
    pending: VecDeque<Pending>,
    features: Vec<f32>,
}

const fn failed(call: &'static str, code: i32, fatal: bool) -> StageError {
    StageError { call, code, fatal }
}

impl<'c, 'm, const NOW: bool> SimInfer<'c, 'm, NOW> {
    pub(super) fn new(
        memory: &'m BatchMemory,
        world: &'c RefCell<World>,
        image_bytes: usize,
        stride: usize,
    ) -> Self {
        let (pending, features) = (VecDeque::new(), Vec::new());
        Self { memory, world, image_bytes, stride, pending, features }
    }

    fn fate(&self) -> Result<Fate, StageError> {
        let world = &mut *self.world.borrow_mut();
        let mut fate = Fate::Right;
        // What is there at once is neither late nor never there.
        if let Some(arg) = world.injector.draw(Fault::InferSlow).filter(|_| !NOW) {
            fate = Fate::Slow { polls: 1 + arg % 50 };
        }
        if world.injector.draw(Fault::InferWrongShape).is_some() {
            fate = Fate::WrongShape;
        }
        if world.injector.draw(Fault::InferHang).is_some() && !NOW {
            fate = Fate::Hang;
        }
        match world.injector.draw(Fault::InferError) {
            None => Ok(fate),
            Some(arg) if arg.is_multiple_of(2) => {
                let fatal = arg % 8 == 0;
                world.infer_fatal |= fatal;
                Err(failed("submit", code::PLANNED, fatal))
            }
            Some(arg) => Ok(Fate::Device { fatal: arg % 8 == 1 }),
        }
    }

    /// Ends the oldest pending result, whatever it takes.
    fn wait<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        let Pending { ticket, rows, fate } = self.pending.pop_front()?;
        let count = match fate {
            Fate::Device { fatal } => {
                self.world.borrow_mut().infer_fatal |= fatal;
                return Some(Err(failed("wait", code::PLANNED, fatal)));
            }
            Fate::Hang => {
                self.world.borrow_mut().infer_fatal = true;
                return Some(Err(failed("wait", code::HUNG, true)));
            }
            Fate::WrongShape => rows.len().saturating_sub(1),
            Fate::Right | Fate::Slow { .. } => rows.len(),
        };
        self.features.clear();
        meter::aside(|| {
            let rows = rows.iter().take(count);
            self.features.extend(rows.flat_map(|row| features_of(row.crc)));
        });
        self.world.borrow_mut().reported = Some(rows);
        let outputs = Outputs {
            features: &self.features,
            feature_dim: CRC_FEATURES,
            logits: &[],
            classes: 0,
        };
        Some(Ok(take(ticket, outputs)))
    }
}

impl<const NOW: bool> Infer for SimInfer<'_, '_, NOW> {
    fn done_on_submit(&self) -> bool {
        NOW
    }

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        _ready: Event,
    ) -> Result<(), StageError> {
        let no_input = failed("submit", code::NO_INPUT, true);
        let batch = self.memory.bytes(input).ok_or(no_input)?;
        let start = first as usize * self.image_bytes;
        let bytes = batch.get(start..start + images as usize * self.image_bytes).ok_or(no_input)?;
        if self.pending.len() == 2 {
            return Err(failed("submit", code::BUSY, true));
        }
        let rows = bytes.chunks_exact(self.image_bytes).map(|image| {
            let truth = &mut self.world.borrow_mut().truth;
            let slots = image.chunks_exact(self.stride).map(|slot| truth.look(slot)).collect();
            Row { slots, crc: crc32fast::hash(image) }
        });
        let rows = meter::aside(|| rows.collect());
        let fate = self.fate()?;
        meter::aside(|| self.pending.push_back(Pending { ticket, rows, fate }));
        Ok(())
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        if self.pending.len() == 2 { self.wait(take) } else { None }
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        match &mut self.pending.front_mut()?.fate {
            Fate::Hang => None,
            Fate::Slow { polls } if *polls > 0 => {
                *polls -= 1;
                None
            }
            _ => self.wait(take),
        }
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.wait(take)
    }
}

/// The sink: checks every delivery, and cannot always write.
#[derive(Debug)]
pub(super) struct SimSink<'c> {
    pub(super) world: &'c RefCell<World>,
}

impl Sink for SimSink<'_> {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        let world = &mut *self.world.borrow_mut();
        let rows = world.reported.take().unwrap_or_default();
        // As the product's sink has it: a result of another shape is no result.
        let shape = outputs.features.len() == delivery.images as usize * CRC_FEATURES;
        let written = world.injector.draw(Fault::SinkError);
        if !shape || written.is_some() {
            world.refused += u64::from(delivery.whole.count());
            let fatal = shape && written.is_some_and(|arg| arg.is_multiple_of(2));
            world.sink_fatal |= fatal;
            return Err(SinkFault { fatal });
        }
        let check = || super::check::delivery(world, delivery, &rows, outputs.features);
        if let Err(violation) = meter::aside(check) {
            world.fail(violation);
        }
        Ok(())
    }
}
