//! Images to a capture: resize, int8, packets, and the labels beside it.
//!
//! Each image becomes `packets_per_image` frames in order: its R, G and B planes (NCHW), each pixel
//! as int8 = pixel − 128, cut into payloads. One running sequence counts over all of them (modulo
//! the width of its field). A frame is the headers, zeros up to the payload offset, and the
//! payload; checksums are right for the bytes as written. The last batch is filled with the images
//! that follow in the source (from its beginning again, where it ends), and these count like all
//! others: they have labels too.
//!
//! The same input gives the same bytes: nothing of the machine or the time is in the files.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use tensorwire_core::geometry::{Effect, Overlap};
use tensorwire_core::geometry::{ElementType, Geometry, GeometrySpec};
use tensorwire_core::header::{HeaderSpec, Verify};

use super::DatasetError;
use super::cifar10::Cifar10;
use super::image::{ImageSource, RgbImage};
use super::images::ImageFolder;
use super::pcap::CaptureWriter;
use super::synthetic::{Synthetic, SyntheticSize};
use crate::file::{self, FileError, NewFile};

mod error;
mod packets;

pub use error::PrepareError;
use packets::Packetizer;

/// Images of a capture, where nothing else is said (or all, if the source has fewer).
pub const DEFAULT_IMAGES: u64 = 256;

/// Addresses and ports, where nothing else is said: locally administered MAC addresses, private
/// IPv4 addresses, and the UDP ports of the documented flow.
pub const DEFAULT_HEADER: HeaderSpec = HeaderSpec {
    eth_src: [0x02, 0, 0, 0, 0, 0x01],
    eth_dst: [0x02, 0, 0, 0, 0, 0x02],
    ip_src: [10, 0, 0, 1],
    ip_dst: [10, 0, 0, 2],
    udp_src: 4096,
    udp_dst: 4096,
};

/// Where the images come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// CIFAR-10 in its binary form: a file or the directory of its files.
    Cifar10(PathBuf),
    /// A folder of PNG, JPEG and PPM files, with one subfolder per class or flat.
    Images(PathBuf),
    /// Made from a seed.
    Synthetic {
        /// The seed.
        seed: u64,
        /// Size of the source images.
        size: SyntheticSize,
    },
}

/// What to prepare.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// The images.
    pub source: Source,
    /// How many, without those that fill the last batch; `None`: [`DEFAULT_IMAGES`], or all if
    /// there are fewer.
    pub num_images: Option<u64>,
    /// The geometry: 3 channels, int8.
    pub geometry: Geometry,
    /// Addresses and ports.
    pub header: HeaderSpec,
    /// Time from one frame to the next in the capture, in µs.
    pub interval_us: u32,
    /// The capture. Labels go to `OUT.labels`, class names to `OUT.classes`.
    pub out: PathBuf,
}

impl PrepareOptions {
    /// The documented geometry and header, for the default number of images.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Geometry`]: never, as the documented geometry holds.
    pub fn documented(source: Source, out: PathBuf) -> Result<Self, DatasetError> {
        let geometry = GeometryFlags::default().apply(GeometrySpec::DOCUMENTED)?;
        let (num_images, header) = (None, DEFAULT_HEADER);
        Ok(Self { source, num_images, geometry, header, interval_us: 1, out })
    }
}

/// The geometry flags of the command line; what is not given is taken from a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeometryFlags {
    /// `--out-payload-len`: bytes of image data in one packet.
    pub out_payload_len: Option<u32>,
    /// `--header-size`: another name of the payload offset.
    pub header_size: Option<u32>,
    /// `--payload-byte-offset`: bytes of a frame before its payload.
    pub payload_byte_offset: Option<u32>,
    /// `--packets-per-image`.
    pub packets_per_image: Option<u32>,
    /// `--images-per-batch`.
    pub images_per_batch: Option<u32>,
    /// `--seq-bit-offset`.
    pub seq_bit_offset: Option<u32>,
    /// `--seq-bit-width`.
    pub seq_bit_width: Option<u32>,
}

