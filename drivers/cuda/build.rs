//! Compiles the kernels ahead of time where CUDA's compiler is found, and says so; without one the
//! crate builds all the same, and kernels are compiled at start-up where NVRTC is found.
//!
//! `TENSORWIRE_FATBIN` names a file that was compiled already (`ci/cuda-compile.sh` leaves one in
//! `target/cuda`); `TENSORWIRE_NVCC` names a compiler, or `none` to build without one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compute capabilities: A100, Orin, H100 and H200, B200, Thor, RTX 50, GB10.
const ARCHITECTURES: [u32; 7] = [80, 87, 90, 100, 110, 120, 121];

fn main() {
    for name in ["TENSORWIRE_FATBIN", "TENSORWIRE_NVCC", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/cuda");
    for entry in fs::read_dir(&sources).expect("kernels/cuda is beside drivers/cuda").flatten() {
        if entry.path().is_file() {
            println!("cargo:rerun-if-changed={}", entry.path().display());
        }
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let fatbin = out.join("tensorwire.fatbin");
    let why = match embed(&sources.join("tensorwire.cu"), &fatbin) {
        Ok(()) => String::new(),
        Err(why) => {
            fs::write(&fatbin, []).expect("OUT_DIR can be written");
            why
        }
    };
    println!("cargo:rustc-env=TENSORWIRE_FATBIN_MISSING={why}");
}

/// Puts the compiled kernels at `to`.
fn embed(source: &Path, to: &Path) -> Result<(), String> {
    if let Some(ready) = env::var_os("TENSORWIRE_FATBIN") {
        println!("cargo:rerun-if-changed={}", Path::new(&ready).display());
        return fs::copy(&ready, to)
            .map(|_| ())
            .map_err(|error| format!("TENSORWIRE_FATBIN could not be read: {error}"));
    }
    let nvcc = nvcc().ok_or("no nvcc was found when this program was built")?;
    // Smaller by a factor of ten; compilers before 12.8 do not know how.
    let small = ["--compress-mode=size"];
    compile(&nvcc, &small, source, to).or_else(|_| compile(&nvcc, &[], source, to)).map_err(
        |error| {
            println!("cargo:warning=no GPU kernels are embedded: {error}");
            "nvcc failed when this program was built".to_owned()
        },
    )
}

fn nvcc() -> Option<PathBuf> {
    if let Some(named) = env::var_os("TENSORWIRE_NVCC") {
        return (named != "none").then(|| named.into());
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let folders = homes.chain([PathBuf::from("/usr/local/cuda")]).map(|home| home.join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = folders.chain(env::split_paths(&path));
    folders.map(|folder| folder.join("nvcc")).find(|nvcc| nvcc.is_file())
}

/// For all architectures, or for those that this compiler knows: an older one lacks the newest.
fn compile(nvcc: &Path, options: &[&str], source: &Path, to: &Path) -> Result<(), String> {
    let known = Command::new(nvcc).arg("--list-gpu-code").output();
    let known = known.map_err(|error| format!("{}: {error}", nvcc.display()))?;
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    let is_known = |architecture: &&u32| known.lines().any(|l| l == format!("sm_{architecture}"));
    let mut targets = Vec::new();
    for architecture in ARCHITECTURES.iter().filter(is_known) {
        targets.push(format!("-gencode=arch=compute_{architecture},code=sm_{architecture}"));
    }
    // For what comes after them.
    targets.push("-gencode=arch=compute_80,code=compute_80".to_owned());
    let output = Command::new(nvcc)
        .args(["-std=c++17", "-O3", "--threads", "0", "--fatbin"])
        .args(options)
        .args(&targets)
        .arg(source)
        .arg("-o")
        .arg(to)
        .output()
        .map_err(|error| format!("{}: {error}", nvcc.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", nvcc.display(), said.lines().next().unwrap_or("failed")))
}
