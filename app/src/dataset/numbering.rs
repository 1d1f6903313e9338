//! Is a capture numbered the way the geometry says, and how many images does it span?
//!
//! A capture that was written with another sequence field gives garbage images at full speed. So
//! the numbers of *all* frames are looked at, in blocks of 64 steps (a step is the difference of
//! one number and the one before, on the circle of the number space):
//!
//! - A block of which three quarters of the steps are +1 fits. Losses and single swaps stay above
//!   that.
//! - Of the others a block is refused if another field in front of the payload counts up in 9 of
//!   10 steps; or if fewer than half of the steps are +1 and the numbers cannot come from a stream
//!   of this numbering, however it was shuffled: three quarters of the steps are one and the same
//!   (not +1), or most of them leap further than an eighth of the number space, or most numbers are
//!   there twice in frames that differ, or the lowest bit never changes.
//! - A frame that repeats the one before byte for byte is a duplicate and no step.
//!
//! So a recorded capture with losses, swaps and duplicates passes, and a wrong width or offset does
//! not, wherever in the file it begins. Stretches shorter than half a block are not judged.

use std::fmt;

use tensorwire_core::bits::BitField;
use tensorwire_core::geometry::{Geometry, GeometrySpec};

use super::frames::Frames;

/// Steps of a block.
const BLOCK: usize = 64;
/// Fewer steps than these are no basis for a judgement.
const FEW: usize = 8;
/// Fewer steps than these are only compared with other fields.
const SOME: usize = 16;
/// Where a written field is searched: behind the Ethernet addresses.
const SEARCH_FROM_BIT: u32 = 96;
/// Bits of the IPv4 identification: many senders count it up, and it is no sequence of ours.
const IDENTIFICATION: std::ops::Range<u32> = 144..160;
/// The shortest field that is searched. Fewer bits count up by chance.
const MIN_WIDTH: u32 = 4;
/// Fields that captures of this kind are known to be written with: (bit offset, width).
const KNOWN_FIELDS: [(u32, u32); 3] = [
    (GeometrySpec::DOCUMENTED.seq_bit_offset, GeometrySpec::DOCUMENTED.seq_bit_width),
    (GeometrySpec::DOCUMENTED.seq_bit_offset, 16),
    (336, 16),
];

/// What the numbers of a capture say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    /// Images from the first to the last one that a frame belongs to, lost ones included.
    pub(crate) images: u64,
    /// The first number is so near to 0 that the stream is there from its beginning.
    pub(crate) anchored: bool,
    /// The first number.
    pub(crate) first: u32,
}

/// What is wrong with a numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisfitReason {
    /// Another field counts up.
    OtherField,
    /// One step other than +1 is the rule.
    Step(i64),
    /// Most steps leap over more than an eighth of the number space.
    Leaps,
    /// Most numbers are there more than once, in frames that differ.
    Repeats,
    /// The lowest bits never change: how many.
    FrozenBits(u32),
}

/// A stretch of a capture whose numbers are not of the geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The sequence field of the geometry: offset and width in bits.
    pub field: (u32, u32),
    /// The first frame of the stretch, among those of the flow.
    pub frame: usize,
    /// Steps that were looked at.
    pub steps: usize,
    /// How many of them are +1.
    pub plain: usize,
    /// What is wrong.
    pub reason: MisfitReason,
    /// The field that it was likely written with, if one was found: offset and width in bits, and
    /// how many of the steps are +1 in it.
    pub likely: Option<(u32, u32, usize)>,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, width) = self.field;
        let Self { frame, steps, plain, .. } = self;
        write!(
            f,
            "its numbers are not {width} bits at bit {offset}: from frame {frame} on, {plain} of \
             {steps} steps are +1"
        )?;
        match self.reason {
            MisfitReason::OtherField => {}
            MisfitReason::Step(step) => write!(f, ", most are {step:+}")?,
            MisfitReason::Leaps => f.write_str(", most leap over an eighth of the space")?,
            MisfitReason::Repeats => f.write_str(", most numbers are there more than once")?,
            MisfitReason::FrozenBits(bits) => {
                write!(f, ", and the lowest bits ({bits}) never change")?;
            }
        }
        if let Some((offset, width, plain)) = self.likely {
            write!(
                f,
                "; it was likely written with seq_bit_offset {offset}, seq_bit_width {width} \
                 ({plain} of {steps} are +1)"
            )?;
        }
        Ok(())
    }
}

