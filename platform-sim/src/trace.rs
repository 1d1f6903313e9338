//! What happened on the threads of a real run, so that it can be stepped through afterwards.
//!
//! Everything that the producer decides follows from what it is handed: the time of each step, the
//! frames of each poll, how many packet buffers are free, which batch buffers came back, whether
//! the job ring had room, and the signals. [`Log`] writes these down in the order in which the
//! producer met them; [`replay()`] hands the same to a producer of its own and compares every
//! decision: which slots of which batch were placed when it was handed over or given up, and all
//! counters. Steps in which nothing happened are left out.
//!
//! The file is text. The first line is a JSON object, what the producer was made of ([`Header`]);
//! then one line for each step:
//!
//! ```text
//! <time, ns> <batches handed over> <buffers taken back> <why it ended, or -> <token>…
//! ```
//!
//! | token | what the producer met, or did |
//! |---|---|
//! | `p256:0+64,S,t70` | a poll for 256 frames, and what came: the numbers 0 to 63, a short frame, number 70 with a trailer |
//! | `w` | the NIC behind that queue might hold more (a poller of its own polls it) |
//! | `e77` | it held no more of what had arrived by that time |
//! | `f51200` | so many packet buffers were free when it asked |
//! | `b5f…` | a batch was handed over; a hash of its missing slots |
//! | `a` | a batch was given up |
//! | `x0`, `x1` | the reorder of a batch failed; for good |
//! | `d` | the consumer was dead |
//! | `s77` | the receiver became ready, at that time |
//!
//! The last line is `final`, with all counters.

mod replay;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tensorwire_core::burst::{Burst, Filling, PacketDesc};
use tensorwire_core::counters::NicStats;
use tensorwire_core::geometry::{ElementType, GeometrySpec};
use tensorwire_core::header::{Malformed, PacketCheck, Refused};
use tensorwire_core::pipeline::producer::{
    Backpressure, EndReason, MissingPolicy, ProducerConfig, ProducerReport, ProducerStatus,
};
use tensorwire_core::port::{Event, PacketMemory, Reorder, RxQueue, StageError};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;

pub use replay::{Replayed, TraceError, replay};

/// What a producer was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format.
    pub tensorwire_trace: u32,
    /// The numbers of the geometry, in the order of [`GeometrySpec`]'s fields.
    geometry: [u32; 9],
    /// Element types of packets and batches.
    types: [String; 2],
    /// Batches open at once.
    windows: u32,
    timeout_ns: u64,
    drop_partial: bool,
    drop_on_full: bool,
    poll: usize,
    rx_ring: usize,
    startup_ns: u64,
    quiesce_ns: u64,
    owed_images: Option<u64>,
    time_limit_ns: Option<u64>,
    accept_trailer: bool,
    /// Jobs that wait for the consumer.
    queue_depth: usize,
    /// Batch buffers.
    buffers: usize,
    /// Packet buffers.
    rx_bufs: usize,
}

/// The version that is written and read.
const VERSION: u32 = 1;

/// Sizes of a run that a producer's settings do not hold.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Jobs that wait for the consumer.
    pub queue_depth: usize,
    /// Batch buffers.
    pub buffers: usize,
    /// Packet buffers.
    pub rx_bufs: usize,
    /// Whether a frame may be longer than a packet.
    pub accept_trailer: bool,
}

impl Header {
    /// What a producer of `config` is made of.
    #[must_use]
    pub fn new(config: &ProducerConfig, sizes: Sizes) -> Self {
        let spec = config.geometry.spec();
        let geometry = [
            spec.channels,
            spec.height,
            spec.width,
            spec.packets_per_image,
            spec.images_per_batch,
            spec.payload_byte_offset,
            spec.payload_bytes,
            spec.seq_bit_offset,
            spec.seq_bit_width,
        ];
        Self {
            tensorwire_trace: VERSION,
            geometry,
            types: [spec.input.name().to_owned(), spec.output.name().to_owned()],
            windows: config.windows,
            timeout_ns: config.timeout.0,
            drop_partial: config.missing == MissingPolicy::Drop,
            drop_on_full: config.backpressure == Backpressure::Drop,
            poll: config.poll,
            rx_ring: config.rx_ring,
            startup_ns: config.startup_wait.0,
            quiesce_ns: config.quiesce_wait.0,
            owed_images: config.owed_images,
            time_limit_ns: config.time_limit.map(|limit| limit.0),
            accept_trailer: sizes.accept_trailer,
            queue_depth: sizes.queue_depth,
            buffers: sizes.buffers,
            rx_bufs: sizes.rx_bufs,
        }
    }

    fn spec(&self) -> Option<GeometrySpec> {
        let [channels, height, width, packets_per_image, images_per_batch, rest @ ..] =
            self.geometry;
        let [payload_byte_offset, payload_bytes, seq_bit_offset, seq_bit_width] = rest;
        let [input, output] = &self.types;
        Some(GeometrySpec {
            channels,
            height,
            width,
            packets_per_image,
            images_per_batch,
            payload_byte_offset,
            payload_bytes,
            seq_bit_offset,
            seq_bit_width,
            input: ElementType::from_name(input)?,
            output: ElementType::from_name(output)?,
        })
    }
}

