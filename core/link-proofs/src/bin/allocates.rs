//! Must *not* link: one allocation, and no allocator.
#![no_std]
#![no_main]

extern crate alloc;

use tensorwire_link_proofs::{given, keep};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The entry point.
#[unsafe(no_mangle)]
pub extern "C" fn _start() {
    tensorwire_link_proofs::hot::path();
    keep(alloc::boxed::Box::new(given::<u64>()));
}
