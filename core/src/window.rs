//! Windows: which slots of which batches are covered. (Being written.)

/// The covered slots of a batch, one bit each, slot 0 in the lowest bit of the first word.
#[derive(Clone, Copy, Debug)]
pub struct SlotMap<'a> {
    words: &'a [u64],
    slots: u32,
}

impl<'a> SlotMap<'a> {
    /// A map of `slots` slots over `words`.
    #[must_use]
    pub const fn new(words: &'a [u64], slots: u32) -> Self {
        Self { words, slots }
    }

    /// Whether `slot` holds its payload. False beyond the last slot.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        let word = self.words.get((slot / 64) as usize).copied().unwrap_or(0);
        slot < self.slots && word >> (slot % 64) & 1 == 1
    }

    /// Number of slots of the batch.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
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
            let word = self.words.get((slot / 64) as usize).copied().unwrap_or(0);
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
