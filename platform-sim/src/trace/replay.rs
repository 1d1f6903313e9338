//! Steps through the log of a run: a producer of its own is handed what that one met.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;

use tensorwire_core::burst::{Burst, BurstPool, Filling, PacketDesc};
use tensorwire_core::counters::NicStats;
use tensorwire_core::flow::{FlowMatch, FlowTable};
use tensorwire_core::geometry::Geometry;
use tensorwire_core::header::{self, HeaderSpec, Malformed, PacketCheck, Refused, Verify};
use tensorwire_core::limits::MAX_POLL;
use tensorwire_core::pipeline::producer::{Backpressure, MissingPolicy, Producer, ProducerConfig};
use tensorwire_core::pipeline::{ConsumerEnd, Job, Link, Signals};
use tensorwire_core::port::{Event, PacketMemory, Reorder, RxQueue, StageError, TxQueue};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;

use super::{Header, Kind, LETTERS, VERSION, end_word, hole_hash, taken, totals};
use crate::nic::{Oversize, SwNic, SwNicConfig, SwRx, SwTx, TxMode};

/// Why a log could not be stepped through.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not what it should be.
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The producer decided otherwise than that of the run.
    Diverged {
        /// The line of the step, from 1.
        line: usize,
        /// In what.
        why: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line, why } => write!(f, "line {line}: {why}"),
            Self::Diverged { line, why } => write!(f, "line {line}: another decision: {why}"),
        }
    }
}

impl std::error::Error for TraceError {}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Steps.
    pub steps: u64,
    /// Frames.
    pub frames: u64,
    /// Batches handed over.
    pub batches: u64,
    /// All counters, equal to those of the run.
    pub totals: String,
}

/// What the producer meets in a step, or must do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Poll {
        asked: usize,
        frames: Vec<Kind>,
    },
    /// Up to when the queue had caught up with the NIC; without it, up to the step.
    CaughtUp(Option<Nanos>),
    Free(usize),
    Handed(u64),
    GivenUp,
    Failed {
        fatal: bool,
    },
}

#[derive(Debug)]
struct Step {
    now: Nanos,
    pushed: u64,
    taken: u64,
    end: String,
    dead: bool,
    started: Option<Nanos>,
    tokens: VecDeque<Token>,
}

fn frames(text: &str) -> Option<Vec<Kind>> {
    let mut frames = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        if let Some((_, refused)) = LETTERS.iter().find(|(letter, _)| item.starts_with(*letter)) {
            frames.push(Kind::Refused(*refused));
        } else if let Some(number) = item.strip_prefix('t') {
            frames.push(Kind::Trimmed(number.parse().ok()?));
        } else {
            let (first, count) = item.split_once('+').unwrap_or((item, "1"));
            let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
            // No poll is longer.
            if count as usize > MAX_POLL {
                return None;
            }
            frames.extend((first..first.checked_add(count)?).map(Kind::Number));
        }
    }
    Some(frames)
}

fn token(text: &str) -> Option<Token> {
    let (kind, rest) = text.split_at_checked(1)?;
    Some(match kind {
        "p" => {
            let (asked, text) = rest.split_once(':')?;
            let (asked, frames) = (asked.parse().ok()?, frames(text)?);
            if frames.len() > asked {
                return None;
            }
            Token::Poll { asked, frames }
        }
        "w" if rest.is_empty() => Token::CaughtUp(None),
        "e" => Token::CaughtUp(Some(Nanos(rest.parse().ok()?))),
        "f" => Token::Free(rest.parse().ok()?),
        "b" => Token::Handed(u64::from_str_radix(rest, 16).ok()?),
        "a" => Token::GivenUp,
        "x" => Token::Failed { fatal: rest == "1" },
        _ => return None,
    })
}

fn step(text: &str) -> Result<Step, String> {
    let mut words = text.split(' ');
    let mut number = |what| {
        let word = words.next().unwrap_or_default();
        word.parse().map_err(|_| format!("`{word}` is no {what}"))
    };
    let (now, pushed, taken) = (number("time")?, number("count")?, number("count")?);
    let end = words.next().unwrap_or_default().to_owned();
    let (now, tokens) = (Nanos(now), VecDeque::new());
    let mut step = Step { now, pushed, taken, end, dead: false, started: None, tokens };
    for word in words {
        let started = word.strip_prefix('s').and_then(|time| time.parse().ok());
        if word == "d" {
            step.dead = true;
        } else if let Some(started) = started {
            step.started = Some(Nanos(started));
        } else {
            step.tokens.push_back(token(word).ok_or_else(|| format!("`{word}` is no token"))?);
        }
    }
    Ok(step)
}

