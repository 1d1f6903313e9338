//! A NIC, a GPU and a sink that may do anything, except panic.

use tensorwire_core::burst::{Burst, Filling, InFlight, PacketDesc};
use tensorwire_core::counters::{NicStats, TxStats};
use tensorwire_core::pipeline::transmitter::FrameSource;
use tensorwire_core::port::{
    Delivery, Event, Infer, Outputs, PacketMemory, Reorder, RxQueue, SendError, Sink, SinkFault,
    StageError, Ticket, TxQueue,
};
use tensorwire_core::window::SlotMap;

use crate::{given, keep};

/// Every device at once.
#[derive(Debug)]
pub struct Device;

impl PacketMemory for Device {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        keep((self, packet));
        given()
    }
}

impl RxQueue for Device {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        keep((self, out));
        given()
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        keep((self, packets));
    }

    fn free_buffers(&self) -> usize {
        given()
    }

    fn stats(&self) -> NicStats {
        given()
    }
}

impl TxQueue for Device {
    fn room(&mut self) -> usize {
        given()
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        keep((self, len));
        fill(given());
        given()
    }

    fn flush(&mut self) {
        keep(self);
    }

    fn finish(&mut self) -> bool {
        given()
    }

    fn stats(&self) -> TxStats {
        given()
    }
}

impl Reorder for Device {
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        keep((self, batch, slot, memory.bytes(packet)));
        keep(packet.take());
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        keep((self, batch, placed));
        given()
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        keep((self, batch));
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        keep((self, done));
        given()
    }
}

impl Device {
    fn result<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        keep(self);
        given::<Option<Result<(Ticket, Outputs<'static>), StageError>>>()
            .map(|result| result.map(|(ticket, outputs)| take(ticket, outputs)))
    }
}

impl Infer for Device {
    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        keep((self, ticket, input, first, images, ready));
        given()
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.result(take)
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.result(take)
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.result(take)
    }
}

impl Sink for Device {
    fn deliver(&mut self, delivery: &Delivery, outputs: Outputs<'_>) -> Result<(), SinkFault> {
        keep((self, delivery, outputs));
        given()
    }
}

impl FrameSource for Device {
    fn frames(&self) -> u64 {
        given()
    }

    fn len(&self, index: u64) -> usize {
        keep(index);
        given()
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        keep((index, out));
    }

    fn lent(&self, index: u64) -> Option<&[u8]> {
        keep(index);
        given()
    }
}
