//! Must link: the hot path has no way to panic. The panic handler calls a function that does not
//! exist, so a single panic that the optimiser cannot rule out leaves an undefined symbol.
#![no_std]
#![no_main]

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
}
