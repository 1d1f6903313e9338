//! Neither kind of token can be doubled.
use tensorwire_core::burst::{BurstPool, PacketDesc};

fn main() {
    let mut pool = BurstPool::new(4).unwrap();
    let free = pool.take().unwrap();
    let _ = free.clone();
    let packet = PacketDesc::EMPTY;
    let _ = packet.clone();
}
