//! DPDK for real, on devices that need no hardware: rings in memory and memif sockets.
//!
//! DPDK can be started once per process, so each test runs in a process of its own: this program,
//! called again (see [`support::alone`]). Without DPDK there is one test, which says so.

#[cfg(has_dpdk)]
mod cycles;
#[cfg(has_dpdk)]
mod events;
#[cfg(has_dpdk)]
mod failures;
#[cfg(has_dpdk)]
mod frames;
#[cfg(has_dpdk)]
mod headers;
#[cfg(has_dpdk)]
mod huge;
#[cfg(has_dpdk)]
mod lent;
#[cfg(has_dpdk)]
mod ondevice;
#[cfg(has_dpdk)]
mod places;
#[cfg(has_dpdk)]
mod support;

#[cfg(not(has_dpdk))]
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test has to say so")]
fn dpdk_is_not_built() {
    eprintln!(
        "skipped: all tests of DPDK devices: built without it (cargo test -p tensorwire-dpdk \
         --features dpdk, with libdpdk 22.11 or later installed)"
    );
}
