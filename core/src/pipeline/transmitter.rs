//! The transmitter: frames of a capture (or made on the fly) onto the wire, paced and numbered.
#![forbid(unsafe_code)]

use core::fmt;

use crate::bits::BitField;
use crate::header;
use crate::limits::{HEADER_BYTES, MAX_POLL};
use crate::pipeline::Next;
use crate::port::{SendError, TxQueue};
use crate::time::Nanos;

/// Bits on the wire around a frame that the frame does not hold: preamble (8 bytes), frame check
/// sequence (4) and inter-packet gap (12). IEEE 802.3, clauses 3.1.1 and 4.4.2.
const OVERHEAD_BYTES: u64 = 24;

/// Where frames come from.
pub trait FrameSource {
    /// Frames of one pass.
    fn frames(&self) -> u64;

    /// Length of frame `index` in bytes.
    fn len(&self, index: u64) -> usize;

    /// Writes frame `index` into `out`, which is exactly that long.
    fn write(&self, index: u64, out: &mut [u8]);

    /// The bytes of frame `index`, [`FrameSource::len`] of them, where they lie in memory: a queue
    /// then takes them from there. `None` where they do not, which is what this says unless an
    /// implementation does.
    fn lent(&self, index: u64) -> Option<&[u8]> {
        let _ = index;
        None
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct TransmitterConfig {
    /// Passes over the frames; `None`: until stopped.
    pub passes: Option<u64>,
    /// The sequence field, and by how much the numbers of a pass are above those of the pass
    /// before (its packets, losses included). `None`: the frames go out as they are.
    pub renumber: Option<(BitField, u64)>,
    /// Destination MAC address written into every frame.
    pub eth_dst: Option<[u8; 6]>,
    /// Rate limit in megabits per second, with preamble and gap; 0: none.
    pub pacing_mbps: u64,
    /// The longest time without a frame accepted by the queue.
    pub stall_after: Nanos,
}

/// Why a transmitter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransmitEnd {
    /// Every frame that was owed is on the wire.
    Sent,
    /// It was told to stop.
    Stopped,
    /// The queue took nothing for `stall_after`.
    Stalled,
    /// A frame does not fit the queue's buffers.
    TooLong(SendError),
}

impl fmt::Display for TransmitEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent => f.write_str("all frames sent"),
            Self::Stopped => f.write_str("stopped"),
            Self::Stalled => f.write_str("stalled: the queue took nothing"),
            Self::TooLong(error) => write!(f, "{error}"),
        }
    }
}

/// What a transmitter counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounters {
    /// Frames handed to the queue.
    pub sent: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Times the queue refused a frame although it had said that there was room.
    pub send_failures: u64,
    /// Frames whose sequence field could not be rewritten (too short).
    pub fill_failures: u64,
    /// Steps in which the queue had no room at all.
    pub no_burst_polls: u64,
}

/// The send side of a pipeline.
#[derive(Debug)]
pub struct Transmitter<T, F> {
    config: TransmitterConfig,
    queue: T,
    frames: F,
    /// Whether what is written into a frame depends on its front alone and lies there.
    in_front: bool,
    index: u64,
    pass: u64,
    counters: TransmitCounters,
    /// Time up to which the wire is busy with what was sent.
    busy_until: Nanos,
    last_progress: Option<Nanos>,
    stopping: bool,
    end: Option<TransmitEnd>,
}

