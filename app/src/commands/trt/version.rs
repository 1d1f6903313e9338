//! `trt version`.

use std::fs;
use std::path::{Path, PathBuf};

use object::elf::{DT_SONAME, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader};
use serde::Serialize;
use tensorwire_cuda::{Choice, Gpu};
use tensorwire_tensorrt::{Runtime, Versions};

use super::{print, print_json};
use crate::cli::TrtVersionArgs;
use crate::exit::{ExitCode, Failure};
use crate::run::plan::failure;
use crate::run::tensorrt;
use crate::talk::Talk;

/// What is here of TensorRT.
#[derive(Default, Serialize)]
struct Report {
    /// Why TensorRT cannot be used, if it cannot.
    unavailable: Option<String>,
    flavor: Option<String>,
    library_version: Option<String>,
    header_version: Option<String>,
    progress: Option<bool>,
    timing_cache: Option<bool>,
    ahead_of_time: Option<bool>,
    implicit_int8: Option<bool>,
    /// Of the ONNX parser's interface.
    parser_version: Option<String>,
    /// Why there is no parser, if there is none.
    no_parser: Option<String>,
    library: Option<Library>,
    parser: Option<Library>,
    gpu: Option<GpuReport>,
    /// Why there is no GPU, if there is none.
    no_gpu: Option<String>,
}

/// A library's own file.
#[derive(Serialize)]
struct Library {
    path: PathBuf,
    soname: Option<String>,
    /// The symbol `tensorrt_version_…`.
    version_symbol: Option<String>,
    /// The symbol `tensorrt_build_…`: when and from what it was built.
    build_symbol: Option<String>,
}

#[derive(Serialize)]
struct GpuReport {
    name: String,
    pci: String,
    compute_capability: String,
    driver: String,
    multiprocessors: u32,
    fast: Vec<&'static str>,
}

pub(super) fn version(args: &TrtVersionArgs) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    match tensorrt::library(Talk::new(true)) {
        Ok(mut runtime) => {
            report.versions(&runtime.versions());
            match runtime.parser_version() {
                Ok(version) => report.parser_version = Some(version.to_string()),
                Err(why) => report.no_parser = Some(why.to_string()),
            }
        }
        Err(why) => report.unavailable = Some(why),
    }
    report.files();
    match gpu(args.gpu) {
        Ok(gpu) => report.gpu = Some(gpu),
        Err(why) => report.no_gpu = Some(why),
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    match report.unavailable {
        Some(why) => Err(failure(ExitCode::Device, why)),
        None => Ok(ExitCode::Complete),
    }
}

fn gpu(index: u32) -> Result<GpuReport, String> {
    let gpu = Gpu::open(&Choice::Index(index)).map_err(|error| error.to_string())?;
    let text = |error: tensorwire_cuda::CudaError| error.to_string();
    let capability = gpu.capability().map_err(text)?;
    let driver = gpu.driver_version().map_err(text)?;
    Ok(GpuReport {
        name: gpu.name().to_owned(),
        pci: gpu.pci().to_owned(),
        compute_capability: format!("{}.{}", capability / 10, capability % 10),
        driver: format!("CUDA {}.{}", driver / 1_000, driver % 1_000 / 10),
        multiprocessors: gpu.multiprocessors().map_err(text)?,
        fast: fast(capability),
    })
}

/// Types that tensor cores of a compute capability take, by NVIDIA's support matrix.
fn fast(capability: u32) -> Vec<&'static str> {
    let mut types = Vec::new();
    let mut from = |least: u32, name| {
        if capability >= least {
            types.push(name);
        }
    };
    from(70, "fp16");
    from(72, "int8");
    from(80, "tf32");
    from(80, "bf16");
    from(80, "2:4 sparse weights");
    from(89, "fp8");
    from(100, "fp4");
    types
}

impl Report {
    fn versions(&mut self, versions: &Versions) {
        self.flavor = Some(versions.flavor.to_string());
        self.library_version = Some(versions.library.to_string());
        self.header_version = Some(versions.header.to_string());
        self.progress = Some(versions.reports_progress);
        self.timing_cache = Some(versions.has_timing_cache);
        self.ahead_of_time = Some(versions.has_targets);
        self.implicit_int8 = Some(versions.has_implicit_int8);
    }

