//! Windows: which slots of the open batches are covered, and what a batch looks like when it
//! closes.
#![forbid(unsafe_code)]

use crate::limits::{MAX_IMAGES_PER_BATCH, MAX_PACKETS_PER_BATCH};
use crate::time::Nanos;

const WORDS: usize = MAX_PACKETS_PER_BATCH as usize / 64;
const MASK_WORDS: usize = MAX_IMAGES_PER_BATCH as usize / 64;

/// The covered slots of a batch, one bit each, slot 0 in the lowest bit of the first word.
#[derive(Clone, Copy, Debug)]
pub struct SlotMap<'a> {
    words: &'a [u64],
    slots: u32,
}

impl<'a> SlotMap<'a> {
    /// A map of `slots` slots over `words`. Words that are not there count as empty.
    #[must_use]
    pub const fn new(words: &'a [u64], slots: u32) -> Self {
        Self { words, slots }
    }

    fn word(&self, index: u32) -> u64 {
        self.words.get(index as usize).copied().unwrap_or(0)
    }

    /// Whether `slot` holds its payload. False beyond the last slot.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        if planted!(FilledAsEmpty) && slot == 0 {
            return false;
        }
        slot < self.slots && self.word(slot / 64) >> (slot % 64) & 1 == 1
    }

    /// Number of slots of the batch.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// How many of the slots `from..to` are covered.
    #[must_use]
    pub fn covered(&self, from: u32, to: u32) -> u32 {
        let to = to.min(self.slots);
        let mut at = from;
        let mut count = 0;
        while at < to {
            let end = ((at / 64 + 1) * 64).min(to);
            let width = end - at;
            let ones = if width == 64 { u64::MAX } else { (1 << width) - 1 };
            count += (self.word(at / 64) >> (at % 64) & ones).count_ones();
            at = end;
        }
        count
    }

    /// The runs of slots without a payload, ascending, as `(first, count)`.
    pub fn missing(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let map = *self;
        let mut at = 0;
        core::iter::from_fn(move || {
            let first = map.next(at, false)?;
            let end = map.next(first, true).unwrap_or(map.slots);
            at = end;
            Some((first, end - first))
        })
    }

    /// The first slot from `from` on that is covered (or not), a word at a time.
    fn next(&self, from: u32, covered: bool) -> Option<u32> {
        let mut slot = from;
        while slot < self.slots {
            let word = self.word(slot / 64);
            let word = if covered { word } else { !word } >> (slot % 64);
            if word != 0 {
                let found = slot + word.trailing_zeros();
                return (found < self.slots).then_some(found);
            }
            slot = (slot / 64 + 1) * 64;
        }
        None
    }
}

/// A set of images of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageMask {
    words: [u64; MASK_WORDS],
}

impl ImageMask {
    /// No image.
    pub const EMPTY: Self = Self { words: [0; MASK_WORDS] };

    /// The images `0..count`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        let mut mask = Self::EMPTY;
        for image in 0..count.min(MAX_IMAGES_PER_BATCH) {
            mask.insert(image);
        }
        mask
    }

    /// Adds `image`; one beyond [`MAX_IMAGES_PER_BATCH`] is not added.
    #[inline]
    pub fn insert(&mut self, image: u32) {
        if let Some(word) = self.words.get_mut((image / 64) as usize) {
            *word |= 1 << (image % 64);
        }
    }

    /// Whether `image` is in the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, image: u32) -> bool {
        self.words.get((image / 64) as usize).is_some_and(|word| word >> (image % 64) & 1 == 1)
    }

    /// The set as words, image 0 in the lowest bit of the first.
    #[must_use]
    pub const fn words(&self) -> &[u64] {
        &self.words
    }

    /// How many images are in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether no image is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The images `first..first + count` of the set, moved down to begin at 0: a sub-batch's view.
    #[must_use]
    pub fn window(&self, first: u32, count: u32) -> Self {
        let mut part = Self::EMPTY;
        for image in 0..count.min(MAX_IMAGES_PER_BATCH) {
            if self.contains(first.saturating_add(image)) {
                part.insert(image);
            }
        }
        part
    }

    /// The images of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..MAX_IMAGES_PER_BATCH).filter(|&image| self.contains(image))
    }
}

/// What closed a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseCause {
    /// Every slot is covered.
    Complete,
    /// The stream moved on by more than the open windows.
    Moved,
    /// Its deadline.
    Deadline,
    /// The packet pool ran low.
    Pool,
    /// The sender restarted, or more than half the number space was lost.
    Discontinuity,
    /// The end of the run.
    Shutdown,
}

