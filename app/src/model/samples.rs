//! Images out of a capture, for calibration.

use std::path::{Path, PathBuf};

use tensorwire_core::geometry::{Geometry, GeometrySpec};

use crate::dataset::DatasetError;
use crate::dataset::pcap::CaptureReader;

/// Why no images came of a capture.
#[derive(Debug)]
pub enum SamplesError {
    /// It cannot be read.
    Capture(DatasetError),
    /// It has not one whole image of the size.
    None {
        /// The file.
        path: PathBuf,
        /// Bytes of a frame of this size of image.
        frame_bytes: usize,
    },
}

impl std::fmt::Display for SamplesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Capture(error) => error.fmt(f),
            Self::None { path, frame_bytes } => write!(
                f,
                "{}: no whole image in frames of {frame_bytes} B with the documented numbering",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SamplesError {}

/// The geometry of images of 3 × `height` × `width` int8, else as documented; `None` where their
/// elements are not those of whole packets.
fn geometry(height: usize, width: usize) -> Option<Geometry> {
    let documented = GeometrySpec::DOCUMENTED;
    let elements = 3 * height * width;
    let packets = documented.packets_per_image as usize;
    let spec = GeometrySpec {
        height: u32::try_from(height).ok()?,
        width: u32::try_from(width).ok()?,
        payload_bytes: u32::try_from(elements.checked_div(packets)?).ok()?,
        ..documented
    };
    Geometry::new(&spec).ok()
}

/// Up to `count` whole images of a capture, spread over it: `pixel − 128` in R, G, B planes. An
/// image that lacks a packet, or whose packets do not follow one another, is passed over.
///
/// # Errors
///
/// [`SamplesError`] when the capture cannot be read or has no whole image.
pub(crate) fn images(
    path: &Path,
    [height, width]: [usize; 2],
    count: usize,
) -> Result<Vec<Vec<i8>>, SamplesError> {
    let none = |frame_bytes| SamplesError::None { path: path.to_path_buf(), frame_bytes };
    let geometry = geometry(height, width).ok_or_else(|| none(0))?;
    let (mut reader, _) = CaptureReader::open(path).map_err(SamplesError::Capture)?;
    let (field, offset) = (geometry.seq_field(), geometry.payload_offset());
    let packets = geometry.packets_per_image();
    let (mut all, mut image, mut next) = (Vec::new(), Vec::new(), None::<u32>);
    let failed = |error| SamplesError::Capture(DatasetError::pcap(path, error));
    while let Some(record) = reader.next_record().map_err(failed)? {
        let frame = record.bytes;
        let Some(number) = field.read(frame).filter(|_| frame.len() == geometry.frame_bytes())
        else {
            continue;
        };
        if number.is_multiple_of(packets) {
            image.clear();
        } else if next != Some(number) {
            next = None;
            continue;
        }
        image.extend(frame[offset..].iter().map(|byte| byte.cast_signed()));
        next = Some((number + 1) & field.max());
        if (number + 1).is_multiple_of(packets) && image.len() == geometry.elements_per_image() {
            all.push(std::mem::take(&mut image));
        }
    }
    if all.is_empty() {
        return Err(none(geometry.frame_bytes()));
    }
    // Spread over the capture: data sets are often in the order of their classes.
    let every = all.len().div_ceil(count.max(1));
    Ok(all.into_iter().step_by(every).collect())
}