    /// What the loaded library's file says of itself, and the parser's, which lies beside it or
    /// where the environment says.
    fn files(&mut self) {
        let Some(path) = loaded(&["libnvinfer.so", "libtensorrt_rtx.so"]) else { return };
        let named = std::env::var_os("TENSORWIRE_TENSORRT_PARSER").map(PathBuf::from);
        let beside = ["libnvonnxparser.so", "libtensorrt_onnxparser_rtx.so"];
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let parser = named.or_else(|| first_of(&folder, &beside));
        self.parser = parser.filter(|path| path.is_file()).map(|path| about(&path));
        self.library = Some(about(&path));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| text += &format!("{name:<12} {value}\n");
        if let (Some(flavor), Some(version), Some(header)) =
            (&self.flavor, &self.library_version, &self.header_version)
        {
            line("TensorRT", format!("{flavor} {version}, this program has headers of {header}"));
            let can = [
                (self.progress, "reports the progress of a build"),
                (self.timing_cache, "keeps measured times"),
                (self.ahead_of_time, "builds for GPUs that are not here"),
                (self.implicit_int8, "takes calibration tables"),
            ];
            let can = can.iter().filter(|(yes, _)| *yes == Some(true)).map(|(_, what)| *what);
            line("it", can.collect::<Vec<_>>().join(", "));
        } else {
            line("TensorRT", "none that can be used".to_owned());
        }
        match (&self.parser_version, &self.no_parser) {
            (Some(version), _) => line("ONNX parser", format!("interface {version}")),
            (None, Some(why)) => line("ONNX parser", format!("none: {why}")),
            (None, None) => {}
        }
        for (name, library) in [("library", &self.library), ("its file", &self.parser)] {
            line(name, library.as_ref().map_or_else(|| "not found".to_owned(), Library::text));
        }
        match (&self.gpu, &self.no_gpu) {
            (Some(gpu), _) => line("GPU", gpu.text()),
            (None, why) => line("GPU", format!("none: {}", why.as_deref().unwrap_or_default())),
        }
        text
    }
}

impl GpuReport {
    fn text(&self) -> String {
        format!(
            "{} at {}, compute capability {}, {} multiprocessors, driver of {}\n{:<12} {}",
            self.name,
            self.pci,
            self.compute_capability,
            self.multiprocessors,
            self.driver,
            "fast here",
            self.fast.join(", ")
        )
    }
}

impl Library {
    fn text(&self) -> String {
        let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        format!(
            "{}\n{:<12} SONAME {}, version symbol {}, build symbol {}",
            self.path.display(),
            "",
            or(&self.soname),
            or(&self.version_symbol),
            or(&self.build_symbol)
        )
    }
}

/// The file of a loaded library whose name begins with one of `names`.
fn loaded(names: &[&str]) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path_of = |line: &str| line.find('/').map(|at| PathBuf::from(&line[at..]));
    maps.lines().filter_map(path_of).find(|path| named(path, names))
}

fn named(path: &Path, names: &[&str]) -> bool {
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    names.iter().any(|name| file.starts_with(name))
}

fn first_of(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|path| named(path, names)).min()
}

/// What a library's file says; a file that is none says nothing.
fn about(path: &Path) -> Library {
    let symbols = symbols(path).unwrap_or_default();
    Library {
        path: path.to_path_buf(),
        soname: symbols.soname,
        version_symbol: symbols.version,
        build_symbol: symbols.build,
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Symbols {
    soname: Option<String>,
    version: Option<String>,
    build: Option<String>,
}

/// Reads the few pages that are needed of a file of hundreds of megabytes.
fn symbols(path: &Path) -> Option<Symbols> {
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let header = FileHeader64::<object::Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &cache).ok()?;
    let mut found = Symbols::default();
    let table = sections.symbols(endian, &cache, object::elf::SHT_DYNSYM).ok()?;
    for symbol in table.iter() {
        let Ok(name) = table.symbol_name(endian, symbol) else { continue };
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if let Some(version) = name.strip_prefix("tensorrt_version_") {
            found.version = Some(version.replace('_', "."));
        } else if let Some(build) = name.strip_prefix("tensorrt_build_") {
            found.build = Some(build.to_owned());
        }
    }
    if let Ok(Some((entries, strings))) = sections.dynamic(endian, &cache) {
        let strings = sections.strings(endian, &cache, strings).ok()?;
        let soname = entries.iter().find(|entry| entry.tag(endian) == DT_SONAME);
        let name = soname.and_then(|soname| soname.string(endian, strings).ok());
        found.soname = name.map(|name| String::from_utf8_lossy(name).into_owned());
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_with_the_generations() {
        assert_eq!(fast(61), [""; 0]);
        assert_eq!(fast(75), ["fp16", "int8"]);
        assert!(fast(87).contains(&"bf16") && !fast(87).contains(&"fp8"));
        assert!(fast(90).contains(&"fp8") && !fast(90).contains(&"fp4"));
        assert!(fast(121).contains(&"fp4"));
    }

    /// The C library of this machine stands for one with a SONAME and without those symbols.
    #[test]
    fn a_librarys_file_says_what_it_is() {
        let libc = loaded(&["libc.so.6"]).expect("every program has it");
        let found = symbols(&libc).expect("a library");
        assert_eq!(found.soname.as_deref(), Some("libc.so.6"));
        assert_eq!((found.version, found.build), (None, None));
        // This program stands for one without a SONAME: that is all that it does not say.
        assert_eq!(symbols(Path::new("/proc/self/exe")), Some(Symbols::default()));
        assert_eq!(symbols(Path::new("/proc/self/cmdline")), None, "no library");
    }
}
