//! The compiled kernels, and their launches.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUlaunchAttributeID};
use tensorwire_core::geometry::ElementType;

use crate::cache::Cache;
use crate::device::{Gpu, c_text};
use crate::error::{CudaError, check};
use crate::load::{self, NoKernels, Origin, Toolchain, Wanted};
use crate::nvrtc;
use crate::stream::Stream;

/// Compiled when the program was built; empty where no compiler was found.
const FATBIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tensorwire.fatbin"));

/// Why it is empty.
const FATBIN_MISSING: &str = env!("TENSORWIRE_FATBIN_MISSING");

/// Bytes of compiled kernels in this program, or why there are none.
///
/// # Errors
///
/// A few words.
pub const fn embedded() -> Result<&'static [u8], &'static str> {
    if FATBIN.is_empty() { Err(FATBIN_MISSING) } else { Ok(FATBIN) }
}

/// The kernels on one GPU.
#[derive(Clone, Debug)]
pub struct Kernels {
    module: Arc<Module>,
    origin: Origin,
}

#[derive(Debug)]
struct Module {
    gpu: Gpu,
    module: sys::CUmodule,
}

// SAFETY: a module handle may be used from any thread; the driver locks what it must.
unsafe impl Send for Module {}

// SAFETY: as above.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: loaded by `Real::load`; functions of it keep it alive, so there is none left.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

/// The driver and NVRTC.
struct Real<'g>(&'g Gpu);

impl Toolchain for Real<'_> {
    type Module = Module;

    fn load(&mut self, image: &[u8]) -> Result<Module, CudaError> {
        let _entered = self.0.enter()?;
        // What has no length of its own (PTX) ends at a zero.
        let mut ended = Vec::with_capacity(image.len() + 1);
        ended.extend_from_slice(image);
        ended.push(0);
        let mut module = ptr::null_mut();
        // SAFETY: the pointer is to a local, the image outlives the call, and it is one that a
        // compiler made: what is cut or damaged was sorted out by its checksum.
        let result = unsafe { sys::cuModuleLoadData(&raw mut module, ended.as_ptr().cast()) };
        check("cuModuleLoadData", result)?;
        Ok(Module { gpu: self.0.clone(), module })
    }

    fn compiler(&mut self) -> Result<(i32, i32), String> {
        nvrtc::version()
    }

    fn compile(&mut self, architecture: u32) -> Result<Vec<u8>, String> {
        nvrtc::compile(architecture)
    }
}

/// The name of the kernel that converts `input` to `output`; for equal types the one that copies,
/// unless the order of their bytes has to change, which only a conversion does.
#[must_use]
pub fn reorder_name(input: ElementType, output: ElementType, network_order: bool) -> String {
    let swapped = network_order && input.bits() > 8;
    if input == output && !swapped {
        return "tw_copy".to_owned();
    }
    format!("tw_reorder_{}_{}", input.name(), output.name())
}

impl Kernels {
    /// Loads them: the embedded ones, or those that NVRTC compiles (see [`crate::load`]).
    ///
    /// # Errors
    ///
    /// [`NoKernels`] when neither can be had for this GPU.
    pub fn load(gpu: &Gpu, cache: Option<&Cache>) -> Result<Self, NoKernels> {
        Self::load_from(gpu, embedded(), cache)
    }

    /// The same, with `embedded` in the place of what the program brought.
    ///
    /// # Errors
    ///
    /// As [`Kernels::load`].
    pub fn load_from(
        gpu: &Gpu,
        embedded: Result<&[u8], &str>,
        cache: Option<&Cache>,
    ) -> Result<Self, NoKernels> {
        let architecture = gpu.capability().map_err(NoKernels::Cuda)?;
        let wanted = Wanted { embedded, sources: nvrtc::SOURCES_HASH, architecture, cache };
        let (module, origin) = load::load(&wanted, &mut Real(gpu))?;
        Ok(Self { module: Arc::new(module), origin })
    }

    /// Where they came from.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// A kernel by its name.
    ///
    /// # Errors
    ///
    /// [`CudaError`] (`CUDA_ERROR_NOT_FOUND`) when there is none of that name.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let _entered = self.module.gpu.enter()?;
        let text = c_text(name);
        let mut function = ptr::null_mut();
        let module = self.module.module;
        // SAFETY: the pointer is to a local, the name ends in a zero and outlives the call.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut function, module, text.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        // The GPUs that have the instructions for it; to others the attribute means nothing.
        let overlaps = self.module.gpu.capability()? >= 90;
        Ok(Function { _module: Arc::clone(&self.module), function, overlaps })
    }
}

