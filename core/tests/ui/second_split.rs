//! A ring has one sender and one receiver at a time.
use tensorwire_core::ring::Ring;

fn main() {
    let mut ring = Ring::<u8, 8>::new();
    let (mut tx, _rx) = ring.split(8).unwrap();
    let (_tx, _rx) = ring.split(8).unwrap();
    let _ = tx.push(1);
}
