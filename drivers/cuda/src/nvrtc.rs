//! The kernels' sources, and NVRTC, which compiles them where the program brought none that fit.
#![allow(unsafe_code)] // calls of a C library; each block says why it may be made

use std::env;
use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcResult};

use crate::cache::hash;
use crate::device::c_text;

/// The sources, by the names under which they include each other.
const SOURCES: [(&str, &str); 8] = [
    ("tensorwire.cu", include_str!("../../../kernels/cuda/tensorwire.cu")),
    ("abi.h", include_str!("../../../kernels/cuda/abi.h")),
    ("convert.cuh", include_str!("../../../kernels/cuda/convert.cuh")),
    ("gather.cuh", include_str!("../../../kernels/cuda/gather.cuh")),
    ("memory.cuh", include_str!("../../../kernels/cuda/memory.cuh")),
    ("packets.cuh", include_str!("../../../kernels/cuda/packets.cuh")),
    ("planes.cuh", include_str!("../../../kernels/cuda/planes.cuh")),
    ("reorder.cuh", include_str!("../../../kernels/cuda/reorder.cuh")),
];

const ZERO: (&str, &str) = ("zero.cuh", include_str!("../../../kernels/cuda/zero.cuh"));

/// NVRTC has no headers of C; of all that these have the kernels need the widths.
const INTEGERS: &str = "#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
";

const OPTIONS: &str = "-std=c++17";

/// Of everything that is compiled.
pub const SOURCES_HASH: u64 = {
    let s = SOURCES;
    hash(&[
        s[0].1, s[1].1, s[2].1, s[3].1, s[4].1, s[5].1, s[6].1, s[7].1, ZERO.1, INTEGERS, OPTIONS,
    ])
};

/// Folders in which NVRTC is looked for besides the system's.
fn folders() -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let homes = homes.chain([PathBuf::from("/usr/local/cuda")]);
    homes.flat_map(|home| [home.join("lib64"), home.join("lib")]).collect()
}

/// Loads a toolkit's NVRTC by its path. The library then counts as loaded under its own name, which
/// is how the bindings ask for it, and it asks for its other half.
fn load_from_toolkit() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let Some(folder) = folders().into_iter().find(|f| f.join("libnvrtc.so").exists()) else {
            return;
        };
        for part in ["libnvrtc-builtins.so", "libnvrtc.so"] {
            // SAFETY: loading NVRTC runs its initialisers, which NVIDIA means to be run in any
            // process.
            let library = unsafe { libloading::Library::new(folder.join(part)) };
            // Kept: it must stay loaded until the bindings have it.
            library.map(std::mem::ManuallyDrop::new).ok();
        }
    });
}

/// Whether NVRTC can be had.
fn present() -> bool {
    load_from_toolkit();
    // SAFETY: as above.
    unsafe { sys::is_culib_present() }
}

fn check(call: &str, result: nvrtcResult) -> Result<(), String> {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        failed => Err(format!("{call}: {failed:?}")),
    }
}

/// Its version: major, minor.
///
/// # Errors
///
/// Why there is none.
pub fn version() -> Result<(i32, i32), String> {
    if !present() {
        return Err("libnvrtc.so is not on this machine".to_owned());
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to locals that outlive the call.
    check("nvrtcVersion", unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) })?;
    Ok((major, minor))
}

/// A program of NVRTC, destroyed when it goes.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `nvrtcCreateProgram`, and nobody has it any more.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

/// Texts for C, and where each begins.
struct Texts {
    pointers: Vec<*const c_char>,
    /// Keeps what the pointers point to.
    _owned: Vec<CString>,
}

impl Texts {
    fn new<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let owned: Vec<CString> = texts.map(c_text).collect();
        Self { pointers: owned.iter().map(|text| text.as_ptr()).collect(), _owned: owned }
    }
}

