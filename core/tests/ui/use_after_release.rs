//! A packet that was taken out of its place is moved on once.
use tensorwire_core::burst::PacketDesc;

fn release(_packet: PacketDesc) {}

fn main() {
    let mut burst = [PacketDesc::EMPTY];
    let packet = burst[0].take();
    release(packet);
    release(packet);
}
