//! Compiles the shim against the TensorRT headers of this machine, and says so by
//! `cfg(has_tensorrt)`. Without headers the crate builds all the same and says why it can do
//! nothing.
//!
//! `TENSORRT_INCLUDE_DIR` names the folder of NvInfer.h, or `none` to build without it; else the
//! usual places are searched. `CUDA_INCLUDE_DIR` names the folder of cuda_runtime_api.h. The
//! libraries themselves are not needed: they are loaded at run time.

use std::env;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 3] = ["library", "build", "engine"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_tensorrt)");
    for name in ["TENSORRT_INCLUDE_DIR", "CUDA_INCLUDE_DIR", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shim");
    let (built, missing) = match headers() {
        Ok((tensorrt, cuda)) => {
            compile(&tensorrt, &cuda);
            println!("cargo::rustc-cfg=has_tensorrt");
            (1, String::new())
        }
        Err(missing) => (0, missing),
    };
    println!("cargo::rustc-env=TENSORWIRE_TRT_MISSING={missing}");
    println!("cargo::metadata=built={built}");
}

/// The folders of NvInfer.h and of cuda_runtime_api.h. What a variable names must be there; what is
/// only searched for may be absent.
fn headers() -> Result<(PathBuf, PathBuf), String> {
    let tensorrt = match env::var_os("TENSORRT_INCLUDE_DIR") {
        Some(named) if named == "none" => {
            return Err("TENSORRT_INCLUDE_DIR was `none` when this program was built".into());
        }
        Some(named) => demanded("TENSORRT_INCLUDE_DIR", named.into(), "NvInfer.h"),
        None => first(usual_places(), "NvInfer.h")
            .ok_or("no NvInfer.h was found when this program was built")?,
    };
    println!("cargo::rerun-if-changed={}", tensorrt.join("NvInferVersion.h").display());
    if !tensorrt.join("NvOnnxParser.h").is_file() {
        return Err(format!("{} has NvInfer.h, and no NvOnnxParser.h", tensorrt.display()));
    }
    let cuda = match env::var_os("CUDA_INCLUDE_DIR") {
        Some(named) => demanded("CUDA_INCLUDE_DIR", named.into(), "cuda_runtime_api.h"),
        None => {
            let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os);
            let homes = homes.map(|home| PathBuf::from(home).join("include"));
            let usual = ["/usr/local/cuda/include", "/usr/include"].map(PathBuf::from);
            let beside = [tensorrt.clone(), tensorrt.join("..")];
            first(homes.chain(usual).chain(beside), "cuda_runtime_api.h")
                .ok_or("no cuda_runtime_api.h was found when this program was built")?
        }
    };
    Ok((tensorrt, cuda))
}

/// Where packages of NVIDIA put the headers: Debian packages of both machines, archives,
/// containers.
fn usual_places() -> impl Iterator<Item = PathBuf> {
    let triple = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "aarch64-linux-gnu",
        _ => "x86_64-linux-gnu",
    };
    [
        format!("/usr/include/{triple}"),
        "/usr/include".into(),
        "/usr/local/tensorrt/include".into(),
        "/opt/tensorrt/include".into(),
        format!("/usr/local/cuda/targets/{triple}/include"),
    ]
    .into_iter()
    .map(PathBuf::from)
}

fn first(folders: impl IntoIterator<Item = PathBuf>, file: &str) -> Option<PathBuf> {
    folders.into_iter().find(|folder| folder.join(file).is_file())
}

/// A folder that the user named and that is not what it is said to be stops the build: to go on
/// without would be a surprise much later.
fn demanded(variable: &str, folder: PathBuf, file: &str) -> PathBuf {
    assert!(folder.join(file).is_file(), "{variable}: there is no {file} in {}", folder.display());
    folder
}

fn compile(tensorrt: &Path, cuda: &Path) {
    let mut build = cc::Build::new();
    // Errors are for `ci/tensorrt-compile.sh`: a compiler nobody has seen yet may warn of more.
    build.cpp(true).std("c++17").warnings(true);
    // Headers of the vendor are not ours to mend: their warnings are off.
    for folder in [tensorrt, cuda] {
        build.flag("-isystem").flag(folder);
    }
    for source in SOURCES {
        build.file(format!("shim/{source}.cpp"));
    }
    build.compile("tensorwire_trt");
    println!("cargo::rustc-link-lib=dl");
}