/// What the stages of a replay share.
#[derive(Debug, Default)]
struct State {
    tokens: VecDeque<Token>,
    diverged: Option<String>,
    frames: u64,
    /// Batches handed over.
    pushed: u64,
}

impl State {
    fn differs(&mut self, why: String) {
        self.diverged.get_or_insert(why);
    }

    /// How many jobs the consumer must have taken, so that there is room for the next batch that
    /// this step hands over or tries to. On its thread the consumer took them meanwhile.
    fn popped(&self, depth: u64) -> u64 {
        let tries = |token: &Token| matches!(token, Token::Handed(_) | Token::Failed { .. });
        let more = self.tokens.iter().any(tries);
        if more { (self.pushed + 1).saturating_sub(depth) } else { 0 }
    }
}

/// Makes frames that the receiver takes for what the log says.
#[derive(Debug)]
struct Maker {
    geometry: Geometry,
    plain: Vec<u8>,
}

impl Maker {
    fn new(geometry: Geometry) -> Result<Self, String> {
        let mut plain = vec![0; geometry.frame_bytes()];
        let spec = HeaderSpec {
            eth_src: [2, 0, 0, 0, 0, 1],
            eth_dst: [2, 0, 0, 0, 0, 2],
            ip_src: [10, 0, 0, 1],
            ip_dst: [10, 0, 0, 2],
            udp_src: 4096,
            udp_dst: 4096,
        };
        header::build(&spec, &mut plain).map_err(|error| error.to_string())?;
        Ok(Self { geometry, plain })
    }

    fn send(&mut self, kind: Kind, tx: &mut SwTx<'_>) -> Result<(), String> {
        let mut len = self.plain.len();
        let mut frame = self.plain.clone();
        match kind {
            Kind::Number(number) | Kind::Trimmed(number) => {
                len += usize::from(matches!(kind, Kind::Trimmed(_)));
                if !header::set_sequence(&mut frame, self.geometry.seq_field(), number) {
                    return Err(format!("{number} is no sequence number"));
                }
            }
            Kind::Refused(Refused::Short) => len = header::HEADERS_BYTES as usize,
            Kind::Refused(Refused::Long) => len += 1,
            Kind::Refused(Refused::Malformed(malformed)) => {
                let (at, byte) = match malformed {
                    Malformed::Vlan => (12, 0x81),
                    Malformed::Fragment => (20, 0x20),
                    Malformed::Ihl => (14, 0x46),
                    Malformed::NotUdp => (23, 6),
                    // One bit of the IPv4 source address.
                    _ => (26, 11),
                };
                frame[at] = byte;
            }
            // IPv6.
            Kind::Refused(_) => frame[12..14].copy_from_slice(&[0x86, 0xdd]),
        }
        frame.resize(len, 0);
        tx.send(len, |out| out.copy_from_slice(&frame)).map_err(|error| error.to_string())
    }
}

#[derive(Debug)]
struct Queue<'c, 'n> {
    tx: SwTx<'n>,
    rx: SwRx<'n>,
    maker: Maker,
    state: &'c RefCell<State>,
}

impl PacketMemory for Queue<'_, '_> {
    fn bytes<'a>(&'a self, packet: &'a PacketDesc) -> &'a [u8] {
        self.rx.bytes(packet)
    }
}

impl RxQueue for Queue<'_, '_> {
    fn rx_burst(&mut self, out: &mut [PacketDesc]) -> usize {
        let state = &mut *self.state.borrow_mut();
        let frames = match state.tokens.pop_front() {
            Some(Token::Poll { asked, frames }) if asked == out.len() => frames,
            other => {
                state.differs(format!("a poll for {}, not {other:?}", out.len()));
                return 0;
            }
        };
        state.frames += frames.len() as u64;
        for kind in &frames {
            if let Err(why) = self.maker.send(*kind, &mut self.tx) {
                state.differs(why);
            }
        }
        self.tx.flush();
        self.rx.rx_burst(out)
    }

    fn release(&mut self, packets: &mut [PacketDesc]) {
        self.rx.release(packets);
    }

    fn free_buffers(&self) -> usize {
        let state = &mut *self.state.borrow_mut();
        match state.tokens.pop_front() {
            Some(Token::Free(free)) => free,
            other => {
                state.differs(format!("a look at the free buffers, not {other:?}"));
                usize::MAX
            }
        }
    }

    fn stats(&self) -> NicStats {
        self.rx.stats()
    }