impl<T: TxQueue, F: FrameSource> Transmitter<T, F> {
    /// A transmitter at the first frame.
    pub const fn new(config: TransmitterConfig, queue: T, frames: F) -> Self {
        Self {
            config,
            queue,
            frames,
            in_front: in_front(&config),
            index: 0,
            pass: 0,
            counters: TransmitCounters {
                sent: 0,
                bytes: 0,
                send_failures: 0,
                fill_failures: 0,
                no_burst_polls: 0,
            },
            busy_until: Nanos::ZERO,
            last_progress: None,
            stopping: false,
            end: None,
        }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &TransmitCounters {
        &self.counters
    }

    /// Why the transmitter ended; `None` while it runs.
    #[must_use]
    pub const fn end(&self) -> Option<TransmitEnd> {
        self.end
    }

    /// Frames that are owed in all; `None` when it goes on until stopped.
    #[must_use]
    pub fn owed(&self) -> Option<u64> {
        self.config.passes.map(|passes| passes.saturating_mul(self.frames.frames()))
    }

    /// The queue, for its own reports.
    pub const fn queue(&self) -> &T {
        &self.queue
    }

    /// No further frame is sent; what the queue holds back still goes out.
    pub const fn stop(&mut self) {
        self.stopping = true;
    }

    /// Does one round of work: sends at most [`MAX_POLL`] frames. Bounded, and never blocks.
    pub fn step(&mut self, now: Nanos) -> Next {
        if self.end.is_some() {
            return Next::Done;
        }
        let last = *self.last_progress.get_or_insert(now);
        self.queue.flush();
        if self.exhausted() || self.stopping {
            return self.finish(now, last);
        }
        let room = self.queue.room().min(MAX_POLL);
        if room == 0 {
            self.counters.no_burst_polls += 1;
            return self.wait(now, last);
        }
        let mut any = false;
        for _ in 0..room {
            if self.exhausted() {
                break;
            }
            if self.config.pacing_mbps > 0 && self.busy_until > now {
                self.last_progress = Some(now);
                return if any { Next::Again } else { Next::Wait(Some(self.busy_until)) };
            }
            match self.send_one(now) {
                Ok(()) => any = true,
                Err(SendError::Full) => {
                    self.counters.send_failures += 1;
                    break;
                }
                Err(error) => {
                    self.end = Some(TransmitEnd::TooLong(error));
                    return Next::Done;
                }
            }
        }
        if any {
            self.last_progress = Some(now);
            return Next::Again;
        }
        self.wait(now, last)
    }

    fn exhausted(&self) -> bool {
        self.frames.frames() == 0 || self.config.passes.is_some_and(|passes| self.pass >= passes)
    }

    fn wait(&mut self, now: Nanos, last: Nanos) -> Next {
        if now.since(last) >= self.config.stall_after {
            self.end = Some(TransmitEnd::Stalled);
            return Next::Done;
        }
        Next::Wait(Some(last.plus(self.config.stall_after)))
    }

    fn finish(&mut self, now: Nanos, last: Nanos) -> Next {
        if self.queue.finish() {
            let stopped = self.stopping && !self.exhausted();
            self.end = Some(if stopped { TransmitEnd::Stopped } else { TransmitEnd::Sent });
            return Next::Done;
        }
        self.wait(now, last)
    }

    fn send_one(&mut self, now: Nanos) -> Result<(), SendError> {
        let (index, pass, config) = (self.index, self.pass, self.config);
        let frames = &self.frames;
        let lent = if self.in_front { frames.lent(index) } else { None };
        let len = lent.map_or_else(|| frames.len(index), <[u8]>::len);
        let mut numbered = true;
        match lent {
            Some(frame) => self.queue.send_from(frame, |front| {
                numbered = adapt(front, &config, pass);
            })?,
            None => self.queue.send(len, |frame| {
                frames.write(index, frame);
                numbered = adapt(frame, &config, pass);
            })?,
        }
        self.counters.sent += 1;
        self.counters.bytes += len as u64;
        self.counters.fill_failures += u64::from(!numbered);
        self.index += 1;
        if self.index == self.frames.frames() {
            self.index = 0;
            self.pass += 1;
        }
        self.pace(now, len as u64);
        Ok(())
    }

    /// Books the time that the frame takes on a wire of the configured rate. A sender that fell
    /// behind does not catch up in a burst.
    fn pace(&mut self, now: Nanos, len: u64) {
        if self.config.pacing_mbps == 0 {
            return;
        }
        let bits = (len + OVERHEAD_BYTES).saturating_mul(8);
        // Megabits per second are bits per microsecond.
        let span = Nanos(bits.saturating_mul(1_000) / self.config.pacing_mbps);
        self.busy_until = self.busy_until.max(now).plus(span);
    }
}

/// Whether [`adapt`] does to the front of a frame what it does to the whole.
const fn in_front(config: &TransmitterConfig) -> bool {
    match &config.renumber {
        Some((field, _)) => header::sequence_is_in_front(*field, HEADER_BYTES),
        None => true,
    }
}

/// Writes into a frame what differs from the capture; false when the sequence field lies beyond
/// its end. The whole frame, or its front where that will do ([`in_front`]).
fn adapt(frame: &mut [u8], config: &TransmitterConfig, pass: u64) -> bool {
    if let Some(address) = config.eth_dst
        && let Some(place) = frame.get_mut(..address.len())
    {
        place.copy_from_slice(&address);
    }
    let Some((field, per_pass)) = config.renumber else { return true };
    if pass == 0 || per_pass == 0 {
        return true;
    }
    let Some(wire) = field.read(frame) else { return false };
    // Both are taken modulo 2^width by the write; 32 bits are enough for that.
    #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32 is intended")]
    let shift = per_pass.wrapping_mul(pass) as u32;
    let next = wire.wrapping_add(shift) & field.max();
    if next == wire {
        return true;
    }
    if planted!(Unmended) {
        return field.write(frame, next);
    }
    header::set_sequence(frame, field, next)
}

#[cfg(test)]
mod tests;