impl GeometryFlags {
    /// The geometry of `base` with what these flags say.
    ///
    /// # Errors
    ///
    /// [`PrepareError::HeaderSize`] when the two names of the payload offset differ,
    /// [`DatasetError::Geometry`] with every rule that does not hold.
    pub fn apply(&self, base: GeometrySpec) -> Result<Geometry, DatasetError> {
        if let (Some(header_size), Some(offset)) = (self.header_size, self.payload_byte_offset)
            && header_size != offset
        {
            return Err(PrepareError::HeaderSize { header_size, offset }.into());
        }
        let offset = self.payload_byte_offset.or(self.header_size);
        let spec = GeometrySpec {
            payload_bytes: self.out_payload_len.unwrap_or(base.payload_bytes),
            payload_byte_offset: offset.unwrap_or(base.payload_byte_offset),
            packets_per_image: self.packets_per_image.unwrap_or(base.packets_per_image),
            images_per_batch: self.images_per_batch.unwrap_or(base.images_per_batch),
            seq_bit_offset: self.seq_bit_offset.unwrap_or(base.seq_bit_offset),
            seq_bit_width: self.seq_bit_width.unwrap_or(base.seq_bit_width),
            ..base
        };
        Geometry::new(&spec).map_err(|violations| DatasetError::Geometry(Box::new(violations)))
    }
}

/// What was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareReport {
    /// Images that were asked for.
    pub asked: u64,
    /// Images of the capture: whole batches.
    pub images: u64,
    /// Of those that fill the last batch: the first one's number in the source.
    pub padding_from: Option<u64>,
    /// The source ended, and its first images were taken again.
    pub wrapped: bool,
    /// Whole batches.
    pub batches: u64,
    /// Frames.
    pub frames: u64,
    /// Bytes of the capture.
    pub bytes: u64,
    /// The capture.
    pub capture: PathBuf,
    /// Its labels; `None` when the source has none.
    pub labels: Option<PathBuf>,
    /// Its class names; `None` when the source has none.
    pub classes: Option<PathBuf>,
    /// Files of labels or class names of an earlier capture of that name, removed because this one
    /// has none.
    pub removed: Vec<PathBuf>,
    /// Remarks, one line each.
    pub notes: Vec<String>,
}

