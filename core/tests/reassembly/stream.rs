//! Streams: what a sender, a wire and a clock may do, as a list of steps.
//!
//! A sender has a true position; the wire carries it modulo `2^w`. A step is made of three plain
//! numbers, so that a generator of any kind can write it; what they mean is scaled to the geometry,
//! so that every limit is reached as often as the middle between two.

use tensorwire_core::geometry::{Geometry, GeometrySpec};

use crate::driver::{Entry, Pair};
use crate::words::Buffers;

/// (packets per image, images per batch).
pub(crate) const SHAPES: [(u32, u32); 7] =
    [(4, 4), (2, 2), (1, 4), (8, 2), (1, 1), (16, 8), (128, 2)];

/// A geometry of this shape with a sequence field of `width` bits.
pub(crate) fn geometry(shape: (u32, u32), width: u32) -> Geometry {
    Geometry::new(&GeometrySpec {
        channels: 1,
        height: shape.0,
        width: 64,
        packets_per_image: shape.0,
        images_per_batch: shape.1,
        payload_byte_offset: 64,
        payload_bytes: 64,
        seq_bit_offset: 128,
        seq_bit_width: width,
        ..GeometrySpec::DOCUMENTED
    })
    .expect("a legal geometry")
}

/// A stream and the receiver that it meets.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: usize,
    /// 4..=32; raised to what the shape needs.
    pub(crate) width: u32,
    /// Batches open at once.
    pub(crate) windows: u32,
    /// In microseconds, 0: none.
    pub(crate) timeout: u64,
    /// Where the receiver joins.
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
}

/// One thing that happens. Distances and lengths are in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Packets in order.
    Run(u64),
    Lose(u64),
    /// The stream goes on at the start of the batch after this many.
    LoseBatches(u64),
    /// A loss of about half the number space, of the longest that can be told, of all of it: a
    /// multiple of an eighth of the space, and a few more or fewer.
    LoseEighths(u64, i64),
    /// The next packet comes only after this many others.
    Delay(u64),
    /// Both, in the other order: `n` packets, each pair of `distance` swapped.
    Swap(u64),
    /// The packet so far back comes again, with another payload.
    Again(u64),
    /// A run of packets from the past, in order.
    Rerun(u64, u64),
    /// A number from anywhere.
    Wild(u64),
    /// Several numbers that agree: from this distance ahead of the stream, this far apart.
    Stray {
        ahead: i64,
        apart: i64,
        packets: u64,
    },
    /// The sender starts again here.
    Restart(u64),
    /// The same packets, from zero, this many times.
    Loop(u64, u64),
    /// A loss up to just before the number space ends.
    NearTheWrap(u64),
    Wait(u64),
    /// The clock goes back, which it must not.
    Back(u64),
    Tick,
    Relieve,
    Buffers(Buffers),
    Entry(Entry),
    Impatient(bool),
}

/// How many kinds of steps [`Step::new`] knows.
pub(crate) const KINDS: u8 = 24;

impl Step {
    /// A step of this kind; `a` and `b` are scaled to the geometry.
    pub(crate) fn new(kind: u8, a: u16, b: u16, geometry: &Geometry) -> Self {
        let (a, b) = (u64::from(a), u64::from(b));
        let batch = u64::from(geometry.packets_per_batch());
        let step = u64::from(geometry.step());
        let around = |n: u64, middle: u64| (middle + n % 5).saturating_sub(2);
        match kind % KINDS {
            0..=2 => Self::Run(1 + a % (3 * batch).min(300)),
            3 => Self::Lose(1 + a % 3),
            4 => Self::Lose(around(a, [step, batch, 2 * batch, 3 * batch][(b % 4) as usize])),
            5 => Self::LoseBatches(a % 6),
            6 => Self::LoseEighths(a % 10, signed(b % 21) - 10),
            7 => Self::Delay(1 + a % 6),
            8 => Self::Delay(around(a, [step, batch, 2 * batch, 4 * batch][(b % 4) as usize])),
            9 => Self::Swap(1 + a % (2 * step)),
            10 => Self::Again(a % 4),
            11 => Self::Again(around(a, [step, batch, 2 * batch, 3 * batch][(b % 4) as usize])),
            12 => Self::Rerun(a % (2 * batch), 1 + b % 10),
            13 => Self::Wild(a * 65_536 + b),
            14 => Self::Stray {
                ahead: signed(a % (6 * step + 1)) - signed(3 * step),
                apart: signed(b % (2 * step + 3)) - signed(step + 1),
                packets: 1 + a % 9,
            },
            15 => Self::Stray {
                ahead: signed(b) - 32_768,
                apart: [1, signed(step), signed(step) + 1][(a % 3) as usize],
                packets: u64::from(geometry.confirmations()) - a / 3 % 2,
            },
            16 => Self::Restart([0, a, a % batch, b * 65_536 + a][(b % 4) as usize]),
            17 => Self::Loop(1 + a % (2 * batch).min(200), 2 + b % 2),
            18 => Self::NearTheWrap(a % 12),
            19 if b % 16 == 0 => Self::Back(a % 60),
            19 => Self::Wait(a % 60),
            20 => Self::Tick,
            21 if a % 4 == 0 => Self::Relieve,
            21 => Self::Tick,
            22 if a % 3 > 0 => Self::Buffers(Buffers::Free),
            22 if b % 4 == 0 => Self::Buffers(Buffers::TakeAllBack),
            22 => Self::Buffers(Buffers::NoneLeft),
            _ if a % 2 == 0 => Self::Impatient(b % 2 == 0),
            _ => Self::Entry([Entry::Accept, Entry::PlaceFirst][(b % 2) as usize]),
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).expect("a small number")
}

impl Plan {
    pub(crate) fn geometry(&self) -> Geometry {
        let shape = SHAPES[self.shape % SHAPES.len()];
        let needed = (shape.0 * shape.1).trailing_zeros();
        geometry(shape, self.width.clamp(needed.max(4), 32))
    }

