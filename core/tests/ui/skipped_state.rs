//! A buffer that is still being filled cannot be submitted.
use tensorwire_core::burst::BurstPool;

fn main() {
    let mut pool = BurstPool::new(4).unwrap();
    let filling = pool.take().unwrap().begin();
    let _ = filling.submit();
}
