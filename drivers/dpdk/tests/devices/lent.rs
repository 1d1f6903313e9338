//! Packets in memory that somebody lends, as a GPU's driver does.
#![allow(unsafe_code)] // a lender is a promise about memory

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_core::memory::MemoryKind;
use tensorwire_dpdk::{DpdkNic, HostMemory, HostPages, NicError, PoolError, Storage};
use tensorwire_dpdk_sys as sys;

use crate::support::{FRAME, Folder, alone, carry, cores, memif_nic};

/// What a lender saw when its memory came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Back {
    /// DPDK had the range still.
    known: bool,
    /// A port was still there.
    port: bool,
}

/// Stands in for a GPU's pinned memory: plain pages that call themselves so.
#[derive(Debug)]
struct Lender {
    pages: HostPages,
    device: &'static str,
    back: Arc<Mutex<Vec<Back>>>,
}

impl Lender {
    fn new(bytes: usize, device: &'static str, back: &Arc<Mutex<Vec<Back>>>) -> Box<Self> {
        let pages = HostPages::plain(bytes).expect("memory");
        Box::new(Self { pages, device, back: Arc::clone(back) })
    }
}

// SAFETY: the promise of `HostPages`, which it hands on.
unsafe impl HostMemory for Lender {
    fn base(&self) -> NonNull<u8> {
        self.pages.base()
    }

    fn len(&self) -> usize {
        self.pages.len()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::HostPinned
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let (base, len) = (self.base().as_ptr().cast(), self.len());
        // SAFETY: the range is ours; DPDK refuses what it has already.
        let known = unsafe { sys::twd_memory_register(base, len, 4096) } != 0;
        if !known {
            // SAFETY: registered just now.
            assert_eq!(unsafe { sys::twd_memory_unregister(base, len) }, 0);
        }
        let name = CString::new(self.device).expect("a name");
        let mut number = 0;
        // SAFETY: a text that ends in a zero, and a place to write to.
        let port = unsafe { sys::twd_port_by_name(name.as_ptr(), &raw mut number) } == 0;
        self.back.lock().expect("no panic").push(Back { known, port });
    }
}

/// Every payload lies in what was lent, and the lender has it back when nothing of DPDK knows of it
/// any more: port closed, range forgotten, then freed.
#[test]
fn packets_lie_in_the_lenders_memory_and_it_comes_back_last() {
    alone("lent::packets_lie_in_the_lenders_memory_and_it_comes_back_last", || {
        let (folder, back) = (Folder::new(), Arc::default());
        let config = memif_nic(&folder);
        let bytes = config.rx_storage_bytes().expect("a size");
        let lender = Lender::new(bytes, "net_memif0", &back);
        let region = lender.base().as_ptr().addr()..lender.base().as_ptr().addr() + lender.len();
        let mut nic = DpdkNic::open(&config, cores(), Some(Storage::Host(lender))).expect("ports");
        nic.start().expect("they start");
        let (tx, rx) = nic.split();
        let (mut tx, (mut rx, view)) = (tx.expect("a sender"), rx.expect("a receiver"));
        assert_eq!(view.pools().map(|pool| pool.read_bytes()).collect::<Vec<_>>(), [HEADER_BYTES]);
        let (mut inside, mut outside) = (0, 0);
        carry((&mut tx, &mut rx), 10_000, FRAME, |_, bytes| {
            let ends = bytes.as_ptr_range();
            let lies = region.contains(&ends.start.addr()) && ends.end.addr() <= region.end;
            *(if lies { &mut inside } else { &mut outside }) += 1;
        });
        assert_eq!((inside, outside), (10_000, 0));
        drop(view);
        assert!(back.lock().expect("no panic").is_empty(), "given back while ports run");
        drop(nic);
        assert_eq!(*back.lock().expect("no panic"), [Back { known: false, port: false }]);
    });
}

/// A region that is too small is refused, and comes back all the same.
#[test]
fn a_lender_that_lends_too_little_is_refused() {
    alone("lent::a_lender_that_lends_too_little_is_refused", || {
        let (folder, back) = (Folder::new(), Arc::default());
        let lender = Lender::new(4096, "net_memif0", &back);
        let refused = DpdkNic::open(&memif_nic(&folder), cores(), Some(Storage::Host(lender)))
            .expect_err("too small");
        assert!(matches!(refused, NicError::Pool(PoolError::Storage { given: 4096, .. })));
        assert_eq!(back.lock().expect("no panic").len(), 1);
    });
}
