//! A capture in memory, ready to be replayed.
//!
//! What is loaded is every frame of the given flows, as it is: with losses, swaps, duplicates, and
//! frames of another length, which the receiver counts as `short` or `long`. Everything else
//! (other protocols, other ports, tagged frames, fragments) is left out and counted by reason. A
//! capture that cannot have been written for the geometry is refused before anything is sent.

use std::path::{Path, PathBuf};

use tensorwire_core::flow::FlowTable;
use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{Reject, Verify, classify};
use tensorwire_core::pipeline::transmitter::FrameSource;

use super::DatasetError;
use super::frames::Frames;
use super::labels::{self, Labels};
use super::numbering::{self, Numbering};
use super::pcap::{CaptureReader, FILE_HEADER_BYTES, PcapError, RECORD_HEADER_BYTES, Record};
use crate::file;

mod error;
mod report;

pub use error::LoadError;
pub use report::{LoadReport, Skipped};

/// The most memory that frames may take, unless [`LoadOptions::max_bytes`] says otherwise: 8 GiB.
pub const DEFAULT_MAX_BYTES: u64 = 8 << 30;

/// Where the labels of a capture come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelsFrom {
    /// `CAPTURE.labels` and `CAPTURE.classes`, as far as they exist.
    #[default]
    Beside,
    /// This file of labels, which must exist; class names from `CAPTURE.classes`, if it exists.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// How a capture is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The flows whose frames are data.
    pub flows: FlowTable,
    /// Where labels come from.
    pub labels: LabelsFrom,
    /// Fewer labels than images, or none, are an error.
    pub strict_labels: bool,
    /// Of a file that is cut short, take the whole frames instead of refusing it.
    pub keep_whole_frames: bool,
    /// The receiver takes frames that are longer than a packet of the geometry.
    pub accept_trailer: bool,
    /// Bytes of a transmit buffer: longer frames are refused before the first one is sent.
    pub max_frame_bytes: Option<usize>,
    /// The most bytes of the file and of the memory for its frames.
    pub max_bytes: u64,
}

impl LoadOptions {
    /// The defaults, for frames of these flows.
    #[must_use]
    pub const fn new(flows: FlowTable) -> Self {
        Self {
            flows,
            labels: LabelsFrom::Beside,
            strict_labels: false,
            keep_whole_frames: false,
            accept_trailer: false,
            max_frame_bytes: None,
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }
}

/// A capture, ready to be replayed. Shared by reference between threads.
#[derive(Debug)]
pub struct Capture {
    frames: Frames,
    /// When each frame was captured, in ns after the first. Never goes back.
    times_ns: Vec<u64>,
    packets_per_image: u32,
    numbering: Numbering,
    labels: Option<Labels>,
    classes: Vec<String>,
    report: LoadReport,
}

impl Capture {
    /// How many data frames there are.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames.len()
    }

    /// The bytes of frame `index`, in the order of the file; empty beyond the last one.
    #[must_use]
    pub fn frame(&self, index: usize) -> &[u8] {
        self.frames.get(index)
    }

    /// When frame `index` was captured, in ns after the first one. Never goes back; an invalid time
    /// stamp, or one before that of the frame before, counts as no gap.
    #[must_use]
    pub fn time_ns(&self, index: usize) -> u64 {
        self.times_ns.get(index).copied().unwrap_or(0)
    }

    /// Bytes of memory that the frames take.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.frames.bytes()
    }

    /// Images of one pass: as many as there are labels, or as the numbers of the frames span if
    /// these are more. Lost images count.
    #[must_use]
    pub fn images(&self) -> u64 {
        let labels = self.labels.as_ref().map_or(0, |labels| labels.len() as u64);
        labels.max(self.numbering.images)
    }

    /// Images that the numbers of the frames span, lost ones included.
    #[must_use]
    pub const fn images_in_frames(&self) -> u64 {
        self.numbering.images
    }

    /// By how much the numbers of a pass are above those of the pass before, when one running
    /// sequence is kept over all passes: [`Capture::images`] × packets per image.
    #[must_use]
    pub fn packets_per_pass(&self) -> u64 {
        self.images() * u64::from(self.packets_per_image)
    }

    /// Whether the capture begins at (or within one step of) number 0, so that image 0 is the first
    /// one of the data set.
    #[must_use]
    pub const fn anchored(&self) -> bool {
        self.numbering.anchored
    }

    /// The sequence number of the first data frame.
    #[must_use]
    pub const fn first_number(&self) -> u32 {
        self.numbering.first
    }

    /// The labels, if there are any.
    #[must_use]
    pub const fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// The class of image `index`, counted over all passes; `None` where it has no label.
    #[must_use]
    pub fn label(&self, index: u64) -> Option<u16> {
        let index = index.checked_rem(self.images())?;
        self.labels.as_ref().and_then(|labels| labels.get(index))
    }

    /// The names of the classes, in the order of the labels; empty when they are not known.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// What was found in the file.
    #[must_use]
    pub const fn report(&self) -> &LoadReport {
        &self.report
    }
}