    /// Sends it all to both sides and compares after every step.
    pub(crate) fn run(&self) -> Pair {
        let geometry = self.geometry();
        let pair = Pair::new(&geometry, self.windows, self.timeout * 1_000);
        let at = self.start;
        let mut wire = Wire { geometry, pair, at, delayed: Vec::new() };
        for step in &self.steps {
            wire.step(*step);
        }
        wire.pair.finish();
        wire.pair
    }
}

/// The sender and the wire.
struct Wire {
    geometry: Geometry,
    pair: Pair,
    /// The sender's next position.
    at: u64,
    /// Packets that are under way longer than others: how many are still to pass, and the position.
    delayed: Vec<(u64, u64)>,
}

impl Wire {
    fn step(&mut self, step: Step) {
        let batch = u64::from(self.geometry.packets_per_batch());
        let space = self.geometry.sequence_space();
        match step {
            Step::Run(packets) => self.run(packets),
            Step::Lose(packets) => self.at += packets,
            Step::LoseBatches(batches) => self.at = (self.at / batch + 1 + batches) * batch,
            Step::LoseEighths(n, more) => {
                self.at = self.at.saturating_add_signed(more) + n * (space / 8).max(1);
            }
            Step::Delay(by) => {
                self.delayed.push((by, self.at));
                self.at += 1;
            }
            Step::Swap(distance) => {
                self.deliver(self.at + distance);
                for between in 1..distance {
                    self.deliver(self.at + between);
                }
                self.deliver(self.at);
                self.at += distance + 1;
            }
            Step::Again(back) => self.deliver(self.at.saturating_sub(back + 1)),
            Step::Rerun(back, packets) => {
                let first = self.at.saturating_sub(back);
                (first..first + packets).for_each(|at| self.deliver(at));
            }
            Step::Wild(number) => self.deliver(number),
            Step::Stray { ahead, apart, packets } => {
                for n in 0..signed(packets) {
                    // Below zero it comes out at the far end of the number space.
                    self.deliver((self.at + 8 * space).wrapping_add_signed(ahead + n * apart));
                }
            }
            Step::Restart(to) => self.at = to,
            Step::Loop(packets, times) => {
                for _ in 0..times {
                    self.at = 0;
                    self.run(packets);
                }
            }
            Step::NearTheWrap(before) => {
                self.at = (self.at / space + 1) * space - before.min(space - 1) - 1;
            }
            Step::Wait(micros) => self.pair.now += micros * 1_000,
            Step::Back(micros) => self.pair.now = self.pair.now.saturating_sub(micros * 1_000),
            Step::Tick => self.pair.tick(),
            Step::Relieve => self.pair.relieve(),
            Step::Buffers(buffers) => self.pair.buffers = buffers,
            Step::Entry(entry) => self.pair.entry = entry,
            Step::Impatient(impatient) => self.pair.impatient = impatient,
        }
    }

    fn run(&mut self, packets: u64) {
        for _ in 0..packets {
            self.at += 1;
            self.deliver(self.at - 1);
            self.pair.now += 100;
        }
    }

    /// This packet arrives, and those delayed ones whose time has come.
    fn deliver(&mut self, at: u64) {
        let number = |at: u64| at % self.geometry.sequence_space();
        let mut arriving = vec![number(at)];
        for (left, at) in &mut self.delayed {
            *left = left.saturating_sub(1);
            if *left == 0 {
                arriving.push(*at % self.geometry.sequence_space());
            }
        }
        self.delayed.retain(|(left, _)| *left > 0);
        for number in arriving {
            self.pair.send(u32::try_from(number).expect("at most 32 bits"));
        }
    }
}
