//! What is in a bundle: `bundle.json` says what it is, `SHA256SUMS` what each file has to be (the
//! format of `sha256sum(1)`, which can check it too).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::BundleError;

/// The file that says what a bundle is.
pub const ABOUT: &str = "bundle.json";
/// The file with the checksums.
pub const SUMS: &str = "SHA256SUMS";
/// The program of a bundle.
pub const PROGRAM: &str = "tensorwire";

/// What a bundle is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Its name, usually a version: letters, digits, dots, dashes, underscores.
    pub name: String,
    /// What the program is told to run, in the folder of the bundle.
    pub run: Vec<String>,
    /// What it is told to test itself.
    pub selftest: Vec<String>,
}

/// Whether a name may be that of a folder.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 64 && !name.starts_with(['.', '-']) && name.chars().all(plain)
}

/// The sum of a file, in hex.
fn sum(path: &Path) -> Result<String, BundleError> {
    let mut file = File::open(path).map_err(BundleError::io("read", path))?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let came = file.read(&mut piece).map_err(BundleError::io("read", path))?;
        match piece.get(..came) {
            Some([]) | None => break,
            Some(bytes) => hash.update(bytes),
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // A string takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Every file below `folder`, relative, sorted. A bundle has files and folders, nothing else: a
/// link could lead out of it.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, BundleError> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(under) = left.pop() {
        let path = folder.join(&under);
        for entry in fs::read_dir(&path).map_err(BundleError::io("read", &path))? {
            let entry = entry.map_err(BundleError::io("read", &path))?;
            let name = under.join(entry.file_name());
            let kind = entry.file_type().map_err(BundleError::io("read", &path))?;
            if kind.is_dir() {
                left.push(name);
            } else if kind.is_file() {
                found.push(name);
            } else {
                return Err(BundleError::broken(&folder.join(name), "neither a file nor a folder"));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a bundle of the files that lie in `folder`.
///
/// # Errors
///
/// [`BundleError`] when the name is none, the program is missing, or a file cannot be written.
pub fn make(folder: &Path, about: &About) -> Result<(), BundleError> {
    if !is_name(&about.name) {
        let what = format!("`{}` is no name of a bundle", about.name);
        return Err(BundleError::State(what));
    }
    if !folder.join(PROGRAM).is_file() {
        return Err(BundleError::broken(folder, format!("there is no `{PROGRAM}` in it")));
    }
    let path = folder.join(ABOUT);
    let text = serde_json::to_string_pretty(about)
        .map_err(|error| BundleError::broken(&path, error.to_string()))?;
    fs::write(&path, text + "\n").map_err(BundleError::io("write", &path))?;
    let mut sums = String::new();
    for file in files(folder)?.iter().filter(|file| *file != Path::new(SUMS)) {
        let _ = writeln!(sums, "{}  {}", sum(&folder.join(file))?, file.display());
    }
    let path = folder.join(SUMS);
    fs::write(&path, sums).map_err(BundleError::io("write", &path))
}

/// Reads what a bundle is, and checks that each of its files is what it has to be, and that there
/// is no other.
///
/// # Errors
///
/// [`BundleError::Broken`] that names the file.
pub fn check(folder: &Path) -> Result<About, BundleError> {
    let mut owed = sums(folder)?;
    for file in files(folder)?.iter().filter(|file| *file != Path::new(SUMS)) {
        let path = folder.join(file);
        let Some(expected) = owed.remove(file) else {
            return Err(BundleError::broken(&path, format!("it is not in {SUMS}")));
        };
        if sum(&path)? != expected {
            return Err(BundleError::broken(&path, format!("it is not what {SUMS} says")));
        }
    }
    if let Some((file, _)) = owed.first_key_value() {
        return Err(BundleError::broken(&folder.join(file), "it is missing"));
    }
    about(folder)
}

/// Reads what a bundle is.
///
/// # Errors
///
/// [`BundleError`] when it does not say.
pub fn about(folder: &Path) -> Result<About, BundleError> {
    let path = folder.join(ABOUT);
    let text = fs::read_to_string(&path).map_err(BundleError::io("read", &path))?;
    let about: About = serde_json::from_str(&text)
        .map_err(|error| BundleError::broken(&path, error.to_string()))?;
    if !is_name(&about.name) {
        return Err(BundleError::broken(&path, format!("`{}` is no name", about.name)));
    }
    Ok(about)
}

fn sums(folder: &Path) -> Result<BTreeMap<PathBuf, String>, BundleError> {
    let path = folder.join(SUMS);
    let text = fs::read_to_string(&path).map_err(BundleError::io("read", &path))?;
    let line = |line: &str| {
        let (sum, name) = line.split_once("  ")?;
        let file = PathBuf::from(name);
        let inside = file.components().all(|part| matches!(part, Component::Normal(_)));
        let hex = sum.len() == 64 && sum.bytes().all(|c| c.is_ascii_hexdigit());
        (inside && hex && !name.is_empty()).then(|| (file, sum.to_ascii_lowercase()))
    };
    text.lines()
        .map(|of| line(of).ok_or_else(|| BundleError::broken(&path, format!("`{of}` is no sum"))))
        .collect()
}

/// Copies the files of a bundle to `to`, which is made, and sees them on the disk.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), BundleError> {
    fs::create_dir_all(to).map_err(BundleError::io("make", to))?;
    let mut folders = vec![to.to_owned()];
    for file in files(from)? {
        let (source, target) = (from.join(&file), to.join(&file));
        if let Some(folder) = target.parent()
            && !folders.iter().any(|made| made == folder)
        {
            fs::create_dir_all(folder).map_err(BundleError::io("make", folder))?;
            folders.push(folder.to_owned());
        }
        // With its permissions: the program stays one.
        fs::copy(&source, &target).map_err(BundleError::io("write", &target))?;
        sync(&target)?;
    }
    folders.iter().rev().try_for_each(|folder| sync(folder))
}

/// Sees a file or a folder on the disk.
pub(crate) fn sync(path: &Path) -> Result<(), BundleError> {
    let file = File::open(path).map_err(BundleError::io("open", path))?;
    file.sync_all().map_err(BundleError::io("write", path))
}

/// Whether two bundles are the same, by their sums.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    let read = |folder: &Path| {
        let mut file = File::open(folder.join(SUMS)).ok()?;
        let mut text = Vec::new();
        file.rewind().ok()?;
        file.read_to_end(&mut text).ok().map(|_| text)
    };
    read(a).zip(read(b)).is_some_and(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testkit;

    #[test]
    fn what_was_changed_added_or_lost_is_named() {
        let place = testkit::Place::new();
        let bundle = place.bundle("1.0", "true");
        assert_eq!(check(&bundle).expect("whole").name, "1.0");
        let refused = |what: &str| {
            let error = check(&bundle).expect_err("refused").to_string();
            assert!(error.ends_with(what), "{error}");
        };
        let config = bundle.join("config.yaml");
        fs::write(&config, "other").expect("written");
        refused("config.yaml: it is not what SHA256SUMS says");
        fs::remove_file(&config).expect("removed");
        refused("config.yaml: it is missing");
        fs::write(&config, "config of 1.0").expect("written");
        fs::write(bundle.join("extra"), "").expect("written");
        refused("extra: it is not in SHA256SUMS");
        fs::remove_file(bundle.join("extra")).expect("removed");
        assert!(check(&bundle).is_ok());
        symlink("/etc/passwd", bundle.join("extra")).expect("a link");
        refused("extra: neither a file nor a folder");
        fs::remove_file(bundle.join("extra")).expect("removed");
        let digits = "0".repeat(64);
        for line in ["x", &format!("{digits}  ../x"), &format!("{digits}  /x"), "00  x"] {
            fs::write(bundle.join(SUMS), line).expect("written");
            refused("is no sum");
        }
    }

    #[test]
    fn a_name_is_that_of_a_folder() {
        for good in ["1.0", "1.0-rc1_x", "a"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
