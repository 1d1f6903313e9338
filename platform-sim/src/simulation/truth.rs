//! What was sent, what the wire did to it, and what the receiver was handed: known here without
//! asking the receiver.

use std::collections::{BTreeMap, VecDeque};

use super::reading::{Class, Shape, Tally};

/// A packet of the stream that the receiver was handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// How often the sender had begun again.
    pub(super) epoch: u32,
    /// Its number in that epoch.
    pub(super) number: u64,
    /// Its number on the wire, as it arrived.
    pub(super) wire: u32,
    /// Payload and number are as they were sent.
    pub(super) genuine: bool,
    /// The hash of its slot in a batch.
    pub(super) slot: u64,
}

/// A frame between the wire and the receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) class: Class,
    pub(super) epoch: u32,
    pub(super) number: u64,
    pub(super) genuine: bool,
    pub(super) slot: u64,
}

/// The arrivals whose slot has one hash, and how often it was seen in a batch.
#[derive(Debug, Default)]
struct Slot {
    arrivals: Vec<u32>,
    seen: usize,
}

/// What is found in a slot of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Zeros.
    Nothing,
    /// The payload of one of the arrivals from the first to the last, which are copies.
    Of(u32, u32),
    /// The payload of an arrival, once more than it arrived.
    Again,
    /// Bytes of no packet that arrived.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Truth {
    pub(super) shape: Shape,
    /// Frames on the NIC that nobody was handed yet.
    pub(super) waiting: VecDeque<Incoming>,
    /// Frames handed to the receiver.
    pub(super) handed: u64,
    /// Of these, before it was ready.
    pub(super) early: u64,
    pub(super) tally: Tally,
    pub(super) arrivals: Vec<Arrival>,
    slots: BTreeMap<u64, Slot>,
    nothing: u64,
}

impl Truth {
    pub(super) fn new(shape: Shape, stride: usize) -> Self {
        Self {
            shape,
            waiting: VecDeque::new(),
            handed: 0,
            early: 0,
            tally: Tally::default(),
            arrivals: Vec::new(),
            slots: BTreeMap::new(),
            nothing: hash(&vec![0; stride]),
        }
    }

    /// The NIC took a frame.
    pub(super) fn arrive(&mut self, frame: Incoming) {
        self.waiting.push_back(frame);
    }

    /// The receiver is handed the oldest frame of the NIC; the arrival, if it is of the stream.
    pub(super) fn hand(&mut self, ready: bool) -> Option<Arrival> {
        self.handed += 1;
        // More frames than there were is found by the balance of the NIC.
        let frame = self.waiting.pop_front()?;
        if !ready {
            self.early += 1;
            return None;
        }
        self.tally.add(frame.class);
        let Class::Ours(wire) = frame.class else { return None };
        let Incoming { epoch, number, genuine, slot, .. } = frame;
        let arrival = Arrival { epoch, number, wire, genuine, slot };
        let id = u32::try_from(self.arrivals.len()).unwrap_or(u32::MAX);
        self.arrivals.push(arrival);
        self.slots.entry(slot).or_default().arrivals.push(id);
        Some(arrival)
    }

    /// Looks at a slot of a batch; each is looked at once.
    pub(super) fn look(&mut self, slot: &[u8]) -> Content {
        let hash = hash(slot);
        if hash == self.nothing {
            return Content::Nothing;
        }
        let Some(slot) = self.slots.get_mut(&hash) else { return Content::Unknown };
        slot.seen += 1;
        match (slot.arrivals.first(), slot.arrivals.last()) {
            (Some(first), Some(last)) if slot.seen <= slot.arrivals.len() => {
                Content::Of(*first, *last)
            }
            _ => Content::Again,
        }
    }
}

/// The fp16 of an int8, as its bits.
const fn fp16(value: i8) -> u16 {
    if value == 0 {
        return 0;
    }
    let sign = if value < 0 { 0x8000 } else { 0 };
    let magnitude = value.unsigned_abs() as u16;
    let mut exponent = 0;
    while magnitude >> exponent > 1 {
        exponent += 1;
    }
    // The highest bit is implied; 15 is the bias of the exponent, 10 the bits of the fraction.
    sign | (exponent + 15) << 10 | (magnitude << (10 - exponent)) & 0x3ff
}

/// By the byte of the int8.
const FP16: [u16; 256] = {
    let mut table = [0; 256];
    let mut value = i8::MIN;
    loop {
        table[value.cast_unsigned() as usize] = fp16(value);
        if value == i8::MAX {
            break;
        }
        value += 1;
    }
    table
};

const fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(27)
}

/// A hash of a slot of a batch; its length is a multiple of 8.
pub(super) fn hash(slot: &[u8]) -> u64 {
    let (words, _) = slot.as_chunks::<8>();
    words.iter().fold(1, |hash, word| mix(hash, u64::from_le_bytes(*word)))
}

/// The [`hash`] that the slot of this payload must have once it is converted.
pub(super) fn hash_of_payload(payload: &[u8]) -> u64 {
    let (words, _) = payload.as_chunks::<4>();
    words.iter().fold(1, |hash, word| {
        let word =
            word.iter().rev().fold(0, |all, byte| all << 16 | u64::from(FP16[usize::from(*byte)]));
        mix(hash, word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_int8_becomes_the_fp16_of_the_same_number() {
        for value in i8::MIN..=i8::MAX {
            assert_eq!(fp16(value), f16::from_f32(value.into()).to_bits(), "{value}");
        }
        let payload: Vec<u8> = (0..=255).collect();
        let slot: Vec<u8> = payload
            .iter()
            .flat_map(|byte| f16::from_f32(byte.cast_signed().into()).to_le_bytes())
            .collect();
        assert_eq!(hash_of_payload(&payload), hash(&slot));
    }
}
