//! Compiled kernels on disk, from one start to the next.
//!
//! A file is named after all that decides its content: the sources, the architecture and the
//! compiler. It begins with a line that says so again, then length and checksum; a file that is cut
//! short, of another version or damaged is not used. It is written under another name and renamed,
//! so that no other process sees half of it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tensorwire_host::unfinished;

/// What decides the content of a compiled module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Of all sources and options.
    pub sources: u64,
    /// Compute capability, as 90.
    pub architecture: u32,
    /// Version of NVRTC: major, minor.
    pub compiler: (i32, i32),
}

impl Key {
    /// The name of its file.
    #[must_use]
    pub fn file(&self) -> String {
        let Self { sources, architecture, compiler: (major, minor) } = self;
        format!("kernels-{sources:016x}-sm_{architecture}-nvrtc{major}.{minor}.bin")
    }

    /// The first bytes of its file.
    fn header(&self, image: &[u8]) -> Vec<u8> {
        let checksum = crc32fast::hash(image);
        let (name, len) = (self.file(), image.len());
        format!("tensorwire kernels 1 {name} {len} {checksum:08x}\n").into_bytes()
    }
}

/// A folder of compiled kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache(PathBuf);

/// 64-bit FNV-1a over several texts, each with its end.
#[must_use]
pub const fn hash(texts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < texts.len() {
        let bytes = texts[at].as_bytes();
        let mut i = 0;
        while i <= bytes.len() {
            let byte = if i < bytes.len() { bytes[i] } else { 0xff };
            hash = (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3);
            i += 1;
        }
        at += 1;
    }
    hash
}

impl Cache {
    /// A cache in a folder, which is made when something is put there.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The user's: `$XDG_CACHE_HOME/tensorwire`, else `$HOME/.cache/tensorwire`. `None` where
    /// neither is set to an absolute path.
    #[must_use]
    pub fn of_user(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let absolute = |name| variable(name).filter(|path: &PathBuf| path.is_absolute());
        let folder =
            absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self(folder.join("tensorwire")))
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// What was put under a key; `None` where there is nothing that can be used.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let file = fs::read(self.0.join(key.file())).ok()?;
        let end = file.iter().position(|byte| *byte == b'\n')?;
        let (header, image) = file.split_at_checked(end + 1)?;
        (header == key.header(image) && !image.is_empty()).then(|| image.to_vec())
    }

    /// Puts an image under a key.
    ///
    /// # Errors
    ///
    /// [`io::Error`] when it cannot be written; nothing of it is seen then.
    pub fn put(&self, key: &Key, image: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let name = key.file();
        let (unfinished, mut file) = unfinished::begin(&self.0.join(&name))?;
        let write = || {
            file.write_all(&key.header(image))?;
            file.write_all(image)?;
            file.sync_all()?;
            fs::rename(&unfinished, self.0.join(name))
        };
        write().inspect_err(|_| {
            // The first error is the one that matters.
            let _ = fs::remove_file(&unfinished);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { sources: 7, architecture: 90, compiler: (13, 0) };

    fn cache() -> (tempfile::TempDir, Cache) {
        let place = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(place.path().join("deeper"));
        (place, cache)
    }

    #[test]
    fn what_was_put_comes_back_under_its_key_only() {
        let (_place, cache) = cache();
        assert_eq!(cache.get(&KEY), None);
        cache.put(&KEY, b"first").expect("written");
        cache.put(&KEY, b"image").expect("written again");
        assert_eq!(cache.get(&KEY).as_deref(), Some(&b"image"[..]));
        for other in [
            Key { sources: 8, ..KEY },
            Key { architecture: 87, ..KEY },
            Key { compiler: (13, 1), ..KEY },
            Key { compiler: (12, 0), ..KEY },
        ] {
            assert_eq!(cache.get(&other), None, "{other:?}");
        }
        let names = fs::read_dir(cache.folder()).expect("a folder").count();
        assert_eq!(names, 1, "nothing unfinished is left");
    }

    #[test]
    fn a_file_that_is_damaged_in_any_byte_or_cut_anywhere_is_not_used() {
        let (_place, cache) = cache();
        cache.put(&KEY, b"an image of some length").expect("written");
        let path = cache.folder().join(KEY.file());
        let whole = fs::read(&path).expect("the file");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).expect("written");
            assert_eq!(cache.get(&KEY), None, "byte {at}");
            fs::write(&path, &whole[..at]).expect("written");
            assert_eq!(cache.get(&KEY), None, "cut at {at}");
        }
        // The file of another key under this one's name.
        let other = Key { architecture: 87, ..KEY };
        cache.put(&other, b"for another GPU").expect("written");
        fs::rename(cache.folder().join(other.file()), &path).expect("renamed");
        assert_eq!(cache.get(&KEY), None);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(Cache::new(file).put(&KEY, b"image").is_err());
    }

    #[test]
    fn the_users_folder_follows_the_environment() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            Cache::of_user(|name| match name {
                "XDG_CACHE_HOME" => xdg.map(PathBuf::from),
                _ => home.map(PathBuf::from),
            })
        };
        let at = |path: &str| Some(Cache::new(PathBuf::from(path)));
        assert_eq!(with(Some("/x"), Some("/home/u")), at("/x/tensorwire"));
        assert_eq!(with(None, Some("/home/u")), at("/home/u/.cache/tensorwire"));
        assert_eq!(with(Some("relative"), Some("/home/u")), at("/home/u/.cache/tensorwire"));
        assert_eq!(with(None, None), None);
    }

    #[test]
    fn texts_that_are_cut_elsewhere_have_another_hash() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["ab"]), hash(&["ab", ""]));
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
    }
}