/// What is compared after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    status: ProducerStatus,
    buffers: (usize, usize),
}

/// A log that several stages of one thread write to.
pub type SharedLog = Arc<Mutex<Log>>;

/// The log of a run.
pub struct Log {
    out: Box<dyn Write + Send>,
    buffers: usize,
    /// The tokens of the step under way.
    tokens: String,
    /// Something happened in it.
    happened: bool,
    dead: bool,
    before: Option<Seen>,
    error: Option<io::Error>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// The log behind its lock.
pub fn lock(log: &SharedLog) -> MutexGuard<'_, Log> {
    // One thread writes; if it panicked, the log is as good as it was.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// A log that begins with `header`.
    ///
    /// # Errors
    ///
    /// When the first line cannot be written.
    pub fn new(mut out: Box<dyn Write + Send>, header: &Header) -> io::Result<Self> {
        let line = serde_json::to_string(header).map_err(io::Error::other)?;
        writeln!(out, "{line}")?;
        Ok(Self {
            out,
            buffers: header.buffers,
            tokens: String::new(),
            happened: false,
            dead: false,
            before: None,
            error: None,
        })
    }

    fn keep(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// The receiver becomes ready.
    pub fn start(&mut self, now: Nanos) {
        self.outcome(format_args!("s{}", now.0));
    }

    /// The producer has made a step. `dead`: whether the consumer's flag is up.
    pub fn step(
        &mut self,
        now: Nanos,
        status: ProducerStatus,
        buffers: (usize, usize),
        dead: bool,
    ) {
        // Buffers on their way back are not the producer's doing.
        let seen = Seen { status: ProducerStatus { returning: 0, ..status }, buffers };
        let dead = dead && !self.dead;
        self.dead |= dead;
        if self.happened || dead || self.before != Some(seen) {
            let taken = taken(&status, buffers, self.buffers);
            let (pushed, end) = (status.pushed, end_word(status.end));
            let dead = if dead { " d" } else { "" };
            let line = writeln!(self.out, "{} {pushed} {taken} {end}{}{dead}", now.0, self.tokens);
            self.keep(line);
        }
        self.tokens.clear();
        self.happened = false;
        self.before = Some(seen);
    }

    /// The run is over.
    ///
    /// # Errors
    ///
    /// The first error of writing.
    pub fn finish(&mut self, report: &ProducerReport) -> io::Result<()> {
        let line = writeln!(self.out, "final {}", totals(report));
        self.keep(line);
        let flushed = self.out.flush();
        self.keep(flushed);
        self.error.take().map_or(Ok(()), Err)
    }

    fn token(&mut self, token: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = write!(self.tokens, " {token}");
    }

    fn outcome(&mut self, token: std::fmt::Arguments<'_>) {
        self.happened = true;
        self.token(token);
    }

    fn poll(&mut self, asked: usize, frames: impl Iterator<Item = Kind>) {
        let before = self.tokens.len();
        self.token(format_args!("p{asked}:"));
        let (mut first, mut run) = (true, None::<(u32, u32)>);
        for kind in frames {
            self.happened = true;
            if let (Kind::Number(number), Some((from, count))) = (kind, run)
                && from.checked_add(count) == Some(number)
            {
                run = Some((from, count + 1));
                continue;
            }
            self.run(&mut first, run.take());
            match kind {
                Kind::Number(number) => run = Some((number, 1)),
                Kind::Trimmed(number) => self.item(&mut first, format_args!("t{number}")),
                Kind::Refused(refused) => {
                    self.item(&mut first, format_args!("{}", letter(refused)));
                }
            }
        }
        self.run(&mut first, run);
        debug_assert!(self.tokens.len() > before);
    }

    fn run(&mut self, first: &mut bool, run: Option<(u32, u32)>) {
        match run {
            None => {}
            Some((from, 1)) => self.item(first, format_args!("{from}")),
            Some((from, count)) => self.item(first, format_args!("{from}+{count}")),
        }
    }

    fn item(&mut self, first: &mut bool, item: std::fmt::Arguments<'_>) {
        let comma = if std::mem::replace(first, false) { "" } else { "," };
        let _ = write!(self.tokens, "{comma}{item}");
    }
}

/// A frame as the producer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number(u32),
    Trimmed(u32),
    Refused(Refused),
}

/// The refused frames by their letters.
const LETTERS: [(char, Refused); 8] = [
    ('S', Refused::Short),
    ('L', Refused::Long),
    ('O', Refused::OtherFlow),
    ('V', Refused::Malformed(Malformed::Vlan)),
    ('F', Refused::Malformed(Malformed::Fragment)),
    ('I', Refused::Malformed(Malformed::Ihl)),
    ('C', Refused::Malformed(Malformed::Checksum)),
    ('U', Refused::Malformed(Malformed::NotUdp)),
];