/// The numbers of the frames that are long enough to have one: (frame, number).
type Numbers = Vec<(usize, u32)>;

/// Judges all frames and tells the span of images.
///
/// # Errors
///
/// [`Misfit`] about the first block that cannot be of this geometry.
pub(crate) fn survey(frames: &Frames, geometry: &Geometry) -> Result<Numbering, Misfit> {
    let field = geometry.seq_field();
    let numbers: Numbers = (0..frames.len())
        .filter_map(|index| Some((index, field.read(frames.get(index))?)))
        .collect();
    let mut start = 0;
    while start + 1 < numbers.len() {
        // The last block reaches back, so that it is not too short to be judged.
        if numbers.len() - start <= BLOCK {
            start = numbers.len().saturating_sub(BLOCK + 1);
        }
        let end = numbers.len().min(start + BLOCK + 1);
        let block = Block { frames, geometry, numbers: &numbers[start..end] };
        block.judge()?;
        if end == numbers.len() {
            break;
        }
        start += BLOCK;
    }
    Ok(span(&numbers, geometry))
}

/// The difference `to − from` on a circle of `2^width` numbers, in `[−2^(w−1), 2^(w−1))`.
fn step(from: u32, to: u32, width: u32) -> i64 {
    let space = 1_i64 << width;
    let forward = (i64::from(to) - i64::from(from)).rem_euclid(space);
    if forward >= space / 2 { forward - space } else { forward }
}

/// One block of frames with their numbers.
struct Block<'a> {
    frames: &'a Frames,
    geometry: &'a Geometry,
    numbers: &'a [(usize, u32)],
}

impl Block<'_> {
    fn judge(&self) -> Result<(), Misfit> {
        let field = self.geometry.seq_field();
        let kept = self.without_duplicates();
        let steps: Vec<i64> =
            kept.windows(2).map(|pair| step(pair[0].1, pair[1].1, field.width_bits())).collect();
        let count = steps.len();
        let plain = steps.iter().filter(|&&step| step == 1).count();
        if count < FEW || plain * 4 >= count * 3 {
            return Ok(());
        }
        let misfit = |reason, likely: Option<(BitField, usize)>| Misfit {
            field: (field.offset_bits(), field.width_bits()),
            frame: self.numbers.first().map_or(0, |&(frame, _)| frame),
            steps: count,
            plain,
            reason,
            likely: likely.map(|(field, hits)| (field.offset_bits(), field.width_bits(), hits)),
        };
        let other = self.counting_field(&kept, (count * 9).div_ceil(10));
        if let Some((_, hits)) = other
            && hits > plain
        {
            return Err(misfit(MisfitReason::OtherField, other));
        }
        match self.impossible(&kept, &steps) {
            Some(reason) if plain * 2 < count && count >= SOME => {
                Err(misfit(reason, self.counting_field(&kept, count.div_ceil(2))))
            }
            _ => Ok(()),
        }
    }

    /// The numbers without those of frames that repeat the one before byte for byte.
    fn without_duplicates(&self) -> Numbers {
        let mut kept = Numbers::with_capacity(self.numbers.len());
        for &(frame, number) in self.numbers {
            let repeated = kept.last().is_some_and(|&(last, same)| {
                same == number && self.frames.get(last) == self.frames.get(frame)
            });
            if !repeated {
                kept.push((frame, number));
            }
        }
        kept
    }

    /// Why no stream of this numbering looks like this, if so.
    fn impossible(&self, kept: &[(usize, u32)], steps: &[i64]) -> Option<MisfitReason> {
        let mut sorted = steps.to_vec();
        sorted.sort_unstable();
        let (usual, times) = most_frequent(&sorted)?;
        if usual != 1 && times * 4 >= steps.len() * 3 {
            return Some(MisfitReason::Step(usual));
        }
        let numbers = || kept.iter().map(|&(_, number)| number);
        let first = numbers().next()?;
        let frozen =
            numbers().fold(u32::BITS, |bits, number| bits.min((number ^ first).trailing_zeros()));
        if frozen > 0 {
            let width = self.geometry.seq_field().width_bits();
            return Some(MisfitReason::FrozenBits(frozen.min(width)));
        }
        let eighth = self.geometry.sequence_space() / 8;
        if steps.iter().filter(|step| step.unsigned_abs() > eighth).count() * 2 > steps.len() {
            return Some(MisfitReason::Leaps);
        }
        let mut distinct: Vec<u32> = numbers().collect();
        distinct.sort_unstable();
        distinct.dedup();
        (distinct.len() * 2 < kept.len()).then_some(MisfitReason::Repeats)
    }

    /// The field in front of the payload in which most steps are +1, at least `needed` of them.
    fn counting_field(&self, kept: &[(usize, u32)], needed: usize) -> Option<(BitField, usize)> {
        let end = self.geometry.spec().payload_byte_offset * 8;
        let mut best: Option<(BitField, usize)> = None;
        for lowest in (SEARCH_FROM_BIT..end).filter(|bit| !IDENTIFICATION.contains(bit)) {
            // The lowest bit of a counter changes with every step.
            let bit = BitField::new(lowest, 1).ok()?;
            if self.hits(kept, bit, needed) < needed {
                continue;
            }
            for width in (MIN_WIDTH..=BitField::MAX_WIDTH).rev() {
                let Some(offset) = (lowest + 1).checked_sub(width) else { continue };
                let Ok(field) = BitField::new(offset, width) else { continue };
                let hits = self.hits(kept, field, needed);
                let better = best.is_none_or(|(other, most)| {
                    (hits, self.familiar(field)) > (most, self.familiar(other))
                });
                if offset >= SEARCH_FROM_BIT && hits >= needed && better {
                    best = Some((field, hits));
                }
            }
        }
        best
    }

    /// How many steps are +1 when the numbers are read from `field`; 0 as soon as they cannot be
    /// `needed` any more.
    fn hits(&self, kept: &[(usize, u32)], field: BitField, needed: usize) -> usize {
        let mut last = None;
        let allowed = kept.len().saturating_sub(1 + needed);
        let (mut hits, mut misses) = (0, 0);
        for &(frame, _) in kept {
            let number = field.read(self.frames.get(frame));
            if let (Some(from), Some(to)) = (last, number) {
                let distance = step(from, to, field.width_bits());
                // In a field of one bit +1 and −1 are the same.
                let hit = distance == 1 || field.width_bits() == 1 && distance == -1;
                hits += usize::from(hit);
                misses += usize::from(!hit);
                if misses > allowed {
                    return 0;
                }
            }
            last = number;
        }
        hits
    }

    /// How likely it is that somebody chose this field, where the numbers do not decide: a known
    /// one, then one of the width or the offset of the geometry.
    fn familiar(&self, field: BitField) -> u8 {
        let own = self.geometry.seq_field();
        if KNOWN_FIELDS.contains(&(field.offset_bits(), field.width_bits())) {
            3
        } else if field.width_bits() == own.width_bits() {
            2
        } else {
            u8::from(field.offset_bits() == own.offset_bits())
        }
    }
}

