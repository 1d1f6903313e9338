//! CIFAR-10 in its official binary form.
//!
//! A record is 3073 bytes: one label (0..=9) and 3072 bytes of pixels, the planes R, G, B of
//! 32 × 32 bytes each, row by row. A file is any number of records and nothing else. The source is
//! one such file or a directory; of a directory these files are read, as far as they exist, in this
//! order: `data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin`. Class names come from a
//! `batches.meta.txt` beside the files, or are the ten that the data set is published with.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::DatasetError;
use super::image::{ImageSource, RgbImage};
use crate::file::{self, FileError};

/// Side of an image in pixels.
const SIDE: u32 = 32;
/// Pixels of a plane.
const PLANE: usize = 1024;
/// Bytes of a record: the label and three planes.
const RECORD: usize = 1 + 3 * PLANE;
const CLASSES: usize = 10;
/// Bytes of a record of CIFAR-100, which has two labels.
const RECORD_CIFAR100: u64 = 3074;

/// The names of the classes as the data set is published.
const NAMES: [&str; CLASSES] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Why CIFAR-10 data could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum CifarError {
    /// A file could not be opened or read.
    File(FileError),
    /// The directory has none of the files.
    NoFiles {
        /// The directory.
        dir: PathBuf,
        /// It has `data_batch_1`: the Python version of the data set.
        python: bool,
    },
    /// The length is not a whole number of records.
    Length {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A label that is no class.
    Label {
        /// The file.
        path: PathBuf,
        /// Where the label stands, in bytes from the start of the file.
        offset: u64,
        /// The label.
        label: u8,
    },
    /// `batches.meta.txt` does not hold ten names.
    Names {
        /// The file.
        path: PathBuf,
        /// How many names it holds.
        names: usize,
    },
}

impl fmt::Display for CifarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoFiles { dir, python } => {
                let dir = dir.display();
                write!(f, "{dir} holds no data_batch_1.bin to data_batch_5.bin or test_batch.bin")?;
                if *python {
                    f.write_str("; it holds the Python version, the binary version is needed")?;
                }
                Ok(())
            }
            Self::Length { path, bytes: 0 } => write!(f, "{} is empty (0 bytes)", path.display()),
            Self::Length { path, bytes } => {
                let record = RECORD as u64;
                let whole = bytes / record;
                let (path, at, rest) = (path.display(), whole * record, bytes % record);
                write!(
                    f,
                    "{path} is {bytes} bytes, not a whole number of records of {record} bytes: \
                     after {whole} whole records {rest} bytes are left at byte {at}"
                )?;
                if bytes % RECORD_CIFAR100 == 0 {
                    f.write_str("; the length would fit CIFAR-100")?;
                }
                Ok(())
            }
            Self::Label { path, offset, label } => {
                let path = path.display();
                write!(f, "{path}: label {label} at byte {offset}, allowed 0 to {}", CLASSES - 1)
            }
            Self::Names { path, names } => {
                write!(f, "{} holds {names} class names, expected {CLASSES}", path.display())
            }
        }
    }
}

impl std::error::Error for CifarError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::File(error) = self { Some(error) } else { None }
    }
}

impl From<FileError> for CifarError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// One file of the set.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    reader: BufReader<File>,
    records: u64,
}

impl Part {
    fn open(path: PathBuf) -> Result<Self, CifarError> {
        let (file, bytes) = file::open(&path)?;
        let record = RECORD as u64;
        if bytes == 0 || bytes % record != 0 {
            return Err(CifarError::Length { path, bytes });
        }
        Ok(Self { path, reader: BufReader::new(file), records: bytes / record })
    }

    fn record(&mut self, index: u64) -> Result<[u8; RECORD], CifarError> {
        let offset = index * RECORD as u64;
        let mut record = [0; RECORD];
        self.reader
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.reader.read_exact(&mut record))
            .map_err(FileError::io("read", &self.path))?;
        let label = record[0];
        if usize::from(label) >= CLASSES {
            return Err(CifarError::Label { path: self.path.clone(), offset, label });
        }
        Ok(record)
    }
}

/// The images of a file or directory.
#[derive(Debug)]
pub(crate) struct Cifar10 {
    parts: Vec<Part>,
    classes: Vec<String>,
}

impl Cifar10 {
    /// Opens a file or a directory. All lengths are checked here.
    ///
    /// # Errors
    ///
    /// [`CifarError`].
    pub(crate) fn open(path: &Path) -> Result<Self, CifarError> {
        let about = fs::metadata(path).map_err(FileError::io("read", path))?;
        let (dir, files) = if about.is_dir() {
            let names = (1..=5).map(|n| format!("data_batch_{n}.bin"));
            let names = names.chain(["test_batch.bin".to_string()]);
            let files: Vec<_> = names.map(|name| path.join(name)).filter(|p| p.exists()).collect();
            if files.is_empty() {
                let python = path.join("data_batch_1").exists();
                return Err(CifarError::NoFiles { dir: path.to_path_buf(), python });
            }
            (path, files)
        } else {
            (path.parent().unwrap_or(Path::new("")), vec![path.to_path_buf()])
        };
        let parts = files.into_iter().map(Part::open).collect::<Result<_, _>>()?;
        Ok(Self { parts, classes: class_names(&dir.join("batches.meta.txt"))? })
    }
}