impl fmt::Display for PrepareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { images, batches, frames, bytes, .. } = self;
        let capture = self.capture.display();
        write!(f, "{capture}: {images} images, {batches} batches, {frames} frames, {bytes} bytes")?;
        if let Some(from) = self.padding_from {
            let count = images - self.asked;
            write!(
                f,
                "\n{count} more images than the {} asked for fill the last batch: those of the \
                 source from number {from} on",
                self.asked
            )?;
            if self.wrapped {
                f.write_str(", and then from its beginning")?;
            }
        }
        for (what, path) in [("labels", &self.labels), ("class names", &self.classes)] {
            match path {
                Some(path) => write!(f, "\n{what}: {}", path.display())?,
                None => write!(f, "\n{what}: none, the source has none")?,
            }
        }
        for path in &self.removed {
            write!(f, "\nremoved: {} (of an earlier capture)", path.display())?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

/// Prepares a capture. `progress` is called after each image with the number of images done and of
/// images in all.
///
/// The files are written under other names and renamed when all are whole, the capture last. An
/// error before that leaves nothing behind and what was there before untouched.
///
/// # Errors
///
/// [`DatasetError`].
pub fn prepare(
    options: &PrepareOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<PrepareReport, DatasetError> {
    check_geometry(&options.geometry)?;
    let mut source = open(&options.source)?;
    let plan = Plan::new(options, source.len())?;

    let mut writer = CaptureWriter::create(&options.out)?;
    let labels = write_frames(options, &plan, source.as_mut(), &mut writer, progress)?;
    let (frames, bytes) = (writer.frames(), writer.bytes());
    let classes = source.classes();

    let labelled = labels.len() as u64 == plan.images;
    let label_lines = labelled.then(|| lines(&labels));
    let class_lines = (labelled && !classes.is_empty()).then(|| lines(classes));
    let labels = Companion::create(&options.out, ".labels", label_lines)?;
    let classes = Companion::create(&options.out, ".classes", class_lines)?;
    // Everything is on the disk before the first rename; the capture comes last, so that whoever
    // finds it finds its labels too.
    writer.flush()?;
    let mut removed = Vec::new();
    let labels = labels.publish(&mut removed)?;
    let classes = classes.publish(&mut removed)?;
    writer.finish()?;
    Ok(PrepareReport {
        asked: plan.asked,
        images: plan.images,
        padding_from: (plan.images > plan.asked).then_some(plan.asked % plan.source_images),
        wrapped: plan.images > plan.source_images,
        batches: plan.images / u64::from(options.geometry.images_per_batch()),
        frames,
        bytes,
        capture: options.out.clone(),
        labels,
        classes,
        removed,
        notes: source.notes(),
    })
}

/// Checks what `prepare` needs beyond a geometry that holds.
fn check_geometry(geometry: &Geometry) -> Result<(), PrepareError> {
    let spec = geometry.spec();
    if spec.channels != 3 {
        return Err(PrepareError::Channels { channels: spec.channels });
    }
    if spec.input != ElementType::Int8 {
        return Err(PrepareError::Input(spec.input));
    }
    // The same rule as for a configuration whose flows match on ports alone.
    let breaks = |overlap: &Overlap| overlap.effect(false, Verify::None) == Effect::Breaks;
    match Overlap::of(geometry.seq_field()).find(breaks) {
        Some(overlap) => Err(PrepareError::Overlap(overlap)),
        None => Ok(()),
    }
}

fn open(source: &Source) -> Result<Box<dyn ImageSource>, DatasetError> {
    Ok(match source {
        Source::Cifar10(path) => Box::new(Cifar10::open(path)?),
        Source::Images(path) => Box::new(ImageFolder::open(path)?),
        Source::Synthetic { seed, size } => Box::new(Synthetic::new(*seed, *size)),
    })
}

/// How many images there will be.
#[derive(Debug)]
struct Plan {
    asked: u64,
    images: u64,
    /// `u64::MAX` when there is no end.
    source_images: u64,
}

impl Plan {
    fn new(options: &PrepareOptions, available: Option<u64>) -> Result<Self, PrepareError> {
        let source_images = available.unwrap_or(u64::MAX);
        let asked = options.num_images.unwrap_or(DEFAULT_IMAGES.min(source_images));
        if asked == 0 {
            return Err(PrepareError::ZeroImages);
        }
        if asked > source_images {
            return Err(PrepareError::TooManyImages { asked, available: source_images });
        }
        let geometry = &options.geometry;
        let images = asked.checked_next_multiple_of(u64::from(geometry.images_per_batch()));
        let frames =
            images.unwrap_or(u64::MAX).saturating_mul(u64::from(geometry.packets_per_image()));
        let micros = frames.saturating_mul(u64::from(options.interval_us));
        let too_long = micros / 1_000_000 > u64::from(u32::MAX);
        match images {
            Some(images) if !too_long => Ok(Self { asked, images, source_images }),
            _ => Err(PrepareError::Duration { frames, interval_us: options.interval_us }),
        }
    }
}

/// Writes all frames and returns the labels of the images that have one.
fn write_frames(
    options: &PrepareOptions,
    plan: &Plan,
    source: &mut dyn ImageSource,
    writer: &mut CaptureWriter,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<u16>, DatasetError> {
    let mut packets = Packetizer::new(options);
    let mut image = RgbImage::default();
    let mut labels = Vec::new();
    for number in 0..plan.images {
        labels.extend(source.read(number % plan.source_images, &mut image)?);
        packets.write(&image, writer)?;
        progress(number + 1, plan.images);
    }
    Ok(labels)
}

/// One item a line.
fn lines(items: &[impl fmt::Display]) -> String {
    items.iter().map(|item| format!("{item}\n")).collect()
}

/// A file beside the capture: written, or removed where an old one would be taken for this one's.
#[derive(Debug)]
enum Companion {
    New(PathBuf, NewFile),
    None(PathBuf),
}

impl Companion {
    fn create(out: &Path, suffix: &str, content: Option<String>) -> Result<Self, FileError> {
        let path = file::with_suffix(out, suffix);
        let Some(content) = content else { return Ok(Self::None(path)) };
        let mut file = NewFile::create(&path)?;
        file.append(content.as_bytes())?;
        file.sync()?;
        Ok(Self::New(path, file))
    }

    fn publish(self, removed: &mut Vec<PathBuf>) -> Result<Option<PathBuf>, FileError> {
        match self {
            Self::New(path, file) => {
                file.publish()?;
                Ok(Some(path))
            }
            Self::None(path) => {
                if path.exists() {
                    fs::remove_file(&path).map_err(FileError::io("remove", &path))?;
                    removed.push(path);
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
