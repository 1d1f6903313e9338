//! The driver's library, the GPUs of the machine, and the context of one of them.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use crate::error::{CudaError, check};

/// Which GPU is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The n-th by PCI address, from 0, as `nvidia-smi` numbers them.
    Index(u32),
    /// The one at a PCI address (`domain:bus:device.function`).
    Pci(String),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "GPU {index}"),
            Self::Pci(address) => write!(f, "the GPU at {address}"),
        }
    }
}

/// Why there is no GPU to work with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// The driver's library is not on this machine.
    NoLibrary,
    /// It is, and it lacks a call.
    TooOld {
        /// The call.
        symbol: &'static str,
    },
    /// There is no such GPU.
    NoSuchGpu {
        /// What was asked for.
        wanted: Choice,
        /// PCI addresses of those that there are.
        present: Vec<String>,
    },
    /// A call failed.
    Cuda(CudaError),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary => f.write_str("no NVIDIA driver (libcuda.so.1) is on this machine"),
            Self::TooOld { symbol } => write!(
                f,
                "the NVIDIA driver is too old: it has no {symbol}; version 525 (CUDA 12) or later \
                 is needed"
            ),
            Self::NoSuchGpu { wanted, present } if present.is_empty() => {
                write!(f, "{wanted} is wanted, and there is no GPU")
            }
            Self::NoSuchGpu { wanted, present } => {
                write!(f, "{wanted} is not there; this machine has {}", present.join(", "))
            }
            Self::Cuda(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unavailable {}

impl From<CudaError> for Unavailable {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

/// Calls that a CUDA 11 driver may lack. `cudarc` panics where a symbol is missing, so they are
/// looked for before anything is called.
const NEWEST_CALLS: [&str; 3] =
    ["cuLaunchKernelEx", "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags"];

/// The driver, loaded and initialised.
fn load() -> Result<(), Unavailable> {
    // SAFETY: loading the driver's library runs its initialisers, which NVIDIA means to be run in
    // any process; the handle is closed again.
    if !unsafe { sys::is_culib_present() } {
        return Err(Unavailable::NoLibrary);
    }
    // SAFETY: as above, and the library is there, so this does not panic.
    let library = unsafe { sys::culib() };
    for symbol in NEWEST_CALLS {
        // SAFETY: the symbol is looked up and not called.
        if unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
            return Err(Unavailable::TooOld { symbol });
        }
    }
    // SAFETY: no arguments but the flags, which must be 0.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    Ok(())
}

/// One GPU of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    device: sys::CUdevice,
    /// `domain:bus:device.function`, lower case.
    pci: String,
}

/// The one that is meant.
fn choose<'f>(wanted: &Choice, found: &'f mut [Found]) -> Result<&'f Found, Unavailable> {
    found.sort_by(|a, b| a.pci.cmp(&b.pci));
    let at = match wanted {
        Choice::Index(index) => usize::try_from(*index).ok().filter(|at| *at < found.len()),
        Choice::Pci(address) => {
            let address = normal(address);
            found.iter().position(|gpu| gpu.pci == address)
        }
    };
    let none = || Unavailable::NoSuchGpu {
        wanted: wanted.clone(),
        present: found.iter().map(|gpu| gpu.pci.clone()).collect(),
    };
    at.and_then(|at| found.get(at)).ok_or_else(none)
}

/// An address as the others are written: lower case, four digits of domain, with a function.
fn normal(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    let (rest, function) = lower.rsplit_once('.').unwrap_or((&lower, "0"));
    let mut parts = rest.rsplit(':');
    let (device, bus) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let domain = parts.next().unwrap_or("0").trim_start_matches('0');
    format!("{domain:0>4}:{bus:0>2}:{device:0>2}.{function}")
}

fn all() -> Result<Vec<Found>, CudaError> {
    let mut count = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    let mut found = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: the pointer is to a local that outlives the call.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
        let mut text = [0; 32];
        let (at, room) = (text.as_mut_ptr(), 32);
        // SAFETY: the buffer is as long as the length says and outlives the call.
        let result = unsafe { sys::cuDeviceGetPCIBusId(at, room, device) };
        check("cuDeviceGetPCIBusId", result)?;
        found.push(Found { device, pci: normal(&text_of(&text)) });
    }
    Ok(found)
}

