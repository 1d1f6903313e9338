//! A token is minted by its pool alone, and the fields of a real one are out of reach.
use core::marker::PhantomData;
use tensorwire_core::burst::{Burst, BurstPool, Free};

fn main() {
    let pool = BurstPool::new(4).unwrap();
    let _ = Burst::<Free> { pool: pool.id(), index: 0, state: PhantomData };
}
