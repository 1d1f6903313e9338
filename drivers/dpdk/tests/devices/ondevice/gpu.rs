//! Memory that this CPU cannot touch, and a stand-in for the GPU that reads it.
#![allow(unsafe_code)] // mappings of one file, and what is read through one of them

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

use tensorwire_core::geometry::Geometry;
use tensorwire_core::limits::{HEADER_BYTES, MAX_POLL};
use tensorwire_core::time::Nanos;
use tensorwire_cuda::CudaError;
use tensorwire_cuda::gather::{BURSTS, Gather};
use tensorwire_cuda::queue::Queue;
use tensorwire_dpdk::DeviceMemory;
use tensorwire_dpdk_sys as sys;
use tensorwire_kernels::{Conversion, Kernel};

/// A GPU's pages.
pub(super) const PAGE: usize = 65_536;

/// What was left when the memory was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Back {
    /// DPDK had the range still.
    pub(super) known: bool,
    /// Pieces of memory that a device still knew.
    pub(super) maps: c_int,
}

/// One file, mapped twice: at `base` for nobody, so that who touches it dies of it, and at
/// `inside` for the NIC and the GPU.
#[derive(Debug)]
pub(super) struct Apart {
    whole: *mut c_void,
    base: NonZeroUsize,
    len: usize,
    inside: *mut c_void,
    back: Arc<Mutex<Vec<Back>>>,
}

// SAFETY: mappings belong to the process; the value gives out addresses.
unsafe impl Send for Apart {}

// SAFETY: as above.
unsafe impl Sync for Apart {}

/// A function of the stand-in for the NIC, if that is loaded.
fn of_nic(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends in a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Pieces of memory that a device knows.
pub(super) fn maps() -> c_int {
    let found = of_nic(c"gpunic_maps");
    if found.is_null() {
        return 0;
    }
    // SAFETY: the function is `int gpunic_maps(void)`.
    let maps = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(found) };
    maps()
}

impl Apart {
    pub(super) fn new(bytes: usize, back: &Arc<Mutex<Vec<Back>>>) -> Box<Self> {
        let len = bytes.next_multiple_of(PAGE);
        // SAFETY: a name that ends in a zero.
        let file = unsafe { libc::memfd_create(c"gpu".as_ptr(), 0) };
        // SAFETY: the file was just made.
        assert!(file >= 0 && unsafe { libc::ftruncate(file, len.try_into().expect("small")) } == 0);
        let map = |at, len, protection, flags, file| {
            // SAFETY: an address of the system's choice, or one of a mapping of ours.
            let at = unsafe { libc::mmap(at, len, protection, flags, file, 0) };
            assert_ne!(at, libc::MAP_FAILED, "no memory");
            at
        };
        let (none, both) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
        let anywhere = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let whole = map(ptr::null_mut(), len + PAGE, none, anywhere, -1);
        let base = whole.addr().next_multiple_of(PAGE);
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        map(whole.with_addr(base), len, none, fixed, file);
        let inside = map(ptr::null_mut(), len, both, libc::MAP_SHARED, file);
        // SAFETY: the mappings keep the file.
        assert_eq!(unsafe { libc::close(file) }, 0);
        let tell = of_nic(c"gpunic_memory");
        if !tell.is_null() {
            type Tell = extern "C" fn(usize, usize, usize);
            // SAFETY: the function is `void gpunic_memory(uintptr_t, size_t, uintptr_t)`.
            let tell = unsafe { std::mem::transmute::<*mut c_void, Tell>(tell) };
            tell(base, len, inside.expose_provenance());
        }
        let base = NonZeroUsize::new(base).expect("not at 0");
        Box::new(Self { whole, base, len, inside, back: Arc::clone(back) })
    }

    /// How the GPU reaches it. Not after the memory is gone.
    pub(super) fn reach(&self) -> Reach {
        Reach { base: self.base.get(), len: self.len, inside: self.inside.expose_provenance() }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let base = ptr::without_provenance_mut(self.base.get());
        // SAFETY: the range is ours; DPDK refuses what it has already.
        let known = unsafe { sys::twd_memory_register(base, self.len, PAGE) } != 0;
        if !known {
            // SAFETY: registered just now.
            assert_eq!(unsafe { sys::twd_memory_unregister(base, self.len) }, 0);
        }
        self.back.lock().expect("no panic").push(Back { known, maps: maps() });
        for (at, len) in [(self.whole, self.len + PAGE), (self.inside, self.len)] {
            // SAFETY: mapped by `new`, and nobody has the value any more.
            assert_eq!(unsafe { libc::munmap(at, len) }, 0);
        }
    }
}

// SAFETY: the range is this value's alone until it is dropped, page-aligned, and the NIC reaches it
// through the other mapping.
unsafe impl DeviceMemory for Apart {
    fn base(&self) -> NonZeroUsize {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn page_bytes(&self) -> usize {
        PAGE
    }
}

/// The memory as the GPU has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    base: usize,
    len: usize,
    inside: usize,
}