/// Compiles the kernels for a compute capability (as 90).
///
/// # Errors
///
/// The call that failed, and the first line of what the compiler says.
pub fn compile(architecture: u32) -> Result<Vec<u8>, String> {
    version()?;
    let [(name, source), headers @ ..] = SOURCES;
    let own = [ZERO, ("cstdint", INTEGERS), ("stdint.h", INTEGERS)];
    let names = Texts::new(headers.iter().chain(&own).map(|(name, _)| *name));
    let texts = Texts::new(headers.iter().chain(&own).map(|(_, text)| *text));
    let (source, name) = (c_text(source), c_text(name));
    let count = i32::try_from(names.pointers.len()).unwrap_or(0);
    let mut program = ptr::null_mut();
    // SAFETY: all texts end in a zero and outlive the program; the lists are `count` long.
    let result = unsafe {
        sys::nvrtcCreateProgram(
            &raw mut program,
            source.as_ptr(),
            name.as_ptr(),
            count,
            texts.pointers.as_ptr(),
            names.pointers.as_ptr(),
        )
    };
    check("nvrtcCreateProgram", result)?;
    let program = Program(program);
    let target = format!("--gpu-architecture=sm_{architecture}");
    let options = Texts::new([OPTIONS, &target].into_iter());
    // SAFETY: the options end in a zero and outlive the call; the list has two of them.
    let result = unsafe { sys::nvrtcCompileProgram(program.0, 2, options.pointers.as_ptr()) };
    check("nvrtcCompileProgram", result).map_err(|error| with_log(error, &program))?;
    let mut size = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) })?;
    let mut image = vec![0_u8; size];
    // SAFETY: the buffer is as long as the call before said.
    let result = unsafe { sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()) };
    check("nvrtcGetCUBIN", result)?;
    Ok(image)
}

/// The error with the first line of the compiler's log.
fn with_log(error: String, program: &Program) -> String {
    let mut size = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    let result = unsafe { sys::nvrtcGetProgramLogSize(program.0, &raw mut size) };
    if check("nvrtcGetProgramLogSize", result).is_err() || size == 0 {
        return error;
    }
    let mut log = vec![0_u8; size];
    // SAFETY: the buffer is as long as the call before said.
    let _ = unsafe { sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()) };
    let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
    match log.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("{error}: {}", line.trim()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_at_hand_under_the_name_by_which_it_is_included() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/cuda");
        let all = SOURCES.into_iter().chain([ZERO]);
        let known: Vec<&str> = all.clone().map(|(name, _)| name).collect();
        for entry in std::fs::read_dir(folder).expect("the kernels").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            if entry.path().is_file() {
                assert!(known.contains(&name.as_str()), "{name} is not in SOURCES");
            }
        }
        for (name, text) in all {
            let includes = text.lines().filter_map(|line| line.strip_prefix("#include "));
            for included in includes {
                let included = included.trim_matches(['"', '<', '>']);
                let own = known.contains(&included) || ["cstdint", "stdint.h"].contains(&included);
                assert!(own, "{name} includes {included}, which NVRTC would not find");
            }
        }
    }

    #[test]
    fn the_kernels_compile_for_every_architecture_where_nvrtc_is() {
        let version = match version() {
            Ok(version) => version,
            Err(why) => return eprintln_skip(&why),
        };
        for architecture in [80, 90] {
            let image = compile(architecture).expect("compiled");
            assert_eq!(&image[..4], b"\x7fELF", "{version:?}");
            let text = String::from_utf8_lossy(&image);
            for name in ["tw_reorder_int8_fp16", "tw_copy", "tw_gather_headers"] {
                assert!(text.contains(name), "{name} for {architecture}");
            }
        }
        let error = compile(1).expect_err("no such architecture");
        assert!(error.contains("nvrtcCompileProgram") && !error.contains('\n'), "{error}");
    }

    #[expect(clippy::print_stderr, reason = "a test that cannot run here says why")]
    fn eprintln_skip(why: &str) {
        eprintln!("skipped: {why}");
    }
}
