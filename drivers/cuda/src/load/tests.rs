use super::*;

const FATBIN: &[u8] = b"fat binary";

/// A driver and a compiler that do as they are told.
struct Fake {
    /// Code with which each image is refused; those not named are loaded.
    refuses: Vec<(&'static [u8], u32)>,
    compiler: Result<(i32, i32), String>,
    compiles: Result<Vec<u8>, String>,
    log: Vec<String>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            refuses: Vec::new(),
            compiler: Ok((13, 0)),
            compiles: Ok(b"compiled".to_vec()),
            log: Vec::new(),
        }
    }
}

impl Toolchain for Fake {
    type Module = Vec<u8>;

    fn load(&mut self, image: &[u8]) -> Result<Vec<u8>, CudaError> {
        self.log.push(format!("load {}", String::from_utf8_lossy(image)));
        match self.refuses.iter().find(|(refused, _)| *refused == image) {
            Some((_, code)) => Err(CudaError { call: "cuModuleLoadData", code: *code }),
            None => Ok(image.to_vec()),
        }
    }

    fn compiler(&mut self) -> Result<(i32, i32), String> {
        self.compiler.clone()
    }

    fn compile(&mut self, architecture: u32) -> Result<Vec<u8>, String> {
        self.log.push(format!("compile {architecture}"));
        self.compiles.clone()
    }
}

fn wanted<'a>(embedded: Result<&'a [u8], &'a str>, cache: Option<&'a Cache>) -> Wanted<'a> {
    Wanted { embedded, sources: 1, architecture: 87, cache }
}

#[test]
fn the_embedded_kernels_are_taken_and_nothing_is_compiled() {
    let mut tools = Fake::default();
    let (module, origin) = load(&wanted(Ok(FATBIN), None), &mut tools).expect("loaded");
    assert_eq!((module.as_slice(), origin), (FATBIN, Origin::Embedded));
    assert_eq!(tools.log, ["load fat binary"]);
}

#[test]
fn what_an_older_driver_refuses_is_compiled_once_and_kept() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(place.path().to_path_buf());
    for code in CudaError::REFUSED_IMAGE {
        let refuses = vec![(FATBIN, code)];
        let mut tools = Fake { refuses: refuses.clone(), ..Fake::default() };
        let wanted = Wanted { sources: code.into(), ..wanted(Ok(FATBIN), Some(&cache)) };
        let (module, origin) = load(&wanted, &mut tools).expect("compiled");
        assert_eq!(module, b"compiled", "code {code}");
        assert_eq!(origin, Origin::Compiled { not_kept: None });
        assert_eq!(tools.log, ["load fat binary", "compile 87", "load compiled"]);
        // The next start finds it.
        let mut tools = Fake { refuses, ..Fake::default() };
        let (_, origin) = load(&wanted, &mut tools).expect("kept");
        assert_eq!(origin, Origin::Cached);
        assert_eq!(tools.log, ["load fat binary", "load compiled"]);
    }
}

#[test]
fn another_failure_of_the_driver_is_no_reason_to_compile() {
    let mut tools = Fake { refuses: vec![(FATBIN, 2)], ..Fake::default() };
    let error = load(&wanted(Ok(FATBIN), None), &mut tools).expect_err("out of memory");
    assert_eq!(error, NoKernels::Cuda(CudaError { call: "cuModuleLoadData", code: 2 }));
    assert_eq!(tools.log, ["load fat binary"]);
}

#[test]
fn a_kept_image_that_the_driver_refuses_is_compiled_again() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(place.path().to_path_buf());
    let key = Key { sources: 1, architecture: 87, compiler: (13, 0) };
    cache.put(&key, b"stale").expect("written");
    let mut tools = Fake { refuses: vec![(b"stale", 209)], ..Fake::default() };
    let (_, origin) = load(&wanted(Err("no nvcc"), Some(&cache)), &mut tools).expect("compiled");
    assert_eq!(origin, Origin::Compiled { not_kept: None });
    assert_eq!(tools.log, ["load stale", "compile 87", "load compiled"]);
    assert_eq!(cache.get(&key).as_deref(), Some(&b"compiled"[..]));
}

#[test]
fn without_any_way_both_are_named_in_one_line() {
    let mut tools = Fake { compiler: Err("libnvrtc.so is not here".into()), ..Fake::default() };
    let error = load(&wanted(Err("no nvcc was found"), None), &mut tools).expect_err("no way");
    assert_eq!(
        error.to_string(),
        "no kernels for this GPU: embedded: no nvcc was found; NVRTC: libnvrtc.so is not here"
    );
    assert!(tools.log.is_empty());
    let compiles = Err("sm_87 is not known".to_owned());
    let mut tools = Fake { refuses: vec![(FATBIN, 209)], compiles, ..Fake::default() };
    let error = load(&wanted(Ok(FATBIN), None), &mut tools).expect_err("no way").to_string();
    assert!(error.contains("NO_BINARY_FOR_GPU") && error.contains("sm_87"), "{error}");
    assert!(!error.contains('\n'));
}

#[test]
fn what_cannot_be_kept_is_used_all_the_same() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("file");
    std::fs::write(&file, "").expect("written");
    let cache = Cache::new(file);
    for cache in [Some(&cache), None] {
        let (_, origin) =
            load(&wanted(Err("no nvcc"), cache), &mut Fake::default()).expect("compiled");
        let Origin::Compiled { not_kept: Some(why) } = origin else { panic!("{origin:?}") };
        assert!(!why.is_empty());
    }
}
