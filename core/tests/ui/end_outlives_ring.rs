//! An end cannot be used after its ring is gone.
use tensorwire_core::ring::Ring;

fn main() {
    let mut rx = {
        let mut ring = Ring::<u8, 8>::new();
        let (_tx, rx) = ring.split(8).unwrap();
        rx
    };
    rx.pop();
}
