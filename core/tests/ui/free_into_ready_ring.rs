//! A ring of ready buffers takes no buffer that nothing was written to.
use tensorwire_core::burst::{Burst, BurstPool, Ready};
use tensorwire_core::ring::Ring;

fn main() {
    let mut pool = BurstPool::new(4).unwrap();
    let mut ring = Ring::<Burst<Ready>, 8>::new();
    let (mut tx, _rx) = ring.split(8).unwrap();
    let _ = tx.push(pool.take().unwrap());
}