/// The names in `path`, or the published ones when there is no such file.
fn class_names(path: &Path) -> Result<Vec<String>, CifarError> {
    if !path.exists() {
        return Ok(NAMES.iter().map(ToString::to_string).collect());
    }
    let (file, _) = file::open(path)?;
    let mut text = String::new();
    // Ten names need no more; a large file in its place must not fill the memory.
    file.take(64 << 10).read_to_string(&mut text).map_err(FileError::io("read", path))?;
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names: Vec<String> = names.map(str::to_string).collect();
    if names.len() != CLASSES {
        return Err(CifarError::Names { path: path.to_path_buf(), names: names.len() });
    }
    Ok(names)
}

impl ImageSource for Cifar10 {
    fn len(&self) -> Option<u64> {
        Some(self.parts.iter().map(|part| part.records).sum())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&mut self, index: u64, image: &mut RgbImage) -> Result<Option<u16>, DatasetError> {
        let mut left = index;
        for part in &mut self.parts {
            if left >= part.records {
                left -= part.records;
                continue;
            }
            let record = part.record(left)?;
            let (label, planes) = (record[0], &record[1..]);
            let pixels = image.reset(SIDE, SIDE).as_chunks_mut::<3>().0;
            for (i, pixel) in pixels.iter_mut().enumerate() {
                *pixel = [planes[i], planes[PLANE + i], planes[2 * PLANE + i]];
            }
            return Ok(Some(u16::from(label)));
        }
        Err(DatasetError::OutOfRange { index, images: self.len().unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record whose pixel `i` of plane `c` is `i·3 + c·50 + shift`, so that planes cannot be
    /// taken for one another.
    fn record(label: u8, shift: u8) -> Vec<u8> {
        let value = |i: usize, c: usize| (i * 3 + c * 50 + usize::from(shift)) % 256;
        let planes = (0..3).flat_map(|c| (0..PLANE).map(move |i| value(i, c)));
        let planes = planes.map(|v| u8::try_from(v).expect("below 256"));
        std::iter::once(label).chain(planes).collect()
    }

    fn write(dir: &Path, name: &str, labels: &[u8]) {
        let bytes: Vec<u8> = labels.iter().flat_map(|&label| record(label, label)).collect();
        fs::write(dir.join(name), bytes).expect("writable");
    }

    fn labels(source: &mut Cifar10) -> Vec<u16> {
        let mut image = RgbImage::default();
        let count = source.len().expect("finite");
        (0..count).map(|i| source.read(i, &mut image).expect("read").expect("labelled")).collect()
    }

    #[test]
    fn planes_become_pixels() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "x.bin", &[7, 3]);
        let mut source = Cifar10::open(&dir.path().join("x.bin")).expect("opened");
        let mut image = RgbImage::default();
        assert_eq!(source.read(1, &mut image).expect("read"), Some(3));
        assert_eq!((image.width, image.height, image.pixels.len()), (32, 32, 3072));
        // Pixel 33 is x = 1, y = 1: plane value 33·3 + c·50 + 3.
        assert_eq!(image.pixels[99..102], [102, 152, 202]);
        assert_eq!(source.classes()[3], "cat");
    }

    #[test]
    fn a_directory_is_read_in_the_documented_order() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "test_batch.bin", &[9]);
        write(dir.path(), "data_batch_2.bin", &[2, 2]);
        write(dir.path(), "data_batch_1.bin", &[1]);
        write(dir.path(), "other.bin", &[0]);
        fs::write(dir.path().join("batches.meta.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n")
            .expect("writable");
        let mut source = Cifar10::open(dir.path()).expect("opened");
        assert_eq!(labels(&mut source), [1, 2, 2, 9]);
        assert_eq!(source.classes()[9], "j");
        let error = source.read(4, &mut RgbImage::default()).expect_err("only 4");
        assert!(error.to_string().contains("image 4 of 4"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.bin");
        let refusal = || Cifar10::open(&path).expect_err("refused").to_string();

        assert!(refusal().contains("No such file"));
        fs::write(&path, []).expect("writable");
        assert!(refusal().ends_with("is empty (0 bytes)"));
        fs::write(&path, vec![0; 2 * RECORD + 5]).expect("writable");
        assert!(refusal().ends_with("after 2 whole records 5 bytes are left at byte 6146"));
        fs::write(&path, vec![0; 3074 * 3]).expect("writable");
        assert!(refusal().ends_with("the length would fit CIFAR-100"));

        write(dir.path(), "x.bin", &[1, 10]);
        let mut source = Cifar10::open(&path).expect("opened");
        let error = source.read(1, &mut RgbImage::default()).expect_err("no class");
        assert!(error.to_string().ends_with("label 10 at byte 3073, allowed 0 to 9"), "{error}");

        fs::write(dir.path().join("batches.meta.txt"), "a\nb\n").expect("writable");
        assert!(refusal().ends_with("holds 2 class names, expected 10"));

        let empty = tempfile::tempdir().expect("a directory");
        fs::write(empty.path().join("data_batch_1"), "pickle").expect("writable");
        let error = Cifar10::open(empty.path()).expect_err("no files").to_string();
        assert!(error.ends_with("the binary version is needed"), "{error}");
    }

    #[test]
    fn the_reference_file_has_a_hundred_images_of_each_class() {
        let Some(shared) = crate::dataset::testkit::shared() else { return };
        let mut source = Cifar10::open(&shared.join("data/cifar10_test_1000.bin")).expect("opened");
        let mut counts = [0; CLASSES];
        for label in labels(&mut source) {
            counts[usize::from(label)] += 1;
        }
        assert_eq!(counts, [100; CLASSES]);
    }
}