/// The blocks and threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks: x, y.
    pub grid: [u32; 2],
    /// Threads of a block: x, y.
    pub block: [u32; 2],
}

impl Shape {
    /// Of a reorder: one warp per packet and piece, `together` packets to a block.
    #[must_use]
    pub const fn reorder(packets: u32, together: u32, pieces: u32) -> Self {
        Self { grid: [packets.div_ceil(together), pieces], block: [32, together] }
    }

    /// Of a gather of headers that are a multiple of 16 bytes long.
    #[must_use]
    pub const fn gather(packets: u32, header_bytes: u32) -> Self {
        Self { grid: [(packets * (header_bytes / 16)).div_ceil(128), 1], block: [128, 1] }
    }
}

/// A kernel.
#[derive(Clone)]
pub struct Function {
    _module: Arc<Module>,
    function: sys::CUfunction,
    overlaps: bool,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("overlaps", &self.overlaps).finish_non_exhaustive()
    }
}

// SAFETY: a function handle may be used from any thread; the driver locks what it must.
unsafe impl Send for Function {}

// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Enqueues the kernel, the context being entered. With `overlap` it may start while the kernel
    /// before it in the stream writes; the kernels wait for it themselves before they write.
    ///
    /// # Errors
    ///
    /// [`CudaError`] when the driver refuses.
    ///
    /// # Safety
    ///
    /// `params` is the structure that this kernel takes, and until the launch is done all addresses
    /// in it are of memory that this GPU reaches, of the lengths that the structure says, which
    /// nobody else writes to and, where the kernel writes, nobody else reads.
    pub unsafe fn launch<P>(
        &self,
        stream: &Stream,
        shape: Shape,
        params: &P,
        overlap: bool,
    ) -> Result<(), CudaError> {
        // SAFETY: a union of plain numbers, for which zero is a value.
        let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: 1,
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream.raw(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(overlap && self.overlaps),
        };
        let mut arguments: [*mut c_void; 1] = [ptr::from_ref(params).cast_mut().cast()];
        let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: configuration, attribute, arguments and parameters outlive the call, which copies
        // them; the caller answers for what the kernel does with them.
        let result =
            unsafe { sys::cuLaunchKernelEx(&raw const config, self.function, arguments, none) };
        check("cuLaunchKernelEx", result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_that_a_configuration_can_name_is_in_the_sources() {
        let source = include_str!("../../../kernels/cuda/tensorwire.cu");
        use ElementType::{Bf16, Fp16, Fp32, Fp64, Int4, Int8, Int16, Int32};
        for input in [Int4, Int8, Int16, Int32] {
            assert!(source.contains(&format!("TW_INPUT({},", input.name())));
            for output in [Fp16, Bf16, Fp32, Fp64] {
                let name = reorder_name(input, output, true);
                assert_eq!(name, reorder_name(input, output, false));
                assert_eq!(name, format!("tw_reorder_{}_{}", input.name(), output.name()));
                assert!(source.contains(&format!("TW_PLAIN(in, In, {},", output.name())));
            }
            assert_eq!(reorder_name(input, input, false), "tw_copy");
        }
        assert_eq!(reorder_name(Int8, Int8, true), "tw_copy", "a byte has no order");
        assert_eq!(reorder_name(Int32, Int32, true), "tw_reorder_int32_int32");
        assert!(source.contains("TW_PLAIN(in, In, int32, Int32)"));
        assert!(source.contains("TW_KERNEL(tw_copy,"));
    }

    #[test]
    fn shapes_cover_every_packet() {
        assert_eq!(Shape::reorder(4096, 2, 1), Shape { grid: [2048, 1], block: [32, 2] });
        assert_eq!(Shape::reorder(5, 4, 2), Shape { grid: [2, 2], block: [32, 4] });
        assert_eq!(Shape::gather(64, 64), Shape { grid: [2, 1], block: [128, 1] });
        assert_eq!(Shape::gather(1, 64).grid, [1, 1]);
    }

    #[test]
    fn the_program_says_whether_it_brings_kernels() {
        match embedded() {
            // The magic of a fat binary (fatbinary_section.h of the toolkit).
            Ok(image) => assert_eq!(image[..4], [0x50, 0xed, 0x55, 0xba]),
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
