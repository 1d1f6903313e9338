//! Errors of CUDA, with the call that gave them.

use std::fmt;

use cudarc::driver::sys::CUresult;
use tensorwire_core::port::StageError;

/// A call of CUDA's driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// The call, as the driver names it.
    pub call: &'static str,
    /// The driver's code (`CUresult`).
    pub code: u32,
}

/// Code, name and what to do of the errors that a start or a run meets.
const KNOWN: &[(u32, &str, &str)] = &[
    (1, "CUDA_ERROR_INVALID_VALUE", ""),
    (2, "CUDA_ERROR_OUT_OF_MEMORY", "use fewer or smaller buffers, or free memory of the GPU"),
    (3, "CUDA_ERROR_NOT_INITIALIZED", ""),
    (4, "CUDA_ERROR_DEINITIALIZED", "the program is ending"),
    (
        34,
        "CUDA_ERROR_STUB_LIBRARY",
        "the library found is the toolkit's stub; put the driver's first",
    ),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process has the GPU for itself"),
    (
        100,
        "CUDA_ERROR_NO_DEVICE",
        "no GPU is visible here; look at CUDA_VISIBLE_DEVICES and nvidia-smi",
    ),
    (101, "CUDA_ERROR_INVALID_DEVICE", "nvidia-smi lists the GPUs of this machine"),
    (200, "CUDA_ERROR_INVALID_IMAGE", ""),
    (201, "CUDA_ERROR_INVALID_CONTEXT", ""),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the kernels are not compiled for this GPU"),
    (218, "CUDA_ERROR_INVALID_PTX", ""),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is older than the kernels' compiler"),
    (300, "CUDA_ERROR_INVALID_SOURCE", ""),
    (400, "CUDA_ERROR_INVALID_HANDLE", ""),
    (500, "CUDA_ERROR_NOT_FOUND", ""),
    (600, "CUDA_ERROR_NOT_READY", ""),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "the GPU's context is lost; start again"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a display's watchdog ended the kernel"),
    (712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", ""),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS", "the GPU's context is lost; start again"),
    (719, "CUDA_ERROR_LAUNCH_FAILED", "the GPU's context is lost; start again"),
    (801, "CUDA_ERROR_NOT_SUPPORTED", "this GPU or driver cannot do that"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY", "start the fabric manager, or wait until it is up"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "kernel module and library differ; reboot"),
    (999, "CUDA_ERROR_UNKNOWN", "look at the kernel log (dmesg) for NVRM lines"),
];

impl CudaError {
    /// The driver has no code that the binary is for another GPU, or too new: the two below are
    /// how it says so, and 200 is what some versions say of a compression they do not know.
    pub(crate) const REFUSED_IMAGE: [u32; 5] = [200, 209, 218, 222, 300];

    /// Whether the driver refused a compiled module because it is not for this GPU or this driver.
    #[must_use]
    pub fn refused_image(&self) -> bool {
        Self::REFUSED_IMAGE.contains(&self.code)
    }

    /// CUDA's name of the code, where it is a known one.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        KNOWN.iter().find(|(code, ..)| *code == self.code).map(|(_, name, _)| *name)
    }

    /// What to do about it; empty where nothing is known.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        KNOWN.iter().find(|(code, ..)| *code == self.code).map_or("", |(.., advice)| advice)
    }
}

/// The result of a call.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        failed => Err(CudaError { call, code: failed as u32 }),
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (code {})", self.call, self.name().unwrap_or("a CUDA error"), self.code)?;
        match self.advice() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<CudaError> for StageError {
    /// Errors of a context stay: nothing after one can succeed.
    fn from(error: CudaError) -> Self {
        Self { call: error.call, code: i32::try_from(error.code).unwrap_or(i32::MAX), fatal: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_call_the_code_and_what_to_do() {
        let error = CudaError { call: "cuMemHostAlloc", code: 2 };
        let text = error.to_string();
        assert_eq!(
            text,
            "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (code 2); use fewer or smaller buffers, or \
             free memory of the GPU"
        );
        let unknown = CudaError { call: "cuInit", code: 12_345 };
        assert_eq!(unknown.to_string(), "cuInit: a CUDA error (code 12345)");
        assert_eq!(StageError::from(error).to_string(), "cuMemHostAlloc failed (code 2)");
    }

    #[test]
    fn codes_are_those_of_the_bindings() {
        for (named, result) in [
            ("CUDA_ERROR_OUT_OF_MEMORY", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            ("CUDA_ERROR_NO_BINARY_FOR_GPU", CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
            ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
            ("CUDA_ERROR_NOT_READY", CUresult::CUDA_ERROR_NOT_READY),
            ("CUDA_ERROR_ILLEGAL_ADDRESS", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
        ] {
            let error = check("cuSome", result).expect_err("no success");
            assert_eq!(error.name(), Some(named));
        }
        assert_eq!(check("cuSome", CUresult::CUDA_SUCCESS), Ok(()));
        let refused = |code| CudaError { call: "cuModuleLoadData", code }.refused_image();
        assert!(refused(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as u32));
        assert!(refused(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as u32));
        assert!(!refused(CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32));
    }
}
