//! The frames of a capture in memory: one allocation, each frame on a cache line of its own.

use std::collections::TryReserveError;

/// Frames begin at multiples of this: the cache line, so that the copy into a packet buffer does
/// not straddle one more line than it must.
const ALIGN: usize = 64;

/// Frames, one behind the other, each rounded up to 64 bytes.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Where each frame begins, in units of 64 bytes behind `base`.
    starts: Vec<u32>,
    lengths: Vec<u32>,
    /// Where the first frame begins: `bytes[base]` lies on a cache line.
    base: usize,
}

impl Frames {
    /// Room for `count` frames of `length` bytes, in one piece. More may be added; the alignment
    /// (not the content) is lost if the memory must move then.
    ///
    /// # Errors
    ///
    /// When the system does not give the memory.
    pub(crate) fn with_room(count: usize, length: usize) -> Result<Self, TryReserveError> {
        let mut frames = Self::default();
        let bytes = count.saturating_mul(length.next_multiple_of(ALIGN)).saturating_add(ALIGN);
        frames.bytes.try_reserve_exact(bytes)?;
        frames.starts.try_reserve_exact(count)?;
        frames.lengths.try_reserve_exact(count)?;
        let base = frames.bytes.as_ptr().align_offset(ALIGN);
        frames.base = if base < ALIGN { base } else { 0 };
        frames.bytes.resize(frames.base, 0);
        Ok(frames)
    }

    /// Appends a frame.
    ///
    /// # Errors
    ///
    /// When the system does not give the memory.
    pub(crate) fn push(&mut self, frame: &[u8]) -> Result<(), TryReserveError> {
        let padded = frame.len().next_multiple_of(ALIGN);
        self.bytes.try_reserve(padded)?;
        self.starts.try_reserve(1)?;
        self.lengths.try_reserve(1)?;
        let start = (self.bytes.len() - self.base) / ALIGN;
        // 2^32 lines are 256 GiB: the limit on the size of a capture is far below.
        self.starts.push(u32::try_from(start).unwrap_or(u32::MAX));
        self.lengths.push(u32::try_from(frame.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(frame);
        self.bytes.resize(self.bytes.len() + (padded - frame.len()), 0);
        Ok(())
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Frame `index`; empty beyond the last.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let (Some(&start), Some(&length)) = (self.starts.get(index), self.lengths.get(index))
        else {
            return &[];
        };
        let start = self.base + start as usize * ALIGN;
        self.bytes.get(start..start + length as usize).unwrap_or_default()
    }

    /// Length of frame `index` in bytes; 0 beyond the last.
    pub(crate) fn length(&self, index: usize) -> usize {
        self.lengths.get(index).map_or(0, |&length| length as usize)
    }

    /// The lengths of all frames.
    pub(crate) fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Bytes of memory that hold frames.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_kept_apart_and_aligned() {
        let mut frames = Frames::with_room(3, 100).expect("little");
        let capacity = frames.bytes.capacity();
        for (i, length) in [100_usize, 0, 65].into_iter().enumerate() {
            frames.push(&vec![u8::try_from(i).expect("small") + 1; length]).expect("room");
        }
        assert_eq!(frames.bytes.capacity(), capacity, "one allocation");
        assert_eq!(frames.get(0), [1; 100]);
        assert_eq!(frames.get(1), [0; 0]);
        assert_eq!(frames.get(2), [3; 65]);
        assert_eq!(frames.get(3), [0; 0]);
        assert_eq!((frames.len(), frames.length(2), frames.length(3)), (3, 65, 0));
        for index in [0, 2] {
            assert_eq!(frames.get(index).as_ptr().align_offset(64), 0);
        }
    }

    #[test]
    fn more_frames_than_expected_are_kept_too() {
        let mut frames = Frames::with_room(0, 100).expect("little");
        for i in 0..200_u8 {
            frames.push(&[i; 70]).expect("room");
        }
        assert!((0..200_u8).all(|i| frames.get(usize::from(i)) == [i; 70]));
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error() {
        assert!(Frames::with_room(usize::MAX / 2, 1).is_err());
    }
}
