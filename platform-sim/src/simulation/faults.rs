//! Faults as data: which kinds happen, how often, from when to when; or exactly which ones.
//!
//! Every fault of a simulated run is asked for here, by its kind. Each kind counts its
//! *opportunities* (a frame sent, a step, a submission; the table of [`Fault`] says which) and has
//! a generator of its own, so that one kind can be turned off without moving the others. What
//! happened is written down as [`Event`]s, and a plan of events alone repeats it: that is what
//! [`shrink`](super::shrink()) works on.
//!
//! A plan is part of a file, see [`Schedule`](super::Schedule). In it:
//!
//! `one_in`: once in so many opportunities, at random. `from` (0) and `until` (never): the steps
//! of the run between which it may happen. `burst` (1): so many opportunities in a row. `limit`
//! (none): how often at most. An event happens at opportunity `at` of its kind, counted from 0;
//! what exactly it does follows from `arg`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::meter;
use crate::prng::Prng;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal per $per:literal),* $(,)?) => {
        /// A kind of fault, and what counts as an opportunity for it.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Fault {
            $(#[doc = concat!("Per ", $per, ":")] $(#[$doc])* $name),*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// The name in a file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

faults! {
    /// It is lost.
    Drop = "drop" per "frame sent",
    /// One to three copies follow, near or far behind.
    Duplicate = "duplicate" per "frame sent",
    /// It is overtaken by up to the plan's `reorder` frames.
    Reorder = "reorder" per "frame sent",
    /// It arrives up to the plan's `delay` later.
    Delay = "delay" per "frame sent",
    /// One byte of it changes, anywhere.
    Corrupt = "corrupt" per "frame sent",
    /// Its end is missing.
    Truncate = "truncate" per "frame sent",
    /// Bytes follow its end.
    Extend = "extend" per "frame sent",
    /// A frame of somebody else goes before it: other ports, ARP, a tag, a fragment, TCP, noise.
    ForeignFlow = "foreign_flow" per "frame sent",
    /// A well-formed packet of ours goes before it, under any number.
    WildSequence = "wild_sequence" per "frame sent",
    /// The sender begins again with its first frame.
    SenderRestart = "sender_restart" per "step of the run",
    /// The sender sends nothing for a while.
    SenderPause = "sender_pause" per "step of the run",
    /// The transmit queue has no room for a while.
    TxStall = "tx_stall" per "time the sender asks for room",
    /// Nobody polls the NIC until every receive descriptor is used up.
    RingFull = "ring_full" per "step of the run",
    /// Packets that are given back reach the NIC much later.
    PoolEmpty = "pool_empty" per "release of packets",
    /// The producer does nothing for a while.
    SlowProducer = "slow_producer" per "step of the run",
    /// The consumer does nothing for a while.
    SlowConsumer = "slow_consumer" per "step of the run",
    /// A reorder gives its packets back much later.
    SlowReorder = "slow_reorder" per "batch submitted",
    /// An inference is refused or fails on the device, for good or not.
    InferError = "infer_error" per "inference",
    /// The result of an inference never comes.
    InferHang = "infer_hang" per "inference",
    /// The result of an inference comes late.
    InferSlow = "infer_slow" per "inference",
    /// The result of an inference has another shape.
    InferWrongShape = "infer_wrong_shape" per "inference",
    /// The reorder stage cannot submit a batch.
    ReorderError = "reorder_error" per "batch submitted",
    /// The engine is ready late: the receiver starts after the sender.
    EngineSlow = "engine_slow" per "run",
    /// The sink cannot write: once, or the disk is full for good.
    SinkError = "sink_error" per "delivery",
    /// The consumer's thread dies: it is never stepped again, and the shell says so.
    ConsumerDeath = "consumer_death" per "step of the run",
    /// The first signal, SIGINT or SIGTERM.
    Signal = "signal" per "step before it",
    /// A second one: the process ends at once.
    SecondSignal = "second_signal" per "step after the first",
    /// The clock steps, ahead or back.
    ClockStep = "clock_step" per "step of the run",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const fn one() -> u32 {
    1
}

const fn forever() -> u64 {
    u64::MAX
}

/// How often a kind of fault happens, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Once in so many opportunities; 0: never.
    pub one_in: u64,
    /// The first step of the run at which it may happen.
    #[serde(default)]
    pub from: u64,
    /// The step from which it does not happen any more.
    #[serde(default = "forever")]
    pub until: u64,
    /// So many opportunities in a row.
    #[serde(default = "one")]
    pub burst: u32,
    /// How often at most.
    #[serde(default = "forever")]
    pub limit: u64,
}

impl Rate {
    /// Once in `n` opportunities, at any time.
    #[must_use]
    pub const fn one_in(n: u64) -> Self {
        Self { one_in: n, from: 0, until: u64::MAX, burst: 1, limit: u64::MAX }
    }
}

/// One fault that happens, or happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its kind.
    pub fault: Fault,
    /// The opportunity of its kind, counted from 0.
    pub at: u64,
    /// Decides what exactly it does.
    pub arg: u64,
}

/// Which faults happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultPlan {
    /// Kinds that happen at random.
    pub rates: BTreeMap<Fault, Rate>,
    /// Faults that happen in any case.
    pub events: Vec<Event>,
}

