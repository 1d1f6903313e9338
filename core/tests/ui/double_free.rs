//! A buffer is given back once.
use tensorwire_core::burst::BurstPool;

fn main() {
    let mut pool = BurstPool::new(4).unwrap();
    let free = pool.take().unwrap();
    pool.put(free).unwrap();
    pool.put(free).unwrap();
}
