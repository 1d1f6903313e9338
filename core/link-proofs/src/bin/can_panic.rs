//! Must *not* link: the hot path, and one index that may be out of bounds.
#![no_std]
#![no_main]

use tensorwire_link_proofs::{given, keep};

unsafe extern "C" {
    fn tensorwire_core_can_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: not upheld: the function does not exist, which is the point.
    unsafe { tensorwire_core_can_panic() }
}

/// The entry point.
#[unsafe(no_mangle)]
pub extern "C" fn _start() {
    tensorwire_link_proofs::hot::path();
    keep(given::<&[u8]>()[given::<usize>()]);
}