/// The names of [`FaultPlan::preset`].
pub const PRESETS: [&str; 5] = ["none", "wire", "stalls", "devices", "everything"];

impl FaultPlan {
    /// Nothing happens.
    #[must_use]
    pub const fn new() -> Self {
        Self { rates: BTreeMap::new(), events: Vec::new() }
    }

    /// Adds a kind.
    #[must_use]
    pub fn with(mut self, fault: Fault, rate: Rate) -> Self {
        self.rates.insert(fault, rate);
        self
    }

    /// Exactly these faults.
    #[must_use]
    pub const fn of(events: Vec<Event>) -> Self {
        Self { rates: BTreeMap::new(), events }
    }

    /// A plan by name: `none`; `wire` (what a cable and a network do), `stalls` (whoever may be
    /// slow is), `devices` (whatever may fail does), `everything`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let kinds: &[(Fault, u64)] = match name {
            "none" => &[],
            "wire" => WIRE,
            "stalls" => STALLS,
            "devices" => DEVICES,
            "everything" => {
                let all = [WIRE, STALLS, DEVICES, ENDS];
                return Some(Self::rates(all.into_iter().flatten()));
            }
            _ => return None,
        };
        Some(Self::rates(kinds.iter()))
    }

    fn rates<'a>(kinds: impl Iterator<Item = &'a (Fault, u64)>) -> Self {
        let rate = |&(fault, n): &(Fault, u64)| (fault, Rate::one_in(n));
        Self { rates: kinds.map(rate).collect(), events: Vec::new() }
    }

    /// Whether nothing can happen.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.events.is_empty() && self.rates.values().all(|rate| rate.one_in == 0)
    }
}

const WIRE: &[(Fault, u64)] = &[
    (Fault::Drop, 60),
    (Fault::Duplicate, 60),
    (Fault::Reorder, 20),
    (Fault::Delay, 80),
    (Fault::Corrupt, 100),
    (Fault::Truncate, 150),
    (Fault::Extend, 150),
    (Fault::ForeignFlow, 40),
    (Fault::WildSequence, 150),
    (Fault::SenderRestart, 1_000),
];

const STALLS: &[(Fault, u64)] = &[
    (Fault::SenderPause, 200),
    (Fault::TxStall, 100),
    (Fault::RingFull, 200),
    (Fault::PoolEmpty, 30),
    (Fault::SlowProducer, 100),
    (Fault::SlowConsumer, 100),
    (Fault::SlowReorder, 10),
    (Fault::InferSlow, 10),
    (Fault::EngineSlow, 2),
];

const DEVICES: &[(Fault, u64)] = &[
    (Fault::InferError, 12),
    (Fault::InferHang, 100),
    (Fault::InferWrongShape, 20),
    (Fault::ReorderError, 60),
    (Fault::SinkError, 20),
    (Fault::ConsumerDeath, 4_000),
];

