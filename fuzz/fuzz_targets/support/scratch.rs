//! A file without a name, for readers that take a path. Nothing is left behind, however the
//! process ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    /// `purpose` keeps the files of one process apart while they have a name.
    pub fn new(purpose: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let name = folder.join(format!("tensorwire-fuzz-{}-{purpose}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&name).expect("a file");
        std::fs::remove_file(&name).expect("our file");
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Self { file, path }
    }

    /// Gives the file this content, and tells where it is.
    pub fn put(&self, bytes: &[u8]) -> &Path {
        self.file.set_len(0).expect("our file");
        self.file.write_all_at(bytes, 0).expect("room for a small file");
        &self.path
    }
}
