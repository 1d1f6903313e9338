//! A buffer that went to the consumer is not the producer's to give up.
use tensorwire_core::burst::{Burst, BurstPool, Ready};
use tensorwire_core::ring::Ring;

fn main() {
    let mut pool = BurstPool::new(4).unwrap();
    let mut ring = Ring::<Burst<Ready>, 8>::new();
    let (mut tx, _rx) = ring.split(8).unwrap();
    let ready = pool.take().unwrap().begin().seal();
    tx.push(ready).unwrap();
    let _free = ready.discard();
}