const ENDS: &[(Fault, u64)] =
    &[(Fault::Signal, 4_000), (Fault::SecondSignal, 40), (Fault::ClockStep, 1_000)];

impl fmt::Display for FaultPlan {
    /// One line: kinds with their rates, then the number of events.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("no faults");
        }
        let mut first = true;
        for (fault, rate) in self.rates.iter().filter(|(_, rate)| rate.one_in > 0) {
            let comma = if first { "" } else { ", " };
            write!(f, "{comma}{fault} 1/{}", rate.one_in)?;
            if rate.burst > 1 {
                write!(f, "×{}", rate.burst)?;
            }
            first = false;
        }
        match (self.events.len(), first) {
            (0, _) => Ok(()),
            (n, true) => write!(f, "{n} events"),
            (n, false) => write!(f, ", {n} events"),
        }
    }
}

/// What one kind of fault is up to.
#[derive(Debug)]
struct Kind {
    prng: Prng,
    rate: Option<Rate>,
    /// Opportunities so far.
    seen: u64,
    /// How often it happened.
    count: u64,
    /// Opportunities that are left of a burst.
    left: u32,
    /// The events that are to come, the next one last.
    events: Vec<(u64, u64)>,
}

/// Decides, at each opportunity, whether a fault happens.
#[derive(Debug)]
pub(super) struct Injector {
    kinds: Vec<Kind>,
    step: u64,
    on: bool,
    happened: Vec<Event>,
}

impl Injector {
    pub(super) fn new(plan: &FaultPlan, prng: &mut Prng) -> Self {
        let kind = |fault: Fault| {
            let mut events: Vec<(u64, u64)> =
                plan.events.iter().filter(|e| e.fault == fault).map(|e| (e.at, e.arg)).collect();
            events.sort_unstable_by(|a, b| b.cmp(a));
            let rate = plan.rates.get(&fault).copied().filter(|rate| rate.one_in > 0);
            Kind { prng: prng.child(), rate, seen: 0, count: 0, left: 0, events }
        };
        let kinds = Fault::ALL.map(kind).into();
        Self { kinds, step: 0, on: true, happened: Vec::new() }
    }

    /// The run is at `step`.
    pub(super) const fn at_step(&mut self, step: u64) {
        self.step = step;
    }

    /// From now on nothing happens.
    pub(super) const fn stop(&mut self) {
        self.on = false;
    }

    /// What happened, in order.
    pub(super) fn happened(&self) -> &[Event] {
        &self.happened
    }

    /// How often `fault` happened.
    pub(super) fn count(&self, fault: Fault) -> u64 {
        self.kinds[fault as usize].count
    }

    /// An opportunity for `fault`: what it does if it happens now.
    pub(super) fn draw(&mut self, fault: Fault) -> Option<u64> {
        let (on, step) = (self.on, self.step);
        let kind = &mut self.kinds[fault as usize];
        let at = kind.seen;
        kind.seen += 1;
        let mut arg = None;
        while let Some(&(due, value)) = kind.events.last().filter(|(due, _)| *due <= at) {
            kind.events.pop();
            if due == at {
                arg = Some(value);
            }
        }
        if let Some(rate) = kind.rate {
            // Two numbers each time, used or not: what follows does not depend on the outcome.
            let (chance, value) = (kind.prng.below(rate.one_in), kind.prng.next_u64());
            let now = (rate.from..rate.until).contains(&step) && kind.count < rate.limit;
            if now && chance == 0 && kind.left == 0 {
                kind.left = rate.burst.max(1);
            }
            if kind.left > 0 {
                kind.left -= 1;
                arg = arg.or(Some(value));
            }
        }
        let arg = arg.filter(|_| on)?;
        kind.count += 1;
        meter::aside(|| self.happened.push(Event { fault, at, arg }));
        Some(arg)
    }
}

#[cfg(test)]
mod tests;
