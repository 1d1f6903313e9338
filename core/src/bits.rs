//! Bit fields of a frame: the sequence number lies at any bit offset, in any width up to 32.
//!
//! Bits are numbered as protocol specifications draw them: bit 0 is the most significant bit of
//! byte 0, and a field is big-endian. Bit 128 is the top bit of byte 16.
#![forbid(unsafe_code)]

use core::fmt;

#[cfg(test)]
mod tests;

/// Bytes of the word that a field is read through where the frame is long enough.
const WORD_BYTES: usize = 8;
/// Bits of that word.
const WORD_BITS: u32 = 64;

/// Where a number lies in a frame: bit offset and width, with everything that reading it needs
/// worked out beforehand.
///
/// Reading and writing never panic and touch at most five bytes' worth of bits: one load (and one
/// store) of eight bytes where the frame has them, byte by byte at the very end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    offset_bits: u32,
    width_bits: u32,
    /// First byte that holds a bit of the field.
    first_byte: usize,
    /// Bytes that hold bits of the field: 1 to 5.
    span: usize,
    /// Bits to the right of the field in an eight-byte word that begins at `first_byte`.
    word_shift: u32,
    /// `width_bits` ones.
    mask: u32,
}

/// Why a bit field cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BitFieldError {
    /// The width is 0 or above [`BitField::MAX_WIDTH`].
    Width {
        /// What was asked for, in bits.
        given: u32,
    },
    /// The end of the field does not fit a 32-bit bit number.
    Offset {
        /// Offset that was asked for, in bits.
        offset_bits: u32,
        /// Width that was asked for, in bits.
        width_bits: u32,
    },
}

impl fmt::Display for BitFieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Width { given } => {
                write!(f, "a bit field of {given} bits, allowed 1 to {}", BitField::MAX_WIDTH)
            }
            Self::Offset { offset_bits, width_bits } => write!(
                f,
                "a bit field of {width_bits} bits at bit {offset_bits} ends beyond bit {}",
                u32::MAX
            ),
        }
    }
}

impl core::error::Error for BitFieldError {}

impl BitField {
    /// The widest field, in bits.
    pub const MAX_WIDTH: u32 = 32;

    /// A field of `width_bits` bits whose most significant bit is bit `offset_bits` of the frame.
    ///
    /// # Errors
    ///
    /// [`BitFieldError::Width`] when the width is not 1 to 32; [`BitFieldError::Offset`] when the
    /// end of the field, `offset_bits + width_bits`, is above `u32::MAX`.
    pub const fn new(offset_bits: u32, width_bits: u32) -> Result<Self, BitFieldError> {
        if width_bits == 0 || width_bits > Self::MAX_WIDTH {
            return Err(BitFieldError::Width { given: width_bits });
        }
        let Some(end_bits) = offset_bits.checked_add(width_bits) else {
            return Err(BitFieldError::Offset { offset_bits, width_bits });
        };
        let first_byte = (offset_bits / 8) as usize;
        let end_byte = end_bits.div_ceil(8) as usize;
        Ok(Self {
            offset_bits,
            width_bits,
            first_byte,
            span: end_byte - first_byte,
            // At most 7 + 32 of the 64 bits lie left of this.
            word_shift: WORD_BITS - offset_bits % 8 - width_bits,
            mask: u32::MAX >> (Self::MAX_WIDTH - width_bits),
        })
    }

    /// Number of the field's most significant bit.
    #[must_use]
    #[inline]
    pub const fn offset_bits(&self) -> u32 {
        self.offset_bits
    }

    /// Width in bits, 1 to 32.
    #[must_use]
    #[inline]
    pub const fn width_bits(&self) -> u32 {
        self.width_bits
    }

    /// Number of the first bit after the field.
    #[must_use]
    #[inline]
    pub const fn end_bits(&self) -> u32 {
        self.offset_bits + self.width_bits // checked by `new`
    }

    /// The first byte that holds a bit of the field.
    #[must_use]
    #[inline]
    pub const fn first_byte(&self) -> usize {
        self.first_byte
    }

    /// The first byte after the field: a frame must be at least this long.
    #[must_use]
    #[inline]
    pub const fn end_byte(&self) -> usize {
        self.first_byte + self.span
    }

    /// The largest value of the field: `2^width − 1`.
    #[must_use]
    #[inline]
    pub const fn max(&self) -> u32 {
        self.mask
    }

    /// The value of the field in `frame`; `None` when the frame ends before the field does.
    #[must_use]
    #[inline]
    pub fn read(&self, frame: &[u8]) -> Option<u32> {
        let tail = frame.get(self.first_byte..)?;
        if let Some(word) = tail.first_chunk::<WORD_BYTES>() {
            return self.extract(u64::from_be_bytes(*word));
        }
        let field = tail.get(..self.span)?;
        let mut word = [0; WORD_BYTES];
        for (to, from) in word.iter_mut().zip(field) {
            *to = *from;
        }
        self.extract(u64::from_be_bytes(word))
    }

    /// Writes the lower `width` bits of `value` into `frame` and leaves all other bits alone: a
    /// running number wraps at `2^width`. False, and nothing written, when the frame ends before
    /// the field does.
    #[must_use]
    #[inline]
    pub fn write(&self, frame: &mut [u8], value: u32) -> bool {
        let Some(tail) = frame.get_mut(self.first_byte..) else { return false };
        if let Some(word) = tail.first_chunk_mut::<WORD_BYTES>() {
            *word = self.insert(u64::from_be_bytes(*word), value).to_be_bytes();
            return true;
        }
        let Some(field) = tail.get_mut(..self.span) else { return false };
        let mut word = [0; WORD_BYTES];
        for (to, from) in word.iter_mut().zip(field.iter()) {
            *to = *from;
        }
        let word = self.insert(u64::from_be_bytes(word), value).to_be_bytes();
        for (to, from) in field.iter_mut().zip(word) {
            *to = from;
        }
        true
    }

    /// The field's bits of a word that begins at `first_byte`. Always `Some`: the mask has 32
    /// bits, and the compiler sees it.
    #[inline]
    fn extract(&self, word: u64) -> Option<u32> {
        u32::try_from(word.wrapping_shr(self.word_shift) & u64::from(self.mask)).ok()
    }

    /// The word with the field's bits replaced.
    #[inline]
    fn insert(&self, word: u64, value: u32) -> u64 {
        let place = u64::from(self.mask).wrapping_shl(self.word_shift);
        let bits = u64::from(value & self.mask).wrapping_shl(self.word_shift);
        word & !place | bits
    }
}

impl fmt::Display for BitField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bit {}, width {}", self.offset_bits, self.width_bits)
    }
}
