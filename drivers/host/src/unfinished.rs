//! Files that are not whole yet: each beside its target, under a name of its own, until it is
//! renamed.
//!
//! A process that is killed leaves such a file behind. While it lived it held a lock on it, and a
//! lock ends with its process: whoever begins a file for the same target next takes away what
//! nobody holds. Where a file system has no locks, what is left stays.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;

/// Names that are tried.
const NAMES: u32 = 100;

/// Begins a file for `target`, whose folder is there: its name for now, and the file, which is
/// empty, open for writing and locked. What killed processes have left of the same target is taken
/// away first.
///
/// # Errors
///
/// What the system says when it cannot be made.
pub fn begin(target: &Path) -> io::Result<(PathBuf, File)> {
    sweep(target);
    let mut number = 0;
    loop {
        let path = beside(target, &format!(".{}-{number}.tmp", process::id()));
        number += 1;
        // In a container the next process has the same id.
        let file = match File::options().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES => {
                continue;
            }
            file => file?,
        };
        match file.try_lock() {
            // Somebody sweeps, and found the file before it was locked.
            Err(TryLockError::WouldBlock) if number < NAMES => {}
            Ok(()) if number < NAMES && !is_at(&file, &path) => {}
            _ => return Ok((path, file)),
        }
    }
}

/// `target` with `suffix` behind its whole name.
fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether `path` is a name of `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |about: fs::Metadata| (about.dev(), about.ino());
    file.metadata().ok().map(id) == fs::symlink_metadata(path).ok().map(id)
}

/// Takes away what nobody holds any more. What cannot be read, locked or removed stays: it is in
/// nobody's way.
fn sweep(target: &Path) {
    let Some(name) = target.file_name().and_then(|name| name.to_str()) else { return };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(folder.unwrap_or(Path::new("."))) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let found = path.file_name().and_then(|found| found.to_str());
        if found.is_some_and(|found| is_unfinished(found, name))
            && fs::symlink_metadata(&path).is_ok_and(|about| about.is_file())
            && let Ok(file) = File::options().write(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether `found` is the name of an unfinished file for the target `name`.
fn is_unfinished(found: &str, name: &str) -> bool {
    let number = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    let number = number.and_then(|rest| rest.strip_suffix(".tmp")).unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tw-unfinished-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("readable").filter_map(Result::ok);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_process_has_left_is_taken_away_and_nothing_else() {
        let folder = folder("sweep");
        let target = folder.join("a.npy");
        let (held, file) = begin(&target).expect("a file");
        let kept = ["a.npy", "a.npy.1-0.tmp.bak", "a.npy.tmp", "a.npy.x.tmp", "b.npy.1-0.tmp"];
        for name in kept.iter().chain(&["a.npy.1-0.tmp", "a.npy.4711.tmp"]) {
            fs::write(folder.join(name), name).expect("written");
        }
        fs::create_dir(folder.join("a.npy.2-0.tmp")).expect("a folder of that name");
        let (path, next) = begin(&target).expect("another file");
        let mut expected: Vec<String> = kept.iter().map(|name| (*name).to_owned()).collect();
        expected.push("a.npy.2-0.tmp".to_owned());
        for path in [&held, &path] {
            expected.push(path.file_name().expect("a name").to_string_lossy().into_owned());
        }
        expected.sort();
        assert_eq!(names(&folder), expected, "also what a living one writes stays");
        // As if killed: the lock goes with the file.
        drop((file, next));
        let (_, last) = begin(&target).expect("a third file");
        assert_eq!(names(&folder).len(), kept.len() + 2, "the folder and the third: {held:?}");
        drop(last);
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// Two begin files for one target again and again, and each keeps its own until it lets go.
    #[test]
    fn who_sweeps_takes_nothing_from_who_begins() {
        let folder = folder("race");
        let target = folder.join("a");
        let work = || {
            for _ in 0..200 {
                let (path, file) = begin(&target).expect("a file");
                assert!(is_at(&file, &path), "{}", path.display());
                thread::yield_now();
                assert!(is_at(&file, &path), "{}", path.display());
                fs::rename(&path, &target).expect("it is there");
            }
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(work);
            }
        });
        assert_eq!(names(&folder), ["a"]);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
