//! A machine as its kernel describes it in files.

use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Longest text that is read: the kernel's own are a few kilobytes.
const LONGEST: u64 = 1 << 20;

/// Where the kernel's files are: at `/`, or in a folder that a test made.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { root: PathBuf::from("/") }
    }
}

impl Machine {
    /// The machine whose files are in `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether it is the machine that this program runs on, and not one made of files.
    #[must_use]
    pub fn is_this_one(&self) -> bool {
        self.root == Path::new("/")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether there is such a file or folder.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a file, without the blanks and NULs around it; `None` if it cannot be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
    }

    /// The number in a file.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none if it cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last part of what a link leads to.
    #[must_use]
    pub fn target(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The value of `key` in a file of lines such as `key:  value unit`.
    #[must_use]
    pub fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// A number of kilobytes in `/proc/meminfo`, in bytes.
    #[must_use]
    pub fn meminfo(&self, key: &str) -> Option<u64> {
        let value = self.field("proc/meminfo", key)?;
        value.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The words of the kernel's command line.
    #[must_use]
    pub fn boot_words(&self) -> Vec<String> {
        let line = self.text("proc/cmdline").unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Whether an address is one of this machine's. Addresses of IPv6 are not looked up.
    #[must_use]
    pub fn owns(&self, ip: IpAddr) -> Option<bool> {
        let IpAddr::V4(ip) = ip else { return None };
        let text = self.text("proc/net/fib_trie")?;
        let mut last = "";
        Some(text.lines().map(str::trim).any(|line| {
            if line == "/32 host LOCAL" && last == ip.to_string() {
                return true;
            }
            if let Some((_, address)) = line.split_once("|-- ") {
                last = address;
            }
            false
        }))
    }
}