/// A text of C that a call wrote into a buffer.
fn text_of(buffer: &[core::ffi::c_char]) -> String {
    let bytes: Vec<u8> =
        buffer.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A GPU with its context. Clones share it.
#[derive(Clone, Debug)]
pub struct Gpu(Arc<Primary>);

/// The device's primary context, which all libraries of the process share.
#[derive(Debug)]
struct Primary {
    device: sys::CUdevice,
    context: sys::CUcontext,
    pci: String,
    name: String,
}

// SAFETY: a context handle may be used from any thread; the driver locks what it must.
unsafe impl Send for Primary {}

// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: the context was retained once for this value. What could fail here leaves nothing
        // to be done: the process keeps a context that it does not use.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Gpu {
    /// Opens a GPU.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] in one line: no driver, one too old, no such GPU, or a call that failed.
    pub fn open(wanted: &Choice) -> Result<Self, Unavailable> {
        load()?;
        let mut found = all()?;
        let Found { device, pci } = choose(wanted, &mut found)?.clone();
        let mut name = [0; 128];
        let (at, room) = (name.as_mut_ptr(), 128);
        // SAFETY: the buffer is as long as the length says and outlives the call.
        check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(at, room, device) })?;
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is to a local that outlives the call.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", result)?;
        Ok(Self(Arc::new(Primary { device, context, pci, name: text_of(&name) })))
    }

    /// PCI address.
    #[must_use]
    pub fn pci(&self) -> &str {
        &self.0.pci
    }

    /// The vendor's name of it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The driver's version, as 13000 for CUDA 13.0.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn driver_version(&self) -> Result<u32, CudaError> {
        let mut version = 0;
        // SAFETY: the pointer is to a local that outlives the call.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// Multiprocessors.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn multiprocessors(&self) -> Result<u32, CudaError> {
        let count = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// As [`Gpu::enter`], with a guard that keeps the context itself.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn enter_kept(&self) -> Result<Kept, CudaError> {
        self.push()?;
        Ok(Kept { _entered: Entered { context: PhantomData }, _gpu: self.clone() })
    }

    fn push(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained as long as `self` lives.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.0.context) })
    }

    /// Makes this GPU's context the current one until the guard goes.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn enter(&self) -> Result<Entered<'_>, CudaError> {
        self.push()?;
        Ok(Entered { context: PhantomData })
    }

    /// An attribute of the device.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver does not know it.
    fn attribute(&self, which: Attribute) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to a local that outlives the call.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, self.0.device) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value)
    }

    /// The compute capability, as 90 for 9.0.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn capability(&self) -> Result<u32, CudaError> {
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(u32::try_from(10 * major + minor).unwrap_or(0))
    }

    /// Whether CPU and GPU share one memory (Spark, IGX with the integrated GPU).
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn integrated(&self) -> Result<bool, CudaError> {
        Ok(self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0)
    }

    /// Whether other devices, NICs among them, can be given its memory (GPUDirect RDMA). That the
    /// kernel lets them is another matter.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn direct_rdma(&self) -> Result<bool, CudaError> {
        Ok(self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)? != 0)
    }

    /// Bytes of the second-level cache.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn l2_bytes(&self) -> Result<usize, CudaError> {
        let bytes = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Bytes of its memory that are free, and all of them.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to locals that outlive the call.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        check("cuMemGetInfo", result)?;
        Ok((free, total))
    }
}

/// This thread has the context of a GPU until this goes; then it has again what it had before.
#[must_use = "the context is left when this is dropped"]
#[derive(Debug)]
pub struct Entered<'g> {
    /// Not to be sent: a context is current to a thread.
    context: PhantomData<(&'g Gpu, *const ())>,
}

/// [`Entered`] with a share of the GPU: for whoever cannot borrow it for that long.
#[must_use = "the context is left when this is dropped"]
#[derive(Debug)]
pub struct Kept {
    // Dropped in this order.
    _entered: Entered<'static>,
    _gpu: Gpu,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut before = ptr::null_mut();
        // SAFETY: the pointer is to a local that outlives the call. The guard pushed a context on
        // this thread, which it does not leave. A failure means that the driver is shutting down.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut before) };
    }
}

/// The context that is current to this thread, as a number; 0 = none. For tests.
///
/// # Errors
///
/// [`CudaError`] when the driver refuses.
pub fn current_context() -> Result<usize, CudaError> {
    let mut context = ptr::null_mut();
    // SAFETY: the pointer is to a local that outlives the call.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
    Ok(context.addr())
}

/// A name for C. Names of kernels have no zero in them.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(addresses: &[&str]) -> Vec<Found> {
        let numbered = (0..).zip(addresses);
        numbered.map(|(device, at)| Found { device, pci: normal(at) }).collect()
    }

    #[test]
    fn gpus_are_numbered_by_their_addresses() {
        let mut three = found(&["0000:C1:00.0", "0000:01:00.0", "0001:01:00.0"]);
        let mut at = |index| choose(&Choice::Index(index), &mut three).map(|gpu| gpu.device);
        assert_eq!((at(0), at(1), at(2)), (Ok(1), Ok(0), Ok(2)));
        let error = at(3).expect_err("there are three");
        assert_eq!(
            error.to_string(),
            "GPU 3 is not there; this machine has 0000:01:00.0, 0000:c1:00.0, 0001:01:00.0"
        );
    }

    #[test]
    fn an_address_is_found_however_it_is_written() {
        let mut two = found(&["0000:01:00.0", "000f:02:00.0"]);
        for (text, device) in
            [("0000:01:00.0", 0), ("00000000:01:00.0", 0), ("01:00.0", 0), ("000F:02:00", 1)]
        {
            let choice = Choice::Pci(text.to_owned());
            assert_eq!(choose(&choice, &mut two).map(|gpu| gpu.device), Ok(device), "{text}");
        }
        let other = Choice::Pci("0000:02:00.0".to_owned());
        assert!(choose(&other, &mut two).is_err());
        let none = choose(&other, &mut []).expect_err("nothing is there");
        assert_eq!(none.to_string(), "the GPU at 0000:02:00.0 is wanted, and there is no GPU");
    }

    #[test]
    fn without_a_driver_the_reason_is_one_line() {
        match Gpu::open(&Choice::Index(0)) {
            Ok(gpu) => assert!(gpu.memory().expect("memory").1 > 0),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains('\n') && text.len() > 20, "{text}");
            }
        }
    }
}
