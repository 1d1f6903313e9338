//! The shared test kit: the program under test, a place to run it in, the shared data.
//!
//! The tests of this package run the real program as a person would: a command line in, exit code,
//! stdout and stderr out.

pub mod background;
pub mod golden;
pub mod netns;
pub mod pcap;
pub mod solo;
pub mod yaml;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use background::Background;

/// How long a program may run before the test that started it gives it up.
const PATIENCE: Duration = Duration::from_secs(600);

/// Root of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is a folder of it")
}

/// A configuration that ships with the project.
#[must_use]
pub fn config(name: &str) -> PathBuf {
    workspace().join("configs").join(name)
}

/// The folder of data and weights that the project does not contain, if this machine has it: the
/// environment's `TENSORWIRE_SHARED`, or `../shared` beside the checkout. Without it, says which
/// test is skipped and why.
#[must_use]
pub fn shared(test: &str) -> Option<PathBuf> {
    let given = std::env::var_os("TENSORWIRE_SHARED").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| workspace().join("../shared"));
    if folder.join("models/golden.json").is_file() {
        return Some(folder);
    }
    report(&format!(
        "skipped: {test}: no shared data at {} (set TENSORWIRE_SHARED)",
        folder.display()
    ));
    None
}

/// Whether the program under test has DPDK in it. Without it, says which test is skipped and why.
#[must_use]
pub fn with_dpdk(test: &str) -> bool {
    if !tensorwire::run::nic::dpdk::BUILT {
        report(&format!(
            "skipped: {test}: built without DPDK (cargo test --workspace --features \
             tensorwire-tests/dpdk, with libdpdk 22.11 or later installed)"
        ));
    }
    tensorwire::run::nic::dpdk::BUILT
}

/// Says a line that shows in the output of the tests.
#[expect(clippy::print_stderr, reason = "a skipped test has to say so")]
pub fn report(line: &str) {
    eprintln!("{line}");
}

/// What a program left behind.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Output {
    /// The output, if the program ended with `code`.
    ///
    /// # Panics
    ///
    /// With everything that it said, if it did not.
    #[must_use]
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Stdout as the one JSON object that it is with `--json`.
    ///
    /// # Panics
    ///
    /// If it is anything else.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("{error}: {}\nstderr: {}", self.stdout, self.stderr))
    }
}

/// An empty folder to run the program in; gone with the value.
#[derive(Debug)]
pub struct Workplace {
    folder: TempDir,
}

impl Workplace {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If the system has no room for temporary files.
    #[must_use]
    pub fn new() -> Self {
        Self { folder: TempDir::new().expect("a temporary folder") }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of `name` in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Puts a file into it, and answers its path.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Every file in it, relative, sorted.
    ///
    /// # Panics
    ///
    /// If the folder cannot be read.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.path()).expect("inside the folder");
                    files.push(name.display().to_string());
                }
            }
        }
        files.sort();
        files
    }

    /// Runs `tensorwire` with `args` here and waits for it.
    ///
    /// # Panics
    ///
    /// If the program is not there, or does not end within ten minutes.
    #[must_use]
    #[track_caller]
    pub fn tensorwire<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.start(args).wait()
    }

    /// Starts `tensorwire` with `args` here.
    ///
    /// # Panics
    ///
    /// If the program is not there.
    #[must_use]
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Background {
        let mut command = self.command(program());
        command.args(args);
        Background::start(command)
    }

    /// Runs a line of shell here; `$TW` is the program under test.
    ///
    /// # Panics
    ///
    /// As [`Workplace::tensorwire`].
    #[must_use]
    #[track_caller]
    pub fn shell(&self, line: &str) -> Output {
        self.start_shell(line).wait()
    }

    /// Starts a line of shell here; `$TW` is the program under test.
    ///
    /// # Panics
    ///
    /// As [`Workplace::start`].
    #[must_use]
    #[track_caller]
    pub fn start_shell(&self, line: &str) -> Background {
        let mut command = self.command("sh");
        command.env("TW", program()).args(["-c", line]);
        Background::start(command)
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env_remove("ETH_DST_ADDR");
        command
    }

    /// Everything in it: the files with their bytes, in the order of [`Workplace::files`].
    ///
    /// # Panics
    ///
    /// If a file cannot be read.
    #[must_use]
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let read = |name: String| {
            let bytes = fs::read(self.file(&name)).expect("a file");
            (name, bytes)
        };
        self.files().into_iter().map(read).collect()
    }
}

impl Default for Workplace {
    fn default() -> Self {
        Self::new()
    }
}

/// The program under test. `cargo test` builds it beside the tests.
///
/// # Panics
///
/// If it is not there: the tests of this package were built without it.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let program = profile.join("tensorwire");
    let missing = "no program at";
    assert!(program.is_file(), "{missing} {}: cargo build -p tensorwire", program.display());
    program
}