    fn caught_up(&mut self, now: Nanos) -> Option<Nanos> {
        let tokens = &mut self.state.borrow_mut().tokens;
        let said = tokens.pop_front_if(|token| matches!(token, Token::CaughtUp(_)));
        if let Some(Token::CaughtUp(at)) = said { at } else { Some(now) }
    }
}

/// A reorder stage that only looks at what is asked of it.
#[derive(Debug)]
struct Watch<'c> {
    state: &'c RefCell<State>,
    consumer: &'c RefCell<Consumer<'c>>,
    depth: u64,
}

impl Watch<'_> {
    /// The consumer takes the jobs that it took by the time of the next batch.
    fn make_room(&self) {
        self.consumer.borrow_mut().take(self.state.borrow().popped(self.depth));
    }
}

impl Reorder for Watch<'_> {
    fn place<M: PacketMemory>(
        &mut self,
        _batch: &mut Burst<Filling>,
        _slot: u32,
        _packet: &mut PacketDesc,
        _memory: &M,
    ) {
        self.make_room();
    }

    fn start(
        &mut self,
        _batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        let mut state = self.state.borrow_mut();
        let hash = hole_hash(placed);
        match state.tokens.pop_front() {
            Some(Token::Handed(expected)) if expected == hash => {
                state.pushed += 1;
                drop(state);
                self.make_room();
                Ok(Event::DONE)
            }
            Some(Token::Failed { fatal }) => {
                Err(StageError { call: "recorded reorder", code: 0, fatal })
            }
            other => {
                state.differs(format!("a batch with the holes {hash:x}, not {other:?}"));
                Ok(Event::DONE)
            }
        }
    }

    fn abandon(&mut self, _batch: &mut Burst<Filling>) {
        let state = &mut *self.state.borrow_mut();
        match state.tokens.pop_front() {
            Some(Token::GivenUp) => {}
            other => state.differs(format!("a batch given up, not {other:?}")),
        }
    }

    fn poll_done(&mut self, _done: &mut [PacketDesc]) -> usize {
        0
    }
}

/// The consumer's side: jobs that were taken and not given back.
#[derive(Debug)]
struct Consumer<'a> {
    end: ConsumerEnd<'a>,
    out: VecDeque<Job>,
    popped: u64,
    returned: u64,
}

impl Consumer<'_> {
    /// Takes jobs until `popped` were taken in all, as far as there are any.
    fn take(&mut self, popped: u64) {
        while self.popped < popped
            && let Some(job) = self.end.take_job()
        {
            self.out.push_back(job);
            self.popped += 1;
        }
    }

    /// Gives buffers back until `returned` were in all.
    fn give_back(&mut self, returned: u64) {
        self.take(returned);
        while self.returned < returned
            && let Some(job) = self.out.pop_front()
        {
            self.end.give_back(job.burst.discard());
            self.returned += 1;
        }
    }
}

/// A replay under way.
struct Replay<'c, 'n> {
    header: &'c Header,
    state: &'c RefCell<State>,
    signals: &'c Signals,
    producer: Producer<'c, Queue<'c, 'n>, Watch<'c>>,
    consumer: &'c RefCell<Consumer<'c>>,
    ended: String,
    steps: u64,
}

impl Replay<'_, '_> {
    fn step(&mut self, step: Step) -> Result<(), String> {
        self.consumer.borrow_mut().give_back(step.taken);
        if let Some(started) = step.started {
            self.producer.start(started);
        }
        if step.dead {
            self.signals.consumer_dead.set();
        }
        if step.end != self.ended {
            match step.end.as_str() {
                "sender_done" => self.signals.sender_done.set(),
                "stopped" => self.signals.stop.set(),
                "consumer_dead" => self.signals.consumer_dead.set(),
                _ => {}
            }
            self.ended.clone_from(&step.end);
        }
        self.state.borrow_mut().tokens = step.tokens;
        let popped = self.state.borrow().popped(self.header.queue_depth as u64);
        self.consumer.borrow_mut().take(popped);
        // What it wants next is the log's to say.
        let _ = self.producer.step(step.now);
        self.steps += 1;
        let mut state = self.state.borrow_mut();
        if let Some(why) = state.diverged.take() {
            return Err(why);
        }
        if let Some(left) = state.tokens.front() {
            return Err(format!("nothing, not {left:?}"));
        }
        let status = self.producer.status();
        let taken = taken(&status, self.producer.buffers(), self.header.buffers);
        let found = (status.pushed, taken, end_word(status.end));
        let expected = (step.pushed, step.taken, step.end.as_str());
        if found == expected { Ok(()) } else { Err(format!("{found:?}, not {expected:?}")) }
    }
}

