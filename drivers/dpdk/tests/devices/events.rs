//! What drivers report of their own accord. No device here reports any of it by itself, so the test
//! does what a driver does: it calls DPDK's function for drivers.
#![allow(unsafe_code)] // a function of DPDK that only drivers call

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use tensorwire_dpdk::{Port, PortFault};

use crate::support::{FRAME, Wire, alone, carry, eal};

// Numbers of `enum rte_eth_event_type`, which DPDK keeps (ABI).
const RESET: c_int = 3;
const REMOVED: c_int = 6;
const RECOVERING: c_int = 12;
const RECOVERED: c_int = 13;
const FAILED: c_int = 14;

// Exported for drivers that are built apart from DPDK.
unsafe extern "C" {
    fn rte_eth_dev_get_by_name(name: *const c_char) -> *mut c_void;
    fn rte_eth_dev_callback_process(device: *mut c_void, kind: c_int, ret: *mut c_void) -> c_int;
}

/// What the driver of the port `name` does to report something.
fn happens(name: &str, kind: c_int) {
    let name = CString::new(name).expect("a name");
    // SAFETY: EAL runs, and the text ends in a zero.
    let device = unsafe { rte_eth_dev_get_by_name(name.as_ptr()) };
    assert!(!device.is_null(), "{name:?} is a port");
    // SAFETY: the port is there; these kinds of event have no answer.
    unsafe { rte_eth_dev_callback_process(device, kind, ptr::null_mut()) };
}

fn name(port: &Port) -> String {
    port.info().expect("it is open").name
}

#[test]
fn what_a_driver_reports_is_counted_and_named() {
    alone("events::what_a_driver_reports_is_counted_and_named", || {
        let eal = eal();
        for (kind, fault, resets) in [
            (RESET, Some(PortFault::Reset), 1),
            (REMOVED, Some(PortFault::Gone), 0),
            (FAILED, Some(PortFault::NotRecovered), 0),
            // Without rules in the NIC nothing of ours is lost.
            (RECOVERED, None, 0),
            // Another kind (the link): not of interest.
            (1, None, 0),
        ] {
            let mut wire = Wire::rings(&eal, 63, FRAME);
            let reported = wire.rx.reported();
            assert_eq!((reported.fault(), reported.resets()), (None, 0));
            // From a thread that is none of ours, as a driver's.
            let port = name(&wire.rx);
            thread::spawn(move || happens(&port, kind)).join().expect("reported");
            assert_eq!((reported.fault(), reported.resets()), (fault, resets), "event {kind}");
            // The other port is another one.
            assert_eq!(wire.tx.reported().fault(), None);
            let (mut tx, mut rx) = wire.ends();
            carry((&mut tx, &mut rx), 10, FRAME, |_, _| ());
        }
    });
}

#[test]
fn while_a_driver_recovers_a_port_its_link_is_down_and_it_stays_open() {
    alone("events::while_a_driver_recovers_a_port_its_link_is_down_and_it_stays_open", || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 63, FRAME);
        let (link, port) = (wire.rx.link(), name(&wire.rx));
        assert!(matches!(link.look(), Ok(Some(_))));
        // A larger error on the way begins anew, and ends once.
        happens(&port, RECOVERING);
        happens(&port, RECOVERING);
        assert!(link.reported().recovering());
        assert!(matches!(link.look(), Ok(None)));
        assert_eq!((link.reported().fault(), link.reported().resets()), (None, 2));
        // Who takes the port down meanwhile waits for the end.
        let after = Duration::from_millis(200);
        let begin = Instant::now();
        let driver = thread::spawn(move || {
            thread::sleep(after);
            happens(&port, RECOVERED);
        });
        assert!(wire.rx.close());
        assert!(begin.elapsed() >= after, "{:?}", begin.elapsed());
        driver.join().expect("reported");
        assert!(!link.reported().recovering());
    });
}
