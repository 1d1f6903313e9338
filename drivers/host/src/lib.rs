//! What `tensorwire` asks of the operating system (Linux) besides devices: memory that stays where
//! it is ([`memory`]), the real-time class ([`realtime`]), what a thread has cost ([`usage`],
//! [`mod@alloc`]), a record of a crash ([`crash`]), and files that are not whole yet
//! ([`unfinished`]). No policy: who asks for what is decided by the program.

pub mod alloc;
pub mod crash;
pub mod memory;
pub mod realtime;
pub mod unfinished;
pub mod usage;
