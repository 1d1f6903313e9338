//! Only a driver can vouch for a packet buffer, or for a device that is done.
use tensorwire_core::burst::{BurstPool, PacketDesc};

fn main() {
    let _ = PacketDesc::claim(7, 64, 0);
    let mut pool = BurstPool::new(4).unwrap();
    let in_flight = pool.take().unwrap().begin().seal().submit();
    let _ = in_flight.retain().complete();
}