impl FrameSource for &Capture {
    fn frames(&self) -> u64 {
        self.frames.len() as u64
    }

    fn len(&self, index: u64) -> usize {
        usize::try_from(index).map_or(0, |index| self.frames.length(index))
    }

    fn lent(&self, index: u64) -> Option<&[u8]> {
        Some(usize::try_from(index).map_or(&[][..], |index| self.frames.get(index)))
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        let frame = usize::try_from(index).map_or(&[][..], |index| self.frames.get(index));
        // The caller asked for the length before.
        if frame.len() == out.len() {
            out.copy_from_slice(frame);
        }
    }
}

/// Loads the capture `path` for a replay with `geometry`.
///
/// # Errors
///
/// [`DatasetError`]: the file is no usable capture, it is not of this geometry, it is too large, or
/// its labels cannot be used. Nothing is loaded then.
pub fn load_capture(
    path: &Path,
    geometry: &Geometry,
    options: &LoadOptions,
) -> Result<Capture, DatasetError> {
    let (mut reader, bytes) = CaptureReader::open(path)?;
    let refuse = |error| DatasetError::Load { path: path.to_path_buf(), error };
    if bytes > options.max_bytes {
        return Err(refuse(LoadError::TooLarge { bytes, limit: options.max_bytes }));
    }
    let mut loader = Loader::new(geometry, options, bytes).map_err(refuse)?;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => loader.take(&record).map_err(refuse)?,
            Ok(None) => break,
            Err(PcapError::Cut { end, .. }) if options.keep_whole_frames => {
                loader.report.cut_at = Some(end);
                break;
            }
            Err(error) => return Err(DatasetError::pcap(path, error)),
        }
    }
    let Loader { frames, times_ns, mut report, .. } = loader;
    check_frames(&frames, geometry, options, &report).map_err(refuse)?;
    let numbering = numbering::survey(&frames, geometry)
        .map_err(|misfit| refuse(LoadError::Numbering(misfit)))?;
    let (labels, classes) = read_labels(path, &options.labels)?;
    let packets_per_image = geometry.packets_per_image();
    let (images, given) = (numbering.images, labels.as_ref().map_or(0, |l| l.len() as u64));
    if options.strict_labels && given < images {
        return Err(refuse(LoadError::FewLabels { labels: given, images }));
    }
    if labels.is_some() {
        report.unlabelled = images.saturating_sub(given);
    }
    Ok(Capture { frames, times_ns, packets_per_image, numbering, labels, classes, report })
}

/// Labels and class names of a capture.
fn read_labels(
    path: &Path,
    from: &LabelsFrom,
) -> Result<(Option<Labels>, Vec<String>), DatasetError> {
    let beside = file::with_suffix(path, ".labels");
    let labels = match from {
        LabelsFrom::Nowhere => return Ok((None, Vec::new())),
        LabelsFrom::Beside => beside.exists().then_some(&beside),
        LabelsFrom::File(file) => Some(file),
    };
    let classes = file::with_suffix(path, ".classes");
    let classes = if classes.exists() { labels::read_classes(&classes)? } else { Vec::new() };
    let labels = labels.map(|file| labels::read_labels(file, classes.len())).transpose()?;
    Ok((labels, classes))
}

/// The frames as they are gathered.
struct Loader<'a> {
    options: &'a LoadOptions,
    frame_bytes: usize,
    frames: Frames,
    times_ns: Vec<u64>,
    /// The time stamp of the data frame before, if it was valid.
    last_time_ns: Option<u64>,
    report: LoadReport,
}