/// The most frequent value of a sorted list, and how often it is there.
fn most_frequent(sorted: &[i64]) -> Option<(i64, usize)> {
    let runs = sorted.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()));
    runs.max_by_key(|&(_, times)| times)
}

/// Unwraps all numbers and tells which images they belong to.
///
/// As the receiver does it, in short: a number within one step of the highest so far, ahead or
/// behind, is believed; any other one only if the next one agrees with it.
fn span(numbers: &[(usize, u32)], geometry: &Geometry) -> Numbering {
    let Some(&(_, first)) = numbers.first() else {
        return Numbering { images: 0, anchored: true, first: 0 };
    };
    let width = geometry.spec().seq_bit_width;
    let near = i64::from(geometry.step());
    let space = 1_i64 << width;
    let anchored = i64::from(first) <= near;
    let (mut lowest, mut highest) = (i64::from(first), i64::from(first));
    let mut doubted: Option<u32> = None;
    for &(_, number) in &numbers[1..] {
        let last = u32::try_from(highest.rem_euclid(space)).unwrap_or(0);
        let distance = step(last, number, width);
        let confirmed = doubted.is_some_and(|other| step(other, number, width).abs() <= near);
        if distance.abs() > near && !confirmed {
            doubted = Some(number);
            continue;
        }
        doubted = (distance.abs() > near).then_some(number);
        let position = highest + distance;
        lowest = lowest.min(position).max(0);
        highest = highest.max(position);
    }
    let packets = i64::from(geometry.packets_per_image());
    let before = if anchored { 0 } else { lowest / packets };
    let images = u64::try_from(highest / packets + 1 - before).unwrap_or(0);
    Numbering { images, anchored, first }
}

#[cfg(test)]
mod tests;
