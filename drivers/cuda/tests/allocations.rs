//! The steady state of the reorder stage allocates nothing: lists, tokens and queues have their
//! room from the start.

use tensorwire_core::burst::{Burst, BurstPool, Filling, PacketDesc};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::port::{PacketMemory, Reorder};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;
use tensorwire_cuda::CudaError;
use tensorwire_cuda::queue::Queue;
use tensorwire_cuda::reorder::{GpuReorder, Locate};

/// A stream whose work is done at once.
struct Done(Vec<Vec<u64>>);

impl Queue for Done {
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]> {
        self.0.get_mut(buffer).map(Vec::as_mut_slice)
    }

    fn submit(&mut self, _: usize) -> Result<(), CudaError> {
        Ok(())
    }

    fn done(&mut self, _: usize) -> Result<bool, CudaError> {
        Ok(true)
    }

    fn took(&mut self, _: usize) -> Option<Nanos> {
        Some(Nanos(1))
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        Ok(())
    }
}

/// Every packet is somewhere.
struct Anywhere;

impl Locate for Anywhere {
    fn frame(&self, _: &PacketDesc, bytes: &[u8]) -> Option<(u64, usize)> {
        Some((1, bytes.len()))
    }
}

struct Frame([u8; 1240]);

impl PacketMemory for Frame {
    fn bytes<'a>(&'a self, _: &'a PacketDesc) -> &'a [u8] {
        &self.0
    }
}

/// One batch of the documented geometry, from the first packet to the last that comes back.
fn batch(stage: &mut GpuReorder<Done, Anywhere>, filling: &mut Burst<Filling>, slots: u32) {
    let words = [u64::MAX; 64];
    for slot in 0..slots {
        stage.place(filling, slot, &mut PacketDesc::default(), &Frame([0; 1240]));
    }
    stage.start(filling, SlotMap::new(&words, slots)).expect("started");
    let mut done = [const { PacketDesc::EMPTY }; 256];
    let mut came = 0;
    loop {
        match stage.poll_done(&mut done) {
            0 => break,
            count => came += count,
        }
    }
    assert_eq!(came, slots as usize);
}

#[test]
fn batches_allocate_nothing() {
    let geometry = Geometry::new(&GeometrySpec::DOCUMENTED).expect("documented");
    let slots = geometry.packets_per_batch();
    let mut pool = BurstPool::new(2).expect("two");
    let queue = Done(vec![vec![0; slots as usize]; 2]);
    let mut stage = GpuReorder::new(&geometry, (pool.id(), 2), 8192, queue, Anywhere);
    let mut filling = pool.take().expect("one").begin();
    let counted = allocation_counter::measure(|| {
        for _ in 0..3 {
            batch(&mut stage, &mut filling, slots);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(stage.stats().batches, 3);
    assert_eq!(stage.next_time(), Some(Nanos(1)));
    let _ = filling.abandon();
}
