//! One batch of the documented geometry from packet buffers into its batch buffer.
//!
//! `cargo bench -p tensorwire-sim --bench reorder`; bytes per second are payload bytes.

use divan::Bencher;
use divan::counter::BytesCount;
use tensorwire_core::burst::{BurstPool, PacketDesc};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::port::{Reorder, RxQueue, TxQueue};
use tensorwire_core::window::SlotMap;
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::nic::{Oversize, SwNic, SwNicConfig, TxMode};
use tensorwire_sim::pool::BatchMemory;
use tensorwire_sim::reorder::CpuReorder;

/// Packets of a batch.
const PACKETS: u32 = 4096;

fn nic(geometry: &Geometry) -> SwNic {
    SwNic::new(SwNicConfig {
        rx_bufs: 51_200,
        rx_buf_size: geometry.frame_bytes(),
        rx_ring: 8192,
        tx_bufs: 51_200,
        tx_buf_size: 2048,
        tx_ring: 8192,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    })
    .expect("the documented sizes")
}

/// Places and closes one batch after the other, through all 16 buffers. The packets of a batch
/// have just been written by the NIC, 64 at a time, as in a run.
#[divan::bench(sample_count = 50, args = [false, true])]
fn batch_with_receive(bencher: Bencher<'_, '_>, at_close: bool) {
    let geometry = Geometry::new(&GeometrySpec::DOCUMENTED).expect("documented");
    let mut bursts = BurstPool::new(16).expect("documented");
    let kernel = Kernel::new(Conversion::Int8ToFp16);
    let memory = BatchMemory::new(&bursts, geometry.batch_bytes(), kernel).expect("154 MB");
    let mut nic = nic(&geometry);
    let view = nic.packets();
    let (mut tx, mut rx) = nic.split();
    let mut stage = if at_close {
        CpuReorder::at_close(&geometry, &memory, view, 0).expect("fits")
    } else {
        CpuReorder::at_placement(&geometry, &memory).expect("fits")
    };
    let source = vec![7; geometry.frame_bytes()];
    let words = [u64::MAX; 64];
    let mut ready = std::collections::VecDeque::new();
    let bytes = u64::from(PACKETS) * geometry.payload_bytes() as u64;
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        if ready.len() == 12 {
            let oldest: tensorwire_core::burst::Burst<_> = ready.pop_front().expect("twelve");
            bursts.put(oldest).expect("its own");
        }
        let mut batch = bursts.take().expect("sixteen").begin();
        let mut burst = [const { PacketDesc::EMPTY }; 64];
        for group in 0..PACKETS / 64 {
            for _ in 0..64 {
                tx.send(source.len(), |frame| frame.copy_from_slice(&source)).expect("room");
            }
            tx.flush();
            let count = rx.rx_burst(&mut burst);
            for (slot, packet) in (group * 64..).zip(&mut burst[..count]) {
                stage.place(&mut batch, slot, packet, &rx);
            }
            rx.release(&mut burst);
        }
        stage.start(&mut batch, SlotMap::new(&words, PACKETS)).expect("complete");
        while stage.poll_done(&mut burst) > 0 {
            rx.release(&mut burst);
        }
        ready.push_back(batch.abandon());
    });
}

fn main() {
    divan::main();
}