impl Reach {
    /// What lies there. Whatever is not all of the memory is an error of who names it.
    fn at(&self, address: u64, len: usize) -> &[u8] {
        let address = usize::try_from(address).expect("an address");
        let offset = address.checked_sub(self.base).filter(|at| at + len <= self.len);
        let offset = offset.unwrap_or_else(|| panic!("{address:#x} is not in the memory"));
        let at = ptr::with_exposed_provenance::<u8>(self.inside).wrapping_add(offset);
        // SAFETY: inside the mapping, which lives longer than the stand-in; the NIC writes there
        // only to buffers that it has.
        unsafe { std::slice::from_raw_parts(at, len) }
    }
}

/// Reorders, late: what it reads is what is there when the event is asked for.
#[derive(Debug)]
pub(super) struct Gpu {
    reach: Reach,
    geometry: Geometry,
    jobs: VecDeque<(usize, Vec<u64>, u32)>,
    pub(super) out: Vec<Vec<u8>>,
    /// Payloads that it read.
    pub(super) payloads: u64,
}

/// Polls until a job is done.
const LAG: u32 = 3;

impl Gpu {
    pub(super) fn new(reach: Reach, geometry: &Geometry, buffers: usize) -> Arc<Mutex<Self>> {
        let out = vec![vec![0xaa; geometry.batch_bytes()]; buffers];
        let jobs = VecDeque::new();
        Arc::new(Mutex::new(Self { reach, geometry: *geometry, jobs, out, payloads: 0 }))
    }

    /// Ends the jobs up to that of `buffer`.
    pub(super) fn finish(&mut self, buffer: usize) {
        while self.jobs.iter().any(|job| job.0 == buffer) {
            self.run();
        }
    }

    fn run(&mut self) {
        let Some((buffer, list, _)) = self.jobs.pop_front() else { return };
        let kernel = Kernel::new(Conversion::Int8ToFp16);
        let (offset, bytes) = (self.geometry.payload_offset(), self.geometry.payload_bytes());
        let slots = self.out[buffer].chunks_exact_mut(2 * bytes);
        assert_eq!(slots.len(), list.len());
        for (slot, address) in slots.zip(list) {
            if address == 0 {
                slot.fill(0);
                continue;
            }
            kernel.convert(self.reach.at(address + offset as u64, bytes), slot);
            self.payloads += 1;
        }
    }
}

/// Its stream of reorders.
#[derive(Debug)]
pub(super) struct Stream {
    gpu: Arc<Mutex<Gpu>>,
    lists: Vec<Vec<u64>>,
}

impl Stream {
    pub(super) fn new(gpu: &Arc<Mutex<Gpu>>) -> Self {
        let (gpu, state) = (Arc::clone(gpu), gpu.lock().expect("no panic"));
        let slots = state.geometry.packets_per_batch() as usize;
        Self { gpu, lists: vec![vec![0; slots]; state.out.len()] }
    }

    fn gpu(&self) -> MutexGuard<'_, Gpu> {
        self.gpu.lock().expect("no panic")
    }
}

impl Queue for Stream {
    fn list(&mut self, buffer: usize) -> Option<&mut [u64]> {
        self.lists.get_mut(buffer).map(Vec::as_mut_slice)
    }

    fn submit(&mut self, buffer: usize) -> Result<(), CudaError> {
        let list = self.lists[buffer].clone();
        self.gpu().jobs.push_back((buffer, list, LAG));
        Ok(())
    }

    fn done(&mut self, buffer: usize) -> Result<bool, CudaError> {
        let mut gpu = self.gpu();
        if let Some((first, _, lag)) = gpu.jobs.front_mut() {
            if *lag > 0 || *first != buffer {
                *lag = lag.saturating_sub(1);
                return Ok(!gpu.jobs.iter().any(|job| job.0 == buffer));
            }
            gpu.run();
        }
        Ok(true)
    }

    fn took(&mut self, _: usize) -> Option<Nanos> {
        None
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        let mut gpu = self.gpu();
        while !gpu.jobs.is_empty() {
            gpu.run();
        }
        Ok(())
    }
}

/// Its gathers of headers, late as well.
#[derive(Debug)]
pub(super) struct Headers {
    reach: Reach,
    lists: Vec<Vec<u64>>,
    headers: Vec<Vec<u8>>,
    jobs: Vec<(usize, u32)>,
}

impl Headers {
    pub(super) fn new(reach: Reach) -> Self {
        Self {
            reach,
            lists: vec![vec![0; MAX_POLL]; BURSTS],
            headers: vec![vec![0; MAX_POLL * HEADER_BYTES]; BURSTS],
            jobs: vec![(0, 0); BURSTS],
        }
    }
}

impl Gather for Headers {
    fn list(&mut self, burst: usize) -> &mut [u64] {
        &mut self.lists[burst]
    }

    fn submit(&mut self, burst: usize, count: usize) -> Result<(), CudaError> {
        self.jobs[burst] = (count, LAG);
        Ok(())
    }

    fn done(&mut self, burst: usize) -> Result<bool, CudaError> {
        let (count, lag) = &mut self.jobs[burst];
        if *lag > 0 {
            *lag -= 1;
            return Ok(false);
        }
        let headers = self.headers[burst].chunks_exact_mut(HEADER_BYTES);
        for (address, header) in self.lists[burst][..*count].iter().zip(headers) {
            header.copy_from_slice(self.reach.at(*address, HEADER_BYTES));
        }
        Ok(true)
    }

    fn headers(&self, burst: usize) -> &[u8] {
        &self.headers[burst]
    }
}