fn letter(refused: Refused) -> char {
    LETTERS.iter().find(|(_, other)| *other == refused).map_or('O', |(letter, _)| *letter)
}

/// Batch buffers that the producer has taken back in all.
fn taken(status: &ProducerStatus, (free, filling): (usize, usize), all: usize) -> u64 {
    let out = all.saturating_sub(free).saturating_sub(filling);
    status.pushed.saturating_sub(out as u64)
}

fn end_word(end: Option<EndReason>) -> &'static str {
    match end {
        None => "-",
        Some(EndReason::Complete) => "complete",
        Some(EndReason::SenderDone) => "sender_done",
        Some(EndReason::Quiet) => "quiet",
        Some(EndReason::NothingArrived) => "nothing_arrived",
        Some(EndReason::TimeLimit) => "time_limit",
        Some(EndReason::Stopped) => "stopped",
        Some(EndReason::ConsumerDead) => "consumer_dead",
        Some(EndReason::ReorderFailed(_)) => "reorder_failed",
        Some(_) => "other",
    }
}

/// All counters, and the images that are named.
fn totals(report: &ProducerReport) -> String {
    let ProducerReport { packets, reassembly, images, damaged, missing, pushed, .. } = report;
    let (join, next, end) = (report.join, report.next, end_word(report.end));
    format!(
        "{packets:?} {reassembly:?} {images:?} damaged [{damaged}] missing [{missing}] \
         pushed {pushed} join {join:?} next {next} end {end}"
    )
}

/// A hash of the slots that are missing.
fn hole_hash(placed: SlotMap<'_>) -> u64 {
    placed.missing().fold(0xcbf2_9ce4_8422_2325, |hash, (first, count)| {
        let word = u64::from(first) << 32 | u64::from(count);
        (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

/// A queue or a reorder stage that writes down what the producer meets there, if there is a log.
#[derive(Debug)]
pub struct Recorded<T> {
    inner: T,
    log: Option<(SharedLog, PacketCheck)>,
}

impl<T> Recorded<T> {
    /// Puts a log around `inner`. `check` is the producer's own: it says what a frame is to it.
    pub const fn new(inner: T, log: Option<(SharedLog, PacketCheck)>) -> Self {
        Self { inner, log }
    }

    /// What is inside.
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// What is inside; what is done to it past the wrapper is not recorded.
    pub const fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: PacketMemory> PacketMemory for Recorded<T> {
    #[inline]
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.inner.bytes(packet)
    }

    #[inline]
    fn prefetch(&self, packet: &PacketDesc) {
        self.inner.prefetch(packet);
    }

    #[inline]
    fn arrived(&self, packet: &PacketDesc) -> Option<Nanos> {
        self.inner.arrived(packet)
    }
}

impl<T: RxQueue> RxQueue for Recorded<T> {
    #[inline]
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let came = self.inner.rx_burst(out);
        if let Some((log, check)) = &self.log {
            let kinds = out.iter().take(came).map(|packet| {
                match check.check(self.inner.bytes(packet), packet.len(), packet.flow()) {
                    Ok(accepted) if accepted.trimmed => Kind::Trimmed(accepted.wire),
                    Ok(accepted) => Kind::Number(accepted.wire),
                    Err(refused) => Kind::Refused(refused),
                }
            });
            lock(log).poll(out.len(), kinds);
        }
        came
    }

    #[inline]
    fn release(&mut self, packets: &mut [PacketDesc]) {
        self.inner.release(packets);
    }

    #[inline]
    fn free_buffers(&self) -> usize {
        let free = self.inner.free_buffers();
        if let Some((log, _)) = &self.log {
            lock(log).token(format_args!("f{free}"));
        }
        free
    }

    fn stats(&self) -> NicStats {
        self.inner.stats()
    }

    #[inline]
    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        let at = self.inner.caught_up(now);
        if let Some((log, _)) = &self.log {
            match at {
                Some(at) if at == now => {}
                Some(at) => lock(log).token(format_args!("e{}", at.0)),
                None => lock(log).token(format_args!("w")),
            }
        }
        at
    }
}

impl<T: Reorder> Reorder for Recorded<T> {
    #[inline]
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        self.inner.place(batch, slot, packet, memory);
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        let result = self.inner.start(batch, placed);
        if let Some((log, _)) = &self.log {
            match result {
                Ok(_) => lock(log).outcome(format_args!("b{:x}", hole_hash(placed))),
                Err(error) => lock(log).outcome(format_args!("x{}", u8::from(error.fatal))),
            }
        }
        result
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        self.inner.abandon(batch);
        if let Some((log, _)) = &self.log {
            lock(log).outcome(format_args!("a"));
        }
    }

    #[inline]
    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        self.inner.poll_done(done)
    }
}

#[cfg(test)]
mod tests;
