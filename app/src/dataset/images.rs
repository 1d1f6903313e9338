//! A folder of images: one subfolder per class, or one flat folder without labels.
//!
//! ```text
//! DIR/cat/001.png      DIR/001.png
//! DIR/dog/77.jpg       DIR/002.ppm
//! ```
//!
//! Classes are the subfolders, files and folders are sorted by the bytes of their names, so the
//! order is the same on every machine. With classes the images are taken in turn, one of each class
//! (the first of each, the second of each, …), so that the first `n` images are spread over the
//! classes. Names that begin with a dot and files with other endings than `.png`, `.jpg`, `.jpeg`,
//! `.ppm` are left out. Images are resized to the geometry as a whole, without a crop.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::DatasetError;
use super::decode::{self, DecodeError};
use super::image::{ImageSource, RgbImage};
use crate::file::{self, FileError};

/// The endings of image files, in lower case.
const ENDINGS: [&str; 4] = ["png", "jpg", "jpeg", "ppm"];
/// The largest image file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why a folder of images could not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum FolderError {
    /// A folder or file could not be opened or read.
    File(FileError),
    /// No image in the folder.
    Empty {
        /// The folder.
        dir: PathBuf,
        /// Files with other endings that are in it.
        others: usize,
    },
    /// Images beside class folders: nobody can tell what they are.
    Mixed {
        /// The folder.
        dir: PathBuf,
        /// Images that lie beside the class folders.
        files: usize,
        /// Class folders.
        classes: usize,
    },
    /// A class name that is not UTF-8: it could not be written to the file of class names.
    Name {
        /// The class folder.
        dir: PathBuf,
    },
    /// More classes than a label can count.
    Classes {
        /// The folder.
        dir: PathBuf,
        /// Class folders.
        classes: usize,
    },
    /// The file is no usable image.
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        error: DecodeError,
    },
    /// The file is too large for an image.
    Large {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        bytes: u64,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Empty { dir, others } => {
                write!(f, "no image in {} (.png, .jpg, .jpeg, .ppm)", dir.display())?;
                if *others > 0 {
                    write!(f, "; {others} files with other endings")?;
                }
                Ok(())
            }
            Self::Mixed { dir, files, classes } => write!(
                f,
                "{files} images lie in {} beside {classes} class folders; use either class folders \
                 or one flat folder",
                dir.display()
            ),
            Self::Name { dir } => {
                write!(f, "the class name {} is not UTF-8 or has a line break", dir.display())
            }
            Self::Classes { dir, classes } => {
                write!(f, "{} has {classes} class folders, allowed 65536", dir.display())
            }
            Self::Image { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Large { path, bytes } => write!(
                f,
                "{}: {bytes} bytes, allowed {MAX_FILE_BYTES} for an image file",
                path.display()
            ),
        }
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::Image { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<FileError> for FolderError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// What a folder holds, sorted by name.
#[derive(Debug, Default)]
struct Listing {
    images: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    others: usize,
}

fn list(dir: &Path) -> Result<Listing, FileError> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(dir).map_err(FileError::io("read", dir))? {
        let entry = entry.map_err(FileError::io("read", dir))?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let about = fs::metadata(&path).map_err(FileError::io("read", &path))?;
        let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        if about.is_dir() {
            listing.folders.push(path);
        } else if ending.is_some_and(|e| ENDINGS.contains(&e.as_str())) {
            listing.images.push(path);
        } else {
            listing.others += 1;
        }
    }
    // Paths compare by their parts, names by their bytes: no locale is involved.
    listing.images.sort();
    listing.folders.sort();
    Ok(listing)
}

/// The images of a folder, in the order described above.
#[derive(Debug)]
pub(crate) struct ImageFolder {
    files: Vec<(PathBuf, Option<u16>)>,
    classes: Vec<String>,
    others: usize,
    alpha: usize,
    depth: usize,
    bytes: Vec<u8>,
}

impl ImageFolder {
    /// Lists the folder. No image is opened yet.
    ///
    /// # Errors
    ///
    /// [`FolderError`].
    pub(crate) fn open(dir: &Path) -> Result<Self, FolderError> {
        let top = list(dir)?;
        let mut classes = Vec::new();
        let mut members = Vec::new();
        let mut others = top.others;
        for folder in top.folders {
            let listing = list(&folder)?;
            others += listing.others;
            // A folder without an image is no class: it may hold anything.
            if listing.images.is_empty() {
                continue;
            }
            let name = folder.file_name().and_then(|name| name.to_str());
            let name = name.filter(|name| !name.contains(['\n', '\r']));
            let Some(name) = name else { return Err(FolderError::Name { dir: folder }) };
            classes.push(name.to_string());
            members.push(listing.images);
        }
        let dir = dir.to_path_buf();
        if !classes.is_empty() && !top.images.is_empty() {
            let (files, classes) = (top.images.len(), classes.len());
            return Err(FolderError::Mixed { dir, files, classes });
        }
        let files = if classes.is_empty() {
            top.images.into_iter().map(|path| (path, None)).collect()
        } else {
            in_turn(members)
                .ok_or(FolderError::Classes { dir: dir.clone(), classes: classes.len() })?
        };
        if files.is_empty() {
            return Err(FolderError::Empty { dir, others });
        }
        Ok(Self { files, classes, others, alpha: 0, depth: 0, bytes: Vec::new() })
    }
}

/// One of each class, in turn. `None` when a label does not fit 16 bits.
fn in_turn(members: Vec<Vec<PathBuf>>) -> Option<Vec<(PathBuf, Option<u16>)>> {
    let mut turns = Vec::new();
    for (class, files) in members.into_iter().enumerate() {
        let label = u16::try_from(class).ok()?;
        turns.extend(files.into_iter().enumerate().map(|(turn, path)| (turn, label, path)));
    }
    turns.sort();
    Some(turns.into_iter().map(|(_, label, path)| (path, Some(label))).collect())
}

impl ImageSource for ImageFolder {
    fn len(&self) -> Option<u64> {
        Some(self.files.len() as u64)
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&mut self, index: u64, image: &mut RgbImage) -> Result<Option<u16>, DatasetError> {
        let at = usize::try_from(index).ok().and_then(|index| self.files.get(index));
        let Some((path, label)) = at else {
            return Err(DatasetError::OutOfRange { index, images: self.files.len() as u64 });
        };
        let (mut file, bytes) = file::open(path).map_err(FolderError::File)?;
        if bytes > MAX_FILE_BYTES {
            return Err(FolderError::Large { path: path.clone(), bytes }.into());
        }
        self.bytes.clear();
        let read = file.read_to_end(&mut self.bytes).map_err(FileError::io("read", path));
        read.map_err(FolderError::File)?;
        let reduced = decode::decode(&self.bytes, image)
            .map_err(|error| FolderError::Image { path: path.clone(), error })?;
        self.alpha += usize::from(reduced.alpha);
        self.depth += usize::from(reduced.depth);
        Ok(*label)
    }

    fn notes(&self) -> Vec<String> {
        [
            (self.others, "files with other endings were left out"),
            (self.alpha, "images had an alpha channel, which was dropped"),
            (self.depth, "images had 16 bits per sample; the high byte was taken"),
        ]
        .into_iter()
        .filter(|&(count, _)| count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 1 × 1 image whose red is `value`.
    fn ppm(dir: &Path, name: &str, value: u8) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, [b"P6 1 1 255\n".as_slice(), &[value, 0, 0]].concat()).expect("writable");
    }

    fn read_all(source: &mut ImageFolder) -> Vec<(Option<u16>, u8)> {
        let mut image = RgbImage::default();
        (0..source.len().expect("finite"))
            .map(|i| (source.read(i, &mut image).expect("read"), image.pixels[0]))
            .collect()
    }

    #[test]
    fn class_folders_are_taken_in_turn() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, value) in [("dog/b.ppm", 11), ("dog/a.PPM", 10), ("cat/z.ppm", 20)] {
            ppm(dir.path(), name, value);
        }
        ppm(dir.path(), "dog/c.ppm", 12);
        ppm(dir.path(), "cat/zz.ppm", 21);
        ppm(dir.path(), ".hidden/a.ppm", 99);
        ppm(dir.path(), "cat/.hidden.ppm", 99);
        fs::write(dir.path().join("cat/readme.txt"), "x").expect("writable");
        fs::create_dir(dir.path().join("empty")).expect("writable");
        let mut source = ImageFolder::open(dir.path()).expect("opened");
        assert_eq!(source.classes(), ["cat", "dog"]);
        let expected = [(0, 20), (1, 10), (0, 21), (1, 11), (1, 12)];
        let expected = expected.map(|(class, value)| (Some(class), value));
        assert_eq!(read_all(&mut source), expected);
        assert_eq!(source.notes(), ["1 files with other endings were left out"]);
    }

    #[test]
    fn a_flat_folder_has_no_labels() {
        let dir = tempfile::tempdir().expect("a directory");
        ppm(dir.path(), "b.ppm", 2);
        ppm(dir.path(), "a.ppm", 1);
        let mut source = ImageFolder::open(dir.path()).expect("opened");
        assert_eq!(read_all(&mut source), [(None, 1), (None, 2)]);
        assert!(source.classes().is_empty());
        assert!(source.read(2, &mut RgbImage::default()).is_err());
    }

    #[test]
    fn folders_that_cannot_be_used_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let refusal = || ImageFolder::open(dir.path()).expect_err("refused").to_string();
        fs::write(dir.path().join("a.gif"), "GIF").expect("writable");
        assert!(refusal().contains("no image in"));
        assert!(refusal().contains("1 files with other endings"));
        ppm(dir.path(), "cat/a.ppm", 1);
        ppm(dir.path(), "b.ppm", 1);
        assert!(refusal().starts_with("1 images lie in"));
        let file = dir.path().join("b.ppm");
        assert!(ImageFolder::open(&file).is_err());
        assert!(ImageFolder::open(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_bad_image_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("a.png"), "P6 1 1 255\n").expect("writable");
        let mut source = ImageFolder::open(dir.path()).expect("opened");
        let error = source.read(0, &mut RgbImage::default()).expect_err("cut").to_string();
        assert!(error.ends_with("a.png: cut short: 0 of 3 bytes of pixels"), "{error}");
    }

    #[test]
    fn png_and_jpeg_go_by_content() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("a.png"), include_bytes!("decode/grey.jpg")).expect("writable");
        let mut source = ImageFolder::open(dir.path()).expect("opened");
        assert_eq!(read_all(&mut source), [(None, 77)]);
    }
}