fn config(header: &Header, geometry: Geometry) -> Result<ProducerConfig, String> {
    let mut flows = FlowTable::new();
    flows.push(&FlowMatch::any(0)).map_err(|error| error.to_string())?;
    Ok(ProducerConfig {
        geometry,
        check: PacketCheck::new(&geometry, &flows, Verify::Ip, header.accept_trailer),
        windows: header.windows,
        timeout: Nanos(header.timeout_ns),
        missing: if header.drop_partial { MissingPolicy::Drop } else { MissingPolicy::Passthrough },
        backpressure: if header.drop_on_full { Backpressure::Drop } else { Backpressure::Block },
        poll: header.poll,
        rx_ring: header.rx_ring,
        startup_wait: Nanos(header.startup_ns),
        quiesce_wait: Nanos(header.quiesce_ns),
        owed_images: header.owed_images,
        time_limit: header.time_limit_ns.map(Nanos),
    })
}

fn nic_config(header: &Header, geometry: &Geometry) -> SwNicConfig {
    SwNicConfig {
        rx_bufs: header.rx_bufs,
        // The payload is not looked at.
        rx_buf_size: geometry.payload_offset(),
        rx_ring: header.rx_ring.max(MAX_POLL),
        tx_bufs: MAX_POLL,
        tx_buf_size: geometry.frame_bytes() + 1,
        tx_ring: MAX_POLL,
        mode: TxMode::Lossless,
        oversize: Oversize::Cut,
        tx_eth_src: None,
        flows: None,
    }
}

/// Steps through a log and compares every decision.
///
/// # Errors
///
/// [`TraceError`]: the line that is not one, or the first decision that is another.
pub fn replay(text: &str) -> Result<Replayed, TraceError> {
    let line_error = |line: usize, why: String| TraceError::Line { line, why };
    let cut = || line_error(text.lines().count(), "it ends without its last line".to_owned());
    let mut lines = text.lines().zip(1..);
    let (first, _) = lines.next().ok_or_else(|| line_error(1, "no header".to_owned()))?;
    let header: Header =
        serde_json::from_str(first).map_err(|error| line_error(1, error.to_string()))?;
    if header.tensorwire_trace != VERSION {
        return Err(line_error(1, format!("version {}", header.tensorwire_trace)));
    }
    // First of all: half a line could pass for a step that decides otherwise.
    if !text.ends_with('\n') || !text.lines().last().is_some_and(|line| line.starts_with("final "))
    {
        return Err(cut());
    }
    let in_header = |why: String| line_error(1, why);
    let spec = header.spec().ok_or_else(|| in_header("an unknown element type".to_owned()))?;
    let geometry = Geometry::new(&spec).map_err(|all| in_header(all.to_string()))?;
    let pool = BurstPool::new(header.buffers).map_err(|error| in_header(error.to_string()))?;
    let mut nic =
        SwNic::new(nic_config(&header, &geometry)).map_err(|error| in_header(error.to_string()))?;
    let (tx, rx) = nic.split();
    let mut link = Box::new(Link::new());
    let (producer_end, consumer_end) = link
        .split(header.queue_depth, header.buffers)
        .map_err(|error| in_header(error.to_string()))?;
    let mut backlog: Vec<PacketDesc> = Vec::new();
    backlog.resize_with(header.rx_bufs.max(MAX_POLL), PacketDesc::default);
    let state = RefCell::new(State::default());
    let consumer = Consumer { end: consumer_end, out: VecDeque::new(), popped: 0, returned: 0 };
    let consumer = RefCell::new(consumer);
    let maker = Maker::new(geometry).map_err(in_header)?;
    let signals = producer_end.signals();
    let mut replay = Replay {
        header: &header,
        state: &state,
        signals,
        producer: Producer::new(
            config(&header, geometry).map_err(in_header)?,
            Queue { tx, rx, maker, state: &state },
            Watch { state: &state, consumer: &consumer, depth: header.queue_depth as u64 },
            pool,
            producer_end,
            &mut backlog,
        ),
        consumer: &consumer,
        ended: "-".to_owned(),
        steps: 0,
    };
    for (text, line) in lines {
        if let Some(expected) = text.strip_prefix("final ") {
            let report = replay.producer.report();
            let found = totals(&report);
            if found != expected {
                let why = format!("{found}, not {expected}");
                return Err(TraceError::Diverged { line, why });
            }
            let frames = state.borrow().frames;
            let (steps, batches) = (replay.steps, report.pushed);
            return Ok(Replayed { steps, frames, batches, totals: found });
        }
        let step = step(text).map_err(|why| line_error(line, why))?;
        replay.step(step).map_err(|why| TraceError::Diverged { line, why })?;
    }
    Err(cut())
}