impl<'a> Loader<'a> {
    /// A loader for a file of `bytes` bytes.
    fn new(geometry: &Geometry, options: &'a LoadOptions, bytes: u64) -> Result<Self, LoadError> {
        let frame_bytes = geometry.frame_bytes();
        // Exact for a capture that holds nothing but data.
        let room = bytes.saturating_sub(FILE_HEADER_BYTES as u64)
            / (RECORD_HEADER_BYTES + frame_bytes) as u64;
        let limit = options.max_bytes;
        let no_memory = |_| LoadError::Memory { bytes, limit };
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let frames = Frames::with_room(room, frame_bytes).map_err(no_memory)?;
        let mut times_ns = Vec::new();
        times_ns.try_reserve_exact(room).map_err(no_memory)?;
        let report = LoadReport::default();
        Ok(Self { options, frame_bytes, frames, times_ns, last_time_ns: None, report })
    }

    /// Takes a record, or leaves it out and counts why.
    fn take(&mut self, record: &Record<'_>) -> Result<(), LoadError> {
        let report = &mut self.report;
        report.records += 1;
        report.trimmed += u64::from(record.trimmed);
        let bytes = record.bytes;
        if bytes.is_empty() && !record.sliced() {
            report.skipped.empty += 1;
            return Ok(());
        }
        let header = match classify(bytes, record.original as usize, Verify::None) {
            Ok(header) => Some(header),
            // Sliced before its headers end: only its length says that it is one of ours.
            Err(Reject::Short)
                if record.sliced() && record.original as usize == self.frame_bytes =>
            {
                None
            }
            Err(reject) => {
                report.skipped.count(reject);
                return Ok(());
            }
        };
        if header.is_some_and(|header| self.options.flows.matches(&header).is_none()) {
            report.skipped.other_flow += 1;
            return Ok(());
        }
        if record.sliced() {
            let (captured, original) = (bytes.len(), record.original);
            return Err(LoadError::Sliced { captured, original, record: report.records - 1 });
        }
        report.short += u64::from(bytes.len() < self.frame_bytes);
        report.long += u64::from(bytes.len() > self.frame_bytes);
        self.store(record)
    }

    fn store(&mut self, record: &Record<'_>) -> Result<(), LoadError> {
        let limit = self.options.max_bytes;
        let needed = (self.frames.bytes() + record.bytes.len()) as u64;
        let no_memory = LoadError::Memory { bytes: needed, limit };
        if needed > limit || self.frames.push(record.bytes).is_err() {
            return Err(no_memory);
        }
        let gap = match (self.last_time_ns, record.time_ns) {
            (Some(last), Some(time)) if time < last => None,
            (Some(last), Some(time)) => Some(time - last),
            (None, Some(_)) => Some(0),
            (_, None) => None,
        };
        self.report.bad_times += u64::from(gap.is_none());
        let before = self.times_ns.last().copied().unwrap_or(0);
        self.times_ns.push(before.saturating_add(gap.unwrap_or(0)));
        self.last_time_ns = record.time_ns;
        Ok(())
    }
}

/// Checks the frames as a whole, numbers aside.
fn check_frames(
    frames: &Frames,
    geometry: &Geometry,
    options: &LoadOptions,
    report: &LoadReport,
) -> Result<(), LoadError> {
    if report.records == 0 {
        return Err(LoadError::NoRecords);
    }
    if frames.is_empty() {
        return Err(LoadError::NoData(report.skipped));
    }
    let long = if options.accept_trailer { 0 } else { report.long };
    let (others, total) = (report.short + long, frames.len() as u64);
    if others * 2 > total {
        let expected = geometry.frame_bytes();
        let found = usual_length(frames, expected);
        return Err(LoadError::Length { expected, found, others, frames: total });
    }
    let buffer = options.max_frame_bytes.unwrap_or(usize::MAX);
    let too_long = (0..frames.len()).find(|&index| frames.length(index) > buffer);
    too_long.map_or(Ok(()), |frame| {
        Err(LoadError::Buffer { frame, bytes: frames.length(frame), buffer })
    })
}

/// The most frequent length other than `expected`.
fn usual_length(frames: &Frames, expected: usize) -> u32 {
    let mut lengths: Vec<u32> = frames.lengths().to_vec();
    lengths.retain(|&length| length as usize != expected);
    lengths.sort_unstable();
    let runs = lengths.chunk_by(|a, b| a == b);
    runs.max_by_key(|run| run.len()).and_then(|run| run.first()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