/// A batch that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Number of the batch in the stream: its first packet has the extended sequence
    /// `batch × packets_per_batch`.
    pub batch: u64,
    /// What closed it.
    pub cause: CloseCause,
    /// Slots that hold their payload.
    pub placed: u32,
    /// Images all of whose packets were placed.
    pub whole: ImageMask,
    /// Images of which some but not all packets came.
    pub damaged: ImageMask,
    /// Images of which no packet came.
    pub missing: ImageMask,
    /// Images that the end of the run cut off.
    pub unfinished: ImageMask,
    /// When the first packet of the batch was placed.
    pub first_packet: Nanos,
    /// When the last packet of the batch was placed.
    pub last_packet: Nanos,
}

impl Closed {
    pub(crate) const NONE: Self = Self {
        batch: 0,
        cause: CloseCause::Complete,
        placed: 0,
        whole: ImageMask::EMPTY,
        damaged: ImageMask::EMPTY,
        missing: ImageMask::EMPTY,
        unfinished: ImageMask::EMPTY,
        first_packet: Nanos::ZERO,
        last_packet: Nanos::ZERO,
    };
}

/// The slots of one open batch.
#[derive(Debug)]
pub(crate) struct Window {
    words: [u64; WORDS],
    count: u32,
    first_packet: Nanos,
    last_packet: Nanos,
}

impl Window {
    pub(crate) const EMPTY: Self =
        Self { words: [0; WORDS], count: 0, first_packet: Nanos::ZERO, last_packet: Nanos::ZERO };

    /// How many slots are covered; a window with none is not open.
    #[inline]
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// When its first packet was placed.
    pub(crate) const fn first_packet(&self) -> Nanos {
        self.first_packet
    }

    /// When its last packet was placed.
    pub(crate) const fn last_packet(&self) -> Nanos {
        self.last_packet
    }

    #[inline]
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.words.get((slot / 64) as usize).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Covers `slot`; false when it was covered already.
    #[inline]
    pub(crate) fn cover(&mut self, slot: u32, now: Nanos) -> bool {
        let Some(word) = self.words.get_mut((slot / 64) as usize) else { return false };
        let bit = 1 << (slot % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        if self.count == 0 {
            self.first_packet = now;
        }
        self.last_packet = now;
        self.count += 1;
        true
    }

    /// A planted bug: one more is counted than is covered.
    pub(crate) const fn count_up(&mut self) {
        self.count += 1;
    }

    /// Takes back the covering of `slot`; false when it was not covered.
    pub(crate) fn uncover(&mut self, slot: u32) -> bool {
        let Some(word) = self.words.get_mut((slot / 64) as usize) else { return false };
        let bit = 1 << (slot % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count -= 1;
        true
    }

    pub(crate) fn map(&self, slots: u32) -> SlotMap<'_> {
        SlotMap::new(&self.words, slots)
    }

    /// Makes the window empty again; touches only the words that `slots` slots use.
    pub(crate) fn clear(&mut self, slots: u32) {
        if let Some(words) = self.words.get_mut(..slots.div_ceil(64) as usize) {
            words.fill(0);
        }
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn a_map_agrees_with_a_list_of_bools(
            bits in proptest::collection::vec(proptest::bool::ANY, 1..300),
            from in 0u32..310, to in 0u32..310,
        ) {
            // What lies beyond the last slot is not looked at.
            let mut words = [u64::MAX; 5];
            for (i, _) in bits.iter().enumerate().filter(|(_, bit)| !**bit) {
                words[i / 64] &= !(1 << (i % 64));
            }
            let slots = u32::try_from(bits.len()).unwrap();
            let map = SlotMap::new(&words, slots);
            prop_assert_eq!(map.slots(), slots);
            let mut holes = Vec::new();
            for (first, count) in map.missing() {
                holes.extend(first..first + count);
            }
            let expect: Vec<u32> =
                (0..slots).filter(|&slot| !bits[slot as usize]).collect();
            prop_assert_eq!(holes, expect);
            let naive = (from..to).filter(|&s| s < slots && bits[s as usize]).count();
            prop_assert_eq!(map.covered(from, to) as usize, naive);
            for slot in 0..320 {
                prop_assert_eq!(map.contains(slot), slot < slots && bits[slot as usize]);
            }
        }
    }

    #[test]
    fn runs_of_missing_slots_are_joined() {
        let words = [!0b1110u64, u64::MAX];
        let map = SlotMap::new(&words, 128);
        assert_eq!(map.missing().collect::<Vec<_>>(), [(1, 3)]);
        assert_eq!(SlotMap::new(&[0], 16).missing().collect::<Vec<_>>(), [(0, 16)]);
        assert_eq!(SlotMap::new(&words[1..], 64).missing().count(), 0);
    }

    #[test]
    fn a_sub_batch_sees_its_own_images() {
        let mut mask = ImageMask::EMPTY;
        for image in [0, 8, 9, 15, 255] {
            mask.insert(image);
        }
        assert_eq!(mask.window(8, 8).iter().collect::<Vec<_>>(), [0, 1, 7]);
        assert_eq!(mask.count(), 5);
        mask.insert(256);
        assert_eq!(mask.count(), 5);
        assert_eq!(ImageMask::first(256).count(), 256);
    }
}
